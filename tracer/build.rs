//! Builds the kernel object for the BPF target and leaves it in `OUT_DIR`, where `capture` embeds it.
//!
//! The tools were found or fetched by `cargo xtask setup`, which wrote down where they are; nothing is
//! searched for or downloaded here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde::Deserialize;

/// What `cargo xtask setup` wrote (`xtask/src/setup`).
#[derive(Deserialize)]
struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
    /// bpf-linker
    linker: PathBuf,
    /// Where the tools' own shared libraries lie, if not in the system's folders.
    ld_library_path: Option<String>,
    /// A stable compiler that needs `RUSTC_BOOTSTRAP=1` to build `core`.
    bootstrap: bool,
}

fn main() {
    println!("cargo:rerun-if-changed=../tracer-ebpf");
    println!("cargo:rerun-if-changed=../Cargo.lock");
    println!("cargo:rerun-if-env-changed=WHYIDLE_CACHE");
    let description = cache().join("toolchain.json");
    println!("cargo:rerun-if-changed={}", description.display());
    let toolchain: Toolchain = match fs::read(&description) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .unwrap_or_else(|e| panic!("{}: {e}; run `cargo xtask setup` again", description.display())),
        Err(e) => panic!(
            "the eBPF build tools are not set up ({}: {e}); run `cargo xtask setup` once",
            description.display()
        ),
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = build(&toolchain, &out);
    fs::copy(&object, out.join("tracer-ebpf"))
        .unwrap_or_else(|e| panic!("cannot copy {}: {e}", object.display()));
}

fn cache() -> PathBuf {
    env::var_os("WHYIDLE_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .unwrap_or_else(|| PathBuf::from(env::var_os("HOME").unwrap_or_default()).join(".cache"))
            .join("whyidle")
    })
}

fn build(toolchain: &Toolchain, out: &Path) -> PathBuf {
    // One folder for all profiles: the object is the same in each.
    let target_dir = out.ancestors().nth(4).expect("OUT_DIR lies in the target folder").join("bpf");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let flags = [
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2".into(),
        format!("-Clinker={}", toolchain.linker.display()),
        "-Clink-arg=--btf".into(),
    ];
    let mut cargo = Command::new(&toolchain.cargo);
    // What the outer cargo and rustup set for themselves must not leak into this one.
    for (name, _) in env::vars_os() {
        let n = name.to_string_lossy();
        if (n.starts_with("CARGO")
            && n != "CARGO_HOME"
            && n != "CARGO_HTTP_CAINFO"
            && !n.starts_with("CARGO_REGISTR"))
            || n.starts_with("RUSTC")
            || n.starts_with("RUSTUP")
            || n == "RUSTFLAGS"
        {
            cargo.env_remove(&name);
        }
    }
    cargo
        .current_dir("../tracer-ebpf")
        .args(["build", "--release", "--locked", "-Z", "build-std=core", "--features", "kernel"])
        .args(["--bin", "tracer-ebpf", "--target", "bpfel-unknown-none", "--target-dir"])
        .arg(&target_dir)
        .env("RUSTC", &toolchain.rustc)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    if toolchain.bootstrap {
        cargo.env("RUSTC_BOOTSTRAP", "1");
    }
    if let Some(path) = &toolchain.ld_library_path {
        cargo.env("LD_LIBRARY_PATH", path);
    }
    let status = cargo.status().unwrap_or_else(|e| panic!("{}: {e}", toolchain.cargo.display()));
    assert!(status.success(), "the kernel object did not build (see above)");
    target_dir.join("bpfel-unknown-none/release/tracer-ebpf")
}
