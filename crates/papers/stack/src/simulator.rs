//! The simulation: events in the order of time.
//!
//! A logical CPU runs one task at a time: that of the interrupt if completions wait and the thread
//! holds no lock, otherwise a thread. A task executes the steps of its program. Each step of work
//! is one event, at its end. A task that waits for a lock keeps its CPU busy.

mod cpus;
mod locks;
mod threads;

use crate::calls::{Call, Request, Slots};
use crate::device::Device;
use crate::lock::Lock;
use crate::mechanism::Mechanism;
use crate::meter::{Activity, Meter, Outcome};
use crate::program::{Op, Place, Program};
use crate::setup::{Error, IOS_MAX, Setup, Variation};
use crate::stacks::Programs;
use cpus::Cpu;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use terapage_event::{Nanos, Queue};
use threads::Thread;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A task's work, or its wait for a lock, has ended.
    Go { task: u32 },
    /// It is time for a thread's next call.
    Due { thread: u32 },
    /// The device has completed a request.
    Done { request: u32 },
    /// The waiters of an unfair lock see that it is free.
    Contest { lock: u32 },
}

/// The program that a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Submit,
    Reap,
    Woken,
    Timer,
    Interrupt,
    Complete,
}

/// A thread, or a CPU's interrupts.
#[derive(Clone, Debug)]
struct Task {
    stage: Stage,
    next: usize,
    cpu: u32,
    /// The number of locks that the task holds.
    held: u32,
    /// The call that is being submitted.
    call: u32,
    /// The request that is being completed.
    request: u32,
    /// The time to fetch cache lines before the next work, ns.
    fetch_ns: f64,
    /// The place at which it waits, and the time since when.
    waits: Option<(Place, Nanos)>,
}

/// A simulation under way.
struct Simulator<'a> {
    setup: &'a Setup,
    programs: Programs,
    queue: Queue<Event>,
    rng: Pcg64Mcg,
    meter: Meter,
    device: Device,
    /// Threads first, then the interrupts of each CPU.
    tasks: Vec<Task>,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    locks: Vec<Lock>,
    calls: Slots<Call>,
    requests: Slots<Request>,
    /// Requests issued so far.
    issued: u64,
}

/// Simulates `setup`. The same setup and seed give the same outcome on all machines with the same
/// floating-point arithmetic.
///
/// # Errors
/// A setup that cannot be.
pub fn run(setup: &Setup, seed: u64) -> Result<Outcome, Error> {
    setup.check()?;
    let mut simulator = Simulator::new(setup, seed);
    simulator.start_threads();
    let end = setup.warm_ns + setup.measure_ns;
    while simulator.queue.next_time().is_some_and(|time| time < end) {
        let (_, event) = simulator.queue.pop().expect("there is a next event");
        simulator.happen(event);
        if simulator.issued > IOS_MAX {
            return Err(Error::Long { ios: simulator.issued, most: IOS_MAX });
        }
    }
    simulator.close(end);
    Ok(simulator.meter.outcome(setup.machine.cpus()))
}

impl<'a> Simulator<'a> {
    fn new(setup: &'a Setup, seed: u64) -> Self {
        let (machine, load) = (&setup.machine, &setup.load);
        let threads = load.threads;
        let task = |cpu| Task {
            stage: Stage::Idle,
            next: 0,
            cpu,
            held: 0,
            call: 0,
            request: 0,
            fetch_ns: 0.0,
            waits: None,
        };
        let of_threads = (0..threads).map(|thread| task(thread % machine.cpus()));
        Simulator {
            setup,
            programs: Programs::of(setup),
            queue: Queue::with_capacity(1024),
            rng: Pcg64Mcg::seed_from_u64(seed),
            meter: Meter::new(setup.warm_ns, setup.warm_ns + setup.measure_ns),
            device: Device::new(machine, setup.mechanisms.has(Mechanism::FrontEnd)),
            tasks: of_threads.chain((0..machine.cpus()).map(task)).collect(),
            threads: (0..threads).map(|_| Thread::default()).collect(),
            cpus: (0..machine.cpus()).map(|_| Cpu::default()).collect(),
            locks: locks::all(setup),
            calls: Slots::new(),
            requests: Slots::new(),
            issued: 0,
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Go { task } => self.go_on(task),
            Event::Due { thread } => self.due(thread),
            Event::Done { request } => self.done(request),
            Event::Contest { lock } => self.contest(lock),
        }
    }

    fn is_thread(&self, task: u32) -> bool {
        (task as usize) < self.threads.len()
    }

    fn program(&self, stage: Stage) -> &Program {
        match stage {
            Stage::Submit => &self.programs.submit,
            Stage::Reap => &self.programs.reap,
            Stage::Woken => &self.programs.woken,
            Stage::Timer => &self.programs.timer,
            Stage::Interrupt => &self.programs.interrupt,
            Stage::Idle | Stage::Complete => &self.programs.complete,
        }
    }

    /// A task begins a program.
    fn begin(&mut self, task: u32, stage: Stage) {
        let task = &mut self.tasks[task as usize];
        task.stage = stage;
        task.next = 0;
    }

    /// A task has no program.
    fn stop(&mut self, task: u32) {
        let task = &mut self.tasks[task as usize];
        task.stage = Stage::Idle;
        task.next = usize::MAX;
    }

    /// A task continues its program until it works, waits or has finished.
    fn go_on(&mut self, task: u32) {
        loop {
            if self.gives_way(task) {
                return;
            }
            let state = &self.tasks[task as usize];
            let Some(&step) = self.program(state.stage).get(state.next) else {
                if self.ended(task) {
                    continue;
                }
                return;
            };
            self.tasks[task as usize].next += 1;
            if step.request && self.is_merged(task, step.io) {
                continue;
            }
            let goes_on = match step.op {
                Op::Work { cycles, user } => self.work(task, cycles, user),
                Op::Fetch { lines } => self.fetch(task, lines),
                Op::Acquire(place) => self.acquire(task, place, step.io),
                Op::Release(place) => self.release(task, place, step.io),
                Op::Kick { cycles } => self.kick(task, cycles, step.io),
                Op::Issue => self.issue(task, step.io),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// A program has ended. It returns whether the task has begun another one.
    fn ended(&mut self, task: u32) -> bool {
        if self.is_thread(task) { self.thread_ended(task) } else { self.interrupt_ended(task) }
    }

    fn is_merged(&self, task: u32, io: u8) -> bool {
        let task = &self.tasks[task as usize];
        task.stage == Stage::Submit && self.calls.get(task.call).merged & (1 << io) != 0
    }

    /// A task computes. It returns whether that took no time.
    fn work(&mut self, task: u32, cycles: f64, user: bool) -> bool {
        let state = &mut self.tasks[task as usize];
        let (cpu, fetch_ns) = (state.cpu, std::mem::take(&mut state.fetch_ns));
        let ns = cycles * self.variation() / self.speed(cpu);
        let (fetch_ns, ns) = (fetch_ns.round() as Nanos, ns.round() as Nanos);
        let now = self.queue.now();
        self.meter.busy(Activity::Transfer, now, now + fetch_ns);
        let activity = if user { Activity::User } else { Activity::Kernel };
        self.meter.busy(activity, now + fetch_ns, now + fetch_ns + ns);
        if self.is_thread(task) || self.cpus[cpu as usize].has_interrupted() {
            self.meter.charge(now, now + fetch_ns + ns);
        }
        if fetch_ns + ns == 0 {
            return true;
        }
        self.queue.at(now + fetch_ns + ns, Event::Go { task });
        false
    }

    /// A factor for the cost of a stage, mean 1.
    fn variation(&mut self) -> f64 {
        match self.setup.load.variation {
            Variation::Fixed => 1.0,
            Variation::Uniform => 0.5 + self.rng.random::<f64>(),
            Variation::Exponential => crate::device::exponential(&mut self.rng),
        }
    }

    /// The lines of a request are fetched from the core that submitted it.
    fn fetch(&mut self, task: u32, lines: f64) -> bool {
        let machine = &self.setup.machine;
        let state = &mut self.tasks[task as usize];
        let from = machine.core(self.requests.get(state.request).cpu);
        state.fetch_ns += lines * machine.transfer_ns(from, machine.core(state.cpu));
        true
    }

    /// Notifies a virtual device of requests, unless it works. It returns whether that took no
    /// time.
    fn kick(&mut self, task: u32, cycles: f64, io: u8) -> bool {
        let volume = self.calls.get(self.tasks[task as usize].call).volumes[io as usize];
        let host = volume % self.setup.machine.hosts;
        if self.device.works(host) { true } else { self.work(task, cycles, false) }
    }

    /// A request is sent to the device.
    fn issue(&mut self, task: u32, io: u8) -> bool {
        let state = &self.tasks[task as usize];
        let call = self.calls.get(state.call);
        let volume = call.volumes[io as usize];
        let ios = 1 + (call.merged >> io >> 1).trailing_ones();
        let host = volume % self.setup.machine.hosts;
        let request = self.requests.put(Request { call: state.call, volume, ios, cpu: state.cpu });
        self.issued += 1;
        let done = self.device.submit(self.queue.now(), host, ios, &mut self.rng);
        self.queue.at(done, Event::Done { request });
        true
    }

    /// The kernel's part of a request is complete. It returns the cycles for waking its thread, if
    /// the thread sleeps.
    fn complete(&mut self, request: u32, cpu: u32) -> f64 {
        let Request { call: place, ios, .. } = *self.requests.get(request);
        self.requests.give_back(request);
        if self.is_paced() {
            let wanted = self.calls.get(place).wanted;
            self.meter.done(self.queue.now(), ios, self.queue.now().saturating_sub(wanted));
        }
        self.part_done(place, ios, cpu)
    }

    /// Notes that parts of a call are done: its I/Os, or its submission. It returns the cycles for
    /// waking its thread.
    fn part_done(&mut self, place: u32, parts: u32, cpu: u32) -> f64 {
        let call = self.calls.get_mut(place);
        let (thread, wanted) = (call.thread, call.wanted);
        call.left -= parts;
        if call.left > 0 {
            return 0.0;
        }
        self.calls.give_back(place);
        self.call_done(thread, cpu, wanted)
    }

    /// Whether calls come at a rate. Otherwise a thread issues its next call when it has the
    /// results of one before, and an I/O is under way until then.
    fn is_paced(&self) -> bool {
        self.setup.load.rate_iops.is_some()
    }

    /// A thread has the results of a call that it issued at `wanted`.
    fn taken(&mut self, wanted: Nanos) {
        if !self.is_paced() {
            let now = self.queue.now();
            self.meter.done(now, self.setup.load.multiplicity, now - wanted);
        }
    }

    /// Counts activities that have not ended at the end.
    fn close(&mut self, end: Nanos) {
        self.meter.under_way(end, 0);
        for task in 0..self.tasks.len() {
            if let Some((place, since)) = self.tasks[task].waits {
                self.meter.busy(place.activity(), since, end);
            }
        }
        for thread in &self.threads {
            if let Some(since) = thread.polls_since {
                self.meter.busy(Activity::Poll, since, end);
            }
        }
    }
}
