//! Recordings written by hand, for tests.

use std::io::Write as _;

use super::{Activity, ImportError, Imported, kineto};
use crate::trace::Record;

/// Unix time in microseconds at which hand-written recordings begin.
pub(crate) const START_US: u64 = 1_700_000_000_000_000;

/// Collects events. Times are microseconds from the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) events: Vec<String>,
    correlation: u64,
    /// Added to the times of what happens on the device, microseconds.
    pub(crate) shift_us: i64,
}

impl Written {
    pub(crate) fn op(&mut self, tid: i64, name: &str, start: u64, length: u64) {
        self.host("cpu_op", tid, name, start, length, "");
    }

    pub(crate) fn host(&mut self, category: &str, tid: i64, name: &str, start: u64, length: u64, args: &str) {
        let ts = START_US + start;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":100,"tid":{tid},"ts":{ts}.250,"dur":{length},"args":{{{args}}}}}"#
        ));
    }

    /// A call of the runtime; its correlation id.
    pub(crate) fn call(&mut self, tid: i64, name: &str, start: u64, length: u64) -> u64 {
        self.correlation += 1;
        let args = format!(r#""External id":1,"correlation":{}"#, self.correlation);
        self.host("cuda_runtime", tid, name, start, length, &args);
        self.correlation
    }

    /// What a call led to on device 0, from `when.0` for `when.1`.
    pub(crate) fn device(
        &mut self,
        correlation: u64,
        category: &str,
        name: &str,
        stream: u64,
        when: (u64, u64),
        args: &str,
    ) {
        let (ts, length) = ((START_US + when.0).saturating_add_signed(self.shift_us), when.1);
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{ts},"dur":{length},"args":{{"correlation":{correlation},"device":0,"context":1,"stream":{stream}{args}}}}}"#
        ));
    }

    /// A launch that took 5 us, and its kernel.
    pub(crate) fn launch(&mut self, tid: i64, kernel: &str, stream: u64, at: u64, start: u64, length: u64) {
        let correlation = self.call(tid, "cudaLaunchKernel", at, 5);
        self.device(
            correlation,
            "kernel",
            kernel,
            stream,
            (start, length),
            r#","grid":[8,1,1],"block":[128,1,1]"#,
        );
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"schemaVersion\":1,\"deviceProperties\":[{{\"id\":0,\"name\":\"A device\"}}],\"traceEvents\":[\n{}\n],\"traceName\":\"t\"}}\n",
            self.events.join(",\n")
        )
    }
}

pub(crate) fn gzip(text: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(text).unwrap();
    out.finish().unwrap()
}

/// Windows of 1 ms.
pub(crate) fn import(bytes: &[u8]) -> Result<(Vec<Record>, Imported), ImportError> {
    let mut records = Vec::new();
    let imported = kineto(bytes, &tempfile::tempfile, Activity::Readings(1_000_000), &mut |record| {
        records.push(record);
        Ok(())
    })?;
    Ok((records, imported))
}
