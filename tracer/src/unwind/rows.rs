//! Rows of the unwind information, in the order of addresses.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, Encoding,
    FrameDescriptionEntry, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection,
    UnwindTableRow,
};
use object::read::ReadRef;
use tracer_ebpf::wire::Row;
use tracer_ebpf::wire::unwind::rule;

use super::assembly::{Stretch, stretches};
use super::expression::{self, Bytes};
use super::image::CodeSection;
use super::rule::{Cfa, Frame, packed};
use super::{Image, UnwindError};

/// Of one object: 64 MiB. The largest libraries of deep learning have a third of it.
const ROWS: usize = 8 << 20;
/// Bytes between two functions that are taken for padding, of which no thread is ever in.
const PADDING: u32 = 16;
/// Of one object's code without unwind information, that is followed. OpenBLAS has the most of the known.
const BARE_BYTES: u64 = 16 << 20;

const BP: Register = Register(6);
const SP: Register = Register(7);
const RETURN: Register = Register(16);

/// The kernel's own signal frame: what its return trampoline says of the stack pointer.
const SIGNAL: Cfa = Cfa::AtSp(160, 0);

/// A stretch of code that one rule holds for.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
    rule: u32,
}

/// # Errors
/// The object has no unwind information, or none that can be read.
pub(crate) fn rows<'d>(image: &Image<'_>, data: impl ReadRef<'d>) -> Result<Vec<Row>, UnwindError> {
    let mut spans = Spans { base: image.base, found: Vec::new() };
    if let Some(section) = &image.eh_frame {
        let bases = BaseAddresses::default().set_eh_frame(section.address).set_text(image.text);
        let mut frames = EhFrame::new(section.bytes, LittleEndian);
        frames.set_address_size(8);
        spans.read(&frames, &bases)?;
    }
    if let Some(section) = &image.debug_frame {
        let mut frames = DebugFrame::new(section.bytes, LittleEndian);
        frames.set_address_size(8);
        spans.read(&frames, &BaseAddresses::default())?;
    }
    if spans.found.is_empty() {
        return Err(UnwindError::NoFrames);
    }
    // A function described in both sections is the same in both.
    spans.found.sort_by_key(|span| (span.start, span.end));
    spans.read_bare(image, data);
    Ok(in_order(spans.found))
}

/// Code that no span covers, as its address and where it lies in the file.
fn bare(code: &CodeSection, spans: &[Span], base: u64) -> Vec<(u64, u64, u64)> {
    let end = code.address.saturating_add(code.size);
    let mut found = Vec::new();
    let mut at = code.address;
    let mut put = |from: u64, to: u64| {
        if to > from && to - from >= u64::from(PADDING) {
            found.push((from, code.offset.saturating_add(from - code.address), to - from));
        }
    };
    let first = spans.partition_point(|span| base.saturating_add(span.end.into()) <= code.address);
    for span in &spans[first..] {
        let (from, to) = (base.saturating_add(span.start.into()), base.saturating_add(span.end.into()));
        if from >= end {
            break;
        }
        put(at, from);
        at = at.max(to);
    }
    put(at, end);
    found
}

struct Spans {
    base: u64,
    found: Vec<Span>,
}

impl Spans {
    /// What comes before damage is kept.
    fn read<'a, S>(&mut self, frames: &S, bases: &BaseAddresses) -> Result<(), UnwindError>
    where
        S: UnwindSection<Bytes<'a>>,
        S::Offset: std::hash::Hash + Eq,
    {
        let mut context = UnwindContext::new();
        let mut cies: HashMap<S::Offset, CommonInformationEntry<Bytes<'a>>> = HashMap::new();
        let mut entries = frames.entries(bases);
        loop {
            let entry = match entries.next() {
                Ok(Some(CieOrFde::Fde(entry))) => entry,
                Ok(Some(CieOrFde::Cie(_))) => continue,
                Ok(None) => return Ok(()),
                Err(e) if self.found.is_empty() => return Err(UnwindError::Frames(e)),
                Err(_) => return Ok(()),
            };
            let parsed = entry.parse(|section, bases, offset| {
                if let Some(known) = cies.get(&offset) {
                    return Ok(known.clone());
                }
                let cie = section.cie_from_offset(bases, offset)?;
                cies.insert(offset, cie.clone());
                Ok(cie)
            });
            // One that cannot be read leaves its function without rules.
            if let Ok(function) = parsed {
                self.function(frames, bases, &mut context, &function);
                if self.found.len() > ROWS {
                    return Err(UnwindError::TooMany(ROWS));
                }
            }
        }
    }

    fn function<'a, S: UnwindSection<Bytes<'a>>>(
        &mut self,
        frames: &S,
        bases: &BaseAddresses,
        context: &mut UnwindContext<usize>,
        function: &FrameDescriptionEntry<Bytes<'a>>,
    ) {
        let cie = function.cie();
        if cie.return_address_register() != RETURN || cie.address_size() != 8 {
            return;
        }
        let signal = function.is_signal_trampoline();
        let Ok(mut table) = function.rows(frames, bases, context) else { return };
        let from = self.found.len();
        while let Ok(Some(row)) = table.next_row() {
            let Some((start, end)) = self.range(row.start_address(), row.end_address()) else { continue };
            let rule = rule(row, frames, cie.encoding(), signal);
            match self.found[from..].last_mut() {
                Some(last) if last.rule == rule && last.end == start => last.end = end,
                _ => self.found.push(Span { start, end, rule }),
            }
            if self.found.len() > ROWS {
                return;
            }
        }
    }

    /// Functions without unwind information, by what their instructions do.
    fn read_bare<'d>(&mut self, image: &Image<'_>, data: impl ReadRef<'d>) {
        let mut left = BARE_BYTES;
        let mut found = Vec::new();
        for code in &image.code {
            for (address, offset, size) in bare(code, &self.found, self.base) {
                let Some(rest) = left.checked_sub(size) else { break };
                left = rest;
                let Ok(bytes) = data.read_bytes_at(offset, size) else { continue };
                for Stretch { start, end, rule } in stretches(bytes, address) {
                    let Some((start, end)) = self.range(start, end) else { continue };
                    found.push(Span { start, end, rule });
                }
            }
        }
        self.found.extend(found);
        self.found.sort_by_key(|span| (span.start, span.end));
    }

    fn range(&self, start: u64, end: u64) -> Option<(u32, u32)> {
        let start = u32::try_from(start.checked_sub(self.base)?).ok()?;
        let end = u32::try_from(end.checked_sub(self.base)?).ok()?;
        (start < end).then_some((start, end))
    }
}

fn rule<'a, S: UnwindSection<Bytes<'a>>>(
    row: &UnwindTableRow<usize>,
    frames: &S,
    encoding: Encoding,
    signal: bool,
) -> u32 {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register: SP, offset } => Some(Cfa::Sp(*offset)),
        CfaRule::RegisterAndOffset { register: BP, offset } => Some(Cfa::Bp(*offset)),
        CfaRule::RegisterAndOffset { .. } => None,
        CfaRule::Expression(e) => e.get(frames).ok().and_then(|e| expression::cfa(e, encoding)),
    };
    let cfa = match row.register(RETURN) {
        Some(RegisterRule::Undefined) => return packed(Cfa::Start, Frame::Same),
        _ if signal && cfa == Some(SIGNAL) => return packed(Cfa::Signal, Frame::Same),
        Some(RegisterRule::Offset(-8)) => cfa,
        _ => None,
    };
    let frame = match row.register(BP) {
        None | Some(RegisterRule::SameValue) => Frame::Same,
        Some(RegisterRule::Offset(offset)) => Frame::Below(offset.saturating_neg()),
        Some(RegisterRule::Expression(e))
            if e.get(frames).is_ok_and(|e| expression::is_at_bp(e, encoding)) =>
        {
            Frame::AtBp
        }
        _ => Frame::Lost,
    };
    cfa.map_or(rule::NONE, |cfa| packed(cfa, frame))
}

/// Of spans in order, where two overlap, the one that starts first has it.
fn in_order(spans: Vec<Span>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::with_capacity(spans.len());
    let mut put = |pc: u32, rule: u32| {
        if rows.last().is_none_or(|last| last.rule != rule) {
            rows.push(Row { pc, rule });
        }
    };
    let mut covered = 0;
    for span in spans {
        let start = span.start.max(covered);
        if start >= span.end {
            continue;
        }
        if start - covered >= PADDING {
            put(covered, rule::NONE);
        }
        put(start, span.rule);
        covered = span.end;
    }
    put(covered, rule::NONE);
    rows
}
