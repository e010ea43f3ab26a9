//! The hook of `makecontext`, by which a program names the memory of a stack.
//!
//! In guarded mode the kernel cannot wait for a page when it puts the frame of a signal, or of a
//! trapped call, on a stack. So such a stack is not paged, as the stacks of threads are not.
//!
//! The hook jumps to the real function, which takes any number of arguments.

use crate::real;
use crate::{guard, hooks::locked::keep_in_memory};

/// Hook of the C library's function.
///
/// # Safety
/// The contract is that of the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn makecontext() {
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        // The arguments, and the return address.
        "stp x0, x1, [sp, #-80]!",
        "stp x2, x3, [sp, #16]",
        "stp x4, x5, [sp, #32]",
        "stp x6, x7, [sp, #48]",
        "str x30, [sp, #64]",
        "bl {keep}",
        "ldr x30, [sp, #64]",
        "ldp x6, x7, [sp, #48]",
        "ldp x4, x5, [sp, #32]",
        "ldp x2, x3, [sp, #16]",
        "ldp x0, x1, [sp], #80",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        keep = sym keep_stack,
        real = sym real::makecontext,
    );
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        // A function begins with a stack that is 8 bytes away from a multiple of 16.
        "sub rsp, 8",
        "call {keep}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp qword ptr [rip + {real}]",
        keep = sym keep_stack,
        real = sym real::makecontext,
    );
}

/// Stops paging the stack of a context. If there is no memory for more mappings, the stack is paged
/// as before.
///
/// # Safety
/// The program passes the context to `makecontext`.
unsafe extern "C" fn keep_stack(context: *const libc::ucontext_t) {
    if guard::is_on() {
        // SAFETY: the caller's context.
        let stack = unsafe { (*context).uc_stack };
        let from = stack.ss_sp as usize;
        keep_in_memory(from, from.saturating_add(stack.ss_size)).ok();
    }
}
