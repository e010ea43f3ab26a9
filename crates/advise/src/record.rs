//! Runs a program natively and then recorded.
//!
//! A recording is to see as many touches as it can, and yet to end. So the program keeps all of its
//! memory, but only a part of it, the *window*, is in its address space at a time; the rest is
//! soft. A touch outside of the window costs a soft fault and leaves a record, and nothing is read
//! from the store. The window is made smaller as long as the recordings end in time.

use crate::child::{self, Ended, Stop};
use crate::recording::{self, Recording};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Programs that use less are not worth paging.
const LEAST_BYTES: u64 = 8 * MIB;

/// Parts of the program's memory that the windows are, per mille. Below a program's knee a little
/// less makes recordings many times longer, so the steps are small.
const WINDOWS_PER_MILLE: [u64; 8] = [500, 415, 350, 290, 240, 200, 165, 140];

/// What decides which blocks are in the window. It has only to keep what is in use there, and it is
/// told of each touch that it gets wrong: CLOCK took GNU sort of 60 MB 3 s with a window of 31 %,
/// where the default, which is made for few soft frames, took 17 s.
const RECORDING_POLICY: &str = "clock";

/// How much longer a recording with the next window is expected to take at least.
const GROWTH: f64 = 2.0;

/// Native runs shorter than this are made three times.
const SHORT_S: f64 = 3.0;

/// Why there is no recording. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be run.
    #[error("{program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
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
    #[error(
        "{program} used {used_mib:.1} MiB: too little to be worth paging (8 MiB is the least that advice is given for)"
    )]
    Small {
        /// The program.
        program: String,
        /// What it used, MiB.
        used_mib: f64,
    },
    /// Not even the first recording ended.
    #[error("no recording of {program} ended within {seconds:.0} s (raise --timeout)")]
    Slow {
        /// The program.
        program: String,
        /// The time that it had.
        seconds: f64,
    },
    /// Something temporary cannot be written.
    #[error("a temporary file: {0}")]
    Temporary(#[from] io::Error),
    /// The trace is of no use.
    #[error(transparent)]
    Trace(#[from] recording::Error),
}

/// A program and how it is to be run.
pub struct Program {
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
    /// The terapage command.
    pub terapage: PathBuf,
    /// The store.
    pub store: PathBuf,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// How long a recording may take.
    pub timeout: Duration,
    /// Whether to stop.
    pub stop: Stop,
}

/// A program's native run.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    /// How long it took, seconds; the median of three where it was short.
    pub seconds: f64,
    /// Processor time over time, at least 1.
    pub parallelism: f64,
    /// The most memory that it had, bytes.
    pub peak_bytes: u64,
}

impl Program {
    fn name(&self) -> String {
        self.command.first().map_or_else(String::new, |name| name.display().to_string())
    }

    fn failed(&self, how: &str, ended: &Ended, errors: &mut File) -> Error {
        let mut said = String::new();
        // What cannot be read is not shown.
        let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut said));
        let said =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        Error::Failed { program: self.name(), how: format!("{how}, {}", ended.status), said }
    }

    /// Runs it natively. Its output is discarded. `look` is told of the seconds so far.
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
                .map_err(|source| Error::Start { program: self.name(), source })?;
            if !ended.status.success() {
                return Err(self.failed("natively", &ended, &mut errors));
            }
            runs.push(ended);
            if ended.seconds > SHORT_S || runs.len() == 3 {
                break;
            }
        }
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let median = runs[runs.len() / 2];
        let peak_bytes = runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
        if peak_bytes < LEAST_BYTES {
            return Err(Error::Small { program: self.name(), used_mib: peak_bytes as f64 / MIB as f64 });
        }
        let parallelism = (median.cpu_s / median.seconds.max(1e-6)).max(1.0);
        Ok(Native { seconds: median.seconds, parallelism, peak_bytes })
    }

    /// Records it with ever smaller windows, as long as that is likely to end in time, and gives
    /// the last recording. The trace lies in `directory`, and is kept there under the name that is
    /// given back. `look` is told of the window in bytes and the seconds so far.
    ///
    /// # Errors
    /// As [`time`](Self::time); a recording that does not end.
    pub fn record(
        &self,
        native: &Native,
        directory: &Path,
        mut look: impl FnMut(u64, f64),
    ) -> Result<(Recording, PathBuf), Error> {
        let mut best = None;
        for per_mille in WINDOWS_PER_MILLE {
            let window = (native.peak_bytes * per_mille / 1000).max(16 * self.block_bytes);
            let trace = directory.join(format!("window-{per_mille}.trace"));
            let Some(ended) = self.record_once(native, window, &trace, |seconds| look(window, seconds))?
            else {
                break;
            };
            best = Some(trace);
            if ended.seconds * GROWTH > self.timeout.as_secs_f64() {
                break;
            }
        }
        let slow = Error::Slow { program: self.name(), seconds: self.timeout.as_secs_f64() };
        let trace = best.ok_or(slow)?;
        Ok((Recording::open(&trace)?, trace))
    }

    /// One recording; `None` where it did not end in time.
    fn record_once(
        &self,
        native: &Native,
        window: u64,
        trace: &Path,
        look: impl FnMut(f64),
    ) -> Result<Option<Ended>, Error> {
        let mut errors = tempfile::tempfile()?;
        // Room for everything, so that nothing is read back.
        let budget = (native.peak_bytes + native.peak_bytes / 8 + 16 * MIB).next_multiple_of(MIB);
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
        command.arg("--trace").arg(trace).arg("--").args(&self.command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
        let ended = child::watch(&mut command, Some(self.timeout), &self.stop, look)
            .map_err(|source| Error::Start { program: self.terapage.display().to_string(), source })?;
        if ended.timed_out {
            return Ok(None);
        }
        if !ended.status.success() {
            return Err(self.failed("recorded", &ended, &mut errors));
        }
        Ok(Some(ended))
    }
}
