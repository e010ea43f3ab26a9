//! `brk` and `sbrk`: the program's break is a range of the arena that grows.
//!
//! Some allocators (gperftools' tcmalloc) and old programs take their memory there. The kernel's
//! own break stays unchanged; only the C library's `malloc` uses it.
//!
//! Two kinds of programs keep the kernel's break: a program that moved it before the library began,
//! because the parts of its heap must follow one another; and a program that runs without random
//! addresses (`personality(ADDR_NO_RANDOMIZE)`), because its heap may have to lie behind its data.

use crate::arena::{self, ARENA, Arena};
use crate::maps::{self, failed};
use crate::{borrowed, set_errno, setup};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use terapage_sys::page_bytes;

/// Bytes reserved for the break in the wide part.
const WIDE: usize = 1 << 40;
/// The most bytes reserved if there is no wide part.
const NARROW: usize = 64 << 30;
/// Then the arena divided by this is reserved.
const NARROW_PART: usize = 2;
/// The least bytes reserved.
const LEAST: usize = 16 << 20;

/// The range is opened in steps of this many bytes.
const STEP: usize = 1 << 20;

/// The break and its range. If all fields are zero, there is none yet.
#[derive(Default)]
pub struct Break {
    start: usize,
    now: usize,
    /// The program may touch memory before this address. From the break on it is all zero.
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

/// The break, once there is one: a child of `vfork` reads it without the lock.
static NOW: AtomicUsize = AtomicUsize::new(0);

/// The break as a child of `vfork` sees it, which cannot move it.
pub fn now() -> usize {
    match NOW.load(Relaxed) {
        0 => NONE,
        now => now,
    }
}

/// Whether the program keeps the kernel's break.
static KERNELS: AtomicBool = AtomicBool::new(false);

#[cfg(not(target_env = "musl"))]
unsafe extern "C" {
    /// The C library's `sbrk`, by its inner name.
    fn __sbrk(increment: isize) -> *mut c_void;
}

fn is_random() -> bool {
    // SAFETY: the call only queries.
    let now = unsafe { libc::personality(0xffff_ffff) };
    now & libc::ADDR_NO_RANDOMIZE == 0
}

impl Arena {
    /// Whether there is a break, or one could be made.
    fn has_break(&mut self) -> bool {
        if self.program_break.start == 0 {
            let range = if is_random() || crate::hosted::is_host() { self.reserve_break() } else { None };
            let Some((start, end)) = range else {
                KERNELS.store(true, Relaxed);
                return false;
            };
            self.program_break = Break { start, now: start, open: start, end };
            NOW.store(start, Relaxed);
        }
        true
    }

    fn reserve_break(&mut self) -> Option<(usize, usize)> {
        if let Some(at) = self.take_wide(WIDE) {
            return Some((at, at + WIDE));
        }
        let mut len = (arena::whole().1 / NARROW_PART).min(NARROW) / setup::block() * setup::block();
        while len >= LEAST {
            if let Some(at) = self.take_closed(len, page_bytes()) {
                return Some((at, at + len));
            }
            len = len / 2 / setup::block() * setup::block();
        }
        None
    }

    /// Moves the break. `false` if there is no room, or the program's limits do not allow it.
    fn move_break(&mut self, to: usize) -> bool {
        let Break { start, now, open, end } = self.program_break;
        if to < start {
            // As in the kernel and the C library: nothing changes, without an error.
            return true;
        }
        // The program may have unmapped part of the range, and that part may now have another use.
        if to > end || self.ranges.end_of(start) != Some(end) {
            return false;
        }
        if to > now && !self.may_grow(to - now, true) {
            return false;
        }
        if to > open {
            let step = STEP.max(setup::block());
            let until = (start + (to - start).next_multiple_of(step)).min(end);
            if !self.open_pages(open, until) {
                return false;
            }
            self.program_break.open = until;
        }
        let (from, until) = (to.next_multiple_of(page_bytes()), now.next_multiple_of(page_bytes()));
        if from < until {
            self.discard(from, until);
        }
        self.program_break.now = to;
        NOW.store(to, Relaxed);
        true
    }
}

/// The break that a hosted program sees if it cannot have one.
const NONE: usize = 64 << 10;

/// Keeps the kernel's break where it is: an adopted program has its heap there already. Allocators
/// that cannot move the break map memory instead, and that is paged.
pub fn stay() {
    KERNELS.store(true, Relaxed);
}

/// The system call `brk` of a hosted program: moves the break, if `to` is valid, and returns it.
/// The kernel's own break belongs to the host.
pub fn direct(to: usize) -> usize {
    if KERNELS.load(Relaxed) {
        // SAFETY: the call only queries.
        return unsafe { libc::syscall(libc::SYS_brk, 0_usize) } as usize;
    }
    let mut arena = ARENA.lock();
    if !maps::has_break() || !arena.has_break() {
        return NONE;
    }
    if to >= arena.program_break.start {
        arena.move_break(to);
    }
    arena.program_break.now
}

/// # Safety
/// The contract is that of the C library's function.
#[cfg(not(target_env = "musl"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    if borrowed::is_borrower() && NOW.load(Relaxed) != 0 {
        if increment != 0 {
            set_errno(libc::ENOMEM);
            return failed();
        }
        return now() as *mut c_void;
    }
    if maps::has_break() && !KERNELS.load(Relaxed) {
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
#[cfg(not(target_env = "musl"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(to: *mut c_void) -> c_int {
    if borrowed::is_borrower() && NOW.load(Relaxed) != 0 {
        set_errno(libc::ENOMEM);
        return -1;
    }
    if maps::has_break() && !KERNELS.load(Relaxed) {
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
    // SAFETY: the call only queries.
    let now = unsafe { __sbrk(0) } as isize;
    // SAFETY: the caller keeps the contract of `brk`.
    if unsafe { __sbrk((to as isize).wrapping_sub(now)) } == failed() { -1 } else { 0 }
}
