//! The emulated machine: boots, hands its console through, and ends with the command's status.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::guest::Guest;

/// What the guest prints before the command's status.
pub const MARK: &str = "whyidle-vm: exit status ";

/// In software: where this runs, nested virtualization may be missing or broken. On one thread: on several, a
/// processor may run into a breakpoint that the guest's kernel, patching its own code, has taken away already
/// (`Oops: int3`, a race known of QEMU 7 and 8).
const MACHINE: &[&str] =
    &["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "2G", "-nographic", "-no-reboot"];

/// Slow, or the emulated processor never waits for it.
const DISK: &str = "format=raw,if=virtio,cache=unsafe,throttling.iops-total=20";

/// `panic=-1` reboots at once, which ends the machine.
const BOOT: &str = "console=ttyS0 quiet no_timer_check panic=-1 rdinit=/init";

/// `None`: the machine ended without having said a status.
pub fn run(vmlinuz: &Path, guest: &Guest, peer: Option<&Path>) -> Result<Option<u8>> {
    let path = guest.disk.display().to_string().replace(',', ",,");
    let disk = format!("file={path},{DISK}");
    let mut machine = Command::new("qemu-system-x86_64")
        .args(MACHINE)
        .arg("-kernel")
        .arg(vmlinuz)
        .arg("-initrd")
        .arg(&guest.initramfs)
        .args(["-append", BOOT, "-drive", &disk])
        .args(["-nic", &peer.map_or_else(|| "none".to_owned(), network)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("qemu-system-x86_64 could not be started")?;
    let mut console = BufReader::new(machine.stdout.take().context("qemu was given a pipe")?);
    let mut status = None;
    let mut line = Vec::new();
    while console.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        match said(text) {
            Some(said) => status = Some(said),
            None => writeln!(std::io::stdout(), "{text}")?,
        }
        line.clear();
    }
    machine.wait()?;
    Ok(status)
}

/// One that reaches nothing but the peer.
fn network(peer: &Path) -> String {
    let command = format!("python3 -u '{}'", peer.display()).replace(',', ",,");
    format!("user,model=virtio-net-pci,restrict=on,guestfwd=tcp:10.0.2.100:7000-cmd:{command}")
}

fn said(line: &str) -> Option<u8> {
    line.strip_prefix(MARK)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_a_line_of_its_own() {
        assert_eq!(said("whyidle-vm: exit status 3"), Some(3));
        assert_eq!(said("test says whyidle-vm: exit status 3"), None);
        assert_eq!(said("whyidle-vm: exit status 300"), None);
    }
}
