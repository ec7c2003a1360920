//! Compares GPM with the driver's own samples, which measure the same in another way.

use super::window::Windows;
use crate::trace::{Ns, Reading, Span};

/// So much of each is compared.
const LENGTH_NS: f64 = 10e9;
/// Points of difference between the two means that rounding and edges do not make.
const POINTS: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Check {
    /// Windows of the sample buffers, not given out.
    pub(super) windows: Windows,
    gpm: Mean,
    samples: Mean,
}

/// Busy and whole time, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    busy: f64,
    whole: f64,
}

impl Mean {
    fn add(&mut self, span: Span, percent: Option<f64>) {
        if let Some(percent) = percent {
            self.busy += span.len() as f64 * percent / 100.0;
            self.whole += span.len() as f64;
        }
    }

    fn percent(self) -> f64 {
        100.0 * self.busy / self.whole.max(1.0)
    }
}

impl Check {
    pub(super) fn new(device: u32, opened: Ns) -> Self {
        Self { windows: Windows::new(device, opened), gpm: Mean::default(), samples: Mean::default() }
    }

    pub(super) fn gpm(&mut self, span: Span, percent: Option<f64>) {
        self.gpm.add(span, percent);
    }

    /// Windows of the same time by the sample buffers. Gives a sentence where the two do not agree.
    pub(super) fn samples(&mut self, readings: &[Reading]) -> Option<String> {
        readings.iter().for_each(|r| self.samples.add(r.span, r.busy_percent));
        if self.gpm.whole < LENGTH_NS || self.samples.whole < LENGTH_NS {
            return None;
        }
        let (gpm, samples) = (self.gpm.percent(), self.samples.percent());
        (self.gpm, self.samples) = Default::default();
        ((gpm - samples).abs() > POINTS).then(|| {
            format!(
                "GPM says {gpm:.0} % busy where the sample buffers say {samples:.0} %: one of them is wrong, \
                 and the ledger follows GPM"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ReadingSource;

    const S: u64 = 1_000_000_000;

    fn compared(gpm: f64, samples: f64) -> Option<String> {
        let mut check = Check::new(0, 0);
        (0..12).find_map(|second| {
            let span = Span::new(second * S, (second + 1) * S);
            check.gpm(span, Some(gpm));
            check.samples(&[Reading {
                device: 0,
                span,
                source: ReadingSource::NvmlSamples,
                busy_percent: Some(samples),
                power_mw: None,
                memory_percent: None,
                age_ns: 0,
                sm_clock_mhz: None,
                throttle_reasons: None,
            }])
        })
    }

    #[test]
    fn only_a_difference_that_matters_is_told() {
        assert_eq!(compared(48.0, 50.0), None);
        let told = compared(45.0, 93.0).expect("far apart");
        assert!(told.contains("45 %") && told.contains("93 %"), "{told}");
    }
}
