//! The threads of a process, all stopped.
//!
//! A stopped thread is inside no system call: calls that only wait are interrupted, and the kernel
//! begins them again when the thread goes on, as after any signal without a handler. A few calls
//! never begin again by themselves (signal(7)); the thread then makes them again.

use crate::Why;
use crate::host::Seen;
use crate::memory::Stack;
use crate::policy::{Before, Policy};
use crate::process::{Process, may_not_trace};
use crate::trace::{self, Registers, Stop};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use terapage_sys::adoption::State;

/// The longest time in which a thread must stop: it may be reading a slow disk.
const STOP_MOST: Duration = Duration::from_secs(2);
/// After this time, a thread may be waiting for its child of `vfork`.
const STOP_SOON: Duration = Duration::from_millis(2);
/// The longest time in which the host must be ready.
const HOST_MOST: Duration = Duration::from_secs(20);

const SIGSYS: u64 = 1 << (libc::SIGSYS - 1);

/// Why a program cannot be adopted at this moment.
pub const BUSY: &str = "its threads are busy (try again)";

/// Bytes of the instruction that makes a system call.
const SYSCALL_BYTES: u64 = 2;

/// Calls that fail with EINTR when a thread stops, and have done nothing then: those with a time
/// that the kernel does not remember, sockets' with SO_RCVTIMEO or SO_SNDTIMEO among them.
const WAITS: [i64; 20] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
];

/// A stopped thread.
struct Stopped {
    number: u32,
    registers: Registers,
    /// The signals that it blocks.
    blocked: u64,
}

/// Threads of a process, stopped: all of them, except for [`stop_one`](Threads::stop_one).
#[derive(Default)]
pub struct Threads {
    all: Vec<Stopped>,
    /// Each thread is urgent from the request to stop on, so that it does not wait for a processor
    /// until it stops, or makes a call for this process.
    urgent: Vec<Policy>,
}

fn system(error: &std::io::Error) -> Why {
    format!("its threads cannot be stopped ({error})")
}

impl Threads {
    /// Stops all threads of a process.
    ///
    /// # Errors
    /// A thread does not stop, or may not be traced: then none is stopped.
    pub fn stop(process: &Process) -> Result<Threads, Why> {
        let mut threads = Threads::default();
        let mut seen = BTreeSet::<u32>::new();
        loop {
            let new: Vec<u32> =
                process.threads()?.into_iter().filter(|number| !seen.contains(number)).collect();
            // A thread that runs may make others, and one that is stopped does not.
            if new.is_empty() {
                break;
            }
            seen.extend(&new);
            threads.take(process, new)?;
        }
        if threads.all.is_empty() {
            return Err("it has ended".into());
        }
        Ok(threads)
    }

    /// Stops one thread, which can make calls, while the others run. `None` if there is none.
    pub fn stop_one(process: &Process) -> Option<Threads> {
        let mut all = process.threads().ok()?;
        // One that sleeps stops at once, and is within a call. One that waits for a child of
        // `vfork`, or for the kernel, may not stop for long.
        all.retain(|&number| process.state(number) != Some('D'));
        order(&mut all, |number| process.state(number) != Some('S'));
        for number in all {
            let mut threads = Threads::default();
            threads.take(process, vec![number]).ok()?;
            if threads.chosen(process).is_ok() {
                return Some(threads);
            }
            threads.let_go(process, false);
        }
        None
    }

    /// Stops further threads.
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    fn take(&mut self, process: &Process, mut new: Vec<u32>) -> Result<(), Why> {
        // As in `let_go`: those that wait first.
        order(&mut new, |number| (!process.waits_in(number, &WAITS), number == process.pid));
        // One that did not stop in time before is attached already.
        let seize =
            |number: u32| trace::seize(number).or_else(|why| trace::interrupt(number).map_err(|_| why));
        let is_there = |number: &u32| match seize(*number) {
            Ok(()) => Some(Ok(*number)),
            // The thread has ended since, or waits for the others to end.
            Err(_) if process.has_ended(*number) => None,
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Some(Err(may_not_trace(process.pid))),
            Err(error) => Some(Err(system(&error))),
        };
        let seized: Result<Vec<u32>, Why> = new.iter().filter_map(is_there).collect();
        // Not before the request: a thread that makes another then begins again, so none of the
        // program's inherits this.
        self.urgent.extend(new.iter().copied().map(Policy::urgent));
        let stopped = seized.and_then(|all| all.into_iter().try_for_each(|number| self.add(process, number)));
        stopped.inspect_err(|_| self.let_go(process, false))
    }

    /// Waits until a thread has stopped.
    fn add(&mut self, process: &Process, number: u32) -> Result<(), Why> {
        let until = Instant::now() + STOP_MOST;
        let mut most = STOP_SOON;
        loop {
            match trace::wait(number, most.min(until.saturating_duration_since(Instant::now()))) {
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
                    if Instant::now() > until {
                        return Err(format!("its thread {number} does not stop"));
                    }
                    if most == STOP_SOON {
                        let children = process.children_with_same_memory(number);
                        self.urgent.extend(children.into_iter().map(Policy::urgent_alone));
                        most = STOP_MOST;
                    }
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
    ///
    /// # Errors
    /// Each thread is within a restartable sequence (rseq(2)), which the kernel would not restart
    /// after other code has run.
    pub fn chosen(&self, process: &Process) -> Result<(u32, Registers), Why> {
        let is_free = |thread: &&Stopped| !is_in_sequence(process, thread);
        let thread = self.all.iter().find(is_free).ok_or(BUSY)?;
        Ok((thread.number, thread.registers))
    }

    /// All threads, each of which can make calls.
    ///
    /// # Errors
    /// As for [`chosen`](Self::chosen), of any thread.
    pub fn free(&self, process: &Process) -> Result<Vec<(u32, Registers)>, Why> {
        if self.all.iter().any(|thread| is_in_sequence(process, thread)) {
            return Err(BUSY.into());
        }
        Ok(self.all.iter().map(|thread| (thread.number, thread.registers)).collect())
    }

    /// The numbers of all threads.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.all.iter().map(|thread| thread.number)
    }

    /// The stack pointers and the thread pointers of all threads.
    pub fn stacks(&self) -> Vec<Stack> {
        self.all.iter().map(|thread| Stack::of(&thread.registers)).collect()
    }

    /// Lets all threads go on. If the host has the process (`held`), no thread blocks the signal by
    /// which trapped calls arrive.
    ///
    /// While a thread is traced, signals for it that are ignored wake another one. So threads that
    /// wait, and would show it, go on last, and the first thread, which gets most signals, before
    /// those.
    pub fn let_go(&mut self, process: &Process, held: bool) {
        let mut all = std::mem::take(&mut self.all);
        for Stopped { number, registers, blocked } in &mut all {
            if has_lost_its_call(process, *number, registers, *blocked) {
                registers.rax = registers.orig_rax;
                registers.rip -= SYSCALL_BYTES;
                registers.orig_rax = u64::MAX;
            }
            trace::set_registers(*number, registers).ok();
            // After an error, the thread that has made calls for this process still blocks all.
            let blocks = if held { *blocked & !SIGSYS } else { *blocked };
            if trace::blocked(*number).is_ok_and(|now| now != blocks) {
                trace::block(*number, blocks).ok();
            }
        }
        self.urgent.clear();
        let waits = |thread: &Stopped| WAITS.contains(&(thread.registers.rax as i64));
        all.sort_by_key(|thread| (waits(thread), thread.number != process.pid));
        all.iter().for_each(|thread| drop(trace::detach(thread.number, 0)));
    }

    /// Waits until the host in this process has set its filter. It then waits itself, until it is
    /// [let go](Host::let_go).
    ///
    /// # Errors
    /// Why it has not. Its threads are then still there.
    pub fn await_host(&self, process: &Process, host: u32, report: usize) -> Result<Host, Why> {
        trace::go_on(host, 0).map_err(|error| system(&error))?;
        let until = Instant::now() + HOST_MOST;
        loop {
            let stop = trace::look(host).map_err(|error| system(&error))?;
            let seen = Seen::read(process, report).ok_or("it has ended")?;
            match seen.state {
                state if state == State::Failed as u32 => return Err(seen.text),
                state if state != State::Begins as u32 => {
                    let before = self.before_urgency(process);
                    let others = process
                        .threads()
                        .unwrap_or_default()
                        .into_iter()
                        .filter(|number| *number != host && self.numbers().all(|known| known != *number));
                    if let Some(before) = before {
                        others.for_each(|number| before.give(number));
                    }
                    return Ok(Host { thread: host, report, stop, before });
                }
                _ => {}
            }
            match stop {
                Some(Stop::Signal(signal)) => return Err(format!("the host failed (signal {signal})")),
                Some(Stop::Ended) => return Err("the host has ended".into()),
                Some(Stop::Request(_) | Stop::Clone) => drop(trace::go_on(host, 0)),
                None if Instant::now() > until => return Err("the host is not ready in time".into()),
                None => trace::rest(Duration::from_micros(100)),
            }
        }
    }

    /// How urgent the thread was that has made the host's first one: so are the host's, once the
    /// program runs.
    fn before_urgency(&self, process: &Process) -> Option<Before> {
        let (chosen, _) = self.chosen(process).ok()?;
        self.urgent.iter().find(|policy| policy.thread() == chosen)?.before()
    }
}

/// Sorts threads by what they do at one moment: a sort may not meet a key that has changed.
fn order<K: Ord>(threads: &mut [u32], key: impl Fn(u32) -> K) {
    threads.sort_by_cached_key(|&number| key(number));
}

/// The thread of a host that has set its filter.
pub struct Host {
    thread: u32,
    /// The address of its report.
    pub report: usize,
    /// How the thread has stopped, if it has.
    stop: Option<Stop>,
    before: Option<Before>,
}

impl Host {
    /// Detaches from the thread, which waits for this, or has stopped.
    pub fn let_go(self) {
        let mut stop = self.stop;
        if stop.is_none() && trace::interrupt(self.thread).is_ok() {
            stop = trace::wait(self.thread, STOP_MOST).ok();
        }
        if let Some(before) = self.before {
            before.give(self.thread);
        }
        if let Some(Stop::Request(_) | Stop::Clone | Stop::Signal(_)) = stop {
            trace::detach(self.thread, 0).ok();
        }
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

/// Whether a thread has stopped within a restartable sequence. Where the kernel does not tell where
/// the thread's word about sequences lies (before Linux 5.13), only a thread within a call is not.
fn is_in_sequence(process: &Process, thread: &Stopped) -> bool {
    if thread.registers.orig_rax as i64 >= 0 {
        return false;
    }
    let Ok(at) = trace::sequences(thread.number) else { return true };
    let word = |at: u64| {
        let mut bytes = [0; size_of::<u64>()];
        process.get(at as usize, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    };
    // `struct rseq`: the address of a `struct rseq_cs`, whose second word is the first address of
    // the sequence, and the third its length.
    let is_within = |at: u64| -> std::io::Result<bool> {
        let sequence = word(at + 8)?;
        Ok(sequence != 0 && thread.registers.rip.wrapping_sub(word(sequence + 8)?) < word(sequence + 16)?)
    };
    at != 0 && is_within(at).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::order;
    use std::cell::Cell;

    #[test]
    fn threads_are_sorted_although_their_states_change_meanwhile() {
        for seed in 1..100 {
            let state = Cell::new(seed);
            let next = || {
                state.set(state.get() * 48_271 % 0x7fff_ffff_u64);
                state.get() % 2 == 0
            };
            let mut threads: Vec<u32> = (0..500).collect();
            order(&mut threads, |_| next());
            threads.sort_unstable();
            assert!(threads.into_iter().eq(0..500));
        }
    }
}
