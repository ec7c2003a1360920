//! The kernel side's own diagnostics, shown under `-v`. Switched off at load time otherwise, and then the
//! verifier has removed them.

use aya::Ebpf;
use aya_log::EbpfLogger;

/// Reads the diagnostics; must live as long as programs are loaded.
pub(super) type KernelLog = EbpfLogger<ToTracing>;

/// Hands `log` records over to `tracing`.
#[derive(Debug)]
pub(super) struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        match record.level() {
            log::Level::Error | log::Level::Warn => tracing::warn!(target: "kernel", "{}", record.args()),
            _ => tracing::info!(target: "kernel", "{}", record.args()),
        }
    }

    fn flush(&self) {}
}

pub(super) fn open(ebpf: &mut Ebpf) -> Option<KernelLog> {
    EbpfLogger::init_with_logger(ebpf, ToTracing)
        .inspect_err(|e| tracing::debug!(error = %e, "the kernel side's diagnostics are not shown"))
        .ok()
}
