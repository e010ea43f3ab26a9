//! Runs and watches programs: the time that they took, their processor time, the most memory that
//! they had.

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Notes SIGINT and SIGTERM while it exists, so that the caller can clean up first.
pub struct Stop {
    noted: Arc<AtomicBool>,
    ids: Vec<SigId>,
}

impl Stop {
    /// From now on these signals are noted.
    ///
    /// # Errors
    /// The operating system's errors.
    pub fn install() -> io::Result<Stop> {
        let mut stop = Stop { noted: Arc::default(), ids: Vec::new() };
        for signal in [SIGINT, SIGTERM] {
            stop.ids.push(signal_hook::flag::register(signal, stop.noted.clone())?);
        }
        Ok(stop)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| {
            signal_hook::low_level::unregister(*id);
        });
    }
}

const LOOK: Duration = Duration::from_millis(5);

/// A program that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// The time that it took, seconds.
    pub seconds: f64,
    /// Its processor time, with that of children for which it waited, seconds.
    pub cpu_s: f64,
    /// The most memory that it had at once, bytes, as far as seen; children are not counted.
    pub peak_bytes: u64,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
}

/// Runs a program until it ends, and checks it now and then. `look` receives the elapsed seconds.
/// The program is killed after `limit`, or if a signal arrives.
///
/// # Errors
/// The operating system's error at the start, or a signal.
pub fn watch(
    command: &mut Command,
    limit: Option<Duration>,
    stop: &Stop,
    mut look: impl FnMut(f64),
) -> io::Result<Ended> {
    let start = Instant::now();
    let mut child = command.spawn()?;
    let (done, mut peak_bytes) = (AtomicBool::new(false), 0);
    let (mut killed, mut timed_out) = (false, false);
    let (mut seconds, mut cpu_s) = (0.0, 0.0);
    let id = child.id();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ended = await_end(&child, start);
            done.store(true, Relaxed);
            ended
        });
        while !done.load(Relaxed) {
            peak_bytes = peak_bytes.max(peak(id));
            look(start.elapsed().as_secs_f64());
            let late = limit.is_some_and(|limit| start.elapsed() > limit);
            if (late || stop.noted.load(Relaxed)) && !killed {
                (killed, timed_out) = (true, late);
                if let Some(pid) = Pid::from_raw(id as i32) {
                    // The process may just have ended.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            thread::park_timeout(LOOK);
        }
        (seconds, cpu_s) = waiter.join().unwrap_or((0.0, 0.0));
    });
    let status = child.wait()?;
    if stop.noted.load(Relaxed) {
        return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped by a signal"));
    }
    Ok(Ended { status, seconds, cpu_s, peak_bytes, timed_out })
}

/// Runs a program, keeps its output, and returns its processor time in seconds.
///
/// # Errors
/// The operating system's error at the start.
pub fn output(mut command: Command) -> io::Result<(Output, f64)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        scope.spawn(|| err.map(|mut err| err.read_to_end(&mut stderr)));
        out.map(|mut out| out.read_to_end(&mut stdout))
    });
    let (_, cpu_s) = await_end(&child, Instant::now());
    let status = child.wait()?;
    Ok((Output { status, stdout, stderr }, cpu_s))
}

/// Waits for the end of a child without reaping it, and returns the seconds since `start` and the
/// processor time.
fn await_end(child: &Child, start: Instant) -> (f64, f64) {
    let Some(pid) = Pid::from_raw(child.id() as i32) else { return (0.0, 0.0) };
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    let seconds = start.elapsed().as_secs_f64();
    (seconds, cpu(child.id()))
}

/// Processor time of a process and of children for which it waited, seconds.
fn cpu(id: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // "ID (NAME) STATE PARENT ...", where NAME may hold anything; the times are fields 14 to 17.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The most memory that a process has had so far, bytes; 0 if the process is gone.
fn peak(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().map_or(0, |kib| kib * 1024)
}

/// Says why this machine is too busy to measure now: more processes run than it has processors.
/// `None` if it is idle, or if its load cannot be read.
pub fn busy() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let processors = terapage_figures::processors();
    // The measurement itself is part of the load.
    (load > processors as f64 + 1.0)
        .then(|| format!("the machine is busy: a load of {load:.1} on {processors} processors"))
}
