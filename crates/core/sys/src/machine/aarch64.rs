//! 64-bit Arm, with addresses of 48 bits, as the kernels of distributions have them. (With
//! addresses of 52 bits, too, the kernel gives those of 48 unless a program asks for more.)

use std::arch::asm;
use std::ops::Range;

/// Where the arena lies in guarded mode (`preload`: `guard/`). The kernel puts nothing there by
/// itself: it begins at the upper end of all addresses, or, with the layout of guarded programs,
/// between one fourth and three eighths of them; and with position-independent programs at two
/// thirds. Programs that name random places (V8, with 46 bits) stay below, and those whose pointers
/// have 47 bits (LuaJIT) can use this memory.
pub const GUARDED: Range<usize> = 0x6800_0000_0000..0x7c00_0000_0000;

/// Where the code of guarded programs begins: their libraries, from one fourth of all addresses on.
pub const CODE_FROM: usize = 0x4000_0000_0000;

/// The kernel's number of the processor (`AUDIT_ARCH_AARCH64`).
pub(crate) const AUDIT: u32 = 0xc000_00b7;

/// Instructions.
pub type Code = [u32; 2];

/// The code at the gate: `svc #0; ret`.
pub const GATE_CODE: Code = [0xd400_0001, 0xd65f_03c0];

/// Bytes of the instruction `svc #0`.
pub const CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

/// Whether the user's addresses have 48 bits: with fewer, the kernel may put anything into
/// [`GUARDED`]. These bytes lie on the first stack, at the upper end of all addresses.
pub fn reaches_guarded() -> bool {
    // SAFETY: the call only queries.
    let top = unsafe { libc::getauxval(libc::AT_RANDOM) };
    top >> 47 == 1
}

/// Makes a system call by the [code](GATE_CODE) at `place`.
///
/// # Safety
/// The code is there; the caller answers for the call.
#[inline]
pub unsafe fn call_at(place: usize, number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the code changes only these registers; the caller answers for the call.
    unsafe {
        asm!(
            "blr {place}",
            place = in(reg) place,
            // The kernel changes it if it makes the call again.
            inlateout("x8") number => _,
            inlateout("x0") a => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            lateout("x30") _,
        );
    }
    answer
}

/// Begins a process, which continues in `begin`, with an argument, on a stack of its own. Returns
/// its number, or the kernel's error.
///
/// # Safety
/// The upper end of the stack is aligned, and nobody else uses the stack. What the flags share
/// with the process, it may use.
#[inline(always)]
pub unsafe fn begin_process(
    flags: usize,
    stack: usize,
    begin: unsafe extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    let answer;
    // SAFETY: only the new process uses the stack; here only these registers change.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone,
            inlateout("x0") flags => answer,
            in("x1") stack, in("x2") 0_usize, in("x3") 0_usize, in("x4") 0_usize,
            in("x20") begin, in("x21") argument,
        );
    }
    answer
}

/// Makes code that was just written, within one cache line, visible to the processor.
///
/// # Safety
/// The code is mapped.
pub unsafe fn publish(code: usize) {
    // SAFETY: no memory is changed.
    unsafe {
        asm!("dc cvau, {at}", "dsb ish", "ic ivau, {at}", "dsb ish", "isb", at = in(reg) code);
    }
}
