//! The pager of `terapage run`, for a copy of Terapage that the program has linked or loaded: the
//! copy takes its memory from the arena, so the process has one pager and one budget.
//!
//! No fork happens while the other copy uses the pager: that copy then holds a lock, for which its
//! own handler, called before this library's, waits.

use crate::arena::{self, ARENA};
use crate::{exit, setup};
use libc::{c_int, c_void};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_pager::owner::{Owner, advice};
use terapage_pager::{Error, FDATASYNC, Pager};
use terapage_stats::Counters;
use terapage_sys::page_bytes;

/// The most bytes that leave memory in one request, so that faults are served in between.
const DONE_WITH: usize = 4 << 20;

static OWNER: Owner =
    Owner { begin, block, whole, take, give, is_used, advise, map_file, unmap_file, sync_file, counters };

/// Whether another copy uses the pager.
static USED: AtomicBool = AtomicBool::new(false);

/// Whether another copy uses the pager, by which the pager cannot end. Ask under the arena's lock.
pub fn use_the_pager() -> bool {
    USED.load(Relaxed)
}

/// The table, for other copies of Terapage in the process; null if the process is not paged.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_owner_3() -> *const c_void {
    if arena::is_open() { (&raw const OWNER).cast() } else { std::ptr::null() }
}

/// The pager, once it has begun. It is used without the arena's lock, because a request may take
/// long, and wait for a page.
fn pager() -> Option<&'static Pager> {
    let arena = ARENA.lock();
    // SAFETY: once there is a pager, it does not move while the process lives. Only the child of a
    // fork changes it, when it has a single thread; the header of this file says why no thread uses
    // the pager then.
    arena.pager.as_ref().map(|pager| unsafe { &*std::ptr::from_ref(pager) })
}

/// The error number of an answer.
fn number(answer: Result<(), Error>) -> c_int {
    match answer {
        Ok(()) => 0,
        Err(Error::System(error)) if error.errno() != 0 => error.errno(),
        Err(Error::System(_)) => libc::EIO,
        Err(Error::TooManyFiles) => libc::ENFILE,
        Err(_) => libc::EINVAL,
    }
}

/// Asks the pager for something that an error number answers.
fn ask(request: impl FnOnce(&Pager) -> Result<(), Error>) -> c_int {
    pager().map_or(libc::ENOSYS, |pager| number(request(pager)))
}

extern "C" fn begin() -> c_int {
    let mut arena = ARENA.lock();
    // The child of vfork has its parent's memory, and a pager that it started would end with it.
    if arena.pager.is_none() && exit::is_owner() {
        arena.start();
    }
    if arena.pager.is_none() {
        return libc::EPERM;
    }
    USED.store(true, Relaxed);
    0
}

extern "C" fn block() -> usize {
    setup::block()
}

extern "C" fn whole(start: &mut usize, len: &mut usize) {
    (*start, *len) = arena::whole();
}

extern "C" fn take(len: usize, align: usize) -> usize {
    let mut arena = ARENA.lock();
    let at = if arena.may_grow(len, true) { arena.take(len, align, true) } else { None };
    at.unwrap_or(0)
}

extern "C" fn give(at: usize, len: usize) {
    ARENA.lock().give(at, at + len, false);
}

extern "C" fn is_used(at: usize, len: usize) -> bool {
    let (start, whole) = arena::whole();
    let inside = at.checked_sub(start).and_then(|from| from.checked_add(len)).is_some_and(|to| to <= whole);
    let (from, to) = (at / page_bytes() * page_bytes(), at.wrapping_add(len).next_multiple_of(page_bytes()));
    inside && ARENA.lock().first_hole(from, to).is_none()
}

extern "C" fn advise(at: usize, len: usize, what: c_int) -> c_int {
    match what {
        advice::WILL_NEED => ask(|pager| pager.will_need(at, len)),
        advice::DONE_WITH => ask(|pager| {
            let parts = (at..at + len).step_by(DONE_WITH);
            parts.into_iter().try_for_each(|part| pager.done_with(part, DONE_WITH.min(at + len - part)))
        }),
        advice::SEQUENTIAL => ask(|pager| pager.set_random(at, len, false)),
        advice::RANDOM => ask(|pager| pager.set_random(at, len, true)),
        _ => libc::EINVAL,
    }
}

/// The file of a descriptor that stays the caller's.
fn borrowed(fd: c_int) -> ManuallyDrop<File> {
    // SAFETY: the caller keeps the descriptor open during the call, and this value does not close
    // it.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

extern "C" fn map_file(at: usize, len: usize, fd: c_int, offset: u64, bytes: u64) -> c_int {
    ask(|pager| pager.map_file(at, len, &borrowed(fd), offset, bytes))
}

extern "C" fn unmap_file(at: usize, len: usize) -> c_int {
    ask(|pager| pager.unmap_file(at, len))
}

extern "C" fn sync_file(
    at: usize,
    len: usize,
    fd: c_int,
    offset: u64,
    bytes: u64,
    written: &mut u64,
) -> c_int {
    let Some(pager) = pager() else { return libc::ENOSYS };
    match pager.sync_file(at, len, &borrowed(fd), offset, bytes) {
        Ok(bytes) => {
            *written = bytes;
            0
        }
        Err(Error::System(error)) if error.call == FDATASYNC => -number(Err(Error::System(error))),
        Err(error) => number(Err(error)),
    }
}

extern "C" fn counters() -> *const Counters {
    pager().map_or(std::ptr::null(), |pager| std::ptr::from_ref(pager.counters()))
}
