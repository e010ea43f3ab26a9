//! x86-64.

use libc::{c_int, mcontext_t};

/// `io_pgetevents`, for which the libc crate has no name.
pub const IO_PGETEVENTS: i64 = 333;

/// Bytes of the instruction that makes a call.
pub const CALL_BYTES: usize = 2;

/// Whether a call of this number begins a thread or a process.
pub fn begins(number: i64) -> bool {
    matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork)
}

/// The arguments of a trapped call.
pub fn arguments(context: &mcontext_t) -> [usize; 6] {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9]
        .map(|index| context.gregs[index as usize] as usize)
}

/// The stack pointer of a trapped call.
pub fn depth(context: &mcontext_t) -> usize {
    context.gregs[libc::REG_RSP as usize] as usize
}

/// The thread goes on behind its call, with the answer. The kernel has put the place there.
pub fn answer(context: &mut mcontext_t, answer: isize, _place: usize) {
    context.gregs[libc::REG_RAX as usize] = answer as i64;
}

const RESTORER: c_int = 0x0400_0000;

/// The flag of an action that has the code by which its handler returns, and that code.
pub fn restorer() -> (c_int, usize) {
    (RESTORER, restore as *const () as usize)
}

// Returns from the handler. Unwinders know these bytes. They look one byte before, where no
// function with a description must end.
std::arch::global_asm!(
    ".globl terapage_restore",
    ".hidden terapage_restore",
    ".type terapage_restore, @function",
    ".p2align 4",
    ".skip 16, 0x90",
    "terapage_restore:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00",
    "syscall",
);
unsafe extern "C" {
    #[link_name = "terapage_restore"]
    fn restore();
}

/// The start of the gate's description for unwinders: how long it is, then what holds for all code
/// of this form: version 1, augmentation "zR", addresses as they are; the caller's stack is 8 bytes
/// above, and the return address there.
pub const FRAMES: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1, 0, 0];
