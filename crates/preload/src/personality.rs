//! `personality`: a program may want what it reads to be executable (`READ_IMPLIES_EXEC`).

use std::ffi::{c_int, c_ulong};
use terapage_sys::memory;

/// What only asks.
const ASKS: c_ulong = 0xffff_ffff;

/// From then on the library's own memory is mapped as before, or the kernel would move no page
/// between it and the program's.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn personality(persona: c_ulong) -> c_int {
    // SAFETY: the caller keeps the contract of `personality`.
    let was = unsafe { libc::syscall(libc::SYS_personality, persona) };
    if was >= 0 && persona != ASKS {
        memory::personality_changed(was, persona as i64);
    }
    was as c_int
}
