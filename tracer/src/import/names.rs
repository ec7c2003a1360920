//! Threads and function names of a recording, as the numbers that items carry.

use std::collections::HashMap;

use super::event::OpKind;
use super::hash::Hash;
use crate::trace::{Frame, ThreadKey};

/// Distinct names kept; what comes after goes by one. Also the most threads, and names of threads.
const MAX_NAMES: usize = 1 << 16;
/// Bytes of one name.
const MAX_NAME: usize = 256;
const OTHER: &str = "(one of too many names to keep)";

#[derive(Clone, Debug)]
pub(super) struct Who {
    pub pid: u32,
    pub key: ThreadKey,
    ids: (i64, i64),
}

#[derive(Debug, Default)]
pub(super) struct Names {
    threads: HashMap<(i64, i64), u32>,
    who: Vec<Who>,
    /// How many threads have the same number so far: other processes, or numbers cut to 32 bits.
    same: HashMap<u32, u64>,
    processes: HashMap<i64, String>,
    thread_names: HashMap<(i64, i64), String>,
    frames: HashMap<OpKind, HashMap<Box<str>, u32>>,
    /// With an address.
    by_number: Vec<(OpKind, Box<str>, u64)>,
}

impl Names {
    /// The number of a thread; `None` past the limit.
    pub(super) fn thread(&mut self, pid: i64, tid: i64) -> Option<u32> {
        if let Some(&number) = self.threads.get(&(pid, tid)) {
            return Some(number);
        }
        if self.who.len() >= MAX_NAMES {
            return None;
        }
        let number = u32::try_from(self.who.len()).ok()?;
        // Written with a sign, or as a pointer, by some versions.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an identity, not a number"
        )]
        let (pid32, tid32) = (pid as u32, tid as u32);
        let same = self.same.entry(tid32).or_default();
        *same += 1;
        let key = ThreadKey { tid: tid32, start_ticks: *same };
        self.who.push(Who { pid: pid32, key, ids: (pid, tid) });
        self.threads.insert((pid, tid), number);
        Some(number)
    }

    pub(super) fn who(&self, thread: u32) -> &Who {
        &self.who[thread as usize]
    }

    pub(super) fn name_process(&mut self, pid: i64, name: &str) {
        if self.processes.len() < MAX_NAMES {
            self.processes.insert(pid, cut(name).to_owned());
        }
    }

    pub(super) fn name_thread(&mut self, pid: i64, tid: i64, name: &str) {
        if self.thread_names.len() < MAX_NAMES {
            self.thread_names.insert((pid, tid), cut(name).to_owned());
        }
    }

    /// `thread 42 (python3.10)` is what the profiler writes where a thread has no name but its program's.
    pub(super) fn comm(&self, thread: u32) -> &str {
        let who = self.who(thread);
        let own = self.thread_names.get(&who.ids).map(String::as_str).filter(|name| !name.is_empty());
        let program = || self.processes.get(&who.ids.0).map(String::as_str).filter(|name| !name.is_empty());
        let Some(own) = own else { return program().unwrap_or("?") };
        let inner = own.strip_prefix("thread ").map(|rest| match rest.split_once('(') {
            Some((_, inner)) => Some(inner.trim_end_matches(')')),
            None => program(),
        });
        inner.flatten().unwrap_or(own)
    }

    /// The number of a frame's name.
    pub(super) fn frame(&mut self, kind: OpKind, name: &str) -> u32 {
        let name = if self.by_number.len() < MAX_NAMES { cut(name) } else { OTHER };
        let of_kind = self.frames.entry(kind).or_default();
        if let Some(&number) = of_kind.get(name) {
            return number;
        }
        // At most one more for each kind past the limit.
        let number = u32::try_from(self.by_number.len()).unwrap_or(u32::MAX);
        of_kind.insert(name.into(), number);
        let mut hash = Hash::new();
        hash.add(&[kind as u8]);
        hash.add(name.as_bytes());
        // Below the kernel's half, as a process's are.
        self.by_number.push((kind, name.into(), hash.finish() >> 17));
        number
    }

    /// Frames have no addresses in a recording, so each gets one by its name.
    pub(super) fn address(&self, frame: u32) -> u64 {
        self.by_number[frame as usize].2
    }

    /// A frame and the module it counts for.
    pub(super) fn symbol(&self, frame: u32) -> (Frame, &'static str) {
        let (kind, name, _) = &self.by_number[frame as usize];
        let plain = || Frame { function: name.to_string(), file: None, line: None };
        match kind {
            OpKind::Operator => (plain(), "operator"),
            OpKind::Annotation => (plain(), "annotation"),
            OpKind::Call if name.starts_with("cuda") => (plain(), "libcudart.so"),
            OpKind::Call => (plain(), "libcuda.so.1"),
            OpKind::Python => (python(name).unwrap_or_else(plain), "python"),
        }
    }
}

/// `torch/nn/modules/module.py(1102): _call_impl`.
fn python(name: &str) -> Option<Frame> {
    let (place, function) = name.rsplit_once("): ")?;
    let (file, line) = place.rsplit_once('(')?;
    Some(Frame { function: function.into(), file: Some(file.into()), line: line.parse().ok() })
}

fn cut(name: &str) -> &str {
    if name.len() <= MAX_NAME {
        return name;
    }
    let end = (0..=MAX_NAME).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_number_in_two_processes_are_two() {
        let mut names = Names::default();
        let (a, b, c) = (names.thread(1, 7), names.thread(2, 7), names.thread(1, 7));
        assert_eq!(a, c);
        assert_ne!(a, b);
        assert_ne!(names.who(a.unwrap()).key, names.who(b.unwrap()).key);
        let signed = names.thread(1, -549_452_224).unwrap();
        assert_eq!(names.who(signed).key.tid, 3_745_515_072);
    }

    #[test]
    fn names_are_the_threads_own_or_the_programs() {
        let mut names = Names::default();
        let threads: Vec<u32> = (1..=4).map(|tid| names.thread(1, tid).unwrap()).collect();
        names.name_process(1, "python3.10");
        names.name_thread(1, 1, "thread 1 (trainer)");
        names.name_thread(1, 2, "loader");
        names.name_thread(1, 3, "thread 3");
        let comms: Vec<&str> = threads.iter().map(|t| names.comm(*t)).collect();
        assert_eq!(comms, ["trainer", "loader", "python3.10", "python3.10"]);
    }

    #[test]
    fn python_frames_have_file_and_line() {
        let frame = python("torch/nn/modules/module.py(1102): _call_impl").unwrap();
        let there = ("_call_impl", Some("torch/nn/modules/module.py"), Some(1102));
        assert_eq!((frame.function.as_str(), frame.file.as_deref(), frame.line), there);
        assert_eq!(python("<built-in method mm of type object>"), None);
    }

    #[test]
    fn too_many_names_become_one_and_long_ones_are_cut() {
        let mut names = Names::default();
        for i in 0..MAX_NAMES + 10 {
            names.frame(OpKind::Operator, &format!("op{i}"));
        }
        let (a, b) = (names.frame(OpKind::Operator, "new"), names.frame(OpKind::Operator, "newer"));
        assert_eq!((a, names.symbol(a).0.function.as_str()), (b, OTHER));
        assert_eq!(cut(&"ä".repeat(200)).len(), MAX_NAME);
    }
}
