//! What walking user stacks costs: kernel time of the programs that do it, by the kernel's own account, and memory for
//! the tables. The figures that `docs/performance.md` has are printed by these tests (`--nocapture`).

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serial_test::file_serial;
use tracer_ebpf::wire::Chunk;
use tracer_ebpf::wire::unwind::{SEGMENT_CHUNKS, SEGMENTS};
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Record, TargetKind};
use whyidle_tests::privileged::{attach, leaves_out};
use whyidle_tests::stacks::{CPP, CPP_POINTERS, Job, PYTHON, by_id, written};

const PATIENCE: Duration = Duration::from_secs(120);
const MEASURED: Duration = Duration::from_secs(4);

/// Kernel time for the job's own samples and waits, and what the samples found.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    sample_ns: f64,
    /// Its departure and its return.
    wait_ns: f64,
    /// Of a sample's user stack, on average.
    frames: f64,
    python_frames: f64,
}

impl Cost {
    fn print(&self, what: &str) {
        let Self { sample_ns, wait_ns, frames, python_frames } = self;
        println!(
            "{what}: {sample_ns:.0} ns a sample, {wait_ns:.0} a wait; {frames:.1} frames and {python_frames:.1} \
             Python functions a sample"
        );
    }
}

const NAMES: [&str; 2] = ["cpu_sample", "sched_switch"];

/// Kernel time and runs of the two programs.
fn so_far(tracer: &Tracer) -> [(u64, u64); 2] {
    let all = tracer.run_times();
    NAMES.map(|name| {
        all.iter().find(|(n, ..)| n == name).map(|(_, ns, runs)| (*ns, *runs)).expect("a program")
    })
}

/// Takes records until `until` says so, and of the two programs what they took meanwhile.
fn take(tracer: &mut Tracer, records: &mut Vec<Record>, until: impl Fn(&Tracer) -> bool) -> [(f64, f64); 2] {
    let (begun, before) = (Instant::now(), so_far(tracer));
    while !until(tracer) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", tracer.unwinding());
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = so_far(tracer);
    [0, 1].map(|i| ((after[i].0 - before[i].0) as f64, (after[i].1 - before[i].1) as f64))
}

/// Of the programs that walk, once all tables are there. They also run for threads of no interest, and that is taken
/// off: what they take then is measured before there is a target.
fn cost(job: &Job, config: Config) -> Cost {
    let _statistics = aya::sys::enable_stats(aya::sys::Stats::RunTime).expect("statistics");
    let mut tracer = attach(&Config { sample_hz: 199, threshold_ns: 0, ..config });
    let mut records: Vec<Record> = Vec::new();
    let after = |time: Duration| {
        let end = Instant::now() + time;
        move |_: &Tracer| Instant::now() > end
    };
    let idle = take(&mut tracer, &mut records, after(Duration::from_secs(2)));
    let idle = idle.map(|(ns, runs)| ns / runs.max(1.0));
    tracer.add_process(job.pid(), TargetKind::Named).expect("a target");
    let young = after(Duration::from_millis(500));
    take(&mut tracer, &mut records, |tracer| young(tracer) && tracer.unwinding().pending == 0);
    let from = records.len();
    let [samples, switches] = take(&mut tracer, &mut records, after(MEASURED));
    let (mut sampled, mut waited) = (0.0, 0.0);
    for record in &records[from..] {
        match record {
            Record::Sample(_) => sampled += 1.0,
            Record::OffCpu(_) => waited += 1.0,
            _ => {}
        }
    }
    let own = |(ns, runs): (f64, f64), each: f64, records: f64, idle: f64| {
        (ns - (runs - each * records).max(0.0) * idle) / f64::max(records, 1.0)
    };
    let (frames, python_frames) = depths(&records, from);
    let sample_ns = own(samples, 1.0, sampled, idle[0]);
    Cost { sample_ns, wait_ns: own(switches, 2.0, waited, idle[1]), frames, python_frames }
}

/// Average frames of the samples' stacks, native and Python.
fn depths(records: &[Record], from: usize) -> (f64, f64) {
    let stacks = by_id(records);
    let python = records.iter().filter_map(|r| if let Record::PythonStack(p) = r { Some(p) } else { None });
    let python: HashMap<u64, usize> = python.map(|p| (p.id, p.functions.len())).collect();
    let sampled =
        records[from..].iter().filter_map(|r| if let Record::Sample(s) = r { Some(s) } else { None });
    let (mut samples, mut frames, mut functions) = (0, 0, 0);
    for stack in sampled.filter_map(|s| stacks.get(&s.user_stack)) {
        samples += 1;
        frames += stack.addresses.len();
        functions += python.get(&stack.python).copied().unwrap_or(0);
    }
    let average = |sum: usize| sum as f64 / f64::from(samples.max(1));
    (average(frames), average(functions))
}

const POINTERS: fn() -> Config = || Config { tables: false, python: false, ..Config::default() };
const TABLES: fn() -> Config = || Config { python: false, ..Config::default() };

#[test]
#[file_serial(probes)]
fn a_walk_by_tables_costs_little_more_than_one_by_frame_pointers() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job::start(&mut written(folder.path(), CPP_POINTERS));
    let (by_pointers, by_tables) = (cost(&job, POINTERS()), cost(&job, TABLES()));
    by_pointers.print("C++ with frame pointers, by them");
    by_tables.print("C++ with frame pointers, by tables");
    assert!(by_tables.sample_ns < by_pointers.sample_ns * 4.0);
    assert!(by_tables.wait_ns < by_pointers.wait_ns * 4.0);
}

#[test]
#[file_serial(probes)]
fn pythons_functions_cost_little_more_than_its_native_stack() {
    let job = Job::start(Command::new("/usr/bin/python3").args(["-c", PYTHON]));
    let [by_pointers, by_tables, whole] = [POINTERS(), TABLES(), Config::default()].map(|c| cost(&job, c));
    by_pointers.print("Python, by frame pointers");
    by_tables.print("Python, by tables");
    whole.print("Python, by tables, with its functions");
    assert!(by_tables.python_frames == 0.0 && whole.python_frames > 1.0, "{by_tables:?} {whole:?}");
    assert!(whole.sample_ns < by_tables.sample_ns * 3.0);
    assert!(whole.wait_ns < by_tables.wait_ns * 3.0);
}

/// What tables one process needs, and what they take.
#[test]
#[file_serial(probes)]
fn the_tables_of_one_process_are_small() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cpp = written(folder.path(), CPP);
    let mut python = Command::new("/usr/bin/python3");
    for (name, command) in [("C++", &mut cpp), ("Python", python.args(["-c", PYTHON]))] {
        let job = Job::start(command);
        let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
        tracer.add_process(job.pid(), TargetKind::Named).expect("a target");
        let begun = Instant::now();
        while tracer.unwinding().pending > 0 || tracer.unwinding().tables <= 2 {
            assert!(begun.elapsed() < PATIENCE, "{:?}", tracer.unwinding());
            tracer.drain(&mut |_| {}).expect("drain");
            tracer.tick(&mut |_| {}).expect("tick");
            std::thread::sleep(Duration::from_millis(20));
        }
        let state = tracer.unwinding();
        println!("{name}: {state:?}");
        assert!(state.table_bytes > 0 && state.table_bytes < 8 << 20, "{state:?}");
    }
}

/// Memory of this process's maps in the kernel.
fn maps_kib() -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir("/proc/self/fdinfo").expect("one's own").flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
        if text.contains("map_type:") {
            let locked = text.lines().find_map(|line| line.strip_prefix("memlock:"));
            bytes += locked.map_or(0, |n| n.trim().parse::<u64>().expect("a number"));
        }
    }
    bytes >> 10
}

const TARGETS: usize = 200;
const OBJECTS: usize = 500;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/object.so"));
const LOADER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/loader"));

/// Objects of their own that are alike but for their build ids.
fn objects(folder: &Path) {
    let mut bytes = OBJECT.to_vec();
    let at = bytes.windows(20).position(|w| w == [0xa5; 20]).expect("its build id");
    for i in 0..OBJECTS {
        bytes[at..at + 8].copy_from_slice(&(i as u64).to_le_bytes());
        std::fs::write(folder.join(format!("lib{i}.so")), &bytes).expect("a file");
    }
}

/// What the libraries of all targets take, some 20 KiB each, and as much again.
const MEMORY_KIB: u64 = 4 << 20;

/// A field of one of the kernel's files that count in KiB.
fn kib(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(file).expect("every Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("every Linux has it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[file_serial(probes)]
fn many_targets_with_many_objects_share_their_tables() {
    if kib("/proc/meminfo", "MemAvailable:") < MEMORY_KIB {
        leaves_out("200 processes with 500 libraries: there are no 4 GiB of memory");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    objects(folder.path());
    let loader = written(folder.path(), LOADER);
    let start = |_| {
        let mut command = Command::new(loader.get_program());
        Job::start(command.arg(folder.path()).arg(OBJECTS.to_string()))
    };
    let jobs: Vec<Job> = (0..TARGETS).map(start).collect();
    let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    for job in &jobs {
        tracer.add_process(job.pid(), TargetKind::Named).expect("a target");
    }
    let begun = Instant::now();
    loop {
        tracer.drain(&mut |_| {}).expect("drain");
        tracer.tick(&mut |_| {}).expect("tick");
        let state = tracer.unwinding();
        if state.pending == 0 && state.tables >= OBJECTS as u64 {
            // The most memory this process has had.
            let (kernel, own) = (maps_kib(), kib("/proc/self/status", "VmHWM:"));
            println!("after {:?}: {state:?}; {kernel} KiB in maps, {own} KiB here", begun.elapsed());
            // One table an object, whoever maps it.
            assert!(state.tables < 2 * OBJECTS as u64, "{state:?}");
            assert!(kernel << 10 >= state.bytes, "{kernel} KiB, {state:?}");
            // The tracer as a whole, were the tables as large as they may be.
            let room = (SEGMENTS * SEGMENT_CHUNKS * size_of::<Chunk>()) as u64 - state.bytes;
            assert!(((kernel + own) << 10) + room < 512 << 20, "{kernel} KiB, {own} KiB, {room}");
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{state:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
