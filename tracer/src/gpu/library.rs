//! Finds and loads the NVML library.

use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::NvmlLib;

use super::GpuError;

/// As drivers install it, then as developers' packages do.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Loads and initialises the library at `path`; without one, the system's. Beside it its symbols, for calls
/// that have no safe wrapper.
///
/// # Errors
/// There is none, it is no NVML library, or it cannot initialise (no driver).
pub(super) fn load(path: Option<&Path>) -> Result<(Nvml, Option<NvmlLib>), GpuError> {
    let Some(path) = path else { return system() };
    // The loader searches for a name without a slash; what was given is a path.
    let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    init(path).map_err(|e| match e {
        NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_) => {
            GpuError::NotNvml { path: path.display().to_string(), source: Box::new(Reason::of(e)) }
        }
        e => failed("nvmlInit_v2", e),
    })
}

fn system() -> Result<(Nvml, Option<NvmlLib>), GpuError> {
    for name in NAMES {
        match init(Path::new(name)) {
            Ok(nvml) => return Ok(nvml),
            Err(NvmlError::LibloadingError(_)) => {}
            Err(e @ NvmlError::FailedToLoadSymbol(_)) => {
                return Err(GpuError::NotNvml { path: name.into(), source: Box::new(Reason::of(e)) });
            }
            Err(e) => return Err(failed("nvmlInit_v2", e)),
        }
    }
    Err(GpuError::NoLibrary { tried: NAMES.join(", ") })
}

fn init(path: &Path) -> Result<(Nvml, Option<NvmlLib>), NvmlError> {
    let nvml = Nvml::builder().lib_path(path.as_os_str()).init()?;
    // SAFETY: loaded and initialised by the line above, so this runs no code of its own.
    let symbols = unsafe { NvmlLib::new(path.as_os_str()) };
    Ok((nvml, symbols.ok()))
}

pub(super) fn failed(call: &'static str, source: NvmlError) -> GpuError {
    GpuError::Call { call, source: Box::new(source) }
}

/// The loader's own words, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reason(String);

impl Reason {
    fn of(error: NvmlError) -> Self {
        let text = match error {
            NvmlError::LibloadingError(e) => e.to_string(),
            e => e.to_string(),
        };
        Self(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> String {
        let error = load(Some(path)).err().expect("no NVML library");
        assert!(matches!(error, GpuError::NotNvml { .. }), "{error:?}");
        error.to_string()
    }

    #[test]
    fn what_is_no_library_is_named_in_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = folder.path().join("text.so");
        std::fs::write(&text, "not ELF\nat all\n").expect("writable");
        for path in [text, folder.path().join("missing.so"), folder.path().to_path_buf()] {
            let message = message(&path);
            assert!(message.starts_with(&path.display().to_string()), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn another_library_is_not_nvml() {
        // Loaded by every process here, so surely there, and without NVML's entry points.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let libc = maps.lines().filter_map(|l| l.split_whitespace().nth(5)).find(|p| p.contains("/libc.so"));
        assert!(message(Path::new(libc.expect("mapped"))).contains("nvmlInit_v2"));
    }
}
