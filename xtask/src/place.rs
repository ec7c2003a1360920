//! Where things lie.

use std::env;
use std::path::{Path, PathBuf};

/// The workspace's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where the eBPF build tools are kept; `tracer/build.rs` looks in the same place.
pub fn cache() -> PathBuf {
    env::var_os("WHYIDLE_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"))
            .join("whyidle")
    })
}

/// The cargo that runs this.
pub fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}
