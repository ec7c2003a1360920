//! The CPython interpreters at hand.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::privileged::leaves_out;

/// Minor versions of Python 3 whose frames are known.
pub const KNOWN: std::ops::RangeInclusive<u32> = 8..=15;
/// Those of whose free-threaded builds they are.
pub const KNOWN_FREE_THREADED: std::ops::RangeInclusive<u32> = 13..=13;

/// Folders, parted by `:`, that each hold a system of their own with an interpreter in `usr/bin`.
pub const ROOTS: &str = "WHYIDLE_PYTHON_ROOTS";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Python {
    pub minor: u32,
    pub free_threaded: bool,
    /// The system it belongs to: `/` or one of [`ROOTS`].
    pub root: PathBuf,
    /// In that system.
    pub program: PathBuf,
}

impl Python {
    /// Of the name of a program, if it is a known CPython.
    #[must_use]
    pub fn ask(root: &Path, program: &Path) -> Option<Self> {
        let mut python =
            Self { minor: 0, free_threaded: false, root: root.to_owned(), program: program.to_owned() };
        let ask = "import sys, sysconfig; print(sys.implementation.name, sys.version_info[0], \
                   sys.version_info[1], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";
        let told = python.command().args(["-c", ask]).output().ok()?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let (minor, free_threaded) = told.trim().strip_prefix("cpython 3 ")?.split_once(' ')?;
        (python.minor, python.free_threaded) = (minor.parse().ok()?, free_threaded != "0");
        let known = if python.free_threaded { KNOWN_FREE_THREADED } else { KNOWN };
        known.contains(&python.minor).then_some(python)
    }

    /// Begins in its own system; one that is not `/` also has its own process ids, as containers have.
    #[must_use]
    pub fn command(&self) -> Command {
        if self.root == Path::new("/") {
            return Command::new(&self.program);
        }
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "chroot"]).arg(&self.root).arg(&self.program);
        command
    }
}

impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.free_threaded { "t" } else { "" };
        write!(f, "3.{}{kind} {}", self.minor, self.program.display())
    }
}

/// Every CPython at hand whose frames are known: the system's, those of pyenv, and those of [`ROOTS`]. Says
/// which versions there are none of.
#[must_use]
pub fn interpreters() -> Vec<Python> {
    let system = Path::new("/");
    let mut found: Vec<Python> = Python::ask(system, Path::new("/usr/bin/python3")).into_iter().collect();
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let programs = versions.into_iter().flatten().flatten().map(|v| v.path().join("bin/python3"));
    found.extend(programs.filter_map(|program| Python::ask(system, &program)));
    for root in std::env::split_paths(&std::env::var_os(ROOTS).unwrap_or_default()) {
        let names = KNOWN
            .flat_map(|minor| ["", "t"].map(|kind| PathBuf::from(format!("/usr/bin/python3.{minor}{kind}"))));
        let there = names.filter(|name| root.join(name.strip_prefix("/").expect("absolute")).exists());
        found.extend(there.filter_map(|name| Python::ask(&root, &name)));
    }
    found.sort();
    let wanted = KNOWN.map(|minor| (minor, false)).chain(KNOWN_FREE_THREADED.map(|minor| (minor, true)));
    for (minor, free_threaded) in wanted {
        if !found.iter().any(|python| (python.minor, python.free_threaded) == (minor, free_threaded)) {
            let kind = if free_threaded { "free-threaded " } else { "" };
            leaves_out(&format!("{kind}Python 3.{minor}: none is installed"));
        }
    }
    found
}
