//! Neighbourhoods whose blocks are touched in random order, but soon all of them: each is read as a
//! whole.
//!
//! A program that uses a part of its data at random soon touches each block of that part. If that
//! part fits into memory, one large read of a neighbourhood saves many small ones, for each of
//! which a thread would wait. The number of neighbourhoods that are touched in a while gives an
//! estimate of whether the part fits; how soon they must be read again shows it.

use super::Ahead;

/// The number of touches of a neighbourhood after which the rest of it is read, at first.
const TOUCHES: u8 = 4;
/// The same number, once such reads have paid.
const TOUCHES_PROVEN: u8 = 2;

/// After this many neighbourhoods have been read as a whole, the policy judges whether such reads
/// pay.
const JUDGED: u32 = 64;

/// Reading a neighbourhood as a whole has paid if it need not be read again for this many whiles:
/// one and a half times the time in which memory is refilled.
const LASTS: u32 = 12;

/// After most such reads did not pay, nothing is read as a whole for this many whiles.
const REST: u32 = 32;

/// Samples of such reads that are judged together. If less than this part of them was used, per
/// cent, the reads did not pay, and the rest is twice as long each time, up to the limit. Chosen,
/// not measured.
const SAMPLES: u32 = 16;
const USED_PERCENT: u32 = 45;
const REST_MAX: u32 = 32 * REST;

/// The minimum number of blocks of a neighbourhood: in a smaller one, most blocks are touched
/// before the rest is read.
const EXTENT_MIN: u32 = 16;

/// A while: the time in which the number of frames divided by this is refilled.
const WHILE: u32 = 8;

/// The part of the frames, in eighths, that the neighbourhoods in use may need.
const FITS: u32 = 7;

/// The number of neighbourhoods that are remembered, for each that fits into memory.
const PLACES: u64 = 4;

/// What is known about a neighbourhood.
#[derive(Clone, Copy, Default)]
struct Extent {
    number: u32,
    /// The while in which it was last touched.
    at: u32,
    /// Touches in this while and the previous one.
    touches: u8,
    /// The while in which it was read as a whole, or 0.
    read_at: u32,
}

/// Neighbourhoods that are touched out of order.
pub struct Dense {
    /// Neighbourhoods by number, modulo the length; the last touched one has the place.
    extents: Vec<Extent>,
    /// The number of blocks in a neighbourhood, as an exponent of two.
    shift: u32,
    frames: u32,
    /// The present while, from 1 on.
    now: u32,
    /// Blocks that came in during the present while.
    came: u32,
    /// Neighbourhoods touched in the present while, and in the previous one.
    active: [u32; 2],
    /// Neighbourhoods read as a whole since the last judgement.
    read: u32,
    /// The number of these that had been read as a whole not long before.
    again: u32,
    /// Samples of them since the last judgement, and how many of these were used.
    samples: u32,
    used: u32,
    /// No neighbourhood is read before this while.
    rests_to: u32,
    /// The length of the next rest that samples cause.
    rest: u32,
    /// Touches after which a neighbourhood is read.
    enough: u8,
}

impl Dense {
    /// Neighbourhoods of at most `run` blocks, for a memory of `frames` blocks.
    pub fn new(run: u32, frames: u32) -> Self {
        let shift = run.max(1).ilog2();
        let places = (u64::from(frames >> shift) * PLACES).next_power_of_two();
        let extents = vec![Extent::default(); places as usize];
        Dense {
            extents,
            shift,
            frames,
            now: 1,
            came: 0,
            active: [0; 2],
            read: 0,
            again: 0,
            samples: 0,
            used: 0,
            rests_to: 0,
            rest: REST,
            enough: TOUCHES,
        }
    }

    /// `blocks` blocks come in, of any neighbourhood.
    pub fn come(&mut self, blocks: u32) {
        self.came = self.came.saturating_add(blocks);
        if self.came >= self.frames / WHILE {
            self.came = 0;
            self.now += 1;
            self.active = [0, self.active[0]];
        }
    }

    /// Whether the neighbourhood of `block` was read as a whole in this while or the previous one:
    /// the read itself may end a while.
    pub fn has_just_read(&self, block: u32) -> bool {
        self.extent(block).is_some_and(|extent| extent.read_at > 0 && extent.read_at + 1 >= self.now)
    }

    fn extent(&self, block: u32) -> Option<&Extent> {
        let number = block >> self.shift;
        let extent = self.extents.get(number as usize % self.extents.len().max(1))?;
        (extent.number == number).then_some(extent)
    }

    /// Notes whether `block`, a sample of a run, was used.
    pub fn sampled(&mut self, block: u32, used: bool) {
        if self.extent(block).is_none_or(|extent| extent.read_at == 0) {
            return;
        }
        self.samples += 1;
        self.used += u32::from(used);
        if self.samples < SAMPLES {
            return;
        }
        if self.used * 100 < self.samples * USED_PERCENT {
            self.rests_to = self.now + self.rest;
            self.rest = (self.rest * 2).min(REST_MAX);
        } else {
            self.rest = REST;
        }
        (self.samples, self.used) = (0, 0);
    }

    /// `block` was touched and belongs to no stream. Returns the neighbourhood to read, if there
    /// have been enough touches.
    pub fn touched(&mut self, block: u32) -> Option<Ahead> {
        let count = 1 << self.shift;
        if count < EXTENT_MIN {
            return None;
        }
        let (now, number) = (self.now, block >> self.shift);
        let places = self.extents.len();
        let extent = &mut self.extents[number as usize % places];
        if extent.number != number {
            *extent = Extent { number, ..Extent::default() };
        }
        if extent.at != now {
            self.active[0] += 1;
            extent.touches = if extent.at + 1 == now { extent.touches } else { 0 };
            extent.at = now;
        }
        extent.touches = extent.touches.saturating_add(1);
        if extent.touches < self.enough || now < self.rests_to {
            return None;
        }
        extent.touches = 0;
        let active = self.active[0].max(self.active[1]);
        if u64::from(active) * u64::from(count) > u64::from(self.frames) * u64::from(FITS) / 8 {
            return None;
        }
        self.again += u32::from(extent.read_at > 0 && now - extent.read_at <= LASTS);
        extent.read_at = now;
        self.read += 1;
        if self.read == JUDGED {
            self.rests_to = if self.again > JUDGED / 2 { now + REST } else { 0 };
            self.enough = if self.again > JUDGED / 4 { TOUCHES } else { TOUCHES_PROVEN };
            (self.read, self.again) = (0, 0);
        }
        Some(Ahead { first: number << self.shift, count, step: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::{Dense, REST, SAMPLES};

    /// Touches of one neighbourhood after the other until a read begins. Returns its first block.
    fn first_read(dense: &mut Dense) -> Option<u32> {
        let read = (0..64_u32).find_map(|at| dense.touched(1000 * 64 + at))?;
        Some(read.first)
    }

    fn judged(used: bool) -> Dense {
        let mut dense = Dense::new(64, 1024);
        let first = first_read(&mut dense).expect("four touches are enough");
        dense.come(128);
        assert!(dense.has_just_read(first) && !dense.has_just_read(first + 64));
        (0..SAMPLES).for_each(|sample| dense.sampled(first + sample, used));
        dense
    }

    #[test]
    fn it_rests_if_what_it_read_was_not_used() {
        let (mut used, mut wasted) = (judged(true), judged(false));
        assert!(first_read(&mut used).is_some());
        assert!(first_read(&mut wasted).is_none());
        (0..REST).for_each(|_| wasted.come(128));
        assert!(first_read(&mut wasted).is_some(), "the rest has ended");
        (0..SAMPLES).for_each(|sample| wasted.sampled(1000 * 64 + sample, false));
        (0..REST).for_each(|_| wasted.come(128));
        assert!(first_read(&mut wasted).is_none(), "the next rest is longer");
    }

    #[test]
    fn samples_of_streams_do_not_count() {
        let mut dense = Dense::new(64, 1024);
        (0..SAMPLES).for_each(|sample| dense.sampled(sample, false));
        assert!(first_read(&mut dense).is_some());
    }
}
