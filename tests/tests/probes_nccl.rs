//! Collectives on the simulated device, as the probes see them.

use std::time::Duration;

use serial_test::file_serial;
use whyidle::trace::{Collective, Record};
use whyidle_tests::board::Board;
use whyidle_tests::calls::{runs, sums_hold, watched};
use whyidle_tests::device::SimulatedDevice;
use whyidle_tests::library::Library;
use whyidle_tests::privileged::Child;

#[test]
#[file_serial(probes)]
fn collectives_say_who_meets_whom() {
    const FLOAT: usize = 7;
    let device = SimulatedDevice::new(&[("WHYIDLE_SIM_DEVICES", "2")]);
    let (board, paths) = (Board::new(), [device.cuda(), device.nccl()]);
    let libraries = [paths[0].as_path(), paths[1].as_path()];
    let scenario = |cuda: &Library| {
        let nccl = Library::load(&paths[1]);
        let mut id = [0_u64; 16];
        nccl.ok("ncclGetUniqueId", &[id.as_mut_ptr().addr()]);
        // Two processes with a rank each.
        let ranks = [0_usize, 1].map(|rank| {
            let mut child = Child::fork(|| {
                let _context = cuda.context(4, rank);
                let (stream, mut comm) = (cuda.stream(), 0_usize);
                init_rank(&nccl, &mut comm, 2, &id, rank);
                for _ in 0..3 {
                    nccl.ok("ncclAllReduce", &[0, 0, 1024, FLOAT, 0, comm, stream]);
                }
                nccl.ok("ncclReduce", &[0, 0, 1024, FLOAT, 0, 0, comm, stream]);
                nccl.ok("ncclGroupStart", &[]);
                nccl.ok("ncclAllGather", &[0, 0, 1024, FLOAT, comm, stream]);
                nccl.ok("ncclBroadcast", &[0, 0, 1024, FLOAT, 0, comm, stream]);
                nccl.ok("ncclGroupEnd", &[]);
                cuda.ok("cuStreamSynchronize", &[stream]);
                board.set(rank, stream as u64);
                board.set(2 + rank, comm as u64);
            });
            child.go();
            child
        });
        for mut rank in ranks {
            assert!(rank.finished(Duration::from_secs(30)), "the ranks meet");
        }
    };
    let Some(seen) = watched(&libraries, |_| {}, scenario) else { return };
    sums_hold(&seen);
    let all: Vec<&Collective> = seen
        .records
        .iter()
        .filter_map(|r| if let Record::Collective(c) = r { Some(c) } else { None })
        .collect();
    assert_eq!(all.len(), 12, "{all:?}");
    let names =
        ["ncclAllReduce", "ncclAllReduce", "ncclAllReduce", "ncclReduce", "ncclAllGather", "ncclBroadcast"];
    let id = all[0].group.expect("its birth was seen").id;
    for rank in 0..2 {
        let mine: Vec<_> =
            all.iter().filter(|c| c.group.is_some_and(|g| g.rank == rank && g.ranks == 2)).collect();
        assert_eq!(mine.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(mine.iter().map(|c| c.sequence).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        for c in &mine {
            assert_eq!((c.group.map(|g| g.id), c.stream), (Some(id), board.get(rank as usize)), "{c:?}");
            assert_eq!(c.communicator, board.get(2 + rank as usize));
            assert!(c.exit.is_some_and(|exit| exit >= c.entry));
        }
        assert_eq!((mine[4].entry, mine[4].exit), (mine[5].entry, mine[5].exit), "launched by their group");
        assert!(mine[3].exit.expect("seen") <= mine[4].entry);
        // The kernels they launch are launches like any other.
        let pid = mine[0].pid;
        assert_eq!(runs(&seen).iter().filter(|r| r.pid == pid).map(|r| r.launches).sum::<u64>(), 6);
    }
}

/// The unique id goes by value, which a call by words alone cannot.
fn init_rank(nccl: &Library, comm: &mut usize, ranks: usize, id: &[u64; 16], rank: usize) {
    #[repr(C)]
    struct UniqueId([u64; 16]);
    type Init = unsafe extern "C" fn(*mut usize, i32, UniqueId, i32) -> i32;
    let address = nccl.address("ncclCommInitRank");
    // SAFETY: an exported function of this signature.
    let init = unsafe { std::mem::transmute::<usize, Init>(address) };
    // SAFETY: valid pointers.
    assert_eq!(unsafe { init(comm, ranks as i32, UniqueId(*id), rank as i32) }, 0);
}
