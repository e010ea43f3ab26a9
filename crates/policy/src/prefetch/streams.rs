//! Streams that are being followed: the part that every prefetch policy shares.

use super::Ahead;

/// Streams followed at once; the one unused longest gives way.
const STREAMS: usize = 32;

/// Blocks asked for when a stream has just been found.
const WINDOW_FIRST: u32 = 2;

/// Runs that a stream is ahead of the program at first; more where they come too late.
const RUNS_FIRST: i64 = 2;

/// The part of a run by which that becomes less again with each run that is in time.
const DECAY: i64 = 16;

/// Touches behind a stream, with none in front, after which it is given up: the
/// program has gone back, and a new stream is to be found.
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
    /// Blocks that may be asked for beyond the furthest touch.
    reach: i64,
    /// Touches behind `last` since it moved.
    behind: u32,
    /// When it was touched last.
    at: u64,
}

impl Stream {
    /// Steps from the furthest touch to `block`; `None` if it is not on the stream's way.
    fn steps_to(&self, block: i64) -> Option<i64> {
        let distance = block - self.last;
        (distance % self.step == 0).then(|| distance / self.step)
    }

    /// Blocks asked for beyond the furthest touch.
    fn asked(&self) -> i64 {
        (self.next - self.last) / self.step - 1
    }
}

/// What a touch is to the streams.
pub enum Follow {
    /// It is on the way of one that has this step; the run to ask for, if it is time.
    Known(i32, Option<Ahead>),
    /// It is on none's way.
    Unknown,
}

/// Streams, each with a window that doubles up to the length of a run, and no further ahead of the
/// program than it needs: what waits long in memory takes the place of something that is in use.
/// (Gill, Bathen, "AMP", FAST 2007, for the idea.)
pub struct Streams {
    run_max: u32,
    ahead_max: u32,
    run: u32,
    clock: u64,
    streams: Vec<Stream>,
    /// The stream touched last.
    current: Option<usize>,
    /// The next touch had to wait for a read under way.
    late: bool,
}

impl Streams {
    /// Runs of at most `run` blocks, at most `ahead` blocks beyond the last touch.
    ///
    /// Two runs must fit into `ahead`: the touch of the first block of a run is the
    /// last one that is seen before its end, so it must be able to ask for the next run.
    pub fn new(run: u32, ahead: u32) -> Self {
        let ahead_max = ahead.max(1);
        let run_max = run.clamp(1, ahead_max.div_ceil(2));
        let streams = Vec::with_capacity(STREAMS);
        Streams { run_max, ahead_max, run: run_max, clock: 0, streams, current: None, late: false }
    }

    /// The block touched next was asked for, but had not come.
    pub fn late(&mut self) {
        self.late = true;
    }

    /// Halves the longest run, down to one block.
    pub fn shrink(&mut self) {
        self.run = (self.run / 2).max(1);
        for stream in &mut self.streams {
            stream.window = stream.window.min(self.run);
        }
    }

    /// Doubles the longest run, up to what was allowed at the start.
    pub fn grow(&mut self) {
        self.run = (self.run * 2).min(self.run_max);
    }

    /// Follows the stream that `block` is on the way of.
    ///
    /// A stream's way reaches one step beyond what was asked for, and back over the
    /// last `ahead` blocks: threads that share a stream touch it out of order.
    pub fn follow(&mut self, block: u32) -> Follow {
        self.clock += 1;
        let late = std::mem::take(&mut self.late);
        let block = i64::from(block);
        let mut nearest: Option<(usize, i64)> = None;
        for (index, stream) in self.streams.iter().enumerate() {
            let Some(steps) = stream.steps_to(block) else { continue };
            let on_way = (-i64::from(self.ahead_max)..=stream.asked() + 2).contains(&steps);
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
        stream.last = block;
        if stream.asked() < 0 {
            stream.next = block + stream.step;
        }
        self.current = Some(index);
        Follow::Known(step, self.ask(index))
    }

    /// One more run of the stream touched last, once its window has its full length: so the
    /// distance ahead grows to what is allowed, a run at each touch.
    pub fn more(&mut self) -> Option<Ahead> {
        let index = self.current.take()?;
        if self.streams[index].window < self.run { None } else { self.ask(index) }
    }

    /// Starts a stream at `block` with `step`, which is not 0; returns the run to ask for.
    pub fn open(&mut self, block: u32, step: i32) -> Option<Ahead> {
        let (last, step) = (i64::from(block), i64::from(step));
        let window = WINDOW_FIRST;
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

    /// The next run of a stream, when a whole window has room within `ahead`.
    fn ask(&mut self, index: usize) -> Option<Ahead> {
        let stream = &mut self.streams[index];
        let ahead =
            stream.reach.min(i64::from(self.ahead_max) * i64::from(self.run) / i64::from(self.run_max));
        let window = stream.window.min(self.run);
        if stream.asked() + i64::from(window) > ahead {
            return None;
        }
        let (first, step) = (stream.next, stream.step);
        // Only what has a number: block 0 ends a descending stream.
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
