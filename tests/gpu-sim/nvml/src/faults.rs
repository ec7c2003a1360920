//! Ways to misbehave, each seen on real machines: `WHYIDLE_SIM_NVML`, words with commas between.

use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Utilisation 0 with success, at high power.
    pub(crate) unknown_device: bool,
    /// Idle periods leave no samples: not-found instead.
    pub(crate) idle_not_found: bool,
    /// Utilisation above 100.
    pub(crate) garbage: bool,
    /// MIG mode: no utilisation.
    pub(crate) mig: bool,
    /// No sample buffers at all.
    pub(crate) no_samples: bool,
    /// The device has fallen off the bus.
    pub(crate) lost: bool,
    /// Initialisation says that no driver is loaded.
    pub(crate) no_driver: bool,
    /// Readings take this long to come.
    pub(crate) hang: Option<Duration>,
    /// Readings that come at once before the others hang.
    pub(crate) hang_after: u32,
}

impl Faults {
    /// `Err` holds the first word that means nothing.
    pub(crate) fn parse(words: &str) -> Result<Self, String> {
        let mut faults = Self::default();
        for word in words.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word.split_once('=') {
                None => match word {
                    "unknown-device" => faults.unknown_device = true,
                    "idle-not-found" => faults.idle_not_found = true,
                    "garbage" => faults.garbage = true,
                    "mig" => faults.mig = true,
                    "no-samples" => faults.no_samples = true,
                    "lost" => faults.lost = true,
                    "no-driver" => faults.no_driver = true,
                    _ => return Err(word.into()),
                },
                Some(("hang", seconds)) => {
                    let seconds = seconds.parse().map_err(|_nonsense| word.to_string())?;
                    let hang = Duration::try_from_secs_f64(seconds).map_err(|_range| word.to_string())?;
                    faults.hang = Some(hang);
                }
                Some(("hang-after", readings)) => {
                    faults.hang_after = readings.parse().map_err(|_nonsense| word.to_string())?;
                }
                Some(_) => return Err(word.into()),
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_combine_and_a_wrong_one_is_named() {
        let both = Faults::parse("mig, hang=0.5,").expect("both are known");
        assert_eq!(both, Faults { mig: true, hang: Some(Duration::from_millis(500)), ..Faults::default() });
        assert_eq!(Faults::parse(""), Ok(Faults::default()));
        for wrong in ["nonsense", "hang", "hang=", "hang=-1", "hang=1e400", "mig=1"] {
            assert_eq!(Faults::parse(wrong), Err(wrong.into()));
        }
    }
}
