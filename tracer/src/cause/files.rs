//! Naming files and telling what kind of thing a descriptor led to.

use super::{Culprit, CulpritKind};
use crate::trace::File;

/// `st_mode` file types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Pipe,
    Socket,
    Terminal,
    Other,
}

const S_IFMT: u32 = 0o170_000;

/// `s_magic` of file systems whose data lies behind a network or another process, from `linux/magic.h` and
/// the file systems' own headers.
const REMOTE: &[(u64, &str)] = &[
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x00c3_6400, "ceph"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x1983_0326, "fhgfs"),
    (0x786f_4256, "vboxsf"),
];

/// `TCP_LISTEN`.
pub(crate) const LISTEN: u8 = 10;

pub(crate) fn kind(file: &File) -> Kind {
    match file.mode & S_IFMT {
        0o100_000 | 0o060_000 | 0o040_000 => Kind::Regular,
        0o010_000 => Kind::Pipe,
        0o140_000 => Kind::Socket,
        0o020_000 if is_terminal(file.rdev) => Kind::Terminal,
        _ if file.socket.is_some() => Kind::Socket,
        _ => Kind::Other,
    }
}

pub(crate) fn is_fuse(file: &File) -> bool {
    file.fs_magic == 0x6573_5546
}

/// The remote (or FUSE) file system it lies on.
pub(crate) fn remote(file: &File) -> Option<&'static str> {
    REMOTE.iter().find(|row| row.0 == file.fs_magic).map(|row| row.1)
}

pub(crate) fn is_device_of(file: &File, majors: &[u32]) -> bool {
    file.mode & S_IFMT == 0o020_000 && majors.contains(&(file.rdev >> 20))
}

/// Virtual consoles, `/dev/tty`, pseudo terminals.
fn is_terminal(rdev: u32) -> bool {
    matches!(rdev >> 20, 4 | 5 | 136..=143)
}

/// The path, as far as it is known.
pub(crate) fn path(file: &File) -> Option<String> {
    if let Some(path) = file.path.as_ref().filter(|p| !p.is_empty()) {
        return Some(path.clone());
    }
    let names: Vec<&str> = file.names.iter().rev().map(String::as_str).filter(|n| !n.is_empty()).collect();
    (!names.is_empty()).then(|| format!(".../{}", names.join("/").trim_start_matches('/')))
}

/// The path without its last name; a path of one name is its own directory's root.
pub(crate) fn directory(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) => "/",
        Some(at) => &path[..at],
        None => path,
    }
}

pub(crate) fn directory_of(file: &File) -> Option<Culprit> {
    let path = path(file)?;
    Some(Culprit { kind: CulpritKind::Directory, name: directory(&path).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_from_userspace_or_from_dentries() {
        let mut file = File { names: vec!["x.jpg".into(), "train".into(), "data".into()], ..File::default() };
        assert_eq!(path(&file).as_deref(), Some(".../data/train/x.jpg"));
        file.path = Some("/data/train/x.jpg".into());
        assert_eq!(directory_of(&file).unwrap().name, "/data/train");
        assert_eq!(directory("/x"), "/");
        assert_eq!(directory("x"), "x");
        assert_eq!(path(&File::default()), None);
    }

    #[test]
    fn kinds_and_majors() {
        let file = File { mode: 0o020_666, rdev: 195 << 20 | 255, ..File::default() };
        assert!(is_device_of(&file, &[195]));
        assert!(!is_device_of(&file, &[4]));
        assert_eq!(kind(&File { mode: 0o010_600, ..File::default() }), Kind::Pipe);
        assert_eq!(kind(&File { mode: 0o020_600, rdev: 136 << 20, ..File::default() }), Kind::Terminal);
        assert_eq!(remote(&File { fs_magic: 0x6969, ..File::default() }), Some("nfs"));
    }
}
