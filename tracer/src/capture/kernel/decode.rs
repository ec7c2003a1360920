//! From wire records to trace records.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use tracer_ebpf::wire::unwind::end;
use tracer_ebpf::wire::{self, kind};

use super::decode_cuda::{self, HostMemory};
use super::decode_wait;
use super::faults::{Count, Faults};
use super::kallsyms::Entries;
use super::reclaim::reclaim;
use super::trap::TrapCost;
use crate::trace::{
    File, MajorFault, Ns, Record, Sample, Socket, Stack, StackEnd, StackId, StackKind, TargetKind,
    ThreadExec, ThreadExit, ThreadKey, ThreadSeen, WakerContext,
};

/// `start_boottime` is in nanoseconds, a key's start in units of `USER_HZ`.
const NS_PER_TICK: u64 = 10_000_000;
/// `PF_KTHREAD`.
const PF_KTHREAD: u32 = 0x0020_0000;
const PAGE_BYTES: u64 = 4096;

/// Bytes from the kernel that are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("a record of {got} bytes, {wanted} wanted")]
    Short { got: usize, wanted: usize },
    #[error("no record is of kind {0}")]
    Kind(u32),
}

/// What decoding needs to know beside the bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    pub(super) entries: Entries,
    /// Contexts of the kernel stacks seen.
    pub(super) contexts: HashMap<StackId, WakerContext>,
    /// Names of CUDA entry points by `EntryPoint::id`.
    pub entry_points: HashMap<u32, &'static str>,
    /// When each thread became a target, for waits under way by then.
    pub since: HashMap<ThreadKey, Ns>,
    /// Host memory that CUDA calls pinned, by process.
    pub(super) host_memory: HostMemory,
    /// What probes add to a call, zeros until measured.
    pub trap: TrapCost,
    pub attached_at: Ns,
    /// Faults of target processes; the ends of their threads bring some.
    pub(super) faults: Faults,
}

#[must_use]
pub fn key(tid: u32, start_boottime: u64) -> ThreadKey {
    ThreadKey { tid, start_ticks: start_boottime / NS_PER_TICK }
}

#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Reads a `T` at the start of `bytes`; the ring aligns records to eight bytes, tests need not.
pub fn read<T: aya::Pod>(bytes: &[u8]) -> Result<T, DecodeError> {
    let wanted = size_of::<T>();
    if bytes.len() < wanted {
        return Err(DecodeError::Short { got: bytes.len(), wanted });
    }
    // SAFETY: `T` is plain data, any bytes are valid, and there are enough of them.
    Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

impl Decoder {
    #[must_use]
    pub fn new(entries: Entries, attached_at: Ns) -> Self {
        Self { entries, attached_at, ..Self::default() }
    }

    /// One record of either ring.
    ///
    /// # Errors
    /// Too few bytes, or a kind of record that does not exist.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Record, DecodeError> {
        let record = match read::<u32>(bytes)? {
            kind::OFF_CPU => Record::OffCpu(decode_wait::off_cpu(self, &read(bytes)?, None)),
            kind::OFF_CPU_PATH => {
                let wire: wire::OffCpuPath = read(bytes)?;
                Record::OffCpu(decode_wait::off_cpu(self, &wire.off, Some(text(&wire.path))))
            }
            kind::STACK => Record::Stack(self.stack(bytes)?),
            kind::FILE => Record::File(file(&read(bytes)?)),
            kind::SAMPLE => Record::Sample(sample(&read(bytes)?)),
            kind::FAULT => Record::MajorFault(fault(&read(bytes)?)),
            kind::SUBMITS => Record::Submits(self.submits(&decode_cuda::whole(bytes)?)),
            kind::CUDA_CALL => Record::CudaCall(self.cuda_call(&read(bytes)?)),
            kind::CUDA_CONTEXT => Record::CudaContext(self.cuda_context(&read(bytes)?)),
            kind::COLLECTIVE => Record::Collective(self.collective(&read(bytes)?)),
            kind::THREAD => Record::Thread(thread(&read(bytes)?)),
            kind::EXEC => Record::ThreadExec(exec(&read(bytes)?)),
            kind::EXIT => {
                let wire: wire::Exit = read(bytes)?;
                self.faults.exited(wire.pid, Count { minor: wire.minor_faults, major: wire.major_faults });
                Record::ThreadExit(exit(&wire))
            }
            kind::RECLAIM => Record::Reclaim(reclaim(&read(bytes)?)),
            other => return Err(DecodeError::Kind(other)),
        };
        match &record {
            Record::ThreadExit(gone) => {
                self.since.remove(&gone.key);
            }
            Record::Thread(seen) if seen.key.tid == seen.pid => {
                // The first thread of a new process.
                if let Some(at) = seen.born {
                    self.host_memory.born(seen.pid);
                    if seen.kind == TargetKind::Inherited {
                        self.faults.born(at, seen.pid);
                    }
                }
            }
            _ => {}
        }
        Ok(record)
    }

    /// Context of a wake-up by its kernel stack.
    #[must_use]
    pub fn context(&self, stack: StackId) -> WakerContext {
        self.contexts.get(&stack).copied().unwrap_or(WakerContext::Unknown)
    }

    fn stack(&mut self, bytes: &[u8]) -> Result<Stack, DecodeError> {
        const HEADER: usize = size_of::<wire::Stack>() - wire::MAX_FRAMES * 8;
        if bytes.len() < HEADER {
            return Err(DecodeError::Short { got: bytes.len(), wanted: HEADER });
        }
        let mut whole = [0u8; size_of::<wire::Stack>()];
        let n = bytes.len().min(whole.len());
        whole[..n].copy_from_slice(&bytes[..n]);
        let wire: wire::Stack = read(&whole)?;
        let frames = (wire.frames as usize).min((n - HEADER) / 8);
        let addresses = wire.addresses[..frames].to_vec();
        let kind = if wire.user == wire::USER { StackKind::User } else { StackKind::Kernel };
        if kind == StackKind::Kernel {
            self.contexts.insert(wire.id, self.entries.context(&addresses));
        }
        Ok(Stack {
            id: wire.id,
            kind,
            pid: wire.pid,
            image: wire.image,
            addresses,
            end: stack_end(wire.end),
            python: wire.python,
        })
    }
}

fn stack_end(end: u32) -> StackEnd {
    match end {
        end::START => StackEnd::Start,
        end::NO_TABLE => StackEnd::NoTable,
        end::NO_RULE => StackEnd::NoRule,
        end::NO_MAPPING => StackEnd::NoMapping,
        end::UNREADABLE => StackEnd::Unreadable,
        end::DEPTH => StackEnd::Depth,
        end::FRAME_POINTERS => StackEnd::FramePointers,
        end::GUESSED => StackEnd::Guessed,
        _ => StackEnd::Unknown,
    }
}

fn file(wire: &wire::FileInfo) -> File {
    let names = wire.name.iter().take(wire.names.into()).map(|n| text(n)).collect();
    File {
        id: wire.id,
        dev: wire.dev,
        inode: wire.inode,
        rdev: wire.rdev,
        mode: wire.mode,
        fs_magic: wire.fs_magic,
        names,
        socket: (wire.family != 0).then(|| socket(wire)),
        ..File::default()
    }
}

fn socket(wire: &wire::FileInfo) -> Socket {
    let peer_port = u16::from_be(wire.peer_port);
    let address = |bytes: &[u8; 16], port: u16| match i32::from(wire.family) {
        libc::AF_INET => format!("{}:{port}", Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        libc::AF_INET6 => format!("[{}]:{port}", Ipv6Addr::from(*bytes)),
        _ => String::new(),
    };
    Socket {
        family: wire.family,
        state: wire.socket_state,
        local: address(&wire.local, wire.local_port),
        peer: address(&wire.peer, peer_port),
    }
}

fn sample(wire: &wire::Sample) -> Sample {
    Sample {
        at: wire.at,
        thread: key(wire.tid, wire.start_boottime),
        pid: wire.pid,
        cpu: wire.cpu,
        kernel_stack: wire.kernel_stack,
        user_stack: wire.user_stack,
        periods: u32::try_from(wire.periods).unwrap_or(u32::MAX),
    }
}

fn fault(wire: &wire::Fault) -> MajorFault {
    let known = wire.file != 0;
    MajorFault {
        at: wire.at,
        thread: key(wire.tid, wire.start_boottime),
        pid: wire.pid,
        address: wire.address,
        file: known.then_some(wire.file),
        offset: known.then(|| wire.index.wrapping_mul(PAGE_BYTES)),
    }
}

fn thread(wire: &wire::Thread) -> ThreadSeen {
    ThreadSeen {
        at: wire.at,
        key: key(wire.tid, wire.start_boottime),
        pid: wire.pid,
        ppid: wire.ppid,
        comm: text(&wire.comm),
        creator: (wire.creator_tid != 0).then(|| key(wire.creator_tid, wire.creator_start)),
        born: (wire.born != 0).then_some(wire.at),
        kind: if wire.target != 0 { TargetKind::Inherited } else { TargetKind::Bystander },
        kernel_thread: wire.task_flags & PF_KTHREAD != 0,
        cgroups: Vec::new(),
        cmdline: Vec::new(),
    }
}

fn exec(wire: &wire::Exec) -> ThreadExec {
    ThreadExec {
        at: wire.at,
        key: key(wire.tid, wire.start_boottime),
        pid: wire.pid,
        image: wire.image,
        comm: text(&wire.comm),
    }
}

fn exit(wire: &wire::Exit) -> ThreadExit {
    ThreadExit { at: wire.at, key: key(wire.tid, wire.start_boottime), pid: wire.pid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        let mut d = Decoder::default();
        assert_eq!(d.decode(&[]), Err(DecodeError::Short { got: 0, wanted: 4 }));
        assert_eq!(d.decode(&99u32.to_le_bytes()), Err(DecodeError::Kind(99)));
        for k in (1..=kind::EXIT).chain([kind::CUDA_CONTEXT, kind::COLLECTIVE, kind::RECLAIM]) {
            for len in 4..64 {
                let mut bytes = vec![0xffu8; len];
                bytes[..4].copy_from_slice(&k.to_le_bytes());
                let decoded = d.decode(&bytes);
                assert!(
                    decoded.is_err() || k == kind::STACK || len >= size_of::<wire::CudaContext>(),
                    "kind {k}, {len} bytes: {decoded:?}"
                );
            }
        }
    }

    #[test]
    fn a_stack_is_no_longer_than_its_bytes() {
        let mut bytes = Vec::new();
        bytes.extend(kind::STACK.to_le_bytes());
        bytes.extend(wire::USER.to_le_bytes());
        bytes.extend(7u64.to_le_bytes());
        bytes.extend(42u32.to_le_bytes());
        bytes.extend(60u32.to_le_bytes());
        bytes.extend(end::DEPTH.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(9u64.to_le_bytes());
        bytes.extend(0x1000u64.to_le_bytes());
        bytes.extend(0x2000u64.to_le_bytes());
        let Ok(Record::Stack(stack)) = Decoder::default().decode(&bytes) else { panic!("a stack") };
        assert_eq!(stack.addresses, [0x1000, 0x2000]);
        assert_eq!((stack.id, stack.pid, stack.kind, stack.python), (7, 42, StackKind::User, 9));
        assert_eq!(stack.end, StackEnd::Depth);
    }

    #[test]
    fn keys_are_in_clock_ticks() {
        assert_eq!(key(5, 1_239_999_999), ThreadKey { tid: 5, start_ticks: 123 });
    }
}
