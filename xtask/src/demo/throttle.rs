//! A control group whose members read a disk slowly. Gone when dropped, whatever became of its members.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::disk::Device;
use crate::shell::say;

const PREFIX: &str = "whyidle-demo-";

#[derive(Debug)]
pub struct Throttle {
    group: PathBuf,
}

impl Throttle {
    /// Members read at most `bytes_per_second` from `device`.
    pub fn new(device: Device, bytes_per_second: u64) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let (parent, file, limit) = if let Some(blkio) = mount(&mounts, "cgroup", Some("blkio")) {
            (blkio, "blkio.throttle.read_bps_device", format!("{device} {bytes_per_second}"))
        } else if let Some(unified) = mount(&mounts, "cgroup2", None) {
            let control = unified.join("cgroup.subtree_control");
            fs::write(&control, "+io").context("the io controller is not there")?;
            (unified, "io.max", format!("{device} rbps={bytes_per_second}"))
        } else {
            bail!("no cgroup controller that slows a disk is mounted (v1 blkio, or v2 with io)");
        };
        sweep(&parent);
        let throttle = Self { group: parent.join(format!("{PREFIX}{}", std::process::id())) };
        fs::create_dir(&throttle.group).with_context(|| throttle.group.display().to_string())?;
        let file = throttle.group.join(file);
        fs::write(&file, &limit).with_context(|| format!("cannot write `{limit}` to {}", file.display()))?;
        Ok(throttle)
    }

    /// The file a process writes its id to in order to join.
    pub fn members(&self) -> PathBuf {
        self.group.join("cgroup.procs")
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        if let Err(e) = remove(&self.group) {
            say(format!("cannot remove {}: {e}", self.group.display()));
        }
    }
}

/// Moves the members out and removes the group; members that are just exiting hold it for a moment.
fn remove(group: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        if let Some(parent) = group.parent() {
            for pid in members.lines() {
                // One that has exited in between cannot be moved, and need not be.
                drop(fs::write(parent.join("cgroup.procs"), pid));
            }
        }
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(e) if began.elapsed() > Duration::from_secs(5) => return Err(e.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Removes groups of demos that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.strip_prefix(PREFIX)) else { continue };
        if !Path::new("/proc").join(pid).exists() && remove(&entry.path()).is_ok() {
            say(format!("removed {}, left by a demo that was killed", entry.path().display()));
        }
    }
}

/// Where a file system of this type, with this among its options, is mounted.
fn mount(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, its_kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = its_kind == kind && option.is_none_or(|o| options.split(',').any(|x| x == o));
        fits.then(|| place.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_controller_by_its_option() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nbroken\n";
        assert_eq!(mount(mounts, "cgroup", Some("blkio")), Some("/sys/fs/cgroup/blkio".into()));
        assert_eq!(mount(mounts, "cgroup2", None), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount(mounts, "cgroup", Some("io")), None);
    }
}
