//! Everything `whyidle` makes of a trace, as files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::shell::{line, output, run};

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
        to_file(flame().arg("--folded"), &folder.join(format!("{kind}.folded")))?;
        run(flame().arg("--force").arg("-o").arg(folder.join(format!("{kind}.svg"))))?;
    }
    Ok(json)
}

/// Runs a command with its output in a file.
pub fn to_file(command: &mut Command, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    run(command.stdout(file)).with_context(|| line(command))
}
