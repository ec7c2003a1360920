//! MIG: the GPU instances a device is split into. NVML has no utilisation for them; GPM has.

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::NvmlLib;

use super::Polled;
use super::clock::{Clocks, monotonic};
use super::gpm::Gpm;
use super::poll::{list_processes, share_window};
use super::rows::Rows;
use super::window::{Moment, Sampled, USUAL_PERIOD_NS, Windows};
use crate::trace::{self, Ns, Record};

/// One GPU instance, as a device of its own behind those of NVML's list.
#[derive(Debug)]
pub(super) struct Instance {
    /// Its own, behind NVML's.
    index: u32,
    parent: u32,
    /// Number among the parent's MIG devices; of several compute instances the first.
    place: u32,
    /// NVML's id; `None` where the library cannot tell.
    id: Option<u32>,
    gpm: Gpm,
    windows: Windows,
}

/// The instances of all devices, in order, numbered from `first` on.
pub(super) fn find(nvml: &'static Nvml, library: &NvmlLib, devices: u32, opened: Ns) -> Vec<Instance> {
    let mut found: Vec<Instance> = Vec::new();
    for parent in 0..devices {
        let Ok(device) = nvml.device_by_index(parent) else { continue };
        if !super::describe::is_mig(&device) {
            continue;
        }
        for place in 0..device.mig_device_count().unwrap_or(0) {
            // Not all places are taken.
            let Ok(instance) = device.mig_device_by_index(place) else { continue };
            let id = gpu_instance_id(library, &instance);
            // GPM measures GPU instances, not the compute instances that share one.
            if id.is_some() && found.iter().any(|i| i.parent == parent && i.id == id) {
                continue;
            }
            let gpm = match id {
                Some(id) => Gpm::open(&device, Some(id)),
                None => Gpm::never("the driver's NVML library does not tell GPU instances apart"),
            };
            let index = devices + found.len() as u32;
            found.push(Instance { index, parent, place, id, gpm, windows: Windows::new(index, opened) });
        }
    }
    found
}

fn gpu_instance_id(library: &NvmlLib, instance: &Device<'_>) -> Option<u32> {
    let call = library.nvmlDeviceGetGpuInstanceId.as_ref().ok()?;
    let mut id = 0;
    // SAFETY: the handle is the library's own, of a device that is still borrowed; `id` outlives the call.
    let code = unsafe { call(instance.handle(), &raw mut id) };
    (code == 0).then_some(id)
}

impl Instance {
    pub(super) fn describe(&self, nvml: &Nvml) -> trace::Device {
        let parent = super::describe::describe(nvml, self.parent, None);
        let device = nvml.device_by_index(self.parent).and_then(|d| d.mig_device_by_index(self.place));
        let (name, uuid) = match &device {
            Ok(device) => (device.name().unwrap_or_default(), device.uuid().unwrap_or_default()),
            Err(_) => Default::default(),
        };
        let id = self.id.unwrap_or(self.place);
        let name = format!("{name} (MIG instance {id} of GPU {})", self.parent);
        trace::Device { index: self.index, name, uuid, mig: true, power_limit_mw: None, ..parent }
    }

    /// A window by GPM, or one without a value.
    pub(super) fn poll(&mut self, nvml: &'static Nvml, rows: &mut Rows, polled: &mut Polled) {
        let parent = nvml.device_by_index(self.parent);
        let measured = parent.as_ref().ok().and_then(|parent| self.gpm.poll(nvml, parent, self.index));
        rows.say("gpm", self.index, self.gpm.unavailable().map(String::from), &mut polled.others);
        if let Some(measured) = measured {
            let moment = Moment { at: monotonic(), ..Moment::default() };
            let window = share_window(&measured, None);
            self.windows.gpm(measured.activity.span, &window, moment, &mut polled.readings);
            polled.others.push(Record::DeviceActivity(measured.activity));
        } else if self.gpm.unavailable().is_some() || parent.is_err() {
            let at = Clocks::read().monotonic;
            let silent = Sampled { end: at, ..Sampled::default() };
            let moment = Moment { at, ..Moment::default() };
            self.windows.rates(&silent, USUAL_PERIOD_NS, moment, false, &mut polled.readings);
        }
        if let Ok(instance) = parent.and_then(|parent| parent.mig_device_by_index(self.place)) {
            list_processes(&instance, self.index, &mut polled.processes);
        }
    }

    pub(super) fn parent(&self) -> u32 {
        self.parent
    }
}
