//! Streams that are followed: the common part of all prefetch policies.

use super::Ahead;

/// The number of streams followed at once; a new stream replaces the stream that was unused
/// longest.
const STREAMS: usize = 32;

/// Blocks asked for if a stream was just found, at first. While nearly all blocks read ahead are
/// used, the number doubles now and then, up to the maximum. Chosen, not measured.
const WINDOW_FIRST: u32 = 2;
const WINDOW_FIRST_MAX: u32 = 16;

/// The number of runs by which a stream is ahead of the program at first; more if the runs arrive
/// too late.
const RUNS_FIRST: i64 = 2;

/// With each run that arrives in time, this distance shrinks by a run divided by this.
const DECAY: i64 = 16;

/// After this many touches behind a stream, and none in front, the stream is dropped: the program
/// has gone back, and a new stream must be found.
const BEHIND_MAX: u32 = 4;

/// Blocks touched one after the other at a fixed distance.
#[derive(Clone, Copy)]
struct Stream {
    /// The furthest block touched.
    last: i64,
    /// The first block not yet asked for.
    next: i64,
    /// The distance from one block to the next, not 0; negative when descending.
    step: i64,
    /// Blocks to ask for at the next touch.
    window: u32,
    /// The number of blocks that may be requested beyond the furthest touch.
    reach: i64,
    /// The number of touches behind `last` since it moved.
    behind: u32,
    /// The time of the last touch.
    at: u64,
}

impl Stream {
    /// Steps from the furthest touch to `block`; `None` if the stream does not pass it.
    fn steps_to(&self, block: i64) -> Option<i64> {
        let distance = block - self.last;
        (distance % self.step == 0).then(|| distance / self.step)
    }

    /// Blocks asked for beyond the furthest touch.
    fn asked(&self) -> i64 {
        (self.next - self.last) / self.step - 1
    }
}

/// How a touch relates to the streams.
pub enum Follow {
    /// A stream with this step passes the block. The run to request, if it is time.
    Known(i32, Option<Ahead>),
    /// No stream passes the block.
    Unknown,
}

/// Streams, each with a window that doubles up to the length of a run. A stream is no further ahead
/// of the program than necessary: blocks that wait long in memory displace blocks in use. (The idea
/// is from Gill, Bathen, "AMP", FAST 2007.)
pub struct Streams {
    run_max: u32,
    ahead_max: u32,
    run: u32,
    /// The window of a stream that was just found.
    first: u32,
    clock: u64,
    streams: Vec<Stream>,
    /// The stream touched last.
    current: Option<usize>,
    /// Whether the next touch had to wait for a read under way.
    late: bool,
    /// Whether the block of the next touch is neither in memory nor being read.
    missing: bool,
}

impl Streams {
    /// Runs have at most `run` blocks, and reach at most `ahead` blocks beyond the last touch.
    ///
    /// Two runs must fit into `ahead`: after the touch of its first block, no touch of a run is
    /// seen before its end, so that touch must be able to ask for the next run.
    pub fn new(run: u32, ahead: u32) -> Self {
        let ahead_max = ahead.max(1);
        let run_max = run.clamp(1, ahead_max.div_ceil(2));
        let streams = Vec::with_capacity(STREAMS);
        Streams {
            run_max,
            ahead_max,
            run: run_max,
            first: WINDOW_FIRST,
            clock: 0,
            streams,
            current: None,
            late: false,
            missing: false,
        }
    }

    /// The block that is touched next was requested, but has not arrived.
    pub fn late(&mut self) {
        self.late = true;
    }

    /// The block that is touched next is neither in memory nor being read.
    pub fn missing(&mut self) {
        self.missing = true;
    }

    /// Halves the longest run, down to one block.
    pub fn shrink(&mut self) {
        self.run = (self.run / 2).max(1);
        self.first = WINDOW_FIRST;
        for stream in &mut self.streams {
            stream.window = stream.window.min(self.run);
        }
    }

    /// Doubles the longest run, up to the maximum that was set at the start.
    pub fn grow(&mut self) {
        self.run = (self.run * 2).min(self.run_max);
        self.first = (self.first * 2).min(WINDOW_FIRST_MAX);
    }

    /// Follows the stream that passes `block`.
    ///
    /// A stream passes the blocks up to one step beyond the last request, and back over the last
    /// `ahead` blocks: threads that share a stream touch it out of order. A missing block that it
    /// has passed belongs to another stream: to another pass over the same data, perhaps.
    pub fn follow(&mut self, block: u32) -> Follow {
        self.clock += 1;
        let late = std::mem::take(&mut self.late);
        let missing = std::mem::take(&mut self.missing);
        let block = i64::from(block);
        let mut nearest: Option<(usize, i64)> = None;
        for (index, stream) in self.streams.iter().enumerate() {
            let Some(steps) = stream.steps_to(block) else { continue };
            let least = if missing { 1 } else { -i64::from(self.ahead_max) };
            let on_way = (least..=stream.asked() + 2).contains(&steps);
            let rank = if steps > 0 { steps } else { i64::from(u32::MAX) - steps };
            if on_way && nearest.is_none_or(|(_, other)| rank < other) {
                nearest = Some((index, rank));
            }
        }
        self.current = None;
        let Some((index, _)) = nearest else { return Follow::Unknown };
        let stream = &mut self.streams[index];
        stream.at = self.clock;
        let step = stream.step as i32;
        if stream.steps_to(block).is_none_or(|steps| steps <= 0) {
            stream.behind += 1;
            if stream.behind <= BEHIND_MAX {
                return Follow::Known(step, None);
            }
            self.streams.swap_remove(index);
            return Follow::Unknown;
        }
        let run = i64::from(self.run);
        let (least, most) = (run * RUNS_FIRST, i64::from(self.ahead_max));
        stream.reach = if late { stream.reach * 2 } else { stream.reach - run / DECAY };
        stream.reach = stream.reach.max(least).min(most);
        stream.behind = 0;
        if missing && stream.steps_to(block).is_some_and(|steps| steps <= stream.asked()) {
            // It was asked for in an earlier pass, and has left memory since.
            (stream.next, stream.window) = (block + stream.step, self.first);
        }
        stream.last = block;
        if stream.asked() < 0 {
            stream.next = block + stream.step;
        }
        self.current = Some(index);
        Follow::Known(step, self.ask(index))
    }

    /// One more run of the stream that was touched last, if its window has full length. In this way
    /// the distance ahead grows by a run at each touch, up to its maximum.
    pub fn more(&mut self) -> Option<Ahead> {
        let index = self.current.take()?;
        if self.streams[index].window < self.run { None } else { self.ask(index) }
    }

    /// Starts a stream at `block` with `step`, which is not 0; returns the run to request.
    pub fn open(&mut self, block: u32, step: i32) -> Option<Ahead> {
        let (last, step) = (i64::from(block), i64::from(step));
        let window = self.first;
        let reach = (i64::from(self.run) * RUNS_FIRST).min(i64::from(self.ahead_max));
        let fresh = Stream { last, next: last + step, step, window, reach, behind: 0, at: self.clock };
        let index = if self.streams.len() < STREAMS {
            self.streams.push(fresh);
            self.streams.len() - 1
        } else {
            let oldest = (0..STREAMS).min_by_key(|&index| self.streams[index].at)?;
            self.streams[oldest] = fresh;
            oldest
        };
        self.ask(index)
    }

    /// The next run of a stream, if a whole window has room within `ahead`.
    fn ask(&mut self, index: usize) -> Option<Ahead> {
        let stream = &mut self.streams[index];
        let ahead =
            stream.reach.min(i64::from(self.ahead_max) * i64::from(self.run) / i64::from(self.run_max));
        let window = stream.window.min(self.run);
        if stream.asked() + i64::from(window) > ahead {
            return None;
        }
        let (first, step) = (stream.next, stream.step);
        // Only blocks that have a number: a descending stream ends with block 0.
        let end = if step > 0 { i64::from(u32::MAX) - 1 } else { 0 };
        let left = (end - first) / step + 1;
        let left = if (end - first).signum() * step.signum() < 0 { 0 } else { left };
        let count = left.min(i64::from(window));
        if count == 0 {
            return None;
        }
        stream.window = (window * 2).min(self.run);
        stream.next = first + step * count;
        Some(Ahead { first: first as u32, count: count as u32, step: step as i32 })
    }
}
