//! Where blocks live that have no frame.
//!
//! A [`Store`] holds blocks in numbered slots. Its reads and writes begin in the caller's
//! [`Ring`] and end there, so that one thread waits for faults and for all stores in one place. A
//! store that is no file (memory, a network) ends an operation by an empty
//! one in the ring and says in [`Store::ended`] what came of it.

mod faulty;
mod files;
mod member;
mod ram;
mod signature;

pub use faulty::{Faults, Faulty};
pub use files::{Files, Placement};
pub use member::{directory_of, takes_direct_io};
pub use ram::Ram;
use terapage_sys::ring::{Done, Piece, Ring};

/// Bytes that lie together in a store at least, and the most that one operation moves.
pub const EXTENT: usize = 2 << 20;

/// Why a store cannot be had or cannot grow.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("store {name}: {source}")]
    System {
        /// The store's name.
        name: String,
        /// The call and its answer.
        source: terapage_sys::Error,
    },
    /// There is no room.
    #[error("store {name} is full: {why}")]
    Full {
        /// The store's name.
        name: String,
        /// How full, and what to do.
        why: String,
    },
    /// The path cannot be a store.
    #[error("store {name} {why}")]
    Unfit {
        /// The path.
        name: String,
        /// What is wrong and what to do.
        why: String,
    },
}

/// A place for blocks, in slots of one size.
pub trait Store: Send {
    /// What people call it.
    fn name(&self) -> String;

    /// Slots that can be written now.
    fn slots(&self) -> u32;

    /// Makes room for more slots, in a step of the store's choice.
    ///
    /// # Errors
    /// [`Error::Full`] where there is none.
    fn grow(&mut self) -> Result<(), Error>;

    /// Whether `slot`, the first of an extent, lies right behind the slot before it, so that one
    /// operation may have both.
    fn goes_on(&self, _slot: u32) -> bool {
        false
    }

    /// Begins to read the slots from `slot` on into `pieces`: no more than [`EXTENT`] bytes, across
    /// the edge of an extent only where it [goes on](Self::goes_on).
    ///
    /// # Safety
    /// The pieces and their memory stay valid and untouched until the end has been taken from the
    /// ring.
    unsafe fn read(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()>;

    /// Begins to write `pieces` to the slots from `slot` on, as many as may be [read](Self::read)
    /// at once.
    ///
    /// # Safety
    /// As for [`read`](Self::read), but that others may read the memory.
    unsafe fn write(
        &mut self,
        ring: &mut Ring,
        slot: u32,
        pieces: &[Piece],
        tag: u64,
    ) -> terapage_sys::Result<()>;

    /// What came of an operation of this store that has ended in the ring: its last word on it.
    fn ended(&mut self, _done: &mut Done) {}
}

/// Bytes in `pieces`.
fn bytes(pieces: &[Piece]) -> usize {
    pieces.iter().map(Piece::len).sum()
}
