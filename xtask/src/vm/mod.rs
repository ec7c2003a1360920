//! `cargo xtask vm`: a command under another kernel, Debian's, in a machine emulated in software.

mod guest;
mod image;
mod machine;
mod standin;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::shell::say;
use crate::{place, setup, test};

/// Test programs that attach probes, the tracer, and the simulated device's libraries.
const CHOICE: [&str; 9] =
    ["--test", "probes_*", "--test", "driver_*", "--test", "cuda_attach", "--bin", "whyidle", "--lib"];

const SIMULATED: [&str; 3] = ["libsim_nvml.so", "libsim_cuda.so", "libsim_nccl.so"];

const PACKAGES: [setup::Package; 9] = [
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("busybox-static", "busybox"),
    ("e2fsprogs", "mke2fs"),
    ("xz-utils", "xz"),
    ("binutils", "strip"),
    ("gcc", "gcc"),
    ("python3", "python3"),
    ("make", "make"),
    ("patchelf", "patchelf"),
];

#[derive(Debug, Args)]
pub struct Vm {
    kernel: Kernel,
    /// Run by the guest's shell instead of the tests that attach probes; those lie in `/tests`,
    /// and `whyidle` is on the path.
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
pub enum Kernel {
    #[value(name = "5.10")]
    #[serde(rename = "5.10")]
    V5_10,
    #[value(name = "6.1")]
    #[serde(rename = "6.1")]
    V6_1,
    #[value(name = "6.12")]
    #[serde(rename = "6.12")]
    V6_12,
}

impl Kernel {
    const fn version(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// The release of Debian that has it.
    const fn suite(self) -> &'static str {
        match self {
            Self::V5_10 => "bullseye",
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
        }
    }
}

/// What is to be done in a guest, and what it needs for that.
#[derive(Debug)]
pub struct Errand {
    /// Of its own, for the guest's file systems.
    pub folder: PathBuf,
    /// Has `whyidle` and the simulated device's libraries.
    pub built: PathBuf,
    /// Programs for `/tests`.
    pub tests: Vec<PathBuf>,
    /// Copied to the guest's root.
    pub folders: Vec<PathBuf>,
    /// A script for the guest's shell.
    pub command: String,
    /// A Python script outside that answers, by its standard input and output, whom the guest reaches at 10.0.2.100,
    /// port 7000.
    pub peer: Option<PathBuf>,
}

/// How a guest ended.
#[derive(Debug)]
pub struct Ended {
    /// Of the command.
    pub status: u8,
    pub disk: PathBuf,
}

impl Errand {
    /// Boots a machine for it; what it prints goes to standard output.
    pub fn run(&self, kernel: Kernel) -> Result<Ended> {
        setup::install(&PACKAGES)?;
        let image = image::fetched(&place::cache().join("vm"), kernel)?;
        fs::create_dir_all(&self.folder)?;
        let standin = standin::built(&image, &self.folder.join("standin"))?;
        let guest = guest::made(self, &image, &standin)?;
        say(format!("booting {} (emulated, so slow)", image.release));
        let status = machine::run(&image.vmlinuz, &guest, self.peer.as_deref())?
            .context("the machine stopped before the command did; see its last lines above")?;
        say(format!("exit status {status} under {}", image.release));
        Ok(Ended { status, disk: guest.disk })
    }
}

/// Returns the command's exit status.
pub fn vm(arguments: &Vm) -> Result<ExitCode> {
    setup::build_tools()?;
    say("building whyidle and the tests that attach probes");
    let tests = test::privileged_programs(&CHOICE)?;
    let command = if arguments.command.is_empty() {
        include_str!("tests.sh").to_owned()
    } else {
        arguments.command.join(" ")
    };
    let errand = Errand {
        folder: place::target().join("vm").join(arguments.kernel.version()),
        built: place::target().join("debug"),
        tests,
        folders: Vec::new(),
        command,
        peer: None,
    };
    Ok(ExitCode::from(errand.run(arguments.kernel)?.status))
}
