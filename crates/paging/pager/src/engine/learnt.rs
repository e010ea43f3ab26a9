//! What the program's last run has left to this one (`--learn`): blocks are read ahead in the order
//! in which threads waited for them then, and this run's order is recorded.
//!
//! `terapage_policy::learnt` finds the place in that order. Blocks are named by the number of their
//! first page, counted through all regions; the regions of the two runs are matched by their order.

use super::Engine;
use super::ahead::Touch;
use super::table::{LEARNT, State, Table};
use crate::trace::Kind;
use std::collections::BTreeMap;
use terapage_policy::learnt::Follower;
use terapage_stats::Counters;
use terapage_sys::page_bytes;
use terapage_trace::Misses;

/// The part of the budget that the record of this run may take, and the part that the last run's
/// may.
const BUDGET_PART: usize = 64;

/// The record grows by this many keys at a time.
const CHUNK: usize = if cfg!(terapage_model) { 16 } else { 1 << 14 };

/// Blocks are split at once if the last run's were, after this many proved runs.
const PROVED: u64 = 16;

/// A run has at most the frames divided by this.
const RUN_PART: usize = if cfg!(terapage_model) { 4 } else { 64 };

/// The most runs whose first blocks are remembered: those of blocks that the program drops are
/// forgotten late.
const MARKS: usize = 1024;

/// Recording a run, and following the recording.
pub(crate) struct Learning {
    program: u64,
    /// The order of this run, in pieces.
    record: Vec<Vec<u32>>,
    /// The most pieces.
    most: usize,
    follower: Option<Follower>,
    /// The first page and the pages of the last run's regions.
    regions: Vec<(u32, u32)>,
    /// The last run's blocks were split.
    split: bool,
    /// The first block of each run that was read and not touched: its key, and the blocks of the
    /// run.
    marks: BTreeMap<u32, (u32, u64)>,
}

impl Learning {
    /// Records, and follows what the last run has left; no keys if there was none. `bytes` is the
    /// budget.
    pub fn new(last: Misses, bytes: usize) -> Learning {
        let most = bytes / BUDGET_PART / size_of::<u32>();
        let mut learning = Learning {
            program: last.program,
            record: Vec::new(),
            most: (most / CHUNK).max(1),
            follower: None,
            regions: Vec::new(),
            split: false,
            marks: BTreeMap::new(),
        };
        let mut keys = last.keys;
        keys.truncate(learning.most * CHUNK);
        if !keys.is_empty() {
            (learning.regions, learning.split) = (last.regions, last.split);
            learning.follower = Some(Follower::new(keys));
        }
        learning
    }

    /// Bytes of memory, which count in the budget. The model's few small frames have no room for
    /// them.
    pub fn bytes(&self) -> usize {
        if cfg!(terapage_model) {
            return 0;
        }
        let follower = self.follower.as_ref().map_or(0, Follower::bytes);
        follower + self.record.len() * CHUNK * size_of::<u32>()
    }

    fn note(&mut self, key: u32) {
        if self.record.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            if self.record.len() == self.most {
                return;
            }
            self.record.push(Vec::with_capacity(CHUNK));
        }
        self.record.last_mut().expect("there is one").push(key);
    }

    /// The block with a key of the last run, and the key that it has in this run.
    fn block_of(&self, table: &Table, key: u32) -> Option<(u32, u32)> {
        let index = self.regions.partition_point(|&(first, _)| first <= key).checked_sub(1)?;
        let (first, pages) = self.regions[index];
        // Regions of a damaged file are in no order.
        let page = key.checked_sub(first)?;
        let region = table.regions().get(index).filter(|_| page < pages)?;
        let block = page / pages_of(table);
        (block < region.blocks).then_some(())?;
        Some((region.first + block, first_page(table, index)?.checked_add(page)?))
    }
}

/// Pages of a block.
fn pages_of(table: &Table) -> u32 {
    (table.block_bytes() / page_bytes()) as u32
}

/// The key of the first page of a region.
fn first_page(table: &Table, index: usize) -> Option<u32> {
    table.regions()[index].first.checked_mul(pages_of(table))
}

/// The index of the region of a block, and the number in it of the page at an address of the block.
fn page_at(table: &Table, block: u32, at: usize) -> Option<(usize, u32)> {
    let regions = table.regions();
    let index = regions.partition_point(|region| region.first <= block).checked_sub(1)?;
    let page = at.checked_sub(regions[index].start)? / page_bytes();
    Some((index, u32::try_from(page).ok()?))
}

impl Engine {
    /// A thread waits for a block that only the store has.
    pub(crate) fn learn_miss(&mut self, block: u32, at: usize) {
        let Some(learning) = &mut self.learning else { return };
        let Some((index, page)) = page_at(&self.table, block, at) else { return };
        if let Some(key) = first_page(&self.table, index).and_then(|first| first.checked_add(page)) {
            learning.note(key);
        }
        let then = learning.regions.get(index).filter(|&&(_, pages)| page < pages);
        if let (Some(follower), Some(&(first, _))) = (&mut learning.follower, then) {
            follower.missed(first + page);
            self.read_learnt();
        }
    }

    /// Reads the blocks ahead for which threads waited next in the last run.
    fn read_learnt(&mut self) {
        let most = (self.frames.limit / RUN_PART).min(self.longest_run());
        while self.ready() > most {
            let Some(learning) = &mut self.learning else { return };
            let Some(mut follower) = learning.follower.take() else { return };
            let (table, this) = (&self.table, &*learning);
            let stored = |key: u32| {
                let block = this.block_of(table, key).map(|(block, _)| block);
                block.filter(|&block| table.state(block) == State::Stored)
            };
            let keys = follower.ahead(most, |key| stored(key).is_some());
            let mut blocks: Vec<u32> = Vec::new();
            for block in keys.iter().flatten().filter_map(|&key| stored(key)) {
                if !blocks.contains(&block) {
                    blocks.push(block);
                }
            }
            learning.follower = Some(follower);
            let Some(keys) = keys else { return };
            self.read_learnt_run(keys[0], blocks);
        }
    }

    /// Starts reading as many blocks of the run as there are free frames; `key` belongs to its
    /// first block.
    fn read_learnt_run(&mut self, key: u32, mut blocks: Vec<u32>) {
        // The read for which a thread waits comes first.
        self.io.hand_over();
        let mut places = Vec::with_capacity(blocks.len());
        while places.len() < blocks.len() {
            let Some(place) = self.place_at_once() else { break };
            places.push(place);
        }
        blocks.truncate(places.len());
        let Some(&first) = blocks.first() else { return };
        self.table.get_mut(first).flags |= LEARNT;
        if let Some(learning) = &mut self.learning {
            if learning.marks.len() >= MARKS {
                learning.marks.clear();
            }
            learning.marks.insert(first, (key, blocks.len() as u64));
        }
        Counters::add(&self.counters.prefetched_blocks, blocks.len() as u64);
        self.follow.other(blocks.len());
        blocks.sort_unstable();
        self.read(&blocks, &places, 0);
    }

    /// The program has touched the first block of a run.
    pub(crate) fn used_learnt(&mut self, block: u32) {
        self.record(Kind::PrefetchMarker, [block]);
        let Some(learning) = &mut self.learning else { return };
        let Some((key, blocks)) = learning.marks.remove(&block) else { return };
        Counters::add(&self.counters.prefetch_used_runs, 1);
        Counters::add(&self.counters.prefetch_used_blocks, blocks);
        let keys = learning.follower.as_mut().map(|follower| follower.used(key)).unwrap_or_default();
        let here: Vec<(u32, u32)> =
            keys.iter().filter_map(|&key| learning.block_of(&self.table, key)).collect();
        for &(_, key) in &here {
            learning.note(key);
        }
        self.read_learnt();
        // The prefetch policy follows its streams as if the threads had waited.
        for (block, _) in here {
            self.prefetch_after(block, Touch::Here);
        }
    }

    /// The first block of a run leaves memory, and was not touched.
    pub(crate) fn wasted_learnt(&mut self, block: u32) {
        let Some(learning) = &mut self.learning else { return };
        let Some((_, blocks)) = learning.marks.remove(&block) else { return };
        Counters::add(&self.counters.prefetch_wasted_runs, 1);
        Counters::add(&self.counters.prefetch_wasted_blocks, blocks);
    }

    /// Whether blocks should be split because the last run's were, and this run is like that one.
    pub(crate) fn learnt_to_split(&self) -> bool {
        let Some(learning) = &self.learning else { return false };
        learning.split && learning.follower.as_ref().is_some_and(|follower| follower.proved() >= PROVED)
    }

    /// Blocks were split, and have new numbers.
    pub(crate) fn learning_after_split(&mut self) {
        let Some(learning) = &mut self.learning else { return };
        learning.marks.clear();
        if let Some(follower) = &mut learning.follower {
            follower.forget_runs();
        }
    }

    /// Ends the recording: what it says, if it says anything.
    pub(crate) fn finish_learning(&mut self) -> Option<Misses> {
        let learning = self.learning.take()?;
        let pages = pages_of(&self.table);
        let region = |index: usize| {
            let first = first_page(&self.table, index)?;
            Some((first, self.table.regions()[index].blocks.saturating_mul(pages)))
        };
        let regions = (0..self.table.regions().len()).map_while(region).collect();
        let keys = learning.record.concat();
        (!keys.is_empty()).then_some(Misses {
            program: learning.program,
            page_bytes: page_bytes() as u32,
            split: self.is_split,
            regions,
            keys,
        })
    }
}
