//! Passes the signal settings of this process on to the program that replaces it.
//!
//! Rust's start-up ignores SIGPIPE, and its exec resets SIGPIPE and unblocks all signals. A program
//! under `terapage run` must find both as without `terapage run`.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether SIGPIPE was ignored when this process began.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs [`remember`] before Rust's start-up changes the settings.
// SAFETY: the loader calls the contents of this section once, as functions of this type.
#[unsafe(link_section = ".init_array")]
#[used]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    // SAFETY: all zero is a valid sigaction.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and `now` receives the present action.
    let rc = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut now) };
    PIPE_IGNORED.store(rc == 0 && now.sa_sigaction == libc::SIG_IGN, Relaxed);
}

/// Makes `command` begin with this process's signal settings.
pub fn keep(command: &mut Command) {
    // SAFETY: all zero is a valid set of signals.
    let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is blocked, and `blocked` receives the present mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut blocked) };
    let restore = move || {
        if PIPE_IGNORED.load(Relaxed) {
            // SAFETY: ignoring a signal installs no handler.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        // SAFETY: `blocked` is a set of signals that the kernel filled.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const blocked, std::ptr::null_mut()) };
        Ok(())
    };
    // SAFETY: the closure makes two async-signal-safe calls and allocates nothing.
    unsafe { command.pre_exec(restore) };
}
