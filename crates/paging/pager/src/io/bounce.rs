//! Bounce buffers: huge pages through which long runs go if frames are scattered pages.
//!
//! A device's request is split at each gap in memory, and many devices transfer few large pieces
//! much faster than many small ones. Copying a run takes a fraction of the time that large pieces
//! save. Frames that were cut from huge pages need no copy (`frames/maker.rs`).

use crate::options::{Options, Tuning};
use terapage_store::{EXTENT, OpKind};
use terapage_sys::memory;
use terapage_sys::ring::Piece;

/// The most buffers. Chosen, not measured.
const MOST: usize = 8;
/// As many as are enough for a stream of reads. Small budgets have no more.
const FEW: usize = 4;
/// One buffer in this many is for page-outs. With large pieces, two or three requests at once are
/// enough for a device's full speed; page-ins need one more, from which a run goes into the
/// program meanwhile.
const PAGE_OUTS: usize = 4;

/// A buffer of [`EXTENT`] bytes, which only its owner uses.
pub(crate) struct Buffer(usize);

impl Buffer {
    /// The first `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= EXTENT);
        // SAFETY: the memory stays mapped, and only this buffer's owner uses it.
        unsafe { memory::bytes(self.0, len) }
    }

    /// The address of the buffer.
    pub fn at(&self) -> usize {
        self.0
    }

    /// The first `len` bytes, as a piece for the ring.
    pub fn piece(&self, len: usize) -> Piece {
        assert!(len <= EXTENT);
        Piece::new(self.0, len)
    }
}

/// The bounce buffers of a pager. None exists before it is wanted.
pub(crate) struct Bounce {
    block: usize,
    tuning: Tuning,
    wanted: bool,
    /// The kernel had no memory for more.
    refused: bool,
    /// Free buffers by purpose: page-ins, page-outs.
    free: [Vec<Buffer>; 2],
    /// Bytes of all buffers, in use or free.
    bytes: usize,
}

impl Bounce {
    /// No buffers yet.
    pub fn new(options: &Options) -> Bounce {
        Bounce {
            block: options.block,
            tuning: options.tuning,
            wanted: false,
            refused: false,
            free: Default::default(),
            bytes: 0,
        }
    }

    /// Each block has become `more` blocks.
    pub fn split(&mut self, more: usize) {
        self.block /= more;
    }

    /// Bytes of all buffers, including those that will be made next if the budget has this many
    /// bytes.
    pub fn bytes_in(&self, budget_bytes: usize) -> usize {
        let part = self.tuning.bounce_part;
        let few = (budget_bytes / part / EXTENT).min(FEW);
        let most = (budget_bytes / (2 * part) / EXTENT).min(MOST);
        let wanted = if self.wanted && !self.refused { few.max(most) / 2 * 2 } else { 0 };
        self.bytes.max(wanted * EXTENT)
    }

    /// Makes more buffers, so that there are `bytes` bytes of them. They only save time, so missing
    /// memory for them is no error.
    pub fn grow(&mut self, bytes: usize) {
        if bytes <= self.bytes {
            return;
        }
        let Ok(area) = memory::reserve_huge(bytes - self.bytes) else {
            self.refused = true;
            return;
        };
        memory::advise(area, bytes - self.bytes, memory::MADV_HUGEPAGE);
        for number in self.bytes / EXTENT..bytes / EXTENT {
            let kind = if number % PAGE_OUTS == 1 { OpKind::Write } else { OpKind::Read };
            self.put(kind, Buffer(area + number * EXTENT - self.bytes));
        }
        self.bytes = bytes;
    }

    /// Bytes of all buffers.
    pub fn total_bytes(&self) -> usize {
        self.bytes
    }

    fn is_long(&self, blocks: usize) -> bool {
        blocks * self.block >= self.tuning.long_run_bytes
    }

    /// Whether a run of `blocks` blocks should wait for a buffer: there are some, but all are in
    /// use.
    pub fn is_waited_for(&self, kind: OpKind, blocks: usize) -> bool {
        self.is_long(blocks) && self.bytes > 0 && self.free[kind as usize].is_empty()
    }

    /// Takes a buffer for a run of `blocks` blocks, if the run is long enough and a buffer is free.
    /// `scattered` says that frames are single pages.
    pub fn take(&mut self, kind: OpKind, blocks: usize, scattered: bool) -> Option<Buffer> {
        if !self.is_long(blocks) {
            return None;
        }
        self.wanted |= self.tuning.bounce.unwrap_or(scattered);
        self.free[kind as usize].pop()
    }

    /// Gives a buffer back.
    pub fn put(&mut self, kind: OpKind, buffer: Buffer) {
        self.free[kind as usize].push(buffer);
    }
}

#[cfg(all(test, not(terapage_model)))]
mod tests {
    use super::{Bounce, EXTENT, FEW, MOST, OpKind};
    use crate::options::Options;

    #[test]
    fn buffers_come_with_the_budget() {
        let options = Options::default();
        let (mut bounce, part) = (Bounce::new(&options), options.tuning.bounce_part * EXTENT);
        assert_eq!(bounce.bytes_in(FEW * part), 0, "none is wanted");
        // A program begins with a small share of its budget.
        assert!(bounce.take(OpKind::Read, EXTENT / options.block, true).is_none());
        bounce.grow(bounce.bytes_in(part));
        assert_eq!(bounce.total_bytes(), 0);
        for (budget, buffers) in
            [(2 * part, 2), (FEW * part, FEW), (3 * FEW * part, 6), (9 * MOST * part, MOST)]
        {
            bounce.grow(bounce.bytes_in(budget));
            assert_eq!(bounce.total_bytes(), buffers * EXTENT);
            let [reads, writes] = [OpKind::Read, OpKind::Write].map(|kind| {
                let all: Vec<_> =
                    std::iter::from_fn(|| bounce.take(kind, EXTENT / options.block, false)).collect();
                let count = all.len();
                all.into_iter().for_each(|mut buffer| {
                    buffer.bytes(EXTENT).fill(1);
                    bounce.put(kind, buffer);
                });
                count
            });
            assert_eq!((reads, writes), (buffers - buffers.div_ceil(4), buffers.div_ceil(4)));
        }
        assert_eq!(bounce.bytes_in(part), MOST * EXTENT, "none is given back");
    }
}
