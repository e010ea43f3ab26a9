//! Frames cut from huge pages after all, where these come too slowly for first touches.
//!
//! A device transfers neighbours in the machine's memory faster than scattered pages, but slow huge pages (`maker.rs`) cost seconds
//! of processor time for a budget. So that is spent once as much has been lost: after many times the budget has been read ahead.
//! A thread that gives way to all others makes them, and the pager exchanges soft frames for them when it has nothing else to do.

use crate::engine::Engine;
use crate::table::State;
use std::sync::atomic::Ordering::Relaxed;
use terapage_stats::Counters;
use terapage_sys::memory::HUGE;

/// When to look for frames that were not cut from huge pages.
pub(crate) struct Renewal {
    /// Blocks read ahead until then.
    after: u64,
    /// Looks in a row that found too few.
    misses: usize,
}

impl Renewal {
    /// Not before so many blocks have been read ahead.
    pub fn new(after: u64) -> Renewal {
        Renewal { after, misses: 0 }
    }
}

impl Engine {
    /// Exchanges frames for some cut from a huge page, if one is ready and there is nothing else to do. Whether it did.
    pub(crate) fn renew(&mut self) -> bool {
        let read_ahead = self.counters.prefetched_blocks.load(Relaxed);
        if !self.maker.is_slow() || self.demands > 0 || read_ahead < self.renewal.after {
            return false;
        }
        let Some(stage) = self.maker.take_slow() else { return false };
        let many = HUGE / self.block;
        let old = |&&(block, stamp): &&(u32, u32)| {
            let entry = self.table.get(block);
            entry.state == State::Soft && entry.stamp == stamp && !self.pool.is_cut(entry.place)
        };
        let old: Vec<u32> = self.soft.iter().filter(old).map(|&(block, _)| block).take(many).collect();
        if old.len() < many {
            // What is soft is others by then.
            self.renewal.after = read_ahead + many as u64;
            self.renewal.misses += 1;
            if self.renewal.misses > self.limit / many {
                self.maker.end();
            }
            return false;
        }
        self.renewal.misses = 0;
        let places: Vec<u32> = old.into_iter().map(|block| self.frame_of(block)).collect();
        self.frames -= places.len();
        if let Err(error) = self.pool.give_back(places) {
            self.stop(&error.to_string());
        }
        let made = self.pool.cut(&mut self.mover, &mut self.maker, stage);
        self.frames += made;
        Counters::add(&self.counters.renewed_bytes, (made * self.block) as u64);
        true
    }
}
