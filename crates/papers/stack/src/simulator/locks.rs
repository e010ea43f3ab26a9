//! Locks and shared cache lines, with time.

use super::{Event, Simulator, Stage};
use crate::lock::{Kind, Lock, Released, Waiter};
use crate::mechanism::Mechanism;
use crate::program::Place;
use crate::setup::Setup;

/// Hardware queues of a host.
fn hw_queues(setup: &Setup) -> u32 {
    match setup.machine.hw_queues {
        0 => setup.machine.cores,
        queues => queues,
    }
}

/// All locks, free. Those of the volumes come first (queue, scheduler, counter), then those of the
/// hosts (lock, counter) and of their hardware queues (lock, tags).
pub(super) fn all(setup: &Setup) -> Vec<Lock> {
    let kind = setup.machine.lock;
    let of_volume = [kind, kind, Kind::Queued];
    let of_host = [kind, Kind::Queued];
    let volumes = (0..setup.load.volumes).flat_map(|_| of_volume);
    let hosts = (0..setup.machine.hosts).flat_map(|_| of_host);
    let queues = (0..setup.machine.hosts * hw_queues(setup)).flat_map(|_| of_host);
    volumes.chain(hosts).chain(queues).map(Lock::new).collect()
}

impl Simulator<'_> {
    /// The lock that a place means for a task.
    fn lock_at(&self, task: u32, place: Place, io: u8) -> u32 {
        let state = &self.tasks[task as usize];
        let volume = match state.stage {
            Stage::Submit => self.calls.get(state.call).volumes[io as usize],
            _ => self.requests.get(state.request).volume,
        };
        let machine = &self.setup.machine;
        let (host, hosts_at) = (volume % machine.hosts, self.setup.load.volumes * 3);
        let queues = hw_queues(self.setup);
        // A completion belongs to the queue through which the request went.
        let cpu = if state.stage == Stage::Submit { state.cpu } else { self.requests.get(state.request).cpu };
        let queue_at = hosts_at + machine.hosts * 2 + (host * queues + machine.core(cpu) % queues) * 2;
        match place {
            Place::Queue => volume * 3,
            Place::Scheduler => volume * 3 + 1,
            Place::VolumeCounter => volume * 3 + 2,
            Place::Host => hosts_at + host * 2,
            Place::HostCounter => hosts_at + host * 2 + 1,
            Place::HardwareQueue => queue_at,
            Place::Tags => queue_at + 1,
        }
    }

    /// The time to fetch a cache line from one core to another, ns.
    fn transfer_ns(&self, from: u32, to: u32) -> f64 {
        let on = self.setup.mechanisms.has(Mechanism::CacheTransfer);
        if on { self.setup.machine.transfer_ns(from, to) } else { 0.0 }
    }

    /// Cache lines of data that the holder of a lock uses.
    fn lines(&self, place: Place) -> f64 {
        match place {
            Place::Queue | Place::Scheduler => self.setup.costs.queue_lines,
            Place::Host => self.setup.costs.host_lines,
            Place::HardwareQueue => 1.0,
            Place::Tags | Place::HostCounter | Place::VolumeCounter => 0.0,
        }
    }

    /// A task takes a lock, or waits. It returns whether it has the lock.
    pub(super) fn acquire(&mut self, task: u32, place: Place, io: u8) -> bool {
        let lock = self.lock_at(task, place, io);
        let state = &self.tasks[task as usize];
        let core = self.setup.machine.core(state.cpu);
        let from = self.locks[lock as usize].last_core();
        if self.locks[lock as usize].acquire(Waiter { task, core }) {
            let line_ns = from.map_or(0.0, |from| self.transfer_ns(from, core));
            let lines = 1.0 + self.lines(place);
            let state = &mut self.tasks[task as usize];
            state.held += 1;
            state.fetch_ns += line_ns * lines;
            return true;
        }
        self.tasks[task as usize].waits = Some((place, self.queue.now()));
        false
    }

    /// A task releases a lock. It always continues.
    pub(super) fn release(&mut self, task: u32, place: Place, io: u8) -> bool {
        let lock = self.lock_at(task, place, io);
        self.tasks[task as usize].held -= 1;
        let from = self.setup.machine.core(self.tasks[task as usize].cpu);
        match self.locks[lock as usize].release() {
            Released::Free => {}
            Released::Passed(next, left) => self.pass(lock, from, next, left),
            Released::Contest(waiters) => {
                let machine = &self.setup.machine;
                let line_ns = self.transfer_ns(from, (from + 1) % machine.cores);
                let wait_ns = line_ns * self.storm(lock, waiters);
                let time = self.queue.now() + wait_ns.round() as u64;
                self.queue.at(time, Event::Contest { lock });
            }
        }
        true
    }

    /// The extra time for a cache line that `left` other cores watch.
    fn storm(&self, lock: u32, left: usize) -> f64 {
        let watched = self.locks[lock as usize].kind() != Kind::Queued;
        let on = watched && self.setup.mechanisms.has(Mechanism::WaiterStorm);
        if on { 1.0 + self.setup.costs.waiter_share * left as f64 } else { 1.0 }
    }

    /// The lock moves from core `from` to a core that has waited.
    fn pass(&mut self, lock: u32, from: u32, next: Waiter, left: usize) {
        let line_ns = self.transfer_ns(from, next.core);
        let time = self.queue.now() + (line_ns * self.storm(lock, left)).round() as u64;
        let task = &mut self.tasks[next.task as usize];
        let (place, since) = task.waits.take().expect("it has waited");
        task.held += 1;
        self.meter.busy(place.activity(), since, time);
        let data_ns = line_ns * self.lines(place);
        self.tasks[next.task as usize].fetch_ns += data_ns;
        self.queue.at(time, Event::Go { task: next.task });
    }

    /// The waiters of an unfair lock see that it is free.
    pub(super) fn contest(&mut self, lock: u32) {
        use rand::Rng;
        let pick: u32 = self.rng.random();
        let from = self.locks[lock as usize].last_core();
        if let Some(winner) = self.locks[lock as usize].contest(pick as usize) {
            // The time until the waiters saw it has passed; only the data remain to be fetched.
            let task = &mut self.tasks[winner.task as usize];
            let (place, since) = task.waits.take().expect("it has waited");
            task.held += 1;
            self.meter.busy(place.activity(), since, self.queue.now());
            let line_ns = from.map_or(0.0, |from| self.transfer_ns(from, winner.core));
            self.tasks[winner.task as usize].fetch_ns += line_ns * self.lines(place);
            self.go_on(winner.task);
        }
    }
}
