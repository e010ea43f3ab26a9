//! The personality of the process: flags that executed programs inherit.

use std::io;

/// Addresses are given out upwards from a place below the program's stack, as before Linux 2.6.
pub const ADDR_COMPAT_LAYOUT: usize = 0x020_0000;

/// The argument that changes nothing.
const ASKS: usize = 0xffff_ffff;

/// The flags.
///
/// # Errors
/// A filter of a container forbids the call.
pub fn get() -> io::Result<usize> {
    set(ASKS)
}

/// Sets the flags, and returns those before.
///
/// # Errors
/// A filter of a container forbids the call, or these flags.
pub fn set(flags: usize) -> io::Result<usize> {
    // SAFETY: no memory is touched.
    let before = unsafe { libc::syscall(libc::SYS_personality, flags) };
    usize::try_from(before).map_err(|_| io::Error::last_os_error())
}
