//! Fork: the locks are taken and the pager stands still; the child gets a pager of its own.

use crate::arena::ARENA;
use crate::lock::Lock;
use crate::{heap, process};
use terapage_pager::Forking;
use terapage_sys::thread;

static FORKING: Lock<Option<Forking>> = Lock::new(None);

/// Asks to be told of forks.
pub fn open() {
    // SAFETY: the three functions live as long as the process.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    heap::take_all();
    ARENA.take();
    // SAFETY: taken just now.
    let arena = unsafe { ARENA.value() };
    if let Some(pager) = &arena.pager {
        let forking = process::or_fail(pager.before_fork());
        *FORKING.lock() = Some(forking);
        arena.set_forkable(true);
    }
}

fn after() {
    ARENA.give();
    heap::give_all();
}

unsafe extern "C" fn in_parent() {
    // SAFETY: taken in `before`.
    let arena = unsafe { ARENA.value() };
    if let (Some(pager), Some(forking)) = (&arena.pager, FORKING.lock().take()) {
        pager.after_fork_in_parent(forking);
        arena.set_forkable(false);
    }
    after();
}

unsafe extern "C" fn in_child() {
    thread::forget_others();
    crate::exit::own();
    let _internal = thread::Internal::enter();
    // SAFETY: taken in `before`.
    let arena = unsafe { ARENA.value() };
    if let (Some(pager), Some(forking)) = (&mut arena.pager, FORKING.lock().take()) {
        process::or_fail(pager.after_fork_in_child(forking));
        arena.set_forkable(false);
        arena.count_in_use();
    }
    after();
}
