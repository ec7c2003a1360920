//! Runs the kernel skipped because a program would have re-entered itself.

use std::collections::{BTreeMap, HashMap};

use aya::Ebpf;

use super::raw;
use super::uprobes::Uprobes;
use crate::trace::{Loss, LossCause, LossClass, Ns, Record};

#[derive(Debug, Default)]
pub struct Misses {
    before: HashMap<String, u64>,
}

impl Misses {
    /// One loss per program with skipped runs since the last time.
    pub fn read(&mut self, ebpf: &Ebpf, uprobes: &Uprobes, at: Ns, sink: &mut dyn FnMut(Record)) {
        let mut missed: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, program) in ebpf.programs() {
            let Ok(fd) = program.fd() else { continue };
            *missed.entry(name).or_default() += raw::fd_info(fd).unwrap_or_default().missed;
        }
        for (name, info) in uprobes.infos() {
            *missed.entry(name).or_default() += info.missed;
        }
        for (name, now) in missed {
            let before = self.before.insert(name.to_owned(), now).unwrap_or(0);
            let (class, cause, count) = (class(name), LossCause::Recursion, now.saturating_sub(before));
            if count > 0 {
                sink(Record::Loss(Loss { at, class, cpu: None, cause, count, ns_at_risk: 0 }));
            }
        }
    }
}

fn class(program: &str) -> LossClass {
    match program {
        p if p.starts_with("sched_") || p == "wakeup_new" => LossClass::OffCpu,
        p if p.starts_with("task_") || p.starts_with("process_") => LossClass::Lifecycle,
        p if p.starts_with("block_") => LossClass::Block,
        p if p.starts_with("cuda_") => LossClass::Cuda,
        p if p.starts_with("ioctl_") => LossClass::Ioctl,
        p if p.starts_with("read_") => LossClass::File,
        "cpu_sample" => LossClass::Sample,
        _ => LossClass::Fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        assert_eq!(class("sched_switch_3"), LossClass::OffCpu);
        assert_eq!(class("process_exit"), LossClass::Lifecycle);
        assert_eq!(class("filemap_fault"), LossClass::Fault);
        assert_eq!(class("block_issue_q"), LossClass::Block);
        assert_eq!(class("ioctl_return"), LossClass::Ioctl);
    }
}
