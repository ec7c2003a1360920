//! Programs with stacks worth looking at, and how the stacks that were taken of them end.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use whyidle::trace::{Record, Stack, StackEnd};

/// Each with a thread that computes and one that sleeps, both at some depth, without an end.
pub const CPP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stacks-cpp"));
pub const CPP_POINTERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stacks-cpp-pointers"));
pub const RUST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stacks-rust"));
pub const PYTHON: &str = include_str!("../python/stacks.py");

/// A program that says when it is ready, and is killed when dropped.
#[derive(Debug)]
pub struct Job(pub Child);

impl Job {
    /// # Panics
    /// It does not start, or says something else.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says so");
        assert_eq!(line, "ready\n");
        Self(child)
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.0.kill().expect("its own child");
        self.0.wait().expect("its own child");
    }
}

/// A program that the build script compiled, written out to be run.
///
/// # Panics
/// It cannot be written.
#[must_use]
pub fn written(folder: &Path, program: &[u8]) -> Command {
    let to = folder.join("program");
    std::fs::write(&to, program).expect("a file");
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).expect("its own file");
    Command::new(to)
}

/// How user stacks ended, with some of those that did not reach their thread's start.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    pub by: HashMap<StackEnd, usize>,
    /// Records of threads that were in user space, or came from there, without any stack.
    pub none: usize,
    pub incomplete: Vec<Stack>,
    pub deepest: usize,
    seen: HashSet<u64>,
}

impl Ends {
    /// One more record's stack.
    pub fn count(&mut self, stack: Option<&Stack>) {
        let Some(stack) = stack else {
            self.none += 1;
            return;
        };
        *self.by.entry(stack.end).or_default() += 1;
        self.deepest = self.deepest.max(stack.addresses.len());
        if stack.end != StackEnd::Start && self.seen.insert(stack.id) {
            self.incomplete.push(stack.clone());
        }
    }

    #[must_use]
    pub fn all(&self) -> usize {
        self.by.values().sum::<usize>() + self.none
    }

    /// Those that reached the start of their thread.
    #[must_use]
    pub fn share(&self) -> f64 {
        *self.by.get(&StackEnd::Start).unwrap_or(&0) as f64 / self.all() as f64
    }

    /// Prints where some of them stopped.
    pub fn print_incomplete(&self, maps: &HashMap<u32, String>) {
        for stack in self.incomplete.iter().take(10) {
            println!("{:?} at {:x?}", stack.end, stack.addresses);
            if let (Some(last), Some(maps)) = (stack.addresses.last(), maps.get(&stack.pid)) {
                println!("  in {}", line_of(maps, *last));
            }
        }
    }
}

/// Stacks among records, by id.
pub fn by_id<'a>(records: impl IntoIterator<Item = &'a Record>) -> HashMap<u64, &'a Stack> {
    let stacks = records.into_iter().filter_map(|r| if let Record::Stack(s) = r { Some(s) } else { None });
    stacks.map(|s| (s.id, s)).collect()
}

/// The line of `/proc/PID/maps` that an address lies in.
#[must_use]
pub fn line_of(maps: &str, address: u64) -> &str {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).unwrap_or(0);
    maps.lines()
        .find(|line| {
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            range.is_some_and(|(start, end)| (hex(start)..hex(end)).contains(&address))
        })
        .unwrap_or("nothing")
}
