//! The step that most of the last touches agree on.
//!
//! Source: Al Maruf, Chowdhury, "Effectively Prefetching Remote Memory with Leap", USENIX ATC 2020,
//! algorithm 1. Leap also reads ahead from a touch that does not follow the trend; here such a
//! touch requests nothing.

use super::streams::{Follow, Streams};
use super::{Ahead, Prefetch};

/// Steps remembered.
const STEPS: usize = 32;

/// The smallest number of steps in which a majority is sought; it doubles until there is one.
const STEPS_FIRST: usize = 8;

/// A majority vote over the last steps.
pub struct Trend {
    streams: Streams,
    /// The last steps, the newest first.
    steps: [i32; STEPS],
    last: Option<u32>,
}

impl Trend {
    /// Runs have at most `run` blocks, and reach at most `ahead` blocks of the trend beyond the
    /// last touch.
    pub fn new(run: u32, ahead: u32) -> Self {
        Trend { streams: Streams::new(run, ahead), steps: [0; STEPS], last: None }
    }

    fn remember(&mut self, step: i32) {
        self.steps.rotate_right(1);
        self.steps[0] = step;
    }

    /// The step of more than half of the newest touches, in the smallest window that has such a
    /// step.
    fn majority(&self) -> Option<i32> {
        let mut window = STEPS_FIRST;
        while window <= STEPS {
            let steps = &self.steps[..window];
            let candidate = vote(steps);
            let votes = steps.iter().filter(|&&step| step == candidate).count();
            if candidate != 0 && votes > window / 2 {
                return Some(candidate);
            }
            window *= 2;
        }
        None
    }
}

/// Boyer and Moore's vote: if any step has the majority, it is the result.
fn vote(steps: &[i32]) -> i32 {
    let (mut candidate, mut lead) = (0, 0);
    for &step in steps {
        if lead == 0 {
            candidate = step;
        }
        lead += if step == candidate { 1 } else { -1 };
    }
    candidate
}

impl Prefetch for Trend {
    fn name(&self) -> &'static str {
        "trend"
    }

    fn touched(&mut self, block: u32) -> Option<Ahead> {
        let last = self.last.replace(block);
        if let Follow::Known(step, ahead) = self.streams.follow(block) {
            // The pager did not see the touches in between: they count as one step.
            self.remember(step);
            return ahead;
        }
        let step = i64::from(block) - i64::from(last?);
        let step = i32::try_from(step).unwrap_or(0);
        self.remember(step);
        let trend = self.majority()?;
        if step == trend { self.streams.open(block, trend) } else { None }
    }

    fn late(&mut self) {
        self.streams.late();
    }

    fn missing(&mut self) {
        self.streams.missing();
    }

    fn more(&mut self) -> Option<Ahead> {
        self.streams.more()
    }
}
