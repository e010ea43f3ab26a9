//! Fork: the pager is parked and all locks are taken, so the child finds memory and heap
//! consistent.

use crate::heap::{SMALL, SmallHeap};
use crate::mapping::SYNC;
use crate::pages::Pages;
use crate::process::{Process, Ranges, STARTING, lock, started};
use crate::{Error, Result};
use std::cell::UnsafeCell;
use std::sync::{MutexGuard, OnceLock, PoisonError, RwLockWriteGuard};
use terapage_pager::Forking;
use terapage_sys::fd::Room;
use terapage_sys::thread::{self, Uncancelled};
use terapage_sys::{last, page_bytes};

/// Bytes of the stack that a fork uses below this library's frames; a generous guess.
const STACK_BELOW: usize = 32 << 10;
/// Bytes of the stack above them through which a fork returns before the child has a pager.
const STACK_ABOVE: usize = 16 << 10;
/// Bytes of thread-local variables before the thread's descriptor.
const OWN_VARIABLES: usize = 8 << 10;
/// Bytes of the descriptor.
const DESCRIPTOR: usize = 4 << 10;

/// The data of a fork from before to after, if there is a pager. The pager of `terapage run` is
/// parked by its own library, after this: its handlers were registered first.
struct Locked {
    forking: Option<Forking>,
    pages: RwLockWriteGuard<'static, Pages>,
    _ranges: MutexGuard<'static, Ranges>,
    _small: MutexGuard<'static, SmallHeap>,
    _sync: MutexGuard<'static, ()>,
}

/// The data that the forking thread keeps until after the fork. They are not thread-local:
/// functions that are called at the end of a thread or the process may fork, and thread-local
/// values are gone then.
struct Kept(UnsafeCell<Option<Fork>>);

/// A fork: its data if there is a pager, the lock `STARTING`, and the value that keeps its thread
/// from being cancelled.
type Fork = (Option<Locked>, MutexGuard<'static, ()>, Uncancelled);

// SAFETY: only the holder of `STARTING` uses the value, and the fork holds that lock while anything
// is kept.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new(None));

static REGISTERED: OnceLock<libc::c_int> = OnceLock::new();

/// Registers the functions that are called at every fork.
pub(crate) fn register() -> Result<()> {
    let answer = *REGISTERED.get_or_init(|| {
        // SAFETY: the three functions are in this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) }
    });
    match answer {
        0 => Ok(()),
        errno => Err(Error::System(terapage_sys::Error {
            call: "pthread_atfork",
            source: std::io::Error::from_raw_os_error(errno),
        })),
    }
}

fn lock_all(process: &'static Process) -> Locked {
    let sync = lock(&SYNC);
    let small = lock(&SMALL);
    let ranges = lock(&process.ranges);
    let pages = process.pages.write().unwrap_or_else(PoisonError::into_inner);
    let mut forking = None;
    if let Pages::Own(pager) = &*pages {
        let _room = Room::make();
        forking = pager.before_fork().ok();
        touch_own(process, &ranges);
    }
    Locked { forking, pages, _ranges: ranges, _small: small, _sync: sync }
}

/// Touches the memory that the child uses before it has a pager, if the thread's stack and
/// variables lie in memory that was allocated here. The pager is parked and serves only this
/// thread's faults.
fn touch_own(process: &Process, ranges: &Ranges) {
    let mark = 0u8;
    let (here, own) = (&raw const mark as usize, thread::own_name());
    for (from, to) in [(here - STACK_BELOW, here + STACK_ABOVE), (own - OWN_VARIABLES, own + DESCRIPTOR)] {
        for at in (from / page_bytes() * page_bytes()..to).step_by(page_bytes()) {
            if process.has(at) && process.is_taken(ranges, at, page_bytes()) {
                // SAFETY: the memory is allocated, and only read.
                unsafe { std::ptr::read_volatile(at as *const u8) };
            }
        }
    }
}

/// If there is no pager yet, another thread may be about to start it, and the child would wait for
/// that thread.
extern "C" fn before() {
    let uncancelled = Uncancelled::new();
    let starting = lock(&STARTING);
    let locked = started().map(lock_all);
    // SAFETY: `STARTING` is locked.
    unsafe { *KEPT.0.get() = Some((locked, starting, uncancelled)) };
}

extern "C" fn in_parent() {
    // SAFETY: `before` took `STARTING` in this thread.
    let kept = unsafe { (*KEPT.0.get()).take() };
    if let Some((Some(mut locked), _starting, _uncancelled)) = kept
        && let Some(forking) = locked.forking.take()
        && let Pages::Own(pager) = &*locked.pages
    {
        pager.after_fork_in_parent(forking);
    }
}

extern "C" fn in_child() {
    last::is_first();
    thread::forget_others();
    // SAFETY: `before` took `STARTING` in this thread.
    let kept = unsafe { (*KEPT.0.get()).take() };
    let Some((Some(mut locked), _starting, _uncancelled)) = kept else { return };
    let Pages::Own(pager) = &mut *locked.pages else { return };
    let _room = Room::make();
    let begun = locked.forking.take().map(|forking| pager.after_fork_in_child(forking));
    match begun {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            thread::stop(&format!("terapage: the forked child cannot have its memory: {error}\n"))
        }
        None => thread::stop("terapage: the forked child cannot have its memory: no descriptors for it\n"),
    }
}
