//! Cancellation of a thread that waits in a trapped call.
//!
//! The C library sends the thread a signal. From glibc 2.41 on its handler ends the thread only if
//! the signal has interrupted one of the library's system call instructions, or what leads there:
//! then the call has had no effect. But a trapped call waits at the gate. So the library's action
//! is wrapped: its handler sees the trapped instruction, if the call has had no effect yet.
//!
//! If the signal comes before, while the call is being prepared, it is noted, and sent once more
//! before the call is made. If it comes when the call has had its effect, or a part of it, the
//! library's handler sees that, and lets the call end.
//!
//! Older glibc lets its handler end a thread at any place while such a call is made, and unwinds
//! the stack from there.

use super::machine;
use super::trap::Action;
use crate::borrowed;
use libc::{c_int, c_long, c_void, siginfo_t, ucontext_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The signal (glibc's `SIGCANCEL`).
pub const SIGNAL: c_int = 32;

/// A call at the gate that a cancellation may end (`machine::make`).
#[repr(C)]
pub struct Site {
    pub arguments: [usize; 6],
    pub number: usize,
    /// A word that is not 0 if the signal of the cancellation must be sent again.
    pub came: *mut usize,
    /// The signal, and room for the number of the process.
    pub signal: usize,
    pub process: usize,
    /// The trapped instruction, or 0.
    pub place: usize,
}

/// The C library's handler.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

thread_local! {
    /// Whether the signal has come while no call could end by it.
    static CAME: Cell<usize> = const { Cell::new(0) };
}

/// The action for the kernel in place of the C library's.
pub fn wrapped(mut action: Action) -> Action {
    let [handler, flags, ..] = action;
    let is_default = matches!(handler as usize, libc::SIG_DFL | libc::SIG_IGN);
    if is_default || flags & libc::SA_SIGINFO as u64 == 0 || borrowed::is_borrower() {
        return action;
    }
    HANDLER.store(handler as usize, Relaxed);
    action[0] = on_cancel as *const () as u64;
    action
}

/// The C library's action in place of the kernel's.
pub fn unwrapped(mut action: Action) -> Action {
    if action[0] == on_cancel as *const () as u64 {
        action[0] = HANDLER.load(Relaxed) as u64;
    }
    action
}

/// Makes a call at the gate. `place` is the trapped instruction, or 0 if the call must not end by a
/// cancellation.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn call(number: c_long, arguments: [usize; 6], place: usize) -> isize {
    let mut never = 0;
    let came = if place == 0 { &raw mut never } else { CAME.with(Cell::as_ptr) };
    let (number, signal) = (number as usize, SIGNAL as usize);
    let mut site = Site { arguments, number, came, signal, process: 0, place };
    // SAFETY: the caller answers for the call; the thread's own word stays as long as the thread.
    unsafe { machine::make(&raw mut site) }
}

unsafe extern "C" fn on_cancel(signal: c_int, what: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the C library has set the handler, which takes what the kernel passes. While the
    // thread is at a site, that site lives.
    unsafe {
        let handler: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
            std::mem::transmute(HANDLER.load(Relaxed));
        let given = &mut *context.cast::<ucontext_t>();
        machine::settle(&mut given.uc_mcontext);
        let place = machine::site(&given.uc_mcontext).map(|site| (*site).place);
        if place.is_none() {
            CAME.with(|came| came.set(1));
        }
        let Some(place) = place.filter(|&place| place != 0) else {
            return handler(signal, what, context);
        };
        let mut seen: ucontext_t = std::mem::zeroed();
        (seen.uc_flags, seen.uc_link) = (given.uc_flags, given.uc_link);
        (seen.uc_stack, seen.uc_mcontext) = (given.uc_stack, given.uc_mcontext);
        // The kernel's set of signals is shorter.
        let set = (&raw const given.uc_sigmask).cast::<u64>();
        (&raw mut seen.uc_sigmask).cast::<u64>().write(set.read());
        machine::set_place(&mut seen.uc_mcontext, place);
        handler(signal, what, (&raw mut seen).cast());
    }
}
