//! The door to the kernel side, for the CUDA driver's calls: probes on functions, which come and go while it is open.

use std::path::Path;

use super::cuda::{EntryPoint, Layer};
use super::tracer::Tracer;
use super::trap::{self, Tried};
use super::undo::Detaching;
use super::uprobes::{Attach, Runs, Way};
use crate::trace::ProbeStatus;

impl Tracer {
    /// Finds out what probes on functions cost here and whether their returns may be probed. Call it before
    /// [`Self::attach_cuda`] on a library of others.
    ///
    /// # Errors
    /// No probe could be put on a function of our own.
    pub fn try_uprobes(&mut self) -> Result<Tried, String> {
        let tried = trap::try_out(&mut self.uprobes)?;
        self.decoder.trap = tried.cost;
        Ok(tried)
    }

    /// Loads the programs for driver calls ahead of [`Self::attach_driver`], which else takes a second.
    pub fn load_driver_programs(&mut self) {
        self.uprobes.load();
    }

    /// What kind of uprobe links this kernel has.
    pub fn uprobe_way(&mut self) -> Way {
        self.uprobes.way()
    }

    /// Attaches the CUDA entry points of one library, with their returns, in all processes that map it.
    /// Returns one status per entry point that could not be attached.
    pub fn attach_cuda(&mut self, library: &Path, entry_points: &[EntryPoint]) -> Vec<ProbeStatus> {
        self.attach_driver(Attach { library, points: entry_points, returns: true })
    }

    /// Likewise, with or without returns.
    pub fn attach_driver(&mut self, wanted: Attach) -> Vec<ProbeStatus> {
        for point in wanted.points {
            self.decoder.entry_points.insert(point.id, point.name);
        }
        let lacking = self.probes.iter().find(|s| s.name.starts_with("cuda_") && !s.attached);
        let refused = match lacking {
            Some(status) => wanted.points.iter().map(|p| (p.name, status.reason.clone())).collect(),
            None => self.uprobes.attach(wanted),
        };
        let status = |(name, reason): (&str, _)| ProbeStatus { name: name.into(), attached: false, reason };
        refused.into_iter().map(status).collect()
    }

    /// Detaches CUDA entry points, by library and layer, while the caller goes on.
    #[must_use]
    pub fn detach_cuda(&mut self, which: impl Fn(&Path, Layer) -> bool) -> Detaching {
        self.uprobes.detach(which)
    }

    /// Probes of one layer in place on a library.
    #[must_use]
    pub fn attached_cuda(&self, library: &Path, layer: Layer) -> usize {
        self.uprobes.attached(library, layer)
    }

    /// How often, and how long, the programs on CUDA entry points ran so far; zeros unless the kernel's
    /// statistics are on (`aya::sys::enable_stats`).
    #[must_use]
    pub fn cuda_runs(&self, layer: Layer) -> Runs {
        self.uprobes.runs(layer)
    }
}
