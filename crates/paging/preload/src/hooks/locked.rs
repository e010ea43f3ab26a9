//! Hooks for memory that must stay in memory: `mlock` and its kin, and stacks of threads.

use crate::arena::{ARENA, Arena};
use crate::lock::Lock;
use crate::maps::{after_refusal, first_hole, is_beyond, is_nowhere, refuse, up_to_hole};
use crate::{borrowed, guard, paged, real, setup};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_calls::{Memory, Range};
use terapage_sys::{binding, memory, page_bytes};

/// Bytes at the end of a stack that the program provides, where the thread has its descriptor. (On
/// some processors the thread-local variables follow it.)
const DESCRIPTOR: usize = 16 << 10;

/// Hook of the C library's function. When a thread ends, the kernel clears a word in the thread's
/// descriptor, by which others see the end. At that time the kernel cannot wait for a page. So the
/// descriptor is not paged.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_attr_setstack(
    attributes: *mut libc::pthread_attr_t,
    at: *mut c_void,
    len: usize,
) -> c_int {
    let end = (at as usize).saturating_add(len);
    // In guarded mode the kernel also cannot wait when it puts the frame of a signal on the stack.
    let used = if guard::is_on() { len } else { len.min(DESCRIPTOR) };
    if let Err(error) = keep_in_memory(end - used, end) {
        return error.errno();
    }
    // SAFETY: the caller keeps the contract of `pthread_attr_setstack`.
    unsafe { real::call!(pthread_attr_setstack(attributes, at, len) or libc::ENOSYS) }
}

/// The words that a call about threads names, and that the kernel uses when the thread ends. The
/// kernel cannot wait for a page then, and in guarded mode not during the call either.
struct Words;

impl Memory for Words {
    fn range(&mut self, range: Range) -> bool {
        let is_used = range.kept || guard::is_on();
        !is_used || keep_in_memory(range.start, range.start.saturating_add(range.len)).is_ok()
    }

    fn read(&mut self, at: usize, into: &mut [u8]) -> bool {
        // SAFETY: there is room for the bytes.
        unsafe { memory::copy_what_is_there(into.as_mut_ptr(), at as *const u8, into.len()) }
    }

    fn is_self(&mut self, _pid: i32) -> bool {
        false
    }
}

/// Stops paging what a call about threads (`clone`, `set_tid_address`, `set_robust_list`, `rseq`)
/// names and the kernel uses later.
pub fn keep_words(number: libc::c_long, arguments: &[usize; 6]) {
    if setup::settings().is_some() {
        terapage_calls::visit(number as usize, arguments, &mut Words);
    }
}

/// Hook of the C library's function, whose last three arguments are there if the flags say so.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn clone(
    begin: extern "C" fn(*mut c_void) -> c_int,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let (parent_at, child_at, tls_at) = (parent as usize, child as usize, tls as usize);
    let last = if cfg!(target_arch = "aarch64") { [tls_at, child_at] } else { [child_at, tls_at] };
    keep_words(libc::SYS_clone, &[flags as usize, stack as usize, parent_at, last[0], last[1], 0]);
    // The new thread or process inherits the processors to which this thread is bound.
    binding::unbind();
    // SAFETY: the caller keeps the contract of `clone`.
    unsafe { real::call!(clone(begin, stack, flags, argument, parent, tls, child) or -1) }
}

/// The ranges that [`keep_in_memory`] has kept: their starts and ends.
static KEPT: Lock<BTreeMap<usize, usize>> = Lock::quiet(BTreeMap::new());
/// The number of kept ranges.
static KEPT_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Stops paging memory that the kernel uses at times when it cannot wait.
pub fn keep_in_memory(from: usize, to: usize) -> terapage_sys::Result<()> {
    if setup::settings().is_none() {
        return Ok(());
    }
    let page = from / page_bytes() * page_bytes();
    if paged::leave(page, to - page)?.is_some() {
        // A fork takes the arena's lock first, so no other thread holds the lock of `KEPT` at a
        // fork.
        let _arena = ARENA.lock();
        let mut kept = KEPT.lock();
        let longest = kept.entry(from).or_insert(to);
        *longest = (*longest).max(to);
        KEPT_COUNT.store(kept.len(), Relaxed);
    }
    Ok(())
}

/// The program frees an object of the heap, of `len` bytes: ranges that were kept in it are paged
/// again.
#[inline]
pub fn freed(at: usize, len: impl FnOnce() -> usize) {
    if KEPT_COUNT.load(Relaxed) > 0 {
        page_again(at, at + len());
    }
}

#[cold]
fn page_again(at: usize, end: usize) {
    let mut arena = ARENA.lock();
    let mut kept = KEPT.lock();
    let inside: Vec<_> = kept.range(at..end).map(|(&from, &to)| (from, to)).collect();
    for (from, _) in &inside {
        kept.remove(from);
    }
    KEPT_COUNT.store(kept.len(), Relaxed);
    let is_kept = |page: usize| {
        let before = kept.range(..page + page_bytes()).next_back();
        before.is_some_and(|(_, &to)| to > page)
    };
    for (from, to) in inside {
        // The first and the last page may also hold parts of kept neighbours.
        let mut first = from / page_bytes() * page_bytes();
        let mut last = to.next_multiple_of(page_bytes());
        if is_kept(first) {
            first += page_bytes();
        }
        if first < last && is_kept(last - page_bytes()) {
            last -= page_bytes();
        }
        if first < last {
            arena.take_back(vec![(first, last)]);
        }
    }
}

/// The part of the budget that may be locked: locked memory does not count in the budget.
const PART: usize = 4;

/// Whether the pages of a range may be locked in addition to the pages that are locked.
fn may_lock(arena: &Arena, from: usize, to: usize) -> bool {
    let more: usize = arena.not_locked(from, to).iter().map(|(from, to)| to - from).sum();
    more == 0 || arena.locked_bytes() + more <= setup::budget_now() / PART
}

unsafe fn lock(call: i64, at: *const c_void, len: usize, flags: c_int) -> c_int {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `mlock2`.
        return unsafe { borrowed::call(call, [at as usize, len, flags as usize, 0, 0, 0]) } as c_int;
    }
    if is_nowhere(at as usize, len) || flags & !(libc::MLOCK_ONFAULT as c_int) != 0 {
        // SAFETY: nothing is changed.
        return unsafe { libc::passing(call, [at as usize, len, flags as usize, 0, 0, 0]) as c_int };
    }
    if is_beyond(at as usize, len) {
        // The kernel would lock what lies before the first hole, and then say the same.
        return refuse(libc::ENOMEM);
    }
    let from = at as usize / page_bytes() * page_bytes();
    let to = (at as usize + len).next_multiple_of(page_bytes());
    let mut locked = Vec::new();
    if paged::concerns(from, to - from) {
        let mut arena = ARENA.lock();
        if !may_lock(&arena, from, to) {
            return refuse(libc::ENOMEM);
        }
        if let Some(hole) = arena.first_hole(from, to) {
            drop(arena);
            // SAFETY: the caller keeps the contract of `mlock2`.
            return up_to_hole(hole - from, |len| unsafe { lock(call, from as *const c_void, len, flags) });
        }
        match arena.lock_parts(from, to) {
            Ok(new) => locked = new,
            Err(error) => return refuse(error.errno()),
        }
    }
    // SAFETY: the caller keeps the contract of `mlock2`.
    let answer = unsafe { libc::passing(call, [at as usize, len, flags as usize, 0, 0, 0]) as c_int };
    if answer != 0 && !locked.is_empty() {
        after_refusal(|| {
            for &(from, to) in &locked {
                // SAFETY: these pages were not locked before.
                unsafe { libc::syscall(libc::SYS_munlock, from, to - from) };
            }
            ARENA.lock().unlock_parts(&locked);
        });
    }
    answer
}

/// Hook of the C library's function: the memory is paged again.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn munlock(at: *const c_void, len: usize) -> c_int {
    if borrowed::is_borrower() {
        // SAFETY: the caller keeps the contract of `munlock`.
        return unsafe { borrowed::call(libc::SYS_munlock, [at as usize, len, 0, 0, 0, 0]) } as c_int;
    }
    if is_nowhere(at as usize, len) {
        // SAFETY: nothing is changed.
        return unsafe { libc::syscall(libc::SYS_munlock, at, len) as c_int };
    }
    if is_beyond(at as usize, len) {
        return refuse(libc::ENOMEM);
    }
    let from = at as usize / page_bytes() * page_bytes();
    let to = (at as usize + len).next_multiple_of(page_bytes());
    if let Some(hole) = first_hole(from, to) {
        // SAFETY: the caller keeps the contract of `munlock`.
        return up_to_hole(hole - from, |len| unsafe { munlock(from as *const c_void, len) });
    }
    // SAFETY: the caller keeps the contract of `munlock`.
    let answer = unsafe { libc::syscall(libc::SYS_munlock, at, len) as c_int };
    if answer == 0 && paged::concerns(from, to - from) {
        let parts: Vec<_> = paged::parts(from, to).collect();
        let mut arena = ARENA.lock();
        arena.unlock_parts(&parts);
        arena.start_if_due();
    }
    answer
}

/// As [`munlock`].
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn munlockall() -> c_int {
    if borrowed::is_borrower() {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller keeps the contract of `munlockall`.
    let answer = unsafe { libc::syscall(libc::SYS_munlockall) as c_int };
    if answer == 0 && setup::settings().is_some() {
        let mut arena = ARENA.lock();
        arena.unlock_all();
        arena.start_if_due();
    }
    answer
}

alias! {
    fn mlock(at: *const c_void, len: usize) -> c_int = lock(libc::SYS_mlock, at, len, 0);
    fn mlock2(at: *const c_void, len: usize, flags: libc::c_uint) -> c_int = lock(libc::SYS_mlock2, at, len, flags as c_int);
}

/// Hook of the C library's function. The call is refused, because not all memory can be locked
/// within a budget.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if setup::settings().is_some() {
        return refuse(libc::ENOMEM);
    }
    // SAFETY: the caller keeps the contract of `mlockall`.
    unsafe { libc::syscall(libc::SYS_mlockall, flags as i64) as c_int }
}
