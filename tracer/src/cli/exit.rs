//! The one table of exit statuses.

/// How `whyidle` ended. A number, once given out, keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Done = 0,
    Failed = 1,
    Usage = 2,
    NotPermitted = 3,
    NoBtf = 4,
    KernelTooOld = 5,
    NoProbe = 6,
    NoTarget = 7,
    NotAProcess = 8,
    NoGpuProcess = 9,
    EndedAtOnce = 10,
    CannotCreate = 11,
    Exists = 12,
    OutOfSpace = 13,
    CannotRead = 14,
    NotATrace = 15,
    LaterVersion = 16,
    NotNvml = 17,
    BadRange = 18,
    NoSuchGpu = 19,
    CannotStart = 20,
    NothingToDraw = 21,
    PidNamespace = 22,
    BeingWritten = 23,
    NotARecording = 24,
    StillAttached = 25,
    IsInput = 26,
    Aborted = 130,
}

/// Every status with its meaning, in order.
pub const TABLE: [(Status, &str); 28] = [
    (Status::Done, "done (also when a command under `run` failed: its own status is printed)"),
    (Status::Failed, "failed for a reason of its own, see the message"),
    (Status::Usage, "the command line is wrong"),
    (Status::NotPermitted, "root (or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE) is needed"),
    (Status::NoBtf, "the kernel has no BTF"),
    (Status::KernelTooOld, "the kernel is older than 5.10"),
    (Status::NoProbe, "no probe could be attached"),
    (Status::NoTarget, "no such process or control group"),
    (Status::NotAProcess, "the id given is that of a thread, or of whyidle itself"),
    (Status::NoGpuProcess, "no process uses a GPU"),
    (Status::EndedAtOnce, "the target ended before anything could be recorded"),
    (Status::CannotCreate, "an output file cannot be created"),
    (Status::Exists, "an output file exists already"),
    (Status::OutOfSpace, "no space left for the output"),
    (Status::CannotRead, "the trace or recording cannot be opened or read"),
    (Status::NotATrace, "the file is no trace"),
    (Status::LaterVersion, "the trace is of a later version"),
    (Status::NotNvml, "the library named by --nvml is no NVML library"),
    (Status::BadRange, "--from or --to is wrong"),
    (Status::NoSuchGpu, "the trace has no such GPU"),
    (Status::CannotStart, "the command could not be started"),
    (Status::NothingToDraw, "the trace holds nothing of the kind to draw"),
    (Status::PidNamespace, "run in a container that does not share the host's process ids"),
    (Status::BeingWritten, "another whyidle is writing the output file"),
    (Status::NotARecording, "the file to import is no recording of the kind"),
    (Status::StillAttached, "the trace is whole, but something could not be detached"),
    (Status::IsInput, "the output is the very file that is read"),
    (Status::Aborted, "told to stop a second time"),
];

/// The table as text for `--help`.
#[must_use]
pub fn help() -> String {
    let lines = TABLE.iter().map(|(status, meaning)| format!("  {:>3}  {meaning}\n", *status as u8));
    format!("Exit status:\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_and_in_order() {
        let numbers: Vec<u8> = TABLE.iter().map(|(s, _)| *s as u8).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert!(numbers.iter().all(|n| help().contains(&format!(" {n}  "))));
    }
}
