//! Signals by which a C library ends a thread that waits in a call.
//!
//! The handlers of musl, and of glibc from 2.41 on, end a thread only if the signal has interrupted
//! one of the library's system call instructions: then the call has had no effect. Those of older
//! glibc unwind the stack from where the signal came. But a thread makes some calls in the host's
//! code, of which unwinders know nothing, and guarded ones at the gate. So before such a handler
//! begins, the thread is put back to its trapped instruction, if the call has had no effect, or
//! behind that. If the handler returns, the thread makes the call again.

use crate::guard;
use crate::machine::{Context, handler};
use crate::trap::Action;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// glibc's signal, and musl's.
const SIGNALS: [i32; 2] = [32, 33];

/// The program's handlers.
static HANDLERS: [AtomicUsize; 2] = [const { AtomicUsize::new(libc::SIG_DFL) }; 2];

fn handler(signal: i32) -> Option<&'static AtomicUsize> {
    SIGNALS.iter().position(|&one| one == signal).map(|index| &HANDLERS[index])
}

/// Whether a signal may be one of those.
pub fn is_meant(signal: i32) -> bool {
    SIGNALS.contains(&signal)
}

/// The action for the kernel in place of the program's.
pub fn wrapped(signal: i32, action: Action) -> Action {
    let is_default = matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN);
    match handler(signal) {
        Some(place) if !is_default && action.flags & libc::SA_SIGINFO as u64 != 0 => {
            place.store(action.handler, Relaxed);
            Action { handler: on_signal as *const () as usize, ..action }
        }
        _ => action,
    }
}

/// The program's action in place of the kernel's.
pub fn unwrapped(signal: i32, action: Action) -> Action {
    match handler(signal) {
        Some(place) if action.handler == on_signal as *const () as usize => {
            Action { handler: place.load(Relaxed), ..action }
        }
        _ => action,
    }
}

handler!(on_signal, before);

/// Returns the program's handler.
unsafe extern "C" fn before(signal: i32, context: *mut Context) -> usize {
    // SAFETY: the kernel has passed the context, and takes it back.
    unsafe {
        (*context).finish();
        guard::roll_back(&mut *context);
    }
    handler(signal).map_or(libc::SIG_IGN, |place| place.load(Relaxed))
}
