//! The second run of a program reads ahead in the order of the first.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terapage_pager::{Error, Options, Pager};
use terapage_store::{FileStore, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};
use terapage_trace::Misses;

const BLOCK: usize = 4096;
const FRAMES: usize = 2048;
const BLOCKS: usize = 4 * FRAMES;
const TOUCHES: usize = 12 * FRAMES;

fn store() -> Result<Box<dyn Store>, Error> {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    Ok(Box::new(FileStore::open(&path, BLOCK, None)?))
}

/// Adds to words of blocks in an order that depends on the seed, and compares them with a model.
/// Returns the number of blocks for which the thread waited, and what the run has learnt.
fn run(seed: u64, last: Misses) -> (u64, Misses) {
    let len = BLOCKS * BLOCK;
    let start = memory::reserve(len).unwrap() as usize;
    let options = Options { block: BLOCK, frames: FRAMES, learn: Some(last), ..Options::default() };
    let pager = Pager::start(options, Box::new(store)).unwrap();
    pager.add(start, len, 0).unwrap();
    let mut model = vec![0u64; BLOCKS];
    let mut random = StdRng::seed_from_u64(seed);
    let order = (0..BLOCKS).chain((0..TOUCHES).map(|_| random.random_range(0..BLOCKS)));
    for (turn, block) in order.enumerate() {
        let at = (start + block * BLOCK) as *mut u64;
        // SAFETY: the block is paged memory of the test's, and this thread's alone.
        unsafe {
            assert_eq!(at.read_volatile(), model[block], "block {block}");
            at.write_volatile(turn as u64);
        }
        model[block] = turn as u64;
    }
    let waited = pager.snapshot().demand_blocks;
    (waited, pager.finish_learning().expect("there were waits"))
}

#[test]
fn a_second_run_waits_less_and_another_hardly_more() {
    let opened = Userfaultfd::open(Kind::Faults);
    if opened.inspect_err(|error| eprintln!("SKIPPED: {error}")).is_err() {
        return;
    }
    let (first, learnt) = run(1, Misses { program: 7, ..Misses::default() });
    assert_eq!((learnt.program, learnt.split, learnt.regions.len()), (7, false, 1));
    assert!(learnt.keys.len() as u64 >= first * 9 / 10, "{} of {first}", learnt.keys.len());
    let (second, again) = run(1, learnt.clone());
    assert!(second < first / 2, "{second} waits after {first}");
    assert!(again.keys.len() as u64 > first / 2, "{} were learnt again", again.keys.len());
    let (third, _) = run(1, again);
    assert!(third < first / 2, "{third} waits after {first} and {second}");
    let (other, _) = run(2, learnt);
    assert!(other < first * 11 / 10, "{other} waits of another program, {first} without the file");
}
