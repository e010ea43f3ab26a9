//! Runs and watches programs: the time that they took, their processor time, the most memory that
//! they had.

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
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
/// The processes that a program has started are looked for at each of this many looks.
const LOOKS_FOR_CHILDREN: usize = 8;

/// A program that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// The time that it took, seconds.
    pub seconds: f64,
    /// Its processor time, with that of children for which it waited, seconds.
    pub cpu_s: f64,
    /// The most memory that the largest of its processes had at once, bytes, as far as seen.
    pub peak_bytes: u64,
    /// The most memory of its own, without files, that one of its processes had at once, bytes, as
    /// far as seen.
    pub own_bytes: u64,
    /// The sum of the peaks of its other processes, bytes, as far as seen.
    pub others_bytes: u64,
    /// Whether it was killed because its time was up.
    pub timed_out: bool,
}

/// Runs a program until it ends, and checks it now and then. `look` receives the elapsed seconds.
/// The program and the processes that it started are killed after `limit`, or if a signal arrives.
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
    // A group of its own, so that what it started can be killed with it.
    let mut child = command.process_group(0).spawn()?;
    let (done, mut peaks, mut looks) = (AtomicBool::new(false), HashMap::new(), 0);
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
            match looks % LOOKS_FOR_CHILDREN {
                0 => note_peaks(id, &mut peaks),
                _ => note_peak(id, &mut peaks),
            }
            looks += 1;
            look(start.elapsed().as_secs_f64());
            let late = limit.is_some_and(|limit| start.elapsed() > limit);
            if (late || stop.noted.load(Relaxed)) && !killed {
                (killed, timed_out) = (true, late);
                if let Some(pid) = Pid::from_raw(id as i32) {
                    // The processes may just have ended.
                    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
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
    let most = |of: fn(&Memory) -> u64| peaks.values().map(of).max().unwrap_or(0);
    let (peak_bytes, own_bytes) = (most(|memory| memory.peak_bytes), most(|memory| memory.own_bytes));
    let others_bytes = peaks.values().map(|memory| memory.peak_bytes).sum::<u64>() - peak_bytes;
    Ok(Ended { status, seconds, cpu_s, peak_bytes, own_bytes, others_bytes, timed_out })
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

/// The memory of a process, as far as seen.
#[derive(Clone, Copy, Default)]
struct Memory {
    /// The most that it had at once, bytes.
    peak_bytes: u64,
    /// The most of its own, without files, bytes.
    own_bytes: u64,
}

/// Notes the memory of a process, if it has not ended.
fn note_peak(id: u32, peaks: &mut HashMap<u32, Memory>) {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().map_or(0, |kib| kib * 1024)
    };
    let noted = peaks.entry(id).or_default();
    noted.peak_bytes = noted.peak_bytes.max(bytes("VmHWM:"));
    noted.own_bytes = noted.own_bytes.max(bytes("RssAnon:") + bytes("RssShmem:"));
}

/// Notes the peaks of a process and of all that it started. A kernel without lists of children
/// shows the process alone.
fn note_peaks(id: u32, peaks: &mut HashMap<u32, Memory>) {
    let mut left = vec![id];
    while let Some(id) = left.pop() {
        note_peak(id, peaks);
        for thread in fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            left.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::{Stop, watch};
    use std::process::Command;
    use std::time::Duration;

    /// Whether a process runs.
    fn runs(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    #[test]
    fn the_memory_of_children_is_seen_and_they_are_killed_in_time() {
        let (stop, place) = (Stop::install().unwrap(), tempfile::tempdir().unwrap());
        let child = place.path().join("child");
        let mut command = Command::new("sh");
        // `tail` holds the whole line in memory, since nobody reads what it writes.
        command
            .arg("-c")
            .arg("sleep 600 & echo $! > \"$0\"; head -c 48000000 /dev/zero | tail -n 1 | sleep 600");
        command.arg(&child);
        let ended = watch(&mut command, Some(Duration::from_secs(15)), &stop, |_| {}).unwrap();
        assert!(ended.timed_out && ended.peak_bytes > 40_000_000, "{ended:?}");
        assert!(ended.others_bytes > 0 && ended.others_bytes < ended.peak_bytes, "{ended:?}");
        // `tail` is larger than its own memory by the files that it maps.
        assert!(ended.own_bytes > 40_000_000 && ended.own_bytes < ended.peak_bytes, "{ended:?}");
        let child = std::fs::read_to_string(child).unwrap();
        while runs(&child) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
