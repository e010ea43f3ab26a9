//! 64-bit Arm.

use libc::{c_int, mcontext_t};

/// `io_pgetevents`, for which the libc crate has no name.
pub const IO_PGETEVENTS: i64 = 292;

/// Bytes of the instruction that makes a call.
pub const CALL_BYTES: usize = 4;

/// Whether a call of this number begins a thread or a process.
pub fn begins(number: i64) -> bool {
    matches!(number, libc::SYS_clone | libc::SYS_clone3)
}

/// The arguments of a trapped call.
pub fn arguments(context: &mcontext_t) -> [usize; 6] {
    std::array::from_fn(|index| context.regs[index] as usize)
}

/// The stack pointer of a trapped call.
pub fn depth(context: &mcontext_t) -> usize {
    context.sp as usize
}

/// The thread goes on behind its call, with the answer. The kernel's own idea of the place is not
/// used: the register of the answer has held the first argument, and the kernel takes some values
/// (-512, -513) for those of a call that must be made again.
pub fn answer(context: &mut mcontext_t, answer: isize, place: usize) {
    context.regs[0] = answer as u64;
    context.pc = place as u64;
}

/// The flag of an action that has the code by which its handler returns, and that code: none. The
/// kernel has such code, which unwinders know.
pub fn restorer() -> (c_int, usize) {
    (0, 0)
}

/// The start of the gate's description for unwinders: how long it is, then what holds for all code
/// of this form: version 1, augmentation "zR", addresses as they are; the caller's stack is the
/// code's own, and the return address is in its register (30).
pub const FRAMES: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 30, 1, 0, 0x0c, 31, 0, 0, 0, 0, 0];
