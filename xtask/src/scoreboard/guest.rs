//! One run of a case in a virtual machine: the job, its device and the recording are inside.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::case::Case;
use super::run::{Outcome, Way, folder};
use crate::place;
use crate::shell::output;
use crate::vm::{Errand, Kernel};

/// Where the guest leaves what came of it, on its disk.
const OUT: &str = "out";

pub fn run(name: &str, case: &Case, way: Way, kernel: Kernel) -> Result<Outcome> {
    let folder = folder(name)?;
    let out = folder.join(OUT);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let errand = Errand {
        folder: folder.join("vm"),
        built: place::target().join("release"),
        tests: Vec::new(),
        folders: vec![place::root().join("tests/job")],
        command: command(name, case, way),
        peer: case.peer.then(|| place::root().join("tests/job/network_peer.py")),
    };
    let ended = errand.run(kernel)?;
    dump(&ended.disk.display().to_string(), &folder.display().to_string())?;
    let said = |file: &str| fs::read_to_string(out.join(file)).unwrap_or_default();
    ensure!(
        ended.status == 0,
        "status {} in the guest: {}{}",
        ended.status,
        said("job.log"),
        said("record.log")
    );
    let trace = way.traced.then(|| out.join("trace.whyidle"));
    Outcome::read(case, &out.join("result.json"), &out.join("truth.jsonl"), trace)
}

fn command(name: &str, case: &Case, way: Way) -> String {
    let settings: String = case.device.iter().map(|(k, v)| format!("{k}={v}\\n")).collect();
    let fault = if way.fault { " --fault" } else { "" };
    format!(
        "case='{name} --steps {} --seed {}{fault}'\nsettings='{settings}'\ntraced={}\nrecord='{}'\nout={OUT}\ndisk='{}'\n{}",
        case.steps,
        way.seed,
        u8::from(way.traced),
        case.record.join(" "),
        place::target().join("tmp").display(),
        include_str!("guest.sh"),
    )
}

/// Out of the disk of a machine that is off.
fn dump(disk: &str, to: &str) -> Result<()> {
    let request = format!("rdump /{OUT} \"{to}\"");
    output(Command::new("debugfs").args(["-R", &request, disk]))
        .context("what the guest left on its disk")?;
    Ok(())
}
