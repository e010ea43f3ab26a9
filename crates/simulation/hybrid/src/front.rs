//! The host's side of a hybrid SSD: queues, the limit on commands inside, and the link.
//!
//! The flash simulator has its own front, for an SSD without a cache. In a hybrid SSD the link is
//! in front of the cache, not between cache and flash. So the flash is built without a front, and
//! this one, which is the same model, is put in front of the whole.

use std::collections::VecDeque;

use slab::Slab;
use terapage_event::Nanos;
use terapage_ssd::{Command, Device, Done, Front, Operation};

use crate::memory::SECTOR;

/// A link that carries one transfer after the other.
#[derive(Default)]
struct Link {
    free_at: Nanos,
    /// The size of the last transfer, in sectors, and its time: most transfers have one of few
    /// sizes.
    last: (u32, Nanos),
}

impl Link {
    fn carry(&mut self, now: Nanos, sectors: u32, bytes_per_second: u64) -> Nanos {
        if self.last.0 != sectors {
            self.last = (sectors, Link::time_ns(sectors, bytes_per_second));
        }
        self.free_at = self.free_at.max(now) + self.last.1;
        self.free_at
    }

    fn time_ns(sectors: u32, bytes_per_second: u64) -> Nanos {
        // 2^24 sectors (8 GiB) times 10^9 fit into 63 bits; no command of a host is longer.
        let nano_bytes = u64::from(sectors.min(1 << 24)) * SECTOR * 1_000_000_000;
        (nano_bytes + bytes_per_second / 2) / bytes_per_second.max(1)
    }
}

/// A device behind a front.
pub struct Fronted<D> {
    inner: D,
    depth: usize,
    bytes_per_second: u64,
    latency_ns: Nanos,
    /// Whether both directions can transfer at the same time.
    duplex: bool,
    queues: Vec<VecDeque<Command>>,
    waiting: usize,
    turn: usize,
    inside: Slab<Command>,
    to_device: Link,
    to_host: Link,
    /// Commands that are being received. Those with data arrive in the order in which they were
    /// sent, and so do those without.
    with_data: VecDeque<(Nanos, usize)>,
    without_data: VecDeque<(Nanos, usize)>,
    /// Reads whose data are being sent to the host.
    leaving: VecDeque<(Nanos, usize)>,
    ended: Vec<Done>,
    /// The times of the next event of the front, and of the device.
    own_time: Option<Nanos>,
    inner_time: Option<Nanos>,
}

/// Removes the first entry of `queue` if it is due.
#[inline]
fn pop_due(queue: &mut VecDeque<(Nanos, usize)>, now: Nanos) -> Option<usize> {
    queue.front().is_some_and(|&(time, _)| time <= now).then(|| queue.pop_front())?.map(|(_, key)| key)
}

impl<D: Device> Fronted<D> {
    /// Puts `front` in front of `inner`.
    pub fn new(inner: D, front: &Front) -> Self {
        let (queues, depth, bytes_per_second, latency_ns, duplex) = match *front {
            Front::Sata { depth, bytes_per_second, latency_ns } => {
                (1, depth, bytes_per_second, latency_ns, false)
            }
            Front::Nvme { queues, depth, bytes_per_second, latency_ns } => {
                (queues, depth, bytes_per_second, latency_ns, true)
            }
        };
        Fronted {
            own_time: None,
            inner_time: inner.next_time(),
            inner,
            depth: depth.max(1) as usize,
            bytes_per_second,
            latency_ns,
            duplex,
            queues: vec![VecDeque::new(); queues.max(1) as usize],
            waiting: 0,
            turn: 0,
            inside: Slab::new(),
            to_device: Link::default(),
            to_host: Link::default(),
            with_data: VecDeque::new(),
            without_data: VecDeque::new(),
            leaving: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    /// The device behind the front.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Admits waiting commands, while there is room inside.
    fn admit(&mut self, now: Nanos) {
        while self.waiting > 0 && self.inside.len() < self.depth {
            let queue = self.turn;
            self.turn = if queue + 1 == self.queues.len() { 0 } else { queue + 1 };
            if let Some(command) = self.queues[queue].pop_front() {
                self.waiting -= 1;
                self.enter(now, command);
            }
        }
    }

    fn enter(&mut self, now: Nanos, command: Command) {
        let key = self.inside.insert(command);
        if command.operation == Operation::Write {
            let there = self.to_device.carry(now, command.sectors, self.bytes_per_second);
            self.with_data.push_back((there + self.latency_ns, key));
        } else {
            self.without_data.push_back((now + self.latency_ns, key));
        }
    }

    /// Passes commands that have arrived by `now` to the device, and data to the host.
    #[inline]
    fn arrive(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(key) = pop_due(&mut self.without_data, now) {
            self.hand_in(now, key);
        }
        while let Some(key) = pop_due(&mut self.with_data, now) {
            self.hand_in(now, key);
        }
        self.settle(now, done);
    }

    fn hand_in(&mut self, now: Nanos, key: usize) {
        let command = Command { tag: key as u64, ..self.inside[key] };
        self.inner.submit(now, command, &mut self.ended);
    }

    /// Handles commands that have ended inside, and data that have reached the host.
    #[inline]
    fn settle(&mut self, now: Nanos, done: &mut Vec<Done>) {
        for at in 0..self.ended.len() {
            let key = self.ended[at].tag as usize;
            let Command { operation, sectors, .. } = self.inside[key];
            if operation == Operation::Read {
                let link = if self.duplex { &mut self.to_host } else { &mut self.to_device };
                let time = link.carry(now, sectors, self.bytes_per_second);
                self.leaving.push_back((time, key));
            } else {
                done.push(Done { tag: self.inside.remove(key).tag, time: now });
            }
        }
        self.ended.clear();
        while let Some(key) = pop_due(&mut self.leaving, now) {
            done.push(Done { tag: self.inside.remove(key).tag, time: now });
        }
        self.admit(now);
    }

    /// Updates the times of the next events, once for all later questions.
    #[inline]
    fn look(&mut self) {
        let queues = [&self.without_data, &self.with_data, &self.leaving];
        self.own_time = queues.into_iter().filter_map(|queue| queue.front()).map(|&(time, _)| time).min();
        self.inner_time = self.inner.next_time();
    }
}

impl<D: Device> Device for Fronted<D> {
    fn sectors(&self) -> u64 {
        self.inner.sectors()
    }

    fn submit(&mut self, now: Nanos, command: Command, done: &mut Vec<Done>) {
        let end = command.sector + u64::from(command.sectors);
        assert!(end <= self.sectors(), "{command:?} is beyond the device");
        let queue = (command.tag % self.queues.len() as u64) as usize;
        if self.waiting == 0 && self.inside.len() < self.depth {
            self.turn = if queue + 1 == self.queues.len() { 0 } else { queue + 1 };
            self.enter(now, command);
        } else {
            self.queues[queue].push_back(command);
            self.waiting += 1;
        }
        self.arrive(now, done);
        self.look();
    }

    fn foresee(&self, commands: &[Command]) {
        self.inner.foresee(commands);
    }

    fn next_time(&self) -> Option<Nanos> {
        match (self.own_time, self.inner_time) {
            (Some(own), Some(inner)) => Some(own.min(inner)),
            (own, inner) => own.or(inner),
        }
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        match (self.own_time, self.inner_time) {
            (own, Some(now)) if own.is_none_or(|own| now < own) => {
                self.inner.step(&mut self.ended);
                self.settle(now, done);
            }
            (Some(now), _) => self.arrive(now, done),
            (None, _) => {}
        }
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::FixedLatency;

    fn ends(front: &Front, commands: &[(Operation, u32)]) -> Vec<(u64, Nanos)> {
        let mut device = Fronted::new(FixedLatency::new(1 << 20, 100, 0), front);
        let mut done = Vec::new();
        for (tag, &(operation, sectors)) in (0..).zip(commands) {
            device.submit(0, Command { tag, operation, sector: 0, sectors }, &mut done);
        }
        while device.next_time().is_some() {
            device.step(&mut done);
        }
        done.iter().map(|done| (done.tag, done.time)).collect()
    }

    #[test]
    fn a_command_pays_latency_device_and_link() {
        let front = Front::Sata { depth: 32, bytes_per_second: 512_000_000_000, latency_ns: 7 };
        assert_eq!(ends(&front, &[(Operation::Read, 8)]), [(0, 115)]);
        assert_eq!(ends(&front, &[(Operation::Write, 8)]), [(0, 115)]);
        assert_eq!(
            ends(&Front::instant(), &[(Operation::Write, 8), (Operation::Read, 4)]),
            [(0, 100), (1, 100)]
        );
    }

    #[test]
    fn no_more_than_the_depth_are_inside() {
        let front = Front::Sata { depth: 2, bytes_per_second: 512_000_000_000, latency_ns: 0 };
        let reads = [(Operation::Read, 1); 4];
        assert_eq!(ends(&front, &reads), [(0, 101), (1, 102), (2, 202), (3, 203)]);
    }

    #[test]
    fn sata_carries_one_direction_at_a_time() {
        let both = [(Operation::Write, 50), (Operation::Read, 1), (Operation::Write, 100)];
        let rate = 512_000_000_000;
        let sata = Front::Sata { depth: 32, bytes_per_second: rate, latency_ns: 0 };
        assert_eq!(ends(&sata, &both), [(0, 150), (1, 151), (2, 250)]);
        let nvme = Front::Nvme { queues: 1, depth: 32, bytes_per_second: rate, latency_ns: 0 };
        assert_eq!(ends(&nvme, &both), [(1, 101), (0, 150), (2, 250)]);
    }
}
