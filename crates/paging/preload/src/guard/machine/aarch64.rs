//! 64-bit Arm.

use crate::guard::cancel::Site;
use libc::{c_int, mcontext_t};
use std::mem::offset_of;
use terapage_sys::hosting::GATE;

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

// Makes the call of a site, whose address is in `x19` meanwhile.
std::arch::global_asm!(
    ".globl terapage_site",
    ".hidden terapage_site",
    ".type terapage_site, @function",
    ".globl terapage_site_begins",
    ".hidden terapage_site_begins",
    ".globl terapage_site_made",
    ".hidden terapage_site_made",
    ".globl terapage_site_again",
    ".hidden terapage_site_again",
    ".globl terapage_site_sent",
    ".hidden terapage_site_sent",
    ".globl terapage_site_ends",
    ".hidden terapage_site_ends",
    ".p2align 4",
    "terapage_site:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset x29, -32",
    ".cfi_offset x30, -24",
    "str x19, [sp, #16]",
    ".cfi_offset x19, -16",
    "mov x19, x0",
    "terapage_site_begins:",
    "ldr x9, [x19, #{came}]",
    "ldr x10, [x9]",
    "cbnz x10, terapage_site_again",
    "ldp x0, x1, [x19]",
    "ldp x2, x3, [x19, #16]",
    "ldp x4, x5, [x19, #32]",
    "ldr x8, [x19, #{number}]",
    "movz x9, #(({gate} >> 32) & 0xffff), lsl #32",
    "movk x9, #(({gate} >> 16) & 0xffff), lsl #16",
    "blr x9",
    "terapage_site_made:",
    "ldr x19, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_remember_state",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x19",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_restore_state",
    "terapage_site_again:",
    "str xzr, [x9]",
    "movz x9, #(({gate} >> 32) & 0xffff), lsl #32",
    "movk x9, #(({gate} >> 16) & 0xffff), lsl #16",
    "mov x8, #{getpid}",
    "blr x9",
    "str x0, [x19, #{process}]",
    "mov x8, #{gettid}",
    "blr x9",
    "mov x1, x0",
    "ldr x0, [x19, #{process}]",
    "ldr x2, [x19, #{signal}]",
    "mov x8, #{tgkill}",
    "blr x9",
    "terapage_site_sent:",
    "b terapage_site_begins",
    "terapage_site_ends:",
    ".cfi_endproc",
    ".size terapage_site, . - terapage_site",
    gate = const GATE,
    came = const offset_of!(Site, came),
    number = const offset_of!(Site, number),
    signal = const offset_of!(Site, signal),
    process = const offset_of!(Site, process),
    getpid = const libc::SYS_getpid,
    gettid = const libc::SYS_gettid,
    tgkill = const libc::SYS_tgkill,
);
const _: () = assert!(GATE % (1 << 16) == 0 && GATE >> 48 == 0);
unsafe extern "C" {
    #[link_name = "terapage_site"]
    fn at_site(site: *mut Site) -> isize;
    fn terapage_site_begins();
    fn terapage_site_made();
    fn terapage_site_again();
    fn terapage_site_sent();
    fn terapage_site_ends();
}

/// Makes the call of a site.
///
/// # Safety
/// The same as for the system call; the site's words are valid.
pub unsafe fn make(site: *mut Site) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { at_site(site) }
}

/// The site at which a thread with this context was interrupted, if its call has had no effect: the
/// thread was on its way, or the kernel would have begun the call again.
///
/// # Safety
/// The kernel has made the context.
pub unsafe fn site(context: &mcontext_t) -> Option<*const Site> {
    let of = |code: unsafe extern "C" fn()| code as *const () as usize;
    let (at, to) = (context.pc as usize, context.regs[30] as usize);
    let is_there = match at.checked_sub(GATE) {
        Some(within) if within <= CALL_BYTES => {
            to == of(terapage_site_sent) || within == 0 && to == of(terapage_site_made)
        }
        _ => {
            (of(terapage_site_begins)..of(terapage_site_made)).contains(&at)
                || (of(terapage_site_again)..of(terapage_site_ends)).contains(&at)
        }
    };
    is_there.then_some(context.regs[19] as *const Site)
}

/// Lets a thread that was interrupted where unwinders know nothing be where they do: there is no
/// such place that could be left.
///
/// # Safety
/// None: nothing is done.
pub unsafe fn settle(_context: &mut mcontext_t) {}

/// Lets a context say that the thread is here.
pub fn set_place(context: &mut mcontext_t, place: usize) {
    context.pc = place as u64;
}
