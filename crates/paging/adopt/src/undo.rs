//! Undoes an adoption that has failed, while all threads of the program are stopped: threads,
//! mappings and descriptors that were not there before go.

use crate::Why;
use crate::memory::{self, Mapping};
use crate::process::Process;
use crate::remote::{self, Remote};
use crate::threads::Threads;
use crate::trace;
use std::time::{Duration, Instant};

/// The longest time that the host's threads may take to end.
const END_MOST: Duration = Duration::from_secs(10);

/// A limit of the kernel's: soft and hard.
type Limit = libc::rlimit;

/// What is limited.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

const LIMITS: [Resource; 3] = [libc::RLIMIT_AS, libc::RLIMIT_DATA, libc::RLIMIT_NOFILE];

/// What a process has before the adoption.
pub struct Before {
    threads: Vec<u32>,
    /// The mappings, which do not change while the threads are stopped.
    pub memory: Vec<Mapping>,
    descriptors: Vec<u32>,
    limits: Vec<Limit>,
}

/// Gets limits, or sets them.
fn limit(pid: u32, resource: Resource, new: Option<&Limit>) -> Limit {
    let mut old = Limit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call reads a limit, and writes one.
    unsafe {
        libc::prlimit(
            pid as libc::pid_t,
            resource,
            new.map_or(std::ptr::null(), std::ptr::from_ref),
            &raw mut old,
        )
    };
    old
}

impl Before {
    /// Notes what a process has, whose threads are stopped.
    pub fn note(process: &Process, threads: &Threads) -> Result<Before, Why> {
        Ok(Before {
            threads: threads.numbers().collect(),
            memory: process.memory()?,
            descriptors: process.descriptors()?,
            limits: LIMITS.iter().map(|&resource| limit(process.pid, resource, None)).collect(),
        })
    }
}

/// Undoes what was done. Errors are ignored: there is nothing else to do then.
pub fn undo(process: &Process, threads: &mut Threads, before: &Before) {
    end_threads(process, before);
    let (Ok(memory), Ok(descriptors)) = (process.memory(), process.descriptors()) else { return };
    if let Ok(chosen) = threads.chosen(process)
        && let Ok(instruction) = remote::instruction(process, &memory)
        && let Ok(mut remote) = Remote::begin(process, chosen, instruction, None)
    {
        for fd in descriptors.iter().filter(|fd| !before.descriptors.contains(fd)) {
            remote.call("close", libc::SYS_close, [*fd as usize, 0, 0, 0, 0, 0]).ok();
        }
        for part in memory::new_parts(&before.memory, &memory) {
            let (at, len) = (part.start as usize, (part.end - part.start) as usize);
            remote.call("munmap", libc::SYS_munmap, [at, len, 0, 0, 0, 0]).ok();
        }
        remote.end().ok();
    }
    for (&resource, old) in LIMITS.iter().zip(&before.limits) {
        limit(process.pid, resource, Some(old));
    }
}

/// Ends the threads of the host.
fn end_threads(process: &Process, before: &Before) {
    let until = Instant::now() + END_MOST;
    let Ok(instruction) = process.memory().and_then(|memory| remote::instruction(process, &memory)) else {
        return;
    };
    while Instant::now() < until {
        let new: Vec<u32> = process.threads().unwrap_or_default();
        let mut left = false;
        for number in new.into_iter().filter(|number| !before.threads.contains(number)) {
            left = true;
            // A thread of the host's that this process has begun is attached already.
            if trace::seize(number).is_err() {
                trace::interrupt(number).ok();
            }
            if trace::wait(number, Duration::from_millis(200)).is_ok()
                && let Ok(mut registers) = trace::registers(number)
            {
                registers.rip = instruction as u64;
                registers.rax = libc::SYS_exit as u64;
                registers.rdi = 0;
                registers.orig_rax = u64::MAX;
                trace::set_registers(number, &registers).ok();
            }
            trace::detach(number, 0).ok();
        }
        if !left {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
