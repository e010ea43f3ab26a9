//! Collection in idle time, and moving data out of the cache of SLC.

use terapage_event::{MILLISECOND, Nanos};

use crate::config::Config;
use crate::die::Phase;
use crate::program::FREE_BLOCKS;
use crate::ssd::{Event, Ssd};

/// A die that has been idle for this long moves data out of its blocks of SLC, if there is no time
/// for collection. Estimated.
const FOLD_AFTER_NS: Nanos = 10 * MILLISECOND;

impl Config {
    /// How long a die is idle before it begins to collect.
    pub(crate) fn idle_ns(&self) -> Option<Nanos> {
        let fold = (self.slc_cache_bytes > 0).then_some(FOLD_AFTER_NS);
        self.idle_collection.map(|idle| idle.after_ns).or(fold)
    }
}

impl Ssd {
    /// A die becomes idle. One event for each die follows after the idle time, and checks whether
    /// the die was busy meanwhile.
    pub(crate) fn watch_idle(&mut self, now: Nanos, die: u32) {
        let Some(after_ns) = self.config.idle_ns() else { return };
        let state = &mut self.dies[die as usize];
        state.idle_since = now;
        if !state.idle_armed {
            state.idle_armed = true;
            self.events.at(now + after_ns, Event::Idle { die: die as u16 });
        }
    }

    pub(crate) fn idle_event(&mut self, now: Nanos, die: u32) {
        let Some(after_ns) = self.config.idle_ns() else { return };
        let state = &mut self.dies[die as usize];
        state.idle_armed = false;
        if state.phase != Phase::Idle || state.suspended.is_some() {
            return;
        }
        if state.idle_since + after_ns > now {
            state.idle_armed = true;
            let time = state.idle_since + after_ns;
            return self.events.at(time, Event::Idle { die: die as u16 });
        }
        state.idle_collects = true;
        self.next_operation(now, die);
    }

    /// Executes the next step of a collection in idle time. It returns whether there was one.
    pub(crate) fn collect_in_idle_time(&mut self, now: Nanos, die: u32) -> bool {
        let state = &self.dies[die as usize];
        if !state.idle_collects {
            return false;
        }
        let wanted = self.config.idle_collection.map_or(FREE_BLOCKS, |idle| idle.free_blocks);
        let collects = state.collection.is_some()
            || self.blocks.free_count(die) < wanted && self.begin_collection(die)
            // There is room for what leaves a block of SLC.
            || self.blocks.free_count(die) >= FREE_BLOCKS && self.begin_folding(die);
        let goes_on = collects && self.collect(now, die);
        self.dies[die as usize].idle_collects = goes_on;
        goes_on
    }
}
