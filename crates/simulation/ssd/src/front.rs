//! The front: queues, the limit on commands in the device, and the link that carries their data.

use std::collections::VecDeque;

use terapage_event::{Nanos, SECOND};

use crate::config::Front;
use crate::ssd::SECTOR_BYTES;

/// The time for `bytes` at `bytes_per_second`, to the nearest nanosecond.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_second: u64) -> Nanos {
    if bytes < 1 << 33 {
        return (bytes * SECOND + bytes_per_second / 2) / bytes_per_second;
    }
    let exact = u128::from(bytes) * u128::from(SECOND) / u128::from(bytes_per_second);
    u64::try_from(exact).unwrap_or(u64::MAX / 4)
}

/// The results of [`transfer_ns`] for one bandwidth, in a table for whole sectors, since divisions
/// are slow.
#[derive(Clone, Debug)]
pub(crate) struct TransferTimes {
    bytes_per_second: u64,
    by_sectors: Vec<Nanos>,
}

impl TransferTimes {
    /// A table up to `bytes`.
    pub(crate) fn new(bytes_per_second: u64, bytes: u64) -> TransferTimes {
        let time = |sectors| transfer_ns(sectors * SECTOR_BYTES, bytes_per_second);
        TransferTimes { bytes_per_second, by_sectors: (0..=bytes / SECTOR_BYTES).map(time).collect() }
    }

    pub(crate) fn of(&self, bytes: u64) -> Nanos {
        match self.by_sectors.get((bytes / SECTOR_BYTES) as usize) {
            Some(&time) if bytes.is_multiple_of(SECTOR_BYTES) => time,
            _ => transfer_ns(bytes, self.bytes_per_second),
        }
    }
}

/// The largest transfer between host and device whose time is in the table.
const FRONT_TABLE_BYTES: u64 = 256 << 10;

/// A resource that serves one request after the other, in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    free_at: Nanos,
    /// The time in which it was busy, up to the end of all reservations.
    pub busy_ns: Nanos,
}

impl Line {
    /// Keeps the line busy for `time` as soon as it is free, and returns the end. Returns the end.
    pub(crate) fn reserve(&mut self, now: Nanos, time: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now) + time;
        self.busy_ns += time;
        self.free_at
    }
}

/// The bus of a channel. Data are transferred in the order of their requests. Commands are short
/// and overtake waiting data, but not the transfer in progress. Otherwise dies would receive all
/// their commands at once, after the last of their data, and the bus would be idle while they work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bus {
    data: Line,
    /// The ends of the data transfers under way and promised.
    ends: VecDeque<Nanos>,
}

impl Bus {
    /// Returns the times at which commands of length `commands`, and then data, have been
    /// transferred. Data whose end was promised keep it; later data also wait for the commands.
    pub(crate) fn reserve(&mut self, now: Nanos, commands: Nanos, data: Nanos) -> Nanos {
        while self.ends.front().is_some_and(|&end| end <= now) {
            self.ends.pop_front();
        }
        if data == 0 {
            let start = self.ends.front().copied().unwrap_or(now);
            self.data.reserve(now, commands);
            return start + commands;
        }
        let end = self.data.reserve(now, commands + data);
        self.ends.push_back(end);
        end
    }

    pub(crate) fn busy_ns(&self) -> Nanos {
        self.data.busy_ns
    }
}

/// The queues in front of the controller.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    queues: Vec<VecDeque<u32>>,
    waiting: usize,
    turn: usize,
    inside: u32,
    depth: u32,
    latency_ns: Nanos,
    times: TransferTimes,
    duplex: bool,
    to_device: Line,
    to_host: Line,
}

impl Entrance {
    pub(crate) fn new(front: &Front) -> Entrance {
        let (queues, depth, bytes_per_second, latency_ns, duplex) = match *front {
            Front::Sata { depth, bytes_per_second, latency_ns } => {
                (1, depth, bytes_per_second, latency_ns, false)
            }
            Front::Nvme { queues, depth, bytes_per_second, latency_ns } => {
                (queues, depth, bytes_per_second, latency_ns, true)
            }
        };
        Entrance {
            queues: vec![VecDeque::new(); queues as usize],
            waiting: 0,
            turn: 0,
            inside: 0,
            depth,
            latency_ns,
            times: TransferTimes::new(bytes_per_second, FRONT_TABLE_BYTES),
            duplex,
            to_device: Line::default(),
            to_host: Line::default(),
        }
    }

    pub(crate) fn enqueue(&mut self, tag: u64, command: u32) {
        let queue = (tag % self.queues.len() as u64) as usize;
        self.queues[queue].push_back(command);
        self.waiting += 1;
    }

    /// Admits the next command, from the queues in turn, if there is room.
    pub(crate) fn admit(&mut self) -> Option<u32> {
        if self.inside == self.depth || self.waiting == 0 {
            return None;
        }
        loop {
            let queue = self.turn;
            self.turn = (self.turn + 1) % self.queues.len();
            if let Some(command) = self.queues[queue].pop_front() {
                self.waiting -= 1;
                self.inside += 1;
                return Some(command);
            }
        }
    }

    pub(crate) fn leave(&mut self) {
        self.inside -= 1;
    }

    /// The time at which the controller begins to work on a command that is admitted at `now` and
    /// has `bytes` of data.
    pub(crate) fn begin(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let there = if bytes == 0 { now } else { self.to_device.reserve(now, self.times.of(bytes)) };
        there + self.latency_ns
    }

    /// The time at which `bytes` that are ready at `now` have reached the host.
    pub(crate) fn deliver(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let line = if self.duplex { &mut self.to_host } else { &mut self.to_device };
        line.reserve(now, self.times.of(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_turns() {
        let mut entrance =
            Entrance::new(&Front::Nvme { queues: 3, depth: 4, bytes_per_second: 1_000_000, latency_ns: 0 });
        for (tag, command) in [(0, 0), (3, 1), (6, 2), (1, 3), (2, 4)] {
            entrance.enqueue(tag, command);
        }
        let order: Vec<u32> = std::iter::from_fn(|| entrance.admit()).collect();
        assert_eq!(order, [0, 3, 4, 1]);
        entrance.leave();
        assert_eq!(entrance.admit(), Some(2));
    }

    #[test]
    fn sata_carries_one_direction_at_a_time() {
        let front = Front::Sata { depth: 1, bytes_per_second: 1_000_000_000, latency_ns: 5 };
        let mut entrance = Entrance::new(&front);
        assert_eq!(entrance.begin(0, 100), 105);
        assert_eq!(entrance.deliver(0, 100), 200);
        let mut entrance = Entrance::new(&Front::instant());
        assert_eq!((entrance.begin(7, 1 << 20), entrance.deliver(7, 1 << 20)), (7, 7));
    }

    #[test]
    fn commands_go_before_data_that_wait() {
        let mut bus = Bus::default();
        assert_eq!(bus.reserve(0, 0, 100), 100);
        assert_eq!(bus.reserve(10, 0, 100), 200);
        assert_eq!(bus.reserve(20, 5, 0), 105);
        assert_eq!(bus.reserve(20, 0, 100), 305);
        assert_eq!(bus.reserve(150, 5, 0), 205);
        assert_eq!(bus.busy_ns(), 310);
    }

    #[test]
    fn transfers_take_their_time() {
        assert_eq!(transfer_ns(16_384, 400_000_000), 40_960);
        assert_eq!(transfer_ns(1 << 40, 1 << 30), 1024 * SECOND);
    }
}
