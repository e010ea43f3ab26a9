//! Signals that end the program, if `--summary`, `--stats` or `--learn` must be written at its end.
//!
//! SIGTERM, SIGINT and SIGHUP end a program that has no handler for them. Then this library's
//! handler writes, and ends the process by the same signal. The program does not see that handler:
//! if it asks, there is no handler, and if it sets one, or ignores the signal, its setting applies.
//!
//! The handler takes locks of this library. These locks block signals while they are taken, so the
//! handler never waits for its own thread. The handler allocates from the library's own heap, like
//! the rest of the library.

use crate::{exit, real, setup, summary};
use std::ffi::c_int;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use terapage_sys::thread;

/// The signals.
const ENDS: [c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Whether this library handles them.
static ON: AtomicBool = AtomicBool::new(false);
/// Whether a thread is ending the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Handles the signals for which the program has begun without a handler, if there is output to
/// write.
pub fn open() {
    let writes =
        setup::settings().is_some_and(|settings| settings.stats.is_some() || settings.learn.is_some());
    // The kernel does not end the first process of a namespace by a signal without a handler. A
    // handler would run with the thread pointer of a hosted program.
    if !(writes || summary::is_asked()) || std::process::id() == 1 || crate::hosted::is_host() {
        return;
    }
    ON.store(true, SeqCst);
    for signal in ENDS {
        // SAFETY: all zero is a valid action.
        let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: nothing is set, and `now` receives the present action.
        let asked = unsafe { real::call!(sigaction(signal, null(), &raw mut now) or -1) };
        if asked == 0 && now.sa_sigaction == libc::SIG_DFL {
            let own = own();
            // SAFETY: the action is whole, and the handler may run at any time.
            unsafe { real::call!(sigaction(signal, &raw const own, null_mut()) or -1) };
        }
    }
}

/// The library's action.
fn own() -> libc::sigaction {
    // SAFETY: all zero is a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler();
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the set is the action's.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    action
}

fn handler() -> libc::sighandler_t {
    ends as extern "C" fn(c_int) as libc::sighandler_t
}

extern "C" fn ends(signal: c_int) {
    if ENDING.swap(true, SeqCst) && exit::is_owner() {
        // Another thread ends the process.
        loop {
            thread::sleep_ms(1000);
        }
    }
    exit::finish();
    // SAFETY: all zeros are the default action, and a valid empty set; both calls touch nothing
    // else.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        real::call!(sigaction(signal, &raw const action, null_mut()) or -1);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal);
        libc::syscall(
            libc::SYS_tgkill,
            i64::from(libc::getpid()),
            i64::from(thread::id()),
            i64::from(signal),
        );
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut());
        libc::syscall(libc::SYS_exit_group, i64::from(128 + signal));
    }
}

/// In the child of a fork: no signal has ended it yet.
pub fn in_child() {
    ENDING.store(false, SeqCst);
}

/// Whether the library replaces the default action of a signal.
fn stands_in(signal: c_int) -> bool {
    ON.load(SeqCst) && ENDS.contains(&signal)
}

/// Hook: the library's handler does not exist for the program.
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller keeps the contract of `sigaction`; actions are plain data.
    unsafe {
        let own = own();
        let is_default = stands_in(signal) && !new.is_null() && (*new).sa_sigaction == libc::SIG_DFL;
        let answer = real::call!(sigaction(signal, if is_default { &raw const own } else { new }, old) or -1);
        if answer == 0 && !old.is_null() && (*old).sa_sigaction == handler() {
            *old = std::mem::zeroed();
        }
        answer
    }
}

/// As [`sigaction`].
///
/// # Safety
/// The contract is that of the C library's function.
#[cfg_attr(not(target_env = "musl"), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: c_int, new: libc::sighandler_t) -> libc::sighandler_t {
    let is_default = stands_in(signal) && new == libc::SIG_DFL;
    // SAFETY: the caller keeps the contract of `signal`.
    let old =
        unsafe { real::call!(signal(signal, if is_default { handler() } else { new }) or libc::SIG_ERR) };
    if old == handler() { libc::SIG_DFL } else { old }
}
