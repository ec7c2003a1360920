//! The library's one state, between `nvmlInit` and the last `nvmlShutdown`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_sim_timeline::settings::Settings;
use gpu_sim_timeline::{Timeline, signal};
use libc::{c_char, c_uint, c_void};
use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::abi::{Code, answer};
use crate::faults::Faults;
use crate::objects::Objects;

/// Where a driver's own clock stood when the device was made.
const OWN_CLOCK_NS: u64 = 7_000_000_000;

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) timeline: Timeline,
    pub(crate) faults: Faults,
    /// The clock samples are stamped on; `None`: one of the driver's own.
    clock: Option<libc::clockid_t>,
    pub(crate) period_ns: u64,
    /// Whether the device has performance monitoring.
    pub(crate) gpm: bool,
    readings: AtomicU32,
    objects: Mutex<Objects>,
}

/// The state, and how many initialisations it has had.
static STATE: Mutex<Option<(Arc<Library>, usize)>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<(Arc<Library>, usize)>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    pub(crate) fn get() -> Result<Arc<Self>, Code> {
        state().as_ref().map(|(library, _)| Arc::clone(library)).ok_or(Code::UNINITIALIZED)
    }

    fn open() -> Result<Self, Code> {
        let settings = Settings::of_library(nvmlInit_v2 as *const c_void);
        let faults = Faults::parse(&settings.get("WHYIDLE_SIM_NVML").unwrap_or_default())
            .map_err(|word| complain(&format!("WHYIDLE_SIM_NVML: {word} means nothing")))?;
        if faults.no_driver {
            return Err(Code::DRIVER_NOT_LOADED);
        }
        let clock = match settings.get("WHYIDLE_SIM_CLOCK").as_deref() {
            None | Some("realtime") => Some(libc::CLOCK_REALTIME),
            Some("boottime") => Some(libc::CLOCK_BOOTTIME),
            Some("monotonic") => Some(libc::CLOCK_MONOTONIC),
            Some("own") => None,
            Some(other) => return Err(complain(&format!("WHYIDLE_SIM_CLOCK: {other} is no clock"))),
        };
        let period_us = settings.get("WHYIDLE_SIM_PERIOD_US").and_then(|p| p.parse::<u64>().ok());
        let timeline = Timeline::open(&settings.file(), settings.devices())
            .map_err(|e| complain(&format!("{}: {e}", settings.file().display())))?;
        let period_ns = period_us.map_or(signal::PERIOD_NS, |us| us.max(1).saturating_mul(1000));
        let gpm = settings.get("WHYIDLE_SIM_GPM").is_some_and(|on| on == "1");
        let (readings, objects) = (AtomicU32::new(0), Mutex::default());
        Ok(Self { timeline, faults, clock, period_ns, gpm, readings, objects })
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A time on the clock of the stamps, microseconds.
    pub(crate) fn stamp_us(&self, monotonic: u64) -> u64 {
        let on_clock = match self.clock {
            Some(clock) => self.timeline.on_clock(clock, monotonic),
            None => monotonic.saturating_sub(self.timeline.created()) + OWN_CLOCK_NS,
        };
        on_clock / 1000
    }

    /// Blocks where the settings say so. Call it before anything that reads the device.
    pub(crate) fn maybe_hang(&self) {
        let before = self.readings.fetch_add(1, Ordering::Relaxed);
        if let Some(hang) = self.faults.hang.filter(|_| before >= self.faults.hang_after) {
            std::thread::sleep(hang);
        }
    }
}

fn complain(what: &str) -> Code {
    eprintln!("simulated device: {what}");
    Code::UNKNOWN
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    answer(|| {
        let mut state = state();
        let (library, count) = match state.take() {
            Some(there) => there,
            None => (Arc::new(Library::open()?), 0),
        };
        *state = Some((library, count + 1));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlInitWithFlags(_: c_uint) -> nvmlReturn_t {
    // SAFETY: takes nothing from the caller.
    unsafe { nvmlInit_v2() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    answer(|| {
        let mut state = state();
        let (library, count) = state.take().ok_or(Code::UNINITIALIZED)?;
        if count > 1 {
            *state = Some((library, count - 1));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    let known = crate::abi::TEXTS.iter().find(|(known, _)| *known == code);
    known.map_or(c"Unknown Error", |(_, text)| text).as_ptr()
}
