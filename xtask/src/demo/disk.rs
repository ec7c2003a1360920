//! The block device a folder lies on.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{major, minor};

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
}

fn parse(text: &str) -> Option<Device> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
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
