//! Places for frames outside the program.
//!
//! A place is filled (it has a frame) or empty (its frame is in the program, or was never made).
//! There are twice as many places as frames, and most frames are in the program. So runs of empty
//! neighbours are easy to find.

use super::maker::Maker;
use crate::carry::mover::{Lost, Mover};
use std::collections::VecDeque;
use std::ops::Range;
use terapage_sys::memory::{self, HUGE};
use terapage_sys::ring::Piece;

/// The empty places: a bit for each.
///
/// Places are taken in order of address, starting behind the last one taken. Before the search
/// returns to that place, most frames that were put there have gone into the program, so the empty
/// places lie together.
struct EmptyPlaces {
    words: Vec<u64>,
    next: u32,
}

impl EmptyPlaces {
    fn new(places: usize) -> EmptyPlaces {
        let mut words = vec![!0; places.div_ceil(64)];
        if !places.is_multiple_of(64) {
            words[places / 64] = (1 << (places % 64)) - 1;
        }
        EmptyPlaces { words, next: 0 }
    }

    fn put(&mut self, place: u32) {
        assert!(!self.has(place), "place {place} is emptied, but empty already");
        self.words[place as usize / 64] |= 1 << (place % 64);
    }

    fn has(&self, place: u32) -> bool {
        self.words.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 != 0)
    }

    /// Each place has become `more` places, which divides 64.
    fn split(&mut self, more: u32, places: usize) {
        let old = std::mem::replace(self, EmptyPlaces { words: vec![0; places.div_ceil(64)], next: 0 });
        self.next = old.next * more;
        let mut from = old.first_from(0);
        while let Some(place) = from {
            (place * more..(place + 1) * more).for_each(|part| self.put(part));
            from = old.first_from(place + 1);
        }
    }

    /// The number of frames.
    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The first empty place from `place` to the end.
    fn first_from(&self, place: u32) -> Option<u32> {
        let word = place as usize / 64;
        let rest = self.words.get(word)? & (!0 << (place % 64));
        let others = self.words[word + 1..].iter().copied();
        let found = std::iter::once(rest).chain(others).enumerate().find(|&(_, bits)| bits != 0);
        found.map(|(at, bits)| ((word + at) * 64) as u32 + bits.trailing_zeros())
    }

    /// Takes the next empty place and those that directly follow it, at most `most` in all.
    fn take(&mut self, most: usize) -> Option<Range<u32>> {
        let first = self.first_from(self.next).or_else(|| self.first_from(0))?;
        let mut end = first;
        while (end - first) < most as u32 && self.has(end) {
            self.words[end as usize / 64] &= !(1 << (end % 64));
            end += 1;
        }
        self.next = end;
        Some(first..end)
    }
}

pub(crate) struct Pool {
    base: usize,
    block: usize,
    places: usize,
    empty: EmptyPlaces,
    free: VecDeque<u32>,
    /// Free places that are all zero.
    zero: VecDeque<u32>,
}

impl Pool {
    pub fn new(frames: usize, block: usize) -> terapage_sys::Result<Pool> {
        let places = frames * 2;
        let base = memory::reserve_huge(places * block)?;
        Ok(Pool {
            base,
            block,
            places,
            empty: EmptyPlaces::new(places),
            free: VecDeque::new(),
            zero: VecDeque::new(),
        })
    }

    /// Each place has become `more` places.
    pub fn split(&mut self, more: usize) {
        self.block /= more;
        self.places *= more;
        let more = more as u32;
        self.empty.split(more, self.places);
        for places in [&mut self.free, &mut self.zero] {
            *places = places.iter().flat_map(|&place| place * more..(place + 1) * more).collect();
        }
    }

    pub fn register(&self, mover: &Mover) -> terapage_sys::Result<()> {
        mover.register_pool(self.base, self.places * self.block)
    }

    /// The start of the pool, and its bytes.
    pub fn whole(&self) -> (usize, usize) {
        (self.base, self.places * self.block)
    }

    pub fn address(&self, place: u32) -> usize {
        self.base + place as usize * self.block
    }

    /// The bytes of a filled place.
    pub fn bytes(&self, place: u32) -> &[u8] {
        // SAFETY: only the pager's thread touches a place, and only if it is filled. To touch an
        // empty place is a bus error, not a wrong byte.
        unsafe { memory::bytes(self.address(place), self.block) }
    }

    /// Fills a place with zeros.
    pub fn zero(&mut self, place: u32) {
        // SAFETY: the place is filled, and the caller has the pool for changing.
        unsafe { memory::bytes(self.address(place), self.block) }.fill(0);
    }

    /// The number of filled places that are not needed.
    pub fn free_len(&self) -> usize {
        self.free.len() + self.zero.len()
    }

    /// The number of filled places, computed by counting.
    pub fn filled(&self) -> usize {
        self.places - self.empty.count()
    }

    /// Whether some of the free places are all zero.
    pub fn has_zero(&self) -> bool {
        !self.zero.is_empty()
    }

    /// Takes a filled place that is not needed.
    pub fn take_free(&mut self) -> Option<u32> {
        self.free.pop_front().or_else(|| self.zero.pop_front())
    }

    /// Takes a free place that is all zero, if there is one.
    pub fn take_zero(&mut self) -> Option<u32> {
        self.zero.pop_front()
    }

    /// Returns a filled place that is not needed.
    pub fn put_free(&mut self, place: u32) {
        self.free.push_back(place);
    }

    /// Returns the frames of filled places that are not needed to the kernel.
    pub fn give_back(&mut self, mut places: Vec<u32>) -> terapage_sys::Result<()> {
        places.sort_unstable();
        let runs = places.chunk_by(|&one, &next| next == one + 1);
        let pieces: Vec<(usize, usize)> =
            runs.map(|run| (self.address(run[0]), run.len() * self.block)).collect();
        // SAFETY: the caller gives the places up.
        unsafe { memory::discard_all(&pieces) }?;
        places.into_iter().for_each(|place| self.put_empty(place));
        Ok(())
    }

    /// Takes neighbouring empty places, up to `most`, at least one.
    pub fn take_empty(&mut self, most: usize) -> Range<u32> {
        self.empty.take(most).expect("twice as many places as frames")
    }

    /// Notes that a place has become empty.
    pub fn put_empty(&mut self, place: u32) {
        self.empty.put(place);
    }

    /// The bytes of places as pieces for the ring, as few as possible.
    pub fn pieces(&self, places: impl Iterator<Item = u32>) -> Vec<Piece> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for place in places {
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        runs.into_iter().map(|run| Piece::new(self.address(run.start), run.len() * self.block)).collect()
    }

    /// Makes up to `most` new frames, zero and free; those of a huge page at once if huge pages
    /// pay. Returns their number. Returns how many.
    pub fn make(&mut self, mover: &Mover, maker: &mut Maker, most: usize) -> Result<usize, Lost> {
        let many = HUGE / self.block;
        if let Some(stage) = maker.take(most / many) {
            let mut places: Vec<u32> = Vec::with_capacity(many);
            while places.len() < many {
                places.extend(self.take_empty(many - places.len()));
            }
            let addresses: Vec<usize> = places.iter().map(|&place| self.address(place)).collect();
            let made = mover.fill_huge(stage, &addresses, self.block);
            maker.used();
            self.zero.extend(&places[..made]);
            places[made..].iter().for_each(|&place| self.put_empty(place));
            if made > 0 {
                return Ok(made);
            }
        }
        self.make_one(mover).map(|()| 1)
    }

    /// Makes one new frame, zero and free, from single pages.
    pub fn make_one(&mut self, mover: &Mover) -> Result<(), Lost> {
        let place = self.take_empty(1).start;
        mover.fill(self.address(place), self.block)?;
        self.zero.push_back(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::EmptyPlaces;

    #[test]
    fn neighbours_come_together_and_in_turns() {
        let mut empty = EmptyPlaces::new(70);
        assert_eq!(empty.take(3), Some(0..3));
        assert_eq!(empty.take(64), Some(3..67));
        empty.put(1);
        empty.put(2);
        assert_eq!(empty.take(9), Some(67..70));
        assert_eq!(empty.take(9), Some(1..3));
        assert_eq!(empty.take(1), None);
        empty.put(65);
        empty.put(69);
        assert_eq!(empty.take(4), Some(65..66));
        assert_eq!(empty.take(4), Some(69..70));
        assert_eq!(empty.take(4), None);
    }

    #[test]
    fn places_that_are_split_are_empty_as_before() {
        let mut empty = EmptyPlaces::new(70);
        assert_eq!(empty.take(70), Some(0..70));
        empty.put(3);
        empty.put(69);
        empty.split(4, 280);
        assert_eq!(empty.take(9), Some(12..16));
        assert_eq!(empty.take(9), Some(276..280));
        assert_eq!(empty.take(9), None);
    }
}
