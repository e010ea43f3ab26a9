//! A disk in the simulated machine.

use crate::machine::with;
use crate::ring::{Medium, Operation, Piece, Ring};

/// The most bytes that one operation moves: few blocks, so that runs of slots end often.
pub const EXTENT: usize = 512;

/// A disk of the machine.
pub struct Disk {
    number: usize,
    block: usize,
}

impl Disk {
    /// An empty disk, for blocks of `block` bytes.
    pub fn new(block: usize) -> Disk {
        let number = with(|machine| {
            machine.slots.push(Vec::new());
            machine.slots.len() - 1
        });
        Disk { number, block }
    }

    /// The bytes in a slot of the store with this number; the first is 0.
    pub fn slot(number: usize, block: usize, slot: u32) -> Vec<u8> {
        with(|machine| machine.slots[number][slot as usize * block..][..block].to_vec())
    }

    /// Begins to read the slots from `slot` on into `pieces`, or to write them.
    pub fn begin(&self, ring: &mut Ring, slot: u32, pieces: &[Piece], write: bool, tag: u64) {
        let (medium, offset) = (Medium::Store(self.number), slot as usize * self.block);
        ring.push(Operation { medium, offset, pieces: pieces.to_vec(), write, tag });
    }

    /// Each slot becomes `more` slots.
    pub fn split(&mut self, more: usize) {
        self.block /= more;
    }

    /// The number of slots that can be written now.
    pub fn slots(&self) -> u32 {
        with(|machine| machine.slots[self.number].len() / self.block) as u32
    }

    /// Makes room for more slots.
    pub fn grow(&mut self) {
        with(|machine| {
            let len = machine.slots[self.number].len() + EXTENT;
            machine.slots[self.number].resize(len, 0xcc);
        });
    }

    /// Whether `slot`, the first of an extent, lies right after the previous slot.
    pub fn joins(&self, slot: u32) -> bool {
        // Extents of two slots, so that some operations cross an edge, and some end there.
        (slot as usize * self.block / EXTENT).is_multiple_of(2)
    }
}
