//! The command line: one file per verb.

mod analyse;
mod devices;
mod doctor;
pub mod error;
mod estimate;
mod eval;
pub mod exit;
mod flame;
mod gate;
mod import;
mod live;
mod options;
mod output;
mod range;
mod record;
mod report;
mod run;
mod schema;
mod session;
mod user;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::CliError;
use exit::Status;
use options::{Common, Recording};

/// For every millisecond a GPU stood idle: what on the host was it waiting for?
///
/// Without a verb: finds the processes that use a GPU, watches them for 30 s, prints the report and says
/// where the trace lies.
#[derive(Debug, Parser)]
#[command(version, name = "whyidle", after_help = exit::help(), subcommand_negates_reqs = true)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    recording: Recording,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Starts a command, records it until it ends, and prints the report
    Run(run::Run),
    /// Records running processes into a trace
    Record(record::Record),
    /// Reads a trace and says what the GPU waited for
    Report(report::Report),
    /// Draws a trace as a flame graph
    Flame(flame::Flame),
    /// Says what can be attached here, and why not
    Doctor(doctor::Doctor),
    /// Prints the JSON schema of `report --format json`
    Schema(schema::Schema),
    /// Makes a trace of what another tool recorded
    Import(import::Import),
    /// Measures how good the analysis is, on recordings that hold the truth
    Eval(eval::Eval),
    #[command(hide = true, name = gate::VERB)]
    Gate(gate::Gate),
}

/// The whole program: parses, runs, and turns an error into one line and an exit status.
#[must_use]
pub fn main() -> ExitCode {
    if let Err(error) = crate::capture::stop::survive_file_size_limit() {
        say(&format!("the file-size limit will end it without a word: {error}"));
    }
    let arguments = match parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are errors to clap, printed to standard output with status 0.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Status::Usage as u8));
        }
    };
    arguments.common.log();
    match run(arguments) {
        Ok(()) => ExitCode::from(Status::Done as u8),
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(error.status() as u8)
        }
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    use clap::CommandFactory;
    let arguments = Arguments::try_parse_from(arguments)?;
    if arguments.verb.is_some() && arguments.recording.given() {
        return Err(Arguments::command().error(
            clap::error::ErrorKind::ArgumentConflict,
            "options of a recording come after the verb: whyidle VERB OPTIONS",
        ));
    }
    Ok(arguments)
}

fn run(arguments: Arguments) -> Result<(), CliError> {
    let common = &arguments.common;
    match arguments.verb {
        None => watch::watch(&arguments.recording, common),
        Some(Verb::Run(verb)) => verb.run(common),
        Some(Verb::Record(verb)) => verb.run(common),
        Some(Verb::Report(verb)) => verb.run(),
        Some(Verb::Flame(verb)) => verb.run(),
        Some(Verb::Doctor(verb)) => verb.run(common),
        Some(Verb::Schema(verb)) => verb.run(),
        Some(Verb::Import(verb)) => verb.run(),
        Some(Verb::Eval(verb)) => verb.run(),
        Some(Verb::Gate(verb)) => verb.run(),
    }
}

/// A path as it may be printed.
fn shown(path: &Path) -> String {
    crate::render::escape(&path.display().to_string()).to_string()
}

/// One line on standard error. Nothing is left to do if that is closed.
fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "whyidle: {}", crate::render::escape(line)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parsed(line: &str) -> Result<Arguments, clap::Error> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_has_the_table_of_exit_statuses() {
        let help = Arguments::command().render_help().to_string();
        for (status, meaning) in exit::TABLE {
            assert!(help.contains(&format!("{:>3}  ", status as u8)), "{status:?}");
            assert!(help.contains(meaning.split(' ').next().unwrap()));
        }
    }

    #[test]
    fn global_options_stand_anywhere_and_a_recordings_only_after_the_verb() {
        for good in [
            "whyidle",
            "whyidle --duration 5s -o x",
            "whyidle --nvml /x run -- true",
            "whyidle run --nvml /x -o t -- python train.py -o model",
            "whyidle run python train.py --force",
            "whyidle record --pid 1 --pid 2 -o t",
            "whyidle report t --format json --from 1s",
            "whyidle flame t -o x.svg",
            "whyidle flame t --kind idle -o x.svg",
            "whyidle flame t --kind wakers --against u --format speedscope --debug-dir a --debug-dir b",
            "whyidle report t --debug-dir /usr/lib/debug",
            "whyidle import kineto r.json.gz -o t --window 100ms",
            "whyidle eval placement a.json b.json.gz --window 166ms,100ms --json",
        ] {
            parsed(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for bad in [
            "whyidle --duration 5s report t",
            "whyidle record -o t",
            "whyidle record --pid 1 --all -o t",
            "whyidle record --pid x -o t",
            "whyidle run",
            "whyidle report",
            "whyidle flame t --kind idle --folded --format svg",
            "whyidle --duration 0s",
            "whyidle --budget 0",
            "whyidle --budget nan",
            "whyidle import kineto r.json",
            "whyidle import kineto r.json -o t --window 1us",
            "whyidle eval placement",
        ] {
            let error = parsed(bad).err().unwrap_or_else(|| panic!("{bad} was taken"));
            assert_eq!(error.exit_code(), i32::from(Status::Usage as u8), "{bad}");
        }
    }

    #[test]
    fn a_library_named_by_nothing_is_not_named() {
        for (line, named) in [
            ("whyidle schema", None),
            ("whyidle --nvml= schema", None),
            ("whyidle --nvml=/x schema", Some(Path::new("/x"))),
            ("whyidle schema --nvml /x", Some(Path::new("/x"))),
        ] {
            assert_eq!(parsed(line).unwrap().common.nvml(), named, "{line}");
        }
    }

    #[test]
    fn a_commands_own_options_are_its_own() {
        let Some(Verb::Run(run)) = parsed("whyidle run -- python -o x").unwrap().verb else {
            panic!("no run")
        };
        assert_eq!(run.command, ["python", "-o", "x"]);
    }
}
