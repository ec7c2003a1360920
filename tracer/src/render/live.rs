//! The one line shown while recording.

use super::escape::{escape, escape_ascii};
use super::figure::{TIE, grouped, share};
use super::fit::{elide, width};
use super::page::Style;
use crate::cause::Mechanism;
use crate::render::word;

/// A part is not worth beginning in fewer columns.
const LEAST: usize = 16;

/// What is known so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live<'a> {
    pub elapsed_ns: u64,
    /// `None`: until stopped.
    pub duration_ns: Option<u64>,
    /// NVML index and busy share in percent of its last window, `None` where the device gave none.
    pub devices: &'a [(u32, Option<f64>)],
    pub largest: Option<LiveCause<'a>>,
    pub lost: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LiveCause<'a> {
    pub mechanism: Mechanism,
    /// Its part of the idle time so far, and that time.
    pub ns: u64,
    pub idle_ns: u64,
    /// Whatever names it best; may hold anything.
    pub culprit: Option<&'a str>,
}

/// One line of at most `columns`, without a newline; what does not fit is left out from the end.
#[must_use]
pub fn live(live: &Live<'_>, columns: usize, style: Style) -> String {
    let mut parts = vec![elapsed(live), devices(live.devices)];
    if live.lost > 0 {
        parts.push(format!("{} records lost", grouped(live.lost)));
    }
    match &live.largest {
        None => parts.push("no cause yet".to_owned()),
        Some(cause) => {
            let (name, gloss) = word::mechanism(cause.mechanism);
            parts.push(format!("{name} ({gloss}) is {} of idle", share(cause.ns, cause.idle_ns)));
            parts.extend(cause.culprit.filter(|c| !c.is_empty()).map(|c| escape(c).into_owned()));
        }
    }
    let bar = if style.unicode { " │ " } else { " | " };
    let mut line = String::new();
    for part in parts {
        let part = part.replace(TIE, " ");
        let part = if style.unicode { part } else { escape_ascii(&part) };
        let lead = if line.is_empty() { "" } else { bar };
        let left = columns.saturating_sub(width(&line));
        let room = left.saturating_sub(width(lead));
        if width(lead) + width(&part) > left {
            if room >= LEAST || line.is_empty() {
                line.push_str(lead);
                line.push_str(&elide(&part, room, style));
            }
            break;
        }
        line.push_str(lead);
        line.push_str(&part);
    }
    line
}

fn elapsed(live: &Live<'_>) -> String {
    let seconds = |ns: u64| grouped(ns / 1_000_000_000);
    match live.duration_ns {
        Some(all) => format!("{} of {} s", seconds(live.elapsed_ns), seconds(all)),
        None => format!("{} s", seconds(live.elapsed_ns)),
    }
}

fn devices(devices: &[(u32, Option<f64>)]) -> String {
    const SHOWN: usize = 4;
    if devices.is_empty() {
        return "no GPU".to_owned();
    }
    let one = |&(index, busy): &(u32, Option<f64>)| match busy {
        Some(percent) if percent.is_finite() => {
            format!("GPU {index} {:.0} % busy", percent.clamp(0.0, 100.0))
        }
        _ => format!("GPU {index} unknown"),
    };
    let told: Vec<String> = devices.iter().take(SHOWN).map(one).collect();
    let more = devices.len().saturating_sub(SHOWN);
    if more > 0 { format!("{}, {more} more", told.join(", ")) } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNICODE: Style = Style { colour: false, unicode: true };
    const ASCII: Style = Style { colour: false, unicode: false };

    fn sample() -> Live<'static> {
        Live {
            elapsed_ns: 12_400_000_000,
            duration_ns: Some(30_000_000_000),
            devices: &[(0, Some(38.4))],
            largest: Some(LiveCause {
                mechanism: Mechanism::StorageRead,
                ns: 6_000_000_000,
                idle_ns: 7_000_000_000,
                culprit: Some("/data/imagenet/train"),
            }),
            lost: 0,
        }
    }

    #[test]
    fn one_line_tells_how_far_how_busy_and_why() {
        assert_eq!(
            live(&sample(), 120, UNICODE),
            "12 of 30 s │ GPU 0 38 % busy │ storage.read (file reads) is 85.7 % of idle │ /data/imagenet/train"
        );
        assert_eq!(
            live(&sample(), 95, ASCII),
            "12 of 30 s | GPU 0 38 % busy | storage.read (file reads) is 85.7 % of idle | /...imagenet/train"
        );
        assert_eq!(live(&sample(), 40, ASCII), "12 of 30 s | GPU 0 38 % busy");
        assert_eq!(live(&Live::default(), 80, ASCII), "0 s | no GPU | no cause yet");
    }

    #[test]
    fn nonsense_from_the_device_is_unknown() {
        let devices = [(0, Some(f64::NAN)), (1, None), (2, Some(1e9))];
        let state = Live { devices: &devices, lost: 1200, ..Live::default() };
        assert_eq!(
            live(&state, 120, ASCII),
            "0 s | GPU 0 unknown, GPU 1 unknown, GPU 2 100 % busy | 1,200 records lost | no cause yet"
        );
    }

    proptest! {
        #[test]
        fn it_fits_and_stays_one_line(columns in 0usize..200, culprit: String, unicode: bool, ns: u64) {
            let mut state = sample();
            state.elapsed_ns = ns;
            if let Some(cause) = &mut state.largest {
                cause.culprit = Some(&culprit);
            }
            let line = live(&state, columns, Style { colour: true, unicode });
            prop_assert!(width(&line) <= columns, "{line}");
            prop_assert!(!line.chars().any(crate::render::escape::unsafe_to_print));
        }
    }
}
