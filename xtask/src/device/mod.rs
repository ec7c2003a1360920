//! The simulated device, laid out as a job and `whyidle` find it.

pub mod truth;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::place;

/// The packages whose libraries it is made of, as cargo builds them.
pub const PACKAGES: [&str; 6] =
    ["--package", "gpu-sim-cuda", "--package", "gpu-sim-nvml", "--package", "gpu-sim-nccl"];

/// The simulated device's libraries under the names a driver gives them, and what they share.
#[derive(Debug)]
pub struct Device {
    folder: PathBuf,
    shared: PathBuf,
}

impl Device {
    /// Lays the libraries into `folder`; `truth` is written when the job ends. `settings` are the device's own
    /// (`docs/simulated-device.md`).
    pub fn new(folder: &Path, truth: &Path, settings: &BTreeMap<String, String>) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let device = Self {
            folder: folder.into(),
            // In memory, so that the device's own bookkeeping meets no slow disk.
            shared: format!("/dev/shm/whyidle-device-{}", std::process::id()).into(),
        };
        for (built, named) in [
            ("libsim_cuda.so", device.cuda()),
            ("libsim_nvml.so", device.nvml()),
            ("libsim_nccl.so", folder.join("libnccl.so.2")),
        ] {
            let built = place::target().join("release").join(built);
            // A new file: an old one may be mapped by a job that still runs.
            drop(fs::remove_file(&named));
            fs::copy(&built, &named).with_context(|| built.display().to_string())?;
        }
        // Beside the libraries, so that nobody who loads them needs to be told.
        let mut conf =
            format!("WHYIDLE_SIM={}\nWHYIDLE_SIM_TRUTH={}\n", device.shared.display(), truth.display());
        for (name, value) in settings {
            conf.push_str(&format!("{name}={value}\n"));
        }
        fs::write(folder.join("sim.conf"), conf)?;
        drop(fs::remove_file(truth));
        drop(fs::remove_file(&device.shared));
        Ok(device)
    }

    pub fn cuda(&self) -> PathBuf {
        self.folder.join("libcuda.so.1")
    }

    pub fn nvml(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.shared));
    }
}
