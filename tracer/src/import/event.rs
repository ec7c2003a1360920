//! One event of the profiler's JSON, read leniently: what is not as it should be is handed over as [`Bad`].

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::told::Told;

/// Nanoseconds on the recording's own clock.
pub(super) type Stamp = i64;

/// What frames of a user stack are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OpKind {
    Operator,
    Annotation,
    Python,
    /// A call of the CUDA runtime or driver, whether a probe would see it or not.
    Call,
}

/// One event of use, or a name. A device's event comes as two: what the call told, without times; and when
/// the device was busy, without anything else.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Host {
        pid: i64,
        tid: i64,
        kind: OpKind,
        name: Cow<'a, str>,
        start: Stamp,
        end: Stamp,
        correlation: Option<i64>,
    },
    Told {
        correlation: i64,
        told: Told,
    },
    Busy {
        device: u32,
        start: Stamp,
        end: Stamp,
    },
    Process {
        pid: i64,
        name: Cow<'a, str>,
    },
    Thread {
        pid: i64,
        tid: i64,
        name: Cow<'a, str>,
    },
    Device {
        index: u32,
        name: String,
    },
    /// Unix time of stamp 0.
    Base(i64),
    Bad(Bad),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Not what an event looks like.
    Shape,
    /// Ends before it starts.
    Negative,
}

/// The fields of an event that are of use, as they are written.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Option<&'a RawValue>,
    #[serde(borrow)]
    cat: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    pid: Option<&'a RawValue>,
    #[serde(borrow)]
    tid: Option<&'a RawValue>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Correlated<'a> {
    #[serde(borrow)]
    correlation: Option<&'a RawValue>,
}

/// Hands over what an event holds, and counts it where it is one; metadata is none. False once `give` failed.
pub(super) fn read(raw: &RawValue, events: &mut u64, give: &mut dyn FnMut(Item) -> bool) -> bool {
    let Ok(event) = serde_json::from_str::<Event>(raw.get()) else {
        return give(Item::Bad(Bad::Shape));
    };
    match event.ph.map(RawValue::get) {
        Some("\"X\"") => {
            *events += 1;
            complete(&event, give)
        }
        Some("\"M\"") => metadata(&event).is_none_or(give),
        Some(_) => {
            *events += 1;
            true
        }
        None => give(Item::Bad(Bad::Shape)),
    }
}

fn complete(event: &Event, give: &mut dyn FnMut(Item) -> bool) -> bool {
    let category = event.cat.map_or("", |c| c.get().trim_matches('"'));
    // Some writers capitalise, `Kernel` and `Operator` of old.
    let category = category.to_ascii_lowercase();
    let kind = match category.as_str() {
        "cuda_runtime" | "cuda_driver" | "runtime" => OpKind::Call,
        "cpu_op" | "operator" => OpKind::Operator,
        "user_annotation" => OpKind::Annotation,
        "python_function" => OpKind::Python,
        "kernel" | "gpu_memset" | "gpu_memcpy" | "memcpy" | "memset" | "cuda_sync" => {
            return device(event, &category, give);
        }
        _ => return true,
    };
    match host(event, kind) {
        Ok(item) => give(item),
        Err(bad) => give(Item::Bad(bad)),
    }
}

fn host<'a>(event: &Event<'a>, kind: OpKind) -> Result<Item<'a>, Bad> {
    let (start, end) = times(event)?;
    let correlation = || {
        let args = serde_json::from_str::<Correlated>(event.args?.get()).ok()?;
        integer(args.correlation?)
    };
    Ok(Item::Host {
        pid: event.pid.and_then(integer).ok_or(Bad::Shape)?,
        tid: event.tid.and_then(integer).ok_or(Bad::Shape)?,
        kind,
        name: event.name.and_then(text).ok_or(Bad::Shape)?,
        start,
        end,
        correlation: if kind == OpKind::Call { correlation() } else { None },
    })
}

/// A device's event, taken apart.
fn device(event: &Event, category: &str, give: &mut dyn FnMut(Item) -> bool) -> bool {
    let name = event.name.and_then(text);
    let (Some(name), Some(args)) = (name, event.args) else { return give(Item::Bad(Bad::Shape)) };
    let Some((correlation, told)) = Told::read(category, &name, args) else {
        return give(Item::Bad(Bad::Shape));
    };
    let on = told.device;
    if let Some(correlation) = correlation
        && !give(Item::Told { correlation, told })
    {
        return false;
    }
    if !matches!(category, "kernel" | "gpu_memset" | "memset") {
        return true;
    }
    match (times(event), on) {
        (Ok((start, end)), Some(device)) => give(Item::Busy { device, start, end }),
        (Ok(_), None) => give(Item::Bad(Bad::Shape)),
        (Err(bad), _) => give(Item::Bad(bad)),
    }
}

fn metadata<'a>(event: &Event<'a>) -> Option<Item<'a>> {
    let what = text(event.name?)?;
    let pid = integer(event.pid?)?;
    let name = || Some(serde_json::from_str::<Named<'a>>(event.args?.get()).ok()?.name);
    match &*what {
        "process_name" => Some(Item::Process { pid, name: name()? }),
        "thread_name" => Some(Item::Thread { pid, tid: integer(event.tid?)?, name: name()? }),
        _ => None,
    }
}

fn times(event: &Event) -> Result<(Stamp, Stamp), Bad> {
    let start = event.ts.and_then(|ts| nanoseconds(ts.get())).ok_or(Bad::Shape)?;
    let length = event.dur.and_then(|dur| nanoseconds(dur.get())).ok_or(Bad::Shape)?;
    if length < 0 {
        return Err(Bad::Negative);
    }
    Ok((start, start.checked_add(length).ok_or(Bad::Shape)?))
}

fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text>(raw.get()).ok().map(|text| text.0)
}

/// A whole number, also one written as a text.
pub(super) fn integer(raw: &RawValue) -> Option<i64> {
    raw.get().trim_matches('"').parse().ok()
}

/// Decimal microseconds, of any length, to nanoseconds; a double would lose some.
fn nanoseconds(written: &str) -> Option<i64> {
    let written = written.trim_matches('"');
    if written.contains(['e', 'E']) {
        let us: f64 = written.parse().ok()?;
        // Whole nanoseconds are exact up to 2^53 of them, which is more than anyone writes in this form.
        let ns = (us * 1000.0).round();
        #[expect(clippy::cast_possible_truncation, reason = "within 2^53")]
        return (ns.abs() < 9e15).then_some(ns as i64);
    }
    let (negative, digits) = match written.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, written),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i64 = whole.parse().ok()?;
    let mut ns = 0;
    for place in 0..3 {
        ns = ns * 10 + fraction.as_bytes().get(place).map_or(0, |digit| i64::from(digit.wrapping_sub(b'0')));
    }
    let half = fraction.as_bytes().get(3).is_some_and(|digit| *digit >= b'5');
    let ns = whole.checked_mul(1000)?.checked_add(ns + i64::from(half))?;
    Some(if negative { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_keep_every_nanosecond() {
        for (written, ns) in [
            ("1695835542514261.123", Some(1_695_835_542_514_261_123)),
            ("4458676522690.655", Some(4_458_676_522_690_655)),
            ("12", Some(12_000)),
            ("12.5", Some(12_500)),
            ("0.0004", Some(0)),
            ("0.9996", Some(1_000)),
            ("-3.25", Some(-3_250)),
            ("1.5e3", Some(1_500_000)),
            ("1e300", None),
            ("99999999999999999999", None),
            ("9223372036854775807", None),
            ("null", None),
            ("\"17.25\"", Some(17_250)),
            ("\"\"", None),
        ] {
            assert_eq!(nanoseconds(written), ns, "{written}");
        }
    }
}
