//! Driver calls of a scenario, as the probes see them.

use std::cell::OnceCell;
use std::path::Path;

use whyidle::capture::cuda::Libraries;
use whyidle::capture::kernel::uprobes::Attach;
use whyidle::capture::tracer::Config;
use whyidle::trace::{CudaCall, CudaFamily, LossCause, Record, SubmitGroup, Submits};

use crate::library::Library;
use crate::privileged::{Child, Observed, attach, lacking, observe_with};

/// Runs a scenario on a driver that its process has loaded before the probes come. `None`: this kernel cannot
/// have the probes, and says so.
pub fn watched(
    libraries: &[&Path],
    prepare: impl FnOnce(&Library),
    scenario: impl FnOnce(&Library),
) -> Option<Observed> {
    watched_at(libraries, true, prepare, scenario)
}

/// Likewise, with or without probes on returns.
///
/// # Panics
/// A library cannot be probed.
pub fn watched_at(
    libraries: &[&Path],
    returns: bool,
    prepare: impl FnOnce(&Library),
    scenario: impl FnOnce(&Library),
) -> Option<Observed> {
    if lacking("cuda_submit").is_some() {
        return None;
    }
    let loaded = OnceCell::new();
    let child = Child::fork_prepared(
        || {
            let all: Vec<_> = libraries.iter().map(|path| Library::load(path)).collect();
            prepare(&all[0]);
            loaded.set(all).expect("once");
        },
        || scenario(&loaded.get().expect("prepared")[0]),
    );
    let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    let found = Libraries::default().scan([child.pid]);
    assert_eq!(found.len(), libraries.len());
    for library in found {
        let library = library.expect("it can be probed");
        let path = library.attach_path();
        let wanted = Attach { library: &path, points: &library.entry_points, returns };
        assert_eq!(tracer.attach_driver(wanted), []);
    }
    Some(observe_with(tracer, child))
}

#[must_use]
pub fn runs(seen: &Observed) -> Vec<&Submits> {
    seen.records.iter().filter_map(|r| if let Record::Submits(s) = r { Some(s) } else { None }).collect()
}

#[must_use]
pub fn groups(seen: &Observed) -> Vec<&SubmitGroup> {
    runs(seen).into_iter().flat_map(|r| &r.groups).collect()
}

#[must_use]
pub fn calls(seen: &Observed, family: CudaFamily) -> Vec<&CudaCall> {
    let calls = seen.records.iter().filter_map(|r| if let Record::CudaCall(c) = r { Some(c) } else { None });
    calls.filter(|c| c.family == family).collect()
}

/// What every run must satisfy.
///
/// # Panics
/// It does not.
#[track_caller]
pub fn sums_hold(seen: &Observed) {
    for run in runs(seen) {
        let of = |family: CudaFamily| {
            run.groups.iter().filter(|g| g.family == family).map(|g| g.count).sum::<u64>()
        };
        assert_eq!(of(CudaFamily::Launch), run.launches, "{run:?}");
        assert_eq!(of(CudaFamily::GraphLaunch), run.graph_launches, "{run:?}");
        assert_eq!(of(CudaFamily::Memset), run.memsets, "{run:?}");
        assert_eq!(of(CudaFamily::Copy), run.copies, "{run:?}");
        assert!(run.groups.len() <= 36 && run.first <= run.last, "{run:?}");
        for g in &run.groups {
            assert!(g.first != 0 && g.first <= g.last && g.timed <= g.count && g.count > 0, "{g:?}");
        }
    }
    // Switches that the kernel does not announce are no calls.
    let lost: Vec<_> = seen.losses().filter(|loss| loss.cause != LossCause::Unannounced).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
