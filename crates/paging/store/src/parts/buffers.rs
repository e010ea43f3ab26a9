//! Memory of a store, in blocks, for bytes that are on their way to another store.

use crate::Error;
use terapage_sys::memory;
use terapage_sys::ring::Piece;

/// Blocks that operations take for a while. Each begins at a page boundary, as direct I/O requires.
pub(crate) struct Buffers {
    at: usize,
    len: usize,
    block: usize,
    /// The free blocks, by number; the last is taken first, so that few are touched.
    free: Vec<u32>,
    /// Vectors that were given back, now empty.
    spare: Vec<Vec<Piece>>,
}

impl Buffers {
    /// `len` bytes in blocks of `block`, for the store `name`.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(len: usize, block: usize, name: &str) -> Result<Buffers, Error> {
        let at = memory::reserve(len).map_err(|source| Error::System { name: name.to_owned(), source })?;
        let free = (0..(len / block) as u32).rev().collect();
        Ok(Buffers { at: at as usize, len, block, free, spare: Vec::new() })
    }

    /// Takes this number of blocks, with neighbours as one piece; `None` if there are not enough
    /// free blocks.
    pub fn take(&mut self, blocks: usize) -> Option<Vec<Piece>> {
        let rest = self.free.len().checked_sub(blocks)?;
        let mut pieces: Vec<Piece> = self.spare.pop().unwrap_or_default();
        for number in self.free.drain(rest..).rev() {
            let at = self.at + number as usize * self.block;
            match pieces.last_mut() {
                Some(last) if last.at() + last.len() == at => {
                    *last = Piece::new(last.at(), last.len() + self.block);
                }
                _ => pieces.push(Piece::new(at, self.block)),
            }
        }
        Some(pieces)
    }

    /// Takes the blocks of an operation back.
    pub fn give_back(&mut self, mut pieces: Vec<Piece>) {
        for piece in pieces.drain(..).rev() {
            let first = (piece.at() - self.at) / self.block;
            self.free.extend((first as u32..(first + piece.len() / self.block) as u32).rev());
        }
        self.spare.push(pieces);
    }

    /// In the child of a fork: all blocks are free.
    pub fn clear(&mut self) {
        self.free.clear();
        self.free.extend((0..(self.len / self.block) as u32).rev());
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; no operation uses a block any more, as the store is dropped.
        unsafe { memory::unmap(self.at as *mut u8, self.len) }.ok();
    }
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

#[cfg(test)]
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

    #[test]
    fn what_was_given_back_is_taken_again_in_one_piece() {
        let mut buffers = Buffers::new(8 * 4096, 4096, "test").unwrap();
        let (first, second) = (buffers.take(3).unwrap(), buffers.take(5).unwrap());
        assert!(first.len() == 1 && second.len() == 1 && buffers.take(1).is_none());
        buffers.give_back(second);
        buffers.give_back(first);
        let all = buffers.take(8).unwrap();
        assert_eq!(all.iter().map(Piece::len).collect::<Vec<_>>(), [8 * 4096]);
    }
}
