//! One device's part of the answer.

use super::{errors, link, speed};
use crate::timeline::DeviceTrack;
use crate::trace::Ns;

/// Phrases, the unremarkable ones first. `start`: of the recording.
pub(super) fn words(track: &DeviceTrack, start: Ns) -> Vec<String> {
    let device = &track.device;
    let mut words = Vec::new();
    if !device.driver_version.is_empty() {
        words.push(format!("driver {}", device.driver_version));
    }
    if let Some(version) = device.cuda_version {
        words.push(format!("CUDA {}.{}", version / 1000, version % 1000 / 10));
    }
    words.extend(link::words(track));
    words.extend(speed::words(track));
    words.extend(errors::words(track, start));
    words
}
