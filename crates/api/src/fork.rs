//! Fork: the pager stands still, with every lock held, so that the child finds memory and heap whole.

use crate::heap::{SMALL, SmallHeap};
use crate::mapping::SYNC;
use crate::process::{Process, Ranges, STARTING, lock, started};
use crate::{Error, Result};
use std::cell::RefCell;
use std::sync::{MutexGuard, Once, PoisonError, RwLockWriteGuard};
use terapage_pager::{Forking, Pager};
use terapage_sys::thread;

/// All that a fork holds on to, from before to after.
struct Held {
    forking: Option<Forking>,
    pager: RwLockWriteGuard<'static, Pager>,
    _ranges: MutexGuard<'static, Ranges>,
    _small: MutexGuard<'static, SmallHeap>,
    _sync: MutexGuard<'static, ()>,
    _starting: MutexGuard<'static, ()>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

static REGISTER: Once = Once::new();

/// Has the handlers called at every fork from now on.
pub(crate) fn register() -> Result<()> {
    let mut answer = 0;
    REGISTER.call_once(|| {
        // SAFETY: the three are functions of this library, which is never unloaded.
        answer = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
    match answer {
        0 => Ok(()),
        errno => Err(Error::System(terapage_sys::Error {
            call: "pthread_atfork",
            source: std::io::Error::from_raw_os_error(errno),
        })),
    }
}

fn hold(process: &'static Process, starting: MutexGuard<'static, ()>) -> Held {
    let sync = lock(&SYNC);
    let small = lock(&SMALL);
    let ranges = lock(&process.ranges);
    let pager = process.pager.write().unwrap_or_else(PoisonError::into_inner);
    let forking = pager.before_fork().ok();
    Held { forking, pager, _ranges: ranges, _small: small, _sync: sync, _starting: starting }
}

extern "C" fn before() {
    let starting = lock(&STARTING);
    if let Some(process) = started() {
        let held = hold(process, starting);
        HELD.with(|place| *place.borrow_mut() = Some(held));
    }
}

extern "C" fn in_parent() {
    if let Some(mut held) = HELD.with(|place| place.borrow_mut().take())
        && let Some(forking) = held.forking.take()
    {
        held.pager.after_fork_in_parent(forking);
    }
}

extern "C" fn in_child() {
    let Some(mut held) = HELD.with(|place| place.borrow_mut().take()) else { return };
    thread::forget_others();
    let begun = held.forking.take().map(|forking| held.pager.after_fork_in_child(forking));
    match begun {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            thread::stop(&format!("terapage: the forked child cannot have its memory: {error}\n"))
        }
        None => thread::stop("terapage: the forked child cannot have its memory: no descriptors for it\n"),
    }
}
