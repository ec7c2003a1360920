//! Completes the dentry names of a file with where its file system is mounted.

use std::collections::BTreeMap;
use std::fs;

use tracer_ebpf::wire::{NAME_BYTES, NAMES};

/// One line of `/proc/<pid>/mountinfo`, as far as naming files needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Path inside the file system that the mount shows (not `/` for bind mounts and subvolumes).
    pub root: String,
    pub point: String,
    pub fs_type: String,
}

/// Mounts by `dev_t` (`major << 20 | minor`), the widest first.
#[derive(Debug, Default)]
pub struct Mounts {
    by_dev: BTreeMap<u32, Vec<Mount>>,
}

impl Mounts {
    /// Of a process's mount namespace; empty when it cannot be read.
    #[must_use]
    pub fn of(process: &str) -> Self {
        let text = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut by_dev: BTreeMap<u32, Vec<Mount>> = BTreeMap::new();
        for (dev, mount) in text.lines().filter_map(line) {
            by_dev.entry(dev).or_default().push(mount);
        }
        for mounts in by_dev.values_mut() {
            // Stable: of equally wide mounts the oldest stays first.
            mounts.sort_by_key(|m| m.root.len());
        }
        Self { by_dev }
    }

    #[must_use]
    pub fn knows(&self, dev: u32) -> bool {
        self.by_dev.contains_key(&dev)
    }

    /// The mount to show a file under, and its whole path if `names` (from the file upward) reach the root of
    /// its file system.
    #[must_use]
    pub fn place(&self, dev: u32, names: &[String]) -> Option<(&Mount, Option<String>)> {
        let mounts = self.by_dev.get(&dev)?;
        let inside = inside(names);
        if let Some(inside) = &inside {
            for mount in mounts {
                let rest = if mount.root == "/" { Some(inside.as_str()) } else { below(inside, &mount.root) };
                if let Some(rest) = rest {
                    return Some((mount, Some(join(&mount.point, rest))));
                }
            }
        }
        Some((mounts.first()?, None))
    }
}

/// Path inside the file system, where the names reach its root: the kernel side stops there, and after
/// [`NAMES`] names, and cuts each at [`NAME_BYTES`].
fn inside(names: &[String]) -> Option<String> {
    let whole = names.len() < NAMES && names.iter().all(|n| !n.is_empty() && n.len() < NAME_BYTES - 1);
    whole.then(|| names.iter().rev().fold(String::new(), |path, name| path + "/" + name))
}

fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn join(point: &str, rest: &str) -> String {
    let whole = format!("{}{rest}", point.trim_end_matches('/'));
    if whole.is_empty() { "/".into() } else { whole }
}

fn line(line: &str) -> Option<(u32, Mount)> {
    let mut fields = line.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let dev = major.parse::<u32>().ok()?.checked_mul(1 << 20)? | minor.parse::<u32>().ok()?;
    let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
    let fs_type = fields.skip_while(|f| *f != "-").nth(1)?.to_owned();
    Some((dev, Mount { root, point, fs_type }))
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> String {
    let mut out = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        match rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                out.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            _ => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
36 35 254:1 / / rw,noatime shared:1 - ext4 /dev/vda1 rw
40 36 254:1 /srv/data /mnt/my\\040data rw - ext4 /dev/vda1 rw
41 36 8:17 /set /data rw shared:2 master:1 - xfs /dev/sdb1 rw
50 36 0:45 / /net rw - nfs4 server:/x rw
garbage
1 2 3:x / / rw - ext4 a rw
";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    fn path(dev: u32, n: &[&str]) -> Option<String> {
        Mounts::parse(TEXT).place(dev, &names(n)).and_then(|(_, p)| p)
    }

    #[test]
    fn paths_are_completed_with_the_mount() {
        assert_eq!(path(254 << 20 | 1, &["a.jpg", "imgs"]).unwrap(), "/imgs/a.jpg");
        assert_eq!(path(45, &["x"]).unwrap(), "/net/x");
        assert_eq!(path(45, &[]).unwrap(), "/net");
        assert_eq!(path(254 << 20 | 1, &[]).unwrap(), "/");
    }

    #[test]
    fn a_mount_of_a_part_shows_only_what_lies_below_it() {
        let dev = 8 << 20 | 17;
        assert_eq!(path(dev, &["a", "set"]).unwrap(), "/data/a");
        assert_eq!(path(dev, &["a", "settle"]), None);
    }

    #[test]
    fn names_that_do_not_reach_the_root_give_the_mount_alone() {
        let mounts = Mounts::parse(TEXT);
        let (deep, cut) = (vec!["x".to_owned(); NAMES], vec!["x".repeat(NAME_BYTES - 1)]);
        for incomplete in [deep, cut, names(&["", "a"])] {
            let (mount, path) = mounts.place(45, &incomplete).unwrap();
            assert_eq!((mount.fs_type.as_str(), mount.point.as_str(), path), ("nfs4", "/net", None));
        }
        assert!(mounts.place(99, &names(&["a"])).is_none());
    }

    #[test]
    fn escapes_of_the_kernel_are_undone_and_others_kept() {
        assert_eq!(unescape(r"my\040data\134x"), r"my data\x");
        assert_eq!(unescape(r"a\9z\"), r"a\9z\");
        assert_eq!(unescape("\\0é"), "\\0é");
    }
}
