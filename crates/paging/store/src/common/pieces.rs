//! The pieces of memory of an operation.

use terapage_sys::memory;
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

/// Copies the bytes of some pieces to others, of the same total length.
///
/// # Safety
/// The memory of both is valid; no code writes to `from` or uses `to`.
pub(crate) unsafe fn copy(from: &[Piece], to: &[Piece]) {
    let (mut to, mut into) = (to.iter(), Piece::new(0, 0));
    for piece in from {
        let mut done = 0;
        while done < piece.len() {
            if into.is_empty() {
                into = *to.next().expect("pieces of the same length");
            }
            let len = into.len().min(piece.len() - done);
            // SAFETY: both lie in memory that is valid; nobody writes to the one, or uses the
            // other.
            let (source, target) =
                unsafe { (memory::bytes(piece.at() + done, len), memory::bytes(into.at(), len)) };
            target.copy_from_slice(source);
            done += len;
            into = Piece::new(into.at() + len, into.len() - len);
        }
    }
}

/// Passes each block in the pieces to `act`, one after another. If `CHANGE`, `act` may change the
/// block in place. A block that lies in several pieces is assembled in `whole`, which has the
/// length of a block.
///
/// # Safety
/// The pieces' memory is valid, and no other code writes to it, or uses it at all if it may change.
pub(crate) unsafe fn each_block<const CHANGE: bool>(
    pieces: &[Piece],
    whole: &mut [u8],
    mut act: impl FnMut(&mut [u8]),
) {
    let block = whole.len();
    // Where the assembled block begins: in which piece, and at which byte of that piece.
    let (mut filled, mut begin) = (0, (0, 0));
    for (index, piece) in pieces.iter().enumerate() {
        let mut done = 0;
        while done < piece.len() {
            if filled == 0 && piece.len() - done >= block {
                // SAFETY: the block lies in a piece, whose memory is valid and not written by
                // others; it changes only if nobody else uses it.
                act(unsafe { memory::bytes(piece.at() + done, block) });
                done += block;
                continue;
            }
            if filled == 0 {
                begin = (index, done);
            }
            let len = (block - filled).min(piece.len() - done);
            // SAFETY: a part of a piece, whose memory is valid; nobody writes to it here.
            let part = unsafe { memory::bytes(piece.at() + done, len) };
            whole[filled..filled + len].copy_from_slice(part);
            (filled, done) = (filled + len, done + len);
            if filled == block {
                act(whole);
                filled = 0;
                if !CHANGE {
                    continue;
                }
                let first = pieces[begin.0];
                let mut parts = vec![Piece::new(first.at() + begin.1, first.len() - begin.1)];
                parts.extend(&pieces[begin.0 + 1..index]);
                parts.push(Piece::new(piece.at(), done));
                // SAFETY: the pieces may change, so nobody else uses them; `whole` belongs to none.
                unsafe { copy(&[Piece::new(whole.as_ptr() as usize, block)], &parts) };
            }
        }
    }
    debug_assert_eq!(filled, 0, "whole slots");
}

#[cfg(all(test, not(terapage_model)))]
mod tests {
    use super::*;

    #[test]
    fn a_block_in_several_pieces_is_changed_where_it_lies() {
        let (mut memory, mut whole) = ((0..16).collect::<Vec<u8>>(), [0; 4]);
        let at = memory.as_mut_ptr() as usize;
        // 8 9 10 | 0 1 2 3 4 | 11 12 13 14: three blocks.
        let pieces = [(8, 3), (0, 5), (11, 4)].map(|(from, len)| Piece::new(at + from, len));
        let mut seen = Vec::new();
        // SAFETY: the pieces lie in the vector, which has no other user.
        unsafe {
            each_block::<true>(&pieces, &mut whole, |bytes| {
                seen.push(bytes.to_vec());
                bytes.iter_mut().for_each(|byte| *byte += 100);
            });
        }
        assert_eq!(seen, [[8, 9, 10, 0], [1, 2, 3, 4], [11, 12, 13, 14]]);
        let wanted: Vec<u8> = (0..16).map(|i| if [5, 6, 7, 15].contains(&i) { i } else { i + 100 }).collect();
        assert_eq!(memory, wanted);
    }
}
