//! The engine, run by the pager's thread: it handles faults, ends of I/O and requests one at a
//! time, and only this thread changes the state of blocks. It waits in one place, and waits for I/O
//! only if a thread of the program waits for the same.

use crate::awake::Awake;
use crate::carriers::Carriers;
use crate::held::Held;
use crate::io::bounce::Bounce;
use crate::io::transfers::Operation;
use crate::io::{self, Event, Io, Poll};
use crate::lease::{Lease, TICK_MS};
use crate::load::{Load, Way};
use crate::look::hash;
use crate::maker::Maker;
use crate::mover::{Lost, Mover};
use crate::pagein::Stall;
use crate::pool::Pool;
use crate::recorder::{Kind, Recorder};
use crate::table::{State, Table, WANTED};
use crate::{Mailbox, Options};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terapage_policy::grain::Grain;
use terapage_policy::prefetch::{self, Prefetch};
use terapage_policy::replacement::{self, Replacement};
use terapage_policy::soft::SoftFrames;
use terapage_policy::turns::Turns;
use terapage_stats::{Condition, Counters, Shared};
use terapage_store::{EXTENT, Ended, Failure, OpKind, Store};
use terapage_sys::fd::Fd;
use terapage_sys::memory::HUGE;
use terapage_sys::thread::{self, now_ns};
use terapage_sys::userfaultfd::Fault;

/// Operations that the ring takes at the same time.
const ENTRIES: u32 = 512;
/// The same in the children of forks: there may be many, and the memory that a user may lock must
/// do for all their rings.
const ENTRIES_OF_CHILD: u32 = 128;

/// The most that `luck` counts: each spin that found work adds 1, each other subtracts 2.
const LUCK_MAX: u32 = 16;

/// Tries of an operation that fails, without a pause in between.
const TRIES: u32 = 4;

/// The first and the longest pause, ms, between tries of an operation whose failure may pass. Each
/// pause is twice the one before.
const PAUSES_MS: [u64; 2] = [10, 1000];

/// Which thread may carry a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carry {
    /// The pager's thread, at once.
    Here,
    /// A carrier, if one is free.
    Anywhere,
}

/// A stream of first touches, upwards or downwards: where it continues, and how many blocks are
/// installed next.
#[derive(Clone, Copy, Default)]
pub(crate) struct FreshStream {
    /// The block after those that were installed.
    pub next: u32,
    /// The block before those that were installed, if the stream may go downwards.
    pub before: Option<u32>,
    pub window: u32,
    pub at: u64,
}

pub(crate) struct Engine {
    pub options: Options,
    pub block: usize,
    /// The most frames that may exist.
    pub limit: usize,
    /// The budget, if others share it.
    pub lease: Lease,
    /// Frames that exist: in the program or in the pool.
    pub frames: usize,
    /// Frames that are left unmade for copies.
    pub spare: usize,
    pub mapped: usize,
    pub leaving: usize,
    pub writing: usize,
    pub reading: usize,
    /// Soft blocks, the next one to lose its frame first, each with the stamp for which its item is
    /// valid.
    pub soft: VecDeque<(u32, u32)>,
    pub soft_len: usize,
    /// How many frames are kept ready: soft, free, not yet made, or on their way out.
    pub soft_frames: SoftFrames,
    pub table: Table,
    pub pool: Pool,
    pub mover: Arc<Mover>,
    pub carriers: Carriers,
    pub maker: Maker,
    pub awake: Awake,
    /// The hash of a block of zeros.
    pub zero_hash: u128,
    pub policy: Box<dyn Replacement>,
    /// The turns of threads, only with the default policy: the others follow their papers.
    pub turns: Option<Turns>,
    /// When the turn was last judged, and the processor time that its thread had used by then, both
    /// ns.
    pub turn_looked: (u64, u64),
    /// Which blocks come in together.
    pub grain: Grain,
    /// Its blocks are clusters.
    pub prefetch: Box<dyn Prefetch>,
    /// Runs to be prefetched once there are frames for them, each in the program's direction.
    pub postponed: VecDeque<Vec<u32>>,
    pub fresh: [FreshStream; 8],
    pub clock: u64,
    /// The ring, the stores, and the transfers under way.
    pub io: Io,
    pub files: Vec<crate::files::Mapped>,
    pub queue: VecDeque<Fault>,
    pub faults_ready: bool,
    pub requests_ready: bool,
    /// The timer, if something is to be done now and then.
    pub timer: Option<Fd>,
    pub tick_passed: bool,
    /// The stores are closed.
    pub closed: bool,
    /// Children that still read this process's slots: the snapshot of each, and the pipe that it
    /// keeps open.
    pub children: Vec<(u32, Fd)>,
    /// Ranges of blocks that the program says it touches in random order.
    pub random: Vec<std::ops::Range<u32>>,
    pub counters: &'static Counters,
    pub condition: &'static Condition,
    /// The reason that is given.
    pub condition_told: Option<String>,
    pub mailbox: &'static Mailbox,
    /// Reads under way for which a thread waits.
    pub demands: usize,
    /// Since when threads wait for reads.
    pub stall: Stall,
    /// How often spinning has found work lately, see `LUCK_MAX`.
    pub luck: u32,
    pub sleeps: u32,
    /// Blocks that do not leave for a while.
    pub held: Held,
    /// The number of forks that are near: while it is not 0, no block leaves the program that need
    /// not.
    pub holds: u32,
    pub recorder: Option<Recorder>,
}

impl Engine {
    pub fn new(
        options: Options,
        store: Box<dyn Store>,
        shared: &'static Shared,
        mailbox: &'static Mailbox,
    ) -> Result<Engine, crate::Error> {
        let block = options.block;
        let limit = options.frames;
        let mover = Arc::new(Mover::open(options.copy)?);
        let pool = Pool::new(limit, block)?;
        pool.register(&mover)?;
        let run = (EXTENT / block).min(limit / 8).max(1) as u32;
        let ahead = (options.ahead_bytes / block).min(limit / 4).max(1) as u32;
        let policy = replacement::by_name(&options.policy, limit).ok_or(crate::Error::Policy)?;
        let grain = Grain::new(options.cluster, limit);
        let clusters = |blocks: u32| (blocks >> grain.shift()).max(1);
        let prefetch =
            prefetch::by_name(&options.prefetch, limit >> grain.shift(), clusters(run), clusters(ahead));
        let prefetch = prefetch.ok_or(crate::Error::Policy)?;
        let mut engine = Engine {
            block,
            limit,
            lease: Lease::new(options.share, limit),
            frames: 0,
            spare: 0,
            mapped: 0,
            leaving: 0,
            writing: 0,
            reading: 0,
            soft: VecDeque::new(),
            soft_len: 0,
            soft_frames: SoftFrames::new(limit, block, options.soft_per_mille),
            table: Table::new(block, &shared.regions),
            pool,
            mover,
            carriers: Carriers::default(),
            maker: Maker::none(),
            awake: Awake::never(),
            zero_hash: hash(&vec![0; block]),
            turns: (options.turns && policy.name() == "auto").then(|| Turns::new(limit)),
            turn_looked: (0, 0),
            policy,
            grain,
            prefetch,
            postponed: VecDeque::new(),
            fresh: [FreshStream::default(); 8],
            clock: 0,
            io: Io::new(block, store),
            files: Vec::new(),
            queue: VecDeque::new(),
            faults_ready: false,
            requests_ready: false,
            timer: None,
            tick_passed: false,
            closed: false,
            children: Vec::new(),
            random: Vec::new(),
            counters: &shared.counters,
            condition: &shared.condition,
            condition_told: None,
            mailbox,
            demands: 0,
            stall: Stall::default(),
            luck: LUCK_MAX,
            sleeps: 0,
            held: Held::default(),
            holds: 0,
            recorder: None,
            options,
        };
        engine.counters.budget_bytes.store((limit * block) as u64, Relaxed);
        engine.counters.block_bytes.store(block as u64, Relaxed);
        engine.counters.lease_bytes.store((limit * block) as u64, Relaxed);
        engine.begin_lease();
        Ok(engine)
    }

    /// Called when the thread begins: opens its descriptors, and starts its helper threads.
    pub fn prepare(&mut self) {
        // The child of a fork has paged memory already. To begin a thread, the C library may need
        // it, and this thread cannot wait for itself.
        let may_begin_threads = self.table.regions().is_empty();
        let entries = if self.io.is_child() { ENTRIES_OF_CHILD } else { ENTRIES };
        let io = self.io.begin_ring(self.options.io, entries, may_begin_threads);
        self.counters.io_engine.store(io.number(), Relaxed);
        if std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1) {
            // With one processor, spinning would keep the program from working.
            self.options.spin_us = 0;
        }
        if may_begin_threads {
            self.start_helpers();
        }
        self.io.poll(Poll::Faults, self.mover.program.raw());
        self.io.poll(Poll::Requests, self.mailbox.event.raw());
        if let Some(event) = self.carriers.event() {
            self.io.poll(Poll::Carried, event.raw());
        }
        self.begin_ticks();
        for (id, fd) in &self.children {
            self.io.poll(Poll::Child(*id), fd.raw());
        }
        self.io.open_stores();
        // From here on the ring keeps the userfaultfd open: if the program closes all descriptors,
        // its memory stays paged.
        self.io.enter(0);
    }

    /// Serves until the process ends, after [`prepare`](Self::prepare).
    pub fn run(&mut self) {
        loop {
            self.awake.settle_late();
            self.take_ends();
            // One end at a time: to check and install a long run takes as long as to read one, and
            // the store must have new work meanwhile.
            self.handle_end();
            self.take_carried();
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
            self.publish();
            if std::mem::take(&mut self.tick_passed) {
                gives |= self.tick();
            }
            if cfg!(any(debug_assertions, test)) {
                self.assert_books_agree();
            }
            if std::mem::take(&mut self.requests_ready) {
                self.mailbox.event.clear();
                self.serve_request();
                if self.closed {
                    // What the stores held is gone. The process ends, and whoever touches what is
                    // not there waits for that.
                    loop {
                        thread::sleep_ms(1000);
                    }
                }
                continue;
            }
            if !self.io.finished.is_empty() {
                self.io.hand_over();
            } else if !self.faults_ready && !self.mover.heard.has_some() && !gives {
                self.sleep();
            }
        }
    }

    /// Starts the timer of `each_second`, and of the shared budget, if there are these. Without a
    /// timer nothing is called.
    fn begin_ticks(&mut self) {
        let shared = self.lease.is_shared();
        if self.options.each_second.is_some() || shared {
            self.timer = Fd::each(if shared { TICK_MS } else { 1000 }).ok();
            if let Some(timer) = &self.timer {
                self.io.poll(Poll::Timer, timer.raw());
            }
            self.tell_second();
        }
    }

    /// Whether frames are to be given back now.
    fn tick(&mut self) -> bool {
        if self.lease.ends_second() {
            self.tell_second();
        }
        self.ask_share(true);
        self.lease.excess() > 0
    }

    fn tell_second(&mut self) {
        if let Some(each_second) = self.options.each_second {
            each_second(self.counters, self.table.usage.books_bytes() as u64);
        }
    }

    /// Starts the helper threads, which save this thread time.
    fn start_helpers(&mut self) {
        if self.options.spin_us > 0 {
            self.awake = Awake::where_it_pays(self.mover.program.waker());
        }
        if self.mover.moves() {
            let most = if self.lease.is_shared() { self.options.frames } else { self.limit };
            let pages = most.saturating_sub(self.frames) * self.block / HUGE;
            self.maker = Maker::start(pages, self.options.spin_us > 0).unwrap_or_else(|_| Maker::none());
        }
        let carriers = Carriers::start(self.options.threads.saturating_sub(1));
        self.carriers = carriers.unwrap_or_else(|error| self.stop(&error.to_string()));
    }

    /// Waits until something happens: first spins for a moment, then sleeps.
    ///
    /// To wake up costs as much as a read, but spinning takes a processor from the program. If a
    /// thread waits for a read, it does not use its own processor meanwhile. Otherwise the pager
    /// spins only as long as that mostly finds work.
    fn sleep(&mut self) {
        let waited_for = self.demands > 0;
        let tries = self.luck > LUCK_MAX / 2 || self.sleeps.is_multiple_of(32);
        self.sleeps = self.sleeps.wrapping_add(1);
        if self.options.spin_us > 0 && (waited_for || tries) {
            let found = self.look_for_work();
            if !waited_for {
                self.luck = if found { (self.luck + 1).min(LUCK_MAX) } else { self.luck.saturating_sub(2) };
            }
            if found {
                return;
            }
        }
        self.rest();
    }

    fn look_for_work(&mut self) -> bool {
        let until = now_ns() + self.options.spin_us * 1000;
        loop {
            self.io.enter(0);
            if self.io.ring().has_done() || self.carriers.has_done() {
                return true;
            }
            self.awake.settle_late();
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
        result.unwrap_or_else(|lost| self.stop(&lost.to_string()))
    }

    /// Waits until something ends, and handles it.
    pub fn wait(&mut self) {
        if self.io.finished.is_empty() && !self.take_carried() {
            self.rest();
            self.take_ends();
        }
        self.handle_end();
        self.take_carried();
    }

    /// Sleeps until the ring or a carrier has something.
    fn rest(&mut self) {
        self.awake.settle();
        if self.carriers.may_sleep() {
            self.io.enter(1);
        }
        self.carriers.woke();
    }

    /// Handles the end of one operation, if one has ended.
    fn handle_end(&mut self) {
        if let Some(end) = self.io.next_end() {
            self.ended(end);
        }
    }

    /// Takes all events that have come.
    fn take_ends(&mut self) {
        while let Some(event) = self.io.next() {
            match event {
                Event::Faults => self.faults_ready = true,
                Event::Requests => self.requests_ready = true,
                Event::Carried => self.carriers.event().into_iter().for_each(Fd::clear),
                Event::Tick => {
                    self.timer.iter().for_each(Fd::clear);
                    self.tick_passed = true;
                }
                Event::ChildEnded(id) => self.child_ended(id),
            }
        }
    }

    fn take_faults(&mut self) {
        if std::mem::take(&mut self.faults_ready) | self.mover.heard.has_some() {
            if let Err(error) = self.mover.hear(16) {
                self.stop(&error.to_string());
            }
            self.mover.take_heard(&mut self.queue);
            self.see_to_removed();
        }
    }

    /// A thread of the program waits at an address.
    pub fn fault(&mut self, fault: Fault) {
        let Some(block) = self.table.block_at(fault.at) else {
            self.stop(&format!("a fault at {:#x}, which is not paged", fault.at));
        };
        let state = self.table.state(block);
        if let Some(turns) = &mut self.turns {
            match state {
                State::Stored if turns.waits(block, fault.thread) => self.judge_turn(),
                State::Stored => {}
                _ => drop(turns.touched(block, fault.thread)),
            }
        }
        match state {
            State::Zero => self.first_touch(block),
            State::Stored => self.hard_fault(block, fault.thread),
            State::Soft => self.soft_fault(block),
            State::Watched => self.watched_fault(block),
            State::Reading => {
                let first = !self.table.get(block).has(WANTED);
                self.table.get_mut(block).flags |= WANTED;
                if first {
                    self.stall.begin(self.now());
                    self.prefetch_after(block, true);
                }
            }
            State::Leaving | State::Writing => self.table.get_mut(block).flags |= WANTED,
            State::Loose => self.wake_page(fault.at),
            State::Mapped => {
                // The block came while this fault was on its way; a write protection may be left
                // over.
                if !self.mover.page_present(fault.at) {
                    if self.mover.heard.is_missed(fault.at) {
                        let done = self.mover.fresh(fault.at, terapage_sys::PAGE);
                        return self.or_stop(done);
                    }
                    self.stop(&format!("page {:#x} has vanished from the program", fault.at));
                }
                if fault.protected {
                    self.mover.program.protect(fault.at, terapage_sys::PAGE, false).ok();
                }
                self.wake_page(fault.at);
            }
        }
    }

    /// Judges the turn of threads at the end of a window.
    #[cold]
    fn judge_turn(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        let holder = turns.holder();
        let (now_ns, ran_ns) = (now_ns(), holder.and_then(thread::used_by).unwrap_or(0));
        let (looked_ns, had_run_ns) = self.turn_looked;
        let passed_ns = now_ns.saturating_sub(looked_ns).max(1);
        turns.judge(ran_ns.saturating_sub(had_run_ns) * 100 / passed_ns);
        let ran_ns = if turns.holder() == holder {
            ran_ns
        } else {
            turns.holder().and_then(thread::used_by).unwrap_or(0)
        };
        self.turn_looked = (now_ns, ran_ns);
    }

    pub fn wake_page(&mut self, at: usize) {
        self.mover.program.wake(at, terapage_sys::PAGE).ok();
    }

    /// Handles the end of a store's operation.
    fn ended(&mut self, end: Ended) {
        let number = end.id as usize;
        let mut operation = self.io.transfers.take_operation(number);
        match (end.result, operation.kind) {
            (Err(failure), _) => self.try_again(number, operation, &failure),
            (Ok(()), OpKind::Read) => self.arrived(number, operation),
            (Ok(()), OpKind::Write) => {
                self.put_buffer(&mut operation);
                self.paged_out(&operation);
            }
        }
    }

    /// Tries an operation again that failed: a few times at once, or, if waiting may help, with
    /// pauses until its time is up.
    pub fn try_again(&mut self, number: usize, mut operation: Operation, failure: &Failure) {
        let now_ns = self.now();
        if operation.tries == 0 {
            operation.failing_since_ns = now_ns;
        }
        operation.tries += 1;
        let failing_ms = (now_ns - operation.failing_since_ns) / 1_000_000;
        if failure.passing && failing_ms < self.options.patience_ms {
            let [first, most] = PAUSES_MS;
            let pause_ms = (first << (operation.tries - 1).min(16)).min(most);
            return self.io.begin_later(number, operation, pause_ms * 1_000_000);
        }
        if !failure.passing && operation.tries < TRIES {
            return self.io.begin_again(number, operation);
        }
        let wanted = |block: &&u32| self.table.get(**block).has(WANTED);
        let wanted = operation.blocks.iter().filter(wanted).count();
        if operation.kind == OpKind::Write || wanted == operation.blocks.len() {
            self.give_up(&operation, failure, failing_ms);
        }
        self.forgo(operation);
    }

    /// Lets a load be carried, by this thread or a carrier, and handles the result now or later.
    pub fn carry(&mut self, number: usize, way: Way, who: Carry) {
        let load = Box::new(Load::new(&self.mover, self.block, number, way));
        let here = if who == Carry::Anywhere { self.carriers.post(load) } else { Some(load) };
        if let Some(mut load) = here {
            load.carry();
            self.carried(*load);
        }
    }

    /// Handles the loads that carriers have done. Whether there were any.
    fn take_carried(&mut self) -> bool {
        let mut some = false;
        while let Some(load) = self.carriers.take() {
            self.carried(*load);
            some = true;
        }
        some
    }

    fn carried(&mut self, load: Load) {
        if let Some(lost) = load.lost {
            self.stop(&lost.to_string());
        }
        match load.way {
            Way::In(way) => {
                let operation = self.io.transfers.take_operation(load.transfer);
                self.checked(load.transfer, operation, &way);
            }
            Way::Out(way) => {
                let blocks = self.io.transfers.take_leaving(load.transfer);
                self.taken_out(&blocks, &way);
            }
        }
    }

    fn give_up(&self, operation: &Operation, failure: &Failure, failing_ms: u64) -> ! {
        let store = self.io.name(operation.origin);
        let doing = match operation.kind {
            OpKind::Read => "reading from",
            OpKind::Write => "writing to",
        };
        let how_long = match failure.passing {
            true => format!("for {} s", failing_ms / 1000),
            false => format!("{TRIES} times"),
        };
        self.stop(&format!("{doing} store {store} failed {how_long}: {}", failure.why))
    }

    /// Whether any block from `first` to `end` is in a transfer.
    pub fn is_on_its_way(&self, first: u32, end: u32) -> bool {
        let is_in = |block: &u32| (first..end).contains(block);
        self.io.transfers.blocks().any(|blocks| blocks.iter().any(is_in))
    }

    /// Waits until no block from `first` to `end` is in a transfer.
    pub fn settle(&mut self, first: u32, end: u32) {
        while self.is_on_its_way(first, end) {
            self.wait();
        }
    }

    /// Waits until no transfer is under way.
    pub fn settle_all(&mut self) {
        while self.reading + self.leaving + self.writing > 0 {
            self.wait();
        }
    }

    fn publish(&mut self) {
        self.make_room_for_books();
        let counters = self.counters;
        let buffers = self.io.bounce.as_ref().map_or(0, Bounce::total_bytes);
        let resident = (self.frames * self.block + buffers) as u64;
        counters.resident_bytes.store(resident, Relaxed);
        counters.resident_peak_bytes.fetch_max(resident, Relaxed);
        counters.store_bytes.store(u64::from(self.io.slots.count()) * self.block as u64, Relaxed);
        counters.retries.store(self.mover.retries.load(Relaxed), Relaxed);
        let condition = self.io.condition();
        if condition != self.condition_told {
            self.condition.set(condition.as_deref().unwrap_or(""));
            self.condition_told = condition;
        }
    }

    /// Checks that the counts agree with what they count. In tests of the model, each block is
    /// checked, too.
    ///
    /// # Panics
    /// They do not agree.
    fn assert_books_agree(&self) {
        let on_their_way = [self.leaving, self.reading, self.writing];
        assert_eq!(self.io.transfers.count(), on_their_way, "blocks on their way are miscounted");
        let mut counts = [self.mapped, self.soft_len, self.leaving, self.reading, self.writing];
        let mut frames: usize = counts.iter().sum::<usize>() + self.pool.free_len();
        assert!(frames <= self.frames, "{frames} frames are in use, of {}", self.frames);
        if !cfg!(test) {
            return;
        }
        for region in self.table.regions() {
            for block in region.first..region.first + region.blocks {
                match self.table.state(block) {
                    State::Mapped => counts[0] -= 1,
                    State::Soft => counts[1] -= 1,
                    State::Leaving => counts[2] -= 1,
                    State::Reading => counts[3] -= 1,
                    State::Writing => counts[4] -= 1,
                    State::Watched => frames += 1,
                    State::Zero | State::Stored | State::Loose => {}
                }
            }
        }
        assert_eq!(counts, [0; 5], "blocks are miscounted");
        // Blocks that a carrier is copying into the program have a second frame already.
        let most = frames + self.reading;
        assert!((frames..=most).contains(&self.frames), "{} frames, not {frames} to {most}", self.frames);
    }

    /// Records in the trace, if there is one, that the same happened to each of `blocks`.
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
