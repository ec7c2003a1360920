//! The kernel object and what it is told at load time.

use std::collections::HashMap;
use std::path::Path;

use aya::maps::{Array, MapData};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader, Pod};
use tracer_ebpf::wire::{FIELDS, Settings, call};

use super::CaptureError;
use super::btf::{Kernel, VMLINUX};
use super::config::Config;
use super::rings::missing;
use super::uprobes::Way;
use super::{cuda, syscalls};

/// The kernel side as built by `build.rs`.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf"));

const OLDEST: (u32, u32) = (5, 10);
/// `THREAD_SIZE` of x86-64 without KASAN, for kernels that lack `bpf_task_pt_regs`.
const THREAD_SIZE: u32 = 16 << 10;

/// Loads the maps and the (not yet verified) programs.
///
/// # Errors
/// Not permitted, no BTF, kernel too old, or the object was refused.
pub fn load(config: &Config, kernel: &Kernel) -> Result<(Ebpf, Btf, Globals), CaptureError> {
    let btf = Btf::from_sys_fs()
        .map_err(|e| CaptureError::Kernel { what: format!("reading {VMLINUX}"), source: Box::new(e) })?;
    let mut offsets = [0u32; FIELDS.len()];
    offsets.copy_from_slice(kernel.offsets());
    let globals = Globals { offsets, settings: settings(config, kernel) };
    let cpus = aya::util::nr_cpus()
        .map_err(|(path, e)| CaptureError::Kernel { what: path.into(), source: Box::new(e) })?;
    let ebpf = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global("OFFSETS", &globals.offsets, true)
        .override_global("SETTINGS", &globals.settings, true)
        .map_max_entries("WAITING", u32::try_from(cpus).unwrap_or(u32::MAX))
        .map_max_entries("RING", config.ring_bytes)
        .load(OBJECT)
        .map_err(refused)?;
    Ok((ebpf, btf, globals))
}

/// The object's read-only globals as they were set, for what is loaded later.
#[derive(Clone, Copy, Debug)]
pub struct Globals {
    offsets: [u32; FIELDS.len()],
    settings: Settings,
}

impl Globals {
    /// By name, as aya's object takes them; every one of them must exist.
    pub fn bytes(&self) -> HashMap<&'static str, (&[u8], bool)> {
        // SAFETY: plain data without padding, read as bytes for as long as it is borrowed.
        let settings = unsafe {
            std::slice::from_raw_parts(std::ptr::from_ref(&self.settings).cast(), size_of::<Settings>())
        };
        // SAFETY: as above.
        let offsets =
            unsafe { std::slice::from_raw_parts(self.offsets.as_ptr().cast(), size_of_val(&self.offsets)) };
        HashMap::from([("OFFSETS", (offsets, true)), ("SETTINGS", (settings, true))])
    }
}

/// The best kind of uprobe links that may be used here.
pub fn uprobe_links(config: &Config, kernel: &Kernel) -> Way {
    if kernel.has_helper("get_attach_cookie") { config.uprobe_links } else { Way::Constant }
}

fn settings(config: &Config, kernel: &Kernel) -> Settings {
    Settings {
        wake_bytes: u64::from(config.ring_bytes / 4),
        own_tgid: std::process::id(),
        all: config.all.into(),
        have_task_pt_regs: kernel.has_helper("task_pt_regs").into(),
        have_current_task_btf: kernel.has_helper("get_current_task_btf").into(),
        have_cookie: (uprobe_links(config, kernel) != Way::Constant).into(),
        thread_size: THREAD_SIZE,
        pt_regs_size: kernel.size_of("pt_regs").and_then(|s| u32::try_from(s).ok()).unwrap_or(0),
        log: tracing::enabled!(target: "kernel", tracing::Level::INFO).into(),
    }
}

/// Majors, system calls and driver calls.
///
/// # Errors
/// The object has no such maps.
pub fn fill_tables(ebpf: &mut Ebpf, config: &Config) -> Result<(), CaptureError> {
    let failed = |e| CaptureError::Kernel { what: "filling a map".into(), source: Box::new(e) };
    // Borrowed, not taken: a map that is closed here is not there when the programs are loaded.
    let mut majors: Array<_, u8> = borrow(ebpf, "MAJORS")?;
    for major in &config.nvidia_majors {
        if *major < majors.len() {
            majors.set(*major, 1, 0).map_err(failed)?;
        }
    }
    let mut calls: Array<_, u8> = borrow(ebpf, "SYSCALLS")?;
    for (nr, row) in syscalls::CALLS.iter().filter(|(nr, _)| *nr < call::ROWS) {
        calls.set(*nr, *row, 0).map_err(failed)?;
    }
    let mut driver: Array<_, u64> = borrow(ebpf, "CALLS")?;
    for entry in cuda::names() {
        driver.set(entry.id, entry.layout, 0).map_err(failed)?;
    }
    Ok(())
}

fn borrow<'a, V: Pod>(ebpf: &'a mut Ebpf, name: &str) -> Result<Array<&'a mut MapData, V>, CaptureError> {
    let map = ebpf.map_mut(name).ok_or_else(|| missing(name))?;
    Array::try_from(map).map_err(|e| CaptureError::Kernel { what: name.into(), source: Box::new(e) })
}

/// What must hold before anything is loaded.
///
/// # Errors
/// The kernel is too old or publishes no types.
pub fn check() -> Result<(), CaptureError> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    if version(&release).is_some_and(|v| v < OLDEST) {
        return Err(CaptureError::KernelTooOld { found: release });
    }
    if !Path::new(VMLINUX).exists() {
        return Err(CaptureError::NoBtf { path: VMLINUX.into() });
    }
    // Before 5.11 maps count as locked memory.
    let unlimited = rustix::process::Rlimit { current: None, maximum: None };
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Memlock, unlimited) {
        tracing::debug!(error = %e, "cannot raise RLIMIT_MEMLOCK");
    }
    Ok(())
}

/// Major and minor of a release string.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn refused(error: EbpfError) -> CaptureError {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(e) = cause {
        if let Some(io) = e.downcast_ref::<std::io::Error>()
            && matches!(io.raw_os_error(), Some(libc::EPERM | libc::EACCES))
        {
            return CaptureError::NotPermitted;
        }
        cause = e.source();
    }
    CaptureError::Kernel { what: "loading the kernel side".into(), source: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(version("5.10.0-30-amd64"), Some((5, 10)));
        assert_eq!(version("6.18.44"), Some((6, 18)));
        assert_eq!(version("4.19"), Some((4, 19)));
        assert_eq!(version("weird"), None);
    }
}
