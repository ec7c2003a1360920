//! A job of the scoreboard (`tests/job/case.py`) with its fault, on the simulated device.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::device::SimulatedDevice;
use crate::driver::PATIENCE;
use crate::training::python;

/// Ended in order when dropped, so that its groups and mounts go too.
#[derive(Debug)]
pub struct Case {
    child: Child,
    result: PathBuf,
}

impl Case {
    /// Returns once it is warm. It counts its steps from then on.
    ///
    /// # Panics
    /// It ends before.
    #[must_use]
    pub fn start(name: &str, steps: u32, device: &SimulatedDevice, data: &Path) -> Self {
        let file = |name: &str| device.folder().join(name);
        let (ready, go, result) = (file("ready"), file("go"), file("result"));
        std::fs::write(&go, "").expect("a folder of its own");
        let mut child = Command::new(python())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/job/case.py"))
            .args([name, "--fault", "--steps", &steps.to_string(), "--cuda"])
            .arg(device.cuda())
            .arg("--data")
            .arg(data)
            .arg("--ready")
            .arg(&ready)
            .arg("--go")
            .arg(&go)
            .arg("--result")
            .arg(&result)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .spawn()
            .expect("python runs");
        until(&ready, || assert_eq!(child.try_wait().expect("a child"), None, "{name} ended"));
        Self { child, result }
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Until the steps are done.
    pub fn done(&mut self) {
        until(&self.result, || assert_eq!(self.child.try_wait().expect("a child"), None, "it ended"));
    }
}

fn until(file: &Path, mut still: impl FnMut()) {
    let begun = Instant::now();
    while !file.exists() {
        still();
        assert!(begun.elapsed() < PATIENCE, "no {}", file.display());
        sleep(Duration::from_millis(20));
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        // Fails where it has ended already.
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        self.child.wait().ok();
    }
}

/// What is missing for cases that serve a file system or slow a disk down; `folder` is to be slowed.
#[must_use]
pub fn missing(folder: &Path) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt as _;
    let imports = Command::new(python()).args(["-c", "import fusepy"]).stderr(Stdio::null()).status();
    let dev = std::fs::metadata(folder).expect("a folder").dev();
    let block = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounted");
    let groups =
        mounts.lines().any(|l| l.contains(" cgroup2 ") || (l.contains(" cgroup ") && l.contains("blkio")));
    if !imports.is_ok_and(|s| s.success()) {
        Some("python3-fusepy")
    } else if !Path::new(&block).exists() {
        Some("a folder on a disk")
    } else {
        (!groups).then_some("control groups for disks")
    }
}
