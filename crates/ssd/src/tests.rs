//! The SSD against a naive map: where the bytes of each write are.

use crate::buffer::Buffer;
use crate::geometry::Geometry;

/// Which write each place holds: what no real SSD knows.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// Of each unit, its last write; `None` when trimmed. 0 is what it was preconditioned with.
    pub units: Vec<Option<u64>>,
    pub slots: Vec<u64>,
    writes: u64,
}

impl Ledger {
    pub(crate) fn new(geometry: &Geometry) -> Ledger {
        let units = vec![Some(0); geometry.units as usize];
        Ledger { units, slots: vec![u64::MAX; geometry.slots() as usize], writes: 0 }
    }

    pub(crate) fn written(&mut self, buffer: &mut Buffer, unit: u32, entry: u32) {
        self.writes += 1;
        self.units[unit as usize] = Some(self.writes);
        buffer.entry_mut(entry).version = self.writes;
    }

    pub(crate) fn trimmed(&mut self, unit: u32) {
        self.units[unit as usize] = None;
    }

    pub(crate) fn moved(&mut self, buffer: &mut Buffer, slot: u32, entry: u32) {
        buffer.entry_mut(entry).version = self.slots[slot as usize];
    }

    pub(crate) fn programmed(&mut self, slot: u32, version: u64) {
        self.slots[slot as usize] = version;
    }
}
