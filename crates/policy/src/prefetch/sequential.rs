//! Several ascending and descending streams at once, each with a window that doubles.

use super::{Ahead, Prefetch};

/// Streams followed at once; the one unused longest gives way.
const STREAMS: usize = 32;

#[derive(Clone, Copy)]
struct Stream {
    /// The last block touched.
    last: u32,
    /// The first block not yet asked for, in the stream's direction.
    next: u32,
    /// Blocks to ask for at the next touch.
    window: u32,
    /// +1 or -1; 0 while only one touch has been seen.
    step: i32,
    /// When it was touched last.
    at: u64,
}

/// See the module.
pub struct Sequential {
    run: u32,
    ahead: u32,
    clock: u64,
    streams: Vec<Stream>,
}

impl Sequential {
    /// Runs of at most `run` blocks, at most `ahead` blocks beyond the last touch.
    pub fn new(run: u32, ahead: u32) -> Self {
        Sequential { run: run.max(1), ahead: ahead.max(1), clock: 0, streams: Vec::new() }
    }

    /// The stream that `block` continues.
    fn find(&self, block: u32) -> Option<usize> {
        let block = i64::from(block);
        self.streams.iter().position(|stream| {
            let moved = block - i64::from(stream.last);
            match stream.step {
                0 => moved.abs() == 1,
                step => {
                    let reach = (i64::from(stream.next) - i64::from(stream.last)) * i64::from(step);
                    let moved = moved * i64::from(step);
                    moved > 0 && moved <= reach + 1
                }
            }
        })
    }
}

impl Prefetch for Sequential {
    fn name(&self) -> &'static str {
        "sequential"
    }

    fn touched(&mut self, block: u32) -> Option<Ahead> {
        self.clock += 1;
        let at = self.clock;
        let Some(index) = self.find(block) else {
            let fresh = Stream { last: block, next: block, window: 2, step: 0, at };
            if self.streams.len() < STREAMS {
                self.streams.push(fresh);
            } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.at) {
                *oldest = fresh;
            }
            return None;
        };
        let stream = &mut self.streams[index];
        if stream.step == 0 {
            stream.step = if block > stream.last { 1 } else { -1 };
            stream.next = block.checked_add_signed(stream.step)?;
        }
        stream.last = block;
        stream.at = at;
        let step = i64::from(stream.step);
        // A touch beyond what was asked for: the stream goes on from there.
        if (i64::from(block) - i64::from(stream.next)) * step >= 0 {
            stream.next = block.checked_add_signed(stream.step)?;
        }
        let asked = ((i64::from(stream.next) - i64::from(block)) * step - 1).max(0) as u32;
        let room = self.ahead.saturating_sub(asked);
        if room < stream.window.min(self.run) {
            return None;
        }
        let count = stream.window.min(self.run).min(room);
        stream.window = (stream.window * 2).min(self.run);
        let first = stream.next;
        let count = if stream.step < 0 { count.min(first + 1) } else { count.min(u32::MAX - first) };
        if count == 0 {
            return None;
        }
        let next = i64::from(first) + step * i64::from(count);
        stream.next = u32::try_from(next).ok()?;
        Some(Ahead { first, count, step: stream.step })
    }
}
