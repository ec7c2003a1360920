//! Processes that hold an NVIDIA device node open.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use rustix::fs::major;

use super::process;

/// Processes with a descriptor on a character device of one of `majors`, own process excepted.
#[must_use]
pub fn find(majors: &[u32]) -> Vec<u32> {
    let own = std::process::id();
    process::all().into_iter().filter(|pid| *pid != own && holds(*pid, majors)).collect()
}

fn holds(pid: u32, majors: &[u32]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|d| is_device(&d.path(), majors))
}

fn is_device(descriptor: &Path, majors: &[u32]) -> bool {
    // The link is read first: a stat of a file on a dead network mount would hang.
    fs::read_link(descriptor).is_ok_and(|to| to.starts_with("/dev"))
        && fs::metadata(descriptor)
            .is_ok_and(|m| m.st_mode() & 0o170_000 == 0o020_000 && majors.contains(&major(m.st_rdev())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_of_the_major_is_found_and_only_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(fs::File::open("/dev/zero").unwrap())
            .spawn()
            .unwrap();
        // Major 1 is /dev/zero's and /dev/null's.
        let (held, other) = (find(&[1]), find(&[195]));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(held.contains(&child.id()));
        assert!(!held.contains(&std::process::id()));
        assert!(!other.contains(&child.id()));
    }
}
