//! Places for frames outside the program.
//!
//! A place is filled (it has a frame) or hollow (its frame is in the program, or was never
//! made). There are twice as many places as frames, so that runs of neighbours are easily found.

use crate::maker::Maker;
use crate::mover::{Lost, Mover};
use std::collections::VecDeque;
use terapage_sys::memory::{self, HUGE};

pub(crate) struct Pool {
    base: usize,
    block: usize,
    places: usize,
    hollow: VecDeque<u32>,
    free: VecDeque<u32>,
    /// Free as well, and all zero.
    zero: VecDeque<u32>,
}

impl Pool {
    pub fn new(frames: usize, block: usize) -> terapage_sys::Result<Pool> {
        let places = frames * 2;
        let base = memory::reserve(places * block + HUGE)? as usize;
        let base = base.next_multiple_of(HUGE);
        Ok(Pool {
            base,
            block,
            places,
            hollow: (0..places as u32).collect(),
            free: VecDeque::new(),
            zero: VecDeque::new(),
        })
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
        self.free.len() + self.zero.len()
    }

    /// Takes a filled place that nobody needs.
    pub fn take_free(&mut self) -> Option<u32> {
        self.free.pop_front().or_else(|| self.zero.pop_front())
    }

    /// Takes one that is all zero, if there is one.
    pub fn take_zero(&mut self) -> Option<u32> {
        self.zero.pop_front()
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

    /// Makes up to `most` new frames, zero and free: a huge page's worth at once where it may. How many.
    pub fn make(&mut self, mover: &mut Mover, maker: &mut Maker, most: usize) -> Result<usize, Lost> {
        let many = HUGE / self.block;
        if most < many {
            maker.end();
        }
        if mover.moves() && most >= many {
            let places: Vec<u32> = (0..many).map(|_| self.take_hollow()).collect();
            let addresses: Vec<usize> = places.iter().map(|&place| self.address(place)).collect();
            let stage = maker.take(most / many);
            let made = mover.fill_huge(stage, &addresses, self.block);
            if stage.is_some() {
                maker.used();
            }
            self.zero.extend(&places[..made]);
            places[made..].iter().for_each(|&place| self.put_hollow(place));
            if made > 0 {
                return Ok(made);
            }
        }
        let place = self.take_hollow();
        mover.fill(self.address(place), self.block)?;
        self.zero.push_back(place);
        Ok(1)
    }
}
