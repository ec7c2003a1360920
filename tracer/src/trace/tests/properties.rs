//! Laws of writer and reader, over arbitrary records and arbitrary damage.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn stack_id() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), any::<u64>()]
}

fn key() -> impl Strategy<Value = ThreadKey> {
    (any::<u32>(), any::<u64>()).prop_map(|(tid, start_ticks)| ThreadKey { tid, start_ticks })
}

fn waker() -> impl Strategy<Value = Waker> {
    (proptest::option::of(key()), any::<u32>(), stack_id(), stack_id(), any::<Option<i32>>(), any::<bool>())
        .prop_map(|(thread, pid, kernel_stack, user_stack, syscall, in_nvidia_ioctl)| Waker {
            thread,
            pid,
            context: if pid % 2 == 0 { WakerContext::Task } else { WakerContext::Interrupt },
            kernel_stack,
            user_stack,
            syscall,
            in_nvidia_ioctl,
        })
}

fn off_cpu() -> impl Strategy<Value = Record> {
    let times = (any::<u64>(), any::<Option<u64>>(), any::<u64>());
    let call = proptest::option::of((any::<i32>(), any::<[u64; 6]>()));
    (
        key(),
        times,
        call,
        any::<[u64; 4]>(),
        any::<Option<String>>(),
        proptest::option::of(waker()),
        stack_id(),
        any::<Option<u64>>(),
    )
        .prop_map(|(thread, (left, woken, ran), call, cpu_mask, path_arg, waker, kernel_stack, file)| {
            Record::OffCpu(OffCpu {
                thread,
                pid: thread.tid,
                left,
                woken,
                ran,
                state: State::Uninterruptible,
                cut_start: left % 2 == 0,
                cut_end: false,
                throttled: ran % 2 == 0,
                cpu_left: 1,
                cpu_queued: 2,
                cpu_ran: 3,
                cpus_allowed: 4,
                cpu_mask,
                syscall: call.map(|(nr, args)| Syscall { nr, args }),
                ioctl: Some(NvidiaIoctl { command: 7, inner: None }),
                futex_value: None,
                file,
                path_arg,
                kernel_stack,
                user_stack: 0,
                waker,
            })
        })
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        off_cpu(),
        (any::<u64>(), ".{0,40}", any::<u64>())
            .prop_map(|(at, name, value)| { Record::Counter(Counter { at, name, value }) }),
        (any::<u64>(), any::<u32>(), vec(any::<u64>(), 0..40)).prop_map(|(id, pid, addresses)| {
            Record::Stack(Stack {
                image: 3,
                id,
                kind: StackKind::User,
                pid,
                addresses,
                end: StackEnd::Unknown,
                python: 0,
            })
        }),
        (any::<u32>(), any::<u64>(), proptest::option::of(0.0..100.0f64)).prop_map(
            |(device, start, busy_percent)| {
                Record::Reading(Reading {
                    device,
                    span: Span::new(start, start.saturating_add(100)),
                    source: ReadingSource::NvmlSamples,
                    busy_percent,
                    power_mw: Some(1),
                    memory_percent: busy_percent,
                    age_ns: 3,
                    sm_clock_mhz: None,
                    throttle_reasons: Some(u64::MAX),
                })
            }
        ),
        (any::<[u32; 24]>(), ".{0,9}").prop_map(|(histogram, name)| {
            Record::Block(BlockTotal { histogram, name, ..BlockTotal::default() })
        }),
        (any::<u64>(), vec((".{0,9}", ".{0,30}"), 0..3)).prop_map(|(at, cgroups)| {
            Record::Thread(ThreadSeen {
                at,
                key: ThreadKey::default(),
                pid: 1,
                ppid: 0,
                comm: "a".into(),
                creator: None,
                born: Some(at),
                kind: TargetKind::Adopted,
                kernel_thread: false,
                cgroups,
                cmdline: vec![String::new()],
            })
        }),
    ]
}

fn frames() -> impl Strategy<Value = Vec<Vec<Record>>> {
    vec(vec(record(), 1..8), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_comes_back(frames in frames()) {
        let bytes = write(&frames);
        prop_assert_eq!(&bytes, &write(&frames), "the same records give the same bytes");
        let (records, damage) = read(&bytes).unwrap();
        prop_assert_eq!(records, frames.concat());
        prop_assert_eq!(damage, vec![]);
    }

    #[test]
    fn a_cut_trace_gives_all_whole_frames(frames in frames(), cut in any::<prop::sample::Index>()) {
        let bytes = write(&frames);
        let cut = cut.index(bytes.len());
        if cut < FILE_HEADER_LEN {
            let empty = matches!(read(&bytes[..cut]), Err(TraceError::Empty { .. }));
            prop_assert!(empty);
            return Ok(());
        }
        let whole = bounds(&bytes).iter().filter(|(_, end)| *end <= cut).count();
        let (records, damage) = read(&bytes[..cut]).unwrap();
        prop_assert_eq!(records, frames[..whole.min(frames.len())].concat());
        prop_assert_eq!(damage.len(), 1, "{:?}", damage);
        let inside = bounds(&bytes).iter().any(|(start, end)| *start < cut && cut < *end);
        prop_assert_eq!(damage[0].kind, if inside { DamageKind::CutTail } else { DamageKind::NoEnd });
    }

    #[test]
    fn a_flipped_byte_costs_one_frame(
        frames in frames(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut bytes = write(&frames);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let clean = bounds(&write(&frames));
        let mut expected = frames.clone();
        let mut missing = 0;
        if let Some(hit) = clean.iter().position(|(start, end)| (*start..*end).contains(&at))
            && hit < expected.len()
        {
            missing = expected.remove(hit).len() as u64;
        }
        let (records, damage) = read(&bytes).unwrap();
        prop_assert_eq!(records, expected.concat());
        prop_assert!(!damage.is_empty());
        let told: u64 = damage.iter().map(|d| d.records).sum();
        prop_assert!(told == missing || told == 0, "{} of {}: {:?}", told, missing, damage);
        let frames_told: u64 = damage.iter().map(|d| d.frames).sum();
        prop_assert!(frames_told == u64::from(missing > 0) || at >= clean[clean.len() - 1].0 || at < 16);
    }

    #[test]
    fn any_bytes_are_read_without_panic(junk in vec(any::<u8>(), 0..2000), frames in frames(), at in any::<prop::sample::Index>()) {
        drop(read(&junk));
        let mut bytes = write(&frames);
        let at = at.index(bytes.len());
        bytes.splice(at..at, junk);
        if let Ok((records, _)) = read(&bytes) {
            prop_assert!(records.len() <= frames.concat().len());
        }
        // Records as a hostile file would hold them: framed soundly, nonsense inside.
        drop(read(&framed(&bytes)));
    }
}
