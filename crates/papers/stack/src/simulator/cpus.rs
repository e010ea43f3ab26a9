//! Logical CPUs: the tasks that run, and the interrupts that arrive.

use super::{Event, Simulator, Stage};
use crate::mechanism::Mechanism;
use rand::Rng;
use std::collections::VecDeque;

/// A logical CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    /// The task that runs.
    pub running: Option<u32>,
    /// The thread that was interrupted.
    interrupted: Option<u32>,
    /// Threads that could run.
    ready: VecDeque<u32>,
    /// Requests whose completion this CPU has to handle.
    completions: VecDeque<u32>,
}

impl Cpu {
    /// Whether an interrupt keeps a thread from running, which the kernel counts as the thread's
    /// time.
    pub(super) fn has_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }
}

impl Simulator<'_> {
    /// Cycles that a CPU does in a nanosecond.
    pub(super) fn speed(&self, cpu: u32) -> f64 {
        let machine = &self.setup.machine;
        let alone = machine.smt == 1 || !self.setup.mechanisms.has(Mechanism::Smt);
        let core = machine.core(cpu);
        let siblings = (0..machine.smt).map(|way| core + way * machine.cores);
        let shared = !alone
            && siblings.into_iter().any(|other| other != cpu && self.cpus[other as usize].running.is_some());
        if shared { machine.ghz * machine.smt_speed } else { machine.ghz }
    }

    /// The task of a CPU's interrupts.
    fn interrupts_of(&self, cpu: u32) -> u32 {
        self.threads.len() as u32 + cpu
    }

    /// The device has completed a request: a CPU is interrupted, or a polling thread will see it.
    pub(super) fn done(&mut self, request: u32) {
        let host = self.requests.get(request).volume % self.setup.machine.hosts;
        if !self.setup.machine.drains {
            self.device.finish(host);
            self.tell(request);
            return;
        }
        for request in self.device.finish_together(host, request) {
            self.tell(request);
        }
    }

    /// The completion of a request is reported.
    fn tell(&mut self, request: u32) {
        let state = *self.requests.get(request);
        if self.setup.stack.polls() {
            let thread = self.calls.get(state.call).thread;
            self.found(thread, request);
            return;
        }
        let anywhere =
            self.setup.stack.completes_anywhere() && self.setup.mechanisms.has(Mechanism::RemoteCompletion);
        let cpu = if anywhere { self.any_cpu() } else { state.cpu };
        self.cpus[cpu as usize].completions.push_back(request);
        if self.cpus[cpu as usize].running.is_none() {
            self.interrupt(cpu);
        }
    }

    /// Chooses a CPU for an interrupt that any CPU can handle. CPUs without a thread come first:
    /// the scheduler keeps threads away from CPUs that are busy with interrupts.
    fn any_cpu(&mut self) -> u32 {
        let (threads, cpus) = (self.threads.len(), self.cpus.len());
        let first = if threads < cpus { threads } else { 0 };
        self.rng.random_range(first..cpus) as u32
    }

    /// The interrupt's task runs on its CPU.
    fn interrupt(&mut self, cpu: u32) {
        let task = self.interrupts_of(cpu);
        self.cpus[cpu as usize].running = Some(task);
        self.meter.interrupt(self.queue.now());
        self.begin(task, Stage::Interrupt);
        self.go_on(task);
    }

    /// Returns whether a thread is interrupted here. A thread that holds a lock is not interrupted,
    /// since interrupts are disabled.
    pub(super) fn gives_way(&mut self, task: u32) -> bool {
        let state = &self.tasks[task as usize];
        if !self.is_thread(task) || state.held > 0 {
            return false;
        }
        let cpu = state.cpu;
        if self.cpus[cpu as usize].completions.is_empty() {
            return false;
        }
        self.cpus[cpu as usize].interrupted = Some(task);
        self.interrupt(cpu);
        true
    }

    /// The interrupt's task has reached the end of a program.
    pub(super) fn interrupt_ended(&mut self, task: u32) -> bool {
        let cpu = self.tasks[task as usize].cpu;
        if self.tasks[task as usize].stage == Stage::Complete {
            let wake_cycles = self.complete(self.tasks[task as usize].request, cpu);
            self.stop(task);
            if wake_cycles > 0.0 && !self.work(task, wake_cycles, false) {
                return false;
            }
        }
        self.next_completion(task, cpu)
    }

    /// The next request is completed, by this interrupt or by another one; or the CPU continues
    /// with other work.
    fn next_completion(&mut self, task: u32, cpu: u32) -> bool {
        let here = self.tasks[task as usize].stage == Stage::Interrupt
            || self.setup.mechanisms.has(Mechanism::Coalescing);
        if self.cpus[cpu as usize].completions.is_empty() {
            self.stop(task);
            self.leave(cpu);
            return false;
        }
        if !here {
            self.meter.interrupt(self.queue.now());
            self.begin(task, Stage::Interrupt);
            return true;
        }
        if let Some(request) = self.cpus[cpu as usize].completions.pop_front() {
            self.tasks[task as usize].request = request;
            self.begin(task, Stage::Complete);
        }
        true
    }

    /// The CPU's task has ended: the interrupted thread continues, or a ready one runs, or none.
    pub(super) fn leave(&mut self, cpu: u32) {
        let state = &mut self.cpus[cpu as usize];
        let next = state.interrupted.take().or_else(|| state.ready.pop_front());
        state.running = next;
        if let Some(task) = next {
            self.go_on(task);
        }
    }

    /// A thread can run. If its CPU is idle, it runs at once.
    pub(super) fn make_ready(&mut self, thread: u32) {
        let cpu = self.tasks[thread as usize].cpu;
        let state = &mut self.cpus[cpu as usize];
        if state.running.is_some() {
            state.ready.push_back(thread);
            return;
        }
        state.running = Some(thread);
        self.queue.at(self.queue.now(), Event::Go { task: thread });
    }
}
