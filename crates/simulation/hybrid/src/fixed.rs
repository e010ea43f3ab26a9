//! A device whose commands all take the same time, for checks against closed forms.

use std::collections::VecDeque;

use terapage_event::Nanos;
use terapage_ssd::{Command, Device, Done};

/// A device with `servers` servers, each of which takes `latency_ns` for a command, first come,
/// first served.
pub struct FixedLatency {
    sectors: u64,
    latency_ns: Nanos,
    servers: usize,
    /// The times at which the last `servers` commands end: the next command begins at the first of
    /// these.
    ends: VecDeque<Nanos>,
    pending: VecDeque<Done>,
}

impl FixedLatency {
    /// A device of `sectors` sectors. If `servers` is 0, there are as many as needed, and no
    /// command waits.
    pub fn new(sectors: u64, latency_ns: Nanos, servers: usize) -> Self {
        let pending = VecDeque::new();
        FixedLatency { sectors, latency_ns, servers, ends: VecDeque::with_capacity(servers), pending }
    }
}

impl Device for FixedLatency {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn submit(&mut self, now: Nanos, command: Command, _done: &mut Vec<Done>) {
        assert!(
            command.sector + u64::from(command.sectors) <= self.sectors,
            "{command:?} is beyond the device"
        );
        let mut begin = now;
        if self.servers > 0 {
            if self.ends.len() == self.servers {
                begin = begin.max(self.ends.pop_front().unwrap_or(0));
            }
            self.ends.push_back(begin + self.latency_ns);
        }
        // All commands take the same time, so they complete in the order in which they arrived.
        self.pending.push_back(Done { tag: command.tag, time: begin + self.latency_ns });
    }

    fn next_time(&self) -> Option<Nanos> {
        self.pending.front().map(|done| done.time)
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        done.extend(self.pending.pop_front());
    }
}

#[cfg(test)]
mod tests {
    use terapage_ssd::Operation;

    use super::*;

    #[test]
    fn commands_wait_for_a_server() {
        let mut device = FixedLatency::new(100, 10, 2);
        let mut done = Vec::new();
        for tag in 0..5 {
            device.submit(3, Command { tag, operation: Operation::Read, sector: tag, sectors: 1 }, &mut done);
        }
        while device.next_time().is_some() {
            device.step(&mut done);
        }
        let times: Vec<Nanos> = done.iter().map(|done| done.time).collect();
        assert_eq!(times, [13, 13, 23, 23, 33]);
    }
}
