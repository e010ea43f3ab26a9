//! Mutexes that the kernel writes to itself.
//!
//! Those that lend priority (`PTHREAD_PRIO_INHERIT`): where threads contend, the kernel changes the
//! mutex's word in a way that cannot wait for a page (EFAULT, on which the C library ends the
//! process). Robust ones: when their owner ends, the kernel goes over those that it has, and cannot
//! wait any more. So neither is paged.

use crate::maps::keep_in_memory;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static REAL: AtomicUsize = AtomicUsize::new(0);

/// Finds the real `pthread_mutex_init`, before the loader's lock can be held by a thread that waits
/// for the pager.
pub fn find() {
    // SAFETY: the name ends in a zero byte.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_mutex_init".as_ptr()) };
    REAL.store(real as usize, Relaxed);
}

/// Whether mutexes with such attributes are the kernel's to write to.
///
/// # Safety
/// The attributes are the C library's.
unsafe fn are_the_kernels(attributes: *const libc::pthread_mutexattr_t) -> bool {
    let (mut protocol, mut robust) = (0, 0);
    // SAFETY: the caller passes valid attributes.
    unsafe {
        libc::pthread_mutexattr_getprotocol(attributes, &raw mut protocol);
        libc::pthread_mutexattr_getrobust(attributes, &raw mut robust);
    }
    protocol == libc::PTHREAD_PRIO_INHERIT || robust == libc::PTHREAD_MUTEX_ROBUST
}

/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    // SAFETY: the caller keeps the contract of `pthread_mutex_init`.
    if !attributes.is_null() && unsafe { are_the_kernels(attributes) } {
        let from = mutex as usize;
        if let Err(error) = keep_in_memory(from, from + size_of::<libc::pthread_mutex_t>()) {
            return error.errno();
        }
    }
    if REAL.load(Relaxed) == 0 {
        find();
    }
    type Init = unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;
    // SAFETY: the C library has the function, of this type; the caller's promise.
    unsafe { std::mem::transmute::<usize, Init>(REAL.load(Relaxed))(mutex, attributes) }
}
