//! Why a trace could not be written or read. Each kind is distinct, so that each can have its own exit status.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{}: cannot create the trace: {source}", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// Everything up to the last complete frame stays readable; `records` are lost.
    #[error("{}: cannot write the trace ({records} records lost, all before them can be read): {source}", path.display())]
    Write { path: PathBuf, records: u64, source: io::Error },
    /// Writing on would leave a hole in it, so nothing more is written.
    #[error(
        "{}: was cut short by somebody else while it was being written, so the recording is lost: record again",
        path.display()
    )]
    CutShort { path: PathBuf },
    #[error("{}: cannot open the trace: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}: cannot read the trace at byte {offset}: {source}", path.display())]
    Read { path: PathBuf, offset: u64, source: io::Error },
    #[error("{}: the file is empty: nothing was recorded into it", path.display())]
    Empty { path: PathBuf },
    #[error("{}: not a whyidle trace", path.display())]
    NotATrace { path: PathBuf },
    #[error(
        "{}: the trace has format version {found}, this whyidle reads up to {supported}: read it with the \
         whyidle that recorded it, or with a later one",
        path.display()
    )]
    LaterVersion { path: PathBuf, found: u16, supported: u16 },
    /// The record was not taken; the writer can go on.
    #[error("a record of {bytes} bytes is longer than a trace can hold ({limit})")]
    RecordTooLong { bytes: usize, limit: usize },
    #[error("a record cannot be encoded: {0}")]
    Encode(#[from] postcard::Error),
}
