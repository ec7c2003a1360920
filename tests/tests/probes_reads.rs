//! Reads of files: exact counts where they are watched all the time, bursts where a target waits for storage.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serial_test::file_serial;
use whyidle::capture::tracer::Config;
use whyidle::trace::{FileReads, Record};
use whyidle_tests::privileged::{Observed, observe};

fn config(reads: bool) -> Config {
    Config { sample_hz: 0, reads, ..Config::default() }
}

fn of_file<'a>(seen: &'a Observed, name: &str) -> Vec<&'a FileReads> {
    let id = seen.records.iter().find_map(|r| match r {
        Record::File(f) if f.names.first().is_some_and(|n| n == name) => Some(f.id),
        _ => None,
    });
    seen.records
        .iter()
        .filter_map(|r| if let Record::FileReads(f) = r { Some(f) } else { None })
        .filter(|f| Some(f.file) == id && f.pid == seen.pid)
        .collect()
}

fn file(folder: &Path, name: &str) -> std::fs::File {
    let path = folder.join(name);
    std::fs::write(&path, vec![7; 1 << 20]).expect("write");
    let file = std::fs::File::open(&path).expect("open");
    file.sync_all().expect("sync");
    file
}

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("probes").tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

#[test]
#[file_serial(probes)]
fn every_read_is_counted_where_they_are_watched() {
    let folder = folder();
    let (small, large) = (file(folder.path(), "small-reads.bin"), file(folder.path(), "large-reads.bin"));
    let seen = observe(&config(true), || {
        let mut bytes = [0; 64];
        for i in 0..5000u64 {
            small.read_exact_at(&mut bytes, i * 64).expect("read");
        }
        let mut bytes = vec![0; 64 << 10];
        for _ in 0..16 {
            (&large).read_exact(&mut bytes).expect("read");
        }
        assert_eq!((&large).read(&mut bytes).expect("the end"), 0);
    });
    for (name, reads, bytes) in [("small-reads.bin", 5000, 320_000), ("large-reads.bin", 17, 1 << 20)] {
        let rows = of_file(&seen, name);
        assert_eq!(rows.iter().map(|r| r.reads).sum::<u64>(), reads, "{name}: {rows:?}");
        assert_eq!(rows.iter().map(|r| r.bytes).sum::<u64>(), bytes, "{name}");
        for row in rows {
            assert_eq!(row.histogram.iter().map(|n| u64::from(*n)).sum::<u64>(), row.reads);
            assert!(row.ns > 0 && !row.span.is_empty(), "{row:?}");
        }
    }
}

/// Reads for so long; how often.
fn read_for(time: Duration, from: &std::fs::File) -> u64 {
    let (begun, mut bytes, mut count) = (Instant::now(), [0; 64], 0);
    while begun.elapsed() < time {
        from.read_exact_at(&mut bytes, 0).expect("read");
        count += 1;
        std::thread::sleep(Duration::from_micros(500));
    }
    count
}

#[test]
#[file_serial(probes)]
fn reads_are_watched_in_bursts_only_while_a_target_waits_for_storage() {
    let folder = folder();
    let warm = file(folder.path(), "warm.bin");
    let seen = observe(&config(false), || {
        read_for(Duration::from_millis(1200), &warm);
    });
    assert_eq!(of_file(&seen, "warm.bin"), Vec::<&FileReads>::new(), "nothing waited for storage");

    let cold = file(folder.path(), "cold.bin");
    for advice in [rustix::fs::Advice::DontNeed, rustix::fs::Advice::Random] {
        rustix::fs::fadvise(&cold, 0, None, advice).expect("advice");
    }
    let told = folder.path().join("told");
    let seen = observe(&Config { threshold_ns: 0, ..config(false) }, || {
        // More than one page: a disk may be so quick that nobody sleeps.
        let done = (0..20).map(|page| {
            cold.read_exact_at(&mut [0; 64], page * 2 * 4096).expect("read");
            read_for(Duration::from_millis(60), &warm)
        });
        std::fs::write(&told, done.sum::<u64>().to_string()).expect("told");
    });
    let rows = of_file(&seen, "warm.bin");
    let counted: u64 = rows.iter().map(|r| r.reads).sum();
    let done: u64 = std::fs::read_to_string(&told).expect("told").parse().expect("a number");
    assert!(counted > 0 && counted < done, "{counted} of {done}");
    assert!(rows.iter().all(|r| !r.span.is_empty()), "{rows:?}");
}
