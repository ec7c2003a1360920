//! Where a wake-up came from: told by the kernel stack of the thread that happened to be running.

use crate::trace::WakerContext;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Interrupt,
    SystemCall,
    Other,
}

/// Names that tell an entry into the kernel, by prefix.
const INTERRUPTS: &[&str] = &[
    "asm_sysvec_",
    "sysvec_",
    "__sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "asm_exc_nmi",
    "exc_nmi",
    "run_ksoftirqd",
    "irq_thread",
];
const SYSTEM_CALLS: &[&str] = &[
    "entry_SYSCALL_64",
    "entry_SYSCALL_compat",
    "entry_SYSENTER_compat",
    "entry_INT80_compat",
    "do_syscall_64",
    "x64_sys_call",
    "do_int80",
    "asm_int80_emulation",
    "do_fast_syscall_32",
    "__do_fast_syscall_32",
];

/// Kernel entry functions by address.
#[derive(Debug, Default)]
pub struct Entries {
    /// Start of every function, ascending, with what it is.
    functions: Vec<(u64, Entry)>,
}

impl Entries {
    /// Reads the running kernel's symbols; empty where they are hidden.
    #[must_use]
    pub fn running() -> Self {
        match std::fs::read_to_string("/proc/kallsyms") {
            Ok(text) => Self::parse(&text),
            Err(e) => {
                tracing::warn!(error = %e, "/proc/kallsyms: the context of wake-ups is not known");
                Self::default()
            }
        }
    }

    fn parse(text: &str) -> Self {
        let mut functions: Vec<(u64, Entry)> = text
            .lines()
            .filter_map(|line| {
                let mut parts = line.split_ascii_whitespace();
                let address = u64::from_str_radix(parts.next()?, 16).ok().filter(|a| *a != 0)?;
                let kind = parts.next()?;
                let name = parts.next()?;
                matches!(kind, "t" | "T" | "w" | "W").then(|| (address, classify(name)))
            })
            .collect();
        // Of several names of one address the telling one counts.
        functions.sort_by_key(|(address, entry)| (*address, *entry == Entry::Other));
        functions.dedup_by_key(|(address, _)| *address);
        // Only borders between different kinds matter.
        functions.dedup_by(|later, earlier| later.1 == Entry::Other && earlier.1 == Entry::Other);
        Self { functions }
    }

    fn of(&self, address: u64) -> Entry {
        match self.functions.partition_point(|(start, _)| *start <= address) {
            0 => Entry::Other,
            n => self.functions[n - 1].1,
        }
    }

    /// `frames` run innermost first. An interrupt entered above any system call is an interrupt; softirq
    /// work directly above a system call is the thread's own doing.
    #[must_use]
    pub fn context(&self, frames: &[u64]) -> WakerContext {
        if self.functions.is_empty() || frames.is_empty() {
            return WakerContext::Unknown;
        }
        frames
            .iter()
            .find_map(|address| match self.of(*address) {
                Entry::Interrupt => Some(WakerContext::Interrupt),
                Entry::SystemCall => Some(WakerContext::Task),
                Entry::Other => None,
            })
            // A kernel thread, a fault, or a stack cut at its depth: the thread's own.
            .unwrap_or(WakerContext::Task)
    }
}

fn classify(name: &str) -> Entry {
    if SYSTEM_CALLS.iter().any(|p| name.starts_with(p)) {
        Entry::SystemCall
    } else if INTERRUPTS.iter().any(|p| name.starts_with(p)) {
        Entry::Interrupt
    } else {
        Entry::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &str = "ffffffff81000080 T entry_SYSCALL_64\n\
        ffffffff81000200 T asm_sysvec_apic_timer_interrupt\n\
        ffffffff81000240 T asm_exc_page_fault\n\
        ffffffff81369570 t handle_softirqs\n\
        ffffffff81369900 T do_softirq\n\
        ffffffff8136a0f0 t run_ksoftirqd\n\
        ffffffff81400000 T try_to_wake_up\n\
        ffffffff82000000 D some_data\n\
        ffffffff8225a990 T do_syscall_64\n\
        ffffffff8225aa00 T after\n\
        0000000000000000 T hidden\n";

    const WAKE: u64 = 0xffff_ffff_8140_0010;
    const SOFTIRQ: u64 = 0xffff_ffff_8136_9580;
    const TIMER: u64 = 0xffff_ffff_8100_0210;
    const SYSCALL: u64 = 0xffff_ffff_8225_a9a0;

    #[test]
    fn contexts() {
        let e = Entries::parse(SYMBOLS);
        assert_eq!(e.context(&[WAKE, SYSCALL]), WakerContext::Task);
        assert_eq!(e.context(&[WAKE, SOFTIRQ, SYSCALL]), WakerContext::Task, "own softirq work");
        assert_eq!(e.context(&[WAKE, SOFTIRQ, TIMER, SYSCALL]), WakerContext::Interrupt);
        assert_eq!(e.context(&[WAKE, TIMER]), WakerContext::Interrupt);
        assert_eq!(e.context(&[WAKE, 0xffff_ffff_8136_a100]), WakerContext::Interrupt, "ksoftirqd");
        assert_eq!(
            e.context(&[WAKE, 0xffff_ffff_8100_0244]),
            WakerContext::Task,
            "a fault is the thread's own"
        );
        assert_eq!(e.context(&[WAKE]), WakerContext::Task);
        assert_eq!(e.context(&[]), WakerContext::Unknown);
        assert_eq!(e.context(&[0, u64::MAX]), WakerContext::Task);
    }

    #[test]
    fn hidden_symbols_tell_nothing() {
        let e = Entries::parse("0000000000000000 T entry_SYSCALL_64\n");
        assert_eq!(e.context(&[WAKE]), WakerContext::Unknown);
        assert_eq!(Entries::parse("").context(&[WAKE]), WakerContext::Unknown);
        assert_eq!(Entries::parse("no\nzz T x\n1\n").context(&[WAKE]), WakerContext::Unknown);
    }
}
