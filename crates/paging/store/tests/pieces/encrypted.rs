//! Only ciphertext leaves, and a read returns only the last bytes written to its slot.

use crate::rig::{Allowed, BLOCK, Disk, MOST, Rig, content};
use terapage_store::{Delayed, Encrypted, Failure, Faults, Faulty, Mirror, Store, Why};

fn encrypted(disk: &Disk) -> Option<Rig<Encrypted<Disk>>> {
    Rig::new(Encrypted::new(disk.clone(), BLOCK).unwrap(), 1)
}

const WRONG: Result<Vec<u8>, Failure> = Err(Failure { passing: false, why: Why::Wrong });

#[test]
fn what_was_written_is_read() {
    for seed in 0..8 {
        println!("seed {seed}");
        let inner = Delayed::new(Disk::default(), 0..40_000, seed);
        let Some(mut rig) = Rig::new(Encrypted::new(inner, BLOCK).unwrap(), seed) else { return };
        rig.against_a_map(700, 2000, Allowed::default());
    }
}

#[test]
fn errors_and_flipped_bits_are_failures() {
    let faults = Faults { errors: 30_000, short: 30_000, flips: 100_000, ..Faults::default() };
    for seed in 0..8 {
        println!("seed {seed}");
        let inner = Faulty::new(Delayed::new(Disk::default(), 0..40_000, seed), faults, seed);
        let Some(mut rig) = Rig::new(Encrypted::new(inner, BLOCK).unwrap(), seed) else { return };
        rig.against_a_map(700, 2000, Allowed { failures: true, flips: false });
    }
}

#[test]
fn more_than_the_buffers_hold_waits() {
    let inner = Delayed::new(Disk::default(), 100_000..200_000, 1);
    const LARGE: usize = 1 << 20;
    let mut store = Encrypted::new(inner, BLOCK).unwrap();
    while store.slots() < 12 * (LARGE / BLOCK) as u32 {
        store.grow().unwrap();
    }
    let Some(mut rig) = Rig::new(store, 1) else { return };
    let bytes = content(3, 3).repeat(MOST);
    for id in 0..12 {
        rig.bytes(id, MOST).copy_from_slice(&bytes);
        rig.write_repeated(id, id * 256..(id + 1) * 256);
    }
    let mut ended: Vec<_> = (0..12).map(|_| rig.next()).inspect(|end| assert!(end.result.is_ok())).collect();
    ended.sort_by_key(|end| end.id);
    assert_eq!(ended.iter().map(|end| end.id).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    for slot in (0..12 * 256).step_by(17) {
        assert_eq!(rig.read(slot).unwrap(), content(3, 3));
    }
}

#[test]
fn the_store_sees_neither_bytes_nor_that_they_are_the_same() {
    let disk = Disk::default();
    let Some(mut rig) = encrypted(&disk) else { return };
    let bytes = content(4, 7);
    let mut seen = Vec::new();
    for slot in [0, 1, 0] {
        rig.write(slot, &bytes).unwrap();
        let found = disk.slot(slot);
        assert!(found.windows(16).all(|window| !bytes.windows(16).any(|text| text == window)));
        assert!(!seen.contains(&found), "the same bytes twice");
        seen.push(found);
        assert_eq!(rig.read(slot).unwrap(), bytes);
    }
}

#[test]
fn neither_older_bytes_nor_those_of_another_slot_open() {
    let disk = Disk::default();
    let Some(mut rig) = encrypted(&disk) else { return };
    rig.write(0, &content(1, 0)).unwrap();
    let older = disk.slot(0);
    rig.write(0, &content(2, 0)).unwrap();
    rig.write(1, &content(2, 1)).unwrap();
    let newer = disk.slot(0);
    disk.put(0, &older);
    assert_eq!(rig.read(0), WRONG);
    disk.put(1, &newer);
    assert_eq!(rig.read(1), WRONG);
    disk.put(0, &newer);
    assert_eq!(rig.read(0).unwrap(), content(2, 0));
    assert_eq!(rig.read(2), WRONG, "a slot that was never written");
    rig.store.forget(0..1);
    assert_eq!(rig.read(0), WRONG, "a slot that holds nothing any more");
}

#[test]
fn a_child_reads_its_parents_blocks_and_does_not_write_with_its_key() {
    let disk = Disk::default();
    let Some(mut rig) = encrypted(&disk) else { return };
    rig.write(5, &content(1, 5)).unwrap();
    rig.store.inherit().unwrap();
    assert_eq!(rig.read(5).unwrap(), content(1, 5));
    assert!(rig.write(6, &content(2, 6)).is_err());
    let Some(mut other) = encrypted(&disk) else { return };
    assert_eq!(other.read(5), WRONG, "another store has another key");
}

/// The tag shows which copy of a mirror is wrong, and the other one is read.
#[test]
fn a_wrong_copy_inside_is_passed_over_and_mended() {
    let disks = [Disk::default(), Disk::default()];
    let copies = disks.iter().map(|disk| Box::new(disk.clone()) as Box<dyn Store>).collect();
    let mirror = Mirror::new(copies, BLOCK).unwrap();
    let Some(mut rig) = Rig::new(Encrypted::new(mirror, BLOCK).unwrap(), 1) else { return };
    rig.write(0, &content(1, 0)).unwrap();
    let right = disks[0].slot(0);
    for bad in &disks {
        bad.put(0, &content(9, 9));
        // Whichever copy is read first: the second try reads the other.
        let first = rig.read(0);
        let was_wrong = first.is_err();
        assert_eq!(first.or_else(|_| rig.read(0)).unwrap(), content(1, 0));
        assert!(!was_wrong || bad.slot(0) == right, "it was not written back");
        bad.put(0, &right);
    }
}
