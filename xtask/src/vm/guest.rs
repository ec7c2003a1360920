//! The guest's file system: busybox, the test programs, the libraries they need, a scratch disk.

use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::image::Image;
use super::machine::MARK;
use super::{Errand, SIMULATED};
use crate::place;
use crate::shell::{captured, output, run};

/// What drives the disk, in the order in which one needs the other. Built into newer kernels.
const MODULES: [&str; 9] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "failover",
    "net_failover",
    "virtio_net",
];

/// Programs that tests start by name. Busybox has no `strip`, and its applets would not show their own names.
const PROGRAMS: [&str; 4] = ["sh", "sleep", "strip", "nm"];

/// Its standard library is taken along.
const PYTHON: &str = "/usr/bin/python3";

const DISK_MIB: u32 = 256;

#[derive(Debug)]
pub struct Guest {
    pub initramfs: PathBuf,
    pub disk: PathBuf,
}

pub fn made(errand: &Errand, image: &Image, standin: &Path) -> Result<Guest> {
    let folder = &errand.folder;
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    for inner in ["bin", "tests", "modules"] {
        fs::create_dir_all(root.join(inner))?;
    }
    fs::copy(which::which("busybox")?, root.join("bin/busybox"))?;
    for name in PROGRAMS {
        let program = which::which(name)?;
        fs::copy(&program, root.join("bin").join(name))?;
        libraries(&program, &root)?;
    }
    python(&root)?;
    for test in &errand.tests {
        stripped(test, &root, "tests")?;
    }
    stripped(&errand.built.join("whyidle"), &root, "bin")?;
    // Tests look for the simulated device in the folder above their own.
    for library in SIMULATED {
        stripped(&errand.built.join(library), &root, ".")?;
    }
    for folder in &errand.folders {
        run(Command::new("cp").arg("-a").arg(folder).arg(&root))?;
    }
    modules(image, &root.join("modules"))?;
    fs::copy(standin, root.join("standin.ko"))?;
    fs::write(root.join("command"), &errand.command)?;
    let init = root.join("init");
    // Tests keep what must lie on a disk in cargo's folder for such things.
    let scratch = place::target().join("tmp");
    let scratch = scratch.to_str().context("the target folder's path is no UTF-8")?;
    ensure!(!scratch.contains('\''), "the target folder's path has a quote in it: {scratch}");
    fs::write(&init, include_str!("init.sh").replace("@SCRATCH@", scratch).replace("@MARK@", MARK))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let guest = Guest { initramfs: folder.join("initramfs.cpio"), disk: folder.join("disk.ext4") };
    pack(&root, &guest.initramfs)?;
    fs::remove_dir_all(&root)?;
    File::create(&guest.disk)?.set_len(u64::from(DISK_MIB) << 20)?;
    output(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&guest.disk))?;
    Ok(guest)
}

/// The system's Python, for jobs and for the tests of its stacks.
fn python(root: &Path) -> Result<()> {
    let ask = "import sys, sysconfig; print(sys.executable, sysconfig.get_path('stdlib'), sep='\\n')";
    let told = output(Command::new(PYTHON).args(["-I", "-c", ask]))?;
    let (program, library) = told.trim().split_once('\n').context("Python says where its library is")?;
    let to = |path: &str| root.join(path.trim_start_matches('/'));
    let library_to = to(library);
    fs::create_dir_all(library_to.parent().context("it lies in a folder")?)?;
    fs::create_dir_all(to("/usr/bin"))?;
    fs::copy(program, to(PYTHON)).with_context(|| program.to_owned())?;
    run(Command::new("cp").args(["-a", library]).arg(&library_to))?;
    for module in fs::read_dir(Path::new(library).join("lib-dynload"))? {
        libraries(&module?.path(), root)?;
    }
    libraries(Path::new(program), root)
}

/// Puts a program or library into a folder of the guest, without what only a debugger reads.
fn stripped(file: &Path, root: &Path, folder: &str) -> Result<()> {
    let to = root.join(folder).join(file.file_name().context("a program has a name")?);
    run(Command::new("strip").args(["--strip-debug", "-o"]).arg(to).arg(file))?;
    libraries(file, root)
}

/// Copies the shared libraries of a program to where it looks for them.
fn libraries(program: &Path, root: &Path) -> Result<()> {
    // It fails for a static program, which needs none.
    let listed = captured(Command::new("ldd").arg(program))?;
    for library in paths(&String::from_utf8_lossy(&listed.stdout)) {
        let to = root.join(library.strip_prefix("/")?);
        if !to.exists() {
            fs::create_dir_all(to.parent().context("a library lies in a folder")?)?;
            fs::copy(library, to).with_context(|| library.display().to_string())?;
        }
    }
    Ok(())
}

/// Paths among the lines of `ldd`: `name => path (address)` or `path (address)`.
fn paths(listed: &str) -> impl Iterator<Item = &Path> {
    listed.lines().filter_map(|line| {
        let (before, _) = line.rsplit_once(" (0x")?;
        let path = before.rsplit_once("=> ").map_or(before, |(_, path)| path).trim();
        path.starts_with('/').then(|| Path::new(path))
    })
}

/// Numbered in the order of loading.
fn modules(image: &Image, to: &Path) -> Result<()> {
    for (i, name) in MODULES.iter().enumerate() {
        let to = to.join(format!("{i}-{name}.ko"));
        let folders = ["drivers/virtio", "drivers/block", "drivers/net", "net/core"];
        let folders = folders.map(|f| image.modules.join("kernel").join(f));
        for folder in folders {
            let plain = folder.join(format!("{name}.ko"));
            let packed = folder.join(format!("{name}.ko.xz"));
            if plain.exists() {
                fs::copy(&plain, &to)?;
            } else if packed.exists() {
                run(Command::new("xz").arg("-dc").arg(&packed).stdout(File::create(&to)?))?;
            }
        }
    }
    Ok(())
}

fn pack(root: &Path, to: &Path) -> Result<()> {
    let mut find = Command::new("find").arg(".").current_dir(root).stdout(Stdio::piped()).spawn()?;
    let names = find.stdout.take().context("find was given a pipe")?;
    let mut cpio = Command::new("busybox");
    cpio.args(["cpio", "-o", "-H", "newc", "-R", "0:0"]).current_dir(root).stdin(names);
    let packed = run(cpio.stdout(File::create(to)?).stderr(Stdio::null()));
    ensure!(find.wait()?.success(), "`find` failed in {}", root.display());
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_names_libraries() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\
            \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f)\n\
            \tlibgone.so => not found\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(paths(listed).collect::<Vec<_>>(), expected.map(Path::new));
        assert_eq!(paths("\tnot a dynamic executable\n").count(), 0);
    }
}
