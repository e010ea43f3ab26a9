//! Loads: the work on the bytes of blocks that go into the program or out of it. A load needs
//! nothing of the engine's state. While a load is carried out, its blocks' frames have no other
//! user.

pub(crate) mod events;
pub(crate) mod hash;
pub(crate) mod mover;

use hash::{Hashed, hash_before};
use mover::{Lost, Mover, Taken};
use terapage_sys::{memory, page_bytes};

/// Writes `value` to the first byte of each page: when the kernel splits a huge page, it frees the
/// pages that are all zero.
pub(crate) fn mark(at: usize, len: usize, value: u8) {
    // SAFETY: only this thread uses the pages.
    let bytes = unsafe { memory::bytes(at, len) };
    bytes.iter_mut().step_by(page_bytes()).for_each(|byte| *byte = value);
}

/// Blocks that lie together in the pool and go together into the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub program: usize,
    pub place: usize,
    /// Where the bytes are, if not in the places: in a bounce buffer.
    pub buffer: Option<usize>,
    pub len: usize,
    /// The number of blocks. If `len` is a page, smaller than a block, only that page of one block
    /// goes, as a [trial](crate::engine).
    pub blocks: usize,
    /// Whether to copy the blocks, so that the frames stay in the pool.
    pub copy: bool,
    /// Whether the blocks were copied.
    pub copied: bool,
}

impl Run {
    /// Whether the block in this place goes into the program from a bounce buffer.
    fn has_in_buffer(&self, place: usize) -> bool {
        self.buffer.is_some() && (self.place..self.place + self.len).contains(&place)
    }

    /// Puts the run into the program, and wakes the waiters.
    pub fn install(&mut self, mover: &mut Mover) -> Result<(), Lost> {
        if let Some(buffer) = self.buffer {
            self.copied = self.copy;
            let place = (!self.copy).then_some(self.place);
            return mover.copy_from(self.program, buffer, self.len, place);
        }
        if self.copy {
            self.copied = mover.copy(self.program, self.place, self.len)?;
            return Ok(());
        }
        mover.install(self.program, self.place, self.len)
    }
}

/// A block that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The address of the block's place.
    pub place: usize,
    /// The expected hash of its bytes, if known.
    pub expected: Option<u128>,
    /// Only half of that hash is known: the lower 64 bits.
    pub half: bool,
    /// The hash of its bytes, if the load computes hashes.
    pub hash: u128,
}

impl Arrival {
    fn is_right(&self) -> bool {
        match self.expected {
            None => true,
            Some(hash) if self.half => hash as u64 == self.hash as u64,
            Some(hash) => hash == self.hash,
        }
    }
}

/// Blocks that were read. A run of them goes into the program if all its blocks are right.
#[derive(Debug)]
pub(crate) struct LoadIn {
    /// The address of the bounce buffer into which the blocks were read; `None` if they were read
    /// into their places.
    pub buffer: Option<usize>,
    pub blocks: Vec<Arrival>,
    /// Whether to compute their hashes.
    pub checks: bool,
    /// Whether to install them only if their hashes are as expected.
    pub verify: bool,
    pub runs: Vec<Run>,
    /// Whether the runs are in the program now.
    pub good: bool,
}

impl LoadIn {
    /// Does the work. An error says how the program's bytes were lost.
    pub fn carry(&mut self, mover: &mut Mover, block: usize) -> Result<(), Lost> {
        for index in 0..self.blocks.len() {
            // Bytes of a buffer are in the first-level cache when they are hashed.
            let next = self.blocks.get(index + 1).filter(|_| self.buffer.is_none());
            let next = next.map(|arrival| arrival.place);
            let arrival = &mut self.blocks[index];
            // SAFETY: the place is filled, and only this load uses the place and the buffer.
            let bytes = unsafe { memory::bytes(arrival.place, block) };
            if let Some(buffer) = self.buffer
                && !self.runs.iter().any(|run| run.has_in_buffer(arrival.place))
            {
                // SAFETY: the buffer is as long as its blocks, and only this load uses it.
                bytes.copy_from_slice(unsafe { memory::bytes(buffer + index * block, block) });
            }
            if self.checks {
                arrival.hash = hash_before(bytes, next);
            }
        }
        self.good = !self.verify || self.blocks.iter().all(Arrival::is_right);
        if self.good { self.runs.iter_mut().try_for_each(|run| run.install(mover)) } else { Ok(()) }
    }
}

/// A block that leaves the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    /// Its address in the program; `None` if its frame is already in its place.
    pub program: Option<usize>,
    /// The address of the block's place.
    pub place: usize,
    /// Whether its bytes are those of a sealed file, which need no inspection.
    pub sealed: bool,
    /// The result of inspecting its bytes; `None` if something else holds the block: then it is
    /// still in the program.
    pub hashed: Option<Hashed>,
}

/// Takes blocks out of the program, in runs: neighbours in the program and in the pool.
pub(crate) fn out(mover: &mut Mover, block: usize, blocks: &mut [Departure]) -> Result<(), Lost> {
    let neighbours = |one: &Departure, next: &Departure| {
        next.place == one.place + block
            && next.program == one.program.map(|at| at + block)
            && one.program.is_some()
            && next.sealed == one.sealed
    };
    blocks.chunk_by_mut(neighbours).try_for_each(|run| take(mover, block, run))
}

/// Takes neighbours out of the program, and inspects the bytes of those that left.
fn take(mover: &mut Mover, block: usize, run: &mut [Departure]) -> Result<(), Lost> {
    if let Some(program) = run[0].program {
        match mover.take(run[0].place, program, run.len() * block)? {
            Taken::All => {}
            Taken::Busy if run.len() == 1 => return Ok(()),
            Taken::Busy => return run.chunks_mut(1).try_for_each(|one| take(mover, block, one)),
        }
    }
    let places: Vec<usize> = run.iter().map(|departure| departure.place).collect();
    for (index, departure) in run.iter_mut().enumerate() {
        if departure.sealed {
            departure.hashed = Some(Hashed::UNKNOWN);
            continue;
        }
        let next = places.get(index + 1).copied();
        // SAFETY: the place is filled, and only this load uses it.
        departure.hashed = Some(Hashed::at(unsafe { memory::bytes(departure.place, block) }, next));
    }
    Ok(())
}
