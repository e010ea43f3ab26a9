//! Children of `vfork` that ask to be traced (PTRACE_TRACEME): debuggers begin programs so. Each
//! trapped call is a signal, and each signal stops a traced process. If such a child stopped before
//! its exec, its parent, which waits for the exec, could never let it go on. So it is traced only
//! from the exec on, and no trap lies between.

use crate::calls::Outcome;
use crate::guard;
use crate::raw::{self, error};
use crate::signals;
use crate::slots::Slot;
use terapage_sys::hosting::{at_gate, is_traced};
use terapage_sys::trial;

/// Serves PTRACE_TRACEME.
///
/// # Safety
/// The slot is the calling thread's, and the program is responsible for the call.
pub unsafe fn serve(slot: *mut Slot, arguments: [usize; 6]) -> Outcome {
    let is_meant = arguments[0] == libc::PTRACE_TRACEME as usize && signals::borrows_memory();
    // SAFETY: the slot is this thread's; the calls are the kernel's.
    unsafe {
        // The kernel refuses one that has a tracer already.
        if is_meant && is_later(slot) {
            return Outcome::Answer(error(libc::EPERM));
        }
        if is_meant && !is_traced(raw::call) {
            (*slot).traced_later = raw::own_id();
            return Outcome::Answer(0);
        }
        guard::plain(libc::SYS_ptrace, arguments)
    }
}

/// A child of `vfork` has gone, and leaves its slot.
pub fn forget(slot: *mut Slot) {
    // SAFETY: nobody uses the slot.
    unsafe { (*slot).traced_later = 0 };
}

/// Whether the calling process is to be traced from its exec on.
///
/// # Safety
/// The slot is the calling thread's.
pub unsafe fn is_later(slot: *mut Slot) -> bool {
    // SAFETY: the caller has the slot.
    unsafe { (*slot).traced_later == raw::own_id() }
}

/// Executes a program, and is traced from then on. Returns the kernel's error. Nobody can undo the
/// tracing, so an exec that fails in a trial is not made.
///
/// # Safety
/// The slot is the calling thread's, and the arguments are those of an exec, in memory of the
/// host's.
pub unsafe fn execute(slot: *mut Slot, [path, arguments, environment]: [usize; 3]) -> isize {
    let make = if guard::is_active() { at_gate } else { raw::call };
    let given = [path, arguments, environment, 0, 0, 0];
    // SAFETY: the caller passes the arguments. The program inherits the signals that are blocked; a
    // signal that comes now stops this process, as natively.
    unsafe {
        if let Some(refused) = trial::refusal(make, libc::SYS_execve, given) {
            return refused;
        }
        let blocked = (*Slot::context(slot)).blocked;
        make(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0]);
        raw::block(blocked);
        let answer = make(libc::SYS_execve, given);
        raw::block(u64::MAX);
        answer
    }
}
