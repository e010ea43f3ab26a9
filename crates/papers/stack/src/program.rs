//! Programs: the steps of a thread or an interrupt.

use crate::mechanism::Mechanism;
use crate::meter::Activity;
use crate::setup::Setup;

/// A lock, or a cache line that many cores write. The volume of the I/O and the CPU select the lock
/// or line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The lock of the volume's request queue.
    Queue,
    /// The lock of the volume's host.
    Host,
    /// The lock of the volume's scheduler.
    Scheduler,
    /// The lock of the CPU's hardware queue at the volume's host.
    HardwareQueue,
    /// The tags of the CPU's hardware queue.
    Tags,
    /// The counter of the host.
    HostCounter,
    /// The counter of the volume.
    VolumeCounter,
}

impl Place {
    /// The activity of a CPU that waits at this place.
    pub fn activity(self) -> Activity {
        match self {
            Place::Queue => Activity::QueueSpin,
            Place::Host => Activity::HostSpin,
            _ => Activity::OtherSpin,
        }
    }
}

/// An operation of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// Computing for this many cycles.
    Work { cycles: f64, user: bool },
    /// Waiting for this many cache lines of the request, if another core submitted it.
    Fetch { lines: f64 },
    /// Taking a lock.
    Acquire(Place),
    /// Releasing a lock.
    Release(Place),
    /// Notifying a virtual device of requests, if it has none: an exit to the host.
    Kick { cycles: f64 },
    /// Handing the request to the device.
    Issue,
}

/// An operation, and the I/O of the call to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub op: Op,
    /// The I/O, from 0.
    pub io: u8,
    /// Whether the step is skipped for an I/O that was merged into the previous request.
    pub request: bool,
}

/// The longest step of work: an interrupt waits for its end. Chosen, not measured.
const STEP_CYCLES_MAX: f64 = 1000.0;

/// Steps in order.
pub(crate) type Program = Vec<Step>;

/// Builds a program for one setup. Steps that are switched off or cost nothing are left out.
pub(crate) struct Builder<'a> {
    setup: &'a Setup,
    steps: Program,
    request: bool,
}

impl<'a> Builder<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        Builder { setup, steps: Vec::new(), request: false }
    }

    pub fn build(self) -> Program {
        self.steps
    }

    /// Whether the next steps are for a request: merged I/Os skip them.
    pub fn request(&mut self) -> &mut Self {
        self.request = true;
        self
    }

    pub fn user(&mut self, io: u8, cycles: f64) {
        self.work(io, cycles, true);
    }

    pub fn kernel(&mut self, io: u8, cycles: f64) {
        self.work(io, cycles, false);
    }

    /// Adds work under a lock. If the work is zero the lock is not taken.
    pub fn locked(&mut self, io: u8, place: Place, cycles: f64) {
        let request = std::mem::take(&mut self.request);
        let steps = [Op::Acquire(place), Op::Work { cycles, user: false }, Op::Release(place)];
        if cycles > 0.0 {
            let steps = steps.into_iter().filter(|&op| self.is_on(op));
            let steps: Vec<Step> = steps.map(|op| Step { op, io, request }).collect();
            self.steps.extend(steps);
        }
    }

    pub fn acquire(&mut self, io: u8, place: Place) {
        self.push(io, Op::Acquire(place));
    }

    pub fn release(&mut self, io: u8, place: Place) {
        self.push(io, Op::Release(place));
    }

    /// Adds an atomic operation on a cache line that other cores also write: a lock that is held
    /// during the operation.
    pub fn shared_line(&mut self, io: u8, place: Place) {
        let cycles = self.setup.costs.atomic;
        self.locked(io, place, cycles);
    }

    /// Adds the notification of a virtual device, which is left out while the device works.
    pub fn kick(&mut self, io: u8) {
        let cycles = self.setup.costs.virtio_kick;
        self.push(io, Op::Kick { cycles });
    }

    pub fn issue(&mut self, io: u8) {
        self.push(io, Op::Issue);
    }

    /// Adds the fetch of a request's cache lines from the core that submitted it.
    pub fn fetch_request(&mut self) {
        let lines = self.setup.costs.request_lines;
        self.push(0, Op::Fetch { lines });
    }

    fn work(&mut self, io: u8, cycles: f64, user: bool) {
        let request = std::mem::take(&mut self.request);
        // An interrupt waits for the end of a step, so no step is long.
        let pieces = (cycles / STEP_CYCLES_MAX).ceil();
        for _ in 0..pieces as u32 {
            self.request = request;
            self.push(io, Op::Work { cycles: cycles / pieces, user });
        }
    }

    fn push(&mut self, io: u8, op: Op) {
        let request = std::mem::take(&mut self.request);
        if self.is_on(op) {
            self.steps.push(Step { op, io, request });
        }
    }

    fn is_on(&self, op: Op) -> bool {
        let mechanism = match op {
            Op::Acquire(Place::Queue) | Op::Release(Place::Queue) => Mechanism::QueueLock,
            Op::Acquire(Place::Host) | Op::Release(Place::Host) => Mechanism::HostLock,
            Op::Fetch { .. } => Mechanism::CacheTransfer,
            _ => return true,
        };
        self.setup.mechanisms.has(mechanism)
    }
}
