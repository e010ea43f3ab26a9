//! A store in the simulated machine.

use crate::machine::with;
use crate::ring::{Done, Medium, Operation, Piece, Ring};

/// The most that one operation moves: few blocks, so that runs of slots end often.
pub const EXTENT: usize = 512;

/// Why a store cannot grow.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no room.
    #[error("store {name} is full: {why}")]
    Full {
        /// The store's name.
        name: String,
        /// Why.
        why: String,
    },
}

/// A place for blocks, as `terapage-store` has it.
pub trait Store: Send {
    /// What people call it.
    fn name(&self) -> String;

    /// Slots that can be written now.
    fn slots(&self) -> u32;

    /// Makes room for more slots.
    ///
    /// # Errors
    /// None here; the real one has some.
    fn grow(&mut self) -> Result<(), Error>;

    /// Whether `slot`, the first of an extent, lies right behind the slot before it.
    fn goes_on(&self, _slot: u32) -> bool {
        false
    }

    /// Begins to read slots into `pieces`.
    ///
    /// # Errors
    /// None; the real one has some.
    ///
    /// # Safety
    /// The pieces and their memory stay valid and untouched until the end has been taken from the
    /// ring.
    unsafe fn read(&mut self, ring: &mut Ring, slot: u32, pieces: &[Piece], tag: u64) -> crate::Result<()>;

    /// Begins to write `pieces` to slots.
    ///
    /// # Errors
    /// None; the real one has some.
    ///
    /// # Safety
    /// As for [`read`](Self::read), but that others may read the memory.
    unsafe fn write(&mut self, ring: &mut Ring, slot: u32, pieces: &[Piece], tag: u64) -> crate::Result<()>;

    /// What came of an operation that has ended.
    fn ended(&mut self, _done: &mut Done) {}
}

/// A disk of the machine's.
pub struct Disk {
    number: usize,
    block: usize,
}

impl Disk {
    /// An empty one, for blocks of `block` bytes.
    pub fn new(block: usize) -> Disk {
        let number = with(|machine| {
            machine.slots.push(Vec::new());
            machine.slots.len() - 1
        });
        Disk { number, block }
    }

    /// The bytes in a slot of the store with this number, 0 for the first.
    pub fn slot(number: usize, block: usize, slot: u32) -> Vec<u8> {
        with(|machine| machine.slots[number][slot as usize * block..][..block].to_vec())
    }

    fn begin(&self, ring: &mut Ring, slot: u32, pieces: &[Piece], tag: u64, write: bool) {
        let (medium, offset) = (Medium::Store(self.number), slot as usize * self.block);
        ring.push(Operation { medium, offset, pieces: pieces.to_vec(), write, tag });
    }
}

impl Store for Disk {
    fn name(&self) -> String {
        "the simulated disk".to_owned()
    }

    fn slots(&self) -> u32 {
        with(|machine| machine.slots[self.number].len() / self.block) as u32
    }

    fn grow(&mut self) -> Result<(), Error> {
        with(|machine| {
            let len = machine.slots[self.number].len() + EXTENT;
            machine.slots[self.number].resize(len, 0xcc);
        });
        Ok(())
    }

    fn goes_on(&self, slot: u32) -> bool {
        // Of two: so that some operations go across an edge, and some end there.
        (slot as usize * self.block / EXTENT).is_multiple_of(2)
    }

    unsafe fn read(&mut self, ring: &mut Ring, slot: u32, pieces: &[Piece], tag: u64) -> crate::Result<()> {
        self.begin(ring, slot, pieces, tag, false);
        Ok(())
    }

    unsafe fn write(&mut self, ring: &mut Ring, slot: u32, pieces: &[Piece], tag: u64) -> crate::Result<()> {
        self.begin(ring, slot, pieces, tag, true);
        Ok(())
    }
}
