//! Tables whose rows are read one tick late. The programs that fill them may be preempted between reading the
//! epoch and writing their row, for longer than anybody would wait for them.

use aya::maps::{HashMap, MapData};
use aya::{Ebpf, Pod};

use super::CaptureError;
use super::tables::{drained, failed, take};
use crate::trace::Span;

/// The tables were turned over: rows are written under `epoch` from now on; those before it fell in `span`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) epoch: u32,
    pub(super) span: Span,
}

pub(super) struct Settled<K: Pod, V: Pod> {
    name: &'static str,
    rows: HashMap<MapData, K, V>,
    epoch_of: fn(&K) -> u32,
    /// In which the rows fell that come next.
    span: Span,
}

impl<K: Pod, V: Pod> Settled<K, V> {
    /// # Errors
    /// The object has no such map.
    pub(super) fn take(
        ebpf: &mut Ebpf,
        name: &'static str,
        epoch_of: fn(&K) -> u32,
    ) -> Result<Self, CaptureError> {
        Ok(Self { name, rows: take(ebpf, name)?, epoch_of, span: Span::default() })
    }

    /// Rows of the tick before the one that just ended, and that tick.
    ///
    /// # Errors
    /// The map could not be read.
    pub(super) fn flush(&mut self, turn: Turn) -> Result<(Vec<(K, V)>, Span), CaptureError> {
        let epoch_of = self.epoch_of;
        let rows = drained(&mut self.rows, |k| turn.epoch.wrapping_sub(epoch_of(k)) > 1)
            .map_err(|e| failed(self.name, e))?;
        Ok((rows, std::mem::replace(&mut self.span, turn.span)))
    }

    /// Rows of the tick that just ended. Only once nothing writes any more.
    ///
    /// # Errors
    /// The map could not be read.
    pub(super) fn rest(&mut self) -> Result<(Vec<(K, V)>, Span), CaptureError> {
        let rows = drained(&mut self.rows, |_| true).map_err(|e| failed(self.name, e))?;
        Ok((rows, self.span))
    }
}
