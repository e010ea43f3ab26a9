//! Calls that the thread makes on its own stack, where handlers of the program may run.
//!
//! Such a call waits, or waits with other signals blocked. The handler of trapped calls does not
//! make it: it lets the thread continue in [code](crate::machine) that makes it, with the
//! registers, the stack and the blocked signals with which the thread has made the call. So a
//! handler of the program runs where it would run natively, finds the stack pointer there, and may
//! leave by a long jump. It sees one difference: the address of the call.

use crate::machine::{CALL_BYTES, Context, Frame, RED_ZONE, Saved, after_exec};
use crate::{guard, library, raw};

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
    (context.depth() - RED_ZONE - size_of::<Frame>()) & !15
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
    let frame = Frame::of(context, call.data);
    // The kernel extends the stack if needed. If there is no more stack, the thread's own access in
    // `make` says so to the program, as natively the handler's beginning would.
    if raw::is_writable_by_mask(at) && raw::is_writable_by_mask(at + size_of::<Frame>() - size_of::<u64>()) {
        // SAFETY: the memory is there, below the part of the stack that is in use.
        unsafe { (at as *mut Frame).write_unaligned(frame) };
    }
    context.enter_frame(at, call.number, call.arguments);
}

/// What the code that executes a program reads of a prepared exec.
#[repr(C)]
pub struct Execution {
    /// Where the thread continues if the exec fails: with a trapped call.
    pub again: usize,
    /// Where the program continues then.
    pub place: usize,
    /// The call's registers.
    pub saved: Saved,
}

/// Changes the context of a thread that has called exec, so that the thread executes a program with
/// other arguments. If the exec fails, the thread makes a call of exec that is trapped, with the
/// address of the execution, the error and [`FAILED`] as arguments: the handler then has work to
/// do.
///
/// # Safety
/// The execution stays until then. The context is the calling thread's.
pub unsafe fn continue_with_exec(context: &mut Context, at: *mut Execution, arguments: [usize; 3]) {
    // SAFETY: the caller has the execution.
    unsafe {
        (*at).again = after_exec(context.place() - CALL_BYTES);
        (*at).place = context.place();
        (*at).saved = context.saved();
    }
    context.enter_execution(at, arguments);
}
