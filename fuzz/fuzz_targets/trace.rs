//! A recording of any bytes: read, analysed and drawn.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use whyidle::render::{self, Style, flame};
use whyidle::trace::{Reader, testing};
use whyidle::{cause, finding, idle, timeline};

fuzz_target!(|data: &[u8]| {
    // Checksums let no mutation of a whole file through, so most inputs are the records alone.
    let framed;
    let file = match data.split_first() {
        Some((0, file)) => file,
        _ => {
            framed = testing::file_of(data);
            &framed
        }
    };
    let Ok(reader) = Reader::new(file, Path::new("fuzzed")) else { return };
    let timeline = timeline::build(reader.map_while(Result::ok));
    let devices: Vec<_> = idle::place(&timeline, None)
        .into_iter()
        .map(|device| (device.clone(), cause::attribute(&timeline, &device)))
        .collect();
    let report = finding::report(&timeline, &devices);
    render::text(&report, Style { colour: false, unicode: true }, render::WIDTH);
    flame::folded(&flame::idle(&report));
    flame::folded(&flame::wakers(&timeline));
});
