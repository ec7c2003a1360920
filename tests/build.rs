//! Compiles the programs and libraries that tests start: where they run, a compiler need not be.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Code without frame pointers, as distributions build it. What only it needs is in it: the guests of
/// `cargo xtask vm` have no C++ library.
const BARE: [&str; 4] = ["-O2", "-fomit-frame-pointer", "-pthread", "-static-libstdc++"];
const WITH_POINTERS: [&str; 4] = ["-O2", "-fno-omit-frame-pointer", "-pthread", "-static-libstdc++"];
/// Stacks that end in these are looked for by frame pointers too.
const LIBRARY: [&str; 4] = ["-shared", "-fPIC", "-O0", "-fno-omit-frame-pointer"];
/// Its build id is for the test to replace.
const OBJECT: [&str; 4] =
    ["-O2", "-shared", "-fPIC", "-Wl,--build-id=0xa5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"];

fn main() {
    println!("cargo::rerun-if-changed=programs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let programs = Path::new("programs");
    let c = || compiler(false);
    let cpp = || compiler(true);
    compile(c().args(LIBRARY), &programs.join("driver.c"), &out.join("driver.so"));
    compile(c().args(LIBRARY), &programs.join("runtime.c"), &out.join("runtime.so"));
    compile(c().arg("-O2"), &programs.join("loader.c"), &out.join("loader"));
    compile(c().args(["-O2", "-fomit-frame-pointer"]), &programs.join("twins.c"), &out.join("twins"));
    // Alike but for the function they nap in and how deep; their code lies at the same addresses.
    for (name, depth) in [("alpha", "3"), ("beta", "6")] {
        let mut turns = c();
        turns.args(["-O2", "-fomit-frame-pointer", "-fno-pie", "-no-pie"]);
        turns.args([format!("-DNAME={name}"), format!("-DDEPTH={depth}")]);
        compile(&mut turns, &programs.join("turns.c"), &out.join(name));
    }
    compile(c().arg("-O2"), &programs.join("trainer.c"), &out.join("trainer"));
    compile(c().args(["-O2", "-rdynamic"]), &programs.join("other_python.c"), &out.join("other-python"));
    embedding(&programs.join("embedding.c"), &out);
    compile(cpp().args(BARE), &programs.join("stacks.cpp"), &out.join("stacks-cpp"));
    compile(cpp().args(WITH_POINTERS), &programs.join("stacks.cpp"), &out.join("stacks-cpp-pointers"));
    let mut rust = Command::new(env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc")));
    rust.args(["-O", "-C", "force-frame-pointers=no", "--crate-name", "stacks", "--edition", "2021"]);
    compile(&mut rust, &programs.join("stacks.rs"), &out.join("stacks-rust"));
    let object = out.join("object.c");
    fs::write(&object, many_functions()).expect("the build's own folder");
    compile(c().args(OBJECT), &object, &out.join("object.so"));
}

/// The system's Python in a program, by its library and as a part of it; empty files where what that needs is not
/// installed.
fn embedding(source: &Path, out: &Path) {
    const CONFIG: &str = "/usr/bin/python3-config";
    let config = |what: &[&str]| {
        let told = Command::new(CONFIG).args(what).output().ok()?;
        let told = String::from_utf8(told.stdout).ok().filter(|_| told.status.success())?;
        Some(told.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let needed = || {
        let includes = config(&["--includes"])?;
        let header =
            |flag: &String| flag.strip_prefix("-I").is_some_and(|i| Path::new(i).join("Python.h").exists());
        let folder = PathBuf::from(config(&["--configdir"])?.pop()?);
        let archive = fs::read_dir(folder).ok()?.flatten().map(|file| file.path()).find(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libpython") && name.ends_with(".a") && !name.contains("-pic")
        })?;
        println!("cargo::rerun-if-changed={CONFIG}");
        includes.iter().any(header).then_some((includes, config(&["--embed", "--ldflags"])?, archive))
    };
    let (shared, whole) = (out.join("embedding-shared"), out.join("embedding-static"));
    let Some((includes, libraries, archive)) = needed() else {
        fs::write(shared, []).and_then(|()| fs::write(whole, [])).expect("the build's own folder");
        return;
    };
    let c = || {
        let mut c = compiler(false);
        c.args(["-O2", "-pthread", "-rdynamic"]).args(&includes);
        c
    };
    link(&mut c(), source, &libraries, &shared);
    // What else is in it as Debian builds it.
    let libraries = [archive.to_string_lossy().into_owned()].into_iter();
    let libraries: Vec<_> =
        libraries.chain(["-lexpat", "-lz", "-lutil", "-ldl", "-lm"].map(str::to_owned)).collect();
    link(c().arg("-no-pie"), source, &libraries, &whole);
}

fn compiler(cpp: bool) -> Command {
    cc::Build::new().cpp(cpp).get_compiler().to_command()
}

fn compile(compiler: &mut Command, source: &Path, to: &Path) {
    link(compiler, source, &[], to);
}

fn link(compiler: &mut Command, source: &Path, libraries: &[String], to: &Path) {
    let built = compiler.arg(source).arg("-o").arg(to).args(libraries).status();
    let program = compiler.get_program().display();
    assert!(
        built.is_ok_and(|status| status.success()),
        "{program} does not compile {} (the tests' programs need a C and a C++ compiler: gcc, g++)",
        source.display()
    );
}

/// A library with as much to unwind as one of middle size.
fn many_functions() -> String {
    let mut source = String::new();
    for i in 0..500 {
        writeln!(source, "int f{i}(int (*g)(int), int x) {{ return g(x) + g(x + {i}); }}").expect("a string");
    }
    source
}
