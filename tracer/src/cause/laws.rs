//! Laws that hold for every trace.

use proptest::prelude::*;

use super::tests::{DISK_INTERRUPT, FEEDER, IMAGE, PAGE, PIPE, WORKER, idle, trace};
use super::{Ledger, attribute};
use crate::timeline::testing::{MS, TraceBuilder, Wait};
use crate::timeline::{Timeline, build};
use crate::trace::{CudaFamily, Ns};

/// One thing a thread does, for so many milliseconds, after so many on the processor.
#[derive(Clone, Debug)]
struct Act {
    run: u64,
    kind: u8,
    length: u64,
    peer: u32,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = (0..40_u64, 0..9_u8, 1..60_u64, 0..5_u32);
    proptest::collection::vec(
        act.prop_map(|(run, kind, length, peer)| Act { run, kind, length, peer }),
        0..24,
    )
}

/// Threads that may wake each other, the feeder first.
const THREADS: [u32; 5] = [FEEDER, WORKER, 21, 22, 11];

fn play(mut trace: TraceBuilder, tid: u32, acts: &[Act]) -> TraceBuilder {
    let mut at = 0;
    for act in acts {
        let start = at + act.run * MS;
        let end = start + act.length * MS;
        if end >= 1000 * MS {
            break;
        }
        let peer = THREADS[usize::try_from(act.peer).unwrap()];
        let waits = |w: Wait| match act.kind {
            0 => w.read(4, IMAGE).kernel(PAGE).interrupt(DISK_INTERRUPT),
            1 => w.futex(0x100, 0).woken_by(peer),
            2 => w.syscall(libc::SYS_futex, [0x200, 128, 2, 0, 0, 0]).woken_by(peer),
            3 => w,
            _ => w.read(3, PIPE).woken_by(peer),
        };
        trace = match act.kind {
            5 => trace.preempted(tid, start, end, |_| ()),
            6 => trace.call(tid, CudaFamily::Synchronize, "cuCtxSynchronize", start, end),
            7 => trace.total(tid, Some(peer), start, end, |t| {
                (t.syscall, t.blocked_ns, t.runnable_ns, t.count) = (202, act.length * MS / 2, MS / 3, 9);
            }),
            8 => trace
                .samples(tid, start, end, &["libc.so.6!memcpy", "python3.11!eval"])
                .submits(tid, end, end, 1),
            _ => trace.wait(tid, start, end - MS / 2, end, waits),
        };
        at = end;
    }
    trace
}

fn world(plays: &[Vec<Act>]) -> TraceBuilder {
    let mut trace =
        trace().thread(FEEDER, 11, "helper").thread(21, 21, "worker").born(22, 22, "worker", 120 * MS, 11);
    for (&tid, acts) in THREADS.iter().zip(plays) {
        trace = play(trace, tid, acts);
    }
    trace
}

fn attributed(timeline: &Timeline, gaps: &[(Ns, Ns)]) -> Ledger {
    attribute(timeline, &idle(timeline, FEEDER, gaps))
}

/// Gaps in order, not overlapping.
fn gaps() -> impl Strategy<Value = Vec<(Ns, Ns)>> {
    proptest::collection::vec((1..70_000_000_u64, 1..70_000_000_u64), 1..7).prop_map(|pairs| {
        let mut at = 0;
        pairs
            .into_iter()
            .map(|(busy, idle)| {
                let gap = (at + busy, at + busy + idle);
                at = gap.1;
                gap
            })
            .collect()
    })
}

fn plays() -> impl Strategy<Value = Vec<Vec<Act>>> {
    proptest::collection::vec(acts(), THREADS.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn causes_and_pieces_sum_to_the_idle_time_in_the_contracts_order(plays in plays(), gaps in gaps()) {
        let timeline = build(world(&plays).records());
        let ledger = attributed(&timeline, &gaps);
        let idle: u64 = gaps.iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(ledger.causes.iter().map(|c| c.ns).sum::<u64>(), idle);
        prop_assert_eq!(ledger.pieces.iter().map(|p| p.ns).sum::<u64>(), idle);
        for (i, cause) in ledger.causes.iter().enumerate() {
            let pieces: u64 = ledger.pieces.iter().filter(|p| p.cause == i).map(|p| p.ns).sum();
            prop_assert_eq!(pieces, cause.ns);
            prop_assert!(cause.gain_ns <= idle);
            prop_assert!(!cause.chain.is_empty());
        }
        prop_assert!(ledger.causes.windows(2).all(|pair| pair[0].ns >= pair[1].ns));
    }

    #[test]
    fn a_replay_is_identical(plays in plays(), gaps in gaps()) {
        let records = world(&plays).records();
        let first = attributed(&build(records.clone()), &gaps);
        prop_assert_eq!(first, attributed(&build(records), &gaps));
    }

    #[test]
    fn unrelated_threads_change_nothing(plays in plays(), gaps in gaps(), others in acts()) {
        let alone = attributed(&build(world(&plays).records()), &gaps);
        let beside = world(&plays).thread(70, 70, "other").thread(71, 71, "other");
        // They wait for disks, timers and each other, never for the job.
        let others: Vec<Act> = others.into_iter().map(|a| Act { kind: a.kind % 2 * 3, ..a }).collect();
        let beside = play(play(beside, 70, &others), 71, &others);
        let beside = attributed(&build(beside.records()), &gaps);
        prop_assert_eq!(alone.causes, beside.causes);
    }

    #[test]
    fn splitting_a_wait_into_rearmed_ones_changes_nothing(
        plays in plays(),
        gaps in gaps(),
        cut in 1..9_u64,
        by_timer: bool,
    ) {
        // The feeder's one long wait, whole and in two pieces with nothing on the processor between them.
        let mut plays = plays;
        plays[0].clear();
        let (start, end) = (50 * MS, 900 * MS);
        let middle = start + (end - start) * cut / 10;
        let last = |w: Wait| w.futex(0x300, 0).woken_by(WORKER);
        let whole = world(&plays).wait(FEEDER, start, end, end, last);
        let split = world(&plays)
            .bystander(90, 90, "passer-by")
            .wait(FEEDER, start, middle, middle, |w| {
                let wait = w.futex(0x300, 0);
                if by_timer { wait.interrupt(&["hrtimer_wakeup"]) } else { wait.woken_by(90) }
            })
            .wait(FEEDER, middle, end, end, last);
        let sum = |ledger: &Ledger| {
            let mut sums = std::collections::BTreeMap::new();
            for cause in &ledger.causes {
                let key = (cause.mechanism, cause.leaf, cause.culprit.clone());
                *sums.entry(key).or_insert(0) += cause.ns;
            }
            sums
        };
        let (whole, split) = (attributed(&build(whole.records()), &gaps), attributed(&build(split.records()), &gaps));
        prop_assert_eq!(sum(&whole), sum(&split));
    }
}
