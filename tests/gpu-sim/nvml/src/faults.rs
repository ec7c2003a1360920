//! Ways to misbehave, each seen on real machines or allowed by NVML's documents: `WHYIDLE_SIM_NVML`, words with
//! commas between.

use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Utilisation 0 with success, at high power.
    pub(crate) unknown_device: bool,
    /// Idle periods leave no samples: not-found instead.
    pub(crate) idle_not_found: bool,
    /// Every so many samples (and rates, where it is 1) have a utilisation above 1,000.
    pub(crate) garbage: Option<u64>,
    /// Every so many samples are stamped a second early, an hour late, or come twice.
    pub(crate) backward: Option<u64>,
    pub(crate) future: Option<u64>,
    pub(crate) duplicate: Option<u64>,
    /// Stamps are so much earlier than the windows end, and scattered by up to so much both ways.
    pub(crate) stamp_lag: Duration,
    pub(crate) jitter: Duration,
    /// The `nvmlValueType_t` samples say they have.
    pub(crate) value_type: Option<u32>,
    /// MIG mode: no utilisation.
    pub(crate) mig: bool,
    /// GPU instances made in MIG mode.
    pub(crate) mig_instances: u32,
    /// No sample buffers at all.
    pub(crate) no_samples: bool,
    /// The device has fallen off the bus.
    pub(crate) lost: bool,
    /// Initialisation says that no driver is loaded.
    pub(crate) no_driver: bool,
    /// An old or simple device: everything beyond utilisation, memory and names is not supported.
    pub(crate) bare: bool,
    /// GPM and events only for an administrator.
    pub(crate) no_permission: bool,
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
            let known = match word.split_once('=') {
                None => faults.set(word),
                Some((name, value)) => faults.set_to(name, value),
            };
            known.ok_or_else(|| word.to_string())?;
        }
        Ok(faults)
    }

    fn set(&mut self, word: &str) -> Option<()> {
        match word {
            "unknown-device" => self.unknown_device = true,
            "idle-not-found" => self.idle_not_found = true,
            "garbage" => self.garbage = Some(1),
            "mig" => self.mig = true,
            "no-samples" => self.no_samples = true,
            "lost" => self.lost = true,
            "no-driver" => self.no_driver = true,
            "bare" => self.bare = true,
            "no-permission" => self.no_permission = true,
            _ => return None,
        }
        Some(())
    }

    fn set_to(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "garbage" => self.garbage = Some(every(value)?),
            "backward" => self.backward = Some(every(value)?),
            "future" => self.future = Some(every(value)?),
            "duplicate" => self.duplicate = Some(every(value)?),
            "stamp-lag" => self.stamp_lag = seconds(value)?,
            "jitter" => self.jitter = seconds(value)?,
            "value-type" => self.value_type = Some(value.parse().ok()?),
            "mig" => (self.mig, self.mig_instances) = (true, value.parse().ok().filter(|&n| n <= 7)?),
            "hang" => self.hang = Some(seconds(value)?),
            "hang-after" => self.hang_after = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

fn every(value: &str) -> Option<u64> {
    value.parse().ok().filter(|&n| n > 0)
}

fn seconds(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(value.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_combine_and_a_wrong_one_is_named() {
        let both = Faults::parse("mig, hang=0.5,").expect("both are known");
        assert_eq!(both, Faults { mig: true, hang: Some(Duration::from_millis(500)), ..Faults::default() });
        let made = Faults::parse("mig=2,garbage=7").expect("both are known");
        assert_eq!((made.mig, made.mig_instances, made.garbage), (true, 2, Some(7)));
        assert_eq!(Faults::parse(""), Ok(Faults::default()));
        for wrong in ["nonsense", "hang", "hang=", "hang=-1", "hang=1e400", "mig=8", "garbage=0", "lost=1"] {
            assert_eq!(Faults::parse(wrong), Err(wrong.into()));
        }
    }
}
