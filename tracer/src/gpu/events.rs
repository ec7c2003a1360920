//! The driver's own word of errors: Xid and memory errors, by an event set that is looked at, never waited for.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};

use super::clock::monotonic;
use super::rows::{Rows, reason};
use crate::trace::{DeviceEvent, DeviceEventKind, Record};

const KINDS: [(EventTypes, DeviceEventKind); 3] = [
    (EventTypes::CRITICAL_XID_ERROR, DeviceEventKind::Xid),
    (EventTypes::SINGLE_BIT_ECC_ERROR, DeviceEventKind::EccSingleBit),
    (EventTypes::DOUBLE_BIT_ECC_ERROR, DeviceEventKind::EccDoubleBit),
];
/// Taken at one poll; the rest waits for the next.
const AT_ONCE: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Events {
    set: Option<EventSet<'static>>,
    /// Why a device raises none, by its index.
    why_not: Vec<Option<String>>,
}

impl Events {
    /// Asks for what each device can raise.
    pub(super) fn open(nvml: &'static Nvml, devices: u32) -> Self {
        let mut why_not: Vec<Option<String>> = (0..devices).map(|_| None).collect();
        loop {
            match register(nvml, &mut why_not) {
                Ok(set) => return Self { set, why_not },
                // A failed registration takes the set with it: once more without that device.
                Err((device, why)) => why_not[device] = Some(why),
            }
        }
    }

    /// Errors since the last poll; they happened at most one poll ago.
    pub(super) fn poll(&mut self, rows: &mut Rows, out: &mut Vec<Record>) {
        if let Some(set) = &self.set {
            for _ in 0..AT_ONCE {
                match set.wait(0) {
                    Ok(event) => {
                        let device = event.device.index().unwrap_or(u32::MAX);
                        let value = match event.event_data {
                            Some(XidError::Value(value)) => value,
                            Some(XidError::Unknown) | None => 0,
                        };
                        let kinds = KINDS.iter().filter(|(bit, _)| event.event_type.contains(*bit));
                        let at = monotonic();
                        out.extend(
                            kinds.map(|&(_, kind)| {
                                Record::DeviceEvent(DeviceEvent { at, device, kind, value })
                            }),
                        );
                    }
                    Err(NvmlError::Timeout) => break,
                    Err(e) => {
                        self.give_up(&reason(&e));
                        break;
                    }
                }
            }
        }
        for (device, why_not) in (0..).zip(&self.why_not) {
            rows.say("nvml_events", device, why_not.clone(), out);
        }
    }

    fn give_up(&mut self, why: &str) {
        self.set = None;
        for why_not in &mut self.why_not {
            why_not.get_or_insert_with(|| why.to_owned());
        }
    }
}

/// A set with every device not ruled out; `None` where that leaves nothing.
fn register(
    nvml: &'static Nvml,
    why_not: &mut [Option<String>],
) -> Result<Option<EventSet<'static>>, (usize, String)> {
    let mut set = match nvml.create_event_set() {
        Ok(set) => set,
        Err(e) => {
            why_not.iter_mut().for_each(|why| *why = Some(reason(&e)));
            return Ok(None);
        }
    };
    let all = KINDS.iter().fold(EventTypes::empty(), |all, (bit, _)| all | *bit);
    for (index, why) in (0..).zip(why_not.iter_mut()) {
        if why.is_some() {
            continue;
        }
        let device = nvml.device_by_index(index);
        match device.and_then(|device| Ok((device.supported_event_types()? & all, device))) {
            Ok((kinds, device)) if !kinds.is_empty() => {
                let failed = |e: nvml_wrapper::error::NvmlErrorWithSource| (index as usize, reason(&e.error));
                set = device.register_events(kinds, set).map_err(failed)?;
            }
            Ok(_) => *why = Some(reason(&NvmlError::NotSupported)),
            Err(e) => *why = Some(reason(&e)),
        }
    }
    Ok(why_not.iter().any(Option::is_none).then_some(set))
}
