//! Fork: the pager stands still, with every lock held, so that the child finds memory and heap
//! whole.

use crate::heap::{SMALL, SmallHeap};
use crate::mapping::SYNC;
use crate::process::{Process, Ranges, STARTING, lock, started};
use crate::{Error, Result};
use std::cell::UnsafeCell;
use std::sync::{MutexGuard, OnceLock, PoisonError, RwLockWriteGuard};
use terapage_pager::{Forking, Pager};
use terapage_sys::fd::Room;
use terapage_sys::thread::{self, Uncancelled};
use terapage_sys::{PAGE, last};

/// Bytes of the stack that a fork uses below this library's own frames, and returns through above
/// them before the child has a pager; generously. And those of the thread's variables, and of what
/// the C library knows of it, around its name.
const STACK_BELOW: usize = 32 << 10;
const STACK_ABOVE: usize = 16 << 10;
const OWN_VARIABLES: usize = 8 << 10;
const DESCRIPTOR: usize = 4 << 10;

/// All that a fork holds on to, from before to after, once there is a pager.
struct Held {
    forking: Option<Forking>,
    pager: RwLockWriteGuard<'static, Pager>,
    _ranges: MutexGuard<'static, Ranges>,
    _small: MutexGuard<'static, SmallHeap>,
    _sync: MutexGuard<'static, ()>,
}

/// What the thread that forks has left for after the fork. In no value of the thread's own: these
/// are gone where a thread or the process ends, and what is called then may fork.
struct Kept(UnsafeCell<Option<Fork>>);

/// A fork from before to after: what it holds if there is a pager, `STARTING`, and that its thread
/// is not cancelled.
type Fork = (Option<Held>, MutexGuard<'static, ()>, Uncancelled);

// SAFETY: who holds `STARTING` has it, and the fork holds that as long as something is kept.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new(None));

static REGISTERED: OnceLock<libc::c_int> = OnceLock::new();

/// Has the handlers called at every fork from now on.
pub(crate) fn register() -> Result<()> {
    let answer = *REGISTERED.get_or_init(|| {
        // SAFETY: the three are functions of this library, which is never unloaded.
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

fn hold(process: &'static Process) -> Held {
    let sync = lock(&SYNC);
    let small = lock(&SMALL);
    let ranges = lock(&process.ranges);
    let pager = process.pager.write().unwrap_or_else(PoisonError::into_inner);
    let _room = Room::make();
    let forking = pager.before_fork().ok();
    touch_own(process, &ranges);
    Held { forking, pager, _ranges: ranges, _small: small, _sync: sync }
}

/// Touches what the child uses before it has a pager, where the thread's stack and variables lie in
/// memory that was allocated here. The pager stands still but for what this brings in.
fn touch_own(process: &Process, ranges: &Ranges) {
    let mark = 0u8;
    let (here, own) = (&raw const mark as usize, thread::own_name());
    for (from, to) in [(here - STACK_BELOW, here + STACK_ABOVE), (own - OWN_VARIABLES, own + DESCRIPTOR)] {
        for at in (from / PAGE * PAGE..to).step_by(PAGE) {
            if process.has(at) && ranges.space.is_taken(at, PAGE) {
                // SAFETY: it is allocated, and only read.
                unsafe { std::ptr::read_volatile(at as *const u8) };
            }
        }
    }
}

/// Where there is no pager yet, another thread may be about to start it: the child would wait for
/// that thread.
extern "C" fn before() {
    let uncancelled = Uncancelled::new();
    let starting = lock(&STARTING);
    let held = started().map(hold);
    // SAFETY: `STARTING` is held.
    unsafe { *KEPT.0.get() = Some((held, starting, uncancelled)) };
}

extern "C" fn in_parent() {
    // SAFETY: `before` took `STARTING` in this thread.
    let kept = unsafe { (*KEPT.0.get()).take() };
    if let Some((Some(mut held), _starting, _uncancelled)) = kept
        && let Some(forking) = held.forking.take()
    {
        held.pager.after_fork_in_parent(forking);
    }
}

extern "C" fn in_child() {
    last::is_first();
    thread::forget_others();
    // SAFETY: `before` took `STARTING` in this thread.
    let kept = unsafe { (*KEPT.0.get()).take() };
    let Some((Some(mut held), _starting, _uncancelled)) = kept else { return };
    let _room = Room::make();
    let begun = held.forking.take().map(|forking| held.pager.after_fork_in_child(forking));
    match begun {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            thread::stop(&format!("terapage: the forked child cannot have its memory: {error}\n"))
        }
        None => thread::stop("terapage: the forked child cannot have its memory: no descriptors for it\n"),
    }
}
