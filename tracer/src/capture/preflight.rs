//! What must hold before anything is attached: checked first, so that a refusal leaves nothing behind.

use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

use super::CaptureError;

/// Oldest kernel whose BPF features the kernel side uses (ring buffers, `tp_btf`).
const OLDEST: (u32, u32) = (5, 10);
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// `PROC_PID_INIT_INO`, the same on every kernel since 3.8.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Facts about this machine that decide whether recording is possible at all.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    pub effective: CapabilitySet,
    /// Where the kernel's BTF was looked for, and whether it can be read.
    pub btf: PathBuf,
    pub has_btf: bool,
    /// The link `/proc/self/ns/pid`, empty where `/proc` is not mounted.
    pub pid_namespace: String,
}

impl Facts {
    #[must_use]
    pub fn read() -> Self {
        Self {
            release: release(),
            effective: rustix::thread::capabilities(None)
                .map(|c| c.effective)
                .unwrap_or(CapabilitySet::empty()),
            btf: PathBuf::from(BTF),
            has_btf: Path::new(BTF).exists(),
            pid_namespace: std::fs::read_link("/proc/self/ns/pid")
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
        }
    }

    /// # Errors
    /// Kernel too old, not permitted, no BTF, process ids of its own; in the order in which each could be put right.
    pub fn check(&self) -> Result<(), CaptureError> {
        if version(&self.release).is_none_or(|v| v < OLDEST) {
            return Err(CaptureError::KernelTooOld { found: self.release.clone() });
        }
        // CAP_SYS_ADMIN holds the power of the two finer ones, as before 5.8.
        let admin = self.effective.contains(CapabilitySet::SYS_ADMIN);
        let tracing = self.effective.contains(CapabilitySet::BPF | CapabilitySet::PERFMON);
        if !(admin || tracing) || !self.effective.contains(CapabilitySet::SYS_PTRACE) {
            return Err(CaptureError::NotPermitted);
        }
        if !self.has_btf {
            return Err(CaptureError::NoBtf { path: self.btf.clone() });
        }
        // The kernel side speaks of threads by the host's ids, `/proc` here by the container's.
        if self.pid_namespace != FIRST_PID_NAMESPACE {
            return Err(CaptureError::PidNamespace);
        }
        Ok(())
    }
}

/// `uname -r`, empty where `/proc` is not mounted.
#[must_use]
pub fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim_end().to_owned()
}

/// The first two numbers of a kernel release; `None` if it does not begin with them.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(release: &str) -> Facts {
        Facts {
            release: release.into(),
            effective: CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE,
            btf: PathBuf::from(BTF),
            has_btf: true,
            pid_namespace: FIRST_PID_NAMESPACE.into(),
        }
    }

    #[test]
    fn kernels_before_5_10_are_refused() {
        for old in ["5.9.16", "4.18.0-553.el8.x86_64", "5.4.0-150-generic", "", "rolling"] {
            let refused = facts(old).check();
            assert!(matches!(refused, Err(CaptureError::KernelTooOld { .. })), "{old}: {refused:?}");
        }
        for new in ["5.10.0-28-amd64", "6.1.0", "6.18.44+", "10.0"] {
            facts(new).check().unwrap_or_else(|e| panic!("{new}: {e}"));
        }
    }

    #[test]
    fn without_btf_is_refused() {
        let refused = Facts { has_btf: false, ..facts("6.1.0") }.check();
        assert!(matches!(refused, Err(CaptureError::NoBtf { .. })), "{refused:?}");
    }

    #[test]
    fn process_ids_of_its_own_are_refused() {
        for link in ["pid:[4026532198]", ""] {
            let refused = Facts { pid_namespace: link.into(), ..facts("6.1.0") }.check();
            assert!(matches!(refused, Err(CaptureError::PidNamespace)), "{link}: {refused:?}");
        }
    }

    #[test]
    fn each_missing_capability_is_refused() {
        for missing in [CapabilitySet::BPF, CapabilitySet::PERFMON, CapabilitySet::SYS_PTRACE] {
            let mut f = facts("6.1.0");
            f.effective.remove(missing);
            assert!(matches!(f.check(), Err(CaptureError::NotPermitted)), "{missing:?}");
        }
        let admin = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE;
        Facts { effective: admin, ..facts("6.1.0") }.check().unwrap();
    }
}
