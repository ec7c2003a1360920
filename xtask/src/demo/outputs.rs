//! Everything `whyidle` makes of a trace, as files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell::{captured, line, output, run, say};

/// `whyidle flame` on a trace without anything of the kind.
const NOTHING_TO_DRAW: i32 = 21;

/// Writes the reports and pictures of `folder`'s trace beside it; the JSON report's path.
pub fn write(whyidle: &Path, trace: &Path, folder: &Path) -> Result<PathBuf> {
    let text = output(Command::new(whyidle).arg("report").arg(trace))?;
    fs::write(folder.join("report.txt"), &text)?;
    println!("{text}");
    let json = folder.join("report.json");
    to_file(Command::new(whyidle).arg("report").arg(trace).args(["--format", "json"]), &json)?;
    for kind in ["idle", "offcpu", "oncpu"] {
        let flame = || {
            let mut command = Command::new(whyidle);
            command.arg("flame").arg(trace).args(["--kind", kind]);
            command
        };
        let picture = folder.join(format!("{kind}.svg"));
        let drawn = captured(flame().arg("--force").arg("-o").arg(&picture))?;
        if drawn.status.code() == Some(NOTHING_TO_DRAW) {
            // A device that was never idle: no picture is the right answer, and an old one would be wrong.
            say(format!("nothing to draw for {kind}"));
            fs::remove_file(&picture).ok();
            fs::remove_file(folder.join(format!("{kind}.folded"))).ok();
            continue;
        }
        if !drawn.status.success() {
            bail!("{}", String::from_utf8_lossy(&drawn.stderr).trim());
        }
        to_file(flame().arg("--folded"), &folder.join(format!("{kind}.folded")))?;
    }
    Ok(json)
}

/// Runs a command with its output in a file.
pub fn to_file(command: &mut Command, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    run(command.stdout(file)).with_context(|| line(command))
}
