//! Bounce buffers: huge pages through which long runs go if frames are scattered pages.
//!
//! A device's request is cut wherever memory has a gap, and many a device transfers few large
//! pieces much faster than many small ones. To copy a run costs a fraction of the time that large
//! pieces save. Frames that were cut from huge pages need none of this (`maker.rs`).

use super::transfers::Operation;
use crate::engine::Engine;
use terapage_stats::Counters;
use terapage_store::{EXTENT, OpKind};
use terapage_sys::memory;
use terapage_sys::ring::Piece;

/// The most buffers, half of them for page-ins. With large pieces, a device reaches its speed with
/// two or three requests at once.
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

/// The buffers that are free.
#[derive(Default)]
pub(crate) struct Bounce {
    /// Free buffers by purpose: page-ins, page-outs.
    free: [Vec<Buffer>; 2],
    /// Bytes of all buffers, in use or free.
    bytes: usize,
}

impl Bounce {
    /// Bytes of the buffers that fit into `most` bytes; 0 if not even two fit.
    pub fn total_bytes_of(most: usize) -> usize {
        (most / EXTENT).min(MOST) / 2 * 2 * EXTENT
    }

    /// Makes buffers of `bytes` bytes in all.
    pub fn begin(bytes: usize) -> terapage_sys::Result<Bounce> {
        let area = memory::reserve_huge(bytes)?;
        memory::advise(area, bytes, memory::MADV_HUGEPAGE);
        let half = bytes / EXTENT / 2;
        let buffers =
            |part: usize| (part * half..(part + 1) * half).map(|at| Buffer(area + at * EXTENT)).collect();
        Ok(Bounce { free: [buffers(0), buffers(1)], bytes })
    }

    /// Bytes of all buffers.
    pub fn total_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are buffers for this purpose, but all are in use.
    pub fn is_used_up(&self, kind: OpKind) -> bool {
        self.bytes > 0 && self.free[kind as usize].is_empty()
    }

    /// Takes a free buffer.
    pub fn take(&mut self, kind: OpKind) -> Option<Buffer> {
        self.free[kind as usize].pop()
    }

    /// Gives a buffer back.
    pub fn put(&mut self, kind: OpKind, buffer: Buffer) {
        self.free[kind as usize].push(buffer);
    }
}

impl Engine {
    /// A buffer for a run of `blocks` blocks, if the run is long enough for one and one is free.
    pub(crate) fn buffer(&mut self, kind: OpKind, blocks: usize) -> Option<Buffer> {
        if blocks * self.block < self.options.long_run {
            return None;
        }
        let Some(bounce) = &mut self.io.bounce else {
            self.io.bounce_wanted = self.options.bounce.unwrap_or(self.frames.maker.was_slow());
            return None;
        };
        let buffer = bounce.take(kind)?;
        Counters::add(&self.counters.bounced_bytes, (blocks * self.block) as u64);
        Some(buffer)
    }

    /// Gives back the buffer of an operation, if it has one.
    pub(crate) fn put_buffer(&mut self, operation: &mut Operation) {
        if let (Some(buffer), Some(bounce)) = (operation.buffer.take(), &mut self.io.bounce) {
            bounce.put(operation.kind, buffer);
        }
    }

    /// Whether a run of `blocks` blocks should wait for a buffer.
    pub(crate) fn waits_for_buffer(&self, kind: OpKind, blocks: usize) -> bool {
        let long = blocks * self.block >= self.options.long_run;
        long && self.io.bounce.as_ref().is_some_and(|bounce| bounce.is_used_up(kind))
    }
}
