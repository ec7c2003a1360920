//! The tables of entry points against real libraries, fetched by `cargo xtask libraries`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use whyidle::capture::cuda::exported;
use whyidle::capture::cuda::names;
use whyidle::capture::cuda::runtime::runtime_names;
use whyidle_tests::privileged::leaves_out;

fn folder() -> PathBuf {
    let cache = std::env::var_os("WHYIDLE_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("whyidle")
    });
    cache.join("cuda-libraries")
}

/// Every file below the folder whose name begins so, and is no link.
fn libraries(below: &Path, begins: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![below.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with(begins) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn exports(library: &Path) -> BTreeSet<String> {
    exported(fs::File::open(library).expect("readable"))
        .unwrap_or_else(|e| panic!("{}: {e}", library.display()))
}

/// Says so past the harness, which shows nothing of a test that passes.
fn say(what: &str) {
    writeln!(std::io::stderr(), "test cuda_names: {what}").expect("standard error");
}

fn inputs(begins: &str) -> Option<Vec<PathBuf>> {
    let found = libraries(&folder(), begins);
    if found.is_empty() {
        leaves_out(&format!(
            "{begins}*: none below {}; `cargo xtask libraries` fetches them",
            folder().display()
        ));
        return None;
    }
    Some(found)
}

/// Names that the driver packages at hand are too old for are known to the newest runtime, which asks its driver
/// for functions by their names.
#[test]
fn the_drivers_names_are_those_of_real_libraries() {
    let (Some(drivers), Some(runtimes)) = (inputs("libcuda.so."), inputs("libcudart.so.")) else { return };
    let asked: Vec<Vec<u8>> = runtimes.iter().map(|r| fs::read(r).expect("readable")).collect();
    let known_to_runtime = |name: &str| asked.iter().any(|bytes| contains(bytes, base(name).as_bytes()));
    // The collective library's names are in the same table.
    let wanted: Vec<_> = names().map(|n| n.name).filter(|n| n.starts_with("cu")).collect();
    assert!(wanted.len() > 80);
    let mut in_any = BTreeSet::new();
    for driver in &drivers {
        let have = exports(driver);
        let absent: Vec<_> = wanted.iter().filter(|n| !have.contains(**n)).collect();
        say(&format!(
            "{}: {} of {} names; absent: {absent:?}",
            driver.display(),
            wanted.len() - absent.len(),
            wanted.len()
        ));
        assert!(absent.len() * 10 < wanted.len(), "{} is no driver of these times", driver.display());
        in_any.extend(have);
    }
    let unknown: Vec<_> = wanted.iter().filter(|n| !in_any.contains(**n) && !known_to_runtime(n)).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "no driver exports them and no runtime asks for them");
}

#[test]
fn the_runtimes_names_are_those_of_real_libraries() {
    let Some(runtimes) = inputs("libcudart.so.") else { return };
    for runtime in &runtimes {
        let have = exports(runtime);
        let absent: Vec<_> = runtime_names().map(|n| n.name).filter(|n| !have.contains(*n)).collect();
        say(&format!("{}: {} names; absent: {absent:?}", runtime.display(), runtime_names().count()));
        assert_eq!(absent, [""; 0], "{}", runtime.display());
    }
}

/// Without version and stream suffixes, as `cuGetProcAddress` is asked.
fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

fn contains(bytes: &[u8], name: &[u8]) -> bool {
    bytes.windows(name.len() + 1).any(|w| w.starts_with(name) && !w[name.len()].is_ascii_alphanumeric())
}

#[test]
fn suffixes_are_taken_off() {
    assert_eq!(base("cuMemcpyBatchAsync_v2_ptsz"), "cuMemcpyBatchAsync");
    assert_eq!(base("cuMemcpyDtoH_v2_ptds"), "cuMemcpyDtoH");
    assert_eq!(base("cuLaunchKernel"), "cuLaunchKernel");
    assert!(
        contains(b"\0cuLaunchKernel\0", b"cuLaunchKernel")
            && !contains(b"\0cuLaunchKernelEx\0", b"cuLaunchKernel")
    );
}
