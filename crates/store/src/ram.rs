//! Blocks in ordinary memory, for tests.

use crate::{EXTENT, Error, Store, bytes};
use std::collections::HashMap;
use terapage_sys::memory;
use terapage_sys::ring::{Done, Piece, Ring};

/// A store in memory, with a limit.
pub struct Ram {
    bytes: Vec<u8>,
    block: usize,
    limit: usize,
    ends: HashMap<u64, i32>,
}

impl Ram {
    /// Slots of `block` bytes, `limit` bytes in all.
    pub fn new(block: usize, limit: usize) -> Ram {
        Ram { bytes: Vec::new(), block, limit, ends: HashMap::new() }
    }

    fn end(&mut self, ring: &mut Ring, pieces: &[Piece], tag: u64) -> terapage_sys::Result<()> {
        self.ends.insert(tag, bytes(pieces) as i32);
        ring.nothing(tag)
    }
}

impl Store for Ram {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn slots(&self) -> u32 {
        (self.bytes.len() / self.block) as u32
    }

    fn grow(&mut self) -> Result<(), Error> {
        let len = self.bytes.len() + EXTENT;
        if len > self.limit {
            return Err(Error::Full {
                name: self.name(),
                why: format!("{} bytes are all it has", self.limit),
            });
        }
        self.bytes.resize(len, 0);
        Ok(())
    }

    fn goes_on(&self, _slot: u32) -> bool {
        true
    }

    unsafe fn read(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()> {
        let mut from = slot as usize * self.block;
        for piece in pieces {
            // SAFETY: the caller's promise.
            unsafe { memory::bytes(piece.at(), piece.len()) }
                .copy_from_slice(&self.bytes[from..from + piece.len()]);
            from += piece.len();
        }
        self.end(ring, pieces, tag)
    }

    unsafe fn write(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()> {
        let mut to = slot as usize * self.block;
        for piece in pieces {
            // SAFETY: the caller's promise.
            self.bytes[to..to + piece.len()]
                .copy_from_slice(unsafe { memory::bytes(piece.at(), piece.len()) });
            to += piece.len();
        }
        self.end(ring, pieces, tag)
    }

    fn ended(&mut self, done: &mut Done) {
        if let Some(result) = self.ends.remove(&done.tag) {
            done.result = result;
        }
    }
}
