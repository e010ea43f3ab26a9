//! Blocks: the number of valid slots of each, the free blocks, and the choice of the block that is
//! collected next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::Rng;
use rand::seq::index;

use crate::config::GcPolicy;
use crate::geometry::Geometry;

const NONE: u32 = u32::MAX;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Full, and in the list for its number of valid slots.
    Closed,
    /// Full, and written as SLC.
    Cached,
    /// Being collected.
    Victim,
    /// No longer used, or never.
    Bad,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    valid: u32,
    next: u32,
    previous: u32,
    erases: u32,
    state: State,
    /// The value of the clock when the block was closed.
    closed: u64,
}

/// The blocks of all dies.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    blocks: Vec<Block>,
    per_die: u32,
    /// For each die and number of valid slots, the first closed block.
    heads: Vec<u32>,
    buckets: u32,
    /// For each die, a lower bound of the valid slots of its closed blocks.
    lowest: Vec<u32>,
    /// The free blocks of each die, the least worn first.
    free: Vec<BinaryHeap<Reverse<(u32, u32)>>>,
    /// For each die, the blocks of SLC that are free, and those that are full, the oldest first.
    slc: Vec<(VecDeque<u32>, VecDeque<u32>)>,
    geometry: Geometry,
    /// Units programmed for the host: the clock by which data ages.
    clock: u64,
    /// The erases of the most worn block of each die.
    most_erases: Vec<u32>,
}

impl Blocks {
    /// All blocks are erased, except the bad ones, which are drawn with `random`.
    pub(crate) fn new(geometry: &Geometry, random: &mut impl Rng) -> Blocks {
        let (dies, per_die, buckets) = (geometry.dies, geometry.blocks_per_die, geometry.block_slots + 1);
        let block = Block { valid: 0, next: NONE, previous: NONE, erases: 0, state: State::Free, closed: 0 };
        let mut blocks = vec![block; geometry.blocks() as usize];
        for die in blocks.chunks_exact_mut(per_die as usize) {
            let good = per_die - geometry.slc_per_die;
            for at in index::sample(random, good as usize, geometry.bad_per_die as usize) {
                die[at].state = State::Bad;
            }
        }
        let good = |block: &u32| blocks[*block as usize].state == State::Free;
        let of = |die| (die * per_die..(die + 1) * per_die - geometry.slc_per_die).filter(good);
        let slc = |die| ((die + 1) * per_die - geometry.slc_per_die..(die + 1) * per_die).collect();
        let free = |die| of(die).map(|block| Reverse((0, block))).collect();
        Blocks {
            per_die,
            heads: vec![NONE; dies as usize * buckets as usize],
            buckets,
            lowest: vec![buckets; dies as usize],
            free: (0..dies).map(free).collect(),
            slc: (0..dies).map(|die| (slc(die), VecDeque::new())).collect(),
            geometry: *geometry,
            clock: 0,
            most_erases: vec![0; dies as usize],
            blocks,
        }
    }

    pub(crate) fn valid(&self, block: u32) -> u32 {
        self.blocks[block as usize].valid
    }

    #[cfg(test)]
    pub(crate) fn state(&self, block: u32) -> State {
        self.blocks[block as usize].state
    }

    pub(crate) fn free_count(&self, die: u32) -> u32 {
        self.free[die as usize].len() as u32
    }

    /// Opens the least worn free block of `die`.
    pub(crate) fn open(&mut self, die: u32) -> Option<u32> {
        let Reverse((_, block)) = self.free[die as usize].pop()?;
        self.blocks[block as usize].state = State::Open;
        Some(block)
    }

    /// Opens a free block of SLC of `die`.
    pub(crate) fn open_slc(&mut self, die: u32) -> Option<u32> {
        let block = self.slc[die as usize].0.pop_front()?;
        self.blocks[block as usize].state = State::Open;
        Some(block)
    }

    /// Takes the block of SLC of `die` that has been full for longest.
    pub(crate) fn take_oldest_slc(&mut self, die: u32) -> Option<u32> {
        let block = self.slc[die as usize].1.pop_front()?;
        self.blocks[block as usize].state = State::Victim;
        Some(block)
    }

    /// Notes that a slot of an open block has got a unit.
    pub(crate) fn gain(&mut self, block: u32) {
        self.blocks[block as usize].valid += 1;
    }

    /// Sets the number of valid slots of an open block.
    pub(crate) fn set_valid(&mut self, block: u32, valid: u32) {
        self.blocks[block as usize].valid = valid;
    }

    /// Notes that a slot of the block has lost its unit.
    pub(crate) fn lose(&mut self, block: u32) {
        let closed = self.blocks[block as usize].state == State::Closed;
        if closed {
            self.unlink(block);
        }
        self.blocks[block as usize].valid -= 1;
        if closed {
            self.link(block);
        }
    }

    /// Loads the block and its neighbours in the list into the cache; the result has no meaning.
    pub(crate) fn look_up_neighbours(&self, block: u32) -> u32 {
        let at = |block: u32| self.blocks.get(block as usize).map_or(0, |block| block.valid);
        let Block { next, previous, valid, .. } = self.blocks[block as usize];
        at(next).wrapping_add(at(previous)).wrapping_add(valid)
    }

    /// Notes that slots of a block that is being collected have lost their units.
    pub(crate) fn lose_of_victim(&mut self, block: u32, units: u32) {
        let at = &mut self.blocks[block as usize];
        debug_assert_eq!(at.state, State::Victim);
        at.valid -= units;
    }

    /// Closes an open block that is full.
    pub(crate) fn close(&mut self, block: u32) {
        let clock = self.clock;
        let at = &mut self.blocks[block as usize];
        if self.geometry.is_slc(block) {
            at.state = State::Cached;
            return self.slc[(block / self.per_die) as usize].1.push_back(block);
        }
        (at.state, at.closed) = (State::Closed, clock);
        self.link(block);
    }

    /// Notes that `units` units were programmed for the host.
    pub(crate) fn age(&mut self, units: u64) {
        self.clock += units;
    }

    /// Takes the closed block of `die` that is best to collect now; `None` if no collection would
    /// gain space.
    pub(crate) fn take_victim(&mut self, die: u32, policy: GcPolicy) -> Option<u32> {
        let block = match policy {
            GcPolicy::Greedy => self.emptiest(die)?,
            GcPolicy::CostBenefit => self.best_by_cost(die)?,
        };
        self.unlink(block);
        self.blocks[block as usize].state = State::Victim;
        Some(block)
    }

    /// Notes that the victim is erased.
    pub(crate) fn erased(&mut self, block: u32) {
        let at = &mut self.blocks[block as usize];
        debug_assert_eq!((at.valid, at.state), (0, State::Victim));
        at.state = State::Free;
        at.erases += 1;
        let (erases, die) = (at.erases, (block / self.per_die) as usize);
        if self.geometry.is_slc(block) {
            return self.slc[die].0.push_back(block);
        }
        self.free[die].push(Reverse((erases, block)));
        self.most_erases[die] = self.most_erases[die].max(erases);
    }

    /// Notes that the victim is bad and never used again.
    pub(crate) fn retire(&mut self, block: u32) {
        let at = &mut self.blocks[block as usize];
        debug_assert_eq!((at.valid, at.state), (0, State::Victim));
        at.state = State::Bad;
    }

    /// The erases of all blocks that are not bad, without those of SLC.
    pub(crate) fn wear(&self) -> impl Iterator<Item = u32> {
        let used = |(number, block): &(usize, &Block)| {
            block.state != State::Bad && !self.geometry.is_slc(*number as u32)
        };
        self.blocks.iter().enumerate().filter(used).map(|(_, block)| block.erases)
    }

    /// Takes the closed block of `die` that is least worn, if the most worn block has been erased
    /// more than `gap` times more often. It examines all blocks of the die.
    pub(crate) fn take_least_worn(&mut self, die: u32, gap: u32) -> Option<u32> {
        let blocks = (die * self.per_die..(die + 1) * self.per_die)
            .filter(|&block| self.blocks[block as usize].state == State::Closed);
        let block = blocks.min_by_key(|&block| self.blocks[block as usize].erases)?;
        if self.most_erases[die as usize] - self.blocks[block as usize].erases <= gap {
            return None;
        }
        self.unlink(block);
        self.blocks[block as usize].state = State::Victim;
        Some(block)
    }

    fn emptiest(&mut self, die: u32) -> Option<u32> {
        let lowest = &mut self.lowest[die as usize];
        let heads = &self.heads[(die * self.buckets) as usize..][..self.buckets as usize];
        // A block in the last bucket is completely valid, so that collecting it gains nothing.
        while *lowest < self.buckets - 1 {
            match heads[*lowest as usize] {
                NONE => *lowest += 1,
                block => return Some(block),
            }
        }
        None
    }

    /// The best victim by cost and benefit. Looks at all blocks of the die, once for each collected
    /// block.
    fn best_by_cost(&self, die: u32) -> Option<u32> {
        let slots = f64::from(self.buckets - 1);
        let first = die * self.per_die;
        let score = |block: u32| {
            let block = &self.blocks[block as usize];
            let used = f64::from(block.valid) / slots;
            // The age plus one, so that fewer valid slots decide among blocks that were closed just
            // now.
            (1.0 - used) / (2.0 * used) * (self.clock - block.closed + 1) as f64
        };
        (first..first + self.per_die)
            .filter(|&block| {
                let block = &self.blocks[block as usize];
                block.state == State::Closed && block.valid < self.buckets - 1
            })
            .map(|block| (score(block), block))
            .reduce(|best, other| if other.0 > best.0 { other } else { best })
            .map(|(_, block)| block)
    }

    fn head(&mut self, block: u32) -> (usize, u32) {
        let die = block / self.per_die;
        let valid = self.blocks[block as usize].valid;
        ((die * self.buckets + valid) as usize, die)
    }

    fn link(&mut self, block: u32) {
        let (head, die) = self.head(block);
        let next = std::mem::replace(&mut self.heads[head], block);
        let at = &mut self.blocks[block as usize];
        (at.next, at.previous) = (next, NONE);
        let lowest = &mut self.lowest[die as usize];
        *lowest = at.valid.min(*lowest);
        if next != NONE {
            self.blocks[next as usize].previous = block;
        }
    }

    fn unlink(&mut self, block: u32) {
        let Block { next, previous, .. } = self.blocks[block as usize];
        if next != NONE {
            self.blocks[next as usize].previous = previous;
        }
        if previous != NONE {
            self.blocks[previous as usize].next = next;
        } else {
            let (head, _) = self.head(block);
            self.heads[head] = next;
        }
    }

    /// Sets the time at which a block was closed, for preconditioning: a value of the clock, at
    /// most its present one.
    pub(crate) fn set_closed(&mut self, block: u32, closed: u64) {
        self.blocks[block as usize].closed = closed;
    }
}
