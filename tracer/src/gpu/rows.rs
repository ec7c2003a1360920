//! What each of a device's signals is good for, as probe rows: written when first known and when it changes.

use std::collections::BTreeMap;

use nvml_wrapper::error::NvmlError;

use crate::trace::{ProbeStatus, Record};

#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Rows carry the device's index.
    several: bool,
    said: BTreeMap<(&'static str, u32), Option<String>>,
}

impl Rows {
    pub(super) fn new(devices: usize) -> Self {
        Self { several: devices > 1, said: BTreeMap::new() }
    }

    /// `why_not`: `None` while the signal works.
    pub(super) fn say(
        &mut self,
        signal: &'static str,
        device: u32,
        why_not: Option<String>,
        out: &mut Vec<Record>,
    ) {
        if self.said.get(&(signal, device)) == Some(&why_not) {
            return;
        }
        let name = if self.several { format!("{signal}:{device}") } else { signal.to_owned() };
        let (attached, reason) = (why_not.is_none(), why_not.clone().unwrap_or_default());
        self.said.insert((signal, device), why_not);
        out.push(Record::Probe(ProbeStatus { name, attached, reason }));
    }
}

/// What an error means for whoever reads the report, in one sentence.
pub(super) fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::NotSupported => "the device does not support it".into(),
        NvmlError::NoPermission => "the driver allows it to administrators only; run as root".into(),
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            "the driver's NVML library is older than this call; a newer driver has it".into()
        }
        NvmlError::GpuLost => {
            "the device has fallen off the bus; look for its Xid in the kernel log, then reset it".into()
        }
        NvmlError::ResetRequired => "the device must be reset before it answers again".into(),
        NvmlError::UnexpectedVariant(kind) => {
            format!("its values have a type that is not documented ({kind})")
        }
        NvmlError::InvalidArg => "the driver refuses the question for this device".into(),
        other => other.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(records: &[Record]) -> Vec<(&str, bool, &str)> {
        records
            .iter()
            .map(|record| match record {
                Record::Probe(row) => (row.name.as_str(), row.attached, row.reason.as_str()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_row_is_written_when_first_known_and_when_it_changes() {
        let (mut said, mut out) = (Rows::new(1), Vec::new());
        for why_not in [None, None, Some("gone"), Some("gone"), None] {
            said.say("gpm", 0, why_not.map(String::from), &mut out);
        }
        assert_eq!(rows(&out), [("gpm", true, ""), ("gpm", false, "gone"), ("gpm", true, "")]);
    }

    #[test]
    fn several_devices_have_rows_of_their_own() {
        let (mut said, mut out) = (Rows::new(2), Vec::new());
        said.say("gpm", 0, None, &mut out);
        said.say("gpm", 1, None, &mut out);
        assert_eq!(rows(&out), [("gpm:0", true, ""), ("gpm:1", true, "")]);
    }

    #[test]
    fn every_class_of_failure_has_one_clear_line() {
        let classes = [
            NvmlError::NotSupported,
            NvmlError::NoPermission,
            NvmlError::FailedToLoadSymbol("undefined symbol:\nx".into()),
            NvmlError::GpuLost,
            NvmlError::ResetRequired,
            NvmlError::UnexpectedVariant(9),
            NvmlError::InvalidArg,
            NvmlError::Unknown,
        ];
        let mut lines: Vec<String> = classes.iter().map(reason).collect();
        assert!(lines.iter().all(|line| !line.is_empty() && !line.contains('\n')), "{lines:?}");
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), classes.len());
    }
}
