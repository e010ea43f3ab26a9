//! Splitting: blocks of four pages become blocks of one page each, all at once and permanently,
//! after trials have shown that the program touches scattered pages.
//!
//! No transfer is under way meanwhile, and nothing is moved, read or written: the pages stay where
//! they are, in the program, in the pool and in the store. Only their entries in the tables change.
//! A block's slot becomes that of its first page. Half of the hash of each page was noted together
//! with the hash of the block, so each page is proved by itself when it is read. A page's full hash
//! is known once the page was read or written.

use super::Engine;
use super::ahead::Ahead;
use super::grace::Grace;
use super::table::State;
use super::trial::Trials;
use crate::carry::hash::{PARTS, hash};
use crate::error::Error;
use crate::options::Options;
use std::sync::atomic::Ordering::Relaxed;
use terapage_policy::replacement;
use terapage_store::Store;
use terapage_sys::page_bytes;

/// Whether blocks of these options can be split in this store, which is new.
pub(crate) fn may_ever(options: &Options, store: &dyn Store) -> bool {
    let may = options.splits && options.block == PARTS * page_bytes() && options.trace.is_none();
    may && store.may_split(PARTS)
}

impl Engine {
    /// Splits blocks if that is due and possible.
    pub(crate) fn see_to_splitting(&mut self) {
        let is_due =
            !self.trials.are_off() && (self.trials.splitting.judge(&self.io.disk) || self.learnt_to_split());
        if is_due {
            self.split().ok();
        }
    }

    /// Splits blocks, if that is possible now. Returns whether it was done.
    pub(crate) fn split(&mut self) -> Result<bool, Error> {
        // The trace has one block size, and the slots that a child reads must not change.
        let free = self.forks_ahead == 0 && self.children.is_empty() && !self.io.slots.are_read();
        let free = free && self.io.may_split(PARTS);
        if self.trials.are_off() || !free || self.recorder.is_some() || !self.table.may_split() {
            return Ok(false);
        }
        self.settle_all();
        self.end_all_trials();
        while let Some(place) = self.reclaim() {
            self.frames.pool.put_free(place);
        }
        let options = Options {
            block: page_bytes(),
            frames: self.options.frames * PARTS,
            splits: false,
            ..self.options.clone()
        };
        let policy = match options.turns {
            true => replacement::in_turns(&options.policy, options.frames),
            false => replacement::by_name(&options.policy, options.frames),
        };
        let (Some(policy), Some(ahead)) = (policy, Ahead::new(&options)) else { return Ok(false) };
        // Meanwhile a store may have begun something by itself.
        if !self.io.may_split(PARTS) {
            return Ok(false);
        }
        let (own, files) = (self.io.own_origin(), &self.files);
        let is_file = |origin: u8| origin != own && files.iter().any(|file| file.origin() == origin);
        if self.table.split(|origin| !is_file(origin)).is_err() {
            return Ok(false);
        }
        self.io.split(PARTS);
        self.files.iter_mut().for_each(|file| file.split(PARTS as u32));
        self.frames.split(PARTS, options.soft_per_mille);
        self.ahead = ahead.after(&self.ahead, PARTS as u32);
        self.learning_after_split();
        self.policy = policy;
        self.grace = Grace::default();
        self.trials = Trials::new(false, 0);
        self.is_split = true;
        self.block = options.block;
        self.options = options;
        self.zero_hash = hash(&vec![0; self.block]);
        self.counters.block_bytes.store(self.block as u64, Relaxed);
        self.policy.resize(self.frames.lease.frames);
        self.admit_all();
        self.make_room_for_books();
        Ok(true)
    }

    /// A new store, for whole blocks, with slots of the present kind of this process.
    ///
    /// # Errors
    /// The store cannot have such slots.
    pub(crate) fn split_like(&self, mut store: Box<dyn Store>) -> Result<Box<dyn Store>, Error> {
        if self.is_split {
            if !store.may_split(PARTS) {
                let why = "its slots cannot be split".to_owned();
                return Err(terapage_store::Error::Unfit { name: store.name(), why }.into());
            }
            store.split(PARTS);
        }
        Ok(store)
    }

    /// Tells the policy of all blocks that are in memory.
    fn admit_all(&mut self) {
        let ranges: Vec<_> =
            self.table.regions().iter().map(|region| region.first..region.first + region.blocks).collect();
        for range in ranges {
            let mut from = range.start;
            while let Some(block) = self.table.next_touched(from, range.end) {
                from = block + 1;
                if matches!(self.table.state(block), State::Mapped | State::Watched) {
                    self.policy.insert(block);
                }
            }
        }
    }
}
