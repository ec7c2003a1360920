//! `whyidle report`: reads a trace and says what the GPU waited for.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::analyse::analyse;
use super::error::CliError;
use super::output;
use super::range::Range;
use crate::render::{self, Style};

#[derive(Clone, Debug, Args)]
pub struct Report {
    /// The trace to read
    file: PathBuf,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Only this GPU, by its NVML index
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// Only from here on, counted from the start of the recording (10s, 1m30s)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Only up to here
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Folder with debuginfo files, for frames without a name; repeatable
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

impl Report {
    pub fn run(&self) -> Result<(), CliError> {
        let range = Range::parse(self.from.as_deref(), self.to.as_deref())?;
        let report = analyse(&self.file, range, self.gpu, &self.debug_dir)?.report;
        output::print(&match self.format {
            Format::Text => {
                let out = std::io::stdout();
                render::text(&report, style(out.is_terminal()), columns(&out))
            }
            Format::Json => render::json(&report)?,
        })
    }
}

/// Columns of the terminal behind `out`; a file has as many as a page.
pub fn columns(out: impl std::os::fd::AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(out).map(|size| usize::from(size.ws_col));
    size.ok().filter(|&columns| columns > 0).unwrap_or(render::WIDTH)
}

/// Colour on a terminal unless `NO_COLOR` asks for none; block characters where the locale knows them.
pub fn style(terminal: bool) -> Style {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    Style {
        colour: terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|t| t != "dumb"),
        unicode: locale.contains("utf-8") || locale.contains("utf8"),
    }
}
