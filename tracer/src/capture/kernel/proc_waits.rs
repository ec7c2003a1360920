//! Waits that were open when the recording ended, seen from `/proc`: the state, system call and kernel stack
//! of threads that did not come back to a processor.

use std::collections::HashMap;
use std::fs;

use crate::trace::{Ns, OffCpu, State, Syscall, ThreadKey};

use super::targets::Stat;

/// System call and arguments from `/proc/<pid>/task/<tid>/syscall`; `None` for a thread that runs, is in no
/// system call, or may not be looked at.
#[must_use]
pub fn syscall(pid: u32, tid: u32) -> Option<Syscall> {
    parse_syscall(&fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?)
}

fn parse_syscall(line: &str) -> Option<Syscall> {
    let mut parts = line.split_ascii_whitespace();
    let nr: i32 = parts.next()?.parse().ok().filter(|nr| *nr >= 0)?;
    let mut args = [0u64; 6];
    for arg in &mut args {
        *arg = u64::from_str_radix(parts.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(Syscall { nr, args })
}

/// State letter of a `stat` line.
#[must_use]
pub fn state(letter: char) -> State {
    match letter {
        'R' => State::Preempted,
        'S' => State::Sleeping,
        'T' | 't' => State::Stopped,
        'Z' | 'X' | 'x' => State::Dead,
        'I' | 'P' => State::Idle,
        // 'D', and letters to come.
        _ => State::Uninterruptible,
    }
}

/// The wait of a thread that was there from `left` to `end` without being seen to run.
#[must_use]
pub fn open_wait(key: ThreadKey, pid: u32, stat: &Stat, left: Ns, end: Ns) -> OffCpu {
    OffCpu {
        thread: key,
        pid,
        left,
        woken: None,
        ran: end.max(left),
        state: state(stat.state),
        cut_start: false,
        cut_end: true,
        throttled: false,
        cpu_left: stat.cpu,
        cpu_queued: stat.cpu,
        cpu_ran: stat.cpu,
        cpus_allowed: 0,
        cpu_mask: [0; 4],
        syscall: syscall(pid, key.tid),
        ioctl: None,
        futex_value: None,
        file: None,
        path_arg: None,
        kernel_stack: 0,
        user_stack: 0,
        waker: None,
    }
}

/// Kernel stacks of sleeping threads, whose text names functions; addresses come back from the symbol table.
#[derive(Debug, Default)]
pub struct Sleepers {
    /// By thread, innermost first: function and offset into it.
    stacks: HashMap<(u32, u32), Vec<(String, u64)>>,
}

impl Sleepers {
    /// Reads the stack of one thread.
    pub fn read(&mut self, pid: u32, tid: u32) {
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stack")) {
            self.stacks.insert((pid, tid), parse_stack(&text));
        }
    }

    /// Addresses of the stacks read, by `(pid, tid)`; frames whose function has no symbol are left out.
    #[must_use]
    pub fn addresses(self) -> HashMap<(u32, u32), Vec<u64>> {
        let mut wanted: HashMap<&str, u64> =
            self.stacks.values().flatten().map(|(name, _)| (name.as_str(), 0)).collect();
        if !wanted.is_empty()
            && let Ok(symbols) = fs::read_to_string("/proc/kallsyms")
        {
            for line in symbols.lines() {
                let mut parts = line.split_ascii_whitespace();
                let (Some(address), _, Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                    continue;
                };
                if let Some(slot) = wanted.get_mut(name)
                    && *slot == 0
                {
                    *slot = u64::from_str_radix(address, 16).unwrap_or(0);
                }
            }
        }
        let address = |(name, offset): &(String, u64)| {
            wanted.get(name.as_str()).filter(|a| **a != 0).map(|a| a.wrapping_add(*offset))
        };
        self.stacks.iter().map(|(k, frames)| (*k, frames.iter().filter_map(address).collect())).collect()
    }
}

/// Lines of the form `[<0>] function+0x1a/0x60`.
fn parse_stack(text: &str) -> Vec<(String, u64)> {
    text.lines()
        .filter_map(|line| {
            let (_, frame) = line.split_once("] ")?;
            let (name, rest) = frame.trim().split_once("+0x")?;
            let offset = rest.split(['/', ' ']).next()?;
            Some((name.to_owned(), u64::from_str_radix(offset, 16).ok()?))
        })
        .collect()
}

/// Content hash of a stack read here; the kernel side hashes its own.
#[must_use]
pub fn stack_id(addresses: &[u64]) -> u64 {
    addresses.iter().fold(0x9e37_79b9_7f4a_7c15, |h: u64, a| {
        let h = (h ^ a).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^ (h >> 32)
    }) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls() {
        let call = parse_syscall("202 0x7f1 0x80 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f4\n").expect("in futex");
        assert_eq!((call.nr, call.args), (202, [0x7f1, 0x80, 0, 0, 0, 0xffff_ffff]));
        for none in ["running\n", "-1 0x7ffc 0x7f4\n", "", "0 0x1\n", "0 1 2 3 4 5 6\n"] {
            assert_eq!(parse_syscall(none), None, "{none:?}");
        }
    }

    #[test]
    fn stacks() {
        let text = "[<0>] futex_wait_queue+0x62/0x90\n[<0>] do_syscall_64+0x5b/0x80\nnonsense\n";
        assert_eq!(
            parse_stack(text),
            [("futex_wait_queue".to_owned(), 0x62), ("do_syscall_64".to_owned(), 0x5b)]
        );
        assert_ne!(stack_id(&[1, 2]), stack_id(&[2, 1]));
        assert_ne!(stack_id(&[]), 0);
    }
}
