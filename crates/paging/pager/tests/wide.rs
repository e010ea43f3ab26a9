//! A terabyte of which little is touched: requests for the whole range have the same effect as
//! requests for its touched part. (If they cost more than that part, this test would not end.)

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use terapage_pager::{Error, Options, Pager};
use terapage_store::{Ram, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 16 << 10;
const FRAMES: usize = 16;
const BLOCKS: usize = (1 << 40) / BLOCK;
/// The first block of the last quarter, which is only reserved at first.
const OPEN: usize = BLOCKS / 4 * 3;
const MANY: usize = 4000;

fn store() -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Ram::new(BLOCK, 3 * MANY * BLOCK)))
}

/// A block near others, near a border, or anywhere.
fn some_block(random: &mut StdRng) -> usize {
    match random.random_range(0..4) {
        0 => random.random_range(0..BLOCKS),
        1 => OPEN - 100 + random.random_range(0..200),
        2 => BLOCKS - 1 - random.random_range(0..300),
        _ => 8192 * random.random_range(0..3) + random.random_range(0..300),
    }
}

#[test]
fn a_terabyte_of_which_little_is_touched() {
    if let Err(error) = Userfaultfd::open(Kind::Faults) {
        eprintln!("SKIPPED: {error}");
        return;
    }
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let start = (memory::reserve((BLOCKS + 1) * BLOCK).unwrap() as usize).next_multiple_of(BLOCK);
    let at = |block: usize| start + block * BLOCK;
    // The range has bytes before paging begins: in its first part, and behind the reserved part.
    let mut model: HashMap<usize, u64> = HashMap::new();
    for block in [0, 1, 700, BLOCKS - 3] {
        // SAFETY: the block is the test's.
        unsafe { (at(block) as *mut u64).write_volatile(block as u64 + 7) };
        model.insert(block, block as u64 + 7);
    }
    let pager = Pager::start(Options { block: BLOCK, frames: FRAMES, ..Options::default() }, Box::new(store))
        .unwrap();
    pager.add_around(start, BLOCKS * BLOCK, 800 * BLOCK, &[(at(OPEN), at(BLOCKS - 10))]).unwrap();
    pager.name_region(1, start, BLOCKS * BLOCK, "all").unwrap();
    let mut all_paged = false;
    for step in 0..MANY {
        let block = some_block(&mut random);
        let to = random.random_range(block..=BLOCKS).max(block + 1);
        match random.random_range(0..400) {
            0 => {
                pager.discard(at(block), (to - block) * BLOCK).unwrap();
                model.retain(|touched, _| !(block..to).contains(touched));
            }
            1 => {
                pager.release(at(block), (to - block) * BLOCK).unwrap();
                all_paged = false;
            }
            2 | 3 => {
                pager.restore(start, BLOCKS * BLOCK).unwrap();
                all_paged = true;
            }
            4 => {
                pager.resize_region(1, start, to * BLOCK).unwrap();
            }
            _ => {
                let place = at(block) as *mut u64;
                // SAFETY: memory of the test's, paged or not.
                let now = unsafe { place.read_volatile() };
                assert_eq!(now, model.get(&block).copied().unwrap_or(0), "block {block}, step {step}");
                if random.random() && model.len() < MANY {
                    let value = random.random();
                    // SAFETY: as above.
                    unsafe { place.write_volatile(value) };
                    model.insert(block, value);
                }
            }
        }
        if all_paged {
            assert_eq!(pager.snapshot().released_bytes, 0);
        }
    }
    for (&block, &value) in &model {
        // SAFETY: as above.
        assert_eq!(unsafe { (at(block) as *const u64).read_volatile() }, value, "block {block}");
    }
}
