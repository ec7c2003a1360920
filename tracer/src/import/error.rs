//! Why nothing could be imported.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("{0}: give the .json or .json.gz that torch.profiler wrote")]
    NotARecording(String),
    /// Of the scratch files, or of where the records go.
    #[error("cannot write: {0}")]
    Scratch(#[source] io::Error),
}

impl ImportError {
    pub(super) fn not(why: &str) -> Self {
        Self::NotARecording(format!("not a profiler's recording: {why}"))
    }
}
