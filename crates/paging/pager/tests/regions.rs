//! Counters by region: their sums are those of the process, whatever the program does and however
//! regions appear and end.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use terapage_pager::{Error, Options, Pager};
use terapage_stats::{FILE_BYTES, Region};
use terapage_store::{Ram, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 16 << 10;
const BLOCKS: usize = 120;
const FRAMES: usize = 16;

fn store() -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Ram::new(BLOCK, 2 * BLOCKS * BLOCK)))
}

/// The regions as another process sees them.
fn regions(pager: &Pager) -> Vec<Region> {
    let link = format!("/proc/self/fd/{}", pager.stats_file().raw());
    let mut bytes = vec![0; FILE_BYTES];
    File::open(link).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    Region::from_bytes(&bytes)
}

fn touch(start: usize, block: usize, value: u8) {
    // SAFETY: the block is paged memory of the test's.
    unsafe { ((start + block * BLOCK) as *mut u8).write_volatile(value) };
}

#[test]
fn books_of_blocks_are_part_of_the_budget() {
    if let Err(error) = Userfaultfd::open(Kind::Faults) {
        eprintln!("SKIPPED: {error}");
        return;
    }
    const SMALL: usize = 4096;
    const MANY: usize = 10_000;
    let start = memory::reserve(MANY * SMALL).unwrap() as usize;
    let options = Options { block: SMALL, frames: 512, ..Options::default() };
    let make = || -> Result<Box<dyn Store>, Error> { Ok(Box::new(Ram::new(SMALL, 2 * MANY * SMALL))) };
    let pager = Pager::start(options, Box::new(make)).unwrap();
    pager.add(start, MANY * SMALL, 0).unwrap();
    let at = |block: usize| (start + block * SMALL) as *mut u64;
    for block in 0..MANY {
        // SAFETY: the block is paged memory of the test's.
        unsafe { at(block).write_volatile(block as u64 + 1) };
    }
    for block in 0..MANY {
        // SAFETY: as above.
        assert_eq!(unsafe { at(block).read_volatile() }, block as u64 + 1);
    }
    pager.discard(start, SMALL).unwrap();
    // 45 bytes for each block. Up to a tenth of the frames may be ready for other blocks, empty.
    let frames = 512 - MANY * 45 / SMALL;
    let resident = pager.snapshot().resident_bytes as usize / SMALL;
    assert!((frames * 4 / 5..=frames).contains(&resident), "{resident} of {frames} frames");
}

#[test]
fn regions_add_up_to_the_process() {
    if let Err(error) = Userfaultfd::open(Kind::Faults) {
        eprintln!("SKIPPED: {error}");
        return;
    }
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let len = BLOCKS * BLOCK;
    let start = (memory::reserve(len + BLOCK).unwrap() as usize).next_multiple_of(BLOCK);
    let options = Options { block: BLOCK, frames: FRAMES, ..Options::default() };
    let pager = Pager::start(options, Box::new(store)).unwrap();
    pager.add(start, len, 0).unwrap();
    pager.name_region(1, start, len, "heap").unwrap();
    let mut named = false;
    for step in 0..4000 {
        touch(start, random.random_range(0..BLOCKS), random.random_range(1..=255));
        if step % 40 != 0 {
            continue;
        }
        let inner = start + 30 * BLOCK;
        match random.random_range(0..4) {
            0 if named => pager.end_region(2).unwrap(),
            0 => pager.name_region(2, inner, 30 * BLOCK, "array").unwrap(),
            1 if named => {
                let blocks = random.random_range(1..60);
                pager.resize_region(2, inner, blocks * BLOCK).unwrap();
                continue;
            }
            2 => {
                let first = random.random_range(0..BLOCKS - 10);
                pager.discard(start + first * BLOCK, 10 * BLOCK).unwrap();
                continue;
            }
            _ => continue,
        }
        named = !named;
    }
    // A request is answered after all earlier events have been counted.
    pager.discard(start, BLOCK).unwrap();
    let (regions, all) = (regions(&pager), pager.snapshot());
    let sum = |what: fn(&Region) -> u64| regions.iter().map(what).sum::<u64>();
    assert_eq!(sum(|region| region.major_faults), all.major_faults);
    assert_eq!(sum(|region| region.minor_faults), all.minor_faults);
    assert_eq!(sum(|region| region.page_in_bytes), all.page_in_bytes);
    assert!(all.major_faults > 0, "nothing was paged in");
    assert!(sum(|region| region.resident_bytes) <= (FRAMES * BLOCK) as u64);
    assert!(sum(|region| region.resident_bytes + region.stored_bytes) <= len as u64);
    pager.discard(start, len).unwrap();
    let (resident, stored) = (&pager.region(1).resident_bytes, &pager.region(1).stored_bytes);
    assert_eq!((resident.load(Relaxed), stored.load(Relaxed)), (0, 0));
}
