//! Neighbourhoods that are touched in no order, but soon all over: they are read as a whole.
//!
//! A program that goes over a part of its data at random touches every block of it before long.
//! Where that part fits into memory, one large read of a neighbourhood saves many small ones, each
//! of which a thread would wait for. Whether it fits is estimated by how many neighbourhoods are
//! touched in a while, and seen by how soon they have to be read again.

use super::Ahead;

/// Touches of a neighbourhood after which the rest of it is read: at first, and once such reads
/// have lasted.
const TOUCHES: u8 = 4;
const TOUCHES_PROVEN: u8 = 2;

/// Neighbourhoods read as a whole by which it is judged whether that pays.
const JUDGED: u32 = 64;

/// A neighbourhood that was read as a whole has paid if it need not be read again for this many
/// whiles: one and a half times the time in which memory is filled anew.
const LASTS: u32 = 12;

/// Nothing is read as a whole for this many whiles once most such reads did not pay.
const REST: u32 = 32;

/// The least blocks of a neighbourhood: of fewer, those that are touched anyway are most.
const EXTENT_MIN: u32 = 16;

/// A while: this part of the frames has been filled anew, or asked for.
const WHILE: u32 = 8;

/// The part of the frames, in eighths, that the neighbourhoods in use may need.
const FITS: u32 = 7;

/// Neighbourhoods that are kept in mind, for each that memory has room for.
const PLACES: u64 = 4;

/// What is known of a neighbourhood.
#[derive(Clone, Copy, Default)]
struct Extent {
    number: u32,
    /// The while of its last touch.
    at: u32,
    /// Touches in this while and the one before.
    touches: u8,
    /// The while in which it was read as a whole, or 0.
    read_at: u32,
}

/// Neighbourhoods that are touched out of order.
pub struct Dense {
    /// By number, as far as they go; the one touched last has the place.
    extents: Vec<Extent>,
    /// Blocks of a neighbourhood, as a power of two.
    shift: u32,
    frames: u32,
    /// The present while, from 1 on.
    now: u32,
    /// Blocks that came in during it.
    came: u32,
    /// Neighbourhoods touched in it, and in the one before.
    active: [u32; 2],
    /// Neighbourhoods read as a whole, and those of them that had been read not long before.
    read: u32,
    again: u32,
    /// Nothing is read before this while.
    rests_to: u32,
    /// Touches after which a neighbourhood is read.
    enough: u8,
}

impl Dense {
    /// Neighbourhoods of at most `run` blocks, beside `frames` blocks in memory.
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
            rests_to: 0,
            enough: TOUCHES,
        }
    }

    /// `blocks` come in, of whatever neighbourhood.
    pub fn come(&mut self, blocks: u32) {
        self.came = self.came.saturating_add(blocks);
        if self.came >= self.frames / WHILE {
            self.came = 0;
            self.now += 1;
            self.active = [0, self.active[0]];
        }
    }

    /// `block` was touched and belongs to no stream; the neighbourhood to read, if it is time.
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
