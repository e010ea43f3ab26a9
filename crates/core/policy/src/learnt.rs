//! Following the page-ins of an earlier run of the same program.
//!
//! A run records the keys of the blocks for which its threads waited, in order. If the next run
//! waits for a block, its *place* in that sequence is an entry with the block's key whose
//! predecessors were waited for recently, too. A program may go through several parts of the
//! sequence at the same time, so there are several *heads*, each with a place. The blocks of the
//! entries behind the place are read ahead in runs. The first block of each run is watched: its
//! touch moves the head, and proves the run.
//!
//! A program that has changed must not pay: each run that is read costs credit, and only proved
//! runs earn it back. Beyond that, credit grows by one block for [`MISSES_PER_BLOCK`] waits.
//!
//! The constants are chosen with the recorded page-ins of PHP, LuaJIT and samtools. Replayed
//! against page-ins of other input (of these, Python's dicts and GNU sort), the blocks wasted are 1
//! to 9 % of the waits. With a quarter of the credit at the start, and an eighth for each wait,
//! they are 1 to 6 %, but with the same input 28, 44 and 13 % of the waits of LuaJIT, samtools and
//! dicts are avoided instead of 48, 67 and 38 %. If proved runs earn twice their cost, the smaller
//! credit avoids and wastes about as much as these constants. In real short runs with other input,
//! major faults were 0.86 (PHP) and 1.08 (samtools) of those without a recording, and 0.85 and 1.07
//! with an eighth of the credit, earned back twice (medians of 3 and 5 turns, busy machine).

use std::collections::VecDeque;

/// Waits that are remembered, to find the place.
const RECENT: usize = 8;
/// How many of them must be among the predecessors of an entry far from the place before.
const NEEDED: usize = 3;
/// The predecessors of an entry that are compared.
const SPAN: usize = 128;
/// An entry is near the place before within this distance: one common predecessor suffices.
const NEAR: usize = 512;
/// Entries that are tried for each wait.
const TRIES: usize = 4;
/// One key in this many is in the index.
const INDEXED: u32 = 4;

/// Heads.
const HEADS: usize = 4;
/// Blocks of the first run of a head, and of the longest.
const RUN_LEAST: usize = 8;
const RUN_MOST: usize = 32;
/// Runs that a head reads ahead of its place; a head that was not proved reads one.
const OPEN: usize = 2;
/// Entries that are looked at to fill a run; most blocks may be in memory.
const LOOKED_AT: usize = 512;
/// A run whose first block was not touched during this many waits no longer holds up its head.
const PATIENCE: u64 = 64;
/// Such runs that are remembered: they may still be proved.
const LEFT: usize = 512;

/// Waits that earn the credit to read one block.
const MISSES_PER_BLOCK: i64 = 8;
/// The credit of the start, and the most, in waits.
const CREDIT: i64 = 512 * MISSES_PER_BLOCK;
const CREDIT_MOST: i64 = 8 * CREDIT;

/// A run that was read ahead, and whose first block was not touched yet.
#[derive(Debug)]
struct Run {
    keys: Vec<u32>,
    /// The entry of the first key.
    place: usize,
    /// The number of waits until which its head waits for it.
    due: u64,
}

/// A place in the sequence.
#[derive(Debug)]
struct Head {
    /// The entry of the last wait.
    place: usize,
    /// The entry from which the next run is read.
    next: usize,
    /// Blocks of the next run.
    run: usize,
    open: VecDeque<Run>,
}

/// A sequence of page-ins, and the places in it.
#[derive(Debug)]
pub struct Follower {
    sequence: Vec<u32>,
    /// The entries whose keys are indexed, by hash, and the first of each hash.
    entries: Vec<u32>,
    starts: Vec<u32>,
    bits: u32,
    recent: [Option<u32>; RECENT],
    /// The head that moved last is the first.
    heads: Vec<Head>,
    /// Whether the last wait or touch has moved the first head.
    moved: bool,
    /// Runs that no head waits for.
    left: VecDeque<Run>,
    /// Waits so far.
    misses: u64,
    /// Waits that were not paid for yet.
    credit: i64,
    /// Runs that were proved.
    proved: u64,
}

fn hash(key: u32) -> u32 {
    key.wrapping_mul(0x9e37_79b1)
}

fn is_indexed(key: u32) -> bool {
    hash(key) < u32::MAX / INDEXED
}

/// The number of a key's hash, of `1 << bits`.
fn bucket(key: u32, bits: u32) -> usize {
    (hash(key).wrapping_mul(INDEXED) >> (u32::BITS - bits)) as usize
}

impl Follower {
    /// Follows a sequence of at most `u32::MAX` keys.
    pub fn new(sequence: Vec<u32>) -> Follower {
        let indexed = || sequence.iter().enumerate().filter(|&(_, &key)| is_indexed(key));
        let count = indexed().count();
        let bits = (count / 2).next_power_of_two().ilog2().max(1);
        let mut starts = vec![0; (1 << bits) + 1];
        indexed().for_each(|(_, &key)| starts[bucket(key, bits) + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut entries = vec![0; count];
        let mut filled = starts.clone();
        for (entry, &key) in indexed() {
            let at = &mut filled[bucket(key, bits)];
            entries[*at as usize] = entry as u32;
            *at += 1;
        }
        Follower {
            sequence,
            entries,
            starts,
            bits,
            recent: [None; RECENT],
            heads: Vec::with_capacity(HEADS + 1),
            moved: false,
            left: VecDeque::new(),
            misses: 0,
            credit: CREDIT,
            proved: 0,
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let runs = self.left.len() * RUN_MOST;
        (self.sequence.len() + self.entries.len() + self.starts.len() + runs) * size_of::<u32>()
    }

    /// The number of runs that were proved.
    pub fn proved(&self) -> u64 {
        self.proved
    }

    /// A thread waits for the block of `key`.
    pub fn missed(&mut self, key: u32) {
        self.misses += 1;
        self.earn(1);
        for at in 0..self.heads.len() {
            while self.heads[at].open.front().is_some_and(|run| run.due < self.misses) {
                self.leave(at);
                self.heads[at].run = (self.heads[at].run / 2).max(RUN_LEAST);
            }
        }
        let found = self.find(key);
        self.moved = found.is_some();
        match found {
            Some((Some(at), entry)) => self.moves(at, entry),
            Some((None, entry)) => self.begin(entry),
            None => {}
        }
        self.note(key);
    }

    /// The first block of a run was touched: returns the keys of the run.
    pub fn used(&mut self, key: u32) -> Vec<u32> {
        let is_it = |run: &Run| run.keys[0] == key;
        let found = self
            .heads
            .iter()
            .enumerate()
            .find_map(|(at, head)| Some((at, head.open.iter().position(is_it)?)));
        self.moved = found.is_some();
        let run = match found {
            Some((at, index)) => {
                (0..index).for_each(|_| self.leave(at));
                let head = &mut self.heads[at];
                let run = head.open.pop_front().expect("it is there");
                head.run = (head.run * 2).min(RUN_MOST);
                self.moves(at, run.place);
                run
            }
            None => {
                let Some(index) = self.left.iter().rposition(is_it) else { return Vec::new() };
                self.left.remove(index).expect("it is there")
            }
        };
        self.earn(run.keys.len() as i64 * MISSES_PER_BLOCK * 5 / 4);
        self.proved += 1;
        self.note(key);
        run.keys
    }

    /// The keys of the blocks to read now, in order: at most `most`, and those that `is_wanted`.
    pub fn ahead(&mut self, most: usize, mut is_wanted: impl FnMut(u32) -> bool) -> Option<Vec<u32>> {
        let head = self.heads.first_mut().filter(|_| self.moved)?;
        let most = head.run.min(most);
        let open = if head.run > RUN_LEAST { OPEN } else { 1 };
        if head.open.len() >= open || most == 0 || self.credit < most as i64 * MISSES_PER_BLOCK {
            return None;
        }
        head.next = head.next.max(head.place + 1);
        if head.next > head.place + LOOKED_AT {
            // The blocks of all these entries are in memory.
            return None;
        }
        let end = (head.next + LOOKED_AT).min(self.sequence.len());
        let mut keys = Vec::with_capacity(most);
        let mut place = head.next;
        while head.next < end && keys.len() < most {
            let key = self.sequence[head.next];
            if is_wanted(key) && !keys.contains(&key) {
                if keys.is_empty() {
                    place = head.next;
                }
                keys.push(key);
            }
            head.next += 1;
        }
        if keys.is_empty() {
            return None;
        }
        self.credit -= keys.len() as i64 * MISSES_PER_BLOCK;
        head.open.push_back(Run { keys: keys.clone(), place, due: self.misses + PATIENCE });
        Some(keys)
    }

    /// Forgets which runs were read.
    pub fn forget_runs(&mut self) {
        self.heads.clear();
        self.left.clear();
        self.moved = false;
    }

    fn earn(&mut self, waits: i64) {
        self.credit = (self.credit + waits).min(CREDIT_MOST);
    }

    /// The first run of a head no longer holds it up.
    fn leave(&mut self, at: usize) {
        self.left.extend(self.heads[at].open.pop_front());
        if self.left.len() > LEFT {
            self.left.pop_front();
        }
    }

    /// Moves a head on to an entry.
    fn moves(&mut self, at: usize, entry: usize) {
        self.heads[..=at].rotate_right(1);
        self.heads[0].place = self.heads[0].place.max(entry);
    }

    /// Begins a head at an entry; the head that moved longest ago ends.
    fn begin(&mut self, entry: usize) {
        self.heads.insert(0, Head { place: entry, next: entry + 1, run: RUN_LEAST, open: VecDeque::new() });
        if self.heads.len() > HEADS {
            while !self.heads[HEADS].open.is_empty() {
                self.leave(HEADS);
            }
            self.heads.truncate(HEADS);
        }
    }

    fn note(&mut self, key: u32) {
        self.recent.rotate_right(1);
        self.recent[0] = Some(key);
    }

    /// The entry of a wait for `key`, if it can be known, and the head that is near.
    fn find(&self, key: u32) -> Option<(Option<usize>, usize)> {
        if !is_indexed(key) {
            return None;
        }
        let bucket = bucket(key, self.bits);
        let entries = &self.entries[self.starts[bucket] as usize..self.starts[bucket + 1] as usize];
        let near = |entry: usize, place: usize| entry.abs_diff(place) <= NEAR && self.common(entry) > 0;
        let heads = self.heads.iter().enumerate();
        let mut at_heads = heads.filter_map(|(at, head)| {
            let entry = self.nearest(entries, key, head.place).next()?;
            near(entry, head.place).then_some((Some(at), entry))
        });
        if let Some(found) = at_heads.next() {
            return Some(found);
        }
        let place = self.heads.first().map_or(0, |head| head.place);
        let mut found = (NEEDED - 1, None);
        for entry in self.nearest(entries, key, place).take(TRIES) {
            let common = self.common(entry);
            if common > found.0 {
                found = (common, Some(entry));
            }
        }
        found.1.map(|entry| (None, entry))
    }

    /// Those of `entries`, ascending, that have the key, the nearest to a place first.
    fn nearest<'a>(&'a self, entries: &'a [u32], key: u32, place: usize) -> impl Iterator<Item = usize> + 'a {
        let middle = entries.partition_point(|&entry| (entry as usize) < place);
        let is_it = move |entry: &usize| self.sequence[*entry] == key;
        let mut before = entries[..middle].iter().rev().map(|&entry| entry as usize).filter(is_it).peekable();
        let mut after = entries[middle..].iter().map(|&entry| entry as usize).filter(is_it).peekable();
        std::iter::from_fn(move || {
            let far = |entry: Option<&usize>| entry.map_or(usize::MAX, |entry| entry.abs_diff(place));
            if far(after.peek()) <= far(before.peek()) { after.next() } else { before.next() }
        })
    }

    /// The number of recent waits that are among the predecessors of an entry.
    fn common(&self, entry: usize) -> usize {
        let before = &self.sequence[entry.saturating_sub(SPAN)..entry];
        self.recent.iter().flatten().filter(|key| before.contains(key)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Runs a program that touches `touches` once each block has left memory again: a block is in
    /// memory from its touch or read until `memory` others came in. Returns the waits, the blocks
    /// that were read ahead, and those of them that were touched.
    fn run(follower: &mut Follower, touches: &[u32], memory: usize) -> (usize, usize, usize) {
        let (mut here, mut order) = (HashSet::new(), VecDeque::new());
        let (mut ahead, mut markers) = (HashSet::new(), HashSet::new());
        let (mut waits, mut read, mut used) = (0, 0, 0);
        for &key in touches {
            if ahead.remove(&key) {
                used += 1;
            }
            if markers.remove(&key) {
                let keys = follower.used(key);
                assert!(keys.is_empty() || keys[0] == key);
            } else if here.insert(key) {
                order.push_back(key);
                waits += 1;
                follower.missed(key);
            } else {
                continue;
            }
            while let Some(keys) = follower.ahead(32, |key| !here.contains(&key)) {
                assert!(keys.len() <= RUN_MOST);
                markers.insert(keys[0]);
                read += keys.len();
                for key in keys {
                    assert!(here.insert(key), "read twice");
                    order.push_back(key);
                    ahead.insert(key);
                }
            }
            while order.len() > memory {
                let gone = order.pop_front().unwrap();
                here.remove(&gone);
                ahead.remove(&gone);
                markers.remove(&gone);
            }
        }
        (waits, read, used)
    }

    fn scattered(count: u32, below: u32) -> Vec<u32> {
        random(count, below).collect()
    }

    #[test]
    fn the_same_order_is_read_ahead() {
        let touches = scattered(50_000, 20_000);
        let mut nothing = Follower::new(Vec::new());
        let (first, read, _) = run(&mut nothing, &touches, 4000);
        assert_eq!(read, 0);
        // What is in memory is not recorded.
        let (mut here, mut order, mut recorded) = (HashSet::new(), VecDeque::new(), Vec::new());
        for &key in &touches {
            if here.insert(key) {
                recorded.push(key);
                order.push_back(key);
                if order.len() > 4000 {
                    here.remove(&order.pop_front().unwrap());
                }
            }
        }
        assert_eq!(recorded.len(), first);
        let mut follower = Follower::new(recorded);
        let (waits, read, used) = run(&mut follower, &touches, 4000);
        assert!(waits < first / 10, "{waits} of {first}");
        assert!(used > read * 9 / 10, "{used} of {read}");
        assert!(follower.proved() > 100);
    }

    #[test]
    fn a_program_that_skips_and_goes_elsewhere_is_found_again() {
        let recorded = scattered(40_000, 1 << 20);
        let mut touches = recorded[..10_000].to_vec();
        touches.extend(random(2000, 1 << 20).map(|key| key + (1 << 20)));
        touches.extend(&recorded[30_000..]);
        touches.extend(&recorded[10_000..20_000]);
        let (waits, _, _) = run(&mut Follower::new(recorded), &touches, 1000);
        assert!(waits < 2000 + touches.len() / 10, "{waits}");
    }

    #[test]
    fn another_program_costs_little() {
        for pages in [1 << 10, 1 << 13, 1 << 20] {
            let recorded = scattered(100_000, pages);
            let touches: Vec<u32> = random(200_000, pages).skip(100_001).collect();
            let (waits, read, used) = run(&mut Follower::new(recorded), &touches, pages as usize / 4);
            let wasted = read - used;
            assert!(wasted <= 512 + waits / MISSES_PER_BLOCK as usize + used / 2, "{wasted} for {waits}");
        }
    }

    proptest! {
        /// The place that the search finds is the one that a search of all entries finds.
        #[test]
        fn the_index_finds_what_a_naive_search_finds(
            recorded in proptest::collection::vec(0u32..300, 0..1500),
            others in proptest::collection::vec(0u32..400, 0..200),
            from in any::<prop::sample::Index>(),
        ) {
            let mut follower = Follower::new(recorded.clone());
            let from = from.index(recorded.len() + 1);
            let mut read = HashSet::new();
            for &key in recorded[from..].iter().take(300).chain(&others).chain(recorded.iter().take(300)) {
                let naive = if is_indexed(key) { naive_find(&follower, key) } else { None };
                prop_assert_eq!(follower.find(key), naive);
                follower.missed(key);
                if let Some(keys) = follower.ahead(32, |key| key % 3 > 0 && !read.contains(&key)) {
                    prop_assert!(keys.iter().all(|&key| key % 3 > 0 && read.insert(key)));
                    prop_assert!(key % 2 == 0 || follower.used(keys[0]) == keys);
                }
            }
        }
    }

    fn naive_find(follower: &Follower, key: u32) -> Option<(Option<usize>, usize)> {
        let nearest = |place: usize| {
            let with_key = (0..follower.sequence.len()).filter(|&at| follower.sequence[at] == key);
            let mut all: Vec<usize> = with_key.collect();
            all.sort_by_key(|&at| (at.abs_diff(place), at < place));
            all
        };
        for (at, head) in follower.heads.iter().enumerate() {
            let first = nearest(head.place).first().copied();
            let near = |entry: &usize| entry.abs_diff(head.place) <= NEAR && follower.common(*entry) > 0;
            if let Some(entry) = first.filter(near) {
                return Some((Some(at), entry));
            }
        }
        let place = follower.heads.first().map_or(0, |head| head.place);
        let tried = nearest(place).into_iter().take(TRIES).filter(|&at| follower.common(at) >= NEEDED);
        tried
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .max_by_key(|&at| follower.common(at))
            .map(|entry| (None, entry))
    }
}
