//! `dlopen` without `RTLD_DEEPBIND`.
//!
//! With that flag a library, and all that it needs, looks for functions in itself and in what it
//! was linked with before the rest of the program: its `free` would be the C library's, and get
//! what our `malloc` gave. (PHP loads its extensions so.) So the flag is left out. Libraries meant
//! for it do without where the sanitizers are, which have the same trouble.
//!
//! The real function is jumped to, not called: the loader asks whom it returns to for the paths of
//! that object, and for its namespace.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static REAL: AtomicUsize = AtomicUsize::new(0);

/// Finds the real one. Nobody calls [`dlopen`] before this library has begun.
pub fn find() {
    // SAFETY: the name ends in a zero byte.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    REAL.store(real as usize, Relaxed);
}

/// Stands in for the C library's.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(_path: *const c_char, _flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "and esi, {kept}",
        "jmp qword ptr [rip + {real}]",
        kept = const !libc::RTLD_DEEPBIND,
        real = sym REAL,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "and w1, w1, #{kept}",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        kept = const !libc::RTLD_DEEPBIND as u32,
        real = sym REAL,
    );
}
