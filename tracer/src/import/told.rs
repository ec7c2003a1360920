//! What a call's own arguments tell, taken from the device's event of the same correlation id. No times.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::event::integer;
use super::hash::Hash;
use crate::trace::CopyDirection;

/// Arguments of one submit, copy or synchronise call.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Told {
    /// CUDA's ordinal of the device.
    pub device: Option<u32>,
    pub context: u64,
    pub stream: Option<u64>,
    /// Stands for the function's handle: a hash of the kernel's name.
    pub function: u64,
    pub grid: [u32; 3],
    pub bytes: u64,
    pub direction: Option<u8>,
    pub pinned: Option<bool>,
    /// An event's handle, as numbered by the recording.
    pub event: u64,
}

#[derive(Deserialize)]
struct Args<'a> {
    #[serde(borrow)]
    correlation: Option<&'a RawValue>,
    #[serde(borrow)]
    device: Option<&'a RawValue>,
    #[serde(borrow)]
    context: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow)]
    grid: Option<&'a RawValue>,
    #[serde(borrow)]
    bytes: Option<&'a RawValue>,
    #[serde(borrow)]
    wait_on_stream: Option<&'a RawValue>,
    #[serde(borrow)]
    wait_on_cuda_event_id: Option<&'a RawValue>,
}

/// Devices one recording may hold; more are taken as damage.
const MAX_DEVICE: u32 = 1024;

impl Told {
    /// What a device's event says of the call it belongs to, by correlation id. `None` where its arguments are
    /// not an object.
    pub(super) fn read(category: &str, name: &str, args: &RawValue) -> Option<(Option<i64>, Self)> {
        let args = serde_json::from_str::<Args>(args.get()).ok()?;
        let number = |raw: Option<&RawValue>| raw.and_then(integer).and_then(|n| u64::try_from(n).ok());
        let device = number(args.device).and_then(|d| u32::try_from(d).ok()).filter(|d| *d < MAX_DEVICE);
        let mut told = Self {
            device,
            context: number(args.context).unwrap_or(0),
            stream: number(args.stream),
            bytes: number(args.bytes).unwrap_or(0),
            ..Self::default()
        };
        match category {
            "kernel" => {
                told.function = Hash::of(name.as_bytes());
                let grid = args.grid.and_then(|grid| serde_json::from_str::<[u32; 3]>(grid.get()).ok());
                told.grid = grid.unwrap_or_default();
            }
            "gpu_memcpy" | "memcpy" => {
                told.direction = direction(name);
                told.pinned = pinned(name);
            }
            "cuda_sync" => {
                told.event = number(args.wait_on_cuda_event_id).unwrap_or(0);
                // The event was recorded in this stream by an earlier call, which named it.
                told.stream = told.stream.or(number(args.wait_on_stream));
            }
            _ => {}
        }
        Some((args.correlation.and_then(integer), told))
    }

    /// Adds what another event of the same call says: a graph's launch has many.
    pub(super) fn add(&mut self, other: &Self) {
        self.device = self.device.or(other.device);
        self.context = self.context.max(other.context);
        // Of a graph's streams the lowest, whichever comes first.
        self.stream = self.stream.map(Reverse).max(other.stream.map(Reverse)).map(|s| s.0);
        self.function = self.function.wrapping_add(other.function.rotate_left(other.grid[0] % 64));
        self.grid = if self.grid == other.grid { self.grid } else { [0; 3] };
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.direction = self.direction.or(other.direction);
        self.pinned = self.pinned.or(other.pinned);
        self.event = self.event.max(other.event);
    }

    pub(super) fn direction(&self) -> Option<CopyDirection> {
        DIRECTIONS.get(usize::from(self.direction?)).map(|row| row.1)
    }
}

const DIRECTIONS: &[(&str, CopyDirection)] = &[
    ("HtoD", CopyDirection::HostToDevice),
    ("DtoH", CopyDirection::DeviceToHost),
    ("DtoD", CopyDirection::DeviceToDevice),
    ("PtoP", CopyDirection::Peer),
];

fn direction(name: &str) -> Option<u8> {
    let at = DIRECTIONS.iter().position(|row| name.contains(row.0))?;
    u8::try_from(at).ok()
}

/// `Memcpy HtoD (Pageable -> Device)`.
fn pinned(name: &str) -> Option<bool> {
    match (name.contains("Pinned"), name.contains("Pageable")) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}
