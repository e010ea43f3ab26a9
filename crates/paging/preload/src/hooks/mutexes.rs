//! Hook for mutexes to which the kernel itself writes.
//!
//! Two kinds of mutexes are not paged. For mutexes with priority inheritance
//! (`PTHREAD_PRIO_INHERIT`) under contention, the kernel changes the mutex's word in a way that
//! cannot wait for a page (it returns EFAULT, and the C library ends the process). For robust
//! mutexes, when the owner ends, the kernel visits the owner's mutexes and can no longer wait. So
//! both kinds are kept in memory.

use crate::locked::keep_in_memory;
use crate::real;
use std::ffi::c_int;

/// Whether the kernel writes to mutexes with these attributes.
///
/// # Safety
/// The attributes are valid.
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
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
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
    // SAFETY: the caller keeps the contract of `pthread_mutex_init`.
    unsafe { real::call!(pthread_mutex_init(mutex, attributes) or libc::ENOSYS) }
}
