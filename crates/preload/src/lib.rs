//! The library that `terapage run` loads into a program. It hooks malloc's and mmap's families and
//! places what they return in one range of addresses, the arena. Once the program has grown, the
//! arena is paged. A program that stays small never has a pager (no thread, no pool, no file),
//! unless it has a `malloc` of its own.
//!
//! The library's own allocations come from a heap of its own, which nothing pages.

mod advise;
mod arena;
mod beside;
mod brk;
mod callers;
#[cfg(target_arch = "x86_64")]
mod calls;
mod direct;
mod dlopen;
mod exec;
mod exit;
mod fork;
mod heap;
mod host;
mod job;
mod lent;
mod limits;
mod lock;
mod locked;
mod mallinfo;
mod maps;
mod mutexes;
mod namespaces;
mod next;
mod objects;
mod own;
mod paged;
mod personality;
mod privileges;
mod process;
mod ranges;
mod real;
mod reasons;
mod regions;
mod remap;
mod rights;
mod sanitizers;
mod shm;
mod statics;
mod summary;

#[global_allocator]
static GLOBAL: own::Own = own::Own;

/// Sets `errno`.
fn set_errno(errno: i32) {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The census, for other libraries of the program: how many threads are the pager's.
#[unsafe(no_mangle)]
pub extern "C" fn terapage_census() -> &'static terapage_sys::census::Census {
    terapage_sys::census::own()
}
