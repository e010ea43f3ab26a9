//! Neighbours that are read together with a block for which a thread waits.

use terapage_pager::{Error, Options, Pager};
use terapage_stats::Snapshot;
use terapage_store::{Delayed, FileStore, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 4096;
const FRAMES: usize = 512;
const BLOCKS: usize = 8 * FRAMES;
/// Blocks that are touched soon after one another.
const GROUP: usize = 8;
/// What each operation takes longer, ns. On a disk that is quick enough, companions do not pay.
const DELAY_NS: u64 = 200_000;

fn store() -> Result<Box<dyn Store>, Error> {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = FileStore::open(&path, BLOCK, None)?;
    Ok(Box::new(Delayed::new(file, DELAY_NS..DELAY_NS + 1, 1)))
}

fn can_page() -> bool {
    let opened = Userfaultfd::open(Kind::Faults);
    opened.inspect_err(|error| eprintln!("SKIPPED: {error}")).is_ok()
}

/// Fills all blocks, then touches groups of neighbours in a random order, and in each group the
/// blocks that `touched` lists. Returns the number of touches, and the counters of that time.
fn play(touched: &[usize], writes: bool) -> (u64, Snapshot) {
    let start = memory::reserve(BLOCKS * BLOCK).unwrap() as usize;
    let options = Options { block: BLOCK, frames: FRAMES, prefetch: "off".to_owned(), ..Options::default() };
    let pager = Pager::start(options, Box::new(store)).unwrap();
    pager.add(start, BLOCKS * BLOCK, 0).unwrap();
    let at = |block: usize| (start + block * BLOCK) as *mut u64;
    for block in 0..BLOCKS {
        // SAFETY: the block is paged memory of the test's, and this thread's alone.
        unsafe { at(block).write_volatile(block as u64) };
    }
    let (mut state, mut touches) = (1u64, 0);
    let mut expected: Vec<u64> = (0..BLOCKS as u64).collect();
    for _ in 0..4000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let group = (state >> 33) as usize % (BLOCKS / GROUP);
        for &index in touched {
            let block = group * GROUP + index;
            // SAFETY: as above.
            unsafe {
                assert_eq!(at(block).read_volatile(), expected[block], "block {block}");
                if writes {
                    expected[block] += 1 << 32;
                    at(block).write_volatile(expected[block]);
                }
            }
            touches += 1;
        }
    }
    let stats = pager.snapshot();
    eprintln!(
        "{touches} touches, {} reads, {} companions, {} of them used",
        stats.major_faults, stats.companions, stats.companions_used
    );
    (touches, stats)
}

#[test]
fn neighbours_that_are_touched_come_by_one_operation() {
    if !can_page() {
        return;
    }
    for writes in [false, true] {
        let (touches, stats) = play(&[0, 1, 2, 3, 4, 5, 6, 7], writes);
        assert!(stats.major_faults * 3 < touches, "a read for each touch of a block that is absent");
        assert!(stats.companions_used * 2 > stats.companions);
    }
}

#[test]
fn neighbours_that_nobody_touches_are_soon_left_alone() {
    if !can_page() {
        return;
    }
    let (_, stats) = play(&[0, 4], true);
    assert!(stats.major_faults > 1000, "they do not fit into memory");
    assert!(stats.companions * 4 < stats.major_faults);
}
