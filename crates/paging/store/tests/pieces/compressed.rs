//! Fewer bytes leave, in few operations, and reads return the written bytes.

use crate::rig::{Allowed, BLOCK, MOST, Rig, content};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use terapage_config::Codec;
use terapage_store::{
    Below, BelowMut, Compressed, Delayed, EXTENT, Encrypted, Ended, Error, Faults, Faulty, Mirror, Op, Ram,
    Store, StoreRing,
};
use terapage_sys::ring::Done;

const UNIT: usize = 1024;

/// Memory with slots of a unit, whose bytes and operations are counted.
#[derive(Clone)]
pub struct Counted {
    unit: usize,
    ram: Arc<Mutex<Ram>>,
    bytes: Arc<AtomicUsize>,
    operations: Arc<AtomicUsize>,
}

impl Counted {
    fn new(limit: usize) -> Counted {
        Counted::of(UNIT, limit)
    }

    pub fn of(unit: usize, limit: usize) -> Counted {
        let ram = Arc::new(Mutex::new(Ram::new(unit, limit)));
        Counted { unit, ram, bytes: Arc::default(), operations: Arc::default() }
    }

    /// The bytes and operations since the last call.
    pub fn take(&self) -> (usize, usize) {
        (self.bytes.swap(0, SeqCst), self.operations.swap(0, SeqCst))
    }
}

impl Store for Counted {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn slots(&self) -> u32 {
        self.ram.lock().unwrap().slots()
    }

    fn grow(&mut self) -> Result<(), Error> {
        self.ram.lock().unwrap().grow()
    }

    fn joins(&self, slot: u32) -> bool {
        slot > 0 && slot < self.slots()
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn may_split(&self, _more: usize) -> bool {
        false
    }

    fn split(&mut self, _more: usize) {
        unreachable!("its slots cannot be split");
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        assert!(op.bytes() > 0 && op.bytes() <= EXTENT && op.bytes().is_multiple_of(self.unit));
        let per_extent = (EXTENT / self.unit) as u32;
        let last = op.slot + (op.bytes() / self.unit) as u32 - 1;
        assert_eq!(op.slot / per_extent, last / per_extent, "across an extent's edge");
        self.bytes.fetch_add(op.bytes(), SeqCst);
        self.operations.fetch_add(1, SeqCst);
        // SAFETY: the promise is passed on.
        unsafe { self.ram.lock().unwrap().begin(ring, op, ended) };
    }

    fn event(&mut self, _: &mut StoreRing<'_>, _: Done, _: &mut Vec<Ended>) {}
}

fn compressed<S: Store>(inner: S, codec: Codec, seed: u64) -> Option<Rig<Compressed<S>>> {
    Rig::new(Compressed::new(inner, BLOCK, UNIT, codec).unwrap(), seed)
}

#[test]
fn what_was_written_is_read() {
    for seed in 0..8 {
        println!("seed {seed}");
        let codec = [Codec::Lz4, Codec::Zstd(1), Codec::Zstd(9)][seed as usize % 3];
        let inner = Delayed::new(Counted::new(1 << 30), 0..40_000, seed);
        let Some(mut rig) = compressed(inner, codec, seed) else { return };
        rig.against_a_map(700, 2000, Allowed::default());
        rig.store.forget(0..700);
        assert_eq!(rig.store.used_bytes(), 0, "units that nobody has");
    }
}

#[test]
fn errors_and_flipped_bits_are_failures_or_found_by_the_hash() {
    let faults = Faults { errors: 30_000, short: 30_000, flips: 100_000, ..Faults::default() };
    for seed in 0..8 {
        println!("seed {seed}");
        let inner = Faulty::new(Delayed::new(Counted::new(1 << 30), 0..40_000, seed), faults, seed);
        let Some(mut rig) = compressed(inner, Codec::Lz4, seed) else { return };
        rig.against_a_map(700, 2000, Allowed { failures: true, flips: true });
        rig.store.forget(0..700);
        assert_eq!(rig.store.used_bytes(), 0, "units that nobody has");
    }
}

/// Whatever is wrong with one copy, reads finally come from the other.
#[test]
fn one_good_copy_of_a_mirror_inside_is_enough() {
    let faults = Faults { errors: 50_000, short: 30_000, flips: 300_000, ..Faults::default() };
    for seed in 0..4 {
        println!("seed {seed}");
        let bad = Faulty::new(Counted::new(1 << 30), faults, seed);
        // The bad copy is the faster one, and is read first.
        let good = Delayed::new(Counted::new(1 << 30), 200_000..400_000, seed);
        let copies: Vec<Box<dyn Store>> = vec![Box::new(bad), Box::new(good)];
        let mirror = Mirror::new(copies, UNIT).unwrap();
        let Some(mut rig) = compressed(mirror, Codec::Lz4, seed) else { return };
        let mut again = 0;
        for turn in 0..600 {
            let slot = rig.random(100) as u32;
            let wanted = content(turn, slot);
            rig.write(slot, &wanted).unwrap();
            let good = (0..4).any(|_| {
                let read = rig.read(slot);
                let good = read.as_ref().is_ok_and(|bytes| *bytes == wanted);
                if read.is_ok() {
                    rig.judge(0, slot..slot + 1, good);
                }
                again += u32::from(!good);
                good
            });
            assert!(good, "slot {slot} of turn {turn}");
        }
        assert!(again > 0, "nothing went wrong");
    }
}

#[test]
fn it_stacks_on_ciphertext() {
    let inner = Encrypted::new(Counted::new(1 << 30), UNIT).unwrap();
    let Some(mut rig) = compressed(inner, Codec::Zstd(3), 5) else { return };
    rig.against_a_map(700, 1000, Allowed::default());
}

#[test]
fn blocks_that_are_written_together_lie_together_and_take_fewer_bytes() {
    let counted = Counted::new(1 << 30);
    let Some(mut rig) = compressed(counted.clone(), Codec::Lz4, 1) else { return };
    rig.bytes(0, MOST).fill(7);
    rig.begin(0, terapage_store::OpKind::Write, 0..MOST as u32);
    rig.next().result.unwrap();
    assert_eq!(counted.take(), (MOST * UNIT, 1), "a unit each, in one operation");
    rig.bytes(0, MOST).fill(0);
    rig.begin(0, terapage_store::OpKind::Read, 0..MOST as u32);
    rig.next().result.unwrap();
    assert_eq!(counted.take(), (MOST * UNIT, 1));
    assert!(rig.bytes(0, MOST).iter().all(|&byte| byte == 7));
}

/// A block that does not compress goes unchanged, from its place in memory.
#[test]
fn noise_passes_by() {
    let counted = Counted::new(1 << 30);
    let Some(mut rig) = compressed(counted.clone(), Codec::Lz4, 1) else { return };
    let noise: Vec<u8> = (0..BLOCK).map(|_| rig.random(256) as u8).collect();
    rig.write(3, &noise).unwrap();
    assert_eq!(counted.take(), (BLOCK, 1));
    assert_eq!(rig.read(3).unwrap(), noise);
    assert_eq!(counted.take(), (BLOCK, 1));
}

/// Blocks that take two units leave holes of two, and blocks that take four fill those.
#[test]
fn a_store_that_cannot_grow_is_used_up_to_its_last_unit() {
    let counted = Counted::new(2 * EXTENT);
    let Some(mut rig) = compressed(counted, Codec::Lz4, 1) else { return };
    let noise: Vec<u8> = (0..BLOCK).map(|_| rig.random(256) as u8).collect();
    let mut half = noise.clone();
    half[BLOCK / 3..].fill(0);
    let all = (2 * EXTENT / (2 * UNIT)) as u32;
    while rig.store.slots() < all + 1 {
        if rig.store.grow().is_err() {
            break;
        }
    }
    for slot in 0..all {
        rig.write(slot, &half).unwrap();
    }
    assert_eq!(rig.store.used_bytes(), 2 * EXTENT as u64);
    let why = rig.write(0, &noise).unwrap_err().why.to_string();
    assert!(why.contains("full"), "{why}");
    (0..all).step_by(2).for_each(|slot| rig.store.forget(slot..slot + 1));
    for slot in (0..all).step_by(4) {
        rig.write(slot, &noise).unwrap();
    }
    assert_eq!(rig.store.used_bytes(), 2 * EXTENT as u64);
    for slot in 0..all {
        match slot % 4 {
            0 => assert_eq!(rig.read(slot).unwrap(), noise),
            2 => assert!(rig.read(slot).is_err(), "nothing was written there"),
            _ => assert_eq!(rig.read(slot).unwrap(), half),
        }
    }
}

#[test]
fn a_child_reads_its_parents_blocks_and_writes_none() {
    let counted = Counted::new(1 << 30);
    let Some(mut rig) = compressed(counted, Codec::Zstd(1), 1) else { return };
    rig.write(5, &content(1, 5)).unwrap();
    rig.store.inherit().unwrap();
    assert_eq!(rig.read(5).unwrap(), content(1, 5));
    assert!(rig.write(6, &content(2, 6)).is_err());
}

#[test]
fn small_blocks_are_refused_in_one_line() {
    let why = Compressed::new(Counted::new(1 << 30), UNIT, UNIT, Codec::Lz4).err().unwrap().to_string();
    assert!(why.contains("--block") && !why.contains('\n'), "{why}");
}
