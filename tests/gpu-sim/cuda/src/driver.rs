//! The library's one state: the shared timeline, this process's entry in it, and the objects handed out.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use gpu_sim_timeline::settings::Settings;
use gpu_sim_timeline::{Mps, Process, Timeline, identity, truth};
use libc::c_uint;

use crate::abi::{Code, CuResult, answer};
use crate::copy::PINNED_BYTES_PER_US;
use crate::objects::Objects;
use crate::queue::settle;

pub(crate) struct Driver {
    pub(crate) timeline: &'static Timeline,
    pub(crate) process: Process<'static>,
    /// NVML index of each CUDA ordinal.
    pub(crate) ordinals: Vec<u32>,
    /// Work a stream holds before a submit has to wait for the device.
    pub(crate) depth: usize,
    /// What the link to the host carries, bytes a microsecond.
    pub(crate) link: u64,
    objects: Mutex<Objects>,
    arrivals: Once,
}

/// As with the real driver.
const DEPTH: usize = 1024;
/// Longest time between two looks for ranks that have come, should a wake-up be missed.
const LOOK: Duration = Duration::from_millis(20);

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Set in a forked child: as with the real driver, its parent's initialisation is of no use to it.
static FORKED: AtomicBool = AtomicBool::new(false);

impl Driver {
    pub(crate) fn get() -> Result<&'static Self, Code> {
        let driver = DRIVER.get().ok_or(Code::NOT_INITIALIZED)?;
        if FORKED.load(Ordering::Relaxed) { Err(Code::NOT_INITIALIZED) } else { Ok(driver) }
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open() -> Result<Self, Code> {
        let settings = settings();
        let timeline = Timeline::open(&settings.file(), settings.devices())
            .map_err(|e| complain(&format!("{}: {e}", settings.file().display())))?;
        let timeline: &'static Timeline = Box::leak(Box::new(timeline));
        let ordinals = visible(timeline.devices(), std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
        if ordinals.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        let process = timeline.enter().map_err(|e| complain(&e.to_string()))?;
        if settings.get("WHYIDLE_SIM_MPS").as_deref() == Some("client") {
            process.set_mps(Mps::Client);
        }
        if let Some(instance) = settings.get("WHYIDLE_SIM_INSTANCE").and_then(|n| n.parse().ok()) {
            process.enter_instance(instance);
        }
        // SAFETY: the handler only stores to a static, which is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        let depth = settings.get("WHYIDLE_SIM_DEPTH").and_then(|n| n.parse().ok()).unwrap_or(DEPTH);
        let link = settings.get("WHYIDLE_SIM_LINK_MBPS").and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        let link = link.unwrap_or(PINNED_BYTES_PER_US);
        Ok(Self {
            timeline,
            process,
            ordinals,
            depth,
            link,
            objects: Mutex::default(),
            arrivals: Once::new(),
        })
    }

    /// Has a thread of its own see to what is pending, which is what the device would do. It is started once
    /// and sleeps while no rank arrives anywhere.
    pub(crate) fn watch_arrivals(&'static self) {
        let watch = move || {
            loop {
                let seen = self.timeline.arrivals();
                // What goes wrong here is for the submits to report.
                settle(self, &mut self.objects()).ok();
                self.timeline.wait_for_arrival(seen, LOOK);
            }
        };
        self.arrivals.call_once(|| {
            if let Err(e) = std::thread::Builder::new().name("sim-device".into()).spawn(watch) {
                complain(&e.to_string());
            }
        });
    }
}

fn complain(what: &str) -> Code {
    eprintln!("simulated device: {what}");
    Code::UNKNOWN
}

fn settings() -> Settings {
    Settings::of_library(cuInit as *const libc::c_void)
}

unsafe extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The devices `CUDA_VISIBLE_DEVICES` leaves, in its order, up to the first it names wrongly.
fn visible(devices: u32, variable: Option<&str>) -> Vec<u32> {
    let Some(variable) = variable else { return (0..devices).collect() };
    let named = |name: &str| {
        (0..devices)
            .find(|&d| name.parse() == Ok(d) || (name.len() > 4 && identity::uuid(d).starts_with(name)))
    };
    variable.split(',').map(|name| named(name.trim())).take_while(Option::is_some).flatten().collect()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(flags: c_uint) -> CuResult {
    static STARTING: Mutex<()> = Mutex::new(());
    answer(|| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if DRIVER.get().is_none() {
            let driver = Driver::open()?;
            drop(DRIVER.set(driver));
        }
        Driver::get().map(drop)
    })
}

/// Runs when the process ends in order or the library is unloaded.
extern "C" fn unload() {
    let Ok(driver) = Driver::get() else { return };
    let last = driver.process.leave().unwrap_or(false);
    let Some(path) = settings().get("WHYIDLE_SIM_TRUTH").filter(|_| last) else { return };
    let written = driver.timeline.truth().and_then(|t| truth::write(&t, File::create(&path)?));
    if let Err(e) = written {
        complain(&format!("{path}: {e}"));
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
