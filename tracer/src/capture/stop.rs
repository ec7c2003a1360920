//! Ending in order: the first signal asks, the second one aborts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

/// Exit status of a process that was told twice.
pub const ABORTED: u8 = 130;

/// From now on a write over the file-size limit fails like one on a full disk, instead of ending us there. Handled
/// and not ignored: a command that we start gets the signal as it would without us.
///
/// # Errors
/// The handler could not be installed.
pub fn survive_file_size_limit() -> std::io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(|_| ())
}

/// Set by SIGINT, SIGTERM and SIGHUP.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Takes over the three signals; what the second one does is to say `last_words` on standard error and
    /// `_exit`, and the kernel side detaches with the process.
    ///
    /// # Errors
    /// The handlers could not be installed.
    pub fn install(last_words: &str) -> std::io::Result<Self> {
        let stop = Self { asked: Arc::default(), signal: Arc::default() };
        // Two may be delivered at once, to two threads: only one of them is the first.
        let delivered = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let (delivered, last_words) = (Arc::clone(&delivered), last_words.to_owned());
            let again = move || {
                if delivered.fetch_add(1, Ordering::SeqCst) > 0 {
                    // Nobody may read it.
                    rustix::io::write(std::io::stderr(), last_words.as_bytes()).unwrap_or_default();
                    low_level::exit(i32::from(ABORTED));
                }
            };
            // SAFETY: an atomic, one system call on memory that is never changed or freed while the handler is
            // there, and `_exit`: all may be done in a signal handler.
            unsafe { low_level::register(signal, again) }?;
            flag::register(signal, Arc::clone(&stop.asked))?;
            flag::register_usize(signal, Arc::clone(&stop.signal), usize::try_from(signal).unwrap_or(0))?;
        }
        Ok(stop)
    }

    #[must_use]
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Asked by a signal that a terminal does not send to the whole foreground group.
    #[must_use]
    pub fn terminated(&self) -> bool {
        self.asked() && self.signal.load(Ordering::Relaxed) == usize::try_from(SIGTERM).unwrap_or(0)
    }
}
