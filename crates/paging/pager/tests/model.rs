//! The pager against plain memory: random work by several threads, tiny budgets, every policy and
//! block size, stores that fail. Each run prints its seed; `TERAPAGE_SEED` repeats it,
//! `TERAPAGE_STEPS` lengthens it.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use terapage_pager::{Forking, Options, Pager, Tuning};
use terapage_stats::Snapshot;
use terapage_store::{
    Codec, Compressed, Encrypted, Faults, Faulty, FileStore, Mirror, Placement, Ram, Store, Striped, Tier,
    Tiered,
};
use terapage_sys::{memory, page_bytes};

fn seed() -> u64 {
    let given = std::env::var("TERAPAGE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| rand::rng().random());
    eprintln!("TERAPAGE_SEED={seed}");
    seed
}

fn steps(default: usize) -> usize {
    std::env::var("TERAPAGE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Whether this machine lets the process have a userfaultfd.
fn can_page() -> bool {
    use terapage_sys::userfaultfd::{Kind, Userfaultfd};
    match Userfaultfd::open(Kind::Faults) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            false
        }
    }
}

/// Where the blocks of a test are kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    File,
    Failing(Faults),
    Encrypted,
    Mirrored,
    /// One copy gives errors and wrong bytes.
    MirroredBadly,
    Tiered,
    Striped,
    Compressed,
}

impl Kept {
    fn open(self, block: usize, seed: u64) -> Result<Box<dyn Store>, terapage_pager::Error> {
        let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = |block| -> Result<Box<dyn Store>, terapage_pager::Error> {
            Ok(Box::new(FileStore::open(&path, block, None)?))
        };
        let least = page_bytes().min(block);
        let failing = |faults| Box::new(Faulty::new(Ram::new(block, 1 << 30), faults, seed));
        Ok(match self {
            Kept::File => file(block)?,
            Kept::Failing(faults) => failing(faults),
            Kept::Encrypted => Box::new(Encrypted::new(file(block)?, block)?.splitting_to(least)),
            Kept::Mirrored => {
                Box::new(Mirror::new(vec![file(block)?, file(block)?], block)?.splitting_to(least))
            }
            Kept::MirroredBadly => {
                let bad = Faults { errors: 50_000, short: 50_000, flips: 50_000, ..Faults::default() };
                Box::new(Mirror::new(vec![failing(bad), file(block)?], block)?.splitting_to(least))
            }
            Kept::Tiered => {
                let tier = |store| Tier { store, choosy: false };
                let small = Box::new(Ram::new(block, 2 << 20));
                Box::new(Tiered::new(vec![tier(small), tier(file(block)?)], block)?)
            }
            Kept::Striped => {
                let both = vec![file(block)?, file(block)?];
                Box::new(Striped::new(both, Placement::RoundRobin, block, None)?)
            }
            Kept::Compressed => Box::new(Compressed::new(file(4096)?, block, 4096, Codec::Lz4)?),
        })
    }
}

struct Arena {
    pager: Arc<Pager>,
    base: usize,
    len: usize,
}

impl Arena {
    fn new(options: Options, len: usize, kept: Kept, seed: u64) -> Arena {
        let block = options.block;
        let len = len.next_multiple_of(block);
        let base = memory::reserve(len + block).unwrap() as usize;
        let base = base.next_multiple_of(block);
        let pager = Pager::start(options, Box::new(move || kept.open(block, seed))).unwrap();
        pager.add(base, len, len).unwrap();
        Arena { pager: Arc::new(pager), base, len }
    }
}

/// One thread's share of the arena, and its expected contents.
struct Share {
    base: usize,
    model: Vec<u8>,
    at: usize,
    random: StdRng,
}

impl Share {
    fn new(base: usize, len: usize, seed: u64) -> Share {
        Share { base, model: vec![0; len], at: 0, random: StdRng::seed_from_u64(seed) }
    }

    fn real(&self) -> &'static mut [u8] {
        // SAFETY: each thread has a separate range, mapped for as long as the process lives.
        unsafe { memory::bytes(self.base, self.model.len()) }
    }

    /// The first byte in a range that is not as expected.
    fn wrong(&self, mut range: Range<usize>) -> Option<usize> {
        let real = self.real();
        range.find(|&offset| real[offset] != self.model[offset])
    }

    fn all(&self) -> Range<usize> {
        0..self.model.len()
    }

    /// Reads or changes a few bytes. Returns the first that is wrong.
    fn step(&mut self, pager: &Pager, block: usize) -> Option<usize> {
        let (real, len) = (self.real(), self.model.len());
        let Share { base, model, at, random } = self;
        // At a random place, or next to the previous one.
        if random.random_range(0..3) != 0 {
            *at = random.random_range(0..len);
        }
        let most = [16, 4096, 3 * block][random.random_range(0..3)].min(len - *at);
        let size = random.random_range(1..=most.max(1)).min(len - *at);
        let range = *at..*at + size;
        let mut wrong = None;
        match random.random_range(0..10) {
            0..4 => {
                let value = random.random_range(0..=u8::MAX);
                for (index, offset) in range.enumerate() {
                    let byte = value.wrapping_add((index / 7) as u8);
                    real[offset] = byte;
                    model[offset] = byte;
                }
            }
            4 => {
                real[range.clone()].fill(0);
                model[range].fill(0);
            }
            5 => {
                let first = at.next_multiple_of(block);
                let size = (block * random.random_range(1..4)).min(len.saturating_sub(first)) / block * block;
                if size > 0 {
                    pager.discard(*base + first, size).unwrap();
                    model[first..first + size].fill(0);
                }
            }
            6 => {
                let first = *at / block * block;
                let size = (block * random.random_range(1..8)).min(len - first) / block * block;
                if size > 0 {
                    pager.will_need(*base + first, size).unwrap();
                }
            }
            // By a call that only the kernel reports to the pager's thread, if the kernel reports
            // it.
            7 if pager.moves() => {
                let first = *at / page_bytes() * page_bytes();
                let size = (page_bytes() * random.random_range(1..20)).min(len - first);
                // SAFETY: the range is this thread's own.
                let done = unsafe { libc::madvise((*base + first) as *mut _, size, libc::MADV_DONTNEED) };
                assert_eq!(done, 0);
                model[first..first + size].fill(0);
            }
            _ => wrong = self.wrong(range),
        }
        self.at = (self.at + size) % len;
        wrong
    }
}

fn work(arena: &Arena, from: usize, len: usize, steps: usize, seed: u64) {
    let block = arena.pager.block();
    let mut share = Share::new(arena.base + from, len, seed);
    for step in 0..steps {
        if step == steps / 2 {
            arena.pager.split().unwrap();
        }
        assert_eq!(share.step(&arena.pager, block), None, "step {step}, seed {seed}");
    }
    assert_eq!(share.wrong(share.all()), None, "at the end, seed {seed}");
}

/// One failure in a hundred: an operation is tried four times, so the store as a whole works.
const FAULTS: Faults = Faults { errors: 10_000, short: 10_000, flips: 10_000, copy: 0, operations: 0 };

fn run(options: Options, blocks: usize, threads: usize, steps: usize, kept: Kept, seed: u64) -> Snapshot {
    let block = options.block;
    let limit = options.frames;
    let share = blocks / threads * block;
    let arena = Arena::new(options, share * threads, kept, seed);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let arena = &arena;
            scope.spawn(move || work(arena, thread * share, share, steps, seed + thread as u64));
        }
    });
    let stats = arena.pager.snapshot();
    assert!(stats.resident_peak_bytes <= (limit * block) as u64, "{stats:?}");
    assert!(stats.major_faults > 0, "the test never paged: {stats:?}");
    memory::advise(arena.base, arena.len, libc::MADV_DONTFORK);
    stats
}

#[test]
fn every_policy_and_block_size_keeps_every_byte() {
    if !can_page() {
        return;
    }
    let seed = seed();
    for (at, policy) in terapage_policy::replacement::NAMES.iter().enumerate() {
        let sizes = [(4 << 10, 8), (16 << 10, 8), (64 << 10, 12), (16 << 10, 64), (4 << 10, 64)];
        for (block, frames) in sizes {
            let prefetch = terapage_policy::prefetch::NAMES[at % terapage_policy::prefetch::NAMES.len()];
            let options = Options {
                block,
                frames,
                policy: (*policy).to_owned(),
                prefetch: prefetch.to_owned(),
                ..Options::default()
            };
            run(options, frames * 4, 3, steps(400), Kept::File, seed);
        }
    }
}

/// Half of a budget of 8 MiB is two bounce buffers.
fn bouncing(block: usize) -> Options {
    let frames = (8 << 20) / block;
    let tuning = Tuning { bounce: Some(true), long_run_bytes: 2 * block, bounce_part: 2, ..Tuning::PROGRAMS };
    Options { block, frames, tuning, ..Options::default() }
}

#[test]
fn bounce_buffers_keep_every_byte() {
    if !can_page() {
        return;
    }
    let seed = seed();
    let failing = Kept::Failing(FAULTS);
    for (block, copy, kept) in
        [(64 << 10, false, Kept::File), (64 << 10, false, failing), (16 << 10, true, Kept::File)]
    {
        // Without faults, the test's own check of its bytes must be the only one.
        let options = Options { copy, verify: matches!(kept, Kept::Failing(_)), ..bouncing(block) };
        let frames = options.frames;
        let stats = run(options, frames * 4, 3, steps(400), kept, seed);
        assert!(stats.bounced_bytes > 0, "{stats:?}");
    }
}

#[test]
fn kernels_without_move_give_the_same_bytes() {
    if !can_page() {
        return;
    }
    let seed = seed();
    for (block, frames) in [(4 << 10, 8), (16 << 10, 32)] {
        let options = Options { block, frames, copy: true, ..Options::default() };
        run(options, frames * 4, 2, steps(400), Kept::File, seed);
    }
}

/// Each thread asks for a split in the middle of its work; the first request splits.
#[test]
fn blocks_that_are_split_keep_every_byte() {
    if !can_page() {
        return;
    }
    let seed = seed();
    let kinds = [
        Kept::File,
        Kept::Failing(FAULTS),
        Kept::Encrypted,
        Kept::Mirrored,
        Kept::MirroredBadly,
        Kept::Tiered,
        Kept::Striped,
        Kept::Compressed,
    ];
    for kept in kinds {
        for (frames, copy) in [(8, false), (64, false), (64, true)] {
            let options = Options { block: 16 << 10, splits: true, frames, copy, ..Options::default() };
            let stats = run(options, frames * 4, 3, steps(800), kept, seed);
            let is_split = stats.block_bytes == page_bytes() as u64;
            match kept {
                // What the resync does may be under way each time.
                Kept::MirroredBadly => {}
                _ => assert!(is_split, "{kept:?}: {stats:?}"),
            }
        }
    }
}

/// Scattered touches of single pages split blocks without a request; touches in order do not.
#[test]
fn blocks_are_split_where_most_of_their_pages_are_not_wanted() {
    if !can_page() {
        return;
    }
    const BLOCK: usize = 16 << 10;
    let (file, pages) = (Kept::File, page_bytes());
    for (kept, scattered, block) in [
        (file, true, pages),
        (file, false, BLOCK),
        (Kept::Encrypted, true, pages),
        (Kept::Mirrored, true, pages),
        (Kept::Tiered, true, pages),
        (Kept::Striped, true, pages),
        (Kept::Compressed, true, pages),
    ] {
        let frames = 1024;
        let options = Options { block: BLOCK, splits: true, frames, ..Options::default() };
        let seed = seed();
        let arena = Arena::new(options, frames * 4 * BLOCK, kept, seed);
        let mut random = StdRng::seed_from_u64(seed);
        let at = |page: usize| (arena.base + page * page_bytes()) as *mut usize;
        let pages = arena.len / page_bytes();
        // SAFETY: the arena is this thread's own.
        (0..pages).for_each(|page| unsafe { at(page).write(page) });
        for turn in 0..40_000 {
            // One page of each block: with blocks of one page, all that is used would be in memory.
            let block = random.random_range(0..pages / 4);
            let page = if scattered { 4 * block + block % 4 } else { turn % pages };
            // SAFETY: as above.
            assert_eq!(unsafe { at(page).read() }, page);
        }
        let counters = arena.pager.counters().snapshot();
        assert_eq!(counters.block_bytes, block as u64, "{kept:?}, scattered: {scattered}");
        let trials = counters.trials_together + counters.trials_apart;
        assert!(trials > 0 || !scattered, "{kept:?}");
        memory::advise(arena.base, arena.len, libc::MADV_DONTFORK);
    }
}

#[test]
fn a_failing_store_never_gives_wrong_bytes() {
    if !can_page() {
        return;
    }
    let seed = seed();
    let options = Options { block: 4 << 10, frames: 16, ..Options::default() };
    run(options, 96, 2, steps(1500), Kept::Failing(FAULTS), seed);
}

/// Runs the rest of a test in a child process, which may be stopped: returns its status.
fn in_child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only what it makes itself, and ends by _exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            work();
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        status
    }
}

#[test]
fn a_store_that_lies_stops_the_program() {
    if !can_page() {
        return;
    }
    let seed = seed();
    let status = in_child(|| {
        let faults = Faults { flips: 1_000_000, ..Faults::default() };
        let options = Options { block: 4 << 10, frames: 8, ..Options::default() };
        run(options, 64, 1, 1000, Kept::Failing(faults), seed);
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "status {status:#x}");
}

#[test]
fn a_forked_child_sees_memory_as_it_was_and_both_may_write() {
    if !can_page() {
        return;
    }
    forks(Options { block: 4 << 10, frames: 16, ..Options::default() }, 128 * 4096);
    forks(bouncing(64 << 10), 24 << 20);
}

fn forks(options: Options, len: usize) {
    let bounces = options.tuning.bounce == Some(true);
    let Arena { pager, base, len } = Arena::new(options, len, Kept::File, 0);
    // SAFETY: the range is the test's own.
    let words = unsafe { std::slice::from_raw_parts_mut(base as *mut u64, len / 8) };
    let fill = |words: &mut [u64], salt: u64| {
        words.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64 ^ salt)
    };
    let holds =
        |words: &[u64], salt: u64| words.iter().enumerate().all(|(at, &word)| word == at as u64 ^ salt);
    fill(words, 1);
    let mut pager = Arc::into_inner(pager).unwrap();
    let has_bounced = |pager: &Pager| pager.snapshot().bounced_bytes > 0;
    for round in 0..3 {
        let forking = pager.before_fork().unwrap();
        // SAFETY: the child continues only in this thread and ends by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let good = pager.after_fork_in_child(forking).is_ok() && holds(words, 1 + round) && {
                fill(words, 77);
                holds(words, 77) && has_bounced(&pager) == bounces
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        pager.after_fork_in_parent(forking);
        fill(words, 2 + round);
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "round {round}");
        assert!(holds(words, 2 + round), "round {round}");
    }
    assert_eq!(has_bounced(&pager), bounces);
    memory::advise(base, len, libc::MADV_DONTFORK);
}

/// What a family of processes has done, in memory that they share.
#[derive(Default, Debug)]
struct Done {
    splits: AtomicUsize,
    splits_of_children: AtomicUsize,
    forks: AtomicUsize,
    forks_when_split: AtomicUsize,
}

impl Done {
    fn new() -> &'static Done {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, of zeros, that stays.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), size_of::<Done>(), rights, kind, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        }
    }
}

/// Random work of a process that splits its blocks and forks at random moments, and goes on while
/// its children do the same. Returns what was wrong.
fn family(
    pager: &mut Pager,
    share: &mut Share,
    generation: usize,
    steps: usize,
    done: &Done,
) -> Result<(), String> {
    const BLOCK: usize = 16 << 10;
    let mut children = Vec::new();
    for step in 0..steps >> generation {
        if let Some(at) = share.step(pager, BLOCK) {
            return Err(format!("byte {at}, step {step}"));
        }
        if share.random.random_range(0..100) == 0 && pager.split().map_err(|why| why.to_string())? {
            let of = if generation == 0 { &done.splits } else { &done.splits_of_children };
            of.fetch_add(1, Relaxed);
        }
        if generation < 2 && share.random.random_range(0..steps / 4) == 0 {
            if share.random.random() {
                pager.fork_is_near().map_err(|why| why.to_string())?;
            }
            let forking = pager.before_fork().map_err(|why| why.to_string())?;
            // SAFETY: the child continues only in this thread and ends by _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                descend(pager, share, forking, generation + 1, steps, done);
            }
            pager.after_fork_in_parent(forking);
            children.push(child);
            done.forks.fetch_add(1, Relaxed);
            let is_split = pager.snapshot().block_bytes == page_bytes() as u64;
            done.forks_when_split.fetch_add(usize::from(is_split), Relaxed);
        }
        // A process without children may split its blocks.
        if share.random.random_range(0..steps / 8) == 0 {
            ended(&mut children)?;
        }
    }
    ended(&mut children)?;
    share.wrong(share.all()).map_or(Ok(()), |at| Err(format!("byte {at}, at the end")))
}

/// Waits for children, and checks how they have ended.
fn ended(children: &mut Vec<libc::pid_t>) -> Result<(), String> {
    for child in children.drain(..) {
        let mut status = 0;
        // SAFETY: waits for a child of this process.
        unsafe { libc::waitpid(child, &mut status, 0) };
        if status != 0 {
            return Err(format!("status {status:#x} of a child"));
        }
    }
    Ok(())
}

/// The child of a fork: checks all bytes, or not, and works on.
fn descend(
    pager: &mut Pager,
    share: &mut Share,
    forking: Forking,
    generation: usize,
    steps: usize,
    done: &Done,
) -> ! {
    let works = AssertUnwindSafe(|| {
        pager.after_fork_in_child(forking).map_err(|why| why.to_string())?;
        share.random = StdRng::seed_from_u64(share.random.random::<u64>() ^ generation as u64);
        if share.random.random()
            && let Some(at) = share.wrong(share.all())
        {
            return Err(format!("byte {at}, at the start"));
        }
        family(pager, share, generation, steps, done)
    });
    let found = catch_unwind(works).unwrap_or_else(|_| Err("a panic".to_owned()));
    if let Err(why) = &found {
        let why = format!("generation {generation}: {why}\n");
        // SAFETY: writes bytes. The locks of Rust's stream may be another thread's, at the fork.
        unsafe { libc::write(2, why.as_ptr().cast(), why.len()) };
    }
    // SAFETY: ends the child.
    unsafe { libc::_exit(i32::from(found.is_err())) }
}

/// Blocks are split before forks, after them, and by children.
#[test]
fn blocks_that_are_split_across_forks_keep_every_byte() {
    if !can_page() {
        return;
    }
    let (seed, done) = (seed(), Done::new());
    let kinds = [
        Kept::File,
        Kept::Failing(FAULTS),
        Kept::Encrypted,
        Kept::Mirrored,
        Kept::Tiered,
        Kept::Striped,
        Kept::Compressed,
    ];
    for (at, kept) in (0..).zip(kinds) {
        for (frames, copy) in [(16, false), (64, false), (64, true)] {
            let seed = seed ^ (at << 8) ^ frames as u64 ^ u64::from(copy);
            let options = Options { block: 16 << 10, splits: true, frames, copy, ..Options::default() };
            let Arena { pager, base, len } = Arena::new(options, (frames * 4) << 14, kept, seed);
            let mut pager = Arc::into_inner(pager).unwrap();
            let found = family(&mut pager, &mut Share::new(base, len, seed), 0, steps(600), done);
            assert_eq!(found, Ok(()), "{kept:?}, {frames} frames, seed {seed}");
            let stats = pager.snapshot();
            assert!(stats.major_faults > 0, "{stats:?}");
            memory::advise(base, len, libc::MADV_DONTFORK);
        }
    }
    let (first, late) = (done.splits.load(Relaxed), done.splits_of_children.load(Relaxed));
    assert!(first > 0 && late > 0, "{done:?}");
    let (forks, split) = (done.forks.load(Relaxed), done.forks_when_split.load(Relaxed));
    assert!(split > 0 && split < forks, "{done:?}");
}

#[test]
fn what_was_there_is_kept_and_what_is_released_stays() {
    if !can_page() {
        return;
    }
    let block = 16 << 10;
    let len = 64 * block;
    let base = (memory::reserve(len + block).unwrap() as usize).next_multiple_of(block);
    // SAFETY: the range is the test's own.
    let bytes = unsafe { memory::bytes(base, len) };
    for page in (0..len).step_by(3 * 4096) {
        bytes[page] = 7;
    }
    let options = Options { block, frames: 16, ..Options::default() };
    let pager = Pager::start(options, Box::new(move || Kept::File.open(block, 0))).unwrap();
    pager.add(base, len, len).unwrap();
    let holds = |bytes: &[u8]| (0..len).all(|at| bytes[at] == if at % (3 * 4096) == 0 { 7 } else { 0 });
    assert!(holds(bytes));
    assert!(pager.snapshot().resident_peak_bytes <= 16 * block as u64 + len as u64);
    pager.release(base + 4 * block, 8 * block).unwrap();
    assert!(holds(bytes));
    bytes[5 * block + 1] = 9;
    assert_eq!(bytes[5 * block + 1], 9);
    // SAFETY: the test gives the range up.
    unsafe { memory::replace((base + 4 * block) as *mut u8, 8 * block).unwrap() };
    pager.restore(base + 4 * block, 8 * block).unwrap();
    assert!(bytes[4 * block..12 * block].iter().all(|&byte| byte == 0));
}
