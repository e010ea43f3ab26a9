//! Collection in idle time.

use terapage_event::Nanos;

use crate::config::IdleCollection;
use crate::die::Phase;
use crate::ssd::{Event, Ssd};

impl Ssd {
    /// A die becomes idle. One event for each die follows after the idle time, and checks whether
    /// the die was busy meanwhile.
    pub(crate) fn watch_idle(&mut self, now: Nanos, die: u32) {
        let Some(IdleCollection { after_ns, .. }) = self.config.idle_collection else { return };
        let state = &mut self.dies[die as usize];
        state.idle_since = now;
        if !state.idle_armed {
            state.idle_armed = true;
            self.events.at(now + after_ns, Event::Idle { die: die as u16 });
        }
    }

    pub(crate) fn idle_event(&mut self, now: Nanos, die: u32) {
        let Some(IdleCollection { after_ns, .. }) = self.config.idle_collection else { return };
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
        let Some(IdleCollection { free_blocks, .. }) = self.config.idle_collection else { return false };
        let state = &self.dies[die as usize];
        if !state.idle_collects {
            return false;
        }
        let collects = state.collection.is_some()
            || self.blocks.free_count(die) < free_blocks && self.begin_collection(die);
        let goes_on = collects && self.collect(now, die);
        self.dies[die as usize].idle_collects = goes_on;
        goes_on
    }
}
