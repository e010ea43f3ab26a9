//! The resync, spares, and what the mirror says of itself.

use crate::rig::{BLOCK, Disk, Rig};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terapage_store::{Delayed, Faults, Faulty, Mirror, Spare, Store};

/// What nobody reads is written again all the same, and what was given up meanwhile is not missed.
#[test]
fn a_copy_that_comes_back_empty_is_filled_without_a_read() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    for slot in 0..300 {
        rig.write(slot, slot as u8).unwrap();
    }
    assert!(rig.is_in_sync());
    for disk in [&a, &b, &a] {
        disk.go_away(true);
        rig.write(3, 3).unwrap();
        assert_eq!(rig.mirror.redundancy().missing, 1);
        rig.mirror.forget(100..120);
        disk.lose_all();
        disk.go_away(false);
        rig.write(4, 4).unwrap();
        assert!(!rig.is_in_sync());
        rig.until_in_sync();
        let is_kept = |slot: &u32| !(100..120).contains(slot);
        assert!((0..300).filter(is_kept).all(|slot| disk.slot(slot) == vec![slot as u8; BLOCK]));
        assert_eq!(disk.slot(110), [0xcc; BLOCK], "given up");
    }
    assert!(rig.mirror.redundancy().resynced_bytes >= 3 * 278 * BLOCK as u64);
}

/// The copy that is left may hold wrong bytes, too: these are not spread.
#[test]
fn bytes_that_are_not_those_that_were_written_are_not_copied() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    (0..8).for_each(|slot| rig.write(slot, 7).unwrap());
    b.spoil(5);
    a.lose_all();
    rig.write(0, 7).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while a.slot(6) != [7; BLOCK] || a.slot(1) != [7; BLOCK] {
        assert!(Instant::now() < until);
        rig.turn();
    }
    assert!(!rig.is_in_sync() && a.slot(5) == [0xcc; BLOCK]);
    rig.write(5, 9).unwrap();
    rig.until_in_sync();
    assert!(a.slot(5) == [9; BLOCK] && b.slot(5) == [9; BLOCK]);
}

/// The only copy that is there was wrong once: it is read again.
#[test]
fn a_copy_that_was_wrong_once_is_read_again_while_there_is_no_other() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut rig) = Rig::of(&[&a, &b]) else { return };
    (0..4).for_each(|slot| rig.write(slot, 7).unwrap());
    a.go_away(true);
    b.spoil(2);
    assert!(rig.read(2, 7).is_err());
    // The bytes on the disk were right all the time.
    b.spoil(2);
    rig.read(2, 7).unwrap();
    a.go_away(false);
    rig.until_in_sync();
}

/// Slots that are given up while they are written back, in vain, are not behind.
#[test]
fn what_is_given_up_while_it_is_written_back_is_not_missed() {
    let (a, b) = (Disk::default(), Disk::default());
    let late = Delayed::new(a.clone(), 5_000_000..6_000_000, 1);
    let Some(mut rig) = Rig::new(vec![Box::new(late), Box::new(b.clone())]) else { return };
    (0..4).for_each(|slot| rig.write(slot, 7).unwrap());
    a.fail(true);
    rig.write(2, 8).unwrap();
    // What was read is written back, and fails after it is given up.
    rig.read(2, 8).unwrap();
    rig.mirror.forget(2..3);
    rig.write(3, 8).unwrap();
    a.fail(false);
    rig.until_in_sync();
    assert_eq!(a.slot(3), [8; BLOCK]);
}

/// Random numbers below what is asked for.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Writes, reads or gives up a slot at random. An error of the only copy that is there passes.
fn work(rig: &mut Rig, truth: &mut HashMap<u32, u8>, random: &mut impl FnMut(u64) -> u64, seed: u64) {
    let slot = random(200) as u32;
    match random(8) {
        0 => {
            truth.remove(&slot);
            rig.mirror.forget(slot..slot + 1);
        }
        1..4 => {
            let byte = random(256) as u8;
            let wrote = (0..20).find_map(|_| rig.write(slot, byte).ok());
            assert!(wrote.is_some(), "seed {seed}: slot {slot} cannot be written");
            truth.insert(slot, byte);
        }
        4..6 if truth.contains_key(&slot) => {
            let read = (0..20).find_map(|_| rig.read(slot, truth[&slot]).ok());
            assert!(read.is_some(), "seed {seed}: slot {slot} is lost");
        }
        _ => {}
    }
}

/// Random work, with servers that go away and come back with nothing, one at a time, against a
/// naive model. Whenever the mirror says that it is in sync, each copy has all that was written.
fn in_sync_is_true(seed: u64) -> Option<()> {
    let disks = [Disk::default(), Disk::default()];
    let bad = Faults { errors: 20_000, short: 10_000, flips: 20_000, ..Faults::default() };
    let copies = disks.iter().zip(0..).map(|(disk, index)| {
        let faults = if seed.is_multiple_of(3) { bad } else { Faults::default() };
        let inner = Faulty::new(disk.clone(), faults, seed * 2 + index);
        Box::new(Delayed::new(inner, 0..300_000, seed * 2 + index)) as Box<dyn Store>
    });
    let mut rig = Rig::new(copies.collect())?;
    let mut random = numbers(seed);
    let mut truth: HashMap<u32, u8> = HashMap::new();
    // The copy that is offline, and the rounds until it returns.
    let (mut away, mut claims): (Option<(usize, u64)>, u32) = (None, 0);
    let holds = |rig: &Rig, truth: &HashMap<u32, u8>| {
        let is_there =
            |(&slot, &byte): (&u32, &u8)| disks.iter().all(|disk| disk.slot(slot) == [byte; BLOCK]);
        assert!(!rig.is_in_sync() || truth.iter().all(is_there), "seed {seed}: it is not in sync");
        u32::from(rig.is_in_sync())
    };
    for _ in 0..300 {
        work(&mut rig, &mut truth, &mut random, seed);
        claims += holds(&rig, &truth);
        match &mut away {
            Some((index, 0)) => {
                if random(2) == 0 {
                    // What it did before has ended before.
                    rig.rest();
                    disks[*index].lose_all();
                }
                disks[*index].go_away(false);
                away = None;
                (0..20).find_map(|_| rig.write(200, 1).ok()).unwrap();
                // Before the next one goes all is to be whole.
                rig.until_in_sync();
                claims += holds(&rig, &truth);
            }
            Some((_, rounds)) => *rounds -= 1,
            None if rig.is_in_sync() && random(60) == 0 => {
                let index = random(2) as usize;
                disks[index].go_away(true);
                away = Some((index, random(30)));
            }
            None => {}
        }
    }
    assert!(claims > 0, "seed {seed}: it was in sync {claims} times");
    Some(())
}

#[test]
fn a_mirror_that_says_it_is_in_sync_is() {
    let first = std::env::var("TERAPAGE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in first..first + 24 {
        if in_sync_is_true(seed).is_none() {
            return;
        }
    }
}

/// A spare takes the place of a copy that is gone, or is to be emptied: it has all, and the copy
/// nothing.
#[test]
fn a_spare_takes_the_place_of_a_copy() {
    for drains in [false, true] {
        let disks = [Disk::default(), Disk::default(), Disk::default()];
        let [a, b, c] = disks.each_ref().map(|disk| Box::new(disk.clone()) as Box<dyn Store>);
        let spare = Spare { store: c, after: Duration::from_millis(50) };
        let mirror = Mirror::with_spares(vec![a, b], vec![spare], BLOCK).unwrap();
        let Some(mut rig) = Rig::with(mirror) else { return };
        (0..300).for_each(|slot| rig.write(slot, slot as u8).unwrap());
        assert_eq!(disks[2].slots(), 0, "a spare keeps nothing");
        disks[0].drains.store(drains, SeqCst);
        disks[0].go_away(!drains);
        let is_whole =
            |rig: &Rig| rig.is_in_sync() && disks[2].slots() > 0 && rig.mirror.redundancy().copies == 2;
        let until = Instant::now() + Duration::from_secs(60);
        while !is_whole(&rig) {
            assert!(Instant::now() < until, "{:?}", rig.mirror.redundancy());
            rig.write(300, 1).unwrap();
            rig.rest();
        }
        for disk in &disks[1..] {
            assert!((0..300).all(|slot| disk.slot(slot) == vec![slot as u8; BLOCK]));
        }
        disks[0].go_away(false);
        disks[1].go_away(true);
        rig.write(7, 77).unwrap();
        rig.read(7, 77).unwrap();
        assert_eq!((disks[0].slot(7), disks[2].slot(7)), (vec![7; BLOCK], vec![77; BLOCK]));
    }
}

/// Random work while stores are emptied, one after the other, some of which fail or are late: the
/// bytes move to the next one, and the program sees only its own.
fn moves(seed: u64) -> Option<()> {
    let disks = Arc::new(Mutex::new(Vec::<Disk>::new()));
    let faults = match seed % 3 {
        0 => Faults { errors: 20_000, short: 10_000, flips: 0, ..Faults::default() },
        _ => Faults::default(),
    };
    let open = {
        let disks = disks.clone();
        move || {
            let mut disks = disks.lock().unwrap();
            let disk = Disk::default();
            disks.push(disk.clone());
            let number = seed * 100 + disks.len() as u64;
            let late = Delayed::new(Faulty::new(disk, faults, number), 0..300_000, number);
            Box::new(late) as Box<dyn Store>
        }
    };
    let first = open();
    let mut rig = Rig::with(Mirror::alone(first, Box::new(move || Some(open())), BLOCK))?;
    let mut random = numbers(seed);
    let mut truth: HashMap<u32, u8> = HashMap::new();
    let mut moved = 0;
    for _ in 0..600 {
        work(&mut rig, &mut truth, &mut random, seed);
        let last = disks.lock().unwrap().last().unwrap().clone();
        if rig.is_in_sync() && random(30) == 0 {
            moved += 1;
            // What was left before is gone for good.
            let all = disks.lock().unwrap().clone();
            all[..all.len() - 1].iter().for_each(|disk| disk.lose_all());
            last.drains.store(true, SeqCst);
        } else if !rig.is_in_sync() && random(30) == 0 {
            rig.until_in_sync();
        }
    }
    assert!(moved > 2, "seed {seed}: it moved {moved} times");
    assert_eq!(rig.mirror.redundancy().copies, 0, "it is no mirror");
    Some(())
}

#[test]
fn what_is_emptied_moves_to_the_next_store() {
    let first = std::env::var("TERAPAGE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in first..first + 24 {
        if moves(seed).is_none() {
            return;
        }
    }
}

/// A child of a fork reads the copies that its parent had: they keep their bytes until it ends.
#[test]
fn a_store_that_a_child_reads_is_not_emptied() {
    let (a, b) = (Disk::default(), Disk::default());
    let mut next = Some(Box::new(b.clone()) as Box<dyn Store>);
    let mirror = Mirror::alone(Box::new(a.clone()), Box::new(move || next.take()), BLOCK);
    let Some(mut rig) = Rig::with(mirror) else { return };
    (0..20).for_each(|slot| rig.write(slot, 7).unwrap());
    rig.mirror.share(3).unwrap();
    a.drains.store(true, SeqCst);
    rig.write(0, 8).unwrap();
    rig.until_in_sync();
    // With this, the mirror finds that the first store has no part any more.
    rig.write(0, 9).unwrap();
    rig.write(1, 8).unwrap();
    assert_eq!((a.slot(1), b.slot(1)), (vec![7; BLOCK], vec![8; BLOCK]), "it has moved");
    assert!(!a.was_emptied.load(SeqCst));
    rig.mirror.unshare(3);
    rig.write(2, 8).unwrap();
    assert!(a.was_emptied.load(SeqCst));
}

/// A child does not write what a server has lost: it finds it there once its parent has written it.
/// When the parent has ended, it writes it itself.
#[test]
fn a_child_is_in_sync_again_by_its_parent_and_later_by_itself() {
    let (a, b) = (Disk::default(), Disk::default());
    let Some(mut child) = Rig::of(&[&a, &b]) else { return };
    (0..300).for_each(|slot| child.write(slot, slot as u8).unwrap());
    child.mirror.share(1).unwrap();
    child.mirror.inherit().unwrap();
    a.lose_all();
    // With this it hears of it.
    child.read(0, 0).unwrap();
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        child.rest();
    }
    assert!(!child.is_in_sync() && a.slot(7) == [0xcc; BLOCK], "the child writes");
    let written = b.bytes.lock().unwrap().clone();
    a.bytes.lock().unwrap().clone_from(&written);
    child.until_in_sync();
    b.lose_all();
    child.read(0, 0).unwrap();
    assert!(!child.is_in_sync());
    child.mirror.adopt();
    child.until_in_sync();
    assert!((0..300).all(|slot| b.slot(slot) == vec![slot as u8; BLOCK]));
}
