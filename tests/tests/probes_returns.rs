//! Driver calls where returns may not be probed: what is known of their ends, and what is not said.

use std::time::Duration;

use gpu_sim_timeline::clock;
use serial_test::file_serial;
use whyidle::trace::CudaFamily;
use whyidle_tests::board::Board;
use whyidle_tests::calls::{calls, groups, runs, sums_hold, watched_at};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::library::Library;

const MS: u64 = 1_000_000;

#[test]
#[file_serial(probes)]
fn without_returns_a_call_was_over_by_the_threads_next() {
    let (device, board) = (SimulatedDevice::new(&[]), Board::new());
    let prepare = |cuda: &Library| {
        let _context = cuda.context(4, 0);
        board.set(0, cuda.function("k_20ms") as u64);
        board.set(1, cuda.function("lazy30ms_k_1us") as u64);
    };
    let scenario = |cuda: &Library| {
        let [kernel, lazy] = [0, 1].map(|at| board.get(at) as usize);
        cuda.launch(kernel, [1; 3], 0);
        cuda.ok("cuCtxSynchronize", &[]);
        board.set(2, clock::now());
        std::thread::sleep(Duration::from_millis(30));
        board.set(3, clock::now());
        // Long, and nobody can tell from what follows: the thread does other things before its next call.
        cuda.launch(lazy, [1; 3], 0);
        let memory = cuda.made("cuMemAlloc_v2", &[64]);
        let mut back = [0_u8; 64];
        cuda.launch(kernel, [1; 3], 0);
        cuda.ok("cuMemcpyDtoH_v2", &[back.as_mut_ptr().expose_provenance(), memory, 64]);
        cuda.ok("cuStreamSynchronize", &[0]);
    };
    let Some(seen) = watched_at(&[&device.cuda()], false, prepare, scenario) else { return };
    sums_hold(&seen);
    let waits = calls(&seen, CudaFamily::Synchronize);
    assert_eq!(waits.len(), 2, "{waits:?}");
    let next = runs(&seen).iter().map(|r| r.first).filter(|at| *at > waits[0].entry).min();
    assert_eq!((waits[0].exit, waits[0].exit_by_next), (next, true), "{waits:?}");
    // It returned before the pause, and the record claims no more than that it had by its end.
    assert!(waits[0].exit.expect("over") > board.get(3) && board.get(3) - board.get(2) >= 30 * MS);
    assert_eq!((waits[0].returned(), waits[0].own_ns(), waits[0].result), (None, None, None));
    // The last has no next: when it was over is not known at all.
    assert_eq!((waits[1].exit, waits[1].exit_by_next, waits[1].returned()), (None, true, None));
    // A copy that waited for a kernel is worth a record, a launch is not, however long it took.
    let copies = calls(&seen, CudaFamily::Copy);
    assert_eq!(
        copies.iter().map(|c| (c.exit, c.exit_by_next)).collect::<Vec<_>>(),
        [(Some(waits[1].entry), true)]
    );
    assert_eq!(calls(&seen, CudaFamily::Launch).len(), 0);
    assert_eq!(runs(&seen).iter().map(|r| r.launches).sum::<u64>(), 3);
    assert!(groups(&seen).iter().all(|g| g.timed == 0 && g.call_ns == 0), "{:?}", groups(&seen));
}
