//! Several ascending and descending streams at once, each with a window that doubles.

use super::recent::Recent;
use super::streams::{Follow, Streams};
use super::{Ahead, Prefetch};

/// Streams of neighbours: a stream starts when a neighbour of a recent touch is touched.
pub struct Sequential {
    streams: Streams,
    recent: Recent,
}

impl Sequential {
    /// Runs have at most `run` blocks, and reach at most `ahead` blocks beyond the last touch.
    pub fn new(run: u32, ahead: u32) -> Self {
        Sequential { streams: Streams::new(run, ahead), recent: Recent::default() }
    }
}

impl Prefetch for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn touched(&mut self, block: u32) -> Option<Ahead> {
        if let Follow::Known(_, ahead) = self.streams.follow(block) {
            return ahead;
        }
        let step = self.recent.neighbour(block);
        self.recent.push(block);
        self.streams.open(block, step?)
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
