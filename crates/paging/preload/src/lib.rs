//! The library that `terapage run` loads into a program. It hooks malloc's and mmap's families and
//! places the memory that they return in one range of addresses, the arena. Once the program has
//! grown, the arena is paged. A program that stays small never has a pager (no thread, no pool, no
//! file), unless its executable has its own `malloc`.
//!
//! The library's own allocations come from a separate heap, which nothing pages.
//!
//! For musl, this crate is a part of the host (crate `host`), which is one static executable: no
//! hook has the name of a C library's function, and the C library's own memory is never paged.

#![cfg_attr(
    target_env = "musl",
    allow(dead_code, unused_imports, non_snake_case, reason = "a host calls few of the hooks")
)]

/// Hooks that are another hook with the same arguments, or with arguments that are known to be
/// valid: a caller's promise for the first holds for the second.
macro_rules! alias {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $out:ty = $to:ident($($value:expr),*);)*) => {
        $($(#[$doc])*
        /// # Safety
        /// The contract is that of the C library's function.
        #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $out {
            // SAFETY: the C library defines this function by the other one.
            unsafe { $to($($value),*) }
        })*
    };
}

#[cfg(not(target_env = "musl"))]
mod guard;
#[cfg(target_env = "musl")]
pub mod guard;
mod hooks;
mod process;
mod space;

#[cfg(target_env = "musl")]
pub use process::{adopted, hosted, setup::begin};
#[cfg(target_env = "musl")]
pub use space::arena::release;

#[cfg(not(target_env = "musl"))]
use hooks::zero_copy;
use hooks::{advise, brk, caches, direct, heap, locked, malloc, maps, own_memory, remap, rights, shm};
#[cfg(not(target_env = "musl"))]
use process::{adopted, hosted};
use process::{
    borrowed, callers, copies, elf, exec, exit, family, fork, instead, job, limits, lock, machine,
    next_malloc, own_heap, real, sanitizers, setup, signals, summary, untracked,
};
use space::{arena, files, paged, places, private, ranges, reasons, regions, rereads, statics};

#[global_allocator]
static GLOBAL: own_heap::OwnHeap = own_heap::OwnHeap;

/// Sets `errno`.
fn set_errno(errno: i32) {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The census, for other libraries of the program: the number of threads that belong to the pager.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub extern "C" fn terapage_census() -> &'static terapage_sys::census::Census {
    terapage_sys::census::own()
}
