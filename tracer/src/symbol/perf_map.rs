//! `/tmp/perf-PID.map`: names that a runtime gives to the code it makes.
//!
//! The file is the watched process's, so nothing in it is believed: it must be a regular file of that process's own
//! user, it is looked for inside the process's root, and so much is read of it.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::Named;
use super::demangle::demangle;
use crate::trace::Frame;

/// Processes whose file is held open.
const HELD: usize = 128;
/// Bytes read of one file, and of one line.
const BYTES: u64 = 64 << 20;
const LINE: u64 = 16 << 10;

/// Files held open since the first code without a file was seen, so that the end of the process does not hide them.
#[derive(Debug, Default)]
pub(super) struct PerfMaps {
    held: HashMap<u32, File>,
}

impl PerfMaps {
    /// To be called with every new mapping of such code. A process that is gone keeps the file it had.
    pub(super) fn hold(&mut self, pid: u32) {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return;
        }
        // An id given to another process must not keep the file of the one before.
        self.held.remove(&pid);
        if self.held.len() < HELD
            && let Ok(file) = open(pid)
        {
            self.held.insert(pid, file);
        }
    }

    /// The process runs another program now.
    pub(super) fn forget(&mut self, pid: u32) {
        self.held.remove(&pid);
    }

    /// One answer for each address, which are in order.
    pub(super) fn name(&self, pid: u32, addresses: &[u64]) -> Vec<Named> {
        let file = match self.held.get(&pid) {
            Some(file) => file.try_clone().and_then(|mut file| file.rewind().map(|()| file)),
            None => open(pid),
        };
        let found = file.and_then(|file| parse(BufReader::new(file.take(BYTES)), addresses));
        let reason = match &found {
            Ok(_) => {
                "code made at run time (JIT), and the process's perf map has no function there".to_owned()
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                "code made at run time (JIT), and the process writes no perf map".to_owned()
            }
            Err(e) => format!("code made at run time (JIT), and the process's perf map cannot be read: {e}"),
        };
        let mut found = found.unwrap_or_default();
        let frames = |name| vec![Frame { function: name, file: None, line: None }];
        let answer = |address: &u64| found.remove(address).map(|name| Named::Frames(frames(name)));
        addresses
            .iter()
            .map(answer)
            .map(|named| named.unwrap_or_else(|| Named::Unknown(reason.clone())))
            .collect()
    }
}

/// Nothing outside the process's root is opened, no link followed at the end, and no pipe waited for.
fn open(pid: u32) -> io::Result<File> {
    let process = format!("/proc/{pid}");
    let inner = inner_pid(&fs::read_to_string(format!("{process}/status"))?).unwrap_or(pid);
    let root = File::open(format!("{process}/root"))?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let name = format!("tmp/perf-{inner}.map");
    let file = File::from(rustix::fs::openat2(&root, Path::new(&name), flags, Mode::empty(), inside)?);
    let (owner, of_process) = (file.metadata()?, fs::metadata(process)?.uid());
    if !owner.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if owner.uid() != of_process && owner.uid() != 0 {
        return Err(io::Error::other("it is another user's"));
    }
    Ok(file)
}

/// The process's id in its own pid namespace.
fn inner_pid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().next_back()?.parse().ok()
}

/// Names of the addresses, which are in order. A line is `START SIZE NAME`, both numbers hexadecimal; code is
/// replaced, so the last line that holds an address counts.
pub(super) fn parse(mut from: impl BufRead, addresses: &[u64]) -> io::Result<BTreeMap<u64, String>> {
    let mut names = BTreeMap::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(names);
        }
        let Some((start, size, name)) = parse_line(line.trim_ascii()) else { continue };
        let first = addresses.partition_point(|a| *a < start);
        for address in addresses[first..].iter().take_while(|a| **a - start < size) {
            names.insert(*address, demangle(&String::from_utf8_lossy(name)));
        }
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (start, size, name) = (hex(parts.next()?)?, hex(parts.next()?)?, parts.next()?.trim_ascii());
    (!name.is_empty()).then_some((start, size, name))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    fn names(text: &[u8], addresses: &[u64]) -> Vec<(u64, String)> {
        parse(text, addresses).unwrap().into_iter().collect()
    }

    #[test]
    fn the_last_line_that_holds_an_address_names_it() {
        let text = b"1000 10 LazyCompile:*a b.js:1\n0x1020 8 py::f:/x.py\n1008 4 replaced\n1030 0 nothing\n";
        let found = names(text, &[0xfff, 0x1000, 0x1008, 0x100f, 0x1010, 0x1020, 0x1030]);
        let expected = [
            (0x1000, "LazyCompile:*a b.js:1"),
            (0x1008, "replaced"),
            (0x100f, "LazyCompile:*a b.js:1"),
            (0x1020, "py::f:/x.py"),
        ];
        assert_eq!(found, expected.map(|(address, name)| (address, name.to_owned())));
    }

    #[test]
    fn nonsense_names_nothing() {
        let mut text = b"\n \nxyz 10 a\n1000 10\n1000 10 \n1000 -1 a\n ffffffffffffffff ff a\n".to_vec();
        text.extend([0xff; 64]);
        text.extend(b"\nffffffffffffffff ffffffffffffffff end\n1000 10 \xff\xfe\n");
        let found = names(&text, &[0x1000, u64::MAX]);
        assert_eq!(found, [(0x1000, "\u{fffd}\u{fffd}".to_owned()), (u64::MAX, "end".to_owned())]);
    }

    #[test]
    fn the_innermost_namespace_s_id_counts() {
        assert_eq!(inner_pid("Name:\tx\nNSpid:\t4242\t17\t1\nNSpgid:\t9\n"), Some(1));
        assert_eq!(inner_pid("Name:\tNSpid: 4\n"), None);
    }

    /// This process's own file, removed again.
    struct Own(PathBuf);

    impl Own {
        fn path() -> PathBuf {
            PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()))
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            drop(fs::remove_file(&self.0));
        }
    }

    #[test]
    fn a_file_that_is_held_outlives_its_name_and_a_pipe_or_link_is_none() {
        let (pid, own) = (std::process::id(), Own(Own::path()));
        let asked = |maps: &PerfMaps| maps.name(pid, &[0x1000]).remove(0);
        let reason = |named: Named| match named {
            Named::Unknown(reason) => reason,
            Named::Frames(frames) => panic!("{frames:?}"),
        };
        assert!(reason(asked(&PerfMaps::default())).contains("no perf map"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &own.0, Mode::RUSR | Mode::WUSR).unwrap();
        assert!(reason(asked(&PerfMaps::default())).contains("no regular file"));
        fs::remove_file(&own.0).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &own.0).unwrap();
        assert!(reason(asked(&PerfMaps::default())).contains("cannot be read"));
        fs::remove_file(&own.0).unwrap();
        fs::write(&own.0, "1000 10 first\n").unwrap();
        let mut maps = PerfMaps::default();
        maps.hold(pid);
        fs::remove_file(&own.0).unwrap();
        for _ in 0..2 {
            let Named::Frames(frames) = asked(&maps) else { panic!("no name") };
            assert_eq!(frames[0].function, "first");
        }
        maps.forget(pid);
        assert!(reason(asked(&maps)).contains("no perf map"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text: Vec<u8>, lines in "([0-9a-f]{1,17} [0-9a-f]{1,17} .{0,9}\n){0,9}") {
            for text in [text.as_slice(), lines.as_bytes()] {
                let addresses = [0, 1, 0xf, 0x1000, u64::MAX - 1, u64::MAX];
                prop_assert!(parse(text, &addresses).unwrap().keys().all(|a| addresses.contains(a)));
            }
        }
    }
}
