//! `whyidle eval`: how good the analysis is, against recordings that hold the truth.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::error::CliError;
use super::import::{error, lines, nanoseconds, open, window};
use super::{output, say};
use crate::eval;
use crate::render::escape;

#[derive(Clone, Debug, Args)]
pub struct Eval {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Where idle time is placed, against what the PyTorch profiler saw on the device
    Placement(Placement),
}

#[derive(Clone, Debug, Args)]
struct Placement {
    /// Recordings of the PyTorch profiler with device activity, .json or .json.gz
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Device windows to try, separated by commas
    #[arg(long, value_name = "TIMES", value_parser = window, value_delimiter = ',', default_value = "166ms,100ms")]
    window: Vec<Duration>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    file: String,
    #[serde(flatten)]
    placement: eval::Placement,
}

impl Eval {
    pub fn run(&self) -> Result<(), CliError> {
        let What::Placement(placement) = &self.what;
        placement.run()
    }
}

impl Placement {
    fn run(&self) -> Result<(), CliError> {
        let mut rows = Vec::new();
        for path in &self.files {
            let recording = eval::Recording::read(open(path)?, &tempfile::tempfile)
                .map_err(|source| error(path, &std::env::temp_dir(), source))?;
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            if recording.busy().is_empty() || recording.imported.cut.is_some() {
                for line in lines(&recording.imported) {
                    say(&format!("{file}: {line}"));
                }
            }
            for window in &self.window {
                let of_file = recording.placement(nanoseconds(*window)).into_iter();
                rows.extend(of_file.map(|placement| Row { file: file.clone(), placement }));
            }
        }
        if self.json {
            let mut text = serde_json::to_string_pretty(&rows)?;
            text.push('\n');
            return output::print(&text);
        }
        output::print(&table(&rows))
    }
}

const HEAD: &str = "                                                 ------- all idle -------  ------- placed only -------  --------- of the idle time ---------
recording                gpu window  idle  mass err  recall  prec.   F1        recall  prec.   F1           drained bounded inferred unplaced
";

fn table(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for Row { file, placement: p } in rows {
        let name = escape(file.trim_end_matches(".gz").trim_end_matches(".json")).to_string();
        let percent = |share: f64| format!("{:.1}%", 100.0 * share);
        #[expect(clippy::cast_precision_loss, reason = "a share to be shown")]
        let idle = if p.span_ns == 0 { 0.0 } else { p.true_idle_ns as f64 / p.span_ns as f64 };
        let ms = format!("{}ms", p.window_ns / 1_000_000);
        let score = |s: &eval::Score| format!("{:.3}   {:.3}   {:.3}", s.recall, s.precision, s.f1);
        text.push_str(&format!(
            "{name:<24} {:>3} {ms:>6} {:>6} {:>8}   {}     {}        {:>7} {:>7} {:>8} {:>8}\n",
            p.device,
            percent(idle),
            format!("{:.2}%", 100.0 * p.mass_error),
            score(&p.all),
            score(&p.placed),
            percent(p.drained),
            percent(p.bounded),
            percent(p.inferred),
            percent(p.unplaced),
        ));
    }
    text
}
