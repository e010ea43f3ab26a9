//! The memory handler for numpy's arrays (NEP 49): a static table of C functions, so arrays may
//! outlive the interpreter's modules.

use crate::{tera_calloc, tera_free, tera_malloc, tera_realloc};
use std::ffi::c_void;

/// numpy's `PyDataMemAllocator`.
#[repr(C)]
struct Allocator {
    context: *mut c_void,
    malloc: extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// numpy's `PyDataMem_Handler`, version 1.
#[repr(C)]
struct Handler {
    name: [u8; 127],
    version: u8,
    allocator: Allocator,
}

// SAFETY: the table never changes, and its functions may be called by any thread.
unsafe impl Sync for Handler {}

static HANDLER: Handler = Handler {
    name: {
        let (mut name, text) = ([0; 127], b"terapage");
        let mut at = 0;
        while at < text.len() {
            name[at] = text[at];
            at += 1;
        }
        name
    },
    version: 1,
    allocator: Allocator { context: std::ptr::null_mut(), malloc, calloc, realloc, free },
};

extern "C" fn malloc(_context: *mut c_void, len: usize) -> *mut c_void {
    tera_malloc(len)
}

extern "C" fn calloc(_context: *mut c_void, count: usize, len: usize) -> *mut c_void {
    tera_calloc(count, len)
}

/// # Safety
/// As for `tera_realloc`.
unsafe extern "C" fn realloc(_context: *mut c_void, at: *mut c_void, len: usize) -> *mut c_void {
    // SAFETY: the caller keeps the contract.
    unsafe { tera_realloc(at, len) }
}

/// The size is ignored: numpy's may differ from the requested one.
///
/// # Safety
/// As for `tera_free`.
unsafe extern "C" fn free(_context: *mut c_void, at: *mut c_void, _len: usize) {
    // SAFETY: the caller keeps the contract.
    unsafe { tera_free(at) };
}

/// `tera_numpy_handler`.
#[unsafe(no_mangle)]
pub extern "C" fn tera_numpy_handler() -> *const c_void {
    (&raw const HANDLER).cast()
}
