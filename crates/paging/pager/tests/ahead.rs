//! Prefetch with few frames.

use terapage_pager::{Error, Options, Pager};
use terapage_store::{FileStore, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 4096;
const FRAMES: usize = 8192;
/// Blocks of each thread: twice the budget.
const BLOCKS: usize = 2 * FRAMES;
const THREADS: usize = 2;
const PASSES: u64 = 3;
/// Usually one block of thirty, but that depends on when writes end.
const TRIES: usize = 3;

fn store() -> Result<Box<dyn Store>, Error> {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    Ok(Box::new(FileStore::open(&path, BLOCK, None)?))
}

/// Adds to a word of each block from `start` on, in order, pass after pass, so every block that is
/// read must be written too.
fn work(start: usize) {
    for pass in 0..PASSES {
        for block in 0..BLOCKS {
            let at = (start + block * BLOCK) as *mut u64;
            // SAFETY: the block is paged memory of the test's, and this thread's alone.
            unsafe {
                assert_eq!(at.read_volatile(), pass, "block {block}");
                at.write_volatile(pass + 1);
            }
        }
    }
}

fn can_page() -> bool {
    let opened = Userfaultfd::open(Kind::Faults);
    opened.inspect_err(|error| eprintln!("SKIPPED: {error}")).is_ok()
}

/// Runs two threads at once. Returns the number of blocks that were read because a thread waited
/// for them, and the number of all blocks read.
fn read_one_by_one() -> (u64, u64) {
    let len = THREADS * BLOCKS * BLOCK;
    let start = memory::reserve(len).unwrap() as usize;
    let options = Options { block: BLOCK, frames: FRAMES, ..Options::default() };
    let pager = Pager::start(options, Box::new(store)).unwrap();
    pager.add(start, len, 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || work(start + thread * BLOCKS * BLOCK));
        }
    });
    let stats = pager.snapshot();
    eprintln!("{} blocks one by one, {} in runs", stats.demand_blocks, stats.prefetched_blocks);
    (stats.demand_blocks, stats.demand_blocks + stats.prefetched_blocks)
}

/// Frames become free as blocks are written. If there are too few for a run, the run is read in
/// several parts. It is not read as one part, with a fault for each block of the rest: that would
/// be one block of six.
#[test]
fn all_of_a_run_is_read_ahead_though_frames_are_scarce() {
    if !can_page() {
        return;
    }
    let few = |(alone, all): (u64, u64)| alone * 10 < all;
    assert!((0..TRIES).any(|_| few(read_one_by_one())));
}
