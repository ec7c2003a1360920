//! A job that launches without a pause, watched within a budget from its start to its end: each step down is in
//! the trace, and idle time that was not watched is said to be so.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serial_test::file_serial;
use whyidle::idle::locate;
use whyidle::trace::{Span, Watched};
use whyidle_tests::binary;
use whyidle_tests::board::Board;
use whyidle_tests::cuda::BLOCKING_SYNC;
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::library::Library;
use whyidle_tests::privileged::Child;
use whyidle_tests::scenario::{Recorded, arguments, is_probed, job, pids};

const UNWATCHED: &str = "launches were not watched";
/// Percent of the machine: far below what probes on a storm of any calls cost, far above what they cost on the
/// few synchronises of a storm of launches, and on launches in bursts.
const BUDGET: &str = "5";

/// In the storm of launches. By time, not by launches: how many of these a machine does differs by far.
const BETWEEN_SYNCHRONISES: Duration = Duration::from_millis(20);

/// A storm of launches until probes on them came and went twice, as they do in a burst; then a storm of calls
/// that are watched all the time. Says at the board's first place when those are let go too.
fn storm(library: &std::path::Path, board: Board) -> Child {
    let prepare = || {
        let cuda = Library::load(library);
        let _context = cuda.context(BLOCKING_SYNC, 0);
        let kernels = ["k_1us", "k_2ms"].map(|name| cuda.function(name));
        (cuda, kernels, Cell::new(false), Cell::new(0))
    };
    job(Duration::ZERO, prepare, move |(cuda, [quick, slow], probed, let_go)| {
        let now = is_probed(cuda, "cuLaunchKernel");
        if probed.replace(now) && !now {
            let_go.set(let_go.get() + 1);
        }
        if let_go.get() < 2 {
            let begun = Instant::now();
            while begun.elapsed() < BETWEEN_SYNCHRONISES {
                (0..500).for_each(|_| cuda.launch(*quick, [1; 3], 0));
                // The device has idle time, however fast they are launched.
                std::thread::sleep(Duration::from_millis(1));
            }
            return cuda.ok("cuCtxSynchronize", &[]);
        }
        cuda.launch(*slow, [1; 3], 0);
        (0..300).for_each(|_| cuda.ok("cuCtxSynchronize", &[]));
        board.set(0, u64::from(!is_probed(cuda, "cuCtxSynchronize")));
    })
}

#[test]
#[file_serial(probes)]
fn a_storm_is_watched_in_bursts_then_not_at_all_and_the_trace_says_so() {
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_PERIOD_US", "100000")]);
    let (board, trace) = (Board::new(), device.folder().join("trace"));
    let mut jobs = [storm(&device.cuda(), board)];
    let mut all = arguments(&device, &trace);
    all.extend(["--cuda", "auto", "--budget", BUDGET].map(str::to_owned));
    all.extend(pids(&jobs));
    jobs[0].go();
    let mut running = binary::start(all);
    running.until("every probe was let go", || board.get(0) == 1);
    // Some more windows, in which nothing is watched.
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::INT);
    let ran = running.end();
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let recorded = Recorded::read(&device, &trace);
    let timeline = &recorded.timeline;

    let watches: Vec<_> = timeline.cuda_watches.iter().map(|w| w.watched).collect();
    let begin = [Watched::Nothing, Watched::All, Watched::Rare, Watched::Burst, Watched::Rare];
    assert_eq!((&watches[..5], watches.last()), (&begin[..], Some(&Watched::Nothing)), "{watches:?}");
    let steps: Vec<_> = timeline.steps.iter().filter(|s| s.what.contains("driver's calls")).collect();
    // Between them, on a machine that launches fast, the step that gives up bursts.
    let [to_rare, .., to_nothing] = steps[..] else { panic!("{steps:?}") };
    assert!(steps.len() <= 3, "{steps:?}");
    for (step, says) in [(to_rare, "bursts of 0.4 s"), (to_nothing, "no call of the driver is watched")] {
        assert!(step.what.contains("over the budget of 5.00 %") && step.what.contains(says), "{steps:?}");
        assert!(timeline.cuda_watches.iter().any(|w| w.at == step.at && w.reason == step.what));
    }

    let ends = timeline.cuda_watches.iter().skip(1).map(|w| w.at).chain([timeline.span.end]);
    let stretches = || timeline.cuda_watches.iter().zip(ends.clone());
    let windows = |wanted: &[Watched]| -> Vec<Span> {
        let spans = stretches()
            .filter(|(w, _)| wanted.contains(&w.watched))
            .skip_while(|(w, _)| w.at < timeline.cuda_watches[1].at);
        let spans: Vec<_> = spans.map(|(w, end)| Span::new(w.at, end)).collect();
        let readings = timeline.devices[&0].readings.iter().map(|r| r.span);
        readings.filter(|r| spans.iter().any(|s| s.intersect(*r) == Some(*r))).collect()
    };
    let (blind, burst) = (windows(&[Watched::Rare, Watched::Nothing]), windows(&[Watched::Burst]));
    assert!(blind.len() > 20 && !burst.is_empty(), "{blind:?}, {burst:?}");
    let idle = locate(timeline, None).remove(0).idle;
    let says = |window: &Span| {
        let rest = idle.unplaced.iter().filter(|u| u.span.intersect(*window).is_some());
        rest.filter(|u| u.reason.starts_with(UNWATCHED)).map(|u| u.ns).sum::<u64>()
    };
    let placed = |window: &Span| idle.placed.iter().any(|p| p.span.intersect(*window).is_some());
    // A window in which the device did nothing at all is idle whoever launched what.
    let told = blind.iter().filter(|window| says(window) > 0 && !placed(window)).count();
    assert!(told * 10 > blind.len() * 9, "{told} of {}: {idle:?}", blind.len());
    assert!(burst.iter().all(|window| says(window) == 0), "{idle:?}");
    let in_bursts = timeline
        .threads
        .values()
        .flat_map(|t| &t.submits)
        .filter(|s| burst.iter().any(|window| window.contains(s.first)));
    assert!(in_bursts.map(|s| s.launches).sum::<u64>() > 0, "a burst saw no launch");
    assert!(recorded.report.to_string().contains(UNWATCHED));
}
