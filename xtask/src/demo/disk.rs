//! The block device a folder lies on, and its files' place in the page cache.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, fadvise, major, makedev, minor};

/// A block device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl Device {
    /// The whole disk under `path`: a partition cannot be throttled.
    pub fn of(path: &Path) -> Result<Self> {
        let dev = fs::metadata(path).with_context(|| path.display().to_string())?.dev();
        let device = Self { major: major(dev), minor: minor(dev) };
        let sysfs = Path::new("/sys/dev/block").join(device.to_string());
        ensure!(
            sysfs.exists(),
            "{} lies on no single block device ({device}), so its reads cannot be slowed; \
             name a folder on a disk with --data",
            path.display()
        );
        if !sysfs.join("partition").exists() {
            return Ok(device);
        }
        let disk = fs::canonicalize(&sysfs)?;
        let disk = disk.parent().context("a partition has a disk")?;
        parse(&fs::read_to_string(disk.join("dev"))?).with_context(|| format!("{}/dev", disk.display()))
    }

    /// As the kernel packs it.
    pub fn number(self) -> u64 {
        makedev(self.major, self.minor)
    }
}

fn parse(text: &str) -> Option<Device> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Takes every file under `folder` out of the page cache, and nothing else.
pub fn drop_from_cache(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            drop_from_cache(&entry.path())?;
            continue;
        }
        let file = File::open(entry.path())?;
        // Dirty pages stay where they are.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_device_numbers() {
        assert_eq!(parse("254:0\n"), Some(Device { major: 254, minor: 0 }));
        assert_eq!(parse("254"), None);
        assert_eq!(parse("a:b"), None);
    }
}
