//! Blocks in ordinary memory, for tests.

use crate::{Below, BelowMut, EXTENT, Ended, Error, Op, OpKind, Store, StoreRing};
use terapage_sys::memory;
use terapage_sys::ring::Done;

/// A store in memory, with a limit.
pub struct Ram {
    bytes: Vec<u8>,
    block: usize,
    limit: usize,
}

impl Ram {
    /// Slots of `block` bytes, `limit` bytes in all.
    pub fn new(block: usize, limit: usize) -> Ram {
        Ram { bytes: Vec::new(), block, limit }
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

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn joins(&self, _slot: u32) -> bool {
        true
    }

    fn may_split(&self, _more: usize) -> bool {
        true
    }

    fn split(&mut self, more: usize) {
        self.block /= more;
    }

    unsafe fn begin(&mut self, _ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let mut at = op.slot as usize * self.block;
        for piece in op.pieces {
            // SAFETY: the caller keeps the piece's memory valid, and without other users, until the
            // completion.
            let memory = unsafe { memory::bytes(piece.at(), piece.len()) };
            let slots = &mut self.bytes[at..at + piece.len()];
            match op.kind {
                OpKind::Read => memory.copy_from_slice(slots),
                OpKind::Write => slots.copy_from_slice(memory),
            }
            at += piece.len();
        }
        ended.push(Ended::well(op.id));
    }

    fn event(&mut self, _ring: &mut StoreRing<'_>, _done: Done, _ended: &mut Vec<Ended>) {}
}
