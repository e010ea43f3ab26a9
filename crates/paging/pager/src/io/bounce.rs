//! Bounce buffers: huge pages through which long runs go if frames are scattered pages.
//!
//! A device's request is split at each gap in memory, and many devices transfer few large pieces
//! much faster than many small ones. Copying a run takes a fraction of the time that large pieces
//! save. Frames that were cut from huge pages need no copy (`frames/maker.rs`).

use crate::options::{Options, Tuning};
use terapage_store::{EXTENT, OpKind};
use terapage_sys::memory;
use terapage_sys::ring::Piece;

/// The most buffers, half of them for page-ins. With large pieces, two or three requests at once
/// are enough for a device's full speed. Chosen, not measured.
const MOST: usize = 8;

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
    begun: bool,
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
            begun: false,
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
        match self.wanted && !self.begun {
            true => (budget_bytes / self.tuning.bounce_part / EXTENT).min(MOST) / 2 * 2 * EXTENT,
            false => self.bytes,
        }
    }

    /// Makes buffers of `bytes` bytes in all, if they are wanted and there are none. They only save
    /// time, so missing memory for them is no error.
    pub fn begin(&mut self, bytes: usize) {
        if !self.wanted || self.begun {
            return;
        }
        self.begun = true;
        let Ok(area) = memory::reserve_huge(bytes) else { return };
        memory::advise(area, bytes, memory::MADV_HUGEPAGE);
        let half = bytes / EXTENT / 2;
        let buffers =
            |part: usize| (part * half..(part + 1) * half).map(|at| Buffer(area + at * EXTENT)).collect();
        self.free = [buffers(0), buffers(1)];
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
        if !self.begun {
            self.wanted = self.tuning.bounce.unwrap_or(scattered);
        }
        self.free[kind as usize].pop()
    }

    /// Gives a buffer back.
    pub fn put(&mut self, kind: OpKind, buffer: Buffer) {
        self.free[kind as usize].push(buffer);
    }
}
