//! Carriers: threads that carry loads for the pager's thread, which goes on serving faults
//! meanwhile.
//!
//! To put blocks into the program or to take them out costs several times what it costs to decide
//! that: bytes are copied and looked at, pages change hands, other processors are interrupted. A
//! carrier has one load at a time, in a slot that changes hands by its state. It allocates nothing,
//! and knows nothing of the pager's books.

use crate::load::Load;
use crate::sync::{AtomicUsize, Mutex, Word, recover, wait, wake};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use terapage_sys::fd::Fd;
use terapage_sys::thread;

/// The pager's to fill.
const IDLE: u32 = 0;
/// The carrier's.
const POSTED: u32 = 1;
/// The pager's to empty.
const DONE: u32 = 2;
/// Nothing more will come.
const ENDED: u32 = 3;

struct Slot {
    state: Word,
    load: Mutex<Option<Box<Load>>>,
}

struct Shared {
    slots: Vec<Slot>,
    /// Signalled when a load is done while the pager's thread sleeps.
    event: Fd,
    asleep: AtomicUsize,
    ended: AtomicUsize,
}

impl Shared {
    /// A carrier's whole life.
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
    /// So many carriers.
    ///
    /// # Errors
    /// No thread, or no descriptor, can be had.
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

    /// What says that a load is done, if there are carriers: to be polled.
    pub fn event(&self) -> Option<&Fd> {
        self.0.as_ref().map(|shared| &shared.event)
    }

    /// Gives a load to a carrier; gives it back if none is free.
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

    /// The pager's thread is about to sleep: `event` will be signalled. Whether it may: false if a
    /// load is done.
    pub fn may_sleep(&self) -> bool {
        let Some(shared) = &self.0 else { return true };
        shared.asleep.store(1, SeqCst);
        !self.has_done()
    }

    /// It sleeps no more.
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
