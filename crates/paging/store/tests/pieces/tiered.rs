//! A block is where it was last written, and nowhere else.

use crate::rig::{Allowed, BLOCK, Disk, MOST, Rig, content};
use terapage_store::{Delayed, EXTENT, Faults, Faulty, Mirror, OpKind, Packed, Ram, Store, Tier, Tiered};

fn tier(store: impl Store + 'static, choosy: bool) -> Tier {
    Tier { store: Box::new(store), choosy }
}

/// Compressed memory for a part of the blocks, then a small disk, then a large one.
fn three(seed: u64, faults: Faults) -> Tiered {
    let memory = Packed::new(BLOCK, 256 << 10, true).unwrap();
    let small = Faulty::new(Delayed::new(Ram::new(BLOCK, EXTENT), 0..40_000, seed), faults, seed);
    let large = Faulty::new(Delayed::new(Disk::default(), 0..40_000, seed + 1), faults, seed + 1);
    Tiered::new(vec![tier(memory, true), tier(small, false), tier(large, false)], BLOCK).unwrap()
}

#[test]
fn what_was_written_is_read() {
    for seed in 0..8 {
        println!("seed {seed}");
        let Some(mut rig) = Rig::new(three(seed, Faults::default()), seed) else { return };
        rig.against_a_map(1500, 3000, Allowed::default());
        let held = rig.store.level_bytes();
        assert!(held.iter().all(|&bytes| bytes > 0), "{held:?}");
    }
}

#[test]
fn errors_are_failures_and_wrong_bytes_are_judged() {
    let faults = Faults { errors: 30_000, short: 30_000, flips: 30_000, ..Faults::default() };
    for seed in 0..8 {
        println!("seed {seed}");
        let Some(mut rig) = Rig::new(three(seed, faults), seed) else { return };
        rig.against_a_map(1500, 3000, Allowed { failures: true, flips: true });
    }
}

#[test]
fn a_mirror_inside_hears_which_read_was_wrong() {
    let faults = Faults { flips: 200_000, errors: 50_000, ..Faults::default() };
    for seed in 0..4 {
        println!("seed {seed}");
        let bad = Faulty::new(Delayed::new(Disk::default(), 0..40_000, seed), faults, seed);
        let mirror = Mirror::new(vec![Box::new(bad), Box::new(Disk::default())], BLOCK).unwrap();
        let tiers = vec![tier(Packed::new(BLOCK, 64 << 10, true).unwrap(), true), tier(mirror, false)];
        let Some(mut rig) = Rig::new(Tiered::new(tiers, BLOCK).unwrap(), seed) else { return };
        rig.retries = 3;
        rig.against_a_map(700, 2000, Allowed { failures: false, flips: true });
        assert_eq!(rig.wrong_for_good, 0, "the other copy was not read");
    }
}

#[test]
fn the_first_is_filled_first_and_what_is_written_again_comes_back() {
    let first = Disk::default();
    let tiers = vec![tier(Packed::new(BLOCK, 64 << 10, true).unwrap(), true), tier(first, false)];
    let Some(mut rig) = Rig::new(Tiered::new(tiers, BLOCK).unwrap(), 1) else { return };
    let mut slot = 0;
    while rig.store.level_bytes()[1] == 0 {
        rig.write(slot, &content(4, slot)).unwrap();
        slot += 1;
    }
    assert!(slot > 32, "only {slot} blocks of text in 16 blocks of memory");
    let held = rig.store.level_bytes();
    rig.read(slot - 1).unwrap();
    assert_eq!(rig.store.level_bytes(), held, "a read moves nothing");
    assert!(rig.store.wants_back(0), "memory is full");
    assert!(!rig.store.wants_back(slot - 1), "nothing can move up");
    rig.store.forget(21..slot - 1);
    assert!(rig.store.wants_back(slot - 1), "memory has room for it");
    rig.write(slot, &content(3, slot)).unwrap();
    assert!(!rig.store.wants_back(slot), "memory with room has refused it");
    rig.store.forget(slot..slot + 1);
    rig.write(slot - 1, &content(8, slot - 1)).unwrap();
    assert_eq!(rig.store.level_bytes()[1], 0, "it came back");
    assert_eq!(rig.read(slot - 1).unwrap(), content(8, slot - 1));
    assert_eq!(rig.read(20).unwrap(), content(4, 20));
}

#[test]
fn noise_passes_memory_by_in_one_operation() {
    let disk = Disk::default();
    let tiers = vec![tier(Packed::new(BLOCK, 1 << 20, true).unwrap(), true), tier(disk.clone(), false)];
    let Some(mut rig) = Rig::new(Tiered::new(tiers, BLOCK).unwrap(), 1) else { return };
    let bytes: Vec<u8> = (0..MOST as u32).flat_map(|slot| content(3, slot)).collect();
    rig.bytes(0, MOST).copy_from_slice(&bytes);
    rig.begin(0, OpKind::Write, 0..MOST as u32);
    rig.next().result.unwrap();
    assert_eq!(rig.store.level_bytes(), [0, (MOST * BLOCK) as u64]);
    assert_eq!(disk.operations(), 1);
}
