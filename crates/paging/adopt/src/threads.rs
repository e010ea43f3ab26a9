//! The threads of a process, all stopped.
//!
//! A stopped thread is inside no system call: calls that only wait are interrupted, and the kernel
//! begins them again when the thread goes on, as after any signal without a handler. A few calls
//! never begin again by themselves (signal(7)); the thread then makes them again.

use crate::Why;
use crate::host::Seen;
use crate::process::Process;
use crate::trace::{self, Registers, Stop};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use terapage_sys::adoption::State;

/// The longest time in which a thread must stop: it may be reading a slow disk.
const STOP_MOST: Duration = Duration::from_secs(10);
/// The longest time in which the host must be ready.
const HOST_MOST: Duration = Duration::from_secs(20);

const SIGSYS: u64 = 1 << (libc::SIGSYS - 1);

/// Bytes of the instruction that makes a system call.
const SYSCALL_BYTES: u64 = 2;

/// Calls that fail with EINTR when a thread stops.
const WAITS: [i64; 7] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    libc::SYS_rt_sigtimedwait,
];

/// A stopped thread.
struct Stopped {
    number: u32,
    registers: Registers,
    /// The signals that it blocks.
    blocked: u64,
}

/// All threads of a process, stopped.
pub struct Threads {
    all: Vec<Stopped>,
}

fn system(error: &std::io::Error) -> Why {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "it may not be traced (try as root; kernel.yama.ptrace_scope may forbid it to its own user)"
                .into()
        }
        _ => format!("its threads cannot be stopped ({error})"),
    }
}

impl Threads {
    /// Stops all threads of a process.
    ///
    /// # Errors
    /// A thread does not stop, or may not be traced: then none is stopped.
    pub fn stop(process: &Process) -> Result<Threads, Why> {
        let mut threads = Threads { all: Vec::new() };
        let mut seen = BTreeSet::new();
        loop {
            let new: Vec<u32> =
                process.threads()?.into_iter().filter(|number| !seen.contains(number)).collect();
            // A thread that runs may make others, and one that is stopped does not.
            if new.is_empty() {
                break;
            }
            let stopped = new.iter().try_for_each(|&number| {
                seen.insert(number);
                match trace::seize(number) {
                    // The thread has ended, or is about to.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
                    Err(error) => Err(system(&error)),
                    Ok(()) => Ok(true),
                }
                .map(drop)
            });
            let stopped = stopped.and_then(|()| new.iter().try_for_each(|&number| threads.add(number)));
            if let Err(why) = stopped {
                threads.let_go(process, false);
                return Err(why);
            }
        }
        if threads.all.is_empty() {
            return Err("it has ended".into());
        }
        Ok(threads)
    }

    /// Waits until a thread has stopped.
    fn add(&mut self, number: u32) -> Result<(), Why> {
        let until = Instant::now() + STOP_MOST;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match trace::wait(number, left) {
                Ok(Stop::Ended) => return Ok(()),
                Ok(Stop::Request(libc::SIGTRAP)) => break,
                Ok(Stop::Request(_)) => {
                    trace::detach(number, 0).ok();
                    return Err("it is stopped (try: kill -CONT)".into());
                }
                // The signal is the thread's own business; the stop follows.
                Ok(Stop::Signal(signal)) => drop(trace::go_on(number, signal)),
                Ok(Stop::Clone) => drop(trace::go_on(number, 0)),
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                    return Err(format!("its thread {number} does not stop"));
                }
                Err(error) => return Err(system(&error)),
            }
        }
        let get = || Some((trace::registers(number).ok()?, trace::blocked(number).ok()?));
        if let Some((registers, blocked)) = get() {
            self.all.push(Stopped { number, registers, blocked });
        }
        Ok(())
    }

    /// The thread that makes calls for this process, with its registers.
    pub fn chosen(&self) -> (u32, Registers) {
        let first = &self.all[0];
        (first.number, first.registers)
    }

    /// The numbers of all threads.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|thread| thread.number)
    }

    /// The stack pointers of all threads.
    pub fn stacks(&self) -> Vec<u64> {
        self.all.iter().map(|thread| thread.registers.rsp).collect()
    }

    /// Lets all threads go on. If the host has the process (`held`), no thread blocks the signal by
    /// which trapped calls arrive.
    pub fn let_go(&mut self, process: &Process, held: bool) {
        for thread in self.all.drain(..) {
            let Stopped { number, mut registers, blocked } = thread;
            if has_lost_its_call(process, number, &registers, blocked) {
                registers.rax = registers.orig_rax;
                registers.rip -= SYSCALL_BYTES;
                registers.orig_rax = u64::MAX;
            }
            trace::set_registers(number, &registers).ok();
            if held && blocked & SIGSYS != 0 {
                trace::block(number, blocked & !SIGSYS).ok();
            }
            trace::detach(number, 0).ok();
        }
    }

    /// Waits until the host in this process has set its filter.
    ///
    /// # Errors
    /// Why it has not. Its threads are then still there.
    pub fn await_host(&self, process: &Process, host: u32, report: usize) -> Result<(), Why> {
        trace::go_on(host, 0).map_err(|error| system(&error))?;
        let until = Instant::now() + HOST_MOST;
        loop {
            let stop = trace::look(host).map_err(|error| system(&error))?;
            let seen = Seen::read(process, report).ok_or("it has ended")?;
            match seen.state {
                state if state == State::Failed as u32 => return Err(seen.text),
                state if state != State::Begins as u32 => {
                    let_host_go(host, stop);
                    return Ok(());
                }
                _ => {}
            }
            match stop {
                Some(Stop::Signal(signal)) => return Err(format!("the host failed (signal {signal})")),
                Some(Stop::Ended) => return Err("the host has ended".into()),
                Some(Stop::Request(_) | Stop::Clone) => drop(trace::go_on(host, 0)),
                None if Instant::now() > until => return Err("the host is not ready in time".into()),
                None => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

/// Detaches from the host's thread, which runs, or has stopped.
fn let_host_go(host: u32, stop: Option<Stop>) {
    let mut stop = stop;
    if stop.is_none() && trace::interrupt(host).is_ok() {
        stop = trace::wait(host, STOP_MOST).ok();
    }
    if let Some(Stop::Request(_) | Stop::Clone | Stop::Signal(_)) = stop {
        trace::detach(host, 0).ok();
    }
}

/// Whether the stop has ended a call of a thread that the kernel does not begin again. If a signal
/// waits for the thread, that would have ended the call, too.
fn has_lost_its_call(process: &Process, thread: u32, registers: &Registers, blocked: u64) -> bool {
    let interrupted = registers.rax as i64 == -i64::from(libc::EINTR);
    interrupted
        && WAITS.contains(&(registers.orig_rax as i64))
        && process.pending(thread).is_some_and(|pending| pending & !blocked == 0)
}
