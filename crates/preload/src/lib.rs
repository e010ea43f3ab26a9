//! The library that `terapage run` loads into a program: it stands in for malloc's and mmap's families, so
//! that what they give lies in one range of addresses, the arena, and pages that once the
//! program has grown to half its budget. A program that stays small never has a pager: no thread,
//! no pool, no file; unless it has a `malloc` of its own.
//!
//! The library's own allocations come from the C library's heap, which nothing here pages.

mod arena;
mod callers;
mod direct;
mod dlopen;
mod exit;
mod fork;
mod heap;
mod lent;
mod lock;
mod maps;
mod objects;
mod process;
mod ranges;
mod regions;
mod spans;
mod statics;

use std::alloc::{GlobalAlloc, Layout};

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
    fn __libc_calloc(count: usize, size: usize) -> *mut u8;
    fn __libc_realloc(old: *mut u8, size: usize) -> *mut u8;
    fn __libc_memalign(align: usize, size: usize) -> *mut u8;
    fn __libc_free(old: *mut u8);
}

/// The C library's own heap, past our own `malloc`.
struct Libc;

/// What its `malloc` aligns to.
const NATURAL: usize = 16;

// SAFETY: the C library's allocator keeps the contract; larger alignments go to memalign.
unsafe impl GlobalAlloc for Libc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size is accepted.
        unsafe {
            if layout.align() <= NATURAL {
                __libc_malloc(layout.size())
            } else {
                __libc_memalign(layout.align(), layout.size())
            }
        }
    }

    unsafe fn dealloc(&self, old: *mut u8, _layout: Layout) {
        // SAFETY: it came from here.
        unsafe { __libc_free(old) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= NATURAL {
            // SAFETY: any size is accepted.
            return unsafe { __libc_calloc(1, layout.size()) };
        }
        // SAFETY: as the caller promises; the bytes written were just given.
        unsafe {
            let new = self.alloc(layout);
            if !new.is_null() {
                new.write_bytes(0, layout.size());
            }
            new
        }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= NATURAL {
            // SAFETY: it came from here.
            return unsafe { __libc_realloc(old, size) };
        }
        // SAFETY: as the caller promises; both are at least as long as what is copied.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(old, size.min(layout.size()));
                __libc_free(old);
            }
            new
        }
    }
}

#[global_allocator]
static GLOBAL: Libc = Libc;

/// Sets `errno`.
fn set_errno(errno: i32) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}
