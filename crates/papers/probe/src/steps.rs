//! Single steps, measured by repeating them.

use crate::{Error, last, median, tenth};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use terapage_sys::processors::Processors;
use terapage_sys::thread::{now_ns, used_ns};

/// The number of measurements of a step. The tenth percentile is used, since other work makes steps
/// longer, never shorter. Chosen, not measured, like the repetitions.
const ROUNDS: usize = 41;
/// Repetitions in one measurement.
const TIMES: u32 = 500;

/// Runs `step` many times and returns the time of one run, ns.
fn time_ns(mut step: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..TIMES {
            step();
        }
        start.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    tenth((0..ROUNDS).map(round))
}

/// The clock of a processor that works, GHz: a chain of multiplications, three cycles each on
/// every x86-64 processor since 2008.
pub fn clock_ghz() -> f64 {
    const CYCLES: f64 = 3.0;
    let factor = black_box(0x9E37_79B9_7F4A_7C15_u64);
    let mut value = 1_u64;
    let ns = time_ns(|| {
        for _ in 0..64 {
            value = value.wrapping_mul(factor);
        }
    });
    black_box(value);
    64.0 * CYCLES / ns
}

/// The time of a system call that does nothing, ns.
pub fn syscall_ns() -> f64 {
    // SAFETY: the call has no arguments and changes nothing.
    let call = || unsafe { libc::syscall(libc::SYS_getppid) };
    time_ns(|| {
        black_box(call());
    })
}

/// `io_getevents` that finds nothing and does not wait, ns.
///
/// # Errors
/// The kernel has no libaio.
pub fn empty_getevents_ns() -> Result<f64, Error> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: the context is written to `context`.
    if unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) } != 0 {
        return Err(last("io_setup"));
    }
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // One event (struct io_event) is 32 bytes.
    let mut events = [0_u64; 32];
    let ns = time_ns(|| {
        // SAFETY: the context was made above; there is room for eight events.
        unsafe { libc::syscall(libc::SYS_io_getevents, context, 0, 8, events.as_mut_ptr(), &raw const none) };
    });
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    Ok(ns)
}

/// A pair of pipes between two threads.
struct Pipes {
    there: [libc::c_int; 2],
    back: [libc::c_int; 2],
}

impl Pipes {
    fn new() -> Result<Pipes, Error> {
        let mut pipes = Pipes { there: [-1; 2], back: [-1; 2] };
        for pipe in [&mut pipes.there, &mut pipes.back] {
            // SAFETY: the pipe has room for both descriptors.
            if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
                return Err(last("pipe"));
            }
        }
        Ok(pipes)
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        for fd in self.there.into_iter().chain(self.back).filter(|&fd| fd >= 0) {
            // SAFETY: the descriptors are this struct's own.
            unsafe { libc::close(fd) };
        }
    }
}

fn put(fd: libc::c_int, byte: u8) {
    // SAFETY: one byte is read from `byte`.
    unsafe { libc::write(fd, (&raw const byte).cast(), 1) };
}

fn get(fd: libc::c_int) -> u8 {
    let mut byte = 0_u8;
    // SAFETY: one byte is written to `byte`.
    unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
    byte
}

const STOP: u8 = 1;

/// Calls `measure` while another thread answers each byte from one pipe through the other.
/// `numbers` are the processors of this thread and of the other.
fn with_answerer<T>(numbers: [usize; 2], pipes: &Pipes, measure: impl FnOnce(&Pipes) -> T) -> Option<T> {
    let all = Processors::of(0)?;
    let (here, there) = (all.only(numbers[0])?, all.only(numbers[1])?);
    here.give_to(0);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            there.give_to(0);
            while get(pipes.there[0]) != STOP {
                put(pipes.back[1], 0);
            }
        });
        let result = measure(pipes);
        put(pipes.there[1], STOP);
        result
    });
    all.give_to(0);
    Some(result)
}

/// The time of a switch from one thread to another on the same processor, with the wake-up, ns:
/// half a round trip through two pipes, less the time of the pipes' system calls without a switch.
///
/// # Errors
/// No pipe can be created.
pub fn switch_ns() -> Result<f64, Error> {
    let pipes = Pipes::new()?;
    let calls_ns = time_ns(|| {
        put(pipes.there[1], 0);
        get(pipes.there[0]);
    });
    let number = Processors::of(0).and_then(|all| all.numbers().next()).unwrap_or(0);
    let round_ns = with_answerer([number, number], &pipes, |pipes| {
        time_ns(|| {
            put(pipes.there[1], 0);
            get(pipes.back[0]);
        })
    });
    Ok((round_ns.unwrap_or(f64::NAN) / 2.0 - calls_ns).max(0.0))
}

/// The cost of waking a thread that sleeps on another processor, for the thread that wakes it, ns:
/// a `write()` to a pipe on which a thread sleeps, less a `write()` to a pipe without a reader.
/// `None` if there is only one processor.
///
/// # Errors
/// No pipe can be created.
pub fn wake_ns() -> Result<Option<f64>, Error> {
    let pipes = Pipes::new()?;
    let numbers: Vec<usize> =
        Processors::of(0).map(|all| all.numbers().take(2).collect()).unwrap_or_default();
    let &[here, there] = &numbers[..] else { return Ok(None) };
    let put_ns = |pipes: &Pipes| {
        let start = now_ns();
        put(pipes.there[1], 0);
        (now_ns() - start) as f64
    };
    let quiet_ns = tenth((0..400).map(|_| {
        let ns = put_ns(&pipes);
        get(pipes.there[0]);
        ns
    }));
    let waking_ns = with_answerer([here, there], &pipes, |pipes| {
        let once = |_| {
            std::thread::sleep(Duration::from_micros(100));
            let ns = put_ns(pipes);
            get(pipes.back[0]);
            ns
        };
        tenth((0..400).map(once))
    });
    Ok(waking_ns.map(|waking_ns| (waking_ns - quiet_ns).max(0.0)))
}

/// The processor time that a sleep until a timer expires costs the sleeping thread, ns.
pub fn sleep_ns() -> f64 {
    let once = |_| {
        let before = used_ns();
        std::thread::sleep(Duration::from_micros(50));
        (used_ns() - before) as f64
    };
    tenth((0..400).map(once))
}

/// A hardware interrupt and its handler, ns: the time for which a thread that reads the clock in a
/// loop is interrupted when a timer expires.
///
/// # Errors
/// No timer is available.
pub fn interrupt_ns() -> Result<f64, Error> {
    const DELAY_NS: u64 = 30_000;
    // With fewer, another thread had the processor meanwhile.
    const GAPS_LEAST: usize = 100;
    // SAFETY: the call takes no pointers.
    let timer =
        unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    if timer < 0 {
        return Err(last("timerfd_create"));
    }
    let once = |_| {
        let at = libc::timespec { tv_sec: 0, tv_nsec: DELAY_NS as libc::c_long };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let when = libc::itimerspec { it_interval: none, it_value: at };
        let start = now_ns();
        // SAFETY: the timer was made above; `when` lives until the call ends.
        unsafe { libc::timerfd_settime(timer, 0, &raw const when, std::ptr::null_mut()) };
        let mut gaps = Vec::with_capacity(4096);
        let mut before = now_ns();
        while before < start + 3 * DELAY_NS {
            let now = now_ns();
            if before > start + DELAY_NS / 2 && gaps.len() < gaps.capacity() {
                gaps.push((now - before) as f64);
            }
            before = now;
        }
        let longest = gaps.iter().copied().fold(0.0, f64::max);
        (gaps.len() >= GAPS_LEAST).then(|| (longest - median(gaps)).max(0.0))
    };
    let ns = tenth((0..30_000).filter_map(once).take(300));
    // SAFETY: the timer is this function's own.
    unsafe { libc::close(timer) };
    Ok(ns)
}

/// The time to transfer a cache line that another processor wrote last, ns: two threads write one
/// line in turn. `None` if there is only one processor.
pub fn line_transfer_ns() -> Option<f64> {
    const TURNS: u64 = 4_000;
    let all = Processors::of(0)?;
    let numbers: Vec<usize> = all.numbers().take(2).collect();
    let &[here, there] = &numbers[..] else { return None };
    let (here, there) = (all.only(here)?, all.only(there)?);
    let round = |_| {
        let line = AtomicU64::new(0);
        let ns = std::thread::scope(|scope| {
            scope.spawn(|| {
                there.give_to(0);
                (0..TURNS).for_each(|turn| take_turn(&line, 2 * turn + 1));
            });
            here.give_to(0);
            let start = Instant::now();
            (0..TURNS).for_each(|turn| take_turn(&line, 2 * turn));
            start.elapsed().as_nanos() as f64
        });
        ns / (2 * TURNS) as f64
    };
    let ns = tenth((0..ROUNDS).map(round));
    all.give_to(0);
    Some(ns)
}

/// Waits until the value of a line is `turn`, and writes the next value.
fn take_turn(line: &AtomicU64, turn: u64) {
    while line.load(SeqCst) != turn {
        std::hint::spin_loop();
    }
    line.store(turn + 1, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_takes_some_time() {
        assert!((0.5..10.0).contains(&clock_ghz()), "{}", clock_ghz());
        for (name, ns) in [
            ("syscall", syscall_ns()),
            ("getevents", empty_getevents_ns().unwrap()),
            ("switch", switch_ns().unwrap()),
            ("sleep", sleep_ns()),
            ("interrupt", interrupt_ns().unwrap()),
        ] {
            assert!(ns > 0.0 && ns < 1e7, "{name}: {ns}");
        }
        if Processors::of(0).is_some_and(|all| all.count() > 1) {
            assert!(line_transfer_ns().unwrap() > 0.0);
            assert!(wake_ns().unwrap().is_some());
        }
    }
}
