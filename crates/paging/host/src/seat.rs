//! The seat: the thread pointer and the stack with which the paging library is called.
//!
//! The handler runs in a thread of the program, whose thread pointer the host's C library cannot
//! use. The host's first thread has become the program's, so its original pointer is free. The
//! pointer is lent to one thread at a time, together with a stack. While a thread has the seat, all
//! its signals are blocked: no handler of the program sees the host's thread pointer.

use crate::guard;
use crate::machine::{self, pointer, set_pointer};
use crate::raw::{self, raw};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

const STACK: usize = 1 << 20;

/// The thread that has the seat, or 0, and whether others wait for the seat ([`AWAITED`]). This is
/// one word: a child of `vfork` can be killed between any two instructions.
static HOLDER: AtomicU32 = AtomicU32::new(0);
const AWAITED: u32 = 1 << 31;
/// The end of the stack.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// The host's thread pointer.
static POINTER: AtomicUsize = AtomicUsize::new(0);
/// Makes the seat out of the calling thread's pointer. `false` if there is no memory.
pub fn open() -> bool {
    let Some(at) = raw::map(STACK) else { return false };
    raw::guard(at);
    TOP.store(at + STACK, Relaxed);
    machine::find_pointer();
    POINTER.store(pointer(), Release);
    true
}

/// Calls `work` with the host's thread pointer, on the seat's stack.
///
/// # Safety
/// All signals of the calling thread are blocked. `work` may be called with `argument`.
pub unsafe fn with(work: unsafe extern "C" fn(usize), argument: usize) {
    take();
    if guard::is_active() {
        // Calls of the library that name paged memory, if only by a register that is left over, are
        // trapped. SAFETY: the thread runs on the stack of its slot. The return from the handler
        // restores the stack for handlers, on which a handler may be waiting.
        unsafe {
            let stack = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            raw!(libc::SYS_sigaltstack, &raw const stack, 0);
        }
        raw::block(!TRAPS);
    }
    let before = pointer();
    // SAFETY: the seat is this thread's: the pointer and the stack have no other user. In the child
    // of a fork, both are copies.
    unsafe {
        set_pointer(POINTER.load(Relaxed));
        machine::call_on(TOP.load(Relaxed), work, argument);
        set_pointer(before);
    }
    if guard::is_active() {
        raw::block(u64::MAX);
    }
    give();
}

/// The signal of trapped calls.
pub const TRAPS: u64 = 1 << (libc::SIGSYS - 1);

/// Whether the calling thread has the seat.
pub fn is_taken() -> bool {
    HOLDER.load(Relaxed) & !AWAITED == raw::thread_id()
}

/// Takes the seat for the thread whose pointer it has: the host's first thread, which works for an
/// adopted program for a while.
pub fn take() {
    let me = raw::thread_id();
    let change = |from, to| HOLDER.compare_exchange(from, to, Acquire, Relaxed).is_ok();
    if change(0, me) {
        return;
    }
    // Others may wait, too, so the thread that leaves this loop must wake them later.
    while !change(0, me | AWAITED) {
        let now = HOLDER.load(Relaxed);
        if now != 0 && (now & AWAITED != 0 || change(now, now | AWAITED)) {
            let (word, wait) = (HOLDER.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
            // SAFETY: the word stays valid; without a time, the wait has no limit.
            unsafe { raw!(libc::SYS_futex, word, wait, now | AWAITED, 0) };
        }
    }
}

/// Gives the seat back.
pub fn give() {
    if HOLDER.swap(0, Release) & AWAITED != 0 {
        let (word, wake) = (HOLDER.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
        // SAFETY: the word stays.
        unsafe { raw!(libc::SYS_futex, word, wake, 1) };
    }
}

/// Gives the seat back for a child of `vfork` that has ended while it had the seat. What the child
/// did there is whole, or was never begun: it changes the library's data by single words only
/// (`preload`: `process/borrowed.rs`).
pub fn leave_for(thread: u32) {
    if HOLDER.load(Acquire) & !AWAITED == thread {
        give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_the_seat_and_gets_its_own_pointer_back() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C" fn work(by: usize) {
            assert_eq!(pointer(), POINTER.load(Relaxed));
            let now = COUNT.load(Relaxed);
            std::hint::spin_loop();
            COUNT.store(now + by, Relaxed);
        }
        let begin = || {
            let own = pointer();
            for _ in 0..10_000 {
                let mut before = 0_u64;
                // SAFETY: both sets have the given length; the work may be done with any number.
                unsafe {
                    let all = u64::MAX;
                    raw!(libc::SYS_rt_sigprocmask, 0, &raw const all, &raw mut before, 8);
                    with(work, 1);
                }
                raw::block(before);
                assert_eq!(pointer(), own);
            }
        };
        // The seat is a thread's that waits meanwhile.
        let (ready, over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(open());
                ready.wait();
                over.wait();
            });
            ready.wait();
            std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(begin))));
            over.wait();
        });
        assert_eq!(COUNT.load(Relaxed), 30_000);
    }
}
