//! The simulated NCCL's rules: a collective's kernel spins until all ranks have begun theirs.

use std::time::Duration;

use gpu_sim_timeline::clock;
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::library::Library;

const MS: u64 = 1_000_000;
const BLOCKING_SYNC: usize = 4;
const NOT_READY: i32 = 600;
const FLOAT: usize = 7;

struct Ranks {
    device: SimulatedDevice,
    cuda: Library,
    nccl: Library,
    contexts: Vec<usize>,
    communicators: Vec<usize>,
    streams: Vec<usize>,
}

impl Ranks {
    /// Of one process, a device each.
    fn new(count: usize, flags: usize) -> Self {
        let device = SimulatedDevice::new(&[("WHYIDLE_SIM_DEVICES", &count.to_string())]);
        let (cuda, nccl) = (Library::load(&device.cuda()), Library::load(&device.nccl()));
        cuda.ok("cuInit", &[0]);
        let mut contexts = Vec::new();
        let mut streams = Vec::new();
        for at in 0..count {
            cuda.ok("cuDevicePrimaryCtxSetFlags_v2", &[at, flags]);
            contexts.push(cuda.made("cuDevicePrimaryCtxRetain", &[at]));
            cuda.ok("cuCtxSetCurrent", &[contexts[at]]);
            streams.push(cuda.stream());
        }
        let mut communicators = vec![0_usize; count];
        nccl.ok("ncclCommInitAll", &[communicators.as_mut_ptr().addr(), count, 0]);
        Self { device, cuda, nccl, contexts, communicators, streams }
    }

    fn all_reduce(&self, rank: usize) {
        let (comm, stream) = (self.communicators[rank], self.streams[rank]);
        self.nccl.ok("ncclAllReduce", &[0, 0, 1024, FLOAT, 0, comm, stream]);
    }

    fn synchronize(&self, rank: usize) {
        self.cuda.ok("cuCtxSetCurrent", &[self.contexts[rank]]);
        self.cuda.ok("cuStreamSynchronize", &[self.streams[rank]]);
    }

    fn busy(&self) -> Vec<u64> {
        let truth = self.device.timeline().truth().expect("readable");
        truth.iter().map(|t| t.busy_ns(0, u64::MAX)).collect()
    }
}

#[test]
fn the_first_rank_spins_until_the_last_has_come() {
    for flags in [0, BLOCKING_SYNC] {
        let ranks = Ranks::new(2, flags);
        let begun = clock::now();
        ranks.all_reduce(0);
        let event = ranks.cuda.made("cuEventCreate", &[0]);
        ranks.cuda.ok("cuEventRecord", &[event, ranks.streams[0]]);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(ranks.cuda.call("cuStreamQuery", &[ranks.streams[0]]), NOT_READY);
        assert_eq!(ranks.cuda.call("cuEventQuery", &[event]), NOT_READY);
        let so_far = ranks.busy();
        assert!(so_far[0] >= 60 * MS && so_far[1] == 0, "{so_far:?}");
        let came = clock::now();
        ranks.all_reduce(1);
        ranks.synchronize(0);
        ranks.synchronize(1);
        ranks.cuda.ok("cuEventSynchronize", &[event]);
        let busy = ranks.busy();
        // It began at the earliest when it was submitted, and both ended together.
        assert!(busy[0] >= busy[1] + 60 * MS && busy[0] <= clock::now() - begun, "{busy:?}");
        assert!(busy[1] > 0 && busy[1] <= clock::now() - came, "{busy:?}");
    }
}

#[test]
fn work_behind_a_collective_waits_for_it_and_other_streams_do_not() {
    let ranks = Ranks::new(2, BLOCKING_SYNC);
    ranks.cuda.ok("cuCtxSetCurrent", &[ranks.contexts[0]]);
    let (kernel, other) = (ranks.cuda.function("k_30ms"), ranks.cuda.stream());
    ranks.all_reduce(0);
    ranks.cuda.launch(kernel, [1; 3], ranks.streams[0]);
    let waits = ranks.cuda.made("cuEventCreate", &[0]);
    ranks.cuda.ok("cuEventRecord", &[waits, ranks.streams[0]]);
    ranks.cuda.launch(kernel, [1; 3], other);
    ranks.cuda.ok("cuStreamSynchronize", &[other]);
    // What follows on the other stream waits for the event behind the collective.
    ranks.cuda.ok("cuStreamWaitEvent", &[other, waits, 0]);
    ranks.cuda.launch(kernel, [1; 3], other);
    assert_eq!(ranks.cuda.call("cuStreamQuery", &[other]), NOT_READY);
    let came = clock::now();
    ranks.all_reduce(1);
    ranks.cuda.ok("cuCtxSynchronize", &[]);
    assert!(clock::now() - came >= 60 * MS, "one kernel after the collective, one after that");
    assert!(ranks.busy()[0] >= 60 * MS);
}

#[test]
fn a_group_launches_when_it_ends() {
    let ranks = Ranks::new(2, 0);
    ranks.nccl.ok("ncclGroupStart", &[]);
    ranks.all_reduce(0);
    ranks.all_reduce(1);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(ranks.busy(), [0, 0]);
    ranks.nccl.ok("ncclGroupEnd", &[]);
    ranks.synchronize(0);
    ranks.synchronize(1);
    assert!(ranks.busy().iter().all(|b| *b > 0));
    // A message has two parties, the other ranks none.
    ranks.nccl.ok("ncclGroupStart", &[]);
    ranks.nccl.ok("ncclSend", &[0, 1024, FLOAT, 1, ranks.communicators[0], ranks.streams[0]]);
    ranks.nccl.ok("ncclRecv", &[0, 1024, FLOAT, 0, ranks.communicators[1], ranks.streams[1]]);
    ranks.nccl.ok("ncclGroupEnd", &[]);
    ranks.synchronize(0);
    ranks.synchronize(1);
}
