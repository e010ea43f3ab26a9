//! `brk` and `sbrk`: the program's break is a range of the arena that grows.
//!
//! Allocators that bring their own `malloc` take their memory there (gperftools' tcmalloc), and so
//! do old programs. The C library's `malloc` has the kernel's break to itself, which stays as it
//! is.
//!
//! The break stays the kernel's for a program that moved it before the library began, since its
//! parts are to follow one another, and for one that runs without random addresses
//! (`personality(ADDR_NO_RANDOMIZE)`), since such a one may count on its heap's lying behind its
//! data.

use crate::arena::{self, ARENA, Arena};
use crate::maps::{failed, is_served};
use crate::{process, set_errno};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_sys::PAGE;

/// Bytes that are reserved for it: of the wide part, and where there is none, at most, as part of
/// the arena, and at least.
const WIDE: usize = 1 << 40;
const NARROW: usize = 64 << 30;
const NARROW_PART: usize = 2;
const LEAST: usize = 16 << 20;

/// It is opened in steps of so many bytes.
const STEP: usize = 1 << 20;

/// Where the break is, within its range. All zero: there is none yet.
#[derive(Default)]
pub struct Break {
    start: usize,
    now: usize,
    /// The program can touch what lies before this. Behind the break that is all zero.
    open: usize,
    end: usize,
}

impl Break {
    pub const fn new() -> Self {
        Break { start: 0, now: 0, open: 0, end: 0 }
    }

    /// Bytes of the range that the program has not asked for.
    pub fn spare(&self) -> usize {
        self.end - self.now
    }
}

/// The break is the kernel's, for good.
static KERNELS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// The C library's `sbrk`, by its inner name.
    fn __sbrk(increment: isize) -> *mut c_void;
}

fn is_random() -> bool {
    // SAFETY: this number only asks.
    let now = unsafe { libc::personality(0xffff_ffff) };
    now & libc::ADDR_NO_RANDOMIZE == 0
}

impl Arena {
    /// Whether there is a break, or one could be made.
    fn has_break(&mut self) -> bool {
        if self.program_break.start == 0 {
            let range = if is_random() { self.reserve_break() } else { None };
            let Some((start, end)) = range else {
                KERNELS.store(true, Relaxed);
                return false;
            };
            self.program_break = Break { start, now: start, open: start, end };
        }
        true
    }

    fn reserve_break(&mut self) -> Option<(usize, usize)> {
        if let Some(at) = self.take_wide(WIDE) {
            return Some((at, at + WIDE));
        }
        let mut len = (arena::whole().1 / NARROW_PART).min(NARROW) / process::block() * process::block();
        while len >= LEAST {
            if let Some(at) = self.take_closed(len) {
                return Some((at, at + len));
            }
            len = len / 2 / process::block() * process::block();
        }
        None
    }

    /// Moves the break; `false` where there is no room, or the program may have no more.
    fn move_break(&mut self, to: usize) -> bool {
        let Break { start, now, open, end } = self.program_break;
        if to < start {
            // As the kernel and the C library have it: nothing changes, and that is no error.
            return true;
        }
        // The program may have unmapped part of it: then that is others' by now.
        if to > end || self.ranges.end_of(start) != Some(end) {
            return false;
        }
        if to > now && !self.may_grow(to - now, true) {
            return false;
        }
        if to > open {
            let step = STEP.max(process::block());
            let until = (start + (to - start).next_multiple_of(step)).min(end);
            if !self.open_pages(open, until) {
                return false;
            }
            self.program_break.open = until;
        }
        let (from, until) = (to.next_multiple_of(PAGE), now.next_multiple_of(PAGE));
        if from < until {
            self.discard(from, until);
        }
        self.program_break.now = to;
        true
    }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    if is_served() && !KERNELS.load(Relaxed) {
        let mut arena = ARENA.lock();
        if arena.has_break() {
            let before = arena.program_break.now;
            if before.checked_add_signed(increment).is_some_and(|to| arena.move_break(to)) {
                return before as *mut c_void;
            }
            drop(arena);
            set_errno(libc::ENOMEM);
            return failed();
        }
    } else if increment != 0 {
        KERNELS.store(true, Relaxed);
    }
    // SAFETY: the caller keeps the contract of `sbrk`.
    unsafe { __sbrk(increment) }
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(to: *mut c_void) -> c_int {
    if is_served() && !KERNELS.load(Relaxed) {
        let mut arena = ARENA.lock();
        if arena.has_break() {
            if arena.move_break(to as usize) {
                return 0;
            }
            drop(arena);
            set_errno(libc::ENOMEM);
            return -1;
        }
    } else {
        KERNELS.store(true, Relaxed);
    }
    // SAFETY: it only asks.
    let now = unsafe { __sbrk(0) } as isize;
    // SAFETY: the caller keeps the contract of `brk`.
    if unsafe { __sbrk((to as isize).wrapping_sub(now)) } == failed() { -1 } else { 0 }
}
