//! Runs one program with a limit and a time-out, and samples its memory.

use crate::ground::cgroup::Cgroup;
use crate::ground::janitor::{Janitor, Thing, kill_group};
use crate::ground::throttle::Throttle;
use crate::workload::{Pass, Said};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Between two samples of a program's memory, at least and at most.
const SAMPLE_INTERVAL: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// Between two looks at which processes a program has, at least and at most.
const MEMBERS_INTERVAL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// How long to wait until something is looked at again, of a program that has run for some time: a
/// twentieth of that, so that also a short program is seen near its end.
fn pause(so_far: Duration, [least, most]: [Duration; 2]) -> Duration {
    (so_far / 20).clamp(least, most)
}

/// Why a run did not end in any way.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab itself must stop.
    #[error("stopped by signal {0}")]
    Stopped(usize),
    /// The program could not be run.
    #[error("cannot run {program}: {error}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        error: io::Error,
    },
}

/// Notes SIGINT and SIGTERM, so that the lab can first remove everything. SIGHUP stays as it is,
/// ignored under nohup; if it ends the lab, the janitor removes everything.
#[derive(Clone)]
pub struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// From now on these signals are noted.
    pub fn install() -> io::Result<Stop> {
        let noted = Arc::new(AtomicUsize::new(0));
        for signal in [libc::SIGINT, libc::SIGTERM] {
            signal_hook::flag::register_usize(signal, noted.clone(), signal as usize)?;
        }
        Ok(Stop(noted))
    }

    /// Fails once a signal has arrived.
    pub fn check(&self) -> Result<(), Error> {
        match self.0.load(Relaxed) {
            0 => Ok(()),
            signal => Err(Error::Stopped(signal)),
        }
    }
}

/// The way in which a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The program completed its work.
    #[default]
    Done,
    /// The program was killed, usually because memory ran out.
    Killed,
    /// The program exceeded its time.
    TimedOut,
    /// The program failed; its last words.
    Failed(String),
}

impl End {
    /// In a word or a line.
    pub fn text(&self) -> String {
        match self {
            End::Done => "done".into(),
            End::Killed => "killed".into(),
            End::TimedOut => "timed out".into(),
            End::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// A program to run.
pub struct Job<'a> {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Additional variables of its environment.
    pub variables: Vec<(&'static str, String)>,
    /// The file for its standard output; `None` keeps the output for [`Finished::output`].
    pub output: Option<File>,
    /// The cgroup in which it runs.
    pub cgroup: Option<&'a Cgroup<'a>>,
    /// The limits of its devices.
    pub throttle: Option<&'a Throttle>,
    /// Bytes of memory outside the program's that hold its pages.
    pub beside: Option<&'a dyn Fn() -> u64>,
    /// The maximum run time.
    pub timeout: Duration,
}

/// A program that has ended.
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// The run time, seconds.
    pub seconds: f64,
    /// Its standard output, if it was kept.
    pub output: String,
    /// The peak of the anonymous memory of the program and its children, as sampled, with memory
    /// elsewhere that held their pages, bytes.
    pub resident_peak_bytes: u64,
    /// Seconds of processor time that the program and its children used.
    pub cpu_seconds: f64,
    /// Bytes that they read from devices.
    pub own_read_bytes: u64,
    /// Its exit status, if it ended by itself.
    pub code: Option<i32>,
}

impl Finished {
    /// The passes of a workload, from its output.
    pub fn passes(&self) -> Vec<Pass> {
        self.output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Its remarks, and what other programs printed for it.
    pub fn said(&self) -> (Vec<String>, Vec<String>) {
        let (mut notes, mut raw) = (Vec::new(), Vec::new());
        for said in self.output.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match said {
                Said::Note(text) => notes.push(text),
                Said::Raw(text) => raw.push(text),
            }
        }
        (notes, raw)
    }
}

/// Runs `job` to its end.
///
/// # Errors
/// It cannot be started, or `stop` says that the lab must end; then none of its processes runs.
pub fn run(janitor: &Janitor, stop: &Stop, job: Job<'_>) -> Result<Finished, Error> {
    stop.check()?;
    let program = job.program.display().to_string();
    run_inner(janitor, stop, job).map_err(|error| match error.downcast::<Error>() {
        Ok(stopped) => stopped,
        Err(error) => Error::Start { program, error },
    })
}

fn run_inner(janitor: &Janitor, stop: &Stop, job: Job<'_>) -> io::Result<Finished> {
    let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let door = job.cgroup.map(Cgroup::door).transpose()?;
    let other = job.throttle.map(Throttle::door).transpose()?.flatten();
    let doors = [&door, &other].map(|door| door.as_ref().map(|door| door.as_raw_fd()));
    let parent = std::process::id();
    let mut command = Command::new(&job.program);
    command
        .args(&job.arguments)
        .env("LC_ALL", "C")
        .envs(job.variables)
        .stdin(Stdio::null())
        .stdout(job.output.map_or_else(|| output.try_clone(), Ok)?)
        .stderr(errors.try_clone()?)
        .process_group(0);
    // SAFETY: between fork and exec there are only system calls: no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            // The child dies with the lab. A parent that died before this line is noticed below.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for door in doors.into_iter().flatten() {
                if libc::write(door, b"0".as_ptr().cast(), 1) != 1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let start = Instant::now();
    let child = command.spawn()?;
    let id = child.id() as i32;
    let group = Thing::Group(id);
    let told = janitor.tell(&group);
    let (mut watched, mut seconds, mut peak) = (Ok(End::Done), 0.0, 0);
    if told.is_ok() {
        (watched, seconds, peak) = watch(stop, id, start, job.timeout, job.beside);
    }
    // Until the lab waits for the process, its id cannot belong to another one.
    kill_group(id);
    let status = wait(id);
    janitor.gone(&group);
    told?;
    let watched = watched.map_err(io::Error::other)?;
    let (status, usage) = status?;
    let end = match watched {
        End::Done => judge(status, &mut errors)?,
        other => other,
    };
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    Ok(Finished {
        end,
        seconds,
        output: String::from_utf8_lossy(&text).into_owned(),
        resident_peak_bytes: peak,
        cpu_seconds: seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
        own_read_bytes: u64::try_from(usage.ru_inblock).unwrap_or(0) * 512,
        code: status.code(),
    })
}

fn seconds_of(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

/// Waits for a child, and returns the resources that it and its children used.
fn wait(id: i32) -> io::Result<(ExitStatus, libc::rusage)> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain data, for which zeros are a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both point to values of ours that live through the call.
        if unsafe { libc::wait4(id, &mut status, 0, &mut usage) } == id {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Samples the group's memory until its leader ends, the time is over or the lab must stop.
fn watch(
    stop: &Stop,
    id: i32,
    start: Instant,
    timeout: Duration,
    beside: Option<&dyn Fn() -> u64>,
) -> (Result<End, Error>, f64, u64) {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        await_end(id);
        // The lab may have stopped listening.
        let _ = ended.send(Instant::now());
    });
    let mut members = vec![id];
    let (mut looked, mut peak) = (Duration::ZERO, 0);
    loop {
        match end.recv_timeout(pause(start.elapsed(), SAMPLE_INTERVAL)) {
            Ok(at) => return (Ok(End::Done), (at - start).as_secs_f64(), peak),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return (Ok(End::Failed("its end was not seen".into())), start.elapsed().as_secs_f64(), peak);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let seconds = start.elapsed().as_secs_f64();
        if let Err(stopped) = stop.check() {
            return (Err(stopped), seconds, peak);
        }
        if start.elapsed() > timeout {
            return (Ok(End::TimedOut), seconds, peak);
        }
        let so_far = start.elapsed();
        if so_far >= looked + pause(so_far, MEMBERS_INTERVAL) {
            (members, looked) = (group_members(id), so_far);
        }
        let own: u64 = members.iter().map(|id| resident_bytes(*id)).sum();
        peak = peak.max(own + beside.map_or(0, |beside| beside()));
    }
}

/// Waits for the end of a child, which can be waited for again.
fn await_end(id: i32) {
    loop {
        // SAFETY: siginfo_t is plain data, for which zeros are a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is ours to write to and lives through the call.
        let answer =
            unsafe { libc::waitid(libc::P_PID, id as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT) };
        if answer == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}

/// Ids of the processes of a group.
fn group_members(group: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![group] };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id: &i32| {
        // "ID (NAME) STATE PARENT GROUP ...", where NAME may contain anything.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
        fields.and_then(|fields| fields.split_whitespace().nth(2)?.parse().ok()) == Some(group)
    })
    .collect()
}

/// Anonymous memory of a process that is in memory, bytes; 0 if it has ended.
fn resident_bytes(id: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    fields(&status).get("RssAnon").copied().unwrap_or(0)
}

/// Lines like `MemTotal:  123 kB`, in bytes.
pub fn fields(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some((name, kilobytes * 1024))
        })
        .collect()
}

fn judge(status: ExitStatus, errors: &mut File) -> io::Result<End> {
    // A program that reports its child's death by signal 9 exits with 128 + 9.
    if status.signal() == Some(libc::SIGKILL) || status.code() == Some(128 + libc::SIGKILL) {
        return Ok(End::Killed);
    }
    if status.success() {
        return Ok(End::Done);
    }
    let mut text = Vec::new();
    errors.rewind()?;
    errors.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Ok(End::Failed(format!("{status}: {}", last.trim())))
}

#[cfg(test)]
mod tests {
    use super::{MEMBERS_INTERVAL, SAMPLE_INTERVAL, pause};
    use std::time::Duration;

    #[test]
    fn short_programs_are_sampled_often_and_long_ones_seldom() {
        let ms = Duration::from_millis;
        let sample = |so_far| pause(ms(so_far), SAMPLE_INTERVAL);
        assert_eq!([0, 20, 100, 60_000].map(sample), [ms(1), ms(1), ms(5), ms(50)]);
        assert_eq!(pause(ms(60_000), MEMBERS_INTERVAL), ms(500));
    }
}
