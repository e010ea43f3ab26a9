//! Page-ins against Belady's optimum for the references that a trace recorded.
//!
//! For each budget one run more, which is not timed: its counters say how many blocks came in.
//! Others, which have memory for everything but keep most of it out of the program's address space,
//! record the touches in more detail.

use crate::campaign::session::{Limits, Session};
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, End, Stop};
use crate::result::report::{Optimum, Run};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use terapage_config::Size;
use terapage_policy::belady::belady;
use terapage_trace::{Reader, references};

/// A recording behind fewer blocks than this would tell more of the pager than of the program.
const LEAST_BLOCKS: u64 = 16;

/// Parts of the measured budget that may be touched unseen. The less, the denser the references,
/// and the longer the run. Touches within a window change little for memories of twice its size
/// (Smith, "Two Methods for the Efficient Analysis of Memory Address Trace Data", IEEE TSE 1977).
const PARTS: [u64; 3] = [2, 4, 8];

/// How much longer a recording with half the window takes, as a guess.
const GROWTH: f64 = 6.0;

/// A recording that is expected to take more than this part of the time that a run may take is not
/// made.
const PART_OF_TIMEOUT: f64 = 0.5;

const MIB: u64 = 1 << 20;

/// How often the lab looks whether it shall stop while it calculates.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

type References = Arc<Vec<u32>>;

/// Finds optima, one budget after another.
pub struct Optima<'a> {
    session: &'a Session,
    /// The window to record with; `None`: the least of [`PARTS`] that ends in time.
    record_window: Option<u64>,
    /// The densest recording.
    recording: Option<Recording>,
    /// The largest window with which recording failed, bytes.
    too_small: u64,
}

/// References recorded without prefetch.
struct Recording {
    /// The window, bytes.
    window: u64,
    /// Bytes of a block.
    block: u64,
    touched: References,
    took: Duration,
}

impl Recording {
    /// How long one with another window will take.
    fn expected(&self, window: u64) -> Duration {
        self.took.mul_f64(GROWTH.powf((self.window as f64 / window as f64).log2()))
    }

    /// Whether it has more detail than a run behind `memory` would give.
    fn serves(&self, memory: u64, block: u64) -> bool {
        self.window < memory && self.block == block
    }
}

/// What the measured run's counters say.
struct Measured {
    block_bytes: u64,
    frames: u64,
    page_ins: u64,
}

impl<'a> Optima<'a> {
    /// None found yet.
    pub fn new(session: &'a Session, record_window: Option<u64>) -> Optima<'a> {
        Optima { session, record_window, recording: None, too_small: 0 }
    }

    /// Runs the program behind `limits` and compares its page-ins with the optimum. `run` runs it
    /// with what it is given.
    ///
    /// # Errors
    /// When the lab shall stop. What else goes wrong is in the answer's notes.
    pub fn find(
        &mut self,
        contender: &str,
        limits: &Limits,
        mut run: impl FnMut(&Limits) -> Result<Run, runner::Error>,
    ) -> Result<Optimum, runner::Error> {
        let mut answer = Optimum::none(contender, limits.memory);
        let trace = match OwnedFile::new(&self.session.janitor, self.session.path("trace")) {
            Ok(trace) => trace,
            Err(error) => return Ok(answer.note(format!("no trace can be written: {error}"))),
        };
        // 1. The run that is measured.
        let what = format!("traced, {contender}");
        let traced = self.session.extra(what, || run(&limits.with(record_to(trace.path(), true))))?;
        if traced.end != End::Done {
            return Ok(answer.note(format!("the traced run: {}", traced.end.text())));
        }
        let Some(measured) = Measured::of(&traced) else {
            return Ok(answer.note("the traced run left no counts of blocks".into()));
        };
        answer.block_bytes = Some(measured.block_bytes);
        answer.page_ins = Some(measured.page_ins);
        // 2. The references: the densest recording, or this very run's.
        answer.notes = self.record(limits, measured.block_bytes, &mut run)?;
        let denser =
            self.recording.as_ref().filter(|known| known.serves(limits.memory, measured.block_bytes));
        let (recorded, touched) = match denser {
            Some(recording) => (recording.window, recording.touched.clone()),
            None => match self.read(trace.path())? {
                Ok(touched) => (limits.memory, touched),
                Err(why) => return Ok(answer.note(format!("its trace cannot be read: {why}"))),
            },
        };
        answer.recorded_window_bytes = Some(recorded);
        answer.references = Some(touched.len() as u64);
        // 3. The optimum with the frames that the measured run had.
        let frames = measured.frames as usize;
        let (optimum, blocks) = calculate(&self.session.stop, move || {
            let blocks: HashSet<u32> = touched.iter().copied().collect();
            (belady(&touched, frames), blocks.len() as u64)
        })?;
        answer.compare(measured.page_ins, optimum, blocks);
        Ok(answer)
    }

    /// Records with ever smaller windows, as long as that is expected to end in time. Gives a note
    /// of the one that did not.
    fn record(
        &mut self,
        limits: &Limits,
        block: u64,
        run: &mut impl FnMut(&Limits) -> Result<Run, runner::Error>,
    ) -> Result<Vec<String>, runner::Error> {
        let steps = match self.record_window {
            Some(window) => vec![window],
            None => PARTS.iter().map(|part| limits.memory / part / MIB * MIB).collect(),
        };
        for window in steps {
            let window = window.max(LEAST_BLOCKS * block);
            let known = self.recording.as_ref().is_some_and(|known| known.serves(window + 1, block));
            if window >= limits.memory || window <= self.too_small || known {
                continue;
            }
            if self.record_window.is_none()
                && self.expected(window, block) > self.session.timeout.mul_f64(PART_OF_TIMEOUT)
            {
                break;
            }
            let what = format!("a recording with a window of {}", Size(window));
            let memory = limits.data.max(limits.memory);
            let behind =
                Limits { memory, block: Some(block), window: Some(window), ..limits.with(Vec::new()) };
            let began = Instant::now();
            match self.session.extra(what.clone(), || self.record_once(&behind, run))? {
                Ok(touched) => {
                    let took = began.elapsed();
                    self.recording = Some(Recording { window, block, touched, took });
                }
                Err(why) => {
                    self.too_small = window;
                    return Ok(vec![format!("{what}: {why}")]);
                }
            }
        }
        Ok(Vec::new())
    }

    /// How long a recording will take, judged by the last one; no time at all where there is none.
    fn expected(&self, window: u64, block: u64) -> Duration {
        let last = self.recording.as_ref().filter(|last| last.block == block);
        last.map_or(Duration::ZERO, |last| last.expected(window))
    }

    /// The references of one run behind `limits`, or why there are none.
    fn record_once(
        &self,
        limits: &Limits,
        run: &mut impl FnMut(&Limits) -> Result<Run, runner::Error>,
    ) -> Result<Result<References, String>, runner::Error> {
        let trace = match OwnedFile::new(&self.session.janitor, self.session.path("denser.trace")) {
            Ok(trace) => trace,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let run = run(&limits.with(record_to(trace.path(), false)))?;
        match run.end {
            End::Done => self.read(trace.path()),
            end => Ok(Err(end.text())),
        }
    }

    /// A trace's references, or why it cannot be read.
    fn read(&self, path: &Path) -> Result<Result<References, String>, runner::Error> {
        let path = path.to_owned();
        let touched = calculate(&self.session.stop, move || Reader::open(&path).and_then(references))?;
        Ok(touched.map(Arc::new).map_err(|error| error.to_string()))
    }
}

impl Measured {
    fn of(run: &Run) -> Option<Measured> {
        let stats = run.stats.as_ref()?;
        let count = |name: &str| stats.get(name)?.as_u64();
        let block_bytes = count("block_bytes").filter(|bytes| *bytes > 0)?;
        Some(Measured {
            block_bytes,
            frames: (count("budget_bytes")? / block_bytes).max(1),
            page_ins: count("page_in_bytes")? / block_bytes,
        })
    }
}

/// Options of `terapage run` that record.
fn record_to(trace: &Path, prefetch: bool) -> Vec<OsString> {
    let mut options = vec!["--trace".into(), trace.into()];
    if !prefetch {
        // What was read ahead would count as touched. CLOCK has only to keep what is in use in the
        // window, and is told of each touch that it gets wrong.
        options.extend(["--prefetch", "off", "--policy", "clock"].map(OsString::from));
    }
    options
}

/// The result of `work`, unless the lab shall stop meanwhile.
fn calculate<T: Send + 'static>(
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, runner::Error> {
    let (ready, result) = mpsc::channel();
    let worker = thread::spawn(move || {
        // The lab may have stopped listening.
        let _ = ready.send(work());
    });
    loop {
        stop.check()?;
        match result.recv_timeout(LOOK_INTERVAL) {
            Ok(result) => return Ok(result),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => match worker.join() {
                Ok(()) => unreachable!("a worker that ends well has sent its result"),
                Err(panic) => std::panic::resume_unwind(panic),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GROWTH, Measured, Recording, References, record_to};
    use crate::campaign::session::failed;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn blocks_and_frames_come_from_the_counters() {
        let mut run = failed(crate::campaign::session::Contender::Terapage, String::new());
        assert!(Measured::of(&run).is_none());
        run.stats = Some(serde_json::json!({"block_bytes": 0, "budget_bytes": 1, "page_in_bytes": 1}));
        assert!(Measured::of(&run).is_none());
        run.stats = Some(
            serde_json::json!({"block_bytes": 16384, "budget_bytes": 1 << 20, "page_in_bytes": 163_840}),
        );
        let measured = Measured::of(&run).unwrap();
        assert_eq!((measured.block_bytes, measured.frames, measured.page_ins), (16384, 64, 10));
    }

    #[test]
    fn half_the_window_takes_longer_by_what_is_guessed() {
        let took = Duration::from_secs(60);
        let last = Recording { window: 512, block: 1, touched: References::default(), took };
        assert_eq!(last.expected(512), took);
        assert_eq!(last.expected(256), took.mul_f64(GROWTH));
        assert!(last.expected(384) > took && last.expected(384) < last.expected(256));
    }

    #[test]
    fn only_the_denser_recording_goes_without_prefetch() {
        let trace = Path::new("/t");
        assert_eq!(record_to(trace, true), ["--trace", "/t"]);
        assert_eq!(record_to(trace, false), ["--trace", "/t", "--prefetch", "off", "--policy", "clock"]);
    }
}
