//! The pager's real engine on a simulated machine, under shuttle: program threads that read, write,
//! discard and fork, with a disk and a kernel that misbehave like real ones, in thousands of
//! orders.
//!
//! The tests check six properties: a synced file has the written bytes; a read returns the last
//! written bytes; every thread ends; the present pages never exceed the budget; a page is touched
//! only where it is; a fork's slots stay unchanged. A loss shows as a wrong byte, because rubbish
//! remains in each page that is given up.
//!
//! Each run prints its seed, which is always the same; `TERAPAGE_SEED` gives another,
//! `TERAPAGE_RUNS` lengthens it (`make soak` does both).

use crate::carry::hash;
use crate::engine::Engine;
use crate::engine::files;
use crate::engine::table::State;
use crate::frames::lease::{Share, Use};
use crate::mailbox::Mailbox;
use crate::options::{Options, Tuning};
use crate::pager::Pager;
use crate::pins::{Caller, Pins};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use terapage_model::fd::Fd;
use terapage_model::machine::{self, Behaviour, Canary, choose};
use terapage_model::ring::Done;
use terapage_model::store::Disk;
use terapage_model::{memory, page_bytes, program, ring};
use terapage_store::{
    Below, BelowMut, Delayed, Ended, Error as StoreError, Faults, Faulty, Mirror, Notes, Op, OpKind, Store,
    StoreRing,
};
use terapage_trace::Misses;

const PAGES_A_BLOCK: usize = 4;
const BLOCK: usize = PAGES_A_BLOCK * page_bytes();
const FRAMES: usize = 8;
/// Frames more that there are at times if the budget is shared.
const FRAMES_MORE: usize = 6;
const BLOCKS: usize = 14;
/// Blocks of a range that is paged with its present bytes.
const FILLED: usize = 3;
/// Blocks of a range at which a file is mapped, which ends in the last of them.
const MAPPED: usize = 3;
const FILE_BYTES: usize = MAPPED * BLOCK - 100;

/// The plan of a run.
#[derive(Clone, Copy)]
struct Plan {
    /// Other processes take frames, and return them.
    shared: bool,
    threads: usize,
    steps: usize,
    moves: bool,
    verify: bool,
    trouble: u32,
    canary: Option<Canary>,
    policies: &'static [&'static str],
    /// Two disks with the same bytes, of which one fails without end.
    mirrored: bool,
    /// Blocks can be split, and are at some time.
    splits: bool,
    /// Calls of the program pin what they use, since the kernel cannot wait for the pager.
    pins: bool,
}

const PLAN: Plan = Plan {
    shared: false,
    threads: 3,
    steps: 14,
    moves: true,
    verify: true,
    trouble: 12,
    canary: None,
    policies: terapage_policy::replacement::NAMES,
    mirrored: false,
    splits: false,
    pins: false,
};

/// The engine, for the forking thread while the pager is parked.
#[derive(Clone, Copy)]
struct Shared(*mut Engine);

// SAFETY: only the pager's thread uses it, or the forking thread while that is parked.
unsafe impl Send for Shared {}
// SAFETY: one thread uses it at a time.
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> *mut Engine {
        self.0
    }
}

/// The pager of a run, as the program's threads see it.
#[derive(Clone, Copy)]
struct Running {
    mailbox: &'static Mailbox,
    engine: Shared,
    /// The number of a disk with the bytes.
    disk: usize,
    pins: &'static Pins,
}

impl Running {
    fn pager(&self) -> Pager {
        Pager { mailbox: self.mailbox, block: BLOCK }
    }
}

thread_local! {
    /// The counters of one test, over all its runs.
    static COUNTERS: &'static terapage_stats::Shared = Box::leak(Box::default());
    /// The splits of one test, over all its runs.
    static SPLIT: Cell<usize> = const { Cell::new(0) };
}

/// Whether the runs met the events that they test: a plan without faults shows nothing.
fn assert_met() {
    let met = COUNTERS.with(|shared| shared.counters.snapshot());
    eprintln!("{}", met.to_json().unwrap_or_default());
    let all = [
        met.first_touches,
        met.major_faults,
        met.minor_faults,
        met.prefetched_blocks,
        met.prefetch_used_runs,
        met.dirty_page_outs,
        met.clean_page_outs,
        met.zero_page_outs,
        met.forks,
        met.bounced_bytes,
    ];
    assert!(all.iter().all(|count| *count > 0), "something was never met: {all:?}");
}

/// The pager's store: a disk of the machine.
struct DiskStore {
    disk: Disk,
    under_way: Notes<usize>,
}

impl DiskStore {
    fn new() -> DiskStore {
        DiskStore { disk: Disk::new(BLOCK), under_way: Notes::default() }
    }
}

impl Store for DiskStore {
    fn name(&self) -> String {
        "the simulated disk".to_owned()
    }

    fn slots(&self) -> u32 {
        self.disk.slots()
    }

    fn grow(&mut self) -> Result<(), StoreError> {
        self.disk.grow();
        Ok(())
    }

    fn joins(&self, slot: u32) -> bool {
        self.disk.joins(slot)
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn may_split(&self, _more: usize) -> bool {
        true
    }

    fn split(&mut self, more: usize) {
        self.disk.split(more);
    }

    fn wants_back(&self, _slot: u32) -> bool {
        choose(8) == 0
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, _ended: &mut Vec<Ended>) {
        let tag = ring.tag(u64::from(op.id));
        self.disk.begin(ring.ring(), op.slot, op.pieces, op.kind == OpKind::Write, tag);
        self.under_way.put(op.id, op.bytes());
    }

    fn event(&mut self, _ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        let wanted = self.under_way.take(done.tag as u32).unwrap();
        ended.push(Ended::by_result(done.tag as u32, done.result, wanted));
    }
}

/// A disk; or two, of which the first also flips bits and is late.
fn store(mirrored: bool) -> Box<dyn Store> {
    if !mirrored {
        return Box::new(DiskStore::new());
    }
    let faults = Faults { errors: 100_000, short: 100_000, flips: 200_000, ..Faults::default() };
    let bad = Faulty::new(DiskStore::new(), faults, choose(1000) as u64);
    let bad = Delayed::new(bad, 0..100, 1);
    let mirror = Mirror::new(vec![Box::new(bad), Box::new(DiskStore::new())], BLOCK).unwrap();
    Box::new(mirror.splitting_to(page_bytes()))
}

/// A share that changes at any time.
#[derive(Debug)]
struct Fickle;

impl Share for Fickle {
    fn update(&self, now: &Use) -> usize {
        assert!(
            now.resident <= (FRAMES + FRAMES_MORE) * BLOCK + now.fixed,
            "{} bytes are resident",
            now.resident
        );
        (FRAMES + choose(FRAMES_MORE + 1)) * BLOCK
    }
}

/// An order of page-ins that the program follows by chance only.
fn learnt() -> Misses {
    let pages = BLOCKS * PAGES_A_BLOCK;
    let keys = (0..64).map(|_| choose(pages) as u32).collect();
    Misses { split: choose(2) == 0, regions: vec![(0, pages as u32)], keys, ..Misses::default() }
}

/// One run of a program under the pager.
fn run(plan: Plan) {
    // A page that is copied instead of moved exists twice for a moment. A page that a wrong count
    // leaves behind stays for ever.
    let left_behind = if plan.canary == Some(Canary::CountsTooMany) { 1000 } else { 0 };
    let frames = FRAMES + if plan.shared { FRAMES_MORE } else { 0 };
    let pages_max = frames * PAGES_A_BLOCK + 1 + left_behind;
    let Plan { moves, trouble, canary, mirrored, .. } = plan;
    machine::start(Behaviour { moves, trouble, pages_max, mirrored, canary });
    let disk = shuttle::thread::spawn(ring::disk);
    let one_of = |names: &[&str]| names[choose(names.len())].to_owned();
    let options = Options {
        block: BLOCK,
        splits: plan.splits,
        frames,
        share: plan.shared.then_some(&Fickle),
        policy: one_of(plan.policies),
        prefetch: one_of(&["auto", "sequential", "stride", "trend", "off"]),
        soft_per_mille: [100, 300, 600][choose(3)],
        verify: plan.verify,
        spin_us: choose(2) as u64,
        learn: (choose(3) == 0).then(learnt),
        tuning: Tuning {
            ahead_bytes: 2 * BLOCK,
            bounce: Some(choose(2) == 0),
            long_run_bytes: (1 + choose(2)) * BLOCK,
            bounce_part: 2,
            ..Tuning::PROGRAMS
        },
        ..Options::default()
    };
    let counters = COUNTERS.with(|shared| *shared);
    let pins: &Pins = Box::leak(Box::new(Pins::new(2 * plan.threads)));
    let options =
        Options { pins: (plan.pins && canary != Some(Canary::SeesNoPins)).then_some(pins), ..options };
    let mailbox = Mailbox::new().unwrap();
    let engine = Engine::new(options, store(mirrored), counters, mailbox).unwrap();
    let engine = Shared(Box::into_raw(Box::new(engine)));
    let serving = shuttle::thread::spawn(move || {
        // SAFETY: only this thread uses the engine, except during a fork, which parks it.
        ring::until_the_end(|| unsafe {
            (*engine.get()).prepare();
            drop((*engine.get()).run());
        });
    });
    let running = Running { mailbox, engine, disk: usize::from(mirrored), pins };
    let base = memory::reserve(BLOCKS * BLOCK).unwrap() as usize;
    mailbox.ask(move |engine| engine.add(base, BLOCKS * BLOCK, 0, &[])).unwrap();
    // A second range, which already has contents: blocks after those of the first range.
    let filled = FILLED * BLOCK;
    let more = memory::reserve(filled).unwrap() as usize;
    machine::fill_some(more, filled);
    mailbox.ask(move |engine| engine.add(more, filled, filled, &[])).unwrap();
    let file = DataFile::map(mailbox);
    let threads: Vec<_> = (0..plan.threads)
        .map(|number| {
            let file = file.clone();
            shuttle::thread::spawn(move || work(base, number, plan, running, &file))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for at in (base..base + BLOCKS * BLOCK).chain(more..more + filled).step_by(program::WORD) {
        program::read(at);
    }
    file.unmap();
    machine::end();
    serving.join().unwrap();
    disk.join().unwrap();
    // SAFETY: its thread has ended.
    let engine = unsafe { Box::from_raw(engine.get()) };
    assert_eq!(engine.forks_ahead, 0, "a fork that is over still keeps blocks in the program");
}

/// A file that is mapped at a range.
#[derive(Clone)]
struct DataFile {
    file: Arc<File>,
    at: usize,
    mailbox: &'static Mailbox,
}

impl DataFile {
    fn pager(&self) -> Pager {
        Pager { mailbox: self.mailbox, block: BLOCK }
    }

    /// A file with a hole, the second block, mapped at fresh memory.
    fn map(mailbox: &'static Mailbox) -> DataFile {
        let len = MAPPED * BLOCK;
        let at = memory::reserve(len).unwrap() as usize;
        mailbox.ask(move |engine| engine.add(at, len, 0, &[])).unwrap();
        let bytes: Vec<u8> =
            (0..FILE_BYTES).map(|at| if at / BLOCK == 1 { 0 } else { (at % 251) as u8 }).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let mapped = DataFile { file: Arc::new(file), at, mailbox };
        let map = || mapped.pager().map_file(at, len, &mapped.file, 0, FILE_BYTES as u64).unwrap();
        program::map(at, &bytes, map);
        mapped
    }

    /// Like `Pager::sync_file`, but touches memory like the machine's programs.
    fn sync(&self) {
        let (start, len) = (self.at, MAPPED * BLOCK);
        let (marks, block) = self.mailbox.ask_for(start, len, Engine::changed).unwrap();
        let mut hashes = vec![files::UNKNOWN; marks.len()];
        for index in (0..marks.len()).filter(|&index| marks[index]) {
            let from = index * block;
            let words = (start + from..start + from + block).step_by(program::WORD);
            let mut bytes: Vec<u8> = words.flat_map(program::word).collect();
            let inside = FILE_BYTES.saturating_sub(from).min(block);
            self.file.write_all_at(&bytes[..inside], from as u64).unwrap();
            bytes[inside..].fill(0);
            hashes[index] = hash::hash(&bytes);
        }
        let written = move |engine: &mut Engine, first, end| engine.written(first, end, &hashes);
        self.mailbox.ask_for(start, len, written).unwrap();
    }

    /// Ends the mapping, which no longer has a user: the file must have the program's bytes, and
    /// then the range must have zeros.
    fn unmap(self) {
        let (at, len) = (self.at, MAPPED * BLOCK);
        self.sync();
        let mut bytes = vec![0; FILE_BYTES];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(program::truth(at, FILE_BYTES), bytes, "the file was synced, but is not what was written");
        (at..at + len).step_by(program::WORD).for_each(program::read);
        program::discard(at, len, || self.pager().unmap_file(at, len).unwrap());
        (at..at + len).step_by(program::WORD).for_each(program::read);
    }
}

/// A thread of the program. All threads use all blocks, but each discards only one particular
/// block, and only the first syncs the file.
fn work(base: usize, number: usize, plan: Plan, running: Running, file: &DataFile) {
    let own = base + number * BLOCK;
    let shared = plan.threads;
    let word = |len| choose(len / program::WORD) * program::WORD;
    let mut at = own;
    let mut child: Option<Child> = None;
    for _ in 0..plan.steps {
        if let Some(child) = &child {
            child.look();
        }
        if choose(8) == 0
            && let Some(child) = child.take()
        {
            child.end();
        }
        // At one of two random places, or next to the previous one.
        at = match choose(4) {
            3 => file.at + word(MAPPED * BLOCK),
            0 => own + word(BLOCK),
            1 => base + shared * BLOCK + word((BLOCKS - shared) * BLOCK),
            _ if at >= base + shared * BLOCK && at + BLOCK < base + BLOCKS * BLOCK => at + BLOCK,
            _ => at,
        };
        if plan.pins && choose(3) == 0 {
            call(number, if choose(4) == 0 { own } else { at }, own, running);
            continue;
        }
        match choose(if plan.splits { 22 } else { 21 }) {
            0 => {
                let discard = || running.mailbox.ask_for(own, BLOCK, Engine::discard).unwrap();
                program::discard(own, BLOCK, discard);
            }
            1 => {
                let first = base + choose(BLOCKS - 2) * BLOCK;
                running.mailbox.ask_for(first, 2 * BLOCK, Engine::will_need).unwrap();
            }
            2 if child.is_none() => child = Some(Child::fork(base, running)),
            3 => program::pin(at, [2, 40, 200][choose(3)]),
            4 => {
                let (first, random) = (base + choose(BLOCKS - 4) * BLOCK, choose(2) == 0);
                let set = move |engine: &mut Engine, first, end| {
                    engine.ahead.set_random(first, end, random);
                    Ok(())
                };
                running.mailbox.ask_for(first, 4 * BLOCK, set).unwrap();
            }
            5 => {
                let first = base + choose(BLOCKS - 2) * BLOCK;
                running.mailbox.ask_for(first, 2 * BLOCK, Engine::done_with).unwrap();
            }
            6 if number == 0 => file.sync(),
            // If pages are copied, the call is not reported.
            7 if plan.moves => {
                let first = choose(PAGES_A_BLOCK);
                let (from, len) =
                    (own + first * page_bytes(), (1 + choose(PAGES_A_BLOCK - first)) * page_bytes());
                program::discard(from, len, || program::remove(from, len));
                (from..from + len).step_by(page_bytes()).for_each(program::read);
            }
            6..10 => program::read(at),
            10 => program::write_zeros(at),
            21 => {
                let split = running.mailbox.ask(Engine::split).unwrap();
                SPLIT.with(|count| count.set(count.get() + usize::from(split)));
            }
            _ => program::write(at),
        }
    }
    if let Some(child) = child {
        child.end();
    }
}

/// A call of the program: pins one or two places, and touches them; then the kernel uses them. In
/// between, the program may discard a place that is pinned.
fn call(number: usize, at: usize, own: usize, running: Running) {
    let pins = running.pins;
    let caller = Caller { owner: number + 1, thread: number + 1, depth: 1, hint: 0 };
    let mut call = pins.begin(caller);
    let end = (at + program::WORD).next_multiple_of(BLOCK);
    let places = [at, end - program::WORD];
    let places = if choose(2) == 0 { &places[..1] } else { &places };
    for &place in places {
        assert!(pins.add(&mut call, place, place + program::WORD), "no slot is free");
    }
    if !machine::has(Canary::WaitsForNothing) {
        pins.settle(&call, shuttle::thread::yield_now);
    }
    places.iter().for_each(|&place| program::read(place));
    for _ in 0..choose(4) {
        if at == own && choose(2) == 0 {
            let discard = || running.mailbox.ask_for(own, BLOCK, Engine::discard).unwrap();
            program::discard(own, BLOCK, discard);
        }
        places.iter().for_each(|&place| program::use_in_a_call(place, choose(2) == 0));
    }
    pins.end(call);
}

/// The child of a fork: the bytes that it must find in its parent's store, and the pipe that shows
/// that it lives.
struct Child {
    /// The number of a disk with the bytes.
    disk: usize,
    /// Slots there, and their bytes.
    stored: Vec<(u32, Vec<u8>)>,
    lifeline: Fd,
}

/// Checks that nothing is under way, and that each frame belongs to a block or is free.
fn assert_settled(engine: &Engine) {
    assert_eq!(engine.io.transfers.count(), [0; 2], "something is on its way");
    engine.table.assert_counts();
    let settled = [State::Mapped, State::Soft, State::Watched].map(|state| engine.table.count(state));
    engine.frames.assert_agree(settled.iter().sum(), 0);
}

impl Child {
    /// Forks, while the pager's thread is parked, as `Pager::before_fork` does.
    fn fork(base: usize, running: Running) -> Child {
        let Running { mailbox, disk, .. } = running;
        if choose(2) == 0 {
            mailbox.ask(Engine::fork_is_near).unwrap();
        }
        let asking = mailbox.lock();
        mailbox.stop_pager(&asking);
        // SAFETY: its thread is parked until `unpark`.
        let engine = || unsafe { &mut *running.engine.get() };
        assert_settled(engine());
        let lifeline = engine().freeze(Fd::pipe().unwrap()).unwrap();
        // Acts like the C library during a fork.
        for _ in 0..choose(4) {
            let at = base + choose(BLOCKS) * BLOCK;
            if !program::is_discarding(at) {
                program::read_forking(at);
                assert_settled(engine());
            }
        }
        let stored = (base..base + BLOCKS * BLOCK)
            .step_by(page_bytes())
            .filter(|&at| !program::is_discarding(at))
            .filter_map(|at| {
                let engine = engine();
                let (size, block) = (engine.block, engine.table.block_at(at).expect("a block"));
                let begins = (at - base).is_multiple_of(size);
                // The child inherits the note that these are zeros.
                let removed = engine.mover.events.is_waiting(at, at + size);
                if !begins || engine.table.state(block) != State::Stored || removed {
                    return None;
                }
                let slot = engine.table.get(block).slot().expect("a stored block has a slot");
                let bytes = program::truth(at, size);
                assert_eq!(
                    Disk::slot(disk, size, slot),
                    bytes,
                    "block {block} is clean, but not in the store"
                );
                Some((slot, bytes))
            })
            .collect();
        machine::share_pages();
        mailbox.unpark();
        drop(asking);
        Child { disk, stored, lifeline }
    }

    /// Checks that the child still reads the old bytes.
    fn look(&self) {
        for (slot, bytes) in &self.stored {
            let found = Disk::slot(self.disk, bytes.len(), *slot);
            assert_eq!(found, *bytes, "slot {slot} has changed under a child");
        }
    }

    /// The child ends.
    fn end(self) {
        self.look();
        self.lifeline.close();
    }
}

/// Runs the plan in many orders, half of them random, half by priorities (PCT).
fn explore(plan: Plan, runs: usize) {
    explore_from(20_261_121, plan, runs);
}

/// Runs the plan from a seed, unless another is given.
fn explore_from(seed: u64, plan: Plan, runs: usize) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("TERAPAGE_SEED").unwrap_or(seed);
    let runs = number("TERAPAGE_RUNS").map_or(runs, |runs| runs as usize);
    eprintln!("TERAPAGE_SEED={seed}");
    explore_by(RandomScheduler::new_from_seed(seed, runs / 2), plan);
    explore_by(PctScheduler::new_from_seed(seed, 4, runs / 2), plan);
}

fn explore_by(scheduler: impl Scheduler + 'static, plan: Plan) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    config.failure_persistence = shuttle::FailurePersistence::None;
    shuttle::Runner::new(scheduler, config).run(move || run(plan));
}

/// Checks that the checker finds a bug from this seed, with one of these messages.
fn must_find(seed: u64, plan: Plan, says: &[&str]) {
    let found =
        std::panic::catch_unwind(|| explore_from(seed, plan, 1000)).expect_err("the fault was not found");
    let said = found.downcast_ref::<String>().cloned();
    let said =
        said.or_else(|| found.downcast_ref::<&str>().map(|said| (*said).to_owned())).unwrap_or_default();
    assert!(says.iter().any(|expected| said.contains(expected)), "another fault was found: {said}");
}

/// If the pager cannot handle the kernel's behaviour, the program ends; it does not get wrong
/// bytes.
#[test]
fn a_kernel_that_counts_too_many_stops_the_program() {
    let plan = Plan { canary: Some(Canary::CountsTooMany), ..PLAN };
    for seed in 0..30 {
        must_find(seed, plan, &["is touched without its page", "has vanished"]);
    }
}

#[test]
fn every_read_gives_what_was_written_last() {
    explore(PLAN, 800);
    assert_met();
}

/// Blocks are split while the program runs.
#[test]
fn blocks_that_are_split_too() {
    explore(Plan { splits: true, ..PLAN }, 800);
    explore(Plan { splits: true, shared: true, ..PLAN }, 300);
    explore(Plan { splits: true, moves: false, ..PLAN }, 300);
    explore(Plan { splits: true, mirrored: true, ..PLAN }, 300);
    assert_met();
    let split = SPLIT.with(Cell::get);
    assert!(split > 100, "blocks were split in {split} runs only");
}

/// The budget grows and shrinks while the program runs.
#[test]
fn a_budget_that_is_shared_too() {
    explore(Plan { shared: true, ..PLAN }, 600);
    assert_met();
}

/// Calls of the program meet no absent page.
#[test]
fn calls_that_cannot_wait_too() {
    explore(Plan { pins: true, ..PLAN }, 600);
    explore(Plan { pins: true, splits: true, ..PLAN }, 300);
    explore(Plan { pins: true, moves: false, ..PLAN }, 300);
    assert_met();
}

#[test]
fn canary_a_call_that_waits_for_nothing() {
    let plan = Plan { pins: true, canary: Some(Canary::WaitsForNothing), ..PLAN };
    must_find(1, plan, &["a call has met an absent page"]);
}

#[test]
fn canary_a_pager_that_sees_no_pins() {
    let plan = Plan { pins: true, canary: Some(Canary::SeesNoPins), ..PLAN };
    must_find(1, plan, &["a call has met an absent page"]);
}

#[test]
fn a_machine_without_trouble_too() {
    explore(Plan { trouble: 0, ..PLAN }, 300);
    assert_met();
}

/// With 8 frames and the pager's thread always ahead of the program's, a block that is the first to
/// leave again after it was taken back could go in and out for ever.
#[test]
fn fifo_gets_on_too() {
    explore_from(3_855_318_563_359_672_236, Plan { trouble: 0, policies: &["fifo"], ..PLAN }, 300);
}

#[test]
fn a_kernel_without_move_too() {
    explore(Plan { moves: false, ..PLAN }, 300);
    assert_met();
}

/// One of two copies gives errors and wrong bytes and loses writes, without end.
#[test]
fn one_good_copy_of_a_mirror_is_enough() {
    explore(Plan { mirrored: true, ..PLAN }, 600);
    assert_met();
}

/// Without hashes it is unknown which of two copies is right.
#[test]
fn canary_a_mirror_that_is_not_verified() {
    must_find(1, Plan { verify: false, mirrored: true, ..PLAN }, &["wrong bytes at"]);
}

#[test]
fn canary_bytes_that_are_not_verified() {
    must_find(1, Plan { verify: false, ..PLAN }, &["wrong bytes at"]);
}

#[test]
fn canary_the_kernels_count_is_trusted() {
    let plan = Plan { canary: Some(Canary::TrustsTheCount), ..PLAN };
    must_find(1, plan, &["is touched without its page", "has vanished", "wrong bytes at"]);
}

#[test]
fn canary_a_wake_up_that_is_forgotten() {
    must_find(1, Plan { trouble: 0, canary: Some(Canary::ForgetsToWake), ..PLAN }, &["deadlock"]);
}

#[test]
fn canary_a_removal_that_is_not_told_of() {
    let plan = Plan { canary: Some(Canary::HearsNothing), ..PLAN };
    must_find(1, plan, &["wrong bytes at", "has vanished", "is touched without its page"]);
}

#[test]
fn canary_a_store_that_loses_writes() {
    let plan = Plan { canary: Some(Canary::LosesWrites), ..PLAN };
    must_find(1, plan, &["not those that were written", "not in the store", "is dirty"]);
}
