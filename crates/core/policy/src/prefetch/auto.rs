//! The default: sequential and strided streams, with shorter runs if reads are wasted, and
//! neighbourhoods whose blocks are all touched in random order.

use super::accuracy::Accuracy;
use super::dense::Dense;
use super::recent::Recent;
use super::streams::{Follow, Streams};
use super::{Ahead, Prefetch};

/// The outcomes of this many blocks are collected before the windows change.
const JUDGED: u32 = 64;

/// Streams of both kinds. Windows shrink if more than half of the blocks read ahead left memory
/// untouched, and grow if three quarters were used. If hardly any were used, the policy requests
/// nothing until that would pay ([`Accuracy`]).
pub struct Auto {
    streams: Streams,
    recent: Recent,
    dense: Dense,
    accuracy: Accuracy,
    used: u32,
    wasted: u32,
}

impl Auto {
    /// Runs have at most `run` blocks, and reach at most `ahead` blocks of the stream beyond the
    /// last touch. Memory has `frames` blocks.
    pub fn new(frames: u32, run: u32, ahead: u32) -> Self {
        let streams = Streams::new(run, ahead);
        Auto {
            streams,
            recent: Recent::default(),
            dense: Dense::new(run.min(ahead), frames),
            accuracy: Accuracy::new(frames),
            used: 0,
            wasted: 0,
        }
    }

    fn come(&mut self, blocks: u32) {
        self.dense.come(blocks);
        self.accuracy.come(blocks);
    }
}

impl Prefetch for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn touched(&mut self, block: u32) -> Option<Ahead> {
        self.accuracy.touched(block);
        let ahead = match self.streams.follow(block) {
            Follow::Known(_, ahead) => ahead,
            Follow::Unknown => {
                let step = self.recent.neighbour(block).or_else(|| self.recent.stride(block));
                self.recent.push(block);
                match step {
                    Some(step) => self.streams.open(block, step),
                    None => self.dense.touched(block),
                }
            }
        };
        let ahead = self.accuracy.allow(ahead);
        self.come(1 + ahead.map_or(0, |ahead| ahead.count));
        ahead
    }

    fn late(&mut self) {
        self.streams.late();
    }

    fn missing(&mut self) {
        self.streams.missing();
    }

    fn more(&mut self) -> Option<Ahead> {
        let ahead = self.streams.more().filter(|_| !self.accuracy.is_stopped());
        self.come(ahead.map_or(0, |ahead| ahead.count));
        ahead
    }

    fn wants_sample(&self, block: u32) -> bool {
        self.dense.has_just_read(block)
    }

    fn sampled(&mut self, block: u32, used: bool, blocks: u32) {
        self.dense.sampled(block, used);
        self.accuracy.sampled(used, blocks);
    }

    fn is_stopped(&self) -> bool {
        self.accuracy.is_stopped()
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
