//! Hidden: waits for a word, then becomes the command of `whyidle run`, so that it is watched from its
//! first instruction on.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use clap::Args;

use super::error::CliError;
use super::user::User;
use crate::capture::descriptors;

pub const VERB: &str = "__gate";

/// The waiting child's side.
#[derive(Clone, Debug, Args)]
pub struct Gate {
    /// Descriptor that gives one byte when the command may start.
    go: RawFd,
    /// Descriptor that takes the error number if it cannot; closed by `exec` otherwise.
    failed: RawFd,
    #[arg(long)]
    user: Option<String>,
    /// Limit on open files, none if not given.
    #[arg(long)]
    open_files: Option<u64>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// The parent's side: a command that waits to be let go.
#[derive(Debug)]
pub struct Gated {
    pub child: Child,
    go: Option<std::io::PipeWriter>,
    failed: std::io::PipeReader,
}

impl Gate {
    pub fn run(&self) -> Result<(), CliError> {
        let (mut go, mut failed) = (take(self.go)?, take(self.failed)?);
        // End of file: the parent is gone, and nobody wants the command any more.
        if !matches!(go.read(&mut [0]), Ok(1)) {
            return Ok(());
        }
        drop(go);
        let error = self.become_command();
        let number = error.raw_os_error().unwrap_or(0);
        drop(failed.write_all(&number.to_ne_bytes()));
        // The parent says what went wrong; saying it here too would be twice.
        Ok(())
    }

    fn become_command(&self) -> std::io::Error {
        let Some((program, arguments)) = self.command.split_first() else {
            return std::io::ErrorKind::NotFound.into();
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if self.open_files.is_some() {
            descriptors::set(self.open_files);
        }
        if let Some(user) = &self.user {
            match User::find(user) {
                Some(user) => {
                    if let Err(e) = user.become_it(&mut command) {
                        return e;
                    }
                }
                None => return std::io::ErrorKind::NotFound.into(),
            }
        }
        command.exec()
    }
}

fn take(descriptor: RawFd) -> Result<File, CliError> {
    let io = |source| CliError::Io { what: "the verb __gate is not for use by hand", source };
    if descriptor < 3 {
        return Err(io(std::io::ErrorKind::InvalidInput.into()));
    }
    // SAFETY: `Gated::start` passed this descriptor for us alone; nothing else in this process, which has
    // only parsed its arguments, has or closes it. A wrong number given by hand gives EBADF below.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC).map_err(|e| io(e.into()))?;
    Ok(owned.into())
}

impl Gated {
    /// Starts a process that will become `command`. It does nothing until [`Self::release`].
    pub fn start(command: &[OsString], user: Option<&str>, open_files: Option<u64>) -> std::io::Result<Self> {
        use std::os::fd::AsRawFd;
        let (go_read, go) = std::io::pipe()?;
        let (failed, failed_write) = std::io::pipe()?;
        for inherited in [rustix::fd::AsFd::as_fd(&go_read), rustix::fd::AsFd::as_fd(&failed_write)] {
            rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty())?;
        }
        let mut gate = Command::new("/proc/self/exe");
        gate.arg0("whyidle").arg(VERB);
        gate.arg(go_read.as_raw_fd().to_string()).arg(failed_write.as_raw_fd().to_string());
        if let Some(user) = user {
            gate.arg("--user").arg(user);
        }
        if let Some(limit) = open_files {
            gate.arg("--open-files").arg(limit.to_string());
        }
        let child = gate.arg("--").args(command).spawn()?;
        Ok(Self { child, go: Some(go), failed })
    }

    /// Lets the command start. Returns once it runs.
    ///
    /// # Errors
    /// It could not be started: no such program, for one.
    pub fn release(&mut self) -> std::io::Result<()> {
        if let Some(mut go) = self.go.take() {
            go.write_all(&[1])?;
        }
        let mut number = [0; 4];
        match self.failed.read_exact(&mut number) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                self.child.wait()?;
                Err(std::io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
            }
        }
    }
}
