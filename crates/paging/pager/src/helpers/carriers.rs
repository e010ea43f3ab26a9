//! Carriers: worker threads that carry loads while the pager's thread serves faults.
//!
//! To put blocks into the program, or take them out, costs several times what the decision costs:
//! bytes are copied and hashed, pages change hands, other processors are interrupted. A carrier has
//! one load at a time, in a slot whose state says which thread uses it. It allocates nothing, and
//! needs nothing of the engine's state.

use crate::carry::Load;
use crate::sync::{AtomicUsize, Mutex, Word, recover, wait, wake};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use terapage_sys::fd::Fd;
use terapage_sys::thread;

/// The slot is empty; the pager's thread may fill it.
const IDLE: u32 = 0;
/// The slot has a load; the carrier uses it.
const POSTED: u32 = 1;
/// The load is done; the pager's thread may take it.
const DONE: u32 = 2;
/// No more loads come: the carrier ends.
const ENDED: u32 = 3;

struct Slot {
    state: Word,
    load: Mutex<Option<Box<Load>>>,
}

struct Shared {
    slots: Vec<Slot>,
    /// Signalled if a load is done while the pager's thread sleeps.
    event: Fd,
    asleep: AtomicUsize,
    ended: AtomicUsize,
}

impl Shared {
    /// The loop of a carrier, until it ends.
    fn run(&self, slot: &Slot) {
        loop {
            match slot.state.load(SeqCst) {
                POSTED => {}
                _ if self.ended.load(SeqCst) != 0 => return,
                state => {
                    wait(&slot.state, state);
                    continue;
                }
            }
            if let Some(load) = recover(slot.load.lock()).as_mut() {
                load.carry();
            }
            slot.state.store(DONE, SeqCst);
            if self.asleep.swap(0, SeqCst) != 0 {
                self.event.signal();
            }
        }
    }
}

/// The carriers, or none.
#[derive(Default)]
pub(crate) struct Carriers(Option<Arc<Shared>>);

impl Carriers {
    /// Starts `count` carriers.
    ///
    /// # Errors
    /// A thread or descriptor cannot be made.
    pub fn start(count: usize) -> terapage_sys::Result<Carriers> {
        if count == 0 {
            return Ok(Carriers(None));
        }
        let slot = |_| Slot { state: Word::new(IDLE), load: Mutex::new(None) };
        let shared = Arc::new(Shared {
            slots: (0..count).map(slot).collect(),
            event: Fd::event()?,
            asleep: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        });
        for index in 0..count {
            let shared = shared.clone();
            thread::spawn_quiet(c"terapage-carry", move || shared.run(&shared.slots[index]))?;
        }
        Ok(Carriers(Some(shared)))
    }

    /// The event that says that a load is done, for polling; `None` without carriers.
    pub fn event(&self) -> Option<&Fd> {
        self.0.as_ref().map(|shared| &shared.event)
    }

    /// Gives a load to a carrier. Returns it if no carrier is free.
    pub fn post(&self, load: Box<Load>) -> Option<Box<Load>> {
        let free = |slot: &&Slot| slot.state.load(SeqCst) == IDLE;
        let Some(slot) = self.0.as_ref().and_then(|shared| shared.slots.iter().find(free)) else {
            return Some(load);
        };
        *recover(slot.load.lock()) = Some(load);
        slot.state.store(POSTED, SeqCst);
        wake(&slot.state);
        None
    }

    fn done(&self) -> Option<&Slot> {
        self.0.as_ref()?.slots.iter().find(|slot| slot.state.load(SeqCst) == DONE)
    }

    /// Whether a load is done.
    pub fn has_done(&self) -> bool {
        self.done().is_some()
    }

    /// Takes a load that is done.
    pub fn take(&self) -> Option<Box<Load>> {
        let slot = self.done()?;
        let load = recover(slot.load.lock()).take();
        slot.state.store(IDLE, SeqCst);
        load
    }

    /// Before the pager's thread sleeps: asks for `event` to be signalled. Whether it may sleep:
    /// false if a load is done.
    pub fn may_sleep(&self) -> bool {
        let Some(shared) = &self.0 else { return true };
        shared.asleep.store(1, SeqCst);
        !self.has_done()
    }

    /// Notes that the pager's thread sleeps no more.
    pub fn woke(&self) {
        if let Some(shared) = &self.0 {
            shared.asleep.store(0, SeqCst);
        }
    }
}

impl Drop for Carriers {
    fn drop(&mut self) {
        let Some(shared) = &self.0 else { return };
        shared.ended.store(1, SeqCst);
        for slot in &shared.slots {
            slot.state.store(ENDED, SeqCst);
            wake(&slot.state);
        }
    }
}
