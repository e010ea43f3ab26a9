//! The C library's list of its streams, for a fork.
//!
//! musl's is neither locked nor touched: a static host uses no streams, and its own memory is not
//! paged.

#[cfg(not(target_env = "musl"))]
use std::ffi::{c_int, c_void};

#[cfg(not(target_env = "musl"))]
/// The part of the C library's stream that a fork's child touches (`struct _IO_FILE`, whose layout
/// is part of the ABI).
#[repr(C)]
struct Stream {
    flags: c_int,
    others: [usize; 16],
    lock: *const [c_int; 4],
}

#[cfg(not(target_env = "musl"))]
unsafe extern "C" {
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_iter_begin() -> *const c_void;
    fn _IO_iter_end() -> *const c_void;
    fn _IO_iter_next(stream: *const c_void) -> *const c_void;
    fn _IO_iter_file(stream: *const c_void) -> *const Stream;
}

/// Locks the list. A thread may lock it several times.
///
/// # Safety
/// The lock is released by [`unlock`]; in the child of a fork, the C library makes it anew.
pub unsafe fn lock() {
    #[cfg(not(target_env = "musl"))]
    // SAFETY: the caller releases the lock.
    unsafe {
        _IO_list_lock()
    };
}

/// Unlocks the list once.
///
/// # Safety
/// This thread has locked it.
pub unsafe fn unlock() {
    #[cfg(not(target_env = "musl"))]
    // SAFETY: this thread has the lock.
    unsafe {
        _IO_list_unlock()
    };
}

/// Touches what the C library touches of each stream in a fork's child.
///
/// # Safety
/// This thread has locked the list.
pub unsafe fn touch() {
    #[cfg(not(target_env = "musl"))]
    // SAFETY: the list does not change while it is locked, its streams have the layout of the ABI,
    // and they are only read.
    unsafe {
        let mut at = _IO_iter_begin();
        while at != _IO_iter_end() {
            let stream = _IO_iter_file(at);
            std::ptr::read_volatile(&raw const (*stream).flags);
            let lock = (*stream).lock;
            if !lock.is_null() {
                std::ptr::read_volatile(lock);
            }
            at = _IO_iter_next(at);
        }
    }
}
