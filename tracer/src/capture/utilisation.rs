//! The latest of what devices say, for the live line and for the trace.

use std::collections::BTreeMap;

use crate::trace::{DeviceProcess, Ns, Reading};

/// An unchanged process is written again this often.
const REPEAT: Ns = 1_000_000_000;
/// A process is off the list when it was not in it for this long.
const GONE: Ns = 3_000_000_000;

#[derive(Debug, Default)]
pub struct Utilisation {
    busy: BTreeMap<u32, Option<f64>>,
    /// Last seen and last written, by (device, process).
    processes: BTreeMap<(u32, u32), (Ns, Ns)>,
}

impl Utilisation {
    pub fn reading(&mut self, reading: &Reading) {
        self.busy.insert(reading.device, reading.busy_percent);
    }

    /// Takes note of a device's list, and gives back those that should be written: new ones, and each once
    /// a second.
    pub fn processes(&mut self, listed: Vec<DeviceProcess>) -> Vec<DeviceProcess> {
        let Some(now) = listed.iter().map(|p| p.at).max() else { return Vec::new() };
        self.processes.retain(|_, (seen, _)| now.saturating_sub(*seen) < GONE);
        listed
            .into_iter()
            .filter(|p| {
                let known = self.processes.get(&(p.device, p.pid)).map(|(_, written)| *written);
                let write = known.is_none_or(|written| p.at.saturating_sub(written) >= REPEAT);
                let written = if write { p.at } else { known.unwrap_or(p.at) };
                self.processes.insert((p.device, p.pid), (p.at, written));
                write
            })
            .collect()
    }

    /// Latest reading of each device, percent.
    #[must_use]
    pub fn latest(&self) -> Vec<(u32, Option<f64>)> {
        self.busy.iter().map(|(device, busy)| (*device, *busy)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(at: Ns, device: u32, pid: u32) -> DeviceProcess {
        DeviceProcess { at, device, pid, used_memory: None }
    }

    #[test]
    fn a_process_is_written_when_new_and_once_a_second() {
        let mut u = Utilisation::default();
        let written =
            (0..20).filter(|n| !u.processes(vec![process(n * 166_000_000, 0, 7)]).is_empty()).count();
        assert_eq!(written, 3);
        assert_eq!(u.processes(vec![process(3_300_000_000, 0, 7), process(3_300_000_000, 1, 7)]).len(), 1);
    }

    #[test]
    fn a_process_that_left_the_list_is_forgotten() {
        let mut u = Utilisation::default();
        u.processes(vec![process(0, 0, 7)]);
        u.processes(vec![process(GONE, 0, 8)]);
        assert_eq!(u.processes.keys().collect::<Vec<_>>(), [&(0, 8)]);
    }
}
