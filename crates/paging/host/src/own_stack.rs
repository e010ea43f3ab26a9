//! Calls that the thread makes on its own stack, where handlers of the program may run.
//!
//! Such a call waits, or waits with other signals blocked. The handler of trapped calls does not
//! make it: it lets the thread continue in [`make`], with the registers, the stack and the blocked
//! signals with which the thread has made the call. So a handler of the program runs where it would
//! run natively, finds the stack pointer there, and may leave by a long jump. It sees one
//! difference: the address of the call.

use crate::frame::Context;
use crate::{guard, library, raw};
use std::arch::naked_asm;

/// Bytes below a stack's pointer that belong to the code that runs there (System V ABI).
const RED_ZONE: usize = 128;

/// What lies on the thread's stack meanwhile. [`make`] knows the layout.
#[repr(C)]
struct Frame {
    /// Where the program continues, and with which stack pointer and arguments.
    rip: usize,
    rsp: usize,
    arguments: [usize; 6],
    data: [u64; DATA],
}

/// Words of memory that a call may read.
pub const DATA: usize = 3;

/// A call for the kernel.
pub struct Call {
    pub number: i64,
    pub arguments: [usize; 6],
    /// Memory that arguments name by [`data_at`].
    pub data: [u64; DATA],
}

fn frame_of(context: &Context) -> usize {
    (context.rsp - RED_ZONE - size_of::<Frame>()) & !15
}

/// Whether what a call needs on the thread's stack is there, also in guarded mode.
pub fn has_room(context: &Context) -> bool {
    let (at, len) = (frame_of(context), size_of::<Frame>());
    !guard::may_be_absent(at, len) || !library::meets(at, len)
}

/// Where the data of a call will lie.
pub fn data_at(context: &Context) -> usize {
    if guard::is_active() {
        return guard::data_at(context);
    }
    frame_of(context) + std::mem::offset_of!(Frame, data)
}

/// Changes the context of a thread that has made a call, so that the thread makes another in its
/// place, on its own stack.
///
/// # Safety
/// The context is the calling thread's, whose signals are all blocked, and the thread does not run
/// on that stack now. The program is responsible for the call.
pub unsafe fn continue_with(context: &mut Context, call: &Call) {
    let at = frame_of(context);
    let frame = Frame { rip: context.rip, rsp: context.rsp, arguments: context.arguments(), data: call.data };
    // The kernel extends the stack if needed. If there is no more stack, the thread's own access in
    // `make` says so to the program, as natively the handler's beginning would.
    if raw::is_writable_by_mask(at) && raw::is_writable_by_mask(at + size_of::<Frame>() - size_of::<u64>()) {
        // SAFETY: the memory is there, below the part of the stack that is in use.
        unsafe { (at as *mut Frame).write_unaligned(frame) };
    }
    context.rcx = context.rip;
    context.rip = make as *const () as usize;
    context.rsp = at;
    context.rax = call.number as usize;
    [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9] = call.arguments;
}

/// Makes the call, and continues in the program. As in the kernel's own return from a call, rcx and
/// r11 are changed, and no other register and no flag. The kernel may repeat the call after a
/// handler: its registers still have the same values.
#[unsafe(naked)]
unsafe extern "C" fn make() {
    naked_asm!(
        "mov [rsp], rcx",
        "syscall",
        "mov rdi, [rsp + 16]",
        "mov rsi, [rsp + 24]",
        "mov rdx, [rsp + 32]",
        "mov r10, [rsp + 40]",
        "mov r8, [rsp + 48]",
        "mov r9, [rsp + 56]",
        "mov rcx, [rsp]",
        "mov rsp, [rsp + 8]",
        "jmp rcx",
    )
}

/// In the third argument of an exec: a failed exec of [`execute`] comes back to the handler. No
/// environment lies at such an address.
pub const FAILED: usize = 0x8000_7e4a_7e4a_7e4a;

/// Bytes of the system call instruction.
pub const SYSCALL_BYTES: usize = 2;

/// What [`execute`] reads of a prepared exec.
#[repr(C)]
pub struct Execution {
    /// The program's system call instruction, and the call's arguments.
    pub again: usize,
    pub arguments: [usize; 6],
}

/// Changes the context of a thread that has called exec, so that the thread executes a program with
/// other arguments. If the exec fails, the thread repeats its own call, with the address of the
/// execution, the error and [`FAILED`] as arguments: the handler then has work to do, and the
/// filter leads there only from the program's code.
///
/// # Safety
/// The execution stays until then. The context is the calling thread's.
pub unsafe fn continue_with_exec(context: &mut Context, at: *mut Execution, arguments: [usize; 3]) {
    // SAFETY: the caller has the execution.
    unsafe {
        (*at).again = context.rip - SYSCALL_BYTES;
        (*at).arguments = context.arguments();
    }
    context.rcx = at as usize;
    context.rip = execute as *const () as usize;
    [context.rdi, context.rsi, context.rdx] = arguments;
}

#[unsafe(naked)]
unsafe extern "C" fn execute() {
    naked_asm!(
        "lea rsp, [rsp - {room}]",
        "mov [rsp], rcx",
        "mov eax, {number}",
        "syscall",
        "mov rdi, [rsp]",
        "lea rsp, [rsp + {room}]",
        "mov rsi, rax",
        "mov rdx, {failed}",
        "mov rcx, [rdi]",
        "mov eax, {number}",
        "jmp rcx",
        room = const RED_ZONE + 16,
        number = const libc::SYS_execve,
        failed = const FAILED,
    )
}
