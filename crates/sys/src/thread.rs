//! Threads of the pager, and waiting.

use crate::{Result, check};
use std::sync::atomic::AtomicU32;

/// Starts a thread that no signal of the program's reaches.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let old = block_signals();
    let made = std::thread::Builder::new().name(name.to_owned()).stack_size(512 << 10).spawn(work);
    restore_signals(&old);
    made.map(drop)
}

/// Blocks every signal in the calling thread; says which were blocked before.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are ours; zeros are a valid value of either.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        // A fault of the pager's own must stop the process, not repeat for ever.
        for fatal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(&mut all, fatal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    }
}

/// Blocks again just those signals that [`block_signals`] found blocked.
pub fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: the set is valid.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
}

/// Sleeps while `word` holds `value`; may wake early.
pub fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: the word is valid while the call lasts; no timeout is given.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

/// Wakes all who sleep on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is valid.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX)
    };
}

/// Nanoseconds of a clock that never goes back.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes one line to standard error, without allocation or locks.
pub fn say(line: &str) {
    let bytes = line.as_bytes();
    // SAFETY: the bytes are valid.
    unsafe { libc::syscall(libc::SYS_write, 2, bytes.as_ptr(), bytes.len()) };
}

/// Ends the process by SIGABRT with its default action: the program has lost memory that it
/// cannot do without, and no handler of its own may run on.
pub fn stop(line: &str) -> ! {
    say(line);
    // SAFETY: a zeroed action is SIG_DFL with no flags; the signal is unblocked for this thread, then raised.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGABRT, &action, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, libc::SIGABRT);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::raise(libc::SIGABRT);
        libc::_exit(134)
    }
}

/// This process's id.
pub fn pid() -> u64 {
    u64::from(std::process::id())
}

/// Lets other threads run.
pub fn pause() -> Result<()> {
    // SAFETY: no memory is touched.
    check("sched_yield", unsafe { libc::sched_yield() }.into()).map(|_| ())
}

/// Sleeps.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}
