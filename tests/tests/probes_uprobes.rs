//! Probes on functions: each kind of link, what they cost, what they may do to a process, and that none stays.

use std::path::PathBuf;
use std::time::Duration;

use serial_test::file_serial;
use whyidle::capture::cuda::{EntryPoint, names};
use whyidle::capture::kernel::uprobes::{Attach, Way};
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{CudaFamily, Record, TargetKind};
use whyidle_tests::own::file_offset;
use whyidle_tests::privileged::{Child, attach, leaves_out, links_of, refuse_new_system_calls};

fn quiet() -> Config {
    Config { sample_hz: 0, threshold_ns: 0, ..Config::default() }
}

macro_rules! entry_points {
    ($($name:ident),*) => {$(
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $name(x: u64) -> u64 {
            std::hint::black_box(x + stringify!($name).len() as u64)
        }
    )*};
}
entry_points!(own_launch, own_copy, own_synchronise);

fn exe() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// A function of ours under a name of the driver's.
fn stands_for(name: &str, function: extern "C" fn(u64) -> u64) -> EntryPoint {
    let name = names().find(|n| n.name == name).expect("a name of the table");
    EntryPoint {
        name: name.name,
        id: name.id,
        family: name.family,
        file_offset: file_offset(function as usize),
        wants_return: name.family != CudaFamily::Launch,
    }
}

fn points() -> [EntryPoint; 3] {
    [
        stands_for("cuLaunchKernel", own_launch),
        stands_for("cuMemcpyHtoD_v2", own_copy),
        stands_for("cuCtxSynchronize", own_synchronise),
    ]
}

/// Calls each function some times under probes, then asserts that nothing is left. Gives the records.
/// `attached` says whether returns are probed too.
fn calls_seen(filtered: bool, attached: impl FnOnce() -> (Tracer, bool)) -> (Vec<Record>, bool) {
    // Forked first: a child has all that its parent holds open, links among it.
    let mut child = Child::fork_prepared(
        || {
            if filtered {
                refuse_new_system_calls();
            }
        },
        || {
            for i in 0..5 {
                own_launch(i);
                own_copy(i);
                own_synchronise(i);
            }
        },
    );
    let (mut tracer, returns) = attached();
    tracer.add_process(child.pid, TargetKind::Named).expect("room");
    let (library, points) = (exe(), points());
    assert_eq!(tracer.attach_driver(Attach { library: &library, points: &points, returns }), []);
    child.go();
    // Panics in the child, and its death, end the wait.
    assert!(child.finished(Duration::from_secs(30)), "the calls were not made");
    let (ids, mut records) = (tracer.program_ids(), Vec::new());
    let detaching = tracer.finish(&mut |r| records.push(r)).expect("finish");
    // Three places in two processes, this one and the child.
    assert_eq!(detaching.settle().expect("nothing is left"), 6);
    assert_eq!(links_of(&ids), 0);
    (records, returns)
}

fn ended(records: &[Record], name: &str) -> usize {
    let is = |r: &&Record| matches!(r, Record::CudaCall(c) if c.name == name && c.exit.is_some());
    records.iter().filter(is).count()
}

fn launches(records: &[Record]) -> u64 {
    records.iter().map(|r| if let Record::Submits(s) = r { s.launches } else { 0 }).sum()
}

/// As kernels before 6.6 and before 5.15 have it, on whichever kernel this is.
#[test]
#[file_serial(probes)]
fn every_kind_of_links_sees_the_same() {
    for way in [Way::Many, Way::Single, Way::Constant] {
        let (records, _) = calls_seen(false, || {
            let mut tracer = attach(&Config { uprobe_links: way, ..quiet() });
            let used = tracer.uprobe_way();
            if used != way {
                leaves_out(&format!("{way:?} links to functions: this kernel has {used:?}"));
            }
            (tracer, true)
        });
        assert_eq!(launches(&records), 5, "{way:?}");
        assert_eq!(ended(&records, "cuCtxSynchronize"), 5, "{way:?}");
        assert_eq!(ended(&records, "cuMemcpyHtoD_v2"), 5, "{way:?}");
    }
}

#[test]
#[file_serial(probes)]
fn what_probes_cost_is_measured_on_ourselves() {
    let mut tracer = attach(&quiet());
    let tried = tracer.try_uprobes().expect("uprobes");
    println!("{:?}, {:?}, links: {:?}", tried.cost, tried.no_returns, tracer.uprobe_way());
    // A trap takes at least some hundred nanoseconds anywhere, and no machine needs a millisecond.
    assert!((50..1_000_000).contains(&tried.cost.entry_ns), "{:?}", tried.cost);
    assert!(tried.cost.return_ns < 1_000_000, "{:?}", tried.cost);
    drop(tried);
    let ids = tracer.program_ids();
    tracer.finish(&mut |_| ()).expect("finish").settle().expect("nothing is left");
    assert_eq!(links_of(&ids), 0);
}

/// The trial on a child of our own says beforehand what becomes of such a process.
#[test]
#[file_serial(probes)]
fn a_filtered_process_lives() {
    let (records, returns) = calls_seen(true, || {
        let mut tracer = attach(&quiet());
        let tried = tracer.try_uprobes().expect("uprobes");
        println!("returns of filtered processes: {:?}", tried.no_returns);
        (tracer, tried.no_returns.is_none())
    });
    assert_eq!(launches(&records), 5);
    if returns {
        assert_eq!(ended(&records, "cuCtxSynchronize"), 5);
    }
}
