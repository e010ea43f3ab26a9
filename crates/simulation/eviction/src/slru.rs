//! Segmented LRU: each request for a block moves it one segment up.
//!
//! Source: Karedla, Love, Wherry, "Caching Strategies to Improve Disk System Performance", IEEE
//! Computer, 1994, which has two segments; here there are four of the same size, as in Huang,
//! Birman, van Renesse, Lloyd, Kumar, Li, "An Analysis of Facebook Photo Caching", SOSP 2013. While
//! there is room, new blocks fill the segments from the lowest one up.

use terapage_policy::list::Lists;
use terapage_policy::replacement::Replacement;

/// Segments; the first is list 1.
const SEGMENTS: u8 = 4;

/// Four LRU lists.
pub struct Slru {
    lists: Lists<4>,
    /// The size of a segment.
    segment: usize,
    /// The weight of the next new block.
    weight: usize,
}

impl Slru {
    /// For a cache of `frames`.
    pub fn new(frames: usize) -> Slru {
        Slru { lists: Lists::default(), segment: frames / usize::from(SEGMENTS), weight: 1 }
    }

    /// Moves the oldest blocks of segments that are too large one segment down.
    fn cool(&mut self, from: u8) {
        for segment in (2..=from).rev() {
            while self.lists.size(segment) > self.segment {
                let Some(block) = self.lists.oldest(segment) else { break };
                self.lists.push(segment - 1, block);
            }
        }
    }
}

impl Replacement for Slru {
    fn insert(&mut self, block: u32) {
        let fits = |segment: &u8| self.lists.size(*segment) + self.weight <= self.segment;
        let segment = (1..=SEGMENTS).find(fits).unwrap_or(1);
        self.lists.push(segment, block);
    }

    fn rescue(&mut self, block: u32) {
        self.lists.push(2, block);
        self.cool(2);
    }

    fn touched(&mut self, block: u32) {
        let segment = (self.lists.of(block) + 1).min(SEGMENTS);
        self.lists.push(segment, block);
        self.cool(segment);
    }

    fn victim(&mut self) -> Option<u32> {
        (1..=SEGMENTS).find_map(|segment| self.lists.pop(segment))
    }

    fn weigh(&mut self, block: u32, size: u32) {
        self.lists.weigh(block, size);
        self.weight = self.lists.weight(block);
    }

    fn remove(&mut self, block: u32) {
        self.lists.remove(block);
    }

    fn resize(&mut self, frames: usize) {
        self.segment = frames / usize::from(SEGMENTS);
    }

    fn len(&self) -> usize {
        (1..=SEGMENTS).map(|segment| self.lists.len(segment)).sum()
    }
}
