//! One set-up at a time for each cache folder.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::fs::{FlockOperation, flock};

use crate::shell::say;

/// Held until the returned file is dropped; the kernel lets go of it when the process dies.
pub fn exclusive(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        say("another set-up is running; waiting for it");
        flock(&file, FlockOperation::LockExclusive).with_context(|| path.display().to_string())?;
    }
    Ok(file)
}
