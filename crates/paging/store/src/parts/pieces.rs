//! The pieces of memory of an operation.

use terapage_sys::ring::Piece;

/// The array of an operation's pieces. Whoever began the operation keeps the array until the
/// operation has ended.
#[derive(Clone, Copy)]
pub(crate) struct KeptPieces(*const [Piece]);

// SAFETY: nobody writes to the array while it is kept, so any thread may read it.
unsafe impl Send for KeptPieces {}

impl KeptPieces {
    /// Notes where the array is.
    ///
    /// # Safety
    /// The array stays valid and as it is until the operation has ended, and nobody asks for it
    /// after that.
    pub unsafe fn new(pieces: &[Piece]) -> KeptPieces {
        KeptPieces(pieces)
    }

    /// The array.
    pub fn get(&self) -> &[Piece] {
        // SAFETY: the operation is under way, so the array is kept.
        unsafe { &*self.0 }
    }
}

/// `len` bytes of pieces, from a byte on.
pub(crate) fn cut(pieces: &[Piece], mut from: usize, mut len: usize) -> Vec<Piece> {
    let mut part = Vec::new();
    for piece in pieces {
        let skip = from.min(piece.len());
        let take = len.min(piece.len() - skip);
        if take > 0 {
            part.push(Piece::new(piece.at() + skip, take));
        }
        (from, len) = (from - skip, len - take);
    }
    part
}
