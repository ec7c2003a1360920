//! State of the machine: what it is, and its counters at every tick.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::preflight;
use super::tracer::Config;
use crate::trace::{Host, HostTick, Ns};

/// The tracer's own timer, whether or not a device answers.
pub const TICK: Duration = Duration::from_nanos(TICK_NS);
const TICK_NS: u64 = 166_000_000;

/// `CLOCK_MONOTONIC`, what `bpf_ktime_get_ns` returns.
#[must_use]
pub fn now() -> Ns {
    clock(ClockId::Monotonic)
}

/// Time of a clock in nanoseconds; the clocks used here never read negative.
#[must_use]
pub fn clock(id: ClockId) -> u64 {
    let t = clock_gettime(id);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// The trace's first record.
#[must_use]
pub fn describe(config: &Config, command: &str, start_ns: Ns) -> Host {
    Host {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: preflight::release(),
        hostname: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim_end().to_owned(),
        online_cpus: parse_cpu_list(
            &fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default(),
        ),
        threshold_ns: config.threshold_ns,
        sample_period_ns: 1_000_000_000u64.checked_div(config.sample_hz).unwrap_or(0),
        tick_ns: TICK_NS,
        start_ns,
        start_unix_ns: clock(ClockId::Realtime).saturating_sub(now().saturating_sub(start_ns)),
        command: command.to_owned(),
        own_pid: std::process::id(),
        nvidia_majors: config.nvidia_majors.clone(),
    }
}

/// The host's counters now.
#[must_use]
pub fn tick() -> HostTick {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ns_per_tick =
        1_000_000_000u64.checked_div(rustix::param::clock_ticks_per_second()).unwrap_or(10_000_000);
    HostTick { at: now(), cpus: parse_stat(&stat, ns_per_tick), pressure_us: pressure() }
}

/// Majors of the NVIDIA driver: 195 is its own, the others are given out when it loads.
#[must_use]
pub fn nvidia_majors() -> Vec<u32> {
    parse_majors(&fs::read_to_string("/proc/devices").unwrap_or_default())
}

/// Whether a character device of one of these majors is registered.
#[must_use]
pub fn has_majors(majors: &[u32]) -> bool {
    has_any(&fs::read_to_string("/proc/devices").unwrap_or_default(), majors)
}

fn has_any(devices: &str, majors: &[u32]) -> bool {
    let mut lines = devices.lines().take_while(|l| !l.starts_with("Block"));
    lines.any(|l| {
        l.trim().split_once(' ').and_then(|(m, _)| m.parse().ok()).is_some_and(|m| majors.contains(&m))
    })
}

/// `(cpu, idle ns, iowait ns, steal ns)` of each online processor.
fn parse_stat(text: &str, ns_per_tick: u64) -> Vec<(u32, u64, u64, u64)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.strip_prefix("cpu")?.split(' ');
            // The sum over all processors is the line `cpu  ...`, which has no number here.
            let cpu = fields.next()?.parse().ok()?;
            let mut counters =
                fields.skip(3).map(|f| f.parse::<u64>().ok().map(|t| t.saturating_mul(ns_per_tick)));
            let (idle, iowait) = (counters.next()??, counters.next()??);
            Some((cpu, idle, iowait, counters.nth(2)??))
        })
        .collect()
}

fn pressure() -> Option<[u64; 3]> {
    let mut totals = [0; 3];
    for (total, resource) in totals.iter_mut().zip(["cpu", "memory", "io"]) {
        *total = parse_pressure(&fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?)?;
    }
    Some(totals)
}

fn parse_pressure(text: &str) -> Option<u64> {
    text.lines().find(|l| l.starts_with("some "))?.rsplit_once("total=")?.1.parse().ok()
}

fn parse_majors(devices: &str) -> Vec<u32> {
    let mut majors = vec![195];
    for line in devices.lines().take_while(|l| !l.starts_with("Block")) {
        if let Some((major, name)) = line.trim().split_once(' ')
            && name.starts_with("nvidia")
            && let Ok(major) = major.parse()
            && !majors.contains(&major)
        {
            majors.push(major);
        }
    }
    majors
}

/// The kernel's list form: `0-3,8,10-11`.
fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(first.saturating_add(8191)));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_by_number_and_the_sum_left_out() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu12 1 2 3 40 50 6 7 80 0 0\nintr 5 0\ncpu3 1 2\n";
        assert_eq!(parse_stat(text, 10), [(0, 40, 50, 80), (12, 400, 500, 800)]);
    }

    #[test]
    fn pressure_is_the_total_of_some() {
        let text = "some avg10=2.88 avg60=1.17 avg300=1.47 total=29608407\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_pressure(text), Some(29_608_407));
        assert_eq!(parse_pressure("full total=7"), None);
    }

    #[test]
    fn dynamic_majors_are_found_among_character_devices_only() {
        let text = "Character devices:\n  4 tty\n195 nvidia\n234 nvidia-caps\n 511 nvidia-uvm\n\nBlock devices:\n  9 nvidia-none\n";
        assert_eq!(parse_majors(text), [195, 234, 511]);
        assert_eq!(parse_majors(""), [195]);
        assert!(has_any(text, &[195]) && !has_any(text, &[9, 194]) && !has_any("", &[195]));
    }

    #[test]
    fn processor_lists_are_unfolded() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_cpu_list(""), Vec::<u32>::new());
        assert_eq!(parse_cpu_list("x,3-1,2"), [2]);
    }

    #[test]
    fn this_machine_can_be_read() {
        let tick = tick();
        assert!(!tick.cpus.is_empty());
        assert!(tick.cpus.iter().all(|c| c.1 > 0), "{tick:?}");
        let host = describe(&Config::default(), "x", now());
        assert_eq!(host.online_cpus.len(), tick.cpus.len());
        assert!(host.start_unix_ns > 1_600_000_000_000_000_000);
    }
}
