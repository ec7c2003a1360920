//! What a cause gives back: no more than is its own, and nothing twice.

use super::*;

#[test]
fn a_short_run_after_each_synchronise_gives_back_no_more_than_itself() {
    // Nine steps of 100 ms: 90 ms in the synchronise call, 10 ms to the next submit; 5 ms of them idle.
    let mut trace = trace().samples(FEEDER, 0, 1000 * MS, &["libcuda.so.1!spin"]);
    let mut gaps = Vec::new();
    for step in 0..9 {
        let start = step * 100 * MS;
        trace = trace
            .call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", start, start + 90 * MS)
            .submits(FEEDER, start + 100 * MS, start + 100 * MS, 1);
        gaps.push((start + 95 * MS, start + 100 * MS));
    }
    let timeline = build(trace.records());
    let causes = attribute(&timeline, &idle(&timeline, FEEDER, &gaps)).causes;
    let of = |mechanism| causes.iter().filter(move |c| c.mechanism == mechanism);
    let sync: u64 = of(Mechanism::LaunchSync).map(|c| c.ns).sum();
    let gain: u64 = of(Mechanism::LaunchSync).map(|c| c.gain_ns).sum();
    assert!(sync > 0, "{causes:#?}");
    assert!(gain <= sync, "{gain} of {sync}");
    assert!(of(Mechanism::PrepareCompute).next().is_none(), "spinning is no work: {causes:#?}");
}

#[test]
fn what_a_run_after_a_synchronise_does_gives_back_no_more_than_what_it_does_elsewhere() {
    // Steps of 100 ms in which Python runs for 10 ms after the synchronise, then one in which it runs for 85 ms.
    let mut trace = trace();
    let mut gaps = Vec::new();
    for step in 0..10 {
        let (start, waits) = (step * 100 * MS, if step < 9 { 90 * MS } else { 5 * MS });
        let end = if step < 9 { start + 100 * MS } else { start + 90 * MS };
        trace = trace
            .samples(FEEDER, start, start + waits, &["libcuda.so.1!spin"])
            .samples(FEEDER, start + waits, end, &["python3!step"])
            .call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", start, start + waits)
            .submits(FEEDER, end, end, 1);
        gaps.push((start + waits, end));
    }
    let timeline = build(trace.records());
    let causes = attribute(&timeline, &idle(&timeline, FEEDER, &gaps)).causes;
    let of = |mechanism| causes.iter().filter(move |c| c.mechanism == mechanism);
    let sums =
        |mechanism| (of(mechanism).map(|c| c.ns).sum::<u64>(), of(mechanism).map(|c| c.gain_ns).sum::<u64>());
    let (python, python_gain) = sums(Mechanism::PreparePython);
    assert!(sums(Mechanism::LaunchSync).0 > 0 && python > 0, "{causes:#?}");
    assert!(python_gain <= python, "{python_gain} of {python}: {causes:#?}");
}

#[test]
fn what_back_to_back_launches_take_is_not_given_back_as_the_python_that_makes_them() {
    // All second long: 0.8 s of the device's idle time too fine to be placed, and one gap while the thread does more.
    let timeline = build(trace().samples(FEEDER, 0, 1000 * MS, &["python3!launch"]).records());
    let between = UnplacedIdle {
        span: Span::new(0, 1000 * MS),
        ns: 800 * MS,
        reason: "between submits".into(),
        launch_bound: true,
        in_waits: false,
        feeder: Some(key(FEEDER)),
    };
    let placed = idle(&timeline, FEEDER, &[(500 * MS, 520 * MS)]);
    let idle = DeviceIdle { busy_ns: 180 * MS, idle_ns: 820 * MS, unplaced: vec![between], ..placed };
    let causes = attribute(&timeline, &idle).causes;
    let of = |mechanism| causes.iter().filter(move |c| c.mechanism == mechanism);
    let gain = |mechanism| of(mechanism).map(|c| c.gain_ns).sum::<u64>();
    assert_eq!(of(Mechanism::PreparePython).map(|c| c.ns).sum::<u64>(), 20 * MS, "{causes:#?}");
    // Without the launches the thread is done in 200 ms.
    assert_eq!(gain(Mechanism::LaunchBound), 800 * MS, "{causes:#?}");
    assert!(gain(Mechanism::PreparePython) <= 200 * MS, "{causes:#?}");
}

#[test]
fn a_kernel_thread_without_work_holds_nothing_up() {
    const KWORKER: u32 = 90;
    // Steps of 100 ms: 60 ms for the disk, 5 ms for work of the kernel's, then the device is busy.
    let mut trace = trace().thread(KWORKER, KWORKER, "kworker/0:1");
    let mut gaps = Vec::new();
    for step in 0..10 {
        let start = step * 100 * MS;
        let (read, done) = (start + 60 * MS, start + 65 * MS);
        trace = trace
            .wait(FEEDER, start, read, read, |w| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT))
            .wait(FEEDER, read, done, done, |w| w.futex(0x500, 0).woken_by(KWORKER))
            .wait(KWORKER, start.saturating_sub(35 * MS), read, read, |w| {
                w.with(|off| off.state = State::Idle).interrupt(TIMER)
            })
            .samples(KWORKER, read, done, &["work"])
            .submits(FEEDER, done, done, 1);
        gaps.push((start, done));
    }
    let timeline = build(trace.records());
    let causes = attribute(&timeline, &idle(&timeline, FEEDER, &gaps)).causes;
    let reads = causes.iter().filter(|c| c.mechanism == Mechanism::StorageRead);
    let gain: u64 = reads.map(|c| c.gain_ns).sum();
    assert!((550 * MS..=650 * MS).contains(&gain), "{gain}: {causes:#?}");
}

#[test]
fn a_disk_that_others_keep_busy_holds_nothing_up() {
    // Steps of 100 ms with a sleep of 50; the host's disk has a request in flight all the time.
    let gain = |reads: bool| {
        let busy = BlockTotal {
            span: Span::new(0, 1000 * MS),
            dev: 8 << 20,
            reads: 99,
            busy_ns: 1000 * MS,
            ..BlockTotal::default()
        };
        let mut trace = trace().record(Record::Block(busy));
        let mut gaps = Vec::new();
        for step in 0..10 {
            let (start, end) = (step * 100 * MS, step * 100 * MS + 50 * MS);
            trace = trace
                .wait(FEEDER, start, end, end, |w| {
                    let sleep = [0, 0, 0, 0, 0, 0];
                    w.syscall(libc::SYS_clock_nanosleep, sleep).interrupt(TIMER)
                })
                .submits(FEEDER, end, end, 1);
            if reads {
                trace = trace.wait(FEEDER, end, end + 20 * MS, end + 20 * MS, |w| {
                    w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT)
                });
            }
            gaps.push((start, end));
        }
        let timeline = build(trace.records());
        let causes = attribute(&timeline, &idle(&timeline, FEEDER, &gaps)).causes;
        let sleeps = causes.iter().filter(|c| c.mechanism == Mechanism::TimerSleep);
        sleeps.map(|c| c.gain_ns).sum::<u64>()
    };
    assert_eq!(gain(false), 500 * MS);
    // What the job itself waits for may be the next to hold it up.
    assert_eq!(gain(true), 0);
}

#[test]
fn a_gap_that_comes_once_gives_back_what_its_chain_says() {
    // The device is busy but once, when a worker reads a file for the first time.
    let waits = |trace: TraceBuilder, from: Ns, to: Ns| {
        trace
            .call(FEEDER, CudaFamily::Synchronize, "cuCtxSynchronize", from, to)
            .samples(FEEDER, from, to, &["libcuda.so.1!spin"])
            .wait(WORKER, from, to - 20 * MS, to - 20 * MS, |w| w.read(5, PIPE).woken_by(FEEDER))
    };
    let read = |w: Wait| w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT);
    let trace = waits(waits(trace(), 0, 500 * MS), 600 * MS, 1000 * MS)
        .wait(WORKER, 480 * MS, 600 * MS, 600 * MS, read)
        .wait(FEEDER, 500 * MS, 600 * MS, 600 * MS, |w| w.read(3, PIPE).woken_by(WORKER));
    let timeline = build(trace.records());
    let causes = attribute(&timeline, &idle(&timeline, FEEDER, &[(500 * MS, 600 * MS)])).causes;
    let reads = causes.iter().filter(|c| c.mechanism == Mechanism::StorageRead);
    assert_eq!(reads.map(|c| (c.ns, c.gain_ns)).collect::<Vec<_>>(), [(100 * MS, 100 * MS)], "{causes:#?}");
    let note = causes[0].note.as_ref().unwrap();
    assert!(note.contains("from 0 s by the operational law to 0.10 s"), "{note}");
}
