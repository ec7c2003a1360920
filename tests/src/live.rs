//! A recording of jobs that use the driver, ticked by hand.

use std::time::Instant;

use whyidle::capture::cuda::policy::Mode;
use whyidle::capture::driver::DriverCalls;
use whyidle::capture::host;
use whyidle::capture::tracer::{Config, Tracer};
use whyidle::trace::{Record, TargetKind, Watched};

use crate::driver::{Job, PATIENCE};
use crate::privileged::{attach, links_of};

/// A tracer and what looks after the driver's calls, ticked by hand.
#[derive(Debug)]
pub struct Live {
    tracer: Tracer,
    driver: DriverCalls,
    pids: Vec<u32>,
    pub records: Vec<Record>,
}

impl Live {
    pub fn start(config: &Config, mode: Mode, budget: f64, jobs: &[&Job]) -> Self {
        Self::watching(config, mode, budget, jobs.iter().map(|job| job.pid).collect())
    }

    pub fn watching(config: &Config, mode: Mode, budget: f64, pids: Vec<u32>) -> Self {
        let mut tracer = attach(config);
        for pid in &pids {
            tracer.add_process(*pid, TargetKind::Named).expect("room");
        }
        let driver = DriverCalls::new(mode, budget, 2);
        let mut live = Self { tracer, driver, pids, records: Vec::new() };
        live.driver.begin(host::now(), &mut |r| live.records.push(r));
        live
    }

    pub fn tick(&mut self, on_device: &[u32]) {
        let Self { tracer, driver, pids, records, .. } = self;
        tracer
            .drain(&mut |r| {
                driver.see(&r);
                records.push(r);
            })
            .expect("drain");
        driver.tick(host::now(), pids.iter().copied(), on_device, 0.0, tracer, &mut |r| records.push(r));
    }

    /// Ticks until `condition` holds.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.tick(&[]);
            if condition(self) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "never {what}: {:?}", self.said());
            std::thread::sleep(host::TICK);
        }
    }

    pub fn calls(&self, pid: u32, name: &str) -> usize {
        let is = |r: &&Record| matches!(r, Record::CudaCall(c) if c.pid == pid && c.name == name);
        self.records.iter().filter(is).count()
    }

    pub fn launches(&self, pid: u32) -> u64 {
        self.records
            .iter()
            .filter_map(
                |r| if let Record::Submits(s) = r { (s.pid == pid).then_some(s.launches) } else { None },
            )
            .sum()
    }

    pub fn watched(&self) -> Vec<Watched> {
        self.records
            .iter()
            .filter_map(|r| if let Record::CudaWatch(w) = r { Some(w.watched) } else { None })
            .collect()
    }

    /// Everything that is said for people.
    pub fn said(&self) -> Vec<String> {
        self.records
            .iter()
            .filter_map(|r| match r {
                Record::Probe(p) => Some(format!("{}: {}", p.name, p.reason)),
                Record::Step(s) => Some(s.what.clone()),
                Record::CudaWatch(w) => Some(format!("{:?}: {}", w.watched, w.reason)),
                _ => None,
            })
            .collect()
    }

    /// Ends it, and asserts that nothing is left of it, by its own check and by the test's.
    #[track_caller]
    pub fn end(mut self, jobs: &[&Job]) -> Vec<Record> {
        let ids = self.tracer.program_ids();
        let (tracer, records) = (self.tracer, &mut self.records);
        drop(self.driver);
        let detaching = tracer.finish(&mut |r| records.push(r)).expect("finish");
        let compared = detaching.settle().expect("nothing is left");
        assert!(jobs.is_empty() || compared > 0, "code was compared");
        assert_eq!(links_of(&ids), 0, "links are left");
        for job in jobs {
            assert_eq!(job.altered(&job.library()), [""; 0]);
        }
        self.records
    }
}
