//! The demo's training job on the simulated device.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::device::SimulatedDevice;

/// The system's, because it is the one with Pillow from a package; another may be named.
#[must_use]
pub fn python() -> PathBuf {
    std::env::var_os("WHYIDLE_PYTHON").map_or_else(|| "/usr/bin/python3".into(), PathBuf::from)
}

/// Killed when dropped.
#[derive(Debug)]
pub struct Training {
    pub child: Child,
    ready: PathBuf,
}

impl Training {
    /// # Panics
    /// Python does not start.
    #[must_use]
    pub fn start(python: &Path, device: &SimulatedDevice, arguments: &[&str]) -> Self {
        let ready = device.folder().join("ready");
        let child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/job/train.py"))
            .arg("--data")
            .arg(device.folder().join("data"))
            .arg("--cuda")
            .arg(device.cuda())
            .arg("--ready-file")
            .arg(&ready)
            .args(["--images", "64"])
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs");
        Self { child, ready }
    }

    /// Until it has warmed up.
    ///
    /// # Panics
    /// It ends before.
    pub fn wait_ready(&mut self) {
        while !self.ready.exists() {
            if let Some(status) = self.child.try_wait().expect("a child") {
                panic!("the job ended before it was ready ({status}); it needs Pillow (python3-pil)");
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Its last line, once it has ended.
    ///
    /// # Panics
    /// It fails.
    pub fn summary(&mut self) -> serde_json::Value {
        let mut text = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut text).expect("readable");
        assert!(self.child.wait().expect("a child").success(), "{text}");
        serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        // Fails where it has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
