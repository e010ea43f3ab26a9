//! Where compressed blocks lie: which chain of units, and which bytes of it.

use super::units::NONE;

/// The place of a block.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    /// The first unit of its chain.
    pub first: u32,
    /// The byte of the chain at which it begins; [`PART`]: the chain has a block from before the
    /// split, of which it is a part.
    pub from: u32,
    /// Its bytes, or those of the block of which it is a part; a block's length means that it is
    /// not compressed.
    pub len: u32,
}

/// See [`Location::from`].
pub(crate) const PART: u32 = u32::MAX;
/// No block.
pub(crate) const NOWHERE: Location = Location { first: NONE, from: 0, len: 0 };

impl Location {
    /// Whether it is a part of a block from before the split.
    pub fn is_part(self) -> bool {
        self.from == PART
    }

    /// Whether the block, of `block` bytes, is not compressed.
    pub fn is_plain(self, block: usize) -> bool {
        self.len as usize == block && !self.is_part()
    }

    /// The bytes up to its end in its chain.
    pub fn end(self) -> u32 {
        if self.is_part() { self.len } else { self.from + self.len }
    }
}

/// Chains that an operation has read, whose bytes lie one after another in its buffers. Neighbours
/// share a chain, so the last chains suffice: the last with a block from before the split, and the
/// last with pages.
#[derive(Default)]
pub(crate) struct Chains([Option<(u32, usize)>; 2]);

impl Chains {
    /// The byte of the buffers at which a block's chain begins, which is `at` if the chain is new.
    pub fn place(&mut self, location: Location, at: usize) -> usize {
        let last = &mut self.0[usize::from(location.is_part())];
        match *last {
            Some((first, at)) if first == location.first => at,
            _ => last.insert((location.first, at)).1,
        }
    }
}
