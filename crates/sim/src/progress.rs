//! How far a trace is read, on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;
use terapage_blocktrace::Reader;

/// Requests between two looks at the clock.
const STEP: u64 = 1 << 16;

/// A bar of the bytes of a file; it hides itself where standard error is no terminal.
pub struct Progress {
    bar: ProgressBar,
    requests: u64,
}

impl Progress {
    /// For a trace that is about to be read.
    pub fn new(reader: &Reader) -> Progress {
        let (bar, style) = match reader.meta().file_bytes {
            Some(bytes) => (ProgressBar::new(bytes), "{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left"),
            None => (ProgressBar::no_length(), "{msg} {spinner} {bytes}"),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message("reading");
        bar.enable_steady_tick(Duration::from_secs(1));
        Progress { bar, requests: 0 }
    }

    /// Another request.
    #[inline]
    pub fn step(&mut self, reader: &Reader) {
        self.requests += 1;
        if self.requests.is_multiple_of(STEP) {
            self.bar.set_position(reader.read_bytes());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
