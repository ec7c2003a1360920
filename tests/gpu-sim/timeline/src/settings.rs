//! Settings: a file `sim.conf` beside the library wins over the environment, so that one process can load
//! several copies that behave differently.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Shared file when nothing names one.
pub const DEFAULT_FILE: &str = "/dev/shm/whyidle-sim";

/// Values by name, e.g. `WHYIDLE_SIM`.
#[derive(Debug, Default)]
pub struct Settings {
    lines: Vec<(String, String)>,
}

impl Settings {
    /// Settings of the library that holds `symbol` (any function of it).
    #[must_use]
    pub fn of_library(symbol: *const libc::c_void) -> Self {
        library_path(symbol).map(|path| Self::beside(&path)).unwrap_or_default()
    }

    fn beside(library: &Path) -> Self {
        let text = std::fs::read_to_string(library.with_file_name("sim.conf")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once('='));
        Self { lines: lines.map(|(name, value)| (name.trim().into(), value.trim().into())).collect() }
    }

    /// The value of `name`, `None` where it is set nowhere or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        let here = self.lines.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        here.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
    }

    /// The shared file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.get("WHYIDLE_SIM").map_or_else(|| DEFAULT_FILE.into(), PathBuf::from)
    }

    /// Devices to make where the shared file does not exist yet.
    #[must_use]
    pub fn devices(&self) -> u32 {
        self.get("WHYIDLE_SIM_DEVICES").and_then(|n| n.parse().ok()).unwrap_or(1)
    }
}

/// A file beside the library that holds `symbol`.
#[must_use]
pub fn beside(symbol: *const libc::c_void, name: &str) -> PathBuf {
    library_path(symbol).map_or_else(|| name.into(), |path| path.with_file_name(name))
}

fn library_path(symbol: *const libc::c_void) -> Option<PathBuf> {
    // SAFETY: all-zero is a valid `Dl_info` (null pointers).
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` looks the address up and fills `info`; it does not follow it.
    if unsafe { libc::dladdr(symbol, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dli_fname` is the loader's NUL-terminated name, valid while the library is loaded, which
    // it is: the caller is in it.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_path_buf())
}
