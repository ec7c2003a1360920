//! What a user stack says: interpreter or other code, which function, which lock.

use super::{Culprit, CulpritKind, Mechanism};
use crate::timeline::{NamedFrame, PYTHON};

/// Extension modules of CPython's standard library, by the name in front of the first dot.
const STANDARD_EXTENSIONS: &[&str] = &[
    "_asyncio",
    "_bisect",
    "_blake2",
    "_bz2",
    "_codecs_jp",
    "_contextvars",
    "_csv",
    "_ctypes",
    "_datetime",
    "_decimal",
    "_elementtree",
    "_hashlib",
    "_heapq",
    "_json",
    "_lsprof",
    "_lzma",
    "_md5",
    "_multibytecodec",
    "_multiprocessing",
    "_opcode",
    "_pickle",
    "_posixshmem",
    "_posixsubprocess",
    "_queue",
    "_random",
    "_sha1",
    "_sha256",
    "_sha3",
    "_sha512",
    "_socket",
    "_sqlite3",
    "_ssl",
    "_statistics",
    "_struct",
    "_uuid",
    "_zoneinfo",
    "array",
    "audioop",
    "binascii",
    "cmath",
    "fcntl",
    "grp",
    "math",
    "mmap",
    "pyexpat",
    "readline",
    "resource",
    "select",
    "syslog",
    "termios",
    "unicodedata",
    "zlib",
];

/// Functions a thread sleeps in only to get CPython's interpreter lock.
const INTERPRETER_LOCK: &[&str] = &[
    "take_gil",
    "PyEval_RestoreThread",
    "PyEval_AcquireThread",
    "PyEval_AcquireLock",
    "PyGILState_Ensure",
    "_PyThreadState_Attach",
];

const IMPORT: &[&str] = &[
    "_find_and_load",
    "_load_unlocked",
    "exec_module",
    "import_find_and_load",
    "PyImport_ImportModuleLevelObject",
    "PyImport_ImportModule",
    "PyImport_Import",
    "_PyImport_LoadDynamicModuleWithSpec",
    "import_name",
];

/// Libraries that start pools as wide as the host.
const POOLS: &[&str] = &["libgomp", "libiomp", "libomp", "libopenblas", "libmkl", "libtbb", "libblis"];

/// Those among them whose own code does nothing but hand work out and wait for each other.
const RUNTIMES: &[&str] = &["libgomp", "libiomp", "libomp"];

/// What a thread on the processor was doing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Work {
    pub mechanism: Mechanism,
    pub culprit: Option<Culprit>,
    pub importing: bool,
    /// Within a team of threads of a library that starts such.
    pub pooled: bool,
    /// In the library's own code: it waits there for the rest of its team.
    pub spins: bool,
}

impl Work {
    pub(crate) fn of(mechanism: Mechanism, culprit: Option<Culprit>) -> Self {
        Self { mechanism, culprit, importing: false, pooled: false, spins: false }
    }
}

/// Labels a user stack, innermost frame first. `None` for an empty one.
pub(crate) fn work(frames: &[NamedFrame]) -> Option<Work> {
    // An address in no file is what a walk without frame pointers reads beside the stack's real frames.
    let first = frames.iter().find(|f| is_own(f)).or(frames.first())?;
    let python = is_interpreter(&first.module) || is_python_frame(first);
    let mechanism = if python { Mechanism::PreparePython } else { Mechanism::PrepareCompute };
    Some(Work {
        mechanism,
        culprit: culprit(frames, python),
        importing: is_importing(frames),
        pooled: pool_library(frames).is_some(),
        spins: RUNTIMES.iter().any(|r| first.module.starts_with(r)),
    })
}

/// The function to blame: for Python the innermost Python function where the stack names one, else the
/// innermost resolved frame outside libc, else the module.
fn culprit(frames: &[NamedFrame], python: bool) -> Option<Culprit> {
    let own = || frames.iter().filter(|f| is_own(f));
    let named = python_function(frames)
        .filter(|_| python)
        .or_else(|| own().take_while(|f| python || !is_interpreter(&f.module)).find(|f| f.resolved))
        .or_else(|| frames.first().filter(|f| f.resolved && own().next().is_none()));
    if let Some(frame) = named {
        return Some(Culprit { kind: CulpritKind::Function, name: place(frame) });
    }
    let library = own().find(|f| !f.module.is_empty())?;
    Some(Culprit { kind: CulpritKind::Library, name: library.module.clone() })
}

/// The innermost function that is not the CUDA driver's, the runtime's or libc's: who called.
pub(crate) fn caller(frames: &[NamedFrame]) -> Option<Culprit> {
    let frame = frames.iter().find(|f| {
        f.resolved && !is_libc(&f.module) && !f.module.contains("libcuda") && !is_ctypes(&f.module)
    })?;
    let by_python = is_interpreter(&frame.module) || is_python_frame(frame);
    let python = python_function(frames).filter(|_| by_python);
    let mut name = place(python.unwrap_or(frame));
    if let Some(asking) = python.and_then(|f| asking(frames, f)) {
        name = format!("{}, by {name}", place(asking));
    }
    Some(Culprit { kind: CulpritKind::Function, name })
}

/// For whom a Python function works that wraps what others ask for: the nearest one of the job's own in another file.
fn asking<'f>(frames: &'f [NamedFrame], wrapper: &NamedFrame) -> Option<&'f NamedFrame> {
    let outward = frames.iter().skip_while(|f| !std::ptr::eq(*f, wrapper));
    let own = |f: &&NamedFrame| f.resolved && is_python_frame(f) && !is_standard(f) && !is_installed(f);
    outward.filter(own).find(|f| f.file != wrapper.file)
}

/// The Python function to name: the innermost of the job's own, else the innermost outside the standard
/// library, else the innermost.
fn python_function(frames: &[NamedFrame]) -> Option<&NamedFrame> {
    let functions = || frames.iter().filter(|f| f.resolved && is_python_frame(f));
    let outside = || functions().filter(|f| !is_standard(f));
    outside().find(|f| !is_installed(f)).or_else(|| outside().next()).or_else(|| functions().next())
}

/// Of the standard library, or made by it.
fn is_standard(frame: &NamedFrame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    let library = file.split_once("/lib/python3").is_some_and(|(_, rest)| rest.contains('/'));
    file.starts_with("<frozen ") || (library && !is_installed(frame))
}

/// Of a package that was installed.
fn is_installed(frame: &NamedFrame) -> bool {
    let file = frame.file.as_deref().unwrap_or_default();
    file.contains("/site-packages/") || file.contains("/dist-packages/")
}

/// `function (file:line)`, `function (module)`, or the bare function.
fn place(frame: &NamedFrame) -> String {
    if is_python_frame(frame) {
        return frame.shown();
    }
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{} ({file}:{line})", frame.name),
        (Some(file), None) => format!("{} ({file})", frame.name),
        _ if frame.module.is_empty() => frame.name.clone(),
        _ => format!("{} ({})", frame.name, frame.module),
    }
}

pub(crate) fn waits_for_interpreter_lock(frames: &[NamedFrame]) -> bool {
    frames.iter().filter(|f| !is_libc(&f.module)).take(4).any(|f| {
        let name = f.name.split('.').next().unwrap_or_default();
        f.resolved && INTERPRETER_LOCK.contains(&name)
    })
}

/// A library known to start a pool of threads, if the stack runs in one.
pub(crate) fn pool_library(frames: &[NamedFrame]) -> Option<&str> {
    frames.iter().map(|f| f.module.as_str()).find(|m| POOLS.iter().any(|p| m.starts_with(p)))
}

/// Of the program, one of its libraries, or the interpreter; not libc, and not an address without a file.
fn is_own(frame: &NamedFrame) -> bool {
    !is_libc(&frame.module) && (frame.resolved || !frame.module.is_empty())
}

fn is_importing(frames: &[NamedFrame]) -> bool {
    frames.iter().any(|f| {
        let name = f.name.strip_prefix("py::").unwrap_or(&f.name);
        let name = name.split([':', '.']).next().unwrap_or_default();
        f.resolved && (IMPORT.contains(&name) || f.file.as_ref().is_some_and(|f| f.contains("importlib")))
    })
}

fn is_python_frame(frame: &NamedFrame) -> bool {
    frame.module == PYTHON
        || frame.name.starts_with("py::")
        || frame.file.as_ref().is_some_and(|f| std::path::Path::new(f).extension().is_some_and(|e| e == "py"))
}

/// The interpreter itself, or an extension module of its standard library.
fn is_interpreter(module: &str) -> bool {
    let stem = module.split('.').next().unwrap_or_default();
    let extension = module.contains(".cpython-") || module.contains(".abi3.");
    module.starts_with("python")
        || module.starts_with("libpython")
        || (extension && STANDARD_EXTENSIONS.contains(&stem))
}

fn is_ctypes(module: &str) -> bool {
    module.starts_with("_ctypes.") || module.starts_with("libffi")
}

fn is_libc(module: &str) -> bool {
    const NAMES: &[&str] =
        &["libc", "libm", "libpthread", "librt", "ld-linux-x86-64", "ld-linux", "ld-musl-x86_64"];
    let stem = module.split(".so").next().unwrap_or_default();
    NAMES.contains(&stem)
        || stem.strip_prefix("libc-").or(stem.strip_prefix("libm-")).is_some_and(|v| v.starts_with('2'))
        || module == "[vdso]"
        || module == "[vsyscall]"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, name: &str) -> NamedFrame {
        NamedFrame { name: name.into(), module: module.into(), file: None, line: None, resolved: true }
    }

    #[test]
    fn libc_is_skipped_and_the_next_module_decides() {
        let python = [frame("libc.so.6", "memcpy"), frame("python3.11", "_PyEval_EvalFrameDefault")];
        assert_eq!(work(&python).unwrap().mechanism, Mechanism::PreparePython);
        let decoder =
            [frame("libm.so.6", "exp"), frame("libjpeg.so.62", "jpeg_idct_islow"), python[1].clone()];
        let label = work(&decoder).unwrap();
        assert_eq!(label.mechanism, Mechanism::PrepareCompute);
        assert_eq!(label.culprit.unwrap().name, "jpeg_idct_islow (libjpeg.so.62)");
        assert_eq!(work(&[]), None);
    }

    #[test]
    fn an_unresolved_library_is_named_by_its_module_not_by_the_interpreter_around_it() {
        let mut decode = frame("_imaging.cpython-311-x86_64-linux-gnu.so", "_imaging+0x12");
        decode.resolved = false;
        let label = work(&[decode, frame("python3.11", "PyObject_Call")]).unwrap();
        assert_eq!(label.mechanism, Mechanism::PrepareCompute);
        let culprit = label.culprit.unwrap();
        assert_eq!(
            (culprit.kind, culprit.name.as_str()),
            (CulpritKind::Library, "_imaging.cpython-311-x86_64-linux-gnu.so")
        );
    }

    #[test]
    fn addresses_without_a_file_are_no_frames() {
        let mut stray = frame("", "0x20be3300");
        stray.resolved = false;
        let python =
            work(&[frame("libc.so.6", "memcpy"), stray.clone(), frame("python3.11", "eval")]).unwrap();
        assert_eq!(python.mechanism, Mechanism::PreparePython);
        let only_libc = work(&[frame("libc.so.6", "memcpy"), stray]).unwrap();
        assert_eq!(only_libc.mechanism, Mechanism::PrepareCompute);
        assert_eq!(only_libc.culprit.unwrap().name, "memcpy (libc.so.6)");
    }

    #[test]
    fn standard_extensions_are_the_interpreter() {
        let label = work(&[frame("_json.cpython-311-x86_64-linux-gnu.so", "scan_once")]).unwrap();
        assert_eq!(label.mechanism, Mechanism::PreparePython);
    }

    #[test]
    fn python_functions_are_named_with_file_and_line() {
        let mut inner = frame("perf-1.map", "build_targets");
        inner.file = Some("data.py".into());
        inner.line = Some(12);
        let label = work(&[frame("python3.12", "long_add"), inner]).unwrap();
        assert_eq!(label.culprit.unwrap().name, "build_targets (data.py:12)");
    }

    #[test]
    fn the_interpreter_lock_is_known_by_its_functions_near_the_top_only() {
        let near = [frame("libc.so.6", "pthread_cond_timedwait"), frame("python3.11", "take_gil")];
        assert!(waits_for_interpreter_lock(&near));
        let far: Vec<_> = (0..6).map(|_| frame("python3.11", "f")).chain([near[1].clone()]).collect();
        assert!(!waits_for_interpreter_lock(&far));
    }
}
