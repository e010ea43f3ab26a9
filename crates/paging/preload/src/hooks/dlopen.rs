//! The hook of `dlopen`, which removes `RTLD_DEEPBIND`.
//!
//! With that flag a library searches for functions first in itself and the libraries that it needs,
//! then in the rest of the program. So its `munmap` would be the C library's, and the pager would
//! not learn of it. (PHP loads its extensions in this way.) So the flag is removed. Such libraries
//! also run without the flag under sanitizers, which have the same problem. (For malloc's family,
//! [family](crate::family) would suffice.)
//!
//! The hook jumps to the real function instead of calling it (the first word of its entry in the
//! [table](crate::real) is its address), because the loader uses the return address to find the
//! caller's search paths and namespace.

use crate::real;
use std::ffi::{c_char, c_int, c_void};

/// Hook of the C library's function.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(naked)]
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn dlopen(_path: *const c_char, _flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "and esi, {kept}",
        "jmp qword ptr [rip + {real}]",
        kept = const !libc::RTLD_DEEPBIND,
        real = sym real::dlopen,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "and w1, w1, #{kept}",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        kept = const !libc::RTLD_DEEPBIND as u32,
        real = sym real::dlopen,
    );
}
