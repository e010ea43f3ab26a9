//! Page-ins against Belady's optimum for the references that a trace recorded.
//!
//! For each budget one run more, which is not timed: its counters say how many blocks came in. A
//! second one, behind a smaller budget and without prefetch, records the touches in more detail.

use crate::janitor::OwnedFile;
use crate::report::{Optimum, Run};
use crate::runner::{self, End, Stop};
use crate::session::{Limits, Session};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use terapage_config::Size;
use terapage_policy::belady::belady;
use terapage_trace::{Reader, references};

/// A recording behind fewer blocks than this would tell more of the pager than of the program.
const LEAST_BLOCKS: u64 = 16;

/// How often the lab looks whether it shall stop while it calculates.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

type References = Arc<Vec<u32>>;

/// Finds optima, one budget after another.
pub struct Optima<'a> {
    session: &'a Session,
    /// The budget to record behind; `None`: an eighth of the measured one.
    record_memory: Option<u64>,
    /// The last recording: its budget and block, bytes.
    recording: Option<(u64, u64, References)>,
    /// The largest budget behind which a recording took too long, bytes.
    too_small: u64,
}

/// What the measured run's counters say.
struct Measured {
    block_bytes: u64,
    frames: u64,
    page_ins: u64,
}

impl<'a> Optima<'a> {
    /// None found yet.
    pub fn new(session: &'a Session, record_memory: Option<u64>) -> Optima<'a> {
        Optima { session, record_memory, recording: None, too_small: 0 }
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
        // 2. The references, the denser ones if they can be had.
        let (recorded, touched) = match self.denser(limits, measured.block_bytes, &mut run)? {
            Ok(recording) => recording,
            Err(why) => {
                answer.notes.extend(why);
                match self.read(trace.path())? {
                    Ok(touched) => (limits.memory, touched),
                    Err(why) => return Ok(answer.note(format!("its trace cannot be read: {why}"))),
                }
            }
        };
        answer.recorded_memory_bytes = Some(recorded);
        answer.references = Some(touched.len() as u64);
        // 3. The optimum with the frames that the measured run had.
        let frames = measured.frames as usize;
        let optimum = calculate(&self.session.stop, move || belady(&touched, frames))?;
        answer.compare(measured.page_ins, optimum);
        Ok(answer)
    }

    /// References recorded behind a smaller budget, and that budget; or why there are none, if
    /// that needs a word.
    fn denser(
        &mut self,
        limits: &Limits,
        block: u64,
        run: &mut impl FnMut(&Limits) -> Result<Run, runner::Error>,
    ) -> Result<Result<(u64, References), Option<String>>, runner::Error> {
        let memory = self.record_memory.unwrap_or(limits.memory / 8).max(LEAST_BLOCKS * block);
        if memory >= limits.memory {
            return Ok(Err(None));
        }
        if let Some((_, _, touched)) =
            self.recording.as_ref().filter(|known| (known.0, known.1) == (memory, block))
        {
            return Ok(Ok((memory, touched.clone())));
        }
        let behind = format!("a recording behind {}", Size(memory));
        if memory <= self.too_small {
            return Ok(Err(Some(format!("{behind} would take too long, as the one behind more did"))));
        }
        let trace = match OwnedFile::new(&self.session.janitor, self.session.path("denser.trace")) {
            Ok(trace) => trace,
            Err(error) => return Ok(Err(Some(format!("{behind}: {error}")))),
        };
        let denser = Limits { memory, block: Some(block), ..limits.with(record_to(trace.path(), false)) };
        let run = self.session.extra(behind.clone(), || run(&denser))?;
        if run.end == End::TimedOut {
            self.too_small = memory;
        }
        if run.end != End::Done {
            return Ok(Err(Some(format!("{behind}: {}", run.end.text()))));
        }
        Ok(match self.read(trace.path())? {
            Ok(touched) => {
                self.recording = Some((memory, block, touched.clone()));
                Ok((memory, touched))
            }
            Err(why) => Err(Some(format!("{behind} cannot be read: {why}"))),
        })
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
        // What was read ahead would count as touched.
        options.extend(["--prefetch".into(), "off".into()]);
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
    use super::{Measured, record_to};
    use crate::session::failed;
    use std::path::Path;

    #[test]
    fn blocks_and_frames_come_from_the_counters() {
        let mut run = failed(crate::session::Contender::Terapage, String::new());
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
    fn only_the_denser_recording_goes_without_prefetch() {
        let trace = Path::new("/t");
        assert_eq!(record_to(trace, true), ["--trace", "/t"]);
        assert_eq!(record_to(trace, false), ["--trace", "/t", "--prefetch", "off"]);
    }
}
