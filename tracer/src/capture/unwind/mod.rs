//! Keeps the kernel side's picture of what user stacks are walked by: which process has which object mapped where,
//! and a table of unwind rules for each object, whoever maps it.
//!
//! On a thread of its own, because the table of a large library takes seconds.

mod objects;
mod processes;
pub(super) mod ranges;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::kernel::pool::Pool;
use crate::trace::{Record, StackEnd, StackKind, TargetKind};
use objects::Objects;
use processes::Processes;

/// Between two looks at who is still there.
const SWEEP: Duration = Duration::from_secs(5);

enum Message {
    /// A process that may go on for a while as it is.
    Seen(u32),
    /// It is starting another program.
    Exec(u32),
    Exit(u32),
    /// One of its stacks led to where nothing is known to be mapped.
    Gap(u32),
}

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwinding {
    /// Objects that wait for their table.
    pub pending: u64,
    /// Tables made.
    pub tables: u64,
    /// Objects without one, for whatever reason.
    pub without: u64,
    /// Memory in the kernel.
    pub bytes: u64,
    /// Of it, what the tables take: it is had in pieces of 4 MiB.
    pub table_bytes: u64,
    /// Processor time of it all.
    pub cpu_ns: u64,
}

#[derive(Debug, Default)]
struct Shared {
    pending: AtomicU64,
    tables: AtomicU64,
    without: AtomicU64,
    bytes: AtomicU64,
    table_bytes: AtomicU64,
    cpu_ns: AtomicU64,
    /// Messages not yet dealt with count as pending.
    messages: AtomicU64,
}

/// The thread's handle; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Unwinder {
    to: Sender<Message>,
    shared: Arc<Shared>,
}

impl Unwinder {
    /// # Errors
    /// The thread could not be made.
    pub(super) fn start(pool: Pool) -> io::Result<Self> {
        let (to, from) = channel();
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            from,
            shared: shared.clone(),
            pool,
            objects: Objects::default(),
            processes: Processes::default(),
        };
        thread::Builder::new().name("unwind".into()).spawn(|| worker.run())?;
        Ok(Self { to, shared })
    }

    /// To be called with every record.
    pub(super) fn see(&self, record: &Record) {
        let message = match record {
            Record::Thread(seen)
                if seen.key.tid == seen.pid && !seen.kernel_thread && seen.kind != TargetKind::Bystander =>
            {
                Message::Seen(seen.pid)
            }
            Record::ThreadExec(exec) => Message::Exec(exec.pid),
            Record::ThreadExit(exit) if exit.key.tid == exit.pid => Message::Exit(exit.pid),
            Record::Stack(stack)
                if stack.kind == StackKind::User
                    && stack.pid != std::process::id()
                    && matches!(stack.end, StackEnd::NoMapping | StackEnd::FramePointers) =>
            {
                Message::Gap(stack.pid)
            }
            _ => return,
        };
        self.shared.messages.fetch_add(1, Ordering::Relaxed);
        // Should the thread have ended, stacks are walked by what it left.
        if self.to.send(message).is_err() {
            self.shared.messages.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn so_far(&self) -> Unwinding {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.shared;
        Unwinding {
            pending: read(&shared.messages) + read(&shared.pending),
            tables: read(&shared.tables),
            without: read(&shared.without),
            bytes: read(&shared.bytes),
            table_bytes: read(&shared.table_bytes),
            cpu_ns: read(&shared.cpu_ns),
        }
    }
}

struct Worker {
    from: Receiver<Message>,
    shared: Arc<Shared>,
    pool: Pool,
    objects: Objects,
    processes: Processes,
}

impl Worker {
    fn run(mut self) {
        self.objects.add_vdso();
        let mut sweep = Instant::now() + SWEEP;
        loop {
            self.tell();
            let now = Instant::now();
            let due = self.processes.next_due().unwrap_or(sweep).min(sweep);
            let idle =
                if self.objects.pending() > 0 { Duration::ZERO } else { due.saturating_duration_since(now) };
            match self.from.recv_timeout(idle) {
                Ok(message) => {
                    self.take(message, now);
                    self.shared.messages.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if now >= sweep {
                self.processes.sweep(&mut self.pool);
                sweep = now + SWEEP;
            } else if let Some(pid) = self.processes.due(now) {
                self.processes.look(pid, now, &mut self.objects, &mut self.pool);
            } else if let Some(made) = self.objects.make_one(&mut self.pool) {
                let counter = if made { &self.shared.tables } else { &self.shared.without };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&mut self, message: Message, now: Instant) {
        match message {
            Message::Seen(pid) => self.processes.seen(pid, now),
            Message::Exec(pid) => self.processes.exec(pid, now),
            Message::Exit(pid) => self.processes.exit(pid, &mut self.pool),
            Message::Gap(pid) => self.processes.gap(pid, now),
        }
    }

    fn tell(&self) {
        let pending = self.objects.pending() + self.processes.waiting();
        self.shared.pending.store(pending as u64, Ordering::Relaxed);
        self.shared.bytes.store(self.pool.bytes() as u64, Ordering::Relaxed);
        self.shared.table_bytes.store(self.pool.table_bytes() as u64, Ordering::Relaxed);
        let own = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        self.shared.cpu_ns.store(u64::try_from(own.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
