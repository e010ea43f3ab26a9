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

    /// Each block becomes `more` blocks. All are free.
    pub fn split(&mut self, more: usize) {
        self.block /= more;
        self.clear();
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

#[cfg(test)]
mod tests {
    use super::*;

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
