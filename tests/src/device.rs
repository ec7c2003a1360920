//! A simulated device of a test's own: its libraries, and the file they share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gpu_sim_timeline::{Interval, Lane, Process, Timeline, Work};
use tempfile::TempDir;

/// The libraries under a driver's names in a folder of their own. Copies, so that each is loaded anew even
/// where one process loads many.
#[derive(Debug)]
pub struct SimulatedDevice {
    folder: TempDir,
}

impl SimulatedDevice {
    /// `settings` are those of `docs/simulated-device.md`, e.g. `("WHYIDLE_SIM_NVML", "mig")`.
    #[must_use]
    pub fn new(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let device = Self { folder };
        for (built, named) in [
            ("libsim_nvml.so", device.nvml()),
            ("libsim_cuda.so", device.cuda()),
            ("libsim_nccl.so", device.nccl()),
        ] {
            let built = libraries().join(built);
            std::fs::copy(&built, named).unwrap_or_else(|e| panic!("{}: {e}", built.display()));
        }
        let mut text = format!("WHYIDLE_SIM={}\n", device.shared().display());
        for (name, value) in settings {
            text.push_str(&format!("{name}={value}\n"));
        }
        std::fs::write(device.folder.path().join("sim.conf"), text).expect("the folder is writable");
        device
    }

    #[must_use]
    pub fn nvml(&self) -> PathBuf {
        self.folder.path().join("libnvidia-ml.so.1")
    }

    #[must_use]
    pub fn cuda(&self) -> PathBuf {
        self.folder.path().join("libcuda.so.1")
    }

    #[must_use]
    pub fn nccl(&self) -> PathBuf {
        self.folder.path().join("libnccl.so.2")
    }

    /// A folder that goes with the device.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file that the libraries share.
    #[must_use]
    pub fn shared(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    /// The memory the libraries share, for a scripted load or for the truth.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        Timeline::open(&self.shared(), 1).expect("the shared file")
    }
}

/// A program that stands in for the MPS server.
#[must_use]
pub fn mps_server() -> PathBuf {
    libraries().join("nvidia-cuda-mps-server")
}

/// Where the libraries were built, by the profile of the test itself. Built here, because cargo builds no
/// library for a package that only loads it.
fn libraries() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("a running test has a path");
        let folder = test.ancestors().nth(2).expect("tests lie in <target>/<profile>/deps").to_path_buf();
        let profile = if folder.ends_with("debug") { "dev" } else { "release" };
        if crate::binary::built_already() {
            return folder;
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--profile", profile])
            .args([
                "-p",
                "gpu-sim-nvml",
                "-p",
                "gpu-sim-cuda",
                "-p",
                "gpu-sim-nccl",
                "-p",
                "gpu-sim-timeline",
            ])
            .arg("--target-dir")
            .arg(folder.parent().expect("the target folder"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(built.success(), "the simulated device does not build");
        folder
    })
}

/// Device work laid down in advance: `busy_ns` of every `period_ns` in `[from, to)`.
///
/// # Panics
/// All lanes are taken.
pub fn script(
    timeline: &Timeline,
    process: &Process<'_>,
    from: u64,
    to: u64,
    period_ns: u64,
    busy_ns: u64,
) -> Lane {
    let lane = Lane::take(timeline, process, 0, from).expect("a free lane");
    for start in (from..to).step_by(usize::try_from(period_ns).expect("64 bits")) {
        lane.push(timeline, Work::Kernel, Interval { start, end: (start + busy_ns).min(to) });
    }
    lane
}
