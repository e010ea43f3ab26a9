//! Room in the process's table of descriptors for those that are passed, and for the host's.
//!
//! If a process has several threads, a call for which the kernel enlarges the table waits until all
//! processors have passed a point (an RCU grace period): 10 ms, and hundreds on a busy machine. So
//! the table grows before the program is stopped, in a thread that begins and ends for this.

use crate::Why;
use crate::passed::HIGH;
use crate::process::Process;
use crate::remote::{self, Remote};
use crate::threads::Threads;
use crate::trace::{self, Registers, Stop};
use std::time::{Duration, Instant};

/// The time between two looks at whether the table has grown.
const LOOK: Duration = Duration::from_secs(10);

/// Makes room. Returns how long one of the threads was stopped. If that fails, the table grows
/// later, while the program is stopped.
pub fn make(process: &Process) -> Duration {
    let has_room = || process.descriptor_room().is_none_or(|room| room > HIGH as u64);
    let is_alone = || process.threads().is_ok_and(|all| all.len() < 2);
    if has_room() || is_alone() {
        return Duration::ZERO;
    }
    // This may wait for a lock of the mappings, for as long as the program holds it.
    let place = process.memory().and_then(|memory| remote::instruction(process, &memory));
    let Ok(instruction) = place else { return Duration::ZERO };
    let began = Instant::now();
    let Some(mut threads) = Threads::stop_one(process) else { return began.elapsed() };
    let helper = begin(process, &threads, instruction);
    threads.let_go(process, false);
    let pause = began.elapsed();
    if let Ok((helper, grow, end)) = helper {
        run(helper, &grow, &end);
    }
    pause
}

/// Begins a thread, which stays stopped. Returns its number, and the registers with which it makes
/// its two calls. It uses no memory, and all signals are blocked.
fn begin(
    process: &Process,
    threads: &Threads,
    instruction: usize,
) -> Result<(u32, Registers, Registers), Why> {
    let mut remote = Remote::begin(process, threads.chosen(process)?, instruction, None)?;
    // The kernel makes room for the second descriptor before it finds that there is no first one.
    let grow = remote.registers_for(libc::SYS_dup3, [u32::MAX as usize, HIGH, 0, 0, 0, 0]);
    let end = remote.registers_for(libc::SYS_exit, [0; 6]);
    let begun = remote.begin_thread(grow.rsp as usize, &grow);
    remote.end()?;
    Ok((begun?, grow, end))
}

/// Makes the two calls. However long the first one takes, the thread must not be left alone before
/// the second.
fn run(helper: u32, grow: &Registers, end: &Registers) {
    let made = trace::set_registers(helper, grow).and_then(|()| trace::step(helper));
    while made.is_ok() {
        match trace::wait(helper, LOOK) {
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
            Ok(Stop::Request(_) | Stop::Clone) => drop(trace::step(helper)),
            Ok(Stop::Signal(_)) | Err(_) => break,
            // The program has ended, or executes another.
            Ok(Stop::Ended) => return,
        }
    }
    let ends = trace::set_registers(helper, end).and_then(|()| trace::go_on(helper, 0));
    while ends.is_ok() && !matches!(trace::wait(helper, LOOK), Ok(Stop::Ended)) {
        trace::go_on(helper, 0).ok();
    }
}
