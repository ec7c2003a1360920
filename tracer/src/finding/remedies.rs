//! What to say about each mechanism: a title, and what to change.

use crate::cause::Mechanism;

/// What happens, in words that the culprit's name can follow.
pub(super) fn title(mechanism: Mechanism) -> &'static str {
    row(mechanism).0
}

/// What to change.
pub(super) fn remedy(mechanism: Mechanism) -> &'static str {
    row(mechanism).1
}

fn row(mechanism: Mechanism) -> (&'static str, &'static str) {
    match mechanism {
        Mechanism::StorageRead => (
            "the GPU waits for reads from storage",
            "Read less or earlier: larger sequential reads (records packed into shards), a local or faster disk (or a higher I/O limit), \
             the data set in memory, or deeper prefetching. More workers help only while the disk has room.",
        ),
        Mechanism::StorageFault => (
            "the GPU waits for page faults on a mapped file",
            "Where the requests are small, read the file in large sequential reads instead of touching a mapping page by \
             page, or populate the mapping first (MAP_POPULATE, madvise WILLNEED); where they are large, a faster disk \
             or a higher I/O limit.",
        ),
        Mechanism::StorageMetadata => (
            "the GPU waits for opening and looking up files",
            "Pack many small files into few large ones, keep the list of files instead of walking directories, and \
             leave files open.",
        ),
        Mechanism::StorageWrite => (
            "the GPU waits for writes to reach storage",
            "Write checkpoints and logs from another thread or process, less of them or less often, or to a faster disk; \
             where the chain waits in fsync, drop that if a lost file costs little.",
        ),
        Mechanism::NetworkRead => (
            "the GPU waits for data from the network",
            "Fetch ahead and in parallel, keep a local copy or cache, or move the service nearer.",
        ),
        Mechanism::NetworkFs => (
            "the GPU waits for a remote file system",
            "Copy the data to a local disk first, or pack small files into large ones so that each round trip brings \
             more; then raise read-ahead. More workers only hide latency while the server has room.",
        ),
        Mechanism::PreparePython => (
            "the GPU waits for Python code",
            "Replace loops over elements by vectorised calls, move the work out of the step (precompute it), or \
             spread it over processes.",
        ),
        Mechanism::PrepareCompute => (
            "the GPU waits for data to be prepared",
            "Do less of the named work in the loop: prepare once and store the result, decode only to the size that is \
             needed, use a faster library, or do it on the GPU. Or do it earlier: more processes, while processors are \
             free.",
        ),
        Mechanism::MemoryFault => (
            "the GPU waits for fresh memory to be zeroed",
            "Reuse buffers instead of allocating them each step (an allocator that keeps memory, pinned pools), or use \
             huge pages for large ones.",
        ),
        Mechanism::MemoryReclaim => (
            "the GPU waits while the kernel frees memory",
            "Raise the memory limit or use less: fewer workers, a smaller prefetch depth, no copies of the data set.",
        ),
        Mechanism::MemorySwap => (
            "the GPU waits for swapped-out memory",
            "Keep the working set in memory: raise the limit, use less, or lower swappiness.",
        ),
        Mechanism::CopyPageable => (
            "the GPU waits for copies from pageable memory",
            "Copy from pinned memory, asynchronously, on a stream of its own.",
        ),
        Mechanism::CopyTransfer => (
            "the GPU waits for a transfer without work beside it",
            "Overlap the copy with kernels: another stream, double buffering, and smaller results copied back.",
        ),
        Mechanism::LaunchBound => (
            "the GPU waits for launches: kernels are shorter than the calls that start them",
            "Put more work into each launch: larger batches, fused kernels (a compiler), or CUDA graphs.",
        ),
        Mechanism::LaunchSync => (
            "the GPU waits because the host synchronises before it submits again",
            "Do not read results back every step: keep losses and metrics on the device, log every N steps, and use \
             asynchronous copies.",
        ),
        Mechanism::DeviceGap => (
            "the GPU stood still with work queued",
            "Look at dependencies between streams and at events that order them more than is needed.",
        ),
        Mechanism::DriverIoctl => (
            "the GPU waits for a call into the driver",
            "Find the call in the chain's stack and take it out of the step: create streams, events and mappings once.",
        ),
        Mechanism::DriverAlloc => (
            "the GPU waits for device memory to be allocated or freed",
            "Do not empty the allocator's cache in the loop; allocate once and reuse, or use the stream-ordered \
             allocator.",
        ),
        Mechanism::DriverLoad => (
            "the GPU waits for kernels to be loaded or compiled",
            "Warm up before measuring, load eagerly, ship binaries for this GPU so that nothing is compiled at run \
             time, and keep the compiler's cache.",
        ),
        Mechanism::DriverLock => (
            "the GPU waits for a driver lock that another process holds",
            "Find the holder in the chain: monitors that poll often, or another job that allocates on this host; \
             let it ask less often.",
        ),
        Mechanism::ScheduleContention => (
            "the GPU waits for a processor that other programs use",
            "Move the other programs away or lower their priority; reserve processors for this job.",
        ),
        Mechanism::ScheduleOversubscribed => (
            "the GPU waits because the job has more runnable threads than processors",
            "Limit the pools: OMP_NUM_THREADS (and the library's own setting) to processors divided by processes, \
             fewer workers.",
        ),
        Mechanism::ScheduleAffinity => (
            "the GPU waits because threads may not use idle processors",
            "Widen the affinity mask: check what sets it (taskset, the batch system, a library that pins the main \
             thread before workers are forked).",
        ),
        Mechanism::ScheduleThrottled => (
            "the GPU waits because the job's processor quota is used up",
            "Raise the quota, or start only as many threads as it pays for; libraries count the host's processors, \
             not the quota's.",
        ),
        Mechanism::ScheduleSteal => (
            "the GPU waits because the hypervisor runs another guest",
            "Ask for dedicated processors, or move the machine.",
        ),
        Mechanism::LockFutex => (
            "the GPU waits for a lock in user space",
            "Hold the lock for less, or split it; the chain names the holder and what it did meanwhile.",
        ),
        Mechanism::LockGil => (
            "the GPU waits for Python's interpreter lock",
            "Move the thread that holds it into a process of its own, or into code that releases the lock.",
        ),
        Mechanism::LockKernel => (
            "the GPU waits for a lock inside the kernel",
            "The chain names the holder and its system call: fewer threads mapping memory or writing one file at once.",
        ),
        Mechanism::PeerCollective => (
            "the GPU waits for another rank",
            "Look at the named rank's own first cause; balance the work between ranks.",
        ),
        Mechanism::IpcWait => (
            "the GPU waits for a process that was not watched",
            "Watch the named process too (--pid), to see what it was waiting for.",
        ),
        Mechanism::TimerSleep => (
            "the GPU waits for a sleep that a program asked for",
            "Wait for the event itself instead of polling with a sleep; the stack names the caller. Where it is another \
             program that sleeps before it answers, ask it earlier, or mend that one.",
        ),
        Mechanism::ProcessSpawn => (
            "the GPU waits for processes to start",
            "Keep workers alive between epochs (persistent workers), fork from a process that has imported \
             everything, or import less in workers.",
        ),
        Mechanism::ProcessStopped => (
            "the GPU waits for a stopped process",
            "Find who stopped it: a debugger, SIGSTOP, or the freezer of its control group.",
        ),
        Mechanism::NoDemand => ("nothing was asked of the GPU", "Nothing to change: there was no work."),
        Mechanism::Unexplained => {
            ("not explained", "Record for longer, or with the probes that were missing.")
        }
    }
}
