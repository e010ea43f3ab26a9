//! Shows the progress of a command on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::path::Path;
use std::time::Duration;
use terapage_blocktrace::Reader;

/// Items between two reads of the clock. Chosen, not measured.
const STEP: u64 = 1 << 14;

/// A line with the progress of a command and the remaining time. The line is hidden if standard
/// error is not a terminal, and is removed on drop.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// The progress of a phase of `steps` steps.
    pub fn new(message: impl Into<Cow<'static, str>>, steps: u64) -> Progress {
        let progress = Progress::endless(message);
        progress.steps(steps);
        progress
    }

    /// The progress of a phase of unknown length.
    pub fn endless(message: impl Into<Cow<'static, str>>) -> Progress {
        let progress = Progress { bar: ProgressBar::no_length() };
        progress.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        progress.phase(message);
        progress.bar.enable_steady_tick(Duration::from_millis(500));
        progress
    }

    /// The progress of reading these files, some of which may not be regular files.
    pub fn files<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Progress {
        let bytes = |path: &Path| fs::metadata(path).ok().filter(Metadata::is_file).map(|file| file.len());
        let progress = Progress::endless("reading");
        match paths.into_iter().map(bytes).sum() {
            Some(bytes) => {
                progress.steps(bytes);
                progress.style("{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left");
            }
            None => progress.style("{spinner} {msg} {bytes}"),
        }
        progress
    }

    /// Begins another phase, of unknown length.
    pub fn phase(&self, message: impl Into<Cow<'static, str>>) {
        self.bar.unset_length();
        self.bar.reset();
        self.style("{spinner} {msg}");
        self.say(message);
    }

    /// Sets the number of steps of the current phase.
    pub fn steps(&self, steps: u64) {
        self.bar.reset();
        self.bar.set_length(steps);
        self.style("{msg} {wide_bar} {human_pos}/{human_len}, {eta} left");
    }

    /// Shows what the command is doing.
    pub fn say(&self, message: impl Into<Cow<'static, str>>) {
        self.bar.set_message(message);
    }

    /// Notes that `steps` more steps are done.
    pub fn add(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// Sets the number of steps that are done.
    pub fn set(&self, steps: u64) {
        self.bar.set_position(steps);
    }

    /// Notes a step for each of `items`.
    pub fn over<'a, T>(&'a self, items: impl Iterator<Item = T> + 'a) -> impl Iterator<Item = T> + 'a {
        let mut ticks = self.ticks();
        items.inspect(move |_| ticks.tick())
    }

    /// A counter for steps that number millions.
    pub fn ticks(&self) -> Ticks<'_> {
        Ticks { progress: self, seen: 0 }
    }

    /// A counter for a file that is about to be read.
    pub fn reading(&self) -> Reading<'_> {
        Reading { progress: self, requests: 0, bytes: 0 }
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A counter for steps that number millions: it reads the clock only now and then.
pub struct Ticks<'a> {
    progress: &'a Progress,
    seen: u64,
}

impl Ticks<'_> {
    /// Notes a step.
    #[inline]
    pub fn tick(&mut self) {
        self.seen += 1;
        if self.seen.is_multiple_of(STEP) {
            self.progress.add(STEP);
        }
    }
}

/// A counter of the bytes of traces that are read.
pub struct Reading<'a> {
    progress: &'a Progress,
    requests: u64,
    bytes: u64,
}

impl Reading<'_> {
    /// Notes a request.
    #[inline]
    pub fn step(&mut self, reader: &Reader) {
        self.requests += 1;
        if self.requests.is_multiple_of(STEP) {
            self.progress.add(reader.read_bytes() - self.bytes);
            self.bytes = reader.read_bytes();
        }
    }
}
