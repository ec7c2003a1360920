//! Everything that can end `whyidle` early, each with what to do about it and its exit status.

use std::io;
use std::path::{Path, PathBuf};

use super::exit::Status;
use crate::capture::CaptureError;
use crate::capture::kernel::undo::LeftBehind;
use crate::capture::selection::TargetError;
use crate::gpu::GpuError;
use crate::import::ImportError;
use crate::render::flame::FlameError;
use crate::trace::TraceError;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{}: {}: {source}", path.display(), create_advice(path, source))]
    Create { path: PathBuf, source: io::Error },
    #[error("{}: exists already: name another file, or overwrite it with --force", .0.display())]
    Exists(PathBuf),
    #[error("{}: is the file that is read: name another for the output with -o", .0.display())]
    IsInput(PathBuf),
    #[error("{}: another whyidle is writing it: name another file with -o", .0.display())]
    BeingWritten(PathBuf),
    #[error("{}: was removed while it was being written, so the recording is lost: record again", .0.display())]
    Removed(PathBuf),
    #[error("{}: a trace needs a regular file, not a pipe or device: name another with -o", .0.display())]
    NotRegular(PathBuf),
    #[error("{}: cannot write: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("this format needs -o FILE: --format folded and --format speedscope print without it")]
    NeedsOutput,
    #[error("--kind diff compares within one trace: with --against take offcpu, oncpu, wakers or idle")]
    DiffAgainst,
    #[error("{}: no folder with debuginfo files: {source}", path.display())]
    DebugDir { path: PathBuf, source: io::Error },
    #[error("{0}")]
    BadRange(String),
    #[error("the trace has no GPU {wanted}: {}", there(indices))]
    NoSuchGpu { wanted: u32, indices: Vec<u32> },
    #[error("{command}: cannot be started: {source}")]
    CannotStart { command: String, source: io::Error },
    #[error("user {0}: not found in /etc/passwd: give a name from there, or UID:GID")]
    NoUser(String),
    #[error(
        "{what} ended too soon to say anything of it (what was seen is in {}): watch something that runs for some \
         seconds",
        trace.display()
    )]
    EndedAtOnce { what: String, trace: PathBuf },
    #[error("{}: no space left: {records} records are lost, all before them can be read with `whyidle report`; free some space or name another place with -o", path.display())]
    OutOfSpace { path: PathBuf, records: u64 },
    #[error("{}: {source}", path.display())]
    Import { path: PathBuf, source: ImportError },
    #[error(transparent)]
    Flame(#[from] FlameError),
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}: the trace is whole; what is left goes when the watched processes end")]
    LeftBehind(#[from] LeftBehind),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

impl CliError {
    /// A recording that could not be written to its end.
    #[must_use]
    pub fn trace_cut(error: TraceError) -> Self {
        match error {
            TraceError::Write { path, records, source } if output(&source) == Status::OutOfSpace => {
                Self::OutOfSpace { path, records }
            }
            other => Self::Trace(other),
        }
    }

    /// A trace made of another file, of which nothing is kept. `path` is the name that the user gave.
    #[must_use]
    pub fn unwritten(path: PathBuf, error: TraceError) -> Self {
        match error {
            TraceError::Create { source, .. } if output(&source) == Status::CannotCreate => {
                Self::Create { path, source }
            }
            TraceError::Create { source, .. } | TraceError::Write { source, .. } => {
                Self::Write { path, source }
            }
            other => other.into(),
        }
    }

    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Capture(e) => capture(e),
            Self::Target(TargetError::NoProcess(_) | TargetError::NoCgroup(_)) => Status::NoTarget,
            Self::Target(TargetError::Thread { .. } | TargetError::Own(_)) => Status::NotAProcess,
            Self::Target(TargetError::NoGpuProcess) => Status::NoGpuProcess,
            Self::Gpu(GpuError::NotNvml { .. }) => Status::NotNvml,
            Self::Gpu(_) => Status::Failed,
            Self::Trace(e) => trace(e),
            Self::Create { source, .. } | Self::Write { source, .. } => output(source),
            Self::Exists(_) => Status::Exists,
            Self::IsInput(_) => Status::IsInput,
            Self::BeingWritten(_) => Status::BeingWritten,
            Self::NotRegular(_) | Self::Removed(_) => Status::CannotCreate,
            Self::BadRange(_) => Status::BadRange,
            Self::NoSuchGpu { .. } => Status::NoSuchGpu,
            Self::CannotStart { .. } => Status::CannotStart,
            Self::NoUser(_) | Self::NeedsOutput | Self::DiffAgainst => Status::Usage,
            Self::DebugDir { .. } => Status::CannotRead,
            Self::EndedAtOnce { .. } => Status::EndedAtOnce,
            Self::OutOfSpace { .. } => Status::OutOfSpace,
            Self::Import { source, .. } => import(source),
            Self::LeftBehind(_) => Status::StillAttached,
            Self::Flame(FlameError::Draw { .. }) | Self::Json(_) | Self::Io { .. } => Status::Failed,
            Self::Flame(_) => Status::NothingToDraw,
        }
    }
}

fn capture(error: &CaptureError) -> Status {
    match error {
        CaptureError::NotPermitted => Status::NotPermitted,
        CaptureError::NoBtf { .. } => Status::NoBtf,
        CaptureError::KernelTooOld { .. } => Status::KernelTooOld,
        CaptureError::PidNamespace => Status::PidNamespace,
        CaptureError::NoProbe { .. } => Status::NoProbe,
        CaptureError::Kernel { .. } => Status::Failed,
    }
}

fn trace(error: &TraceError) -> Status {
    match error {
        TraceError::Create { source, .. } | TraceError::Write { source, .. } => output(source),
        TraceError::CutShort { .. } => Status::CannotCreate,
        TraceError::Open { .. } | TraceError::Read { .. } => Status::CannotRead,
        TraceError::Empty { .. } | TraceError::NotATrace { .. } => Status::NotATrace,
        TraceError::LaterVersion { .. } => Status::LaterVersion,
        TraceError::RecordTooLong { .. } | TraceError::Encode(_) => Status::Failed,
    }
}

fn import(error: &ImportError) -> Status {
    match error {
        ImportError::Read(_) => Status::CannotRead,
        ImportError::NotARecording(_) => Status::NotARecording,
        ImportError::Scratch(source) => output(source),
    }
}

fn output(source: &io::Error) -> Status {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Status::OutOfSpace
        }
        _ => Status::CannotCreate,
    }
}

fn create_advice(path: &Path, source: &io::Error) -> String {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match source.kind() {
        io::ErrorKind::NotFound => {
            format!("there is no folder {}, make it first or name another with -o", folder.display())
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{} cannot be written to, name another place with -o", folder.display())
        }
        io::ErrorKind::IsADirectory => "is a folder, name a file with -o".into(),
        _ => "cannot be created, name another file with -o".into(),
    }
}

fn there(indices: &[u32]) -> String {
    if indices.is_empty() {
        return "no device was seen while it was recorded".into();
    }
    let list = indices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    format!("use one of {list}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    fn trace_error(source: ErrorKind) -> CliError {
        CliError::Trace(TraceError::Write { path: "t".into(), records: 1, source: source.into() })
    }

    #[test]
    fn every_condition_has_its_own_status() {
        let path = PathBuf::from("t");
        let errors: Vec<CliError> = vec![
            CaptureError::NotPermitted.into(),
            CaptureError::NoBtf { path: path.clone() }.into(),
            CaptureError::KernelTooOld { found: "4.4".into() }.into(),
            CaptureError::NoProbe { reason: "x".into() }.into(),
            CaptureError::PidNamespace.into(),
            CliError::BeingWritten(path.clone()),
            TargetError::NoProcess(1).into(),
            TargetError::Own(1).into(),
            TargetError::NoGpuProcess.into(),
            CliError::EndedAtOnce { what: "x".into(), trace: path.clone() },
            CliError::Create { path: path.clone(), source: ErrorKind::NotFound.into() },
            CliError::Exists(path.clone()),
            CliError::IsInput(path.clone()),
            trace_error(ErrorKind::StorageFull),
            TraceError::Open { path: path.clone(), source: ErrorKind::NotFound.into() }.into(),
            TraceError::NotATrace { path: path.clone() }.into(),
            TraceError::LaterVersion { path, found: 9, supported: 1 }.into(),
            GpuError::NotNvml { path: "x".into(), source: "no".into() }.into(),
            CliError::BadRange("x".into()),
            CliError::NoSuchGpu { wanted: 1, indices: vec![0] },
            FlameError::NoIdle.into(),
            CliError::CannotStart { command: "x".into(), source: ErrorKind::NotFound.into() },
            CliError::Import { path: "r".into(), source: ImportError::NotARecording("not".into()) },
        ];
        let mut statuses: Vec<u8> = errors.iter().map(|e| e.status() as u8).collect();
        statuses.sort_unstable();
        let count = statuses.len();
        statuses.dedup();
        assert_eq!(statuses.len(), count, "{statuses:?}");
        for error in &errors {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_quota_and_a_file_size_limit_are_a_full_disk_too() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge] {
            assert_eq!(trace_error(kind).status(), Status::OutOfSpace);
        }
    }
}
