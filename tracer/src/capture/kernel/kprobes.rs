//! The NVIDIA driver's own entry points, where this kernel lets them be probed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Entry points of the driver's and the memory manager's ioctls.
const ENTRIES: [&str; 2] = ["nvidia_unlocked_ioctl", "uvm_unlocked_ioctl_entry"];

/// There where the kernel has kprobes.
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// Those of [`ENTRIES`] that are there, at least one.
///
/// # Errors
/// Why none can be probed, in one sentence.
pub fn driver_entries() -> Result<Vec<&'static str>, String> {
    if !Path::new(KPROBES).exists() {
        return Err("this kernel has no kprobes".into());
    }
    let symbols = File::open("/proc/kallsyms").map_err(|e| format!("/proc/kallsyms: {e}"))?;
    let found = entries_of(BufReader::new(symbols));
    if found.is_empty() {
        return Err(format!(
            "no NVIDIA driver is loaded: there is no kernel function {}",
            ENTRIES.join(" or ")
        ));
    }
    Ok(found)
}

/// Lines are `address type name`, and the module's name where it is one's.
fn entries_of(mut symbols: impl BufRead) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut line = Vec::new();
    while symbols.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let name = line.split(u8::is_ascii_whitespace).nth(2).unwrap_or_default();
        if let Some(entry) = ENTRIES.iter().find(|e| e.as_bytes() == name)
            && !found.contains(entry)
        {
            found.push(*entry);
        }
        line.clear();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_whole_name() {
        let text = "ffffffff81000000 T nvidia_unlocked_ioctl_not\n\
            ffffffffc0100000 t uvm_unlocked_ioctl_entry\t[nvidia_uvm]\n\
            ffffffffc0200000 t nvidia_unlocked_ioctl\t[nvidia]\n\
            ffffffffc0300000 t nvidia_unlocked_ioctl\t[nvidia]\n\
            nonsense\n";
        assert_eq!(entries_of(text.as_bytes()), ["uvm_unlocked_ioctl_entry", "nvidia_unlocked_ioctl"]);
        assert_eq!(entries_of(&b""[..]), Vec::<&str>::new());
    }
}
