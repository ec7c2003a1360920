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
    /// Mechanisms that start with this have the largest share, and their chains hold these names (`DATA`
    /// stands for the folder of the images).
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

    pub fn expect(self) -> Expect {
        match self {
            Self::SlowDisk => Expect::Largest { mechanism: "storage.", named: &["DATA", "loader"] },
            Self::SlowDecode => Expect::Largest { mechanism: "prepare.", named: &["jpeg"] },
            Self::Healthy => Expect::Healthy,
        }
    }
}
