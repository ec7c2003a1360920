//! Letting go of driver functions, and seeing that nothing is left.

use std::collections::BTreeSet;
use std::mem;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::programs::links::LinkType;
use aya::programs::{loaded_links, loaded_programs};

use super::cuda::pristine::{self, Site};
use super::uprobes::Held;

/// A link goes when its last user closes it, a program some time after its last run.
const PATIENCE: Duration = Duration::from_secs(5);

/// Driver functions being let go of. The kernel takes a twentieth to a tenth of a second for each link, one
/// after another whatever the number of threads that ask (its `event_mutex`), so nobody need wait for it.
/// Dropping this does wait: a process that has ended has nothing attached.
#[derive(Debug, Default)]
pub struct Detaching {
    closers: Vec<JoinHandle<()>>,
    programs: BTreeSet<u32>,
    sites: Vec<Site>,
}

/// What is still there after detaching.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not everything was detached: {0}")]
pub struct LeftBehind(pub String);

impl Detaching {
    pub(super) fn new(held: Vec<Held>) -> Self {
        let mut detaching = Self::default();
        if !held.is_empty() {
            detaching.closers.push(thread::spawn(move || drop(held)));
        }
        detaching
    }

    /// What must be gone at the end: links to these programs, and their changes to code.
    pub(super) fn expect_gone(&mut self, programs: impl IntoIterator<Item = u32>, sites: Vec<Site>) {
        self.programs.extend(programs);
        self.sites.extend(sites);
    }

    /// Waits for both.
    pub fn and(&mut self, mut other: Self) {
        self.closers.append(&mut other.closers);
        self.programs.append(&mut other.programs);
        self.sites.append(&mut other.sites);
    }

    #[must_use]
    pub fn done(&self) -> bool {
        self.closers.iter().all(JoinHandle::is_finished)
    }

    fn wait(&mut self) {
        for closer in mem::take(&mut self.closers) {
            // Closing cannot panic; were it to, there would be nothing to do about it here.
            drop(closer.join());
        }
    }

    /// Waits, then looks whether a link or a changed byte is left. Gives how many places in processes' code
    /// were compared with the file.
    ///
    /// # Errors
    /// What is left, after some seconds of patience.
    pub fn settle(mut self) -> Result<usize, LeftBehind> {
        self.wait();
        let (programs, sites) = (mem::take(&mut self.programs), mem::take(&mut self.sites));
        let begun = Instant::now();
        loop {
            let left = left(&programs, &sites);
            match left {
                Ok(compared) => return Ok(compared),
                Err(what) if begun.elapsed() > PATIENCE => return Err(LeftBehind(what)),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Detaching {
    fn drop(&mut self) {
        self.wait();
    }
}

fn left(programs: &BTreeSet<u32>, sites: &[Site]) -> Result<usize, String> {
    let (mut ours, mut others) = (0, 0);
    for link in loaded_links().filter_map(Result::ok) {
        if programs.contains(&link.program_id()) {
            ours += 1;
        } else if matches!(link.link_type(), Ok(LinkType::UProbeMulti | LinkType::PerfEvent)) {
            others += 1;
        }
    }
    if ours > 0 {
        return Err(format!("{ours} links"));
    }
    let compared = pristine::compare(sites);
    let Some(first) = compared.altered.first() else { return Ok(compared.places) };
    if others > 0 {
        tracing::info!("{first}: {others} links of other tracers are there, so it may be one of theirs");
        return Ok(compared.places);
    }
    Err(format!("{} changed places in code, the first: {first}", compared.altered.len()))
}

/// Whether a program is still loaded.
#[must_use]
pub fn loaded(ids: &[u32]) -> bool {
    loaded_programs().filter_map(Result::ok).any(|p| ids.contains(&p.id()))
}
