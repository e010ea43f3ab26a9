//! x86-64.

use std::arch::asm;
use std::ops::Range;

/// Where the arena lies in guarded mode (`preload`: `guard/`). The kernel puts nothing there by
/// itself: it begins at the upper end of all addresses, or, with the layout of guarded programs, at
/// one third of them; and with position-independent programs at two thirds. Programs that name
/// random places (V8, with 46 bits) stay below.
pub const GUARDED: Range<usize> = 0x4000_0000_0000..0x5400_0000_0000;

/// Where the code of guarded programs begins: what a host loads, and above it, from one third of
/// all addresses on, the libraries of guarded programs.
pub const CODE_FROM: usize = crate::hosting::AREA.start;

/// The kernel's number of the processor (`AUDIT_ARCH_X86_64`).
pub(crate) const AUDIT: u32 = 0xc000_003e;

/// Instructions.
pub type Code = [u8; 3];

/// The code at the gate: `syscall; ret`.
pub const GATE_CODE: Code = [0x0f, 0x05, 0xc3];

/// Bytes of the instruction `syscall`.
pub const CALL: &[u8] = &[0x0f, 0x05];

/// Whether the user's addresses reach beyond [`GUARDED`]: always.
pub fn reaches_guarded() -> bool {
    true
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
            "call {place}",
            place = in(reg) place,
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
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
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => answer,
            in("rdi") flags, in("rsi") stack, in("rdx") 0_usize, in("r10") 0_usize, in("r8") 0_usize,
            in("r12") begin, in("r13") argument,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    answer
}

/// Makes code that was just written visible to the processor: it sees that itself.
///
/// # Safety
/// None: nothing is done.
pub unsafe fn publish(_code: usize) {}
