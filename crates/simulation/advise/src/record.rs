//! Runs a program natively and then recorded.
//!
//! A recording should contain as many touches as possible, but also end in time. So the program
//! keeps all of its memory, but only a part of it, the *window*, is in its address space at a time;
//! the rest is soft. A touch outside the window costs a minor fault and leaves a record, but
//! nothing is read from the store. The window is reduced as long as the recordings end in time.

use crate::child::{self, Ended, Stop};
use crate::recording::{self, Recording};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Other processes are worth a word if together they had more than this part of the largest one's
/// memory. Chosen, not measured.
const OTHERS_PART: u64 = 8;

/// Programs that use fewer bytes are not worth paging. Chosen, not measured.
const LEAST_BYTES: u64 = 8 * MIB;

/// The sizes of the windows as shares of the program's memory, per mille. The first one is large,
/// because it costs little: a program whose objects are scattered (a table of LuaJIT, sorted) took
/// 1.8 times its processor time with 900, 13 times with 800 and 30 times with 570. Further down the
/// steps are small, because below the knee of a program a slightly smaller window makes recordings
/// many times longer.
const WINDOWS_PER_MILLE: [u64; 11] = [900, 700, 590, 500, 415, 350, 290, 240, 200, 165, 140];
/// The window of a single recording.
const QUICK: usize = 3;

/// The policy that decides which blocks are in the window. It only has to keep the blocks that are
/// in use there, and it learns of each touch of another block. With CLOCK, GNU sort of 60 MB took 3
/// s with a window of 31 %; with the default, which is made for few soft frames, it took 17 s.
const RECORDING_POLICY: &str = "clock";

/// The factor by which the time that recording adds is expected to grow with the next window. It
/// was 1.8 for GNU sort.
const GROWTH: f64 = 2.0;
/// The least time that a recording is expected to add, as a part of the native time. Chosen, not
/// measured.
const LEAST_ADDED: f64 = 0.005;

/// The time for the first recording, if no limit is given.
const FIRST_MOST: Duration = Duration::from_secs(60);
/// All recordings together may take `RECORD_FACTOR` times the native time (two recordings, and what
/// recording adds), but not less and not more than these numbers of seconds. Chosen, not measured.
const RECORD_FACTOR: f64 = 3.0;
const RECORD_LEAST_S: f64 = 3.0;
const RECORD_MOST_S: f64 = 60.0;

/// Native runs that take less than this are repeated, unless one is enough: there are three runs at
/// most. Chosen, not measured.
const SHORT_S: f64 = 3.0;
const RUNS_MOST: usize = 3;
/// Two native runs agree within this share, and one that waited for no more than this share of its
/// time did not wait: the error that predictions state for the native time anyway.
const AGREE: f64 = 0.05;

/// Why a recording failed. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be run.
    #[error("{program}: {cause}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        cause: io::Error,
    },
    /// The program fails by itself.
    #[error("{program} failed ({how}): {said}")]
    Failed {
        /// The program.
        program: String,
        /// In which run.
        how: String,
        /// Its last words.
        said: String,
    },
    /// The program needs no paging.
    #[error("{program} used {used_mib:.1} MiB: too little to be worth paging (advice begins at 8 MiB)")]
    Small {
        /// The program.
        program: String,
        /// The memory that it used, MiB.
        used_mib: f64,
    },
    /// Not even the first recording ended.
    #[error(
        "no recording of {program} ended within {seconds:.0} s, since it touches its memory in no order \
         (raise --timeout, or measure it instead: terapage lab program -- {program} ...)"
    )]
    Slow {
        /// The program.
        program: String,
        /// The time that it was given.
        seconds: f64,
    },
    /// Something temporary cannot be written.
    #[error("a temporary file: {cause}")]
    Temporary {
        /// Why.
        cause: io::Error,
    },
    /// The trace is of no use.
    #[error(transparent)]
    Trace(#[from] recording::Error),
}

// Not a source: its text is in the message already, and would be shown twice.
impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::Temporary { cause }
    }
}

/// The time that recordings may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The user's limit for all of them; `None` for a limit that depends on the native time.
    pub asked: Option<Duration>,
    /// One recording, no more.
    pub quick: bool,
}

impl Limits {
    /// The first recording, without which there is nothing.
    fn first(&self) -> Duration {
        self.asked.unwrap_or(FIRST_MOST)
    }

    /// The limit for all recordings of a program that takes this many seconds: a short program has
    /// as much to learn about as a long one, so it is recorded for relatively longer.
    pub fn all(&self, native_s: f64) -> Duration {
        let own = Duration::from_secs_f64((native_s * RECORD_FACTOR).clamp(RECORD_LEAST_S, RECORD_MOST_S));
        self.asked.unwrap_or(own)
    }
}

/// A program and the way to run it.
pub struct Program {
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
    /// The terapage command.
    pub terapage: PathBuf,
    /// The store.
    pub store: PathBuf,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The time for the first recording, and for all of them together.
    pub limits: Limits,
    /// Whether to stop.
    pub stop: Stop,
}

/// A program's recording.
pub struct Recorded {
    /// What was recorded last.
    pub recording: Recording,
    /// Its trace.
    pub trace: PathBuf,
    /// The time that all recordings took, seconds.
    pub seconds: f64,
    /// The most bytes of files that a process of the program mapped only to read.
    pub mapped_bytes: u64,
}

/// A program's native run.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    /// The time that it took, seconds; for a short program the median of up to three runs.
    pub seconds: f64,
    /// Processor time over time, at least 1.
    pub parallelism: f64,
    /// The most memory that the largest of its processes had, bytes.
    pub peak_bytes: u64,
    /// The most memory of its own, without files, that one of its processes had, bytes.
    pub own_bytes: u64,
    /// The sum of the peaks of its other processes, bytes.
    pub others_bytes: u64,
}

impl Native {
    /// What the advice leaves out.
    pub fn note(&self) -> Option<String> {
        (self.others_bytes > self.peak_bytes / OTHERS_PART).then(|| {
            format!(
                "the largest process had {} MiB, all others together had peaks of {} MiB: the advice is for the largest alone; \
                 --memory of terapage run is for all together",
                self.peak_bytes / MIB,
                self.others_bytes / MIB
            )
        })
    }
}

impl Program {
    fn name(&self) -> String {
        self.command.first().map_or_else(String::new, |name| name.display().to_string())
    }

    fn failed(&self, how: &str, ended: &Ended, errors: &mut File) -> Error {
        let mut said = String::new();
        // Output that cannot be read is not shown.
        let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut said));
        let said =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        Error::Failed { program: self.name(), how: format!("{how}, {}", ended.status), said }
    }

    /// Runs it natively. Its output is discarded. `look` receives the elapsed seconds.
    ///
    /// # Errors
    /// A program that cannot be run, fails, or is small.
    pub fn time(&self, mut look: impl FnMut(f64)) -> Result<Native, Error> {
        let mut runs: Vec<Ended> = Vec::new();
        loop {
            let mut errors = tempfile::tempfile()?;
            let mut command =
                Command::new(self.command.first().map_or(std::ffi::OsStr::new(""), OsString::as_os_str));
            command.args(self.command.iter().skip(1));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
            let ended = child::watch(&mut command, None, &self.stop, &mut look)
                .map_err(|cause| Error::Start { program: self.name(), cause })?;
            if !ended.status.success() {
                return Err(self.failed("natively", &ended, &mut errors));
            }
            runs.push(ended);
            if are_enough(&runs) {
                break;
            }
        }
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        // The quicker one of two that agree.
        let median = runs[(runs.len() - 1) / 2];
        let most = |bytes: fn(&Ended) -> u64| runs.iter().map(bytes).max().unwrap_or(0);
        let (peak_bytes, own_bytes) = (most(|run| run.peak_bytes), most(|run| run.own_bytes));
        let others_bytes = most(|run| run.others_bytes);
        if peak_bytes < LEAST_BYTES {
            return Err(Error::Small { program: self.name(), used_mib: peak_bytes as f64 / MIB as f64 });
        }
        let parallelism = (median.cpu_s / median.seconds.max(1e-6)).max(1.0);
        Ok(Native { seconds: median.seconds, parallelism, peak_bytes, own_bytes, others_bytes })
    }

    /// Records it with ever smaller windows, as long as each recording will probably end in time.
    /// The traces are kept in `directory`. `look` receives the window in bytes and the elapsed
    /// seconds.
    ///
    /// # Errors
    /// The errors of [`time`](Self::time), or a recording that does not end.
    pub fn record(
        &self,
        native: &Native,
        directory: &Path,
        mut look: impl FnMut(u64, f64),
    ) -> Result<Recorded, Error> {
        let all = self.limits.all(native.seconds).as_secs_f64();
        let first = if self.limits.quick { QUICK } else { 0 };
        let (mut best, mut at, mut spent, mut mapped_bytes) = (None, first, 0.0, 0);
        while let Some(per_mille) = WINDOWS_PER_MILLE.get(at) {
            let window = (native.own_bytes * per_mille / 1000).max(16 * self.block_bytes);
            let trace = directory.join(format!("window-{per_mille}.trace"));
            let limit = match at == first {
                true => self.limits.first(),
                false => Duration::from_secs_f64(all - spent),
            };
            let look = |seconds: f64| look(window, spent + seconds);
            let Some(ended) = self.record_once(native, window, &trace, limit, look)? else { break };
            best = Some(longest(&trace));
            spent += ended.seconds;
            mapped_bytes = mapped(&trace);
            let step = next_window(ended.seconds, native.seconds, all - spent);
            if self.limits.quick || step == 0 {
                break;
            }
            at = (at + step).min(WINDOWS_PER_MILLE.len() - 1).max(at + 1);
        }
        let slow = Error::Slow { program: self.name(), seconds: self.limits.first().as_secs_f64() };
        let trace = best.ok_or(slow)?;
        Ok(Recorded { recording: Recording::open(&trace)?, trace, seconds: spent, mapped_bytes })
    }

    /// One recording; `None` if it did not end in time.
    fn record_once(
        &self,
        native: &Native,
        window: u64,
        trace: &Path,
        limit: Duration,
        look: impl FnMut(f64),
    ) -> Result<Option<Ended>, Error> {
        let mut errors = tempfile::tempfile()?;
        // Room for everything, so that nothing is read back.
        let all = native.peak_bytes + native.others_bytes;
        let budget = (all + all / 8 + 16 * MIB).next_multiple_of(MIB);
        let soft_per_mille = 1000 - (window * 1000 / budget).clamp(1, 900);
        let mut command = Command::new(&self.terapage);
        command.env("TERAPAGE_START_BYTES", "0").env("TERAPAGE_SOFT_PER_MILLE", soft_per_mille.to_string());
        command.args([
            "run",
            "--require",
            "--memory",
            &budget.to_string(),
            "--block",
            &self.block_bytes.to_string(),
        ]);
        command.args(["--policy", RECORDING_POLICY, "--prefetch", "off", "--store"]).arg(&self.store);
        command.arg("--trace").arg(trace).arg("--stats").arg(counters(trace)).arg("--").args(&self.command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
        let ended = child::watch(&mut command, Some(limit), &self.stop, look)
            .map_err(|cause| Error::Start { program: self.terapage.display().to_string(), cause })?;
        if ended.timed_out {
            return Ok(None);
        }
        if !ended.status.success() {
            return Err(self.failed("recorded", &ended, &mut errors));
        }
        Ok(Some(ended))
    }
}

/// Whether no further native run is needed: the last one was long, or one thread worked all the
/// time (so neither a disk nor other programs kept it waiting), or two agree.
fn are_enough(runs: &[Ended]) -> bool {
    let Some(last) = runs.last() else { return false };
    let is_near = |one: f64, other: f64| (one - other).abs() <= AGREE * other;
    let agree = runs[..runs.len() - 1].iter().any(|run| is_near(run.seconds, last.seconds));
    last.seconds > SHORT_S || runs.len() == RUNS_MOST || is_near(last.cpu_s, last.seconds) || agree
}

/// The longest of the traces of a recording: a program that executes another one, as `env`, a shim
/// or a script does, leaves a trace of its own, and the later ones have numbers at the end.
fn longest(trace: &Path) -> PathBuf {
    let prefix = trace.file_name().map(|name| [name.as_bytes(), b"."].concat()).unwrap_or_default();
    let entries = trace.parent().and_then(|place| place.read_dir().ok()).into_iter().flatten().flatten();
    let others = entries.filter(|entry| entry.file_name().as_bytes().starts_with(&prefix));
    let others = others.filter_map(|entry| Some((entry.metadata().ok()?.len(), entry.path())));
    let own = trace.metadata().map_or(0, |found| found.len());
    let longest = others.chain([(own, trace.to_owned())]).max_by_key(|(bytes, _)| *bytes);
    longest.map_or_else(|| trace.to_owned(), |(_, path)| path)
}

/// The file of the counters beside a trace.
fn counters(trace: &Path) -> PathBuf {
    trace.with_extension("json")
}

/// The most bytes of files that one process of a recording mapped only to read, and that the kernel
/// kept.
fn mapped(trace: &Path) -> u64 {
    let name = counters(trace);
    let prefix = name.file_name().map(OsStr::as_bytes).unwrap_or_default();
    let entries = name.parent().and_then(|place| place.read_dir().ok()).into_iter().flatten().flatten();
    let counters = entries.filter(|entry| entry.file_name().as_bytes().starts_with(prefix));
    let read = |path: PathBuf| {
        let counters: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        counters["unpaged_files_peak_bytes"].as_u64()
    };
    counters.filter_map(|entry| read(entry.path())).max().unwrap_or(0)
}

/// How many windows further down the next recording is, after one that took `seconds` of a program
/// that takes `native` seconds, where `left` seconds are left. 0 if there is no time for one.
fn next_window(seconds: f64, native: f64, left: f64) -> usize {
    let added = (seconds - native).max(native * LEAST_ADDED).max(0.001);
    let growth = (left - native) / added;
    if growth < GROWTH { 0 } else { growth.log(GROWTH).floor() as usize }
}

#[cfg(test)]
mod tests {
    use super::{Limits, are_enough, longest, mapped, next_window};
    use crate::child::Ended;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    #[test]
    fn native_runs_are_repeated_only_if_that_says_more() {
        let run = |seconds: f64, cpu_s: f64| Ended {
            status: ExitStatus::from_raw(0),
            seconds,
            cpu_s,
            peak_bytes: 0,
            own_bytes: 0,
            others_bytes: 0,
            timed_out: false,
        };
        assert!(!are_enough(&[]));
        // It worked all the time.
        assert!(are_enough(&[run(0.80, 0.78)]));
        // It waited, for a disk or for other programs, or several threads worked.
        for cpu_s in [0.6, 1.5] {
            assert!(!are_enough(&[run(0.80, cpu_s)]));
            assert!(!are_enough(&[run(0.80, cpu_s), run(0.70, cpu_s)]));
            assert!(are_enough(&[run(0.80, cpu_s), run(0.78, cpu_s)]));
            assert!(are_enough(&[run(0.80, cpu_s), run(0.70, cpu_s), run(0.60, cpu_s)]));
            // A long run is not repeated.
            assert!(are_enough(&[run(3.1, cpu_s)]));
        }
        // The first and the third agree.
        assert!(are_enough(&[run(0.80, 0.6), run(0.70, 0.6), run(0.79, 0.6)]));
    }

    #[test]
    fn recordings_together_are_bounded_by_the_programs_own_time() {
        let limits = Limits { asked: None, quick: false };
        assert_eq!(limits.all(4.0), Duration::from_secs(12));
        assert_eq!(limits.all(0.01), Duration::from_secs(3));
        assert_eq!(limits.all(100.0), Duration::from_secs(60));
        let asked = Limits { asked: Some(Duration::from_secs(300)), quick: false };
        assert_eq!((asked.all(0.8), asked.first()), (Duration::from_secs(300), Duration::from_secs(300)));
    }

    #[test]
    fn the_trace_of_what_a_shim_executes_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("window-500.trace");
        let write =
            |name: &str, bytes: usize| std::fs::write(place.path().join(name), vec![0; bytes]).unwrap();
        write("window-500.trace", 30);
        write("window-415.trace", 999);
        assert_eq!(longest(&trace), trace);
        write("window-500.trace.812", 500);
        write("window-500.trace.813", 40);
        assert_eq!(longest(&trace), place.path().join("window-500.trace.812"));
    }

    #[test]
    fn the_process_that_maps_most_counts() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("window-500.trace");
        assert_eq!(mapped(&trace), 0);
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
        write("window-500.json", r#"{"unpaged_files_peak_bytes":5}"#);
        write("window-500.json.812", r#"{"unpaged_files_peak_bytes":70}"#);
        write("window-500.json.813", "broken");
        write("window-415.json", r#"{"unpaged_files_peak_bytes":999}"#);
        assert_eq!(mapped(&trace), 70);
    }

    #[test]
    fn windows_that_would_be_passed_through_are_not_recorded() {
        // Of 3 s in all: the first recording added little, or something, or so much that another
        // one would not end.
        assert_eq!(next_window(1.001, 1.0, 1.999), 7);
        assert_eq!(next_window(1.1, 1.0, 1.9), 3);
        assert_eq!(next_window(1.8, 1.0, 1.2), 0);
        // With a limit of 60 s.
        assert_eq!(next_window(1.8, 1.0, 58.2), 6);
        // No time for a program's own time, or none at all.
        assert_eq!(next_window(1.0, 1.0, 0.9), 0);
        assert_eq!(next_window(1.0, 1.0, -3.0), 0);
        // A busy machine: the recording was quicker than the program.
        assert_eq!(next_window(0.5, 1.0, 2.5), 8);
    }
}
