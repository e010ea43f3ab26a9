//! Mirrors: written bytes come back while one copy has them, whatever the others do.

mod resync;
mod rig;

use rig::{BLOCK, DEPTH, Disk, EIO, MOST, Rig};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;
use terapage_store::{Delayed, Ended, Failure, Faults, Faulty, FileStore, OpKind, Store, Why};

#[test]
fn writes_go_to_all_copies() {
    let (a, b, c) = (Disk::default(), Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b, &c]) else { return };
    rig.write(3, 9).unwrap();
    assert!([&a, &b, &c].iter().all(|disk| disk.slot(3) == [9; BLOCK]));
    assert_eq!(rig.mirror.condition(), None);
    assert_eq!(rig.mirror.name(), "mirror of disk and disk and disk");
}

#[test]
fn a_flipped_bit_is_healed_from_the_other_copy() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    rig.write(5, 7).unwrap();
    for disk in [&a, &b] {
        disk.spoil(5);
        // Whichever copy is read first, it is this one at some time.
        while disk.slot(5) != [7; BLOCK] {
            rig.read(5, 7).unwrap();
        }
        assert_eq!(rig.mirror.condition(), None);
    }
}

#[test]
fn bytes_that_were_not_judged_right_are_not_written_back() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    rig.write(5, 7).unwrap();
    a.spoil(5);
    b.spoil(5);
    let before = (a.slot(5), b.slot(5));
    assert_eq!(rig.read(5, 7), Err(Failure::lasting(Why::Wrong)));
    assert_eq!((a.slot(5), b.slot(5)), before);
}

#[test]
fn an_error_of_one_copy_is_no_error() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    for (round, disk) in [&a, &b].into_iter().enumerate() {
        let byte = round as u8 + 1;
        disk.fail(true);
        for slot in 0..20 {
            rig.write(slot, byte).unwrap();
            rig.read(slot, byte).unwrap();
        }
        let said = rig.mirror.condition().unwrap();
        assert!(said.contains("1 of 2 copies, 20 slots behind"), "{said}");
        disk.fail(false);
        // Slots that it has missed are read from the other copy, also before it is taken back.
        rig.read(3, byte).unwrap();
        while rig.mirror.condition().is_some_and(|said| said.contains("1 of 2")) {
            rig.write(21, 1).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        // Each read brings it up to date.
        (0..20).for_each(|slot| rig.read(slot, byte).unwrap());
        assert_eq!(rig.mirror.condition(), None);
        assert!((0..20).all(|slot| a.slot(slot) == b.slot(slot)));
    }
}

#[test]
fn when_no_copy_works_that_is_said_and_tried_again() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    a.fail(true);
    b.fail(true);
    for _ in 0..20 {
        assert_eq!(rig.write(0, 1), Err(Failure::lasting(Why::Errno(EIO))));
    }
    b.fail(false);
    rig.write(0, 2).unwrap();
    rig.read(0, 2).unwrap();
}

#[test]
fn the_child_of_a_fork_writes_nothing_back() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    rig.write(5, 7).unwrap();
    rig.mirror.inherit().unwrap();
    a.spoil(5);
    let spoilt = a.slot(5);
    for _ in 0..50 {
        rig.read(5, 7).unwrap();
    }
    assert_eq!(a.slot(5), spoilt);
}

/// Direct I/O wants memory on a page's edge.
#[test]
fn copies_in_files_are_healed_too() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let faults = Faults { flips: 1_000_000, ..Faults::default() };
    let [bad, good] = places.each_ref().map(|place| FileStore::open(place.path(), BLOCK, None).unwrap());
    let Some(mut rig) = Rig::new(vec![Box::new(Faulty::new(bad, faults, 1)), Box::new(good)]) else { return };
    for slot in 0..8 {
        rig.write(slot, slot as u8).unwrap();
        rig.read(slot, slot as u8).unwrap();
        // What is written back ends.
        rig.until_in_sync();
    }
}

/// If two copies gave parts of a read, it is unknown which was wrong.
#[test]
fn a_copy_that_is_always_wrong_does_no_harm_to_reads_in_parts() {
    let (a, b) = (Disk::default(), Disk::default());
    let faults = Faults { flips: 1_000_000, ..Faults::default() };
    for bad_first in [true, false] {
        let bad = Box::new(Faulty::new(a.clone(), faults, 1)) as Box<dyn Store>;
        let good = Box::new(b.clone()) as Box<dyn Store>;
        let copies = if bad_first { vec![bad, good] } else { vec![good, bad] };
        let Some(mut rig) = Rig::new(copies) else { return };
        // Acts like a fork's child, which repairs nothing: suspect slots stay suspect.
        (0..64).for_each(|slot| rig.write(slot, 7).unwrap());
        rig.mirror.inherit().unwrap();
        (0..64).step_by(3).for_each(|slot| rig.read(slot, 7).unwrap());
        for first in (0..60).rev() {
            let slots = first..first + MOST as u32;
            let right = (0..4).any(|_| {
                rig.begin(0, OpKind::Read, slots.clone());
                rig.next().result.unwrap();
                let good = rig.bytes(0, MOST).iter().all(|&byte| byte == 7);
                rig.judge(0, slots.clone(), good);
                good
            });
            assert!(right, "{slots:?}");
        }
    }
}

/// A write while older bytes are being written back must win.
#[test]
fn a_write_waits_until_its_slot_has_been_written_back() {
    let (a, b) = (Disk::default(), Disk::default());
    // The first copy completes late: its repair is under way for a while.
    let late = Delayed::new(a.clone(), 2_000_000..3_000_000, 1);
    let Some(mut rig) = Rig::new(vec![Box::new(late), Box::new(b.clone())]) else { return };
    rig.write(5, 7).unwrap();
    a.fail(true);
    rig.write(5, 8).unwrap();
    a.fail(false);
    rig.read(5, 8).unwrap();
    assert_eq!(a.slot(5), [8; BLOCK], "written back");
    rig.bytes(1, 1).fill(9);
    rig.begin(1, OpKind::Write, 5..6);
    assert_eq!(b.slot(5), [8; BLOCK], "the write has to wait");
    assert_eq!(rig.next(), Ended::well(1));
    assert_eq!((a.slot(5), b.slot(5)), (vec![9; BLOCK], vec![9; BLOCK]));
    assert_eq!(rig.mirror.condition(), None);
}

/// An operation under way.
struct UnderWay {
    kind: OpKind,
    slots: Range<u32>,
    /// The value of each slot.
    values: Vec<Option<u64>>,
    /// The number of wrong reads.
    tries: u32,
}

/// Random work on a mirror, compared with what was written last.
struct Model {
    seed: u64,
    state: u64,
    rig: Rig,
    /// Perhaps no copy has what was written.
    may_fail: bool,
    /// The last write to each slot.
    truth: HashMap<u32, u64>,
    under_way: HashMap<u32, UnderWay>,
    /// The last value that was written.
    value: u64,
}

impl Model {
    fn random(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    /// Begins an operation, or ends one.
    fn step(&mut self) {
        let free = (0..DEPTH).find(|id| !self.under_way.contains_key(id));
        let first = self.random(24) as u32;
        let slots = first..first + 1 + self.random(MOST as u64) as u32;
        let touches = |other: &UnderWay| other.slots.start < slots.end && slots.start < other.slots.end;
        if let Some(id) = free
            && !self.under_way.values().any(touches)
            && (!self.begin(id, slots) || self.random(3) > 0)
        {
            return;
        }
        if !self.under_way.is_empty() {
            self.end();
        }
    }

    /// Begins an operation of these slots, or forgets them. Whether one was begun.
    fn begin(&mut self, id: u32, slots: Range<u32>) -> bool {
        let kind = if self.random(2) == 0 { OpKind::Read } else { OpKind::Write };
        if self.random(20) == 0 {
            self.truth.retain(|slot, _| !slots.contains(slot));
            self.rig.mirror.forget(slots);
            return false;
        }
        let mut values: Vec<_> = slots.clone().map(|slot| self.truth.get(&slot).copied()).collect();
        if kind == OpKind::Write {
            for (index, value) in values.iter_mut().enumerate() {
                self.value += 1;
                *value = Some(self.value);
                let word = self.value.to_le_bytes();
                let bytes = &mut self.rig.bytes(id, MOST)[index * BLOCK..][..BLOCK];
                bytes.chunks_exact_mut(8).for_each(|to| to.copy_from_slice(&word));
            }
        } else if values.iter().any(Option::is_none) {
            // Never written: the contents are undefined.
            return false;
        }
        self.rig.begin(id, kind, slots.clone());
        self.under_way.insert(id, UnderWay { kind, slots, values, tries: 0 });
        true
    }

    /// Waits for the end of an operation, and checks it.
    fn end(&mut self) {
        let end = self.rig.next();
        let UnderWay { kind, slots, values, tries } = self.under_way.remove(&end.id).unwrap();
        let seed = self.seed;
        match (end.result, kind) {
            (Err(failure), _) => {
                assert!(self.may_fail, "seed {seed}: {kind:?} {slots:?} failed: {failure:?}");
                if kind == OpKind::Write {
                    self.truth.retain(|slot, _| !slots.contains(slot));
                }
            }
            (Ok(()), OpKind::Write) => {
                self.truth.extend(slots.zip(values).filter_map(|(slot, value)| Some((slot, value?))));
            }
            (Ok(()), OpKind::Read) => {
                let wrong = self.wrong_bits(end.id, &values);
                // A store flips a bit: older bytes would differ in more than one.
                assert!(wrong <= slots.len() as u32, "seed {seed}: {slots:?} has older bytes ({wrong} bits)");
                self.rig.judge(end.id, slots.clone(), wrong == 0);
                // Parts of both, then only the bad copy, then the good one.
                assert!(
                    wrong == 0 || self.may_fail || tries < 2,
                    "seed {seed}: {slots:?} was wrong in both copies"
                );
                if wrong > 0 && tries < 4 {
                    self.rig.begin(end.id, OpKind::Read, slots.clone());
                    self.under_way.insert(end.id, UnderWay { kind, slots, values, tries: tries + 1 });
                }
            }
        }
    }

    /// The bits in which what was read differs from these values.
    fn wrong_bits(&mut self, id: u32, values: &[Option<u64>]) -> u32 {
        let read = self.rig.bytes(id, values.len()).chunks_exact(BLOCK);
        let words = values
            .iter()
            .zip(read)
            .flat_map(|(value, bytes)| bytes.chunks_exact(8).map(move |word| (value.unwrap(), word)));
        words.map(|(value, word)| (value ^ u64::from_le_bytes(word.try_into().unwrap())).count_ones()).sum()
    }
}

/// Random work with copies that fail and complete late, compared with the last writes. `may_fail`:
/// perhaps no copy has the bytes.
fn against_a_model(seed: u64, faults: [Faults; 2], may_fail: bool) -> Option<()> {
    let copies = faults.into_iter().enumerate().map(|(index, faults)| {
        let seed = seed * 2 + index as u64;
        let inner = Faulty::new(Disk::default(), faults, seed);
        Box::new(Delayed::new(inner, 0..200_000, seed)) as Box<dyn Store>
    });
    let rig = Rig::new(copies.collect())?;
    let (truth, under_way) = (HashMap::new(), HashMap::new());
    let mut model = Model { seed, state: seed, rig, may_fail, truth, under_way, value: 0 };
    (0..400).for_each(|_| model.step());
    Some(())
}

#[test]
fn one_good_copy_is_enough_whatever_the_other_does() {
    let bad = Faults { errors: 200_000, short: 100_000, flips: 200_000, ..Faults::default() };
    for seed in 0..60 {
        let faults = if seed % 2 == 0 { [bad, Faults::default()] } else { [Faults::default(), bad] };
        if against_a_model(seed, faults, false).is_none() {
            return;
        }
    }
}

#[test]
fn two_bad_copies_never_give_older_bytes() {
    let bad = Faults { errors: 150_000, short: 50_000, flips: 100_000, ..Faults::default() };
    for seed in 0..60 {
        if against_a_model(seed, [bad, bad], true).is_none() {
            return;
        }
    }
}
