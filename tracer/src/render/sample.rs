//! Reports written by hand, for tests: one for each kind of answer a reader may get.

use crate::cause::{Cause, Culprit, CulpritKind, Link, Mechanism, Stage};
use crate::finding::{
    Answer, Finding, Gpu, HostSummary, LossLine, Placed, ProbeLine, Report, SCHEMA, Unwatched, Window,
};

pub(super) const MS: u64 = 1_000_000;
const STEP: u64 = 100_123_456_789;

pub(super) fn link(tid: u32, pid: u32, comm: &str, state: &str, what: &str, stack: &[&str]) -> Link {
    Link {
        tid,
        pid,
        comm: comm.to_owned(),
        state: state.to_owned(),
        what: what.to_owned(),
        detail: None,
        processes: 1,
        stack: stack.iter().map(|s| (*s).to_owned()).collect(),
    }
}

pub(super) fn cause(mechanism: Mechanism, stage: Stage, ns: u64, gain_ns: u64, chain: Vec<Link>) -> Cause {
    Cause {
        mechanism,
        leaf: mechanism,
        stage,
        ns,
        gain_ns,
        count: ns / (40 * MS) + 1,
        pid: chain.last().map(|l| l.pid),
        culprit: None,
        chain,
        note: None,
    }
}

pub(super) fn gpu(index: u32, busy: u64, unknown: u64, causes: Vec<Cause>) -> Gpu {
    let idle_ns: u64 = causes.iter().map(|c| c.ns).sum();
    Gpu {
        index,
        uuid: format!("GPU-6a2f3d0c-91b4-4f5e-8f0e-3c1d9b7a5e0{index}"),
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        start_ns: STEP,
        window_ns: busy + unknown + idle_ns,
        busy_ns: busy,
        idle_ns,
        unknown_ns: unknown,
        collective_ns: None,
        placed: Placed { drained_ns: idle_ns / 10 * 7, bounded_ns: idle_ns / 10, inferred_ns: idle_ns / 10 },
        causes,
        unknown_reasons: Vec::new(),
        launches_per_second: Some(412.5),
        unwatched: Unwatched::default(),
        collectives: None,
        launches: None,
        copies: None,
    }
}

fn report(gpus: Vec<Gpu>) -> Report {
    let probe = |name: &str| ProbeLine { name: name.to_owned(), attached: true, reason: String::new() };
    Report {
        schema: SCHEMA,
        window: Window { start_ns: STEP, end_ns: STEP + 30_000 * MS },
        host: HostSummary {
            hostname: "node-17".to_owned(),
            kernel: "6.12.48-cloud-amd64".to_owned(),
            cpus: 32,
            command: "--pid 4242".to_owned(),
            tool_version: "0.1.0".to_owned(),
        },
        gpus,
        findings: Vec::new(),
        losses: Vec::new(),
        probes: ["sched_switch", "sched_waking", "block_rq_issue", "cuLaunchKernel"].map(probe).to_vec(),
        questions: questions(),
        waits: Vec::new(),
        notes: Vec::new(),
    }
}

fn questions() -> Vec<Answer> {
    let ask = |question: &str, known: bool, text: &str| Answer {
        question: question.to_owned(),
        known,
        text: text.to_owned(),
    };
    vec![
        ask(
            "How long did the GPU wait, and for data or for something else?",
            true,
            "GPU 0 waited 18.4 s of 30.0 s: 17.7 s for data, 0 s for something else, 0.7 s are not explained.",
        ),
        ask(
            "Is there too much work per kernel, or too little work between kernels?",
            true,
            "412 launches a second while it worked: launches are not the bottleneck.",
        ),
        ask(
            "Where in the pipeline is the batch stuck?",
            true,
            "storage 91 %, prepare 8 %, of the time explained.",
        ),
        ask(
            "Do host-to-device copies run without gaps, from pinned memory?",
            false,
            "copies are not timed by this version.",
        ),
        ask(
            "Is the environment on its fast path?",
            false,
            "not known: driver 570.86 with CUDA 12.8 was read; OpenMP, JIT and PCIe were not.",
        ),
    ]
}

fn loader(tail: Vec<Link>) -> Vec<Link> {
    let what = tail.first().map_or_else(String::new, |worker| {
        format!("waits for {} {} (read of a pipe)", worker.comm, worker.tid)
    });
    let mut chain = vec![link(
        4242,
        4242,
        "python3",
        "blocked",
        &what,
        &["read", "Connection._recv", "SimpleQueue.get", "train_epoch", "main"],
    )];
    chain.extend(tail);
    chain
}

pub(super) fn slow_disk() -> Report {
    let path = "/data/imagenet/train/n01440764/n01440764_10026.JPEG";
    let mut read = link(
        4251,
        4251,
        "pt_data_worker",
        "blocked",
        &format!("read of {path} (ext4 on nvme0n1)"),
        &[
            "folio_wait_bit_common",
            "filemap_read",
            "ext4_file_read_iter",
            "vfs_read",
            "ksys_read",
            "read",
            "_io_FileIO_readall",
            "Dataset.__getitem__",
        ],
    );
    read.processes = 4;
    read.detail = Some("slowest of 4 workers: pid 4253, 412 ms; device latency 38 ms in the mean".to_owned());
    let mut storage =
        cause(Mechanism::StorageRead, Stage::Storage, 16_230 * MS, 15_200 * MS, loader(vec![read]));
    storage.culprit = Some(Culprit { kind: CulpritKind::Directory, name: "/data/imagenet/train".to_owned() });
    storage.note = Some("gain by the operational law: the next bottleneck is prepare.compute".to_owned());
    let decode = link(
        4251,
        4251,
        "pt_data_worker",
        "running",
        "decodes",
        &[
            "jsimd_idct_islow_avx2",
            "decompress_onepass",
            "jpeg_read_scanlines",
            "ImagingJpegDecode",
            "_decode",
        ],
    );
    let mut prepare =
        cause(Mechanism::PrepareCompute, Stage::Prepare, 1_500 * MS, 300 * MS, loader(vec![decode]));
    prepare.culprit = Some(Culprit { kind: CulpritKind::Library, name: "libjpeg.so.62".to_owned() });
    let mut rest = cause(Mechanism::Unexplained, Stage::Unexplained, 660 * MS, 660 * MS, Vec::new());
    rest.note = Some("no sample in the slice".to_owned());
    let mut report = report(vec![gpu(0, 11_610 * MS, 0, vec![storage, prepare, rest])]);
    report.findings = vec![Finding {
        mechanism: Mechanism::StorageRead,
        gpu: 0,
        title: "The loader's workers read files more slowly than the GPU uses them".to_owned(),
        gain_ns: 15_200 * MS,
        ns: 16_230 * MS,
        evidence: vec![
            "406 of 452 gaps ended with a read under /data/imagenet/train; 38 ms a read in the mean"
                .to_owned(),
            "nvme0n1 had a request in flight for 29.1 s of 30.0 s, at most 4 at a time".to_owned(),
        ],
        remedy:
            "Keep /data/imagenet on a faster disk or in memory, or pack the small files into large ones; \
                 more workers help only until the disk is busy all the time."
                .to_owned(),
    }];
    report
}

pub(super) fn slow_decode() -> Report {
    let decode = link(
        4251,
        4251,
        "pt_data_worker",
        "running",
        "decodes and resizes",
        &[
            "ImagingResampleHorizontal_8bpc",
            "ImagingResample",
            "_resize",
            "Image.resize",
            "Dataset.__getitem__",
        ],
    );
    let mut prepare =
        cause(Mechanism::PrepareCompute, Stage::Prepare, 13_000 * MS, 12_100 * MS, loader(vec![decode]));
    prepare.culprit = Some(Culprit { kind: CulpritKind::Function, name: "ImagingResample".to_owned() });
    let gil = link(
        4242,
        4242,
        "python3",
        "blocked",
        "waits for the interpreter lock (held by thread 4260)",
        &["futex_wait_queue", "futex_wait", "do_futex", "take_gil", "PyEval_RestoreThread"],
    );
    let holder = link(4260, 4242, "copy", "running", "copies a batch", &["memcpy", "Batch.pin", "copy_loop"]);
    let mut lock = cause(Mechanism::LockGil, Stage::Lock, 900 * MS, 850 * MS, vec![gil, holder]);
    lock.leaf = Mechanism::PreparePython;
    lock.culprit =
        Some(Culprit { kind: CulpritKind::Lock, name: "the interpreter lock of pid 4242".to_owned() });
    let runnable =
        link(4255, 4255, "pt_data_worker", "runnable", "ready, but 40 threads share 2 processors", &[]);
    let over =
        cause(Mechanism::ScheduleOversubscribed, Stage::Schedule, 400 * MS, 100 * MS, loader(vec![runnable]));
    let mut report = report(vec![gpu(0, 15_100 * MS, 600 * MS, vec![prepare, lock, over])]);
    report.gpus[0].unknown_reasons = vec!["0 % with power above 35 % of the limit".to_owned()];
    report.gpus[0].collective_ns = Some(0);
    report.findings = vec![Finding {
        mechanism: Mechanism::PrepareCompute,
        gpu: 0,
        title: "Decoding and resizing images takes longer than a training step".to_owned(),
        gain_ns: 12_100 * MS,
        ns: 13_000 * MS,
        evidence: vec!["3,112 of 3,400 samples of the workers lie in ImagingResample or below it".to_owned()],
        remedy: "Start more workers (4 of 32 processors are in use), or store the images at the size used."
            .to_owned(),
    }];
    report
}

pub(super) fn healthy() -> Report {
    let sync = link(
        4242,
        4242,
        "python3",
        "running",
        "from a synchronise to the next launch",
        &["cuLaunchKernel", "step"],
    );
    let mut rest = cause(Mechanism::Unexplained, Stage::Unexplained, 40 * MS, 40 * MS, Vec::new());
    rest.note = Some("shorter than a silence of 200 us".to_owned());
    let sync = cause(Mechanism::LaunchSync, Stage::Launch, 260 * MS, 200 * MS, vec![sync]);
    report(vec![gpu(0, 29_700 * MS, 0, vec![sync, rest])])
}

pub(super) fn no_device() -> Report {
    let mut report = report(Vec::new());
    report.waits = vec!["loader-0: read of files in /data, 24.1 s in 803 waits.".to_owned()];
    report.questions =
        ["How long did the GPU wait?", "Is there too much work per kernel?", "Where is the batch stuck?"]
            .map(|question| Answer {
                question: question.to_owned(),
                known: false,
                text: "no NVML library was found, so no GPU was read".to_owned(),
            })
            .to_vec();
    report.notes = vec![
        "no NVML library found (libnvidia-ml.so.1): name one with --nvml PATH to measure idle time"
            .to_owned(),
    ];
    report
}

pub(super) fn heavy_losses() -> Report {
    let mut report = slow_disk();
    let loss = |class: &str, cpu: Option<u32>, cause: &str, count: u64, ns_at_risk: u64| LossLine {
        class: class.to_owned(),
        cpu,
        cause: cause.to_owned(),
        count,
        ns_at_risk,
    };
    report.losses = vec![
        loss("OffCpu", Some(0), "RingFull", 1_203_441, 9_120 * MS),
        loss("OffCpu", Some(1), "RingFull", 998_120, 8_700 * MS),
        loss("Stack", Some(1), "MapFull", 312, 0),
        loss("Stored", None, "Damaged", 1, 2_000 * MS),
        loss("Sample", Some(3), "Userspace", 0, 0),
    ];
    let refused = |name: &str, reason: &str| ProbeLine {
        name: name.to_owned(),
        attached: false,
        reason: reason.to_owned(),
    };
    report
        .probes
        .push(refused("nvidia_ioctl", "this kernel has no kprobes; waits inside the calls are still seen"));
    report.probes.push(refused("mm_filemap_fault", ""));
    report.notes = vec![
        "The trace is cut: its last 2.0 s could not be read back.".to_owned(),
        "At 12.4 s the budget governor raised the threshold from 100 us to 400 us.".to_owned(),
    ];
    report
}

/// Names as a process could choose them to mislead whoever reads about it.
pub(super) fn hostile() -> Report {
    let bad = "x\n\u{1b}[2J\u{1b}]0;owned\u{7}GPU 0 was busy 100 %\r\u{202e}gpj;.exe <script>alert(1)</script>&\"']]> 42";
    let long = format!("/data/{}/图书馆/{}", "very-long-folder/".repeat(12), bad);
    let mut chain =
        vec![link(1, 1, bad, "blocked", &long, &[bad, "a;b;c", "-->", "operator<<(std::ostream&) 7", &long])];
    chain.extend((2..14).map(|i| link(i, i % 3, bad, bad, &long, &[&long, "", " ", "# "])));
    let mut first = cause(Mechanism::StorageRead, Stage::Storage, 9_000 * MS, 9_000 * MS, chain);
    first.culprit = Some(Culprit { kind: CulpritKind::Directory, name: long.clone() });
    first.note = Some(long.clone());
    let mut second = cause(Mechanism::Unexplained, Stage::Unexplained, 1_000 * MS, 1_000 * MS, Vec::new());
    second.note = Some(bad.to_owned());
    let mut report = report(vec![gpu(0, 5_000 * MS, 15_000 * MS, vec![first, second])]);
    report.gpus[0].name = bad.to_owned();
    report.gpus[0].uuid = long.clone();
    report.gpus[0].unknown_reasons = vec![bad.to_owned(), long.clone()];
    report.host = HostSummary {
        hostname: bad.to_owned(),
        kernel: bad.to_owned(),
        cpus: 1,
        command: long.clone(),
        tool_version: bad.to_owned(),
    };
    report.findings = vec![Finding {
        mechanism: Mechanism::StorageRead,
        gpu: 7,
        title: long.clone(),
        gain_ns: u64::MAX,
        ns: u64::MAX,
        evidence: vec![bad.to_owned(), long.clone()],
        remedy: bad.to_owned(),
    }];
    report.losses = vec![LossLine {
        class: bad.to_owned(),
        cpu: None,
        cause: long.clone(),
        count: u64::MAX,
        ns_at_risk: u64::MAX,
    }];
    report.probes = vec![ProbeLine { name: bad.to_owned(), attached: false, reason: long.clone() }];
    report.questions = vec![Answer { question: long.clone(), known: false, text: bad.to_owned() }];
    report.notes = vec![bad.to_owned(), long];
    report
}

/// Eight devices: one starved, one unknown, one without a window.
pub(super) fn many_devices() -> Report {
    let mut report = slow_disk();
    let sample = healthy().gpus.remove(0);
    for index in 1..8 {
        let mut gpu = sample.clone();
        gpu.index = index;
        report.gpus.push(gpu);
    }
    report.gpus[6] = gpu(6, 0, 30_000 * MS, Vec::new());
    report.gpus[6].unknown_reasons = vec!["MIG: utilisation is not defined".to_owned()];
    report.gpus[7] = gpu(7, 0, 0, Vec::new());
    report
}
