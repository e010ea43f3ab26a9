//! Hook of `personality`: a program may want readable memory to be executable
//! (`READ_IMPLIES_EXEC`).

use std::ffi::{c_int, c_ulong};
use terapage_sys::memory;

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
