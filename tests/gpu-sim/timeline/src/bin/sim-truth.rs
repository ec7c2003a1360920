//! Prints a simulated device's true busy intervals as JSON lines: `sim-truth [SHARED-FILE]`.

use std::process::ExitCode;

use gpu_sim_timeline::{settings, truth};

fn main() -> ExitCode {
    let file = std::env::args_os().nth(1).or_else(|| std::env::var_os("WHYIDLE_SIM"));
    let file = file.map_or_else(|| settings::DEFAULT_FILE.into(), std::path::PathBuf::from);
    let written = truth::read(&file).and_then(|truth| {
        for device in truth.iter().filter(|t| t.complete_from > 0) {
            eprintln!("device {}: nothing kept before {} ns", device.device, device.complete_from);
        }
        truth::write(&truth, std::io::stdout().lock())
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            ExitCode::FAILURE
        }
    }
}
