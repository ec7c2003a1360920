//! Round trips and the reader against cut, flipped and hostile files.

mod properties;

use std::path::Path;

use super::frame::{FILE_HEADER_LEN, FLAG_LAST, FRAME_HEADER_LEN, FrameHeader, VERSION, file_header};
use super::*;

fn name() -> &'static Path {
    Path::new("test")
}

/// Writes with a frame for each of `frames`.
fn write(frames: &[Vec<Record>]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), name()).unwrap();
    for frame in frames {
        for record in frame {
            writer.append(record).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish_into_inner().unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Record>, Vec<Damage>), TraceError> {
    let mut reader = Reader::new(bytes, name())?;
    let records = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((records, reader.damage().to_vec()))
}

/// Start and end of each frame.
fn bounds(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut at = FILE_HEADER_LEN;
    let mut out = Vec::new();
    while let Some(header) = FrameHeader::parse(&bytes[at..]) {
        let end = at + FRAME_HEADER_LEN + header.compressed as usize;
        out.push((at, end));
        at = end;
    }
    assert_eq!(at, bytes.len());
    out
}

/// `payload` in one sound frame.
fn framed(payload: &[u8]) -> Vec<u8> {
    let compressed = zstd::bulk::compress(payload, 1).unwrap();
    let header = FrameHeader {
        version: VERSION,
        flags: FLAG_LAST,
        sequence: 0,
        records: 1,
        uncompressed: payload.len() as u32,
        compressed: compressed.len() as u32,
        payload_crc: crc32fast::hash(&compressed),
    };
    [&file_header()[..], &header.to_bytes(), &compressed].concat()
}

fn counter(value: u64) -> Record {
    Record::Counter(Counter { at: 1, name: "n".into(), value })
}

#[test]
fn frames_are_closed_by_size() {
    let records: Vec<_> = (0..40_000).map(counter).collect();
    let bytes = write(std::slice::from_ref(&records));
    assert!(bounds(&bytes).len() > 3);
    for (start, _) in bounds(&bytes) {
        assert!(FrameHeader::parse(&bytes[start..]).unwrap().uncompressed <= 64 << 10);
    }
    assert_eq!(read(&bytes).unwrap(), (records, vec![]));
}

#[test]
fn an_empty_recording_is_a_trace() {
    assert_eq!(read(&write(&[])).unwrap(), (vec![], vec![]));
}

#[test]
fn a_long_record_is_kept_and_a_too_long_one_refused() {
    let long = |n| Record::Counter(Counter { at: 1, name: "x".repeat(n), value: 1 });
    let mut writer = Writer::new(Vec::new(), name()).unwrap();
    writer.append(&counter(1)).unwrap();
    writer.append(&long(3 << 20)).unwrap();
    assert!(matches!(writer.append(&long(5 << 20)), Err(TraceError::RecordTooLong { .. })));
    writer.append(&counter(2)).unwrap();
    let bytes = writer.finish_into_inner().unwrap();
    assert_eq!(read(&bytes).unwrap(), (vec![counter(1), long(3 << 20), counter(2)], vec![]));
}

#[test]
fn what_is_no_trace_is_told_apart() {
    assert!(matches!(read(b""), Err(TraceError::Empty { .. })));
    assert!(matches!(read(b"\x7fELF, surely, and more of it"), Err(TraceError::NotATrace { .. })));
    assert!(matches!(read(&[0; 100_000]), Err(TraceError::NotATrace { .. })));
    let missing = Reader::open(Path::new("/nonexistent/trace")).unwrap_err();
    assert!(matches!(missing, TraceError::Open { .. }), "{missing}");
    let folder = Reader::open(Path::new("/")).unwrap_err();
    assert!(matches!(folder, TraceError::Read { .. }), "{folder}");
}

#[test]
fn a_later_version_is_named() {
    let mut bytes = file_header().to_vec();
    bytes[8..10].copy_from_slice(&7u16.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, TraceError::LaterVersion { found: 7, supported: VERSION, .. }));
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn a_record_of_a_later_kind_is_counted_and_passed_over() {
    let (mut payload, mut scratch) = (Vec::new(), Vec::new());
    codec::encode(&counter(1), &mut payload, &mut scratch).unwrap();
    payload.extend([3, 200, 1, 42]); // kind 200
    payload.push(0); // nothing
    payload.extend([2, 1, 0xff]); // `Probe` with a name longer than the record
    codec::encode(&counter(2), &mut payload, &mut scratch).unwrap();
    let (records, damage) = read(&framed(&payload)).unwrap();
    assert_eq!(records, [counter(1), counter(2)]);
    let kinds: Vec<_> = damage.iter().map(|d| (d.kind, d.records)).collect();
    assert_eq!(kinds, [(DamageKind::LaterKind, 1), (DamageKind::Undecodable, 2)]);
    assert_eq!(damage[0].loss(5).cause, LossCause::Undecodable);
}

#[test]
fn fields_appended_later_are_ignored_and_missing_ones_are_empty() {
    let record = postcard::to_allocvec(&counter(300)).unwrap();
    let with = |body: &[u8]| framed(&[&[body.len() as u8], body].concat());
    let (records, _) = read(&with(&[&record[..], &[9, 9]].concat())).unwrap();
    assert_eq!(records, [counter(300)]);
    let (records, _) = read(&with(&record[..record.len() - 2])).unwrap();
    assert_eq!(records, [counter(0)]);
}

/// Fails once it has taken `room` bytes, as a full disk does.
struct Full {
    bytes: Vec<u8>,
    room: usize,
}

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = bytes.len().min(self.room - self.bytes.len());
        if n == 0 {
            return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.bytes.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_torn_frame_is_stepped_over_once_there_is_room_again() {
    for room in 16..140 {
        let mut writer = Writer::new(Full { bytes: Vec::new(), room }, name()).unwrap();
        let mut kept = Vec::new();
        let mut lost = 0;
        for value in 0..4 {
            writer.append(&counter(value)).unwrap();
            match writer.flush() {
                Ok(()) => kept.push(counter(value)),
                Err(TraceError::Write { records, source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(libc::ENOSPC));
                    lost += records;
                    writer.sink_mut().room = 10_000;
                }
                Err(e) => panic!("{e}"),
            }
        }
        let (records, damage) = read(&writer.finish_into_inner().unwrap().bytes).unwrap();
        assert_eq!(records, kept, "room for {room}");
        assert_eq!(damage.iter().map(|d| d.frames).sum::<u64>(), lost, "{damage:?}");
    }
}

#[test]
fn damage_without_end_fills_no_memory() {
    let frames: Vec<_> = (0..2000).map(|n| vec![counter(n)]).collect();
    let mut bytes = write(&frames);
    for (start, _) in bounds(&bytes).into_iter().step_by(2) {
        bytes[start] ^= 1;
    }
    let (records, damage) = read(&bytes).unwrap();
    assert_eq!(records.len(), 1000);
    assert_eq!(damage.len(), 256);
    assert_eq!(damage.last().unwrap().kind, DamageKind::Further);
    assert!(damage.iter().map(|d| d.frames).sum::<u64>() >= 1000);
}

#[test]
fn headers_that_claim_much_are_read_in_linear_time() {
    let header = FrameHeader {
        version: VERSION,
        flags: 0,
        sequence: 0,
        records: 1,
        uncompressed: 1,
        compressed: 4 << 20,
        payload_crc: 1,
    };
    let bytes = [&file_header()[..], &header.to_bytes().repeat(500_000)].concat();
    let mut scanner = scan::Scanner::new(window::Window::new(&bytes[16..])).unwrap();
    let found = scanner.next(&mut Vec::new(), &mut damage::DamageList::default()).unwrap();
    assert!(found.is_none());
    assert!(scanner.wasted() < 20 * bytes.len() as u64, "{}", scanner.wasted());
}

#[test]
fn room_is_given_back_so_that_the_end_fits() {
    let mut writer = Writer::new(Full { bytes: Vec::new(), room: 200 }, name()).unwrap();
    writer.undo_with(|full, length| {
        full.bytes.truncate(length as usize);
        Ok(())
    });
    writer.append(&counter(1)).unwrap();
    writer.flush().unwrap();
    // Random digits: zstd cannot make this small enough.
    let noise: String =
        (0..400u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).to_string()).collect();
    writer.append(&Record::Counter(Counter { at: 1, name: noise, value: 1 })).unwrap();
    assert!(matches!(writer.flush(), Err(TraceError::Write { records: 1, .. })));
    writer.append(&counter(2)).unwrap();
    let (records, damage) = read(&writer.finish_into_inner().unwrap().bytes).unwrap();
    assert_eq!(records, [counter(1), counter(2)]);
    assert_eq!(damage.len(), 1);
    assert_eq!((damage[0].kind, damage[0].frames), (DamageKind::NeverWritten, 1));
}

#[test]
fn a_full_disk_is_named_with_the_path() {
    let error = Writer::create(Path::new("/dev/full")).unwrap_err();
    assert!(
        matches!(&error, TraceError::Create { source, .. } if source.raw_os_error() == Some(libc::ENOSPC))
    );
    assert!(error.to_string().starts_with("/dev/full: "), "{error}");
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut writer = Writer::create(&path).unwrap();
    writer.append(&counter(1)).unwrap();
    writer.flush().unwrap();
    let mut running = Reader::open(&path).unwrap();
    assert_eq!(running.by_ref().collect::<Result<Vec<_>, _>>().unwrap(), [counter(1)]);
    assert_eq!(running.damage()[0].kind, DamageKind::NoEnd);
    writer.append(&counter(2)).unwrap();
    writer.finish().unwrap();
    let mut ended = Reader::open(&path).unwrap();
    assert_eq!(ended.by_ref().collect::<Result<Vec<_>, _>>().unwrap(), [counter(1), counter(2)]);
    assert_eq!(ended.damage(), []);
}

#[test]
fn a_file_cut_short_by_somebody_else_is_noticed_at_the_next_frame() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    for left in [0, 7, FILE_HEADER_LEN as u64, 30] {
        for ends in [false, true] {
            let mut writer = Writer::create(&path).unwrap();
            writer.append(&counter(1)).unwrap();
            writer.flush().unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            assert!(file.metadata().unwrap().len() > left);
            file.set_len(left).unwrap();
            writer.append(&counter(2)).unwrap();
            let cut = if ends { writer.finish() } else { writer.flush() };
            assert!(matches!(cut, Err(TraceError::CutShort { .. })), "{left}: {cut:?}");
            assert_eq!(file.metadata().unwrap().len(), left, "filled up with zeros");
        }
    }
    // Longer is not cut: what is ours is there.
    let mut writer = Writer::create(&path).unwrap();
    let mut longer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut longer, b"x").unwrap();
    writer.append(&counter(1)).unwrap();
    writer.flush().unwrap();
}

#[test]
fn every_kind_reads_from_its_number_alone() {
    let end = Record::End(End { at: 0, reason: String::new(), exit_status: None });
    let last = postcard::to_allocvec(&end).unwrap()[0];
    for kind in 0..=last {
        let mut payload = &[1, kind][..];
        let decoded = codec::decode(&mut payload);
        assert!(matches!(decoded, Some(codec::Decoded::Record(_))), "kind {kind}: {decoded:?}");
    }
}

#[test]
fn a_made_up_file_cannot_claim_more_records_than_its_bytes() {
    // The smallest record there is, thousands of times a frame, which compresses to nearly nothing.
    let mut writer = Writer::new(Vec::new(), name()).unwrap();
    let small = Record::Step(GovernorStep { at: 0, what: String::new() });
    for _ in 0..(1 << 20) + 400_000 {
        writer.append(&small).unwrap();
    }
    let bytes = writer.finish_into_inner().unwrap();
    let mut reader = Reader::new(bytes.as_slice(), name()).unwrap();
    let records = reader.by_ref().filter(Result::is_ok).count();
    assert!(records <= (1 << 20) + bytes.len(), "{records} records of {} bytes", bytes.len());
    assert!(reader.damage().iter().any(|d| d.kind == DamageKind::Implausible), "{:?}", reader.damage());
}
