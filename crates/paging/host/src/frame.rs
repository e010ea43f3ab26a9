//! What the kernel tells the handler of a trapped call.

use crate::machine::Context;

/// The kernel's description of the signal (`siginfo_t`, for a trapped call).
#[repr(C)]
pub struct Trapped {
    pub signal: i32,
    /// The filter's mark.
    pub errno: i32,
    pub code: i32,
    unused: i32,
    pub place: usize,
    pub number: i32,
    pub processor: u32,
}

/// The code of a signal from a filter.
pub const FROM_FILTER: i32 = 1;

impl Context {
    /// The stack for handlers: its address, and its bytes (0 if there is none).
    pub fn stack_aside(&self) -> (usize, usize) {
        let [at, flags, bytes] = self.stack;
        (at, if flags as i32 & libc::SS_DISABLE == 0 { bytes } else { 0 })
    }

    /// The thread has no stack for handlers.
    pub fn forget_stack_aside(&mut self) {
        self.stack = [0, libc::SS_DISABLE as usize, 0];
    }
}
