//! Children of `vfork` that ask to be traced (PTRACE_TRACEME): debuggers begin programs so. Each
//! trapped call is a signal, and each signal stops a traced process. If such a child stopped before
//! its exec, its parent, which waits for the exec, could never let it go on. So it is traced only
//! from the exec on, and no trap lies between.

use crate::calls::Outcome;
use crate::guard;
use crate::raw::{self, error, is_error, raw};
use crate::signals;
use crate::slots::Slot;
use std::mem::MaybeUninit;
use terapage_sys::hosting::{at_gate, is_traced};

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

/// Whether the calling process is to be traced from its exec on. The slot is the thread's.
unsafe fn is_later(slot: *mut Slot) -> bool {
    // SAFETY: the caller has the slot.
    unsafe { (*slot).traced_later == raw::own_id() }
}

/// Whether the calling process is traced from the exec of this program on. Nobody can undo that, so
/// an exec that will fail does not count: programs are looked for in one directory after another.
///
/// # Safety
/// The slot is the calling thread's, and the path is a text of the host's.
pub unsafe fn begins(slot: *mut Slot, path: usize) -> bool {
    // SAFETY: the caller has the slot and passes a text.
    unsafe { is_later(slot) && may_be_executed(path) }
}

/// Whether the kernel will hardly refuse to execute a file.
///
/// # Safety
/// The path is a text of the host's.
unsafe fn may_be_executed(path: usize) -> bool {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let mut first = [0_u8; 4];
    // SAFETY: the caller passes a text; there is room for the answers; zeros are a valid status.
    unsafe {
        let place = status.as_mut_ptr();
        if raw!(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::X_OK) != 0
            || raw!(libc::SYS_newfstatat, libc::AT_FDCWD, path, place, 0) != 0
            || status.assume_init().st_mode & libc::S_IFMT != libc::S_IFREG
        {
            return false;
        }
        let fd = raw!(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_CLOEXEC);
        if is_error(fd) {
            // It may be executed, but not read.
            return true;
        }
        raw!(libc::SYS_read, fd, first.as_mut_ptr(), first.len());
        raw!(libc::SYS_close, fd);
    }
    // A C library has a shell execute texts that name no interpreter.
    first.starts_with(b"\x7fELF") || first.starts_with(b"#!")
}

/// Executes a program, and is traced from then on. Returns the kernel's error.
///
/// # Safety
/// The slot is the calling thread's, and the arguments are those of an exec, in memory of the
/// host's.
pub unsafe fn execute(slot: *mut Slot, [path, arguments, environment]: [usize; 3]) -> isize {
    let make = if guard::is_active() { at_gate } else { raw::call };
    // SAFETY: the caller passes the arguments. The program inherits the signals that are blocked; a
    // signal that comes now stops this process, as natively.
    unsafe {
        let blocked = (*Slot::context(slot)).blocked;
        make(libc::SYS_ptrace, [libc::PTRACE_TRACEME as usize, 0, 0, 0, 0, 0]);
        raw::block(blocked);
        let answer = make(libc::SYS_execve, [path, arguments, environment, 0, 0, 0]);
        raw::block(u64::MAX);
        answer
    }
}
