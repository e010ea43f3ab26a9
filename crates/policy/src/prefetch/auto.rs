//! The default: sequential and strided streams, with less zeal when reads are wasted.

use super::recent::Recent;
use super::streams::{Follow, Streams};
use super::{Ahead, Prefetch};

/// Blocks whose outcome is awaited before the windows change.
const JUDGED: u32 = 64;

/// Streams of either kind; windows shrink when more than half of the blocks that
/// were read ahead left memory untouched, and grow when three quarters were used.
pub struct Auto {
    streams: Streams,
    recent: Recent,
    used: u32,
    wasted: u32,
}

impl Auto {
    /// Runs of at most `run` blocks, at most `ahead` blocks (of the stream) beyond
    /// the last touch.
    pub fn new(run: u32, ahead: u32) -> Self {
        let streams = Streams::new(run, ahead);
        Auto { streams, recent: Recent::default(), used: 0, wasted: 0 }
    }
}

impl Prefetch for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn touched(&mut self, block: u32) -> Option<Ahead> {
        if let Follow::Known(_, ahead) = self.streams.follow(block) {
            return ahead;
        }
        let step = self.recent.neighbour(block).or_else(|| self.recent.stride(block));
        self.recent.push(block);
        self.streams.open(block, step?)
    }

    fn more(&mut self) -> Option<Ahead> {
        self.streams.more()
    }

    fn outcome(&mut self, used: u32, wasted: u32) {
        self.used = self.used.saturating_add(used);
        self.wasted = self.wasted.saturating_add(wasted);
        let judged = self.used.saturating_add(self.wasted);
        if judged < JUDGED {
            return;
        }
        if self.wasted > judged / 2 {
            self.streams.shrink();
        } else if self.wasted <= judged / 4 {
            self.streams.grow();
        }
        self.used = 0;
        self.wasted = 0;
    }
}
