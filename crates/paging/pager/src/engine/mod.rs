//! The engine, run by the pager's thread: it handles faults, completions of I/O and requests one at
//! a time, and only this thread changes the state of blocks. It waits in one place, and waits for
//! I/O only if a thread of the program waits for the same I/O.

mod advice;
pub(crate) mod ahead;
mod budget;
mod companions;
mod end;
pub(crate) mod files;
mod fork;
mod grace;
pub(crate) mod learnt;
mod pagein;
mod pageout;
mod pinned;
mod placing;
mod removed;
mod requests;
mod sealed;
mod split;
pub(crate) mod table;
mod transfers;
mod trial;
pub(crate) mod usage;
mod waits;

use crate::carry::hash::hash;
use crate::carry::mover::{Lost, Mover};
use crate::error::Error;
use crate::follow::Follow;
use crate::frames::Frames;
use crate::frames::lease::TICK_MS;
use crate::frames::maker::Maker;
use crate::io::{self, Event, Io, Poll};
use crate::mailbox::Mailbox;
use crate::options::Options;
use crate::trace::{Kind, Recorder};
use ahead::{Ahead, Touch};
use grace::Grace;
use learnt::Learning;
use pagein::Stall;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use table::{COMPANION, State, Table, WANTED};
use terapage_policy::companions::Companions;
use terapage_policy::replacement::{self, Replacement};
use terapage_policy::spinning::Spinning;
use terapage_stats::{Condition, Control, Counters, Shared};
use terapage_store::{Store, packed_bytes};
use terapage_sys::fd::Fd;
use terapage_sys::memory::{self, HUGE};
use terapage_sys::thread::{self, now_ns};
use terapage_sys::userfaultfd::Fault;
use trial::Trials;
use waits::Waits;

/// Operations that the ring takes at the same time. Chosen, not measured.
const ENTRIES: u32 = 512;
/// The same in the children of forks: there may be many, and the memory that a user may lock must
/// suffice for all their rings. Chosen, not measured.
const ENTRIES_OF_CHILD: u32 = 128;

/// The timer for regular work, if there is any.
#[derive(Default)]
pub(crate) struct Ticks {
    timer: Option<Fd>,
    /// A tick has passed, and its work has not been done yet.
    passed: bool,
    /// The same of a short tick.
    short_passed: bool,
    /// Short ticks since the process began to be paged.
    short: u64,
    /// Ticks stay short, since memory is nearly short.
    hurried: bool,
    /// Ticks while `hurried`.
    hurries: u64,
}

/// In the first second ticks are this many times as frequent: some programs end within it.
const SHORT: u64 = if cfg!(terapage_model) { 1 } else { 10 };
const SHORT_TICKS: u64 = SHORT * 1000 / TICK_MS;

impl Ticks {
    /// The timer has become readable.
    fn pass(&mut self) {
        self.timer.iter().for_each(Fd::clear);
        if self.short < SHORT_TICKS {
            self.short += 1;
            self.short_passed = true;
            self.passed |= self.short.is_multiple_of(SHORT);
            if self.short == SHORT_TICKS {
                self.timer.iter().for_each(|timer| drop(timer.every(TICK_MS)));
            }
        } else if self.hurried {
            self.hurries += 1;
            self.passed |= self.hurries.is_multiple_of(SHORT);
        } else {
            self.passed = true;
        }
    }

    /// From now on ticks are short, or not.
    fn hurry(&mut self, hurried: bool) {
        if self.short == SHORT_TICKS && self.hurried != hurried {
            self.hurried = hurried;
            let period = if hurried { TICK_MS / SHORT } else { TICK_MS };
            self.timer.iter().for_each(|timer| drop(timer.every(period)));
        }
    }
}

/// The condition of the stores, as last reported.
pub(crate) struct ReportedCondition {
    place: &'static Condition,
    /// The reported reason.
    reason: Option<String>,
}

impl ReportedCondition {
    pub fn new(place: &'static Condition) -> ReportedCondition {
        ReportedCondition { place, reason: None }
    }

    fn report(&mut self, reason: Option<String>) {
        if reason != self.reason {
            self.place.set(reason.as_deref().unwrap_or(""));
            self.reason = reason;
        }
    }
}

/// The processors' clocks, for the replacement policy.
struct Clocks;

impl replacement::Times for Clocks {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn used_by(&self, thread: u32) -> Option<u64> {
        thread::used_by(thread)
    }
}

pub(crate) struct Engine {
    pub options: Options,
    pub block: usize,
    /// Blocks were split.
    pub is_split: bool,
    pub frames: Frames,
    pub table: Table,
    pub mover: Mover,
    /// On which processor the pager's thread runs.
    pub follow: Follow,
    /// Whether the pager's thread spins before it sleeps.
    pub spinning: Spinning,
    /// The hash of a block of zeros.
    pub zero_hash: u128,
    pub policy: Box<dyn Replacement>,
    pub ahead: Ahead,
    pub trials: Trials,
    /// How many blocks are read together.
    pub companions: Companions,
    /// The ring, the stores, and the transfers under way.
    pub io: Io,
    pub files: Vec<files::Mapped>,
    pub queue: VecDeque<Fault>,
    pub faults_ready: bool,
    pub requests_ready: bool,
    pub ticks: Ticks,
    /// The stores are closed.
    pub closed: bool,
    /// Nothing is paged any more, and the pager's thread ends. Then it calls this.
    pub over: Option<end::Over>,
    /// Children that still read this process's slots: the snapshot of each, and the pipe that the
    /// child keeps open.
    pub children: Vec<(u32, Fd)>,
    pub counters: &'static Counters,
    pub condition: ReportedCondition,
    /// Through which a release is asked for.
    pub control: &'static Control,
    pub mailbox: &'static Mailbox,
    /// Reads under way for which a thread waits.
    pub demands: usize,
    /// The time since which threads wait for reads.
    pub stall: Stall,
    /// The time for which threads wait for faults.
    pub waits: Waits,
    /// Blocks that stay in the program for a while.
    pub grace: Grace,
    /// A system call that waits until it may pin what it names.
    pub waiting: pinned::Waiting,
    /// The number of forks that are about to begin: while it is not 0, only blocks that must leave
    /// the program do.
    pub forks_ahead: u32,
    pub recorder: Option<Recorder>,
    /// The order of the last run, and of this one.
    pub learning: Option<Learning>,
}

impl Engine {
    pub fn new(
        mut options: Options,
        store: Box<dyn Store>,
        shared: &'static Shared,
        mailbox: &'static Mailbox,
    ) -> Result<Engine, Error> {
        let (block, limit) = (options.block, options.frames);
        let mover = Mover::open(options.copy, options.pins)?;
        let frames = Frames::new(&options)?;
        frames.pool.register(&mover)?;
        let replacement = if options.turns { replacement::in_turns } else { replacement::by_name };
        let policy = replacement(&options.policy, limit).ok_or(Error::Policy)?;
        let ahead = Ahead::new(&options).ok_or(Error::Policy)?;
        let splits = split::may_ever(&options, &*store);
        let learning = options.learn.take().map(|last| Learning::new(last, limit * block));
        let mut engine = Engine {
            block,
            is_split: false,
            frames,
            table: Table::new(block, splits, &shared.regions),
            mover,
            follow: Follow::nobody(),
            spinning: Spinning::default(),
            zero_hash: hash(&vec![0; block]),
            policy,
            ahead,
            trials: Trials::new(splits, limit),
            companions: Companions::default(),
            io: Io::new(&options, store),
            files: Vec::new(),
            queue: VecDeque::new(),
            faults_ready: false,
            requests_ready: false,
            ticks: Ticks::default(),
            closed: false,
            over: None,
            children: Vec::new(),
            counters: &shared.counters,
            condition: ReportedCondition::new(&shared.condition),
            control: &shared.control,
            mailbox,
            demands: 0,
            stall: Stall::default(),
            waits: Waits::default(),
            grace: Grace::default(),
            waiting: pinned::Waiting::default(),
            forks_ahead: 0,
            recorder: None,
            learning,
            options,
        };
        engine.counters.budget_bytes.store((limit * block) as u64, Relaxed);
        engine.counters.block_bytes.store(block as u64, Relaxed);
        engine.counters.lease_bytes.store((limit * block) as u64, Relaxed);
        engine.begin_lease();
        Ok(engine)
    }

    /// Called when the thread begins: opens its descriptors, and starts the thread that makes
    /// frames.
    pub fn prepare(&mut self) {
        // The child of a fork already has paged memory. The C library may need that memory to begin
        // a thread, and this thread cannot wait for itself.
        let may_begin_threads = self.table.regions().is_empty();
        let entries = if self.io.is_child() { ENTRIES_OF_CHILD } else { ENTRIES };
        let io = self.io.begin_ring(self.options.io, entries, may_begin_threads);
        self.counters.io_engine.store(io.number(), Relaxed);
        self.counters.guarded.store(u64::from(self.mover.pins().is_some()), Relaxed);
        let processors = thread::processors();
        if processors == 1 {
            // With one processor, spinning would keep the program from working.
            self.options.spin_us = 0;
        }
        // Not in the child of a fork: inspecting threads takes memory, for which this thread might
        // wait for the thread that forked, which waits for this one.
        if may_begin_threads {
            if self.options.follows {
                self.follow = Follow::where_it_pays();
            }
            self.start_maker();
        }
        self.io.poll(Poll::Faults, self.mover.program.raw());
        self.io.poll(Poll::Requests, self.mailbox.event.raw());
        self.begin_ticks();
        for (id, fd) in &self.children {
            self.io.poll(Poll::Child(*id), fd.raw());
        }
        self.io.open_stores();
        self.io.poll_owners();
        // From here on the ring keeps the userfaultfd open: if the program closes all descriptors,
        // its memory stays paged.
        self.io.enter(0);
    }

    /// Serves until the process ends, or nothing is paged any more, after
    /// [`prepare`](Self::prepare). Returns what to do once the engine is gone.
    pub fn run(&mut self) -> end::Over {
        loop {
            self.take_ends();
            // One completion at a time: checking and installing a long run takes as long as reading
            // one, and the store must have new work meanwhile.
            self.handle_end();
            self.take_faults();
            while let Some(fault) = self.queue.pop_front() {
                self.fault(fault);
            }
            if self.is_short() {
                // Reads for which a thread waits are submitted before other work.
                self.io.hand_over();
                self.balance();
            }
            if self.demands > 0 {
                self.make_spare();
            }
            let mut gives = self.see_to_lease();
            self.read_postponed();
            self.see_to_splitting();
            self.publish();
            if std::mem::take(&mut self.ticks.short_passed) {
                self.report_second();
            }
            if std::mem::take(&mut self.ticks.passed) {
                gives |= self.tick();
            }
            gives |= self.see_to_release();
            if let Some(over) = self.over.take() {
                return over;
            }
            if cfg!(any(debug_assertions, terapage_model)) {
                self.assert_books_agree();
            }
            if std::mem::take(&mut self.requests_ready) {
                self.mailbox.event.clear();
                self.serve_request();
                if self.closed {
                    // The stores' bytes are gone. The process ends; until then, a thread that
                    // touches a block that is not in the program waits.
                    loop {
                        thread::sleep_ms(1000);
                    }
                }
                if let Some(over) = self.over.take() {
                    return over;
                }
                continue;
            }
            if !self.io.finished.is_empty() {
                self.io.hand_over();
            } else if !self.faults_ready && !self.mover.events.has_any() && !gives {
                self.sleep();
                self.waits.idle(self.now());
            }
        }
    }

    /// Starts the timer, if anything needs one.
    fn begin_ticks(&mut self) {
        let shared = self.frames.lease.is_shared();
        if self.options.each_second.is_some() || shared || self.follow.wants_ticks() {
            self.ticks.timer = Fd::each(TICK_MS / SHORT).ok();
            if let Some(timer) = &self.ticks.timer {
                self.io.poll(Poll::Timer, timer.raw());
            }
            self.report_second();
        }
    }

    /// Whether to return frames now.
    fn tick(&mut self) -> bool {
        self.follow.tick();
        if self.frames.lease.ends_second() {
            self.report_second();
        }
        self.ask_share(true, false);
        self.ticks.hurry(self.frames.lease.is_near());
        self.frames.lease.excess() > 0
    }

    fn report_second(&mut self) {
        if let Some(each_second) = self.options.each_second {
            each_second(self.counters, self.books_bytes() as u64);
        }
    }

    /// Starts the thread that makes frames ahead.
    fn start_maker(&mut self) {
        if self.mover.moves() && memory::has_huge() {
            let most = if self.frames.lease.is_shared() { self.options.frames } else { self.frames.limit };
            let pages = most.saturating_sub(self.frames.count) * self.block / HUGE;
            self.frames.maker =
                Maker::start(pages, self.options.spin_us > 0).unwrap_or_else(|_| Maker::none());
        }
    }

    /// Waits until something happens: first spins for a moment, then sleeps.
    ///
    /// Waking up costs as much as a read, but spinning takes a processor from the program. A thread
    /// that waits for a read does not use its own processor meanwhile. Otherwise the pager spins
    /// only while that mostly finds work.
    fn sleep(&mut self) {
        let waited_for = self.demands > 0;
        let tries = self.spinning.tries();
        self.spinning.sleeps();
        // On the processor of the program's thread, spinning would displace that thread.
        let tries = tries && !self.follow.is_there();
        if self.options.spin_us > 0 && (waited_for || tries) {
            let found = self.look_for_work();
            if !waited_for {
                self.spinning.looked(found);
            }
            if found {
                return;
            }
        }
        self.io.enter(1);
    }

    fn look_for_work(&mut self) -> bool {
        let until = now_ns() + self.options.spin_us * 1000;
        loop {
            self.io.enter(0);
            if self.follow.is_there() {
                thread::pause().ok();
            }
            if self.io.ring().has_done() {
                return true;
            }
            if now_ns() > until {
                return false;
            }
        }
    }

    /// Ends the process: the program cannot get its bytes.
    pub fn stop(&self, why: &str) -> ! {
        io::stop(why)
    }

    pub fn or_stop<T>(&self, result: Result<T, Lost>) -> T {
        result.unwrap_or_else(|lost| {
            self.mover.blame_call();
            self.stop(&lost.to_string())
        })
    }

    /// Waits until an operation ends, and handles that.
    pub fn wait(&mut self) {
        if self.io.finished.is_empty() {
            self.io.enter(1);
            self.take_ends();
            self.count_stall_so_far();
        }
        self.handle_end();
    }

    /// Handles the completion of one operation, if there is one.
    fn handle_end(&mut self) {
        if let Some(end) = self.io.next_end() {
            self.ended(end);
        }
    }

    /// Takes all events that have come.
    fn take_ends(&mut self) {
        while let Some(event) = self.io.next_event() {
            match event {
                Event::Faults => self.faults_ready = true,
                Event::Requests => self.requests_ready = true,
                Event::Tick => {
                    self.ticks.pass();
                    if self.frames.lease.is_near() {
                        self.follow_share();
                    }
                }
                Event::ChildEnded(id) => self.child_ended(id),
                Event::OwnerEnded(origin) => self.io.adopt(origin),
            }
        }
    }

    fn take_faults(&mut self) {
        if std::mem::take(&mut self.faults_ready) | self.mover.events.has_any() {
            if let Err(error) = self.mover.read_events(16) {
                self.stop(&error.to_string());
            }
            self.mover.events.take_faults(&mut self.queue);
            self.waits.faults_read(self.now());
            self.see_to_removed();
        }
    }

    /// A thread of the program waits at an address.
    pub fn fault(&mut self, fault: Fault) {
        self.follow.fault(fault.thread);
        let Some(block) = self.table.block_at(fault.at) else {
            self.stop(&format!("a fault at {:#x}, which is not paged", fault.at));
        };
        let state = self.table.state(block);
        match state {
            State::Stored => self.policy.waits(block, fault.thread, &Clocks),
            _ => self.policy.touched_by(block, fault.thread),
        }
        match state {
            State::Zero => self.first_touch(block),
            State::Stored => self.major_fault(block, fault.at),
            State::Soft => self.minor_fault(block, fault.at),
            State::Watched => self.watched_fault(block),
            State::Reading => {
                let first = !self.table.get(block).has(WANTED);
                self.table.get_mut(block).flags |= WANTED;
                self.waits.late(block);
                self.touch_trial(block, fault.at);
                if first {
                    self.stall.begin(self.now());
                    // No stream has asked for a companion.
                    let missing = self.table.get(block).has(COMPANION);
                    self.prefetch_after(block, if missing { Touch::Missing } else { Touch::Late });
                }
            }
            State::Writing => {
                self.table.get_mut(block).flags |= WANTED;
                self.waits.late(block);
            }
            State::Loose => self.wake_page(fault.at),
            State::Mapped if fault.protected && self.mover.events.is_sealed(fault.at, 1) => {
                self.write_to_sealed(block, fault.at);
            }
            State::Mapped => {
                // The block came in while this fault was on its way; a write protection may remain.
                if !self.mover.page_present(fault.at) {
                    if self.touch_open_trial(block, fault.at) {
                        self.minor_wait_ends();
                        return;
                    }
                    if self.mover.events.is_missed(fault.at) {
                        let done = self.mover.fresh(fault.at, terapage_sys::page_bytes());
                        return self.or_stop(done);
                    }
                    self.mover.blame_call();
                    self.stop(&format!("page {:#x} has vanished from the program", fault.at));
                }
                if fault.protected {
                    self.mover.program.protect(fault.at, terapage_sys::page_bytes(), false).ok();
                }
                self.wake_page(fault.at);
            }
        }
    }

    pub fn wake_page(&mut self, at: usize) {
        self.mover.program.wake(at, terapage_sys::page_bytes()).ok();
    }

    fn publish(&mut self) {
        self.make_room_for_books();
        let counters = self.counters;
        let buffers = self.io.bounce.total_bytes();
        let resident = (self.frames.count * self.block + buffers + packed_bytes()) as u64;
        counters.resident_bytes.store(resident, Relaxed);
        counters.resident_peak_bytes.fetch_max(resident, Relaxed);
        counters.books_bytes.store(self.books_bytes() as u64, Relaxed);
        counters.store_bytes.store(u64::from(self.io.slots.count()) * self.block as u64, Relaxed);
        counters.retries.store(self.mover.retries, Relaxed);
        self.count_waits();
        self.count_stall_so_far();
        counters.prefetch_stopped.store(u64::from(self.ahead.policy.is_stopped()), Relaxed);
        let (condition, mirrors) = self.io.state();
        self.condition.report(condition);
        counters.mirror_copies.store(u64::from(mirrors.copies), Relaxed);
        counters.mirror_missing.store(u64::from(mirrors.missing), Relaxed);
        counters.mirror_behind.store(mirrors.behind, Relaxed);
        counters.resynced_bytes.store(mirrors.resynced_bytes, Relaxed);
    }

    /// Checks that the parts agree with each other. Under the model checker, each block is checked,
    /// too.
    ///
    /// # Panics
    /// The tables do not agree.
    fn assert_books_agree(&self) {
        let count = |state| self.table.count(state);
        let (reading, writing) = (count(State::Reading), count(State::Writing));
        let on_their_way = self.io.transfers.count();
        assert_eq!(on_their_way, [reading, writing], "blocks on their way are miscounted");
        let settled = count(State::Mapped) + count(State::Soft) + count(State::Watched);
        let used = settled + reading + writing + self.trials.frames();
        self.frames.assert_agree(used, reading);
        let lease = (self.frames.lease.frames * self.block) as u64;
        assert_eq!(self.counters.lease_bytes.load(Relaxed), lease, "the lease is not what is reported");
        if cfg!(terapage_model) {
            self.table.assert_counts();
            self.io.slots.assert_counts();
            let in_pool = count(State::Soft) + count(State::Watched) + reading + writing;
            let in_pool = in_pool + self.trials.frames() + self.frames.pool.free_len();
            assert_eq!(self.frames.pool.filled(), in_pool, "places are miscounted");
        }
    }

    /// Records in the trace, if there is one, that the same event happened to each of `blocks`.
    pub fn record(&mut self, kind: Kind, blocks: impl IntoIterator<Item = u32>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.events(kind, blocks);
        }
    }

    /// Nanoseconds now, for latencies.
    pub fn now(&self) -> u64 {
        now_ns()
    }
}
