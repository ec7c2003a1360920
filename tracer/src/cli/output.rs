//! Output files: opened before any work is done, and removed again if nothing came into them.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::error::CliError;

/// An output file that exists and can be written to.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// Made by us and still without content.
    fresh: bool,
    /// Held open: the lock on it goes with it.
    held: File,
}

impl Output {
    /// Claims the path: a new file, or with `force` an existing one, which is left as it is until the work
    /// has something to put there.
    ///
    /// # Errors
    /// It exists, its folder does not, or it cannot be written.
    pub fn claim(path: &Path, force: bool) -> Result<Self, CliError> {
        Self::claim_apart(path, force, &[])
    }

    /// Likewise, for what is made of other files: none of them may be the output, by whatever name.
    ///
    /// # Errors
    /// As for [`Self::claim`], or the output is one of `inputs`.
    pub fn claim_apart(path: &Path, force: bool, inputs: &[&Path]) -> Result<Self, CliError> {
        let there = identity(path.metadata());
        if there.is_some() && inputs.iter().any(|input| identity(input.metadata()) == there) {
            return Err(CliError::IsInput(path.to_owned()));
        }
        let create = |source| CliError::Create { path: path.to_owned(), source };
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(held) => Ok(Self { path: path.to_owned(), fresh: true, held }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if path.is_dir() {
                    return Err(create(io::ErrorKind::IsADirectory.into()));
                }
                if !force {
                    return Err(CliError::Exists(path.to_owned()));
                }
                // Without waiting for a reader, were it a pipe.
                let held = OpenOptions::new()
                    .write(true)
                    .custom_flags(libc::O_NONBLOCK)
                    .open(path)
                    .map_err(create)?;
                Ok(Self { path: path.to_owned(), fresh: false, held })
            }
            Err(e) => Err(create(e)),
        }
    }

    /// For a file written to over time: it must be a regular one, and nobody else's meanwhile.
    ///
    /// # Errors
    /// It is a pipe or device, or another recording writes it.
    pub fn lock(&self) -> Result<(), CliError> {
        if !self.held.metadata().is_ok_and(|m| m.is_file()) {
            return Err(CliError::NotRegular(self.path.clone()));
        }
        match rustix::fs::flock(&self.held, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(CliError::BeingWritten(self.path.clone())),
            // A file system without locks: then nobody can hold one.
            _ => Ok(()),
        }
    }

    /// # Errors
    /// The file is no longer where it was made: somebody removed or replaced it.
    pub fn still_there(&self) -> Result<(), CliError> {
        let there = identity(self.path.metadata());
        if there.is_some() && there == identity(self.held.metadata()) {
            return Ok(());
        }
        Err(CliError::Removed(self.path.clone()))
    }

    /// From now on the file is kept, whatever happens.
    pub fn keep(&mut self) {
        self.fresh = false;
    }

    /// Replaces the content in one go: a reader sees the old one or the whole new one.
    ///
    /// # Errors
    /// The disk is full, for one; then the file is as it was before.
    pub fn fill(mut self, content: &[u8]) -> Result<(), CliError> {
        let write = |source| CliError::Write { path: self.path.clone(), source };
        // Devices and pipes must be written through, not replaced.
        let Some(draft) = self.draft() else {
            return File::create(&self.path).and_then(|mut f| f.write_all(content)).map_err(write);
        };
        let written = File::create(&draft.beside).and_then(|mut f| {
            f.write_all(content)?;
            f.sync_data()
        });
        written.map_err(write)?;
        self.place(draft)
    }

    /// A place for new content, beside the file that it will replace. `None` if that is no regular file.
    #[must_use]
    pub fn draft(&self) -> Option<Draft> {
        // Where the path is a link, what it names is replaced.
        let target = self.path.canonicalize().ok().filter(|target| target.is_file())?;
        Some(Draft { beside: beside(&target), target })
    }

    /// Puts finished content in its place.
    ///
    /// # Errors
    /// Somebody removed or replaced the file meanwhile, or its folder cannot be written to.
    pub fn place(&mut self, draft: Draft) -> Result<(), CliError> {
        self.still_there()?;
        std::fs::rename(&draft.beside, &draft.target)
            .map_err(|source| CliError::Write { path: self.path.clone(), source })?;
        self.keep();
        Ok(())
    }
}

/// New content of an output on its way: a reader of the output sees the old one or the whole new one. What was not
/// put in its place is removed.
#[derive(Debug)]
pub struct Draft {
    /// Where to write it.
    pub beside: PathBuf,
    target: PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Not there any more if it was put in its place.
        drop(std::fs::remove_file(&self.beside));
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // What somebody else has put there meanwhile is theirs.
        let ours = self.still_there().is_ok() && self.held.metadata().is_ok_and(|m| m.is_file());
        if self.fresh && ours {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Device and inode: the same file by whatever name. `None` where there is none.
fn identity(file: io::Result<Metadata>) -> Option<(u64, u64)> {
    file.ok().map(|m| (m.dev(), m.ino()))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

/// Name of a trace when none was given: in the current folder, by time (UTC).
#[must_use]
pub fn default_trace() -> PathBuf {
    let stamp: String = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let stamp: String = stamp.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    PathBuf::from(format!("whyidle-{stamp}.whyidle"))
}

/// Writes to standard output. A reader that went away (`| head`) is no failure.
///
/// # Errors
/// Standard output cannot be written to for another reason, such as a full disk.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::Write { path: PathBuf::from("standard output"), source: e })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_unused_new_file_is_removed_and_a_filled_one_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        drop(Output::claim(&path, false).unwrap());
        assert!(!path.exists());
        Output::claim(&path, false).unwrap().fill(b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_file_needs_force_and_is_kept_until_there_is_something_new() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "old").unwrap();
        assert!(matches!(Output::claim(&path, false), Err(CliError::Exists(_))));
        drop(Output::claim(&path, true).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        Output::claim(&path, true).unwrap().fill(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_draft_that_came_to_nothing_leaves_all_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for name in [&path, &link] {
            let output = Output::claim(name, true).unwrap();
            let draft = output.draft().unwrap();
            fs::write(&draft.beside, "torn").unwrap();
            drop((draft, output));
            assert_eq!(fs::read_to_string(&path).unwrap(), "old");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        }
        Output::claim(&link, true).unwrap().fill(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_replaced_meanwhile_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut output = Output::claim(&path, false).unwrap();
        let draft = output.draft().unwrap();
        fs::write(&draft.beside, "new").unwrap();
        fs::write(folder.path().join("other"), "somebody's").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        assert!(matches!(output.place(draft), Err(CliError::Removed(_))));
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
    }

    #[test]
    fn an_input_is_no_output_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["input", "other"] {
            fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink(at("input"), at("link")).unwrap();
        fs::hard_link(at("input"), at("hard")).unwrap();
        for name in ["input", "link", "hard", "./input"] {
            for force in [false, true] {
                let claimed = Output::claim_apart(&at(name), force, &[&at("missing"), &at("input")]);
                assert!(matches!(claimed, Err(CliError::IsInput(_))), "{name}: {claimed:?}");
            }
        }
        Output::claim_apart(&at("other"), true, &[&at("input"), &at("missing")]).unwrap();
        drop(Output::claim_apart(&at("new"), false, &[&at("input"), &at("missing")]).unwrap());
    }

    #[test]
    fn a_missing_folder_and_a_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Output::claim(&folder.path().join("no/a"), false).unwrap_err();
        assert!(missing.to_string().contains("there is no folder"), "{missing}");
        let is_folder = Output::claim(folder.path(), true).unwrap_err();
        assert!(is_folder.to_string().contains("is a folder"), "{is_folder}");
    }
}
