//! The kernel side's memory for walking stacks: a pool of chunks that grows by segments, and the two maps that say
//! what lies where in it.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use aya::Ebpf;
use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, MapError};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tracer_ebpf::wire::unwind::{
    CHUNK_MAPPINGS, CHUNK_ROWS, MAPPINGS, NO_OBJECT, OBJECTS, SEGMENT_CHUNKS, SEGMENTS,
};
use tracer_ebpf::wire::{Chunk, Layout, Mapped, Row, Table};

use super::CaptureError;
use super::raw;
use super::tables::{failed, take};
use crate::capture::unwind::ranges::Ranges;

const SEGMENT_BYTES: usize = SEGMENT_CHUNKS * size_of::<Chunk>();

// All that any number of targets and objects may take.
const _: () = assert!(SEGMENTS * SEGMENT_BYTES <= 256 << 20);

/// Behind the last row of a table: past every `pc` that is looked up.
const PAST: Row = Row { pc: u32::MAX, rule: 0 };

/// Writes what the kernel side reads. Nothing here waits for it: a walk that meets a table while it changes gives
/// wrong frames once, and no more.
pub(in crate::capture) struct Pool {
    outer: ArrayOfMaps<MapData>,
    segments: Vec<Segment>,
    ranges: Ranges,
    changes: u32,
    table_bytes: usize,
    tables: Array<MapData, Table>,
    layouts: HashMap<MapData, u32, Layout>,
}

#[derive(Debug)]
struct Segment {
    chunks: NonNull<Chunk>,
}

// SAFETY: memory of its own that only its owner writes.
unsafe impl Send for Segment {}

impl Pool {
    /// # Errors
    /// The object has no such maps.
    pub(super) fn new(ebpf: &mut Ebpf) -> Result<Self, CaptureError> {
        Ok(Self {
            outer: take(ebpf, "POOL")?,
            segments: Vec::new(),
            ranges: Ranges::default(),
            changes: 0,
            table_bytes: 0,
            tables: take(ebpf, "TABLES")?,
            layouts: take(ebpf, "LAYOUTS")?,
        })
    }

    /// Bytes taken in the kernel.
    pub(in crate::capture) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT_BYTES
    }

    /// Of them, those that tables of objects lie in.
    pub(in crate::capture) fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// Gives an object its table; `false` where there is no room.
    ///
    /// # Errors
    /// A map could not be made or written.
    pub(in crate::capture) fn set_table(&mut self, object: u32, rows: &[Row]) -> Result<bool, CaptureError> {
        if object >= OBJECTS {
            return Ok(false);
        }
        let Some((base, chunks)) = self.room(rows.len().div_ceil(CHUNK_ROWS))? else { return Ok(false) };
        let padding = rows.len().next_multiple_of(CHUNK_ROWS) - rows.len();
        let padded = rows.iter().copied().chain(std::iter::repeat_n(PAST, padding));
        self.write(base, padded.map(|row| [u64::from(row.rule) << 32 | u64::from(row.pc)]));
        self.tables.set(object, Table { base, chunks }, 0).map_err(|e| failed("TABLES", e))?;
        self.table_bytes += chunks as usize * size_of::<Chunk>();
        self.changed()?;
        Ok(true)
    }

    /// An object will have no table: its frame pointers are the best there is.
    ///
    /// # Errors
    /// The map could not be written.
    pub(in crate::capture) fn set_none(&mut self, object: u32) -> Result<(), CaptureError> {
        self.tables.set(object, Table::NEVER, 0).map_err(|e| failed("TABLES", e))?;
        self.changed()
    }

    /// Writes where mappings lie, for any number of processes; `None` where there is no room.
    ///
    /// # Errors
    /// A map could not be made.
    pub(in crate::capture) fn add_layout(
        &mut self,
        mapped: &[Mapped],
    ) -> Result<Option<Layout>, CaptureError> {
        let mapped = &mapped[..mapped.len().min(MAPPINGS as usize)];
        let Some((base, _)) = self.room(mapped.len().div_ceil(CHUNK_MAPPINGS))? else { return Ok(None) };
        self.write(base, mapped.iter().map(|m| [m.start, m.end, m.bias, u64::from(m.object)]));
        Ok(Some(Layout { base, mappings: u32::try_from(mapped.len()).unwrap_or(MAPPINGS) }))
    }

    /// The memory of a layout that no process has any more may be given to others.
    pub(in crate::capture) fn drop_layout(&mut self, layout: Layout) {
        self.ranges.free(layout.base, layout.mappings.div_ceil(CHUNK_MAPPINGS as u32));
    }

    /// `false` where there is no room for one more process.
    pub(in crate::capture) fn set_layout(&mut self, pid: u32, layout: Layout) -> bool {
        self.layouts.insert(pid, layout, 0).is_ok() && self.changed().is_ok()
    }

    pub(in crate::capture) fn remove_process(&mut self, pid: u32) {
        match self.layouts.remove(&pid) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => tracing::debug!(%error, pid, "its layout"),
        }
    }

    /// Processes with a layout, and their layouts. New processes have their creator's.
    pub(in crate::capture) fn in_use(&self) -> impl Iterator<Item = (u32, Layout)> {
        self.layouts.iter().filter_map(Result::ok)
    }

    /// Stacks that ended early are worth another walk.
    fn changed(&mut self) -> Result<(), CaptureError> {
        self.changes = self.changes.wrapping_add(1);
        let count = Table { base: self.changes, chunks: 0 };
        self.tables.set(NO_OBJECT, count, 0).map_err(|e| failed("TABLES", e))
    }

    /// Chunks in a row.
    fn room(&mut self, chunks: usize) -> Result<Option<(u32, u32)>, CaptureError> {
        let Ok(chunks) = u32::try_from(chunks) else { return Ok(None) };
        loop {
            if let Some(base) = self.ranges.take(chunks) {
                return Ok(Some((base, chunks)));
            }
            let fits = self.ranges.end() as usize + chunks as usize <= SEGMENTS * SEGMENT_CHUNKS;
            if !fits || self.segments.len() == SEGMENTS {
                return Ok(None);
            }
            self.grow()?;
        }
    }

    fn grow(&mut self) -> Result<(), CaptureError> {
        let io =
            |e: std::io::Error| CaptureError::Kernel { what: "memory for stacks".into(), source: e.into() };
        let fd = raw::create_mapped_array("POOL.segment", size_of::<Chunk>(), SEGMENT_CHUNKS).map_err(io)?;
        // SAFETY: a new mapping of the map's own size, chosen by the kernel.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                SEGMENT_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        };
        let address = address.map_err(|e| io(e.into()))?;
        let chunks =
            NonNull::new(address.cast()).ok_or_else(|| io(std::io::ErrorKind::OutOfMemory.into()))?;
        let segment = Segment { chunks };
        let data = MapData::from_fd(fd).map_err(|e| failed("POOL", e))?;
        let index = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        self.outer.set(index, &data, 0).map_err(|e| failed("POOL", e))?;
        self.segments.push(segment);
        self.ranges.grow(SEGMENT_CHUNKS as u32);
        Ok(())
    }

    /// Writes items of `N` words from a chunk on, in room that was taken.
    fn write<const N: usize>(&mut self, base: u32, items: impl Iterator<Item = [u64; N]>) {
        let per_segment = SEGMENT_BYTES / 8;
        let first = base as usize * size_of::<Chunk>() / 8;
        for (at, word) in (first..).zip(items.flatten()) {
            let Some(segment) = self.segments.get(at / per_segment) else { return };
            // SAFETY: within the segment, which is mapped as long as it lives.
            unsafe { segment.chunks.as_ptr().cast::<u64>().add(at % per_segment).write_volatile(word) };
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped in `grow` with this length, and nothing borrows it any more.
        if let Err(e) = unsafe { munmap(self.chunks.as_ptr().cast(), SEGMENT_BYTES) } {
            tracing::warn!(error = %e, "munmap");
        }
    }
}
