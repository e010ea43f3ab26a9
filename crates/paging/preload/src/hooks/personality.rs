//! Hooks of `personality` and `prctl`: a program may want readable memory to be executable
//! (`READ_IMPLIES_EXEC`), or forbid itself system calls.

use std::ffi::{c_int, c_ulong};
use terapage_sys::{memory, opening};

/// The argument that only queries.
const ASKS: c_ulong = 0xffff_ffff;

/// Hook of the C library's function. The library continues to map its memory with the same rights
/// as before: otherwise the kernel would move no pages between the program and the pool.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn personality(persona: c_ulong) -> c_int {
    // SAFETY: the caller keeps the contract of `personality`.
    let was = unsafe { libc::syscall(libc::SYS_personality, persona) };
    if was >= 0 && persona != ASKS {
        memory::personality_changed(was, persona as i64);
    }
    was as c_int
}

/// Hook of the C library's function, whose variable arguments are passed like others.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(what: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    if what == libc::PR_SET_SECCOMP {
        opening::is_filtered();
    }
    // SAFETY: the caller keeps the contract of `prctl`.
    unsafe { libc::syscall(libc::SYS_prctl, i64::from(what), a, b, c, d) as c_int }
}
