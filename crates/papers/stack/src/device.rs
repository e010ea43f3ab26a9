//! The device behind the stack: front ends, each with a limit, and a latency.

use crate::setup::Machine;
use rand::Rng;
use terapage_event::Nanos;

/// The greatest number of requests whose completions are held back: the size of a virtual queue.
const HELD_MAX: usize = 128;

/// The front ends, one per host, and the storage behind them, which serves any number of I/Os at
/// the same time.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    service_ns: f64,
    fixed_ns: f64,
    random_ns: f64,
    free_at_ns: Vec<f64>,
    /// For each front end: the number of its requests.
    under_way: Vec<u32>,
    /// For each front end: requests that are done and not yet reported.
    held: Vec<Vec<u32>>,
}

impl Device {
    /// The device of `machine`; without a limit unless `limited`.
    pub fn new(machine: &Machine, limited: bool) -> Self {
        let service_ns = if limited { 1e9 * f64::from(machine.hosts) / machine.front_end_iops } else { 0.0 };
        Device {
            service_ns,
            fixed_ns: machine.latency_fixed_ns,
            random_ns: machine.latency_random_ns,
            free_at_ns: vec![0.0; machine.hosts as usize],
            under_way: vec![0; machine.hosts as usize],
            held: vec![Vec::new(); machine.hosts as usize],
        }
    }

    /// Whether a front end has requests.
    pub fn works(&self, host: u32) -> bool {
        self.under_way[host as usize] > 0
    }

    /// A request is done, and its completion is reported.
    pub fn finish(&mut self, host: u32) {
        self.under_way[host as usize] -= 1;
    }

    /// A request is done at a front end that reports completions together, once it has no more
    /// requests. Returns the requests whose completion is reported now.
    pub fn finish_together(&mut self, host: u32, request: u32) -> Vec<u32> {
        self.finish(host);
        let host = host as usize;
        self.held[host].push(request);
        if self.under_way[host] > 0 && self.held[host].len() < HELD_MAX {
            return Vec::new();
        }
        std::mem::take(&mut self.held[host])
    }

    /// The time at which a request for `ios` I/Os, given at `now` to the front end of `host`, is
    /// done.
    pub fn submit(&mut self, now: Nanos, host: u32, ios: u32, rng: &mut impl Rng) -> Nanos {
        self.under_way[host as usize] += 1;
        let free_at_ns = &mut self.free_at_ns[host as usize];
        *free_at_ns = free_at_ns.max(now as f64) + self.service_ns * f64::from(ios);
        let random_ns = if self.random_ns > 0.0 { self.random_ns * exponential(rng) } else { 0.0 };
        (*free_at_ns + self.fixed_ns + random_ns).round() as Nanos
    }
}

/// An exponentially distributed number, mean 1.
pub(crate) fn exponential(rng: &mut impl Rng) -> f64 {
    -(1.0 - rng.random::<f64>()).ln()
}
