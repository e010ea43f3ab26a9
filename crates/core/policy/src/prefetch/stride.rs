//! Streams with a fixed step beyond one block: columns of a matrix, fields of large records.

use super::recent::Recent;
use super::streams::{Follow, Streams};
use super::{Ahead, Prefetch};

/// Streams of equal steps: a stream starts with its fourth touch.
pub struct Stride {
    streams: Streams,
    recent: Recent,
}

impl Stride {
    /// Runs have at most `run` blocks, and reach at most `ahead` blocks of the stream beyond the
    /// last touch.
    pub fn new(run: u32, ahead: u32) -> Self {
        Stride { streams: Streams::new(run, ahead), recent: Recent::default() }
    }
}

impl Prefetch for Stride {
    fn name(&self) -> &'static str {
        "stride"
    }

    fn touched(&mut self, block: u32) -> Option<Ahead> {
        if let Follow::Known(_, ahead) = self.streams.follow(block) {
            return ahead;
        }
        let step = self.recent.stride(block);
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
