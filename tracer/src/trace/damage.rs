//! What a reader could not read back.

use std::fmt;

use super::record::{Loss, LossCause, LossClass, Ns};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DamageKind {
    /// The file header does not hold; what follows was read all the same.
    FileHeader,
    /// Bytes between two good frames that are no good frame.
    Skipped,
    /// Frames that are not in the file although nothing else is in their place: the disk was full.
    NeverWritten,
    /// A frame that comes again or out of order; not read.
    OutOfOrder,
    /// The file ends inside a frame.
    CutTail,
    /// The file ends after a good frame, but the recording had not ended: killed, or still running.
    NoEnd,
    /// Records of a kind that only a later version knows.
    LaterKind,
    /// Records in a good frame that are not what their kind says.
    Undecodable,
    /// More records than so few bytes can honestly hold; reading stopped, since they would fill memory.
    Implausible,
    /// Further damage of any kind, added up: the list is bounded.
    Further,
}

/// One place at which something is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub kind: DamageKind,
    /// Where in the file, in bytes from its start.
    pub offset: u64,
    /// Bytes of the file that could not be read.
    pub bytes: u64,
    /// Frames known to be missing, by their sequence numbers.
    pub frames: u64,
    /// Records known to be missing. A frame whose header is gone too counts none here: see `frames`.
    pub records: u64,
}

impl Damage {
    fn touches(&self, later: &Self) -> bool {
        self.offset.saturating_add(self.bytes) >= later.offset
    }

    fn add(&mut self, later: &Self) {
        self.bytes = self.bytes.saturating_add(later.bytes);
        self.frames = self.frames.saturating_add(later.frames);
        self.records = self.records.saturating_add(later.records);
    }

    /// The damage as a line of the ledger's losses. `at`: time of the last record read before it.
    #[must_use]
    pub fn loss(&self, at: Ns) -> Loss {
        let cause = match self.kind {
            DamageKind::LaterKind | DamageKind::Undecodable => LossCause::Undecodable,
            _ => LossCause::Damaged,
        };
        let count = self.records.max(self.frames).max(1);
        Loss { at, class: LossClass::Stored, cpu: None, cause, count, ns_at_risk: 0 }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            DamageKind::FileHeader => "the file header is damaged",
            DamageKind::Skipped => "damaged",
            DamageKind::NeverWritten => "frames were never written (disk full?)",
            DamageKind::OutOfOrder => "a frame out of order",
            DamageKind::CutTail => "the file is cut",
            DamageKind::NoEnd => "the recording did not end in order",
            DamageKind::LaterKind => "records of a later version",
            DamageKind::Undecodable => "records that cannot be decoded",
            DamageKind::Implausible => "more records than a recording has in so few bytes, reading stopped",
            DamageKind::Further => "further damage",
        };
        write!(f, "{what} at byte {}", self.offset)?;
        let mut separator = ": ";
        for (n, unit) in [(self.bytes, "bytes"), (self.frames, "frames"), (self.records, "records")] {
            if n > 0 {
                write!(f, "{separator}{n} {unit} not read")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// The damage found so far. Bounded: a file of nothing but damage must not fill memory.
#[derive(Debug, Default)]
pub(super) struct DamageList(Vec<Damage>);

impl DamageList {
    const MAX: usize = 256;

    pub(super) fn push(&mut self, damage: Damage) {
        let count = self.0.len();
        match self.0.last_mut() {
            // Damage of one kind side by side (records of one frame, frames out of order) is one line.
            Some(last) if count >= Self::MAX || (last.kind == damage.kind && last.touches(&damage)) => {
                last.add(&damage);
            }
            _ if count + 1 == Self::MAX => {
                self.0.push(Damage { kind: DamageKind::Further, ..damage });
            }
            _ => self.0.push(damage),
        }
    }

    pub(super) fn as_slice(&self) -> &[Damage] {
        &self.0
    }
}
