//! `whyidle run`: a command from its first instruction to its end.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use clap::Args;

use super::analyse::analyse;
use super::error::CliError;
use super::gate::Gated;
use super::live::LiveLine;
use super::options::{Common, Recording};
use super::range::Range;
use super::record::say_where;
use super::report::{columns, style};
use super::session::Session;
use super::user::User;
use crate::capture::recorder::{Ending, Progress, TARGETS_EXITED, Watch};
use crate::capture::selection::Selection;
use crate::capture::stop::Stop;
use crate::render;

#[derive(Clone, Debug, Args)]
pub struct Run {
    #[command(flatten)]
    recording: Recording,
    /// Runs the command as this user: a name, UID or UID:GID [default: whoever runs whyidle]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl Run {
    pub fn run(&self, common: &Common) -> Result<(), CliError> {
        if let Some(user) = &self.user {
            User::find(user).ok_or_else(|| CliError::NoUser(user.clone()))?;
        }
        let words: Vec<String> = self.command.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        let what = words.join(" ");
        let cannot = |source| CliError::CannotStart { command: words[0].clone(), source };
        let duration = self.recording.duration;
        let mut session = Session::start(&Selection::Command, &what, duration, &self.recording, common)?;
        let mut gated = match Gated::start(&self.command, self.user.as_deref(), session.open_files) {
            Ok(gated) => gated,
            Err(source) => return Err(session.give_up(cannot(source))),
        };
        if let Err(error) = session.add(gated.child.id()) {
            return Err(session.give_up(error));
        }
        if let Err(source) = gated.release() {
            return Err(session.give_up(cannot(source)));
        }
        let stop = session.stop.clone();
        let live = LiveLine::new(session.path(), duration);
        let mut watch = RunWatch { live, child: gated.child, stop, status: None };
        let recorded = session.record(&mut watch)?;
        watch.live.clear();
        if let Some(status) = watch.status {
            say_status(&words[0], status);
            recorded.had_something(&words[0])?;
        }
        let report = analyse(&recorded.path, Range::default(), None, &[])?.report;
        let mut out = std::io::stderr();
        // The command may own standard output; where standard error is closed there is nobody to tell.
        let text = render::text(&report, style(out.is_terminal()), columns(&out));
        drop(out.write_all(text.as_bytes()));
        say_where(&recorded);
        // Before the command is waited for: it goes on without probes.
        let settled = recorded.settle();
        if watch.status.is_none() {
            super::say(&format!("{} goes on (pid {}); waiting for its end", words[0], watch.child.id()));
            let status =
                watch.wait().map_err(|source| CliError::Io { what: "waiting for the command", source })?;
            say_status(&words[0], status);
        }
        settled
    }
}

/// Looks after the command while it is recorded.
#[derive(Debug)]
struct RunWatch {
    live: LiveLine,
    child: Child,
    stop: Stop,
    status: Option<ExitStatus>,
}

impl Watch for RunWatch {
    fn tick(&mut self, progress: &Progress) -> Option<Ending> {
        if let Ok(Some(status)) = self.child.try_wait() {
            self.status = Some(status);
            return Some(Ending { reason: TARGETS_EXITED.into(), exit_status: Some(number(status)) });
        }
        self.live.tick(progress)
    }

    fn ending(&mut self) {
        self.live.ending();
    }
}

impl RunWatch {
    /// The recording may have ended first: by its duration or a signal. The command goes on to its own end.
    fn wait(&mut self) -> std::io::Result<ExitStatus> {
        match self.status {
            Some(status) => Ok(status),
            None => {
                // Ctrl-C reaches the command by the terminal; this signal came to us alone.
                if self.stop.terminated()
                    && let Some(pid) =
                        i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
                {
                    // It may have ended by itself a moment ago.
                    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap_or_default();
                }
                self.child.wait()
            }
        }
    }
}

/// As a shell gives it: 128 and the signal for a command that a signal ended.
fn number(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn say_status(command: &str, status: ExitStatus) {
    if let Some(signal) = status.signal() {
        super::say(&format!("{command} was ended by signal {signal}"));
    } else {
        super::say(&format!("{command} ended with status {}", number(status)));
    }
}
