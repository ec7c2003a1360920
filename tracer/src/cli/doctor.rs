//! `whyidle doctor`: what can be attached here, and why the rest cannot.

use clap::Args;

use super::devices;
use super::error::CliError;
use super::options::Common;
use super::output;
use crate::capture::devices::Feed;
use crate::capture::preflight::Facts;
use crate::capture::tracer::{Config, Tracer};
use crate::capture::{descriptors, holders, host};
use crate::render::escape;
use crate::trace::ProbeStatus;

#[derive(Clone, Debug, Args)]
pub struct Doctor {}

impl Doctor {
    /// Attaches everything for a moment, without a target.
    ///
    /// # Errors
    /// What would keep a recording from starting, after everything else was printed.
    pub fn run(&self, common: &Common) -> Result<(), CliError> {
        let facts = Facts::read();
        let majors = host::nvidia_majors();
        let mut lines = Lines::default();
        lines.fact("kernel", &facts.release);
        lines.fact("BTF", if facts.has_btf { "present" } else { "missing" });
        lines.fact("NVIDIA majors", &majors.iter().map(u32::to_string).collect::<Vec<_>>().join(", "));
        lines.fact("holders of /dev/nvidia*", &holders::find(&majors).len().to_string());
        let library = devices::open(common.nvml());
        match &library {
            Ok(feed) => lines.devices(feed.as_ref()),
            Err(error) => lines.fact("NVML", &error.to_string()),
        }
        let probes = facts.check().and_then(|()| {
            descriptors::raise();
            let config = Config { nvidia_majors: majors, ..Config::default() };
            Ok(Tracer::attach(&config)?.probes())
        });
        match &probes {
            Ok(probes) => probes.iter().for_each(|p| lines.probe(p)),
            Err(error) => lines.fact("probes", &error.to_string()),
        }
        lines.verdict(probes.as_deref().ok(), library.as_ref().is_ok_and(|feed| !feed.devices().is_empty()));
        output::print(&lines.text)?;
        library?;
        probes?;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn fact(&mut self, name: &str, value: &str) {
        self.text.push_str(&format!("{name:<28}{}\n", escape(value)));
    }

    fn devices(&mut self, feed: &dyn Feed) {
        if let Some(trouble) = feed.trouble() {
            self.fact("NVML", &trouble);
        }
        for device in feed.devices() {
            self.fact(&format!("GPU {}", device.index), &format!("{} {}", device.name, device.uuid));
        }
    }

    /// Whether a recording would tell something, in a sentence.
    fn verdict(&mut self, probes: Option<&[ProbeStatus]>, device: bool) {
        let Some(probes) = probes else { return };
        let attached = probes.iter().filter(|p| p.attached).count();
        let idle = match device {
            true => "GPU idle time is measured",
            false => "no GPU is read, so reports tell what threads wait for, not how long a GPU stood idle",
        };
        let text = format!("recording works: {attached} of {} probes attach; {idle}", probes.len());
        self.fact("verdict", &text);
    }

    fn probe(&mut self, probe: &ProbeStatus) {
        let state =
            if probe.attached { "attached".to_owned() } else { format!("not attached: {}", probe.reason) };
        self.fact(&escape(&probe.name), &state);
    }
}
