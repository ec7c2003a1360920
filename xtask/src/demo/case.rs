//! What the demo can be asked to show.

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// The images lie on a disk that reads slowly.
    SlowDisk,
    /// The images take long to decode.
    SlowDecode,
    /// The workers keep up with the device.
    Healthy,
}

/// What a right report says of a case.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// Mechanisms that start with this have the largest share, and their chains hold these names.
    Largest { mechanism: &'static str, named: &'static [&'static str] },
    /// Under 5 % idle and no finding.
    Healthy,
}

impl Case {
    pub fn name(self) -> &'static str {
        match self {
            Self::SlowDisk => "slow-disk",
            Self::SlowDecode => "slow-decode",
            Self::Healthy => "healthy",
        }
    }

    /// Arguments of the job that make the case.
    pub fn job(self) -> &'static [&'static str] {
        match self {
            // The page cache keeps nothing, so that every image is read from the disk.
            Self::SlowDisk => &["--cold", "--pad-kib", "192"],
            Self::SlowDecode => &["--images", "64", "--source-size", "1280", "--work-factor", "4"],
            // A step long enough that a busy host's delays stay a small share of it.
            Self::Healthy => &["--step-ms", "200"],
        }
    }

    /// Bytes a second the disk may give: about half of what the device could take.
    pub fn read_bps(self) -> Option<u64> {
        (self == Self::SlowDisk).then_some(5 << 20)
    }

    pub fn expect(self) -> Expect {
        match self {
            Self::SlowDisk => {
                Expect::Largest { mechanism: "storage.", named: &["images/slow-disk", "loader"] }
            }
            Self::SlowDecode => Expect::Largest { mechanism: "prepare.", named: &["jpeg"] },
            Self::Healthy => Expect::Healthy,
        }
    }
}
