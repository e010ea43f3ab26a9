//! The load of processors, measured in three ways.
//!
//! A thread of the lowest priority on each processor counts the turns of its loop. The turns that
//! it lacks, compared with a run alone, are the time of other work, with interrupts and the
//! kernel's own threads. This needs no performance counters, and works in any virtual machine;
//! fio's `idle-prof` does it too. For comparison there are the thread's own clock (perf's
//! task-clock), and the ticks of /proc/stat.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Turns of the loop within one count.
const PIECE: u32 = 256;

/// The same for single I/Os: some tens of instructions.
const FINE_PIECE: u32 = 4;

/// Counts in a piece of the calibration, and the number of pieces.
const PACE_COUNTS: u64 = 4000;
const PACE_PIECES: usize = 100;

/// A count in a separate cache line.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64);

/// Threads that use the remaining time of each processor.
pub struct Spinners {
    counts: Arc<Vec<Count>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Counts at one time.
pub struct Spun {
    counts: Vec<u64>,
    at: Instant,
}

/// Turns per second of each processor, alone.
#[derive(Clone, Debug)]
pub struct Alone(pub Vec<f64>);

/// Counts up to `until`, or until `over` is set. This is one function that is never inlined, so
/// that its work for a count is the same for all callers.
#[inline(never)]
fn count_up(count: &AtomicU64, until: u64, piece: u32, over: &AtomicBool) {
    while !over.load(Relaxed) && count.load(Relaxed) < until {
        for turn in 0..piece {
            std::hint::black_box(turn);
        }
        count.fetch_add(1, Relaxed);
    }
}

impl Spinners {
    /// One spinner on each processor that the lab may use.
    pub fn start() -> Spinners {
        Spinners::with_pieces(PIECE, None)
    }

    /// The same with small counts, and the greatest speed of each, when nothing interrupts it, not
    /// even the clock's ticks: the fastest of many short pieces. If a clock counts instructions,
    /// that is the same number each time.
    ///
    /// # Errors
    /// A thread ends.
    pub fn start_fine() -> Result<(Spinners, Alone), mpsc::RecvError> {
        let (told, paces) = mpsc::channel();
        let spinners = Spinners::with_pieces(FINE_PIECE, Some(told));
        let all: Result<Vec<f64>, _> = spinners.threads.iter().map(|_| paces.recv()).collect();
        Ok((spinners, Alone(all?)))
    }

    fn with_pieces(piece: u32, told: Option<mpsc::Sender<f64>>) -> Spinners {
        let processors = processors();
        let counts: Arc<Vec<Count>> = Arc::new(processors.iter().map(|_| Count::default()).collect());
        let over = Arc::new(AtomicBool::new(false));
        let threads = processors
            .into_iter()
            .enumerate()
            .map(|(i, processor)| {
                let (counts, over, told) = (counts.clone(), over.clone(), told.clone());
                thread::spawn(move || {
                    lowest(processor);
                    let count = &counts[i].0;
                    if let Some(told) = told {
                        let fastest = (0..PACE_PIECES).map(|_| {
                            let start = Instant::now();
                            count_up(count, count.load(Relaxed) + PACE_COUNTS, piece, &over);
                            PACE_COUNTS as f64 / start.elapsed().as_secs_f64()
                        });
                        // There may no longer be a receiver.
                        let _ = told.send(fastest.fold(0.0, f64::max));
                    }
                    count_up(count, u64::MAX, piece, &over);
                })
            })
            .collect();
        Spinners { counts, over, threads }
    }

    /// The present counts.
    pub fn now(&self) -> Spun {
        Spun { counts: self.counts.iter().map(|count| count.0.load(Relaxed)).collect(), at: Instant::now() }
    }

    /// The speed of each while this thread sleeps.
    pub fn alone(&self, time: Duration) -> Alone {
        let before = self.now();
        thread::sleep(time);
        let after = self.now();
        let seconds = (after.at - before.at).as_secs_f64();
        let each = after.counts.iter().zip(&before.counts);
        Alone(each.map(|(after, before)| (after - before) as f64 / seconds).collect())
    }

    /// The seconds that other work used between two times, of all processors together.
    pub fn busy_s(before: &Spun, after: &Spun, alone: &Alone) -> f64 {
        let seconds = (after.at - before.at).as_secs_f64();
        let each = after.counts.iter().zip(&before.counts).zip(&alone.0);
        each.map(|((after, before), alone)| seconds - (after - before) as f64 / alone).sum::<f64>().max(0.0)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // The thread cannot fail.
            let _ = thread.join();
        }
    }
}

impl Alone {
    /// The mean of two.
    pub fn mean(&self, other: &Alone) -> Alone {
        Alone(self.0.iter().zip(&other.0).map(|(one, two)| (one + two) / 2.0).collect())
    }

    /// The difference of two values, as a share.
    pub fn distance(&self, other: &Alone) -> f64 {
        let all = |alone: &Alone| alone.0.iter().sum::<f64>();
        (all(self) / all(other)).ln().abs()
    }
}

/// The processors that this thread may use; at least one.
pub fn processors() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain data, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours to write to, and has that size.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return vec![0];
    }
    // SAFETY: the set has this many members.
    (0..libc::CPU_SETSIZE as usize).filter(|i| unsafe { libc::CPU_ISSET(*i, &set) }).collect()
}

/// Binds this thread to a processor. If that is refused, the thread runs on any processor that it
/// may use.
pub fn run_on(processor: usize) {
    if processor >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: cpu_set_t is plain data, for which zeros are a value; the set has this member; the
    // call reads the set, receives its size, and affects only this thread (0).
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Binds this thread to a processor, and lets it run only when no other thread wants to. Its
/// niceness counts its time in a separate column of /proc/stat.
fn lowest(processor: usize) {
    run_on(processor);
    // SAFETY: sched_param is plain data, for which zeros are a value; the calls read it, and affect
    // only this thread (0). If a call is refused the figures are less exact.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters);
    }
}

/// The clock of the thread that opened it.
pub enum TaskClock {
    /// perf's.
    Perf(File),
    /// The C library's clock, if perf is not allowed.
    Thread,
}

/// linux/perf_event.h: a software event, and the number of this clock.
const PERF_TYPE_SOFTWARE: u64 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
/// Bytes of the first form of `struct perf_event_attr`, which suffices.
const PERF_ATTR_SIZE_VER0: u64 = 64;

impl TaskClock {
    /// The clock of this thread.
    pub fn open() -> TaskClock {
        // Type and size share the first word.
        let mut attributes = [0u64; 8];
        attributes[0] = PERF_TYPE_SOFTWARE | PERF_ATTR_SIZE_VER0 << 32;
        attributes[1] = PERF_COUNT_SW_TASK_CLOCK;
        // SAFETY: the attributes have the length that they state, and live through the call; 0 and
        // -1 mean this thread on any processor.
        let number =
            unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 8u64) };
        match i32::try_from(number) {
            // SAFETY: the kernel has just created it, and it has no other owner.
            Ok(number) if number >= 0 => TaskClock::Perf(unsafe { File::from_raw_fd(number) }),
            _ => TaskClock::Thread,
        }
    }

    /// Nanoseconds that the thread has run.
    pub fn ns(&mut self) -> u64 {
        let mut value = [0; 8];
        if let TaskClock::Perf(file) = self
            && file.read_exact(&mut value).is_ok()
        {
            return u64::from_ne_bytes(value);
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is ours to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// Seconds that all processors were busy since the boot, without time at a lower priority (nice).
pub fn ticks_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // SAFETY: sysconf takes a constant.
    let by_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    busy_ticks(&stat) as f64 / by_s.max(1) as f64
}

/// user, system, irq and softirq of the first line.
fn busy_ticks(stat: &str) -> u64 {
    let first = stat.lines().next().unwrap_or_default();
    let values: Vec<u64> = first.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    [0, 2, 5, 6].iter().filter_map(|i| values.get(*i)).sum()
}

#[cfg(test)]
mod tests {
    use super::{Alone, Spinners, Spun, TaskClock, busy_ticks};
    use std::time::{Duration, Instant};

    #[test]
    fn what_spinners_lack_others_have_had() {
        let at = Instant::now();
        let before = Spun { counts: vec![10, 20], at };
        let after = Spun { counts: vec![110, 70], at: at + Duration::from_secs(1) };
        let busy = Spinners::busy_s(&before, &after, &Alone(vec![100.0, 100.0]));
        assert!((busy - 0.5).abs() < 1e-9, "{busy}");
        // A count that is faster than alone means not busy at all.
        assert_eq!(Spinners::busy_s(&before, &after, &Alone(vec![50.0, 50.0])), 0.0);
    }

    #[test]
    fn ticks_of_the_nice_and_the_stolen_do_not_count() {
        assert_eq!(busy_ticks("cpu  100 5000 50 800 20 1 4 20 60 3\n"), 155);
        assert_eq!(busy_ticks(""), 0);
    }

    #[test]
    fn a_thread_that_works_has_a_clock_that_goes() {
        let mut clock = TaskClock::open();
        let before = clock.ns();
        let mut sum = 0u64;
        for i in 0..2_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(clock.ns() > before, "{sum}");
    }
}
