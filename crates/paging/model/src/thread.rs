//! Threads and time.

use crate::Result;
use crate::machine::{point, with};

/// The blocked signals: there are none here.
pub struct Signals;

/// Blocks nothing.
pub fn block_signals() -> Signals {
    Signals
}

/// Restores nothing.
pub fn restore_signals(_old: &Signals) {}

/// The id of the forking thread; there is one at a time.
pub fn id() -> u32 {
    1
}

/// The number of processors.
pub fn processors() -> usize {
    2
}

/// The time, ns. Each call takes 200 ns, so a thread that spins for a microsecond calls it five
/// times.
pub fn now_ns() -> u64 {
    with(|machine| {
        machine.now_ns += 200;
        machine.now_ns
    })
}

/// The processor time that a thread has used, ns: all elapsed time.
pub fn used_by(_thread: u32) -> Option<u64> {
    Some(now_ns())
}

/// The processor time that all threads have used, ns: all elapsed time.
pub fn used_by_all_ns() -> u64 {
    now_ns()
}

/// The processor time that this thread has used, ns: none.
pub fn used_ns() -> u64 {
    0
}

/// Starts a thread.
///
/// # Errors
/// None; the real function has some.
pub fn spawn_quiet(_name: &'static std::ffi::CStr, work: impl FnOnce() + Send + 'static) -> Result<()> {
    drop(shuttle::thread::spawn(work));
    Ok(())
}

/// Prints a line for whoever reads the model's output.
pub fn say(line: &str) {
    eprint!("{line}");
}

/// The pager gives up: the run fails.
///
/// # Panics
/// Always.
pub fn stop(line: &str) -> ! {
    panic!("{line}")
}

/// The pager ends the process: the run fails.
///
/// # Panics
/// Always.
pub fn end(line: &str, status: i32) -> ! {
    panic!("{line} ({status})")
}

/// Lets other threads run.
///
/// # Errors
/// None.
pub fn pause() -> Result<()> {
    shuttle::thread::yield_now();
    Ok(())
}

/// Lets other threads run; time does not pass.
pub fn sleep_ms(_ms: u64) {
    point();
    shuttle::thread::yield_now();
}
