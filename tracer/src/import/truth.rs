//! The device's busy time, and what of it a device would have reported: one whole percent a window.

use crate::trace::{Ns, Reading, ReadingSource, Span};

/// NVML's usual window.
pub const NVML_WINDOW_NS: u64 = 166_000_000;

/// Kernels and memsets of one device in order of their start, merged to busy stretches.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Union {
    open: Option<Span>,
}

impl Union {
    /// A stretch that is complete, now that a later one began.
    pub(super) fn add(&mut self, span: Span) -> Option<Span> {
        if span.is_empty() {
            return None;
        }
        match &mut self.open {
            Some(open) if span.start <= open.end => {
                open.end = open.end.max(span.end);
                None
            }
            open => open.replace(span),
        }
    }

    pub(super) fn last(&mut self) -> Option<Span> {
        self.open.take()
    }
}

/// Turns busy stretches into readings. The first window begins with the first stretch, the last ends with
/// the last.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    device: u32,
    length: u64,
    /// The window under way, and the busy time in it.
    window: Option<(Span, u64)>,
    end: Ns,
}

impl Windows {
    #[must_use]
    pub fn new(device: u32, length: u64) -> Self {
        Self { device, length: length.max(1), window: None, end: 0 }
    }

    /// The next busy stretch; complete windows go to `out`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn busy<E>(&mut self, span: Span, out: &mut impl FnMut(Reading) -> Result<(), E>) -> Result<(), E> {
        self.end = span.end;
        let (mut window, mut busy) =
            self.window.unwrap_or((Span::new(span.start, span.start.saturating_add(self.length)), 0));
        loop {
            busy += window.intersect(span).map_or(0, Span::len);
            if span.end <= window.end {
                break;
            }
            out(self.reading(window, busy))?;
            (window, busy) = (Span::new(window.end, window.end.saturating_add(self.length)), 0);
        }
        self.window = Some((window, busy));
        Ok(())
    }

    /// The last window, cut where the last stretch ends.
    #[must_use]
    pub fn last(self) -> Option<Reading> {
        let (window, busy) = self.window?;
        let window = Span::new(window.start, self.end);
        (!window.is_empty()).then(|| self.reading(window, busy))
    }

    /// All readings of one device's busy stretches.
    #[must_use]
    pub fn of(device: u32, length: u64, busy: &[Span]) -> Vec<Reading> {
        let mut windows = Self::new(device, length);
        let mut readings = Vec::new();
        for span in busy {
            let taken = windows.busy(*span, &mut |reading| {
                readings.push(reading);
                Ok::<(), std::convert::Infallible>(())
            });
            match taken {
                Ok(()) => {}
                Err(never) => match never {},
            }
        }
        readings.extend(windows.last());
        readings
    }

    fn reading(&self, span: Span, busy: u64) -> Reading {
        let (busy, whole) = (u128::from(busy), u128::from(span.len()));
        let percent = u8::try_from((busy * 200 + whole) / (whole * 2)).unwrap_or(100);
        Reading {
            device: self.device,
            span,
            source: if self.length == NVML_WINDOW_NS {
                ReadingSource::NvmlSamples
            } else {
                ReadingSource::Gpm
            },
            busy_percent: Some(f64::from(percent)),
            power_mw: None,
            memory_percent: None,
            age_ns: 0,
            sm_clock_mhz: None,
            throttle_reasons: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_overlap_or_touch_are_one_stretch() {
        let mut union = Union::default();
        let spans = [(0, 10), (5, 8), (10, 20), (15, 15), (30, 31)];
        let mut out: Vec<Span> = spans.iter().filter_map(|s| union.add(Span::new(s.0, s.1))).collect();
        out.extend(union.last());
        assert_eq!(out, [Span::new(0, 20), Span::new(30, 31)]);
    }

    #[test]
    fn windows_hold_whole_percents_and_the_last_is_cut() {
        let busy = [Span::new(1000, 1015), Span::new(1095, 1110), Span::new(1304, 1350)];
        let readings = Windows::of(0, 100, &busy);
        let seen: Vec<(u64, u64, f64)> =
            readings.iter().map(|r| (r.span.start, r.span.end, r.busy_percent.unwrap())).collect();
        assert_eq!(seen, [(1000, 1100, 20.0), (1100, 1200, 10.0), (1200, 1300, 0.0), (1300, 1350, 92.0)]);
    }
}
