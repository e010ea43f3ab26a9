//! Threads whose blocks do not fit together take turns.

use terapage_pager::{Error, Options, Pager};
use terapage_store::{Ram, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 4096;
const FRAMES: usize = 1024;
/// The number of blocks of each thread: those of one thread fit, those of both do not.
const BLOCKS: usize = 700;
const TOUCHES: u64 = 60_000;
/// The number of runs without turns, until the threads run at the same time.
const TRIES: usize = 10;

/// Touches the blocks from `start` on at random, and checks the bytes of each.
fn work(start: usize, seed: u64) {
    let mut random = seed;
    let mut counts = vec![0u64; BLOCKS];
    for _ in 0..TOUCHES {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = (random >> 33) as usize % BLOCKS;
        let at = (start + block * BLOCK) as *mut u64;
        // SAFETY: the block is paged memory of the test's, and this thread's alone.
        unsafe {
            assert_eq!(at.read_volatile(), counts[block], "block {block}");
            at.write_volatile(counts[block] + 1);
        }
        counts[block] += 1;
    }
}

/// Major faults of two threads.
fn major_faults(turns: bool) -> u64 {
    let start = memory::reserve(2 * BLOCKS * BLOCK).unwrap() as usize;
    let options =
        Options { block: BLOCK, frames: FRAMES, prefetch: "off".into(), turns, ..Options::default() };
    let make = || -> Result<Box<dyn Store>, Error> { Ok(Box::new(Ram::new(BLOCK, 4 * BLOCKS * BLOCK))) };
    let pager = Pager::start(options, Box::new(make)).unwrap();
    pager.add(start, 2 * BLOCKS * BLOCK, 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || work(start + thread * BLOCKS * BLOCK, thread as u64 + 1));
        }
    });
    pager.snapshot().major_faults
}

#[test]
fn two_threads_that_fit_one_by_one_have_few_faults() {
    if let Err(error) = Userfaultfd::open(Kind::Faults) {
        eprintln!("SKIPPED: {error}");
        return;
    }
    // On a busy machine, one thread may end before the other begins. They must run at the same
    // time.
    let met = (0..TRIES).map(|_| major_faults(false)).find(|&without| without > 20 * 2 * BLOCKS as u64);
    let Some(without) = met else {
        eprintln!("SKIPPED: the threads never ran at the same time");
        return;
    };
    let with = major_faults(true);
    eprintln!("major faults: {with} with turns, {without} without");
    assert!(with * 2 < without, "{with} major faults with turns, {without} without");
}
