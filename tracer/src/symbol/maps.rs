//! Lines of `/proc/<pid>/maps`, read as bytes: a path may hold anything, and one odd name must not hide the
//! other mappings.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::VDSO;

/// Longest line that is looked at: a path of `PATH_MAX`, every byte of it escaped, and what stands before.
const LINE_LIMIT: u64 = 4 * 4096 + 128;
/// The kernel's own default limit is 65,530 mappings.
const LINES_LIMIT: usize = 1 << 20;

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapsLine {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) executable: bool,
    /// Of `start`, in the file.
    pub(crate) offset: u64,
    /// Device as `maps` shows it, and inode; (0, 0) for what is no file. On overlays and btrfs the device
    /// differs from what `stat` says.
    pub(crate) file: (u64, u64),
    /// `[vdso]`, `[stack]`, ..., or empty for anonymous memory, or a path in the process's mount namespace.
    pub(crate) name: Vec<u8>,
    /// The file has no name any more.
    pub(crate) deleted: bool,
}

impl MapsLine {
    pub(crate) fn is_file(&self) -> bool {
        self.name.first() == Some(&b'/')
    }

    pub(crate) fn is_vdso(&self) -> bool {
        self.name == VDSO.as_bytes()
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.name))
    }

    /// The mapped file itself, whatever became of its name; needs `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE`.
    pub(crate) fn map_files(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end))
    }

    /// The file that was mapped. `None` where it is gone, and where another may lie there now: the process may run
    /// another program since the line was read.
    pub(crate) fn open(&self, pid: u32) -> Option<File> {
        let mapped = File::open(self.map_files(pid)).ok();
        let still = self.still_there(pid);
        if still && mapped.is_some() {
            return mapped;
        }
        let path = self.path().strip_prefix("/").ok().filter(|_| !self.deleted)?;
        let rooted = File::open(Path::new(&format!("/proc/{pid}/root")).join(path)).ok()?;
        (still || rooted.metadata().is_ok_and(|m| m.ino() == self.file.1)).then_some(rooted)
    }

    fn still_there(&self, pid: u32) -> bool {
        let mut found = false;
        read(pid, |line| found |= line == *self).is_ok() && found
    }
}

/// Calls `each` with every mapping of a process, in the order of addresses.
///
/// # Errors
/// The process is gone, or not ours to look at.
pub(crate) fn read(pid: u32, each: impl FnMut(MapsLine)) -> io::Result<()> {
    parse(BufReader::with_capacity(64 << 10, File::open(format!("/proc/{pid}/maps"))?), each)
}

/// The kernel's code in user space, as this process has it: the same in all. `None` without one, and where this
/// process cannot read its own mappings.
pub(crate) fn own_vdso() -> Option<MapsLine> {
    let mut own = None;
    let read = read(std::process::id(), |line| {
        if line.is_vdso() {
            own = Some(line);
        }
    });
    read.ok().and(own)
}

fn parse(mut from: impl BufRead, mut each: impl FnMut(MapsLine)) -> io::Result<()> {
    let mut line = Vec::new();
    for _ in 0..LINES_LIMIT {
        line.clear();
        if from.by_ref().take(LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if let Some(parsed) = parse_line(line.strip_suffix(b"\n").unwrap_or(&line)) {
            each(parsed);
        }
    }
    Ok(())
}

fn parse_line(line: &[u8]) -> Option<MapsLine> {
    let (range, rest) = field(line)?;
    let (permissions, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (device, rest) = field(rest)?;
    let (inode, rest) = field(rest).unwrap_or((rest, &[]));
    let (start, end) = split(range, b'-')?;
    let (major, minor) = split(device, b':')?;
    let (start, end) = (number(start, 16)?, number(end, 16)?);
    let name = rest.trim_ascii_start();
    let (name, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(name) if name.first() == Some(&b'/') => (name, true),
        _ => (name, false),
    };
    (start < end).then_some(())?;
    Some(MapsLine {
        start,
        end,
        executable: permissions.get(2) == Some(&b'x'),
        offset: number(offset, 16)?,
        file: (number(major, 16)? << 32 | number(minor, 16)?, number(inode, 10)?),
        name: unescape(name),
        deleted,
    })
}

fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    split(bytes.trim_ascii_start(), b' ')
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == at)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// The kernel writes a newline in a name as `\012`, and nothing else so.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        match rest.strip_prefix(br"\012") {
            Some(tail) => {
                out.push(b'\n');
                rest = tail;
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<MapsLine> {
        let mut out = Vec::new();
        parse(text, |line| out.push(line)).unwrap();
        out
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        let lines = lines(
            b"55d0-55e0 r-xp 00002000 fe:00 131 /usr/bin/a b\\012c\n\
              7f00-7f10 rwxp 00000000 00:00 0 \n\
              7f10-7f20 r-xp 00000000 00:01 9                          /memfd:x (deleted)\n\
              7f30-7f40 r-xp 00000000 00:00 0                          [vdso]\n",
        );
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0].path(), Path::new("/usr/bin/a b\nc"));
        assert_eq!((lines[0].start, lines[0].end, lines[0].offset), (0x55d0, 0x55e0, 0x2000));
        assert_eq!(lines[0].file, (0xfe << 32, 131));
        assert!(lines[0].executable && lines[0].is_file() && !lines[0].deleted);
        assert!(lines[1].executable && !lines[1].is_file() && lines[1].name.is_empty());
        assert!(lines[2].deleted && lines[2].path() == Path::new("/memfd:x"));
        assert_eq!(lines[3].name, b"[vdso]");
    }

    #[test]
    fn odd_lines_are_passed_over() {
        let mut text = b"\n- r 0 : 0\n7f10-7f00 r-xp 0 0:0 0 x\nzz-zz r-xp 0 0:0 0\n".to_vec();
        text.extend([0xff; 100]);
        text.extend(b"\n1-2 r-xp 0 0:0 0 /\xff\xfe\n");
        let lines = lines(&text);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].name, b"/\xff\xfe");
    }

    #[test]
    fn own_mappings_hold_this_function() {
        let here = own_mappings_hold_this_function as fn() as usize as u64;
        let mut found = None;
        read(std::process::id(), |line| {
            if (line.start..line.end).contains(&here) {
                found = Some(line);
            }
        })
        .unwrap();
        let found = found.unwrap();
        assert!(found.executable);
        assert_eq!(found.path(), std::env::current_exe().unwrap());
    }
}
