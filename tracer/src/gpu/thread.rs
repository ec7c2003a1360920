//! Runs a device signal on a thread of its own: a library that hangs keeps nobody waiting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::clock::monotonic;
use super::{DeviceSignal, GpuError, Polled};
use crate::trace::Device;

/// Polls the reader may fall behind by.
const QUEUE: usize = 64;
/// Windows kept while the reader is further behind; older ones are dropped, so their time is unknown.
const BACKLOG: usize = 4096;
/// Between two polls at most, whoever asks: a driver keeps its last hundred samples or so, and none is to be lost.
const SELDOM: Duration = Duration::from_secs(5);
/// What a thread that answers is given to end.
const GRACE: Duration = Duration::from_millis(200);

type Answer = Result<Polled, GpuError>;

/// A running signal. Dropping it ends the thread, or leaves it behind if the library hangs.
#[derive(Debug)]
pub struct GpuThread {
    devices: Vec<Device>,
    answers: Receiver<Answer>,
    shared: Arc<Shared>,
    deadline: Duration,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// When the library last answered, `CLOCK_MONOTONIC`.
    answered: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    ended: bool,
}

impl GpuThread {
    /// Opens the signal on its thread and polls it `every` so often, and at least every 5 s.
    ///
    /// # Errors
    /// What `open` or its `devices` gave, or no answer within `deadline`.
    pub fn start<S, F>(open: F, every: Duration, deadline: Duration) -> Result<Self, GpuError>
    where
        S: DeviceSignal + 'static,
        F: FnOnce() -> Result<S, GpuError> + Send + 'static,
    {
        let every = every.min(SELDOM);
        let shared = Arc::new(Shared::default());
        let (answer, answers) = sync_channel(QUEUE);
        let (opened, first) = sync_channel(1);
        let theirs = Arc::clone(&shared);
        let thread = Builder::new()
            .name("whyidle-gpu".into())
            .spawn(move || {
                let _end = End(&theirs);
                match open().and_then(|mut signal| signal.devices().map(|devices| (signal, devices))) {
                    Ok((signal, devices)) => {
                        theirs.answered.store(monotonic(), Ordering::Relaxed);
                        if opened.send(Ok(devices)).is_ok() {
                            poll(signal, &theirs, &answer, every);
                        }
                    }
                    // Nobody listens any more where the deadline has passed.
                    Err(e) => drop(opened.send(Err(e))),
                }
            })
            .map_err(GpuError::NoThread)?;
        let devices = match first.recv_timeout(deadline) {
            Ok(devices) => devices?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(GpuError::NoAnswer { within: deadline });
            }
        };
        Ok(Self { devices, answers, shared, deadline: deadline + every, thread: Some(thread) })
    }

    /// In NVML index order.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The next poll's answer if there is one, without waiting.
    pub fn try_recv(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    /// The next poll's answer, waiting for it no longer than `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Answer> {
        self.answers.recv_timeout(timeout).ok()
    }

    /// For how long the library has given no answer, once that is longer than the deadline.
    #[must_use]
    pub fn stalled_for(&self) -> Option<Duration> {
        let silent = monotonic().saturating_sub(self.shared.answered.load(Ordering::Relaxed));
        Some(Duration::from_nanos(silent)).filter(|silent| *silent > self.deadline)
    }
}

impl Drop for GpuThread {
    fn drop(&mut self) {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = state;
        state.stop = true;
        self.shared.changed.notify_all();
        let waited = self.shared.changed.wait_timeout_while(state, GRACE, |state| !state.ended);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).0.ended;
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            drop(thread.join());
        }
    }
}

/// Says that the thread has ended, also when the signal panicked.
struct End<'shared>(&'shared Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.changed.notify_all();
    }
}

fn poll(mut signal: impl DeviceSignal, shared: &Shared, answers: &SyncSender<Answer>, every: Duration) {
    let mut backlog = Polled::default();
    loop {
        let answer = signal.poll();
        shared.answered.store(monotonic(), Ordering::Relaxed);
        let answer = answer.map(|new| joined(std::mem::take(&mut backlog), new));
        match answers.try_send(answer) {
            Ok(()) => {}
            Err(TrySendError::Full(Ok(unsent))) => backlog = unsent,
            // A failure repeats at the next poll.
            Err(TrySendError::Full(Err(_))) => {}
            Err(TrySendError::Disconnected(_)) => return,
        }
        let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = shared.changed.wait_timeout_while(state, every, |state| !state.stop);
        if waited.unwrap_or_else(PoisonError::into_inner).0.stop {
            return;
        }
    }
}

fn joined(mut before: Polled, mut new: Polled) -> Polled {
    append(&mut before.readings, &mut new.readings);
    append(&mut before.processes, &mut new.processes);
    append(&mut before.others, &mut new.others);
    before
}

/// Keeps the newest.
fn append<T>(before: &mut Vec<T>, new: &mut Vec<T>) {
    before.append(new);
    before.drain(..before.len().saturating_sub(BACKLOG));
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;
    use crate::trace::{Reading, ReadingSource, Span};

    const SOON: Duration = Duration::from_secs(20);

    /// One window a poll; hangs from a given poll on until its gate opens.
    struct Fake {
        polls: u64,
        hangs_at: u64,
        gate: Receiver<()>,
    }

    fn fake(hangs_at: u64) -> (Fake, Sender<()>) {
        let (open, gate) = std::sync::mpsc::channel();
        (Fake { polls: 0, hangs_at, gate }, open)
    }

    impl DeviceSignal for Fake {
        fn devices(&mut self) -> Result<Vec<Device>, GpuError> {
            Ok(vec![Device { index: 0, ..Device::default() }])
        }

        fn poll(&mut self) -> Result<Polled, GpuError> {
            self.polls += 1;
            if self.polls >= self.hangs_at {
                // Returns when the sender is gone.
                self.gate.recv().ok();
            }
            let reading = Reading {
                device: 0,
                span: Span::new(self.polls - 1, self.polls),
                source: ReadingSource::NvmlSamples,
                busy_percent: Some(1.0),
                power_mw: None,
                memory_percent: None,
                age_ns: 0,
                sm_clock_mhz: None,
                throttle_reasons: None,
            };
            Ok(Polled { readings: vec![reading], ..Polled::default() })
        }
    }

    fn next(thread: &GpuThread) -> Polled {
        thread.recv_timeout(SOON).expect("an answer").expect("no failure")
    }

    #[test]
    fn polls_arrive_in_order() {
        let (signal, _open) = fake(u64::MAX);
        let thread = GpuThread::start(move || Ok(signal), Duration::from_millis(1), SOON).expect("starts");
        assert_eq!(thread.devices().len(), 1);
        for n in 0..5 {
            assert_eq!(next(&thread).readings[0].span, Span::new(n, n + 1));
        }
    }

    #[test]
    fn a_reader_that_falls_behind_still_gets_windows_in_order() {
        let (signal, _open) = fake(u64::MAX);
        let thread = GpuThread::start(move || Ok(signal), Duration::ZERO, SOON).expect("starts");
        let mut windows = Vec::new();
        while windows.len() < 4 * QUEUE {
            std::thread::sleep(Duration::from_millis(1));
            windows.extend(next(&thread).readings.iter().map(|r| r.span.end));
        }
        assert!(windows.windows(2).all(|pair| pair[0] < pair[1]), "{windows:?}");
    }

    #[test]
    fn a_hung_library_is_noticed_and_left_behind() {
        let (signal, open) = fake(2);
        let every = Duration::from_millis(1);
        let thread = GpuThread::start(move || Ok(signal), every, Duration::from_secs(1)).expect("starts");
        next(&thread);
        while thread.stalled_for().is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(thread.try_recv().is_none());
        // Still hanging: this must come back.
        drop(thread);
        drop(open);
    }

    #[test]
    fn one_that_hangs_while_opening_is_given_up() {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let hangs = move || {
            gate.recv().ok();
            Ok(fake(1).0)
        };
        let error = GpuThread::start(hangs, SOON, Duration::from_millis(20)).expect_err("no answer");
        assert!(matches!(error, GpuError::NoAnswer { .. }), "{error:?}");
        drop(open);
    }

    #[test]
    fn failing_to_open_is_the_callers_to_know() {
        let fails = || Err::<Fake, _>(GpuError::NoLibrary { tried: "x".into() });
        let error = GpuThread::start(fails, SOON, SOON).expect_err("cannot open");
        assert!(matches!(error, GpuError::NoLibrary { .. }), "{error:?}");
    }

    #[test]
    fn a_backlog_keeps_the_newest() {
        let windows = |ends: std::ops::Range<u64>| Polled {
            readings: ends
                .map(|end| Reading {
                    device: 0,
                    span: Span::new(end, end + 1),
                    source: ReadingSource::NvmlRates,
                    busy_percent: None,
                    power_mw: None,
                    memory_percent: None,
                    age_ns: 0,
                    sm_clock_mhz: None,
                    throttle_reasons: None,
                })
                .collect(),
            ..Polled::default()
        };
        let kept = joined(windows(0..BACKLOG as u64), windows(BACKLOG as u64..BACKLOG as u64 + 10));
        assert_eq!(kept.readings.len(), BACKLOG);
        assert_eq!(kept.readings[0].span.start, 10);
    }
}
