//! The replay of requests against a device: closed loop or open loop, streaming.

use hdrhistogram::Histogram;
use slab::Slab;
use terapage_blocktrace::{Kind, Request};
use terapage_event::Nanos;
use terapage_ssd::{Command, Device, Done, Operation};

use crate::error::Error;
use crate::memory::SECTOR;

/// The times at which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// A fixed number of requests is kept in flight: if one completes, the next is sent. Time
    /// stamps are ignored.
    Closed {
        /// The number of requests under way.
        depth: u32,
    },
    /// Requests are sent at their time stamps.
    Open {
        /// Time stamps are divided by this: 2 sends twice as fast.
        speed: f64,
    },
}

/// How requests are replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The times at which requests are sent.
    pub load: Load,
    /// The number of requests at the beginning that are sent but not measured.
    pub warm_up: u64,
    /// Whether addresses beyond the device wrap around to its beginning; otherwise they are an
    /// error.
    pub wrap: bool,
}

/// The measurements of a replay, without the warm-up.
pub struct Replayed {
    /// Requests: reads, writes and trims.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The time from the first measured request to the last end, in nanoseconds.
    pub elapsed_ns: Nanos,
    /// Latencies of reads, in nanoseconds.
    pub reads: Histogram<u64>,
    /// Latencies of writes, in nanoseconds.
    pub writes: Histogram<u64>,
    /// Latencies of trims, in nanoseconds.
    pub trims: Histogram<u64>,
    /// The mean number of requests in flight, averaged over time.
    pub queue_mean: f64,
    /// The greatest number of requests in flight.
    pub queue_max: u64,
    /// The numbers of requests in flight when another one was sent.
    pub queue_seen: Histogram<u64>,
    /// The progress of the replay over time.
    pub course: Course,
}

/// The most marks of a [`Course`].
const MARKS_MAX: usize = 256;

/// The times at which measured requests had completed, at regular numbers of requests. Marks are
/// thinned out as the replay continues, so that they take little room however long it is.
#[derive(Clone, Debug)]
pub struct Course {
    /// The number of requests between two marks.
    stride: u64,
    next: u64,
    /// The times when that many strides had completed, in nanoseconds since the first measured
    /// request.
    marks: Vec<Nanos>,
}

impl Course {
    fn new() -> Course {
        Course { stride: 1, next: 1, marks: Vec::with_capacity(MARKS_MAX) }
    }

    #[inline]
    fn ended(&mut self, requests: u64, time: Nanos) {
        if requests == self.next {
            self.mark(time);
        }
    }

    fn mark(&mut self, time: Nanos) {
        self.marks.push(time);
        if self.marks.len() == MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.stride *= 2;
        }
        self.next = (self.marks.len() as u64 + 1) * self.stride;
    }

    /// Requests per second in the first and in the second half of the marks; `None` for fewer than
    /// two marks, or if no time passes.
    pub fn halves(&self) -> Option<[f64; 2]> {
        let half = self.marks.len() / 2;
        let (middle, end) = (*self.marks.get(half.checked_sub(1)?)?, *self.marks.get(2 * half - 1)?);
        let requests = (half as u64 * self.stride) as f64;
        let rate = |ns: Nanos| (ns > 0).then(|| requests / (ns as f64 / 1e9));
        Some([rate(middle)?, rate(end.checked_sub(middle)?)?])
    }
}

/// Latencies are kept with 3 digits: an error of at most 0.1 %.
const DIGITS: u8 = 3;

/// Larger values (over two hours) are counted as this value, since a histogram's memory grows with
/// the logarithm of its values.
const VALUE_MAX: u64 = 1 << 43;

/// The number of requests that are read together and announced to the device. Chosen, not measured.
const AHEAD: usize = 16;

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 1 << 20, DIGITS).expect("the bounds are in order");
    histogram.auto(true);
    histogram
}

/// The command that covers the sectors of `request`.
fn command(tag: u64, request: &Request) -> Command {
    let operation = match request.kind {
        Kind::Read => Operation::Read,
        Kind::Write => Operation::Write,
        Kind::Trim => Operation::Trim,
    };
    let sector = request.offset / SECTOR;
    let sectors = (request.end().div_ceil(SECTOR) - sector) as u32;
    Command { tag, operation, sector, sectors }
}

fn record(histogram: &mut Histogram<u64>, value: u64) {
    histogram.record(value.min(VALUE_MAX)).expect("the histogram grows");
}

/// A request under way.
struct Sent {
    time: Nanos,
    kind: Kind,
    measured: bool,
}

/// Replays `requests` against `device`. `measured` is called once, before the first measured
/// request is sent, so that counters can be noted.
///
/// Memory depends on the number of requests in flight, not on their total number.
///
/// # Errors
/// An error of `requests`, a request beyond the device, or no requests.
pub fn replay<D, I, E>(
    device: &mut D,
    plan: &Plan,
    requests: I,
    measured: impl FnMut(&D),
) -> Result<Replayed, Error>
where
    D: Device,
    I: IntoIterator<Item = Result<Request, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut replay = Replay::new(device, plan, measured)?;
    let mut requests = requests.into_iter();
    match plan.load {
        Load::Closed { depth } => replay.closed(depth as usize, &mut requests)?,
        Load::Open { speed } => replay.open(speed, &mut requests)?,
    }
    replay.drain();
    replay.result()
}

struct Replay<'a, D, F> {
    device: &'a mut D,
    plan: &'a Plan,
    measured: F,
    now: Nanos,
    number: u64,
    /// Requests that were read and not yet sent, from number `taken` on, and the error or end that
    /// followed them.
    ahead: Vec<Request>,
    taken: usize,
    failed: Option<Error>,
    commands: Vec<Command>,
    /// Measured requests that have ended.
    ended: u64,
    sent: Slab<Sent>,
    done: Vec<Done>,
    /// The time when the measurement began, and the time up to which `queue_area` is summed.
    begin: Nanos,
    queue_time: Nanos,
    queue_area: u128,
    result: Replayed,
}

impl<'a, D: Device, F: FnMut(&D)> Replay<'a, D, F> {
    fn new(device: &'a mut D, plan: &'a Plan, measured: F) -> Result<Self, Error> {
        let (value, rule) = match plan.load {
            Load::Closed { depth: 0 } => ("0".to_owned(), "a queue depth is at least 1"),
            Load::Open { speed } if !(speed > 0.0 && speed.is_finite()) => {
                (speed.to_string(), "a speed is greater than 0")
            }
            _ => (String::new(), ""),
        };
        if !rule.is_empty() {
            return Err(Error::Value { name: "the load", value, rule });
        }
        let result = Replayed {
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            elapsed_ns: 0,
            reads: histogram(),
            writes: histogram(),
            trims: histogram(),
            queue_mean: 0.0,
            queue_max: 0,
            queue_seen: histogram(),
            course: Course::new(),
        };
        Ok(Replay {
            device,
            plan,
            measured,
            now: 0,
            number: 0,
            ahead: Vec::with_capacity(AHEAD),
            taken: 0,
            failed: None,
            commands: Vec::with_capacity(AHEAD),
            ended: 0,
            sent: Slab::new(),
            done: Vec::new(),
            begin: 0,
            queue_time: 0,
            queue_area: 0,
            result,
        })
    }

    fn closed<I, E>(&mut self, depth: usize, requests: &mut I) -> Result<(), Error>
    where
        I: Iterator<Item = Result<Request, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        loop {
            while self.sent.len() < depth {
                let Some(request) = self.next(requests)? else { return Ok(()) };
                self.send(&request)?;
            }
            self.step();
        }
    }

    fn open<I, E>(&mut self, speed: f64, requests: &mut I) -> Result<(), Error>
    where
        I: Iterator<Item = Result<Request, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut first = None;
        while let Some(request) = self.next(requests)? {
            let since = request.time_ns.saturating_sub(*first.get_or_insert(request.time_ns));
            let time = if speed == 1.0 { since } else { (since as f64 / speed) as Nanos };
            while self.device.next_time().is_some_and(|next| next <= time) {
                self.step();
            }
            self.now = self.now.max(time);
            self.send(&request)?;
        }
        Ok(())
    }

    /// The next request. Requests are taken in batches, which are announced to the device.
    fn next<I, E>(&mut self, requests: &mut I) -> Result<Option<Request>, Error>
    where
        I: Iterator<Item = Result<Request, E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.ahead.len() == self.taken && self.failed.is_none() {
            self.taken = 0;
            self.ahead.clear();
            for request in requests.take(AHEAD) {
                match request {
                    Ok(request) => self.ahead.push(request),
                    Err(error) => {
                        self.failed = Some(Error::Trace(error.into()));
                        break;
                    }
                }
            }
            self.commands.clear();
            self.commands.extend(self.ahead.iter().map(|request| command(0, request)));
            self.device.foresee(&self.commands);
        }
        match self.ahead.get(self.taken) {
            Some(&request) => {
                self.taken += 1;
                Ok(Some(request))
            }
            None => self.failed.take().map_or(Ok(None), Err),
        }
    }

    /// Waits for the requests under way.
    fn drain(&mut self) {
        while !self.sent.is_empty() && self.device.next_time().is_some() {
            self.step();
        }
        assert!(self.sent.is_empty(), "the device is idle with {} requests unanswered", self.sent.len());
    }

    fn step(&mut self) {
        let Some(time) = self.device.next_time() else {
            panic!("the device is idle with {} requests unanswered", self.sent.len())
        };
        self.now = self.now.max(time);
        self.device.step(&mut self.done);
        self.receive();
    }

    fn send(&mut self, request: &Request) -> Result<(), Error> {
        let command = self.command(request)?;
        let measured = self.number > self.plan.warm_up;
        self.count_queue();
        if self.number == self.plan.warm_up + 1 {
            (self.begin, self.queue_area) = (self.now, 0);
            (self.measured)(self.device);
        }
        if measured {
            self.result.requests += 1;
            match request.kind {
                Kind::Read => self.result.read_bytes += u64::from(request.bytes),
                Kind::Write => self.result.written_bytes += u64::from(request.bytes),
                Kind::Trim => {}
            }
            let under_way = self.sent.len() as u64;
            self.result.queue_max = self.result.queue_max.max(under_way + 1);
            if matches!(self.plan.load, Load::Open { .. }) {
                record(&mut self.result.queue_seen, under_way);
            }
        }
        let tag = self.sent.insert(Sent { time: self.now, kind: request.kind, measured }) as u64;
        self.device.submit(self.now, Command { tag, ..command }, &mut self.done);
        self.receive();
        Ok(())
    }

    /// The command for the next request, within the device.
    fn command(&mut self, request: &Request) -> Result<Command, Error> {
        self.number += 1;
        let mut command = command(0, request);
        let capacity = self.device.sectors();
        if command.sector + u64::from(command.sectors) > capacity {
            if !self.plan.wrap || capacity == 0 {
                return Err(Error::Beyond {
                    number: self.number,
                    offset: request.offset,
                    bytes: request.bytes,
                    capacity: capacity * SECTOR,
                });
            }
            let sectors = u64::from(command.sectors).min(capacity);
            command.sector = (command.sector % capacity).min(capacity - sectors);
            command.sectors = sectors as u32;
        }
        Ok(command)
    }

    fn receive(&mut self) {
        for at in 0..self.done.len() {
            let Done { tag, time } = self.done[at];
            debug_assert!(time <= self.now, "a command ended before its time");
            self.count_queue();
            let Sent { time: sent, kind, measured } = self.sent.remove(tag as usize);
            if measured {
                let histogram = match kind {
                    Kind::Read => &mut self.result.reads,
                    Kind::Write => &mut self.result.writes,
                    Kind::Trim => &mut self.result.trims,
                };
                record(histogram, time - sent);
                self.result.elapsed_ns = time - self.begin;
                self.ended += 1;
                self.result.course.ended(self.ended, time - self.begin);
            }
        }
        self.done.clear();
    }

    /// Adds the time during which the queue has had its present length.
    fn count_queue(&mut self) {
        self.queue_area += u128::from(self.now - self.queue_time) * self.sent.len() as u128;
        self.queue_time = self.now;
    }

    fn result(mut self) -> Result<Replayed, Error> {
        if self.result.requests == 0 {
            return Err(Error::Empty(self.number));
        }
        if self.result.elapsed_ns > 0 {
            self.result.queue_mean = self.queue_area as f64 / self.result.elapsed_ns as f64;
        }
        Ok(self.result)
    }
}

#[cfg(test)]
mod tests {
    use super::{Course, MARKS_MAX};

    /// A replay of `requests`, the first half of which take 10 ns each, the others 30 ns.
    fn course(requests: u64) -> Course {
        let (mut course, mut time) = (Course::new(), 0);
        for request in 1..=requests {
            time += if request <= requests / 2 { 10 } else { 30 };
            course.ended(request, time);
        }
        course
    }

    #[test]
    fn halves_have_rates_of_their_own() {
        for requests in [2, 10, 1000, 1 << 20] {
            let course = course(requests);
            let [first, second] = course.halves().expect("two marks");
            assert!((first / 1e8 - 1.0).abs() < 0.03, "{requests}: {first}");
            assert!((second * 30.0 / 1e9 - 1.0).abs() < 0.03, "{requests}: {second}");
            assert!(course.marks.len() < MARKS_MAX);
        }
    }

    #[test]
    fn what_is_too_short_has_no_halves() {
        assert!(course(0).halves().is_none());
        assert!(course(1).halves().is_none());
        let mut still = Course::new();
        (1..5).for_each(|request| still.ended(request, 0));
        assert!(still.halves().is_none(), "no time passed");
    }
}
