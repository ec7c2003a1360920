//! Stands in for the MPS server: a process with a context on every device that never submits anything itself.
//! Runs until its input ends.

use std::io::{Error, Read as _};

use gpu_sim_timeline::settings::Settings;
use gpu_sim_timeline::{Mps, Timeline};

fn main() -> Result<(), Error> {
    let settings = Settings::default();
    let timeline = Timeline::open(&settings.file(), settings.devices())?;
    let process = timeline.enter()?;
    process.set_mps(Mps::Server);
    (0..timeline.devices()).for_each(|device| process.context_made(device));
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    process.leave()?;
    Ok(())
}
