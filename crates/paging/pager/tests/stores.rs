//! How the pager uses a store: it opens the store, reports slots whose contents are no longer
//! needed, and repeats operations whose failures may pass.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use terapage_pager::{Options, Pager, Tuning};
use terapage_store::{Below, BelowMut, Ended, Error, Failure, Mirror, Op, Ram, Store, StoreRing, Why};
use terapage_sys::memory;
use terapage_sys::ring::Done;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

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

/// Events of a store, and instructions for it.
#[derive(Default)]
struct Watch {
    opened: AtomicU32,
    forgotten: Mutex<Vec<u32>>,
    /// The number of operations that fail first, with failures that may pass.
    failures: AtomicU32,
    fails: AtomicBool,
    scarce: AtomicBool,
}

struct Watched {
    inner: Ram,
    watch: Arc<Watch>,
}

impl Store for Watched {
    fn name(&self) -> String {
        self.inner.name()
    }

    terapage_store::stands_on!(inner);

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let watch = &self.watch;
        let fails = watch.failures.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails || watch.fails.load(SeqCst) {
            let why = Why::Text("the server does not answer".to_owned());
            return ended.push(Ended::badly(op.id, Failure::passing(why)));
        }
        // SAFETY: the caller promises what the inner store requires.
        unsafe { self.inner.begin(ring, op, ended) }
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        self.inner.event(ring, done, ended);
    }

    fn forget(&mut self, slots: std::ops::Range<u32>) {
        self.watch.forgotten.lock().unwrap().extend(slots);
    }

    fn wants_back(&self, _: u32) -> bool {
        self.watch.scarce.load(SeqCst)
    }

    fn open(&mut self, _: &mut StoreRing<'_>, _: &mut Vec<Ended>) {
        self.watch.opened.fetch_add(1, SeqCst);
    }
}

fn watched(watch: &Arc<Watch>) -> Watched {
    Watched { inner: Ram::new(BLOCK, 64 << 20), watch: watch.clone() }
}

/// A pager of a few frames, and words for eight times as many.
fn paged(patience_ms: u64, make: Box<terapage_pager::MakeStore>) -> (Pager, &'static mut [u64]) {
    let tuning = Tuning { patience_ms, ..Tuning::PROGRAMS };
    let options = Options { block: BLOCK, frames: 8, tuning, ..Options::default() };
    let pager = Pager::start(options, make).unwrap();
    let base = memory::reserve(BLOCKS * BLOCK).unwrap() as usize;
    pager.add(base, BLOCKS * BLOCK, 0).unwrap();
    // SAFETY: mapped just now for good, and this test's own.
    (pager, unsafe { std::slice::from_raw_parts_mut(base as *mut u64, BLOCKS * BLOCK / 8) })
}

fn fill(words: &mut [u64], salt: u64) {
    words.iter_mut().enumerate().for_each(|(at, word)| *word = at as u64 ^ salt);
}

fn holds(words: &[u64], salt: u64) -> bool {
    words.iter().enumerate().all(|(at, &word)| word == at as u64 ^ salt)
}

#[test]
fn a_store_is_opened_and_told_of_slots_that_hold_nothing() {
    if !can_page() {
        return;
    }
    let watch = Arc::new(Watch::default());
    let theirs = watch.clone();
    let (pager, words) = paged(1000, Box::new(move || Ok(Box::new(watched(&theirs)))));
    assert_eq!(watch.opened.load(SeqCst), 1);
    fill(words, 1 << 40);
    assert!(holds(words, 1 << 40) && watch.forgotten.lock().unwrap().is_empty());
    let at = words.as_ptr() as usize;
    pager.discard(at, BLOCKS * BLOCK).unwrap();
    let mut forgotten = watch.forgotten.lock().unwrap().clone();
    forgotten.sort_unstable();
    forgotten.dedup();
    assert!(forgotten.len() >= BLOCKS - 8, "{forgotten:?}");
    assert!(words.iter().all(|&word| word == 0));
}

#[test]
fn a_touched_block_gives_up_its_slot_if_the_store_needs_the_room() {
    if !can_page() {
        return;
    }
    let watch = Arc::new(Watch::default());
    let theirs = watch.clone();
    let (pager, words) = paged(1000, Box::new(move || Ok(Box::new(watched(&theirs)))));
    fill(words, 1 << 41);
    watch.scarce.store(true, SeqCst);
    for turn in 0..3 {
        // Another order in each turn, so that not all blocks are read ahead.
        for index in 0..BLOCKS {
            let at = index * 29 % BLOCKS * (BLOCK / 8) + turn;
            assert_eq!(words[at], at as u64 ^ (1 << 41));
        }
    }
    let counts = pager.snapshot();
    let forgotten = watch.forgotten.lock().unwrap().len() as u64;
    // A thread may also wait for a block that is just being read ahead: a minor fault.
    let waits = counts.major_faults + counts.minor_faults;
    assert!(forgotten > 0 && forgotten <= waits, "{forgotten} of {waits}");
    assert!(holds(words, 1 << 41));
}

#[test]
fn failures_that_pass_are_waited_for() {
    if !can_page() {
        return;
    }
    let watch = Arc::new(Watch::default());
    let theirs = watch.clone();
    let (_pager, words) = paged(60_000, Box::new(move || Ok(Box::new(watched(&theirs)))));
    fill(words, 7 << 40);
    // More failures than are tried at once, for each operation in turn.
    for _ in 0..3 {
        watch.failures.store(6, SeqCst);
        assert!(holds(words, 7 << 40));
    }
    watch.failures.store(6, SeqCst);
    fill(words, 8 << 40);
    assert!(holds(words, 8 << 40));
    assert_eq!(watch.failures.load(SeqCst), 0);
}

#[test]
fn failures_that_do_not_pass_stop_the_program() {
    if !can_page() {
        return;
    }
    // SAFETY: the child continues only in this thread and ends by _exit, or a signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let watch = Arc::new(Watch::default());
        let theirs = watch.clone();
        let (_pager, words) = paged(50, Box::new(move || Ok(Box::new(watched(&theirs)))));
        fill(words, 7);
        watch.fails.store(true, SeqCst);
        let good = holds(words, 7);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if good { 0 } else { 9 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was begun above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "status {status:#x}");
}

#[test]
fn a_copy_that_does_not_answer_holds_nothing_up() {
    if !can_page() {
        return;
    }
    let watch = Arc::new(Watch::default());
    let theirs = watch.clone();
    let (pager, words) = paged(
        60_000,
        Box::new(move || {
            let copies: [Box<dyn Store>; 2] =
                [Box::new(watched(&theirs)), Box::new(Ram::new(BLOCK, 64 << 20))];
            Ok(Box::new(Mirror::new(copies.into(), BLOCK)?))
        }),
    );
    fill(words, 7 << 40);
    watch.fails.store(true, SeqCst);
    assert!(holds(words, 7 << 40));
    fill(words, 8 << 40);
    assert!(holds(words, 8 << 40));
    watch.fails.store(false, SeqCst);
    assert!(holds(words, 8 << 40));
    drop(pager);
}
