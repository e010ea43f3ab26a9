//! Hooks of functions that begin threads, which inherit their creator's processors, and of those
//! that ask for a thread's processors or set them. The pager may have temporarily [bound](binding)
//! a thread to one processor; the binding ends first.

use crate::real;
use libc::{cpu_set_t, pid_t, pthread_attr_t, pthread_t, size_t};
use std::ffi::{c_int, c_void};
use terapage_sys::binding;

/// Hooks that call the real function while no thread is bound.
macro_rules! freed {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) or $lacking:expr;)*) => {
        $(
            /// # Safety
            /// The contract is that of the C library's function.
            #[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                crate::guard::forget_ended();
                // SAFETY: the caller keeps the contract of the function of the same name.
                binding::freed(|| unsafe { real::call!($name($($argument),*) or $lacking) })
            }
        )*
    };
}

/// The result of `thrd_create` if it fails (`thrd_error` of <threads.h>).
const THREAD_ERROR: c_int = 2;

freed! {
    fn pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        begin: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) or libc::ENOSYS;
    fn thrd_create(thread: *mut c_void, begin: *const c_void, argument: *mut c_void) or THREAD_ERROR;
    fn sched_getaffinity(thread: pid_t, bytes: size_t, set: *mut cpu_set_t) or -1;
    fn sched_setaffinity(thread: pid_t, bytes: size_t, set: *const cpu_set_t) or -1;
    fn pthread_getaffinity_np(thread: pthread_t, bytes: size_t, set: *mut cpu_set_t) or libc::ENOSYS;
    fn pthread_setaffinity_np(thread: pthread_t, bytes: size_t, set: *const cpu_set_t) or libc::ENOSYS;
}
