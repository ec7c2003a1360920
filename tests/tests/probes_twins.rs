//! Two C functions that block in the same call at the same depth have stacks of their own.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{OffCpu, Record, TargetKind};
use whyidle_tests::privileged::attach;
use whyidle_tests::stacks::{by_id, written};

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/twins"));
const TURNS: usize = 12;
/// Longer than short waits, which are kept as totals.
const PAUSE: Duration = Duration::from_millis(5);

#[test]
#[file_serial(probes)]
fn functions_that_block_in_the_same_call_at_the_same_depth_have_stacks_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut program = written(folder.path(), PROGRAM);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let pid = child.id();
    let (mut to, mut from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut tracer = attach(&Config { sample_hz: 0, ..Config::default() });
    tracer.add_process(pid, TargetKind::Named).expect("a target");
    let mut records = Vec::new();
    // Until its tables are there, stacks are walked by frame pointers.
    while tracer.unwinding().tables < 2 || tracer.unwinding().pending > 0 {
        tracer.drain(&mut |r| records.push(r)).expect("drain");
        tracer.tick(&mut |r| records.push(r)).expect("tick");
        std::thread::sleep(PAUSE);
    }
    let mut functions = Vec::new();
    for _ in 0..TURNS {
        let mut function = [0];
        from.read_exact(&mut function).expect("it says where it is");
        functions.push(function[0]);
        std::thread::sleep(PAUSE);
        to.write_all(b"x").expect("it lives");
    }
    from.read_exact(&mut [0]).expect("it waits again");
    drop(tracer.finish(&mut |r| records.push(r)).expect("finish"));
    drop(to);
    child.wait().expect("its own child");

    let stacks = by_id(&records);
    let mut waits: Vec<&OffCpu> =
        records.iter().filter_map(|r| if let Record::OffCpu(w) = r { Some(w) } else { None }).collect();
    waits.retain(|w| {
        let reads = w.syscall.as_ref().is_some_and(|call| i64::from(call.nr) == libc::SYS_read);
        w.pid == pid && reads && !w.cut_end
    });
    waits.sort_by_key(|w| w.left);
    assert_eq!(waits.len(), TURNS, "{waits:#?}");
    // The first began before the tables were there.
    let of = |function: u8| {
        let turns = waits.iter().zip(&functions).skip(1).filter(move |(_, f)| **f == function);
        turns.map(|(w, _)| &stacks.get(&w.user_stack).expect("it was sent").addresses).collect::<Vec<_>>()
    };
    let (first, second) = (of(b'1'), of(b'2'));
    assert!(first.windows(2).all(|w| w[0] == w[1]), "{first:x?}");
    assert!(second.windows(2).all(|w| w[0] == w[1]), "{second:x?}");
    let (first, second) = (first[0], second[0]);
    assert_eq!(first.len(), second.len(), "{first:x?} {second:x?}");
    let differ = first.iter().zip(second).filter(|(a, b)| a != b).count();
    assert_eq!(differ, 1, "the functions' own frames, and none else: {first:x?} {second:x?}");
}
