//! Threads: they issue calls at their rate, take results, and sleep.

use super::{Event, Simulator, Stage};
use crate::calls::Call;
use crate::device::exponential;
use crate::meter::Activity;
use crate::setup::Arrivals;
use rand::Rng;
use std::collections::VecDeque;
use terapage_event::Nanos;

/// The part of a thread's state that interrupts do not have.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    /// Calls in flight, or done and not taken.
    outstanding: u32,
    /// Calls done and not taken, by when they were issued.
    results: Vec<Nanos>,
    /// When its next call is due, ns.
    due_ns: f64,
    /// Whether it sleeps.
    sleeps: bool,
    /// The time at which its timer expires, if it is set.
    timer: Option<Nanos>,
    /// The time since which it has polled without finding a completion.
    pub polls_since: Option<Nanos>,
    /// Requests that it will find.
    found: VecDeque<u32>,
}

impl Simulator<'_> {
    /// All threads start, out of step.
    pub(super) fn start_threads(&mut self) {
        let pause_ns = self.pause_ns().unwrap_or(0.0);
        for thread in 0..self.threads.len() as u32 {
            let phase: f64 = self.rng.random();
            self.threads[thread as usize].due_ns = phase * pause_ns;
            self.threads[thread as usize].sleeps = true;
            self.wake(thread, Stage::Timer);
        }
    }

    /// The mean time between two calls of a thread, ns; `None` for the highest possible load.
    fn pause_ns(&self) -> Option<f64> {
        let load = &self.setup.load;
        load.rate_iops.map(|rate| 1e9 * f64::from(load.multiplicity) * f64::from(load.threads) / rate)
    }

    /// A thread has ended a program. It returns whether it has begun another one.
    pub(super) fn thread_ended(&mut self, task: u32) -> bool {
        match self.tasks[task as usize].stage {
            Stage::Complete => {
                let (request, cpu) = (self.tasks[task as usize].request, self.tasks[task as usize].cpu);
                self.complete(request, cpu);
            }
            Stage::Submit => {
                let (call, cpu) = (self.tasks[task as usize].call, self.tasks[task as usize].cpu);
                self.part_done(call, 1, cpu);
            }
            Stage::Reap => {
                let thread = &mut self.threads[task as usize];
                let mut results = std::mem::take(&mut thread.results);
                thread.outstanding -= results.len() as u32;
                self.meter.under_way(self.queue.now(), -(results.len() as i64));
                results.drain(..).for_each(|wanted| self.taken(wanted));
                // Its memory is used again.
                self.threads[task as usize].results = results;
            }
            _ => {}
        }
        self.stop(task);
        self.next_program(task)
    }

    /// A thread decides what to do next.
    fn next_program(&mut self, task: u32) -> bool {
        let (now, paced) = (self.queue.now() as f64, self.setup.load.rate_iops.is_some());
        let thread = &mut self.threads[task as usize];
        if let Some(request) = thread.found.pop_front() {
            self.tasks[task as usize].request = request;
            self.begin(task, Stage::Complete);
            return true;
        }
        if !thread.results.is_empty() {
            self.begin(task, Stage::Reap);
            return true;
        }
        if thread.outstanding < self.setup.load.calls_in_flight && (!paced || thread.due_ns <= now) {
            self.begin_call(task);
            return true;
        }
        self.rest(task);
        false
    }

    /// A thread issues its next call.
    fn begin_call(&mut self, task: u32) {
        let now = self.queue.now();
        let pause_ns = self.pause_ns();
        let thread = &mut self.threads[task as usize];
        thread.outstanding += 1;
        self.meter.under_way(now, 1);
        let wanted = pause_ns.map_or(now, |_| thread.due_ns as Nanos);
        if let Some(pause_ns) = pause_ns {
            let poisson = self.setup.load.arrivals == Arrivals::Poisson;
            thread.due_ns += if poisson { pause_ns * exponential(&mut self.rng) } else { pause_ns };
        }
        let merged = self.draw_merged();
        let left = self.setup.load.multiplicity + 1;
        let call = match self.calls.reuse() {
            Some((place, call)) => {
                let volumes = std::mem::take(&mut call.volumes);
                *call = Call { thread: task, wanted, left, merged, volumes };
                place
            }
            None => self.calls.put(Call { thread: task, wanted, left, merged, volumes: Vec::new() }),
        };
        self.draw_volumes(call);
        self.tasks[task as usize].call = call;
        self.begin(task, Stage::Submit);
    }

    /// The volumes of a call.
    fn draw_volumes(&mut self, call: u32) {
        let load = &self.setup.load;
        let call = self.calls.get_mut(call);
        call.volumes.clear();
        let mut volume = self.rng.random_range(0..load.volumes);
        for io in 0..load.multiplicity {
            if io > 0 && load.spread {
                volume = self.rng.random_range(0..load.volumes);
            }
            call.volumes.push(volume);
        }
    }

    /// The I/Os of a call that are merged into the previous one.
    fn draw_merged(&mut self) -> u64 {
        let load = &self.setup.load;
        let merges = self.programs.submit.iter().any(|step| step.request);
        let plugs = self.setup.mechanisms.has(crate::mechanism::Mechanism::Plugging) && !load.spread;
        if load.sequential == 0.0 || !merges || !plugs {
            return 0;
        }
        let chance = load.sequential;
        (1..load.multiplicity).fold(0, |bits, io| bits | u64::from(self.rng.random_bool(chance)) << io)
    }

    /// A thread has no work: it polls, or sleeps and releases its CPU.
    fn rest(&mut self, task: u32) {
        let now = self.queue.now();
        let can_issue = self.threads[task as usize].outstanding < self.setup.load.calls_in_flight;
        if can_issue {
            let slack_ns = if self.setup.stack.polls() { 0.0 } else { self.setup.load.timer_slack_ns };
            let due = ((self.threads[task as usize].due_ns + slack_ns).ceil() as Nanos).max(now);
            if self.threads[task as usize].timer != Some(due) {
                self.threads[task as usize].timer = Some(due);
                self.queue.at(due, Event::Due { thread: task });
            }
        }
        if self.setup.stack.polls() {
            self.threads[task as usize].polls_since = Some(now);
            return;
        }
        self.threads[task as usize].sleeps = true;
        self.leave(self.tasks[task as usize].cpu);
    }

    /// The timer of a thread rings.
    pub(super) fn due(&mut self, thread: u32) {
        let state = &mut self.threads[thread as usize];
        if state.timer != Some(self.queue.now()) {
            return;
        }
        state.timer = None;
        if state.outstanding == self.setup.load.calls_in_flight {
            return;
        }
        if state.polls_since.is_some() {
            self.stop_polling(thread);
        } else if state.sleeps {
            self.wake(thread, Stage::Timer);
        }
    }

    /// A sleeping thread can run again, and begins with the cost of waking up.
    fn wake(&mut self, thread: u32, stage: Stage) {
        self.threads[thread as usize].sleeps = false;
        self.begin(thread, stage);
        self.make_ready(thread);
    }

    /// A request of a thread that polls, or will poll, is done.
    pub(super) fn found(&mut self, thread: u32, request: u32) {
        self.threads[thread as usize].found.push_back(request);
        self.stop_polling(thread);
    }

    /// A thread that polls has found something, or has something to issue.
    fn stop_polling(&mut self, thread: u32) {
        if let Some(since) = self.threads[thread as usize].polls_since.take() {
            self.meter.busy(Activity::Poll, since, self.queue.now());
            self.go_on(thread);
        }
    }

    /// All I/Os of a call are done. Returns the cycles for waking the thread from `cpu`, if it
    /// sleeps until then: a thread that sleeps until its next call is due takes the results when
    /// its timer wakes it.
    pub(super) fn call_done(&mut self, thread: u32, cpu: u32, wanted: Nanos) -> f64 {
        let state = &mut self.threads[thread as usize];
        if self.setup.stack.polls() {
            state.outstanding -= 1;
            self.meter.under_way(self.queue.now(), -1);
            self.taken(wanted);
            return 0.0;
        }
        state.results.push(wanted);
        if !state.sleeps || state.outstanding < self.setup.load.calls_in_flight {
            return 0.0;
        }
        self.wake(thread, Stage::Woken);
        let remote = self.tasks[thread as usize].cpu != cpu;
        self.programs.wake_cycles[usize::from(remote)]
    }
}
