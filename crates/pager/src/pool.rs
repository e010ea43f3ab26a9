//! Places for frames outside the program.
//!
//! A place is filled (it has a frame) or hollow (its frame is in the program, or was never
//! made). There are twice as many places as frames, so that runs of neighbours are easily found.

use crate::mover::{Lost, Mover};
use std::collections::VecDeque;
use terapage_sys::memory;

pub(crate) struct Pool {
    base: usize,
    block: usize,
    places: usize,
    hollow: VecDeque<u32>,
    free: VecDeque<u32>,
}

impl Pool {
    pub fn new(frames: usize, block: usize) -> terapage_sys::Result<Pool> {
        let places = frames * 2;
        let huge = 2 << 20;
        let base = memory::reserve(places * block + huge)? as usize;
        let base = base.next_multiple_of(huge);
        Ok(Pool { base, block, places, hollow: (0..places as u32).collect(), free: VecDeque::new() })
    }

    pub fn register(&self, mover: &Mover) -> terapage_sys::Result<()> {
        mover.register_pool(self.base, self.places * self.block)
    }

    pub fn address(&self, place: u32) -> usize {
        self.base + place as usize * self.block
    }

    /// The bytes of a filled place.
    pub fn bytes(&self, place: u32) -> &[u8] {
        // SAFETY: only the pager's thread touches places, and only filled ones; touching a hollow one is
        // a bus error, not a wrong byte.
        unsafe { memory::bytes(self.address(place), self.block) }
    }

    /// Makes a filled place all zero.
    pub fn zero(&mut self, place: u32) {
        // SAFETY: as above.
        unsafe { memory::bytes(self.address(place), self.block) }.fill(0);
    }

    /// Filled places that nobody needs.
    pub fn free_len(&self) -> usize {
        self.free.len()
    }

    /// Takes a filled place that nobody needs.
    pub fn take_free(&mut self) -> Option<u32> {
        self.free.pop_front()
    }

    /// A filled place is needed no more.
    pub fn put_free(&mut self, place: u32) {
        self.free.push_back(place);
    }

    /// Takes a hollow place, the neighbour of those taken before where it can.
    pub fn take_hollow(&mut self) -> u32 {
        self.hollow.pop_front().expect("twice as many places as frames")
    }

    /// A place has become hollow.
    pub fn put_hollow(&mut self, place: u32) {
        self.hollow.push_back(place);
    }

    /// Gives a hollow place a new frame.
    pub fn fill(&mut self, mover: &mut Mover) -> Result<u32, Lost> {
        let place = self.take_hollow();
        mover.fill(self.address(place), self.block)?;
        Ok(place)
    }
}
