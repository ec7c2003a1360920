//! Runs the kernel skipped because a program would have re-entered itself.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

use aya::Ebpf;

use crate::trace::{Loss, LossCause, LossClass, Ns, Record};

#[derive(Debug, Default)]
pub struct Misses {
    before: HashMap<String, u64>,
}

impl Misses {
    /// One loss per program with skipped runs since the last time.
    pub fn read(&mut self, ebpf: &Ebpf, at: Ns, sink: &mut dyn FnMut(Record)) {
        for (name, program) in ebpf.programs() {
            let Ok(fd) = program.fd() else { continue };
            let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
            let Some(now) = std::fs::read_to_string(path).ok().and_then(|text| parse(&text)) else {
                continue;
            };
            let before = self.before.insert(name.to_owned(), now).unwrap_or(0);
            let (class, cause, count) = (class(name), LossCause::Recursion, now.saturating_sub(before));
            if count > 0 {
                sink(Record::Loss(Loss { at, class, cpu: None, cause, count, ns_at_risk: 0 }));
            }
        }
    }
}

fn parse(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

fn class(program: &str) -> LossClass {
    match program {
        p if p.starts_with("sched_") || p == "wakeup_new" => LossClass::OffCpu,
        p if p.starts_with("task_") || p.starts_with("process_") => LossClass::Lifecycle,
        p if p.starts_with("block_") => LossClass::Block,
        p if p.starts_with("cuda_") => LossClass::Cuda,
        p if p.starts_with("read_") => LossClass::File,
        "cpu_sample" => LossClass::Sample,
        _ => LossClass::Fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo() {
        let text = "pos:\t0\nprog_type:\t26\nrun_cnt:\t3\nrecursion_misses:\t12\nverified_insns:\t5\n";
        assert_eq!(parse(text), Some(12));
        assert_eq!(parse("prog_type:\t26\n"), None);
    }

    #[test]
    fn classes() {
        assert_eq!(class("sched_switch_3"), LossClass::OffCpu);
        assert_eq!(class("process_exit"), LossClass::Lifecycle);
        assert_eq!(class("filemap_fault"), LossClass::Fault);
        assert_eq!(class("block_issue_q"), LossClass::Block);
    }
}
