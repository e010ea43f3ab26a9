//! Stores: places for blocks that have no frame.
//!
//! A [`Store`] keeps blocks in numbered slots. Its operations begin in the caller's ring, and their
//! completions come back to the store, so that one thread waits for faults and for all stores in
//! one place. Stores stack: [`Striped`] spreads over any others, [`Mirror`] keeps the same bytes in
//! several, [`Tiered`] fills one after the other, [`Encrypted`] gives another only ciphertext,
//! [`Compressed`] gives another fewer bytes, [`Packed`] compresses into memory, [`Faulty`] fails
//! and [`Delayed`] is late on purpose.

mod check;
mod common;
mod kinds;
mod open;
mod shelf;
mod testing;

pub use common::member::takes_direct_io;
pub use kinds::compressed::Compressed;
pub use kinds::encrypted::Encrypted;
pub use kinds::file::FileStore;
pub use kinds::mirror::{Mirror, Relief, Spare};
pub use kinds::packed::{Packed, packed_bytes};
pub use kinds::ram::Ram;
pub use kinds::striped::{Joins, Placement, Striped};
pub use kinds::tiered::{Tier, Tiered};
pub use open::{Elsewhere, OpenUrl, Shelf, Terms};
pub use shelf::{
    Below, BelowMut, Ended, Error, Failure, Notes, Op, OpKind, Presence, Redundancy, Spread, Store,
};
pub use shelf::{StoreRing, Why};
pub use terapage_config::{Codec, Faults};
use terapage_sys::ring::IoEngine;
pub use testing::delayed::Delayed;
pub use testing::faulty::Faulty;

/// The engine of a ring for the setting `io`; `None`: the best available one.
pub fn io_engine(io: terapage_config::Io) -> Option<IoEngine> {
    match io {
        terapage_config::Io::Auto => None,
        terapage_config::Io::Uring => Some(IoEngine::Uring),
        terapage_config::Io::Aio => Some(IoEngine::Aio),
        terapage_config::Io::Threads => Some(IoEngine::Threads),
    }
}

/// The minimum number of bytes that lie together in a store, and the most bytes that one operation
/// moves.
pub const EXTENT: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use terapage_sys::memory;
    use terapage_sys::ring::{IoEngine, Piece, Ring};

    /// A store, a ring and memory for its operations.
    pub(crate) struct Rig<S> {
        pub store: S,
        ring: Ring,
        at: usize,
        len: usize,
    }

    impl<S: Store> Rig<S> {
        /// Memory of `len` bytes; `None` if there is no ring.
        pub(crate) fn new(store: S, len: usize) -> Option<Rig<S>> {
            let ring = match Ring::with(IoEngine::of_tests(), 8, true) {
                Ok(ring) => ring,
                Err(error) => {
                    eprintln!("SKIPPED: no ring: {error}");
                    return None;
                }
            };
            let at = memory::reserve(len).unwrap() as usize;
            let mut rig = Rig { store, ring, at, len };
            rig.store.open(&mut StoreRing::new(&mut rig.ring, 0, 48), &mut Vec::new());
            Some(rig)
        }

        /// The memory.
        pub(crate) fn memory(&mut self) -> &mut [u8] {
            // SAFETY: mapped in `new`, never freed, and used only by this rig.
            unsafe { memory::bytes(self.at, self.len) }
        }

        /// Calls the store with its ring.
        pub(crate) fn in_ring(&mut self, call: impl FnOnce(&mut S, &mut StoreRing<'_>)) {
            call(&mut self.store, &mut StoreRing::new(&mut self.ring, 0, 48));
        }

        /// One operation, from its beginning to its completion, with the first `len` bytes of the
        /// memory.
        pub(crate) fn operate(&mut self, kind: OpKind, slot: u32, len: usize) -> Result<(), Failure> {
            let (pieces, mut ended) = ([Piece::new(self.at, len)], Vec::new());
            let op = Op { id: 3, kind, slot, pieces: &pieces, urgent: true };
            // SAFETY: the pieces and their memory stay valid until the completion, below.
            unsafe { self.store.begin(&mut StoreRing::new(&mut self.ring, 0, 48), op, &mut ended) };
            while ended.is_empty() {
                self.ring.enter(1).unwrap();
                while let Some(done) = self.ring.done() {
                    self.store.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut ended);
                }
            }
            assert_eq!((ended.len(), ended[0].id), (1, 3));
            ended.remove(0).result
        }
    }
}
