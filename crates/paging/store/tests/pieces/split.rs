//! Stores whose slots are split: the bytes stay, and each part is a slot of its own.

use crate::compressed::Counted;
use std::collections::HashMap;
use terapage_store::{
    Codec, Compressed, Delayed, EXTENT, Encrypted, Faults, Faulty, FileStore, Mirror, Op, OpKind, Packed,
    Placement, Ram, Store, StoreRing, Striped, Tier, Tiered,
};
use terapage_sys::memory;
use terapage_sys::ring::{IoEngine, Piece, Ring};

const BLOCK: usize = 16 << 10;
const MORE: usize = 4;
const PAGE: usize = BLOCK / MORE;

fn file() -> Box<dyn Store> {
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    Box::new(FileStore::open(place, BLOCK, None).unwrap())
}

fn ram(extents: usize) -> Box<dyn Store> {
    Box::new(Ram::new(BLOCK, extents * EXTENT))
}

fn compressed(unit: usize, codec: Codec) -> Box<dyn Store> {
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let inner = FileStore::open(place, unit, None).unwrap();
    Box::new(Compressed::new(inner, BLOCK, unit, codec).unwrap())
}

fn striped(stores: Vec<Box<dyn Store>>) -> Box<dyn Store> {
    Box::new(Striped::new(stores, Placement::RoundRobin, BLOCK, None).unwrap())
}

fn encrypted(store: Box<dyn Store>) -> Box<dyn Store> {
    Box::new(Encrypted::new(store, BLOCK).unwrap().splitting_to(PAGE))
}

fn mirror(one: Box<dyn Store>, other: Box<dyn Store>) -> Box<dyn Store> {
    Box::new(Mirror::new(vec![one, other], BLOCK).unwrap().splitting_to(PAGE))
}

fn tiered(first: Box<dyn Store>, second: Box<dyn Store>) -> Box<dyn Store> {
    let tier = |store| Tier { store, choosy: false };
    Box::new(Tiered::new(vec![tier(first), tier(second)], BLOCK).unwrap())
}

/// The stores that can split, by their names.
fn all() -> Vec<(&'static str, Box<dyn Store>)> {
    let flips = Faults { flips: 200_000, ..Faults::default() };
    vec![
        ("file", file()),
        ("encrypted", encrypted(file())),
        ("striped", striped(vec![file(), ram(1), file()])),
        ("tiered", tiered(ram(1), file())),
        ("mirror", mirror(ram(100), file())),
        ("delayed", Box::new(Delayed::new(file(), 0..50_000, 1))),
        ("encrypted mirror", encrypted(mirror(file(), ram(100)))),
        ("mirror of tiers", mirror(tiered(ram(1), ram(100)), tiered(ram(2), ram(100)))),
        ("encrypted stripes", encrypted(striped(vec![file(), file()]))),
        ("tiers of mirrors", tiered(mirror(ram(1), ram(1)), encrypted(file()))),
        ("compressed, in pages", compressed(PAGE, Codec::Lz4)),
        ("compressed, in parts of pages", compressed(PAGE / 4, Codec::Zstd(1))),
        ("compressed stripes", striped(vec![compressed(PAGE, Codec::Zstd(9)), file()])),
        ("mirror with a copy that flips bits", mirror(Box::new(Faulty::new(ram(100), flips, 1)), ram(100))),
    ]
}

struct Rig {
    store: Box<dyn Store>,
    ring: Ring,
    memory: usize,
    seed: u64,
    block: usize,
    /// The number that the bytes of each page follow from.
    pages: HashMap<u32, u64>,
    number: u64,
}

impl Rig {
    fn new(store: Box<dyn Store>) -> Option<Rig> {
        let ring = match Ring::with(IoEngine::of_tests(), 64, true) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("SKIPPED: no ring: {error}");
                return None;
            }
        };
        let memory = memory::reserve(8 * BLOCK).unwrap() as usize;
        let (pages, block, number) = (HashMap::new(), BLOCK, 0);
        let mut rig = Rig { store, ring, memory, seed: 1, block, pages, number };
        rig.store.open(&mut StoreRing::new(&mut rig.ring, 0, 48), &mut Vec::new());
        Some(rig)
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }

    fn memory(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: mapped in `new`, never freed, and used only by this rig and its one operation.
        unsafe { memory::bytes(self.memory, len) }
    }

    fn operate(&mut self, kind: OpKind, slot: u32, slots: usize) -> bool {
        let pieces = [Piece::new(self.memory, slots * self.block)];
        let (mut ended, mut ring) = (Vec::new(), &mut self.ring);
        let op = Op { id: 1, kind, slot, pieces: &pieces, urgent: true };
        // SAFETY: the array and the memory stay until the operation has ended, below.
        unsafe { self.store.begin(&mut StoreRing::new(ring, 0, 48), op, &mut ended) };
        while ended.is_empty() {
            ring.enter(1).unwrap();
            while let Some(done) = ring.done() {
                self.store.event(&mut StoreRing::new(ring, 0, 48), done, &mut ended);
            }
            ring = &mut self.ring;
        }
        ended.remove(0).result.is_ok()
    }

    /// One operation at a random place, of up to eight slots of one extent; reads agree with what
    /// was written.
    fn turn(&mut self, slots: u32) {
        let parts = (self.block / PAGE) as u32;
        let count = 1 + self.random(8 * BLOCK / self.block) as u32 % 8;
        let first = self.random((slots - count) as usize) as u32;
        let per_extent = (EXTENT / self.block) as u32;
        let end = (first + count).min((first / per_extent + 1) * per_extent);
        let (count, pages) = ((end - first) as usize, first * parts..end * parts);
        match self.random(10) {
            0 => {
                self.store.forget(first..end);
                self.pages.retain(|page, _| !pages.contains(page));
            }
            1..5 => {
                self.write(first, count);
            }
            _ if pages.clone().all(|page| self.pages.contains_key(&page)) => self.read(first, count),
            _ => {}
        }
    }

    /// Writes new bytes to slots.
    fn write(&mut self, first: u32, count: usize) {
        let parts = (self.block / PAGE) as u32;
        for (index, page) in (first * parts..(first + count as u32) * parts).enumerate() {
            self.number += 1;
            let bytes = content(self.number, page);
            self.memory((index + 1) * PAGE)[index * PAGE..].copy_from_slice(&bytes);
            self.pages.insert(page, self.number);
        }
        assert!(self.operate(OpKind::Write, first, count));
    }

    /// Reads slots, which have what was written there; a copy that is wrong is followed by another.
    fn read(&mut self, first: u32, count: usize) {
        let parts = (self.block / PAGE) as u32;
        for _ in 0..4 {
            assert!(self.operate(OpKind::Read, first, count), "slot {first}");
            let wanted =
                (first * parts..(first + count as u32) * parts).map(|page| (self.pages[&page], page));
            let wanted: Vec<u8> = wanted.flat_map(|(number, page)| content(number, page)).collect();
            let good = self.memory(wanted.len()) == &wanted[..];
            let slots = first..first + count as u32;
            let ring = &mut StoreRing::new(&mut self.ring, 0, 48);
            self.store.judge(ring, 1, slots, good, &mut Vec::new());
            if good {
                return;
            }
        }
        panic!("slots from {first} on, {count}, have other bytes than were written");
    }
}

/// Bytes of a page, of which up to the whole do not compress.
fn content(number: u64, page: u32) -> Vec<u8> {
    let mut seed = number << 20 ^ u64::from(page);
    let noise = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u8
    };
    let len = number as usize % 9 * PAGE / 8;
    let tag = number << 20 ^ u64::from(page);
    let mut bytes: Vec<u8> = (0..len).map(noise).collect();
    bytes.resize(PAGE, number as u8);
    bytes[PAGE - 8..].copy_from_slice(&tag.to_le_bytes());
    bytes
}

#[test]
fn what_was_written_before_is_read_in_parts() {
    const SLOTS: u32 = 700;
    for (name, store) in all() {
        println!("{name}");
        let Some(mut rig) = Rig::new(store) else { return };
        assert!(rig.store.may_split(MORE), "{name}");
        while rig.store.slots() < SLOTS {
            rig.store.grow().unwrap();
        }
        (0..1000).for_each(|_| rig.turn(SLOTS));
        // What a mirror does in the background comes to an end.
        while !rig.store.may_split(MORE) {
            rig.ring.enter(1).unwrap();
            while let Some(done) = rig.ring.done() {
                rig.store.event(&mut StoreRing::new(&mut rig.ring, 0, 48), done, &mut Vec::new());
            }
        }
        let before = rig.store.slots();
        rig.store.split(MORE);
        assert_eq!(rig.store.slots(), before * MORE as u32, "{name}");
        rig.block = PAGE;
        let mut pages: Vec<u32> = rig.pages.keys().copied().collect();
        pages.sort_unstable();
        assert!(pages.len() > 300, "{name}");
        pages.iter().for_each(|&page| rig.read(page, 1));
        (0..1500).for_each(|_| rig.turn(SLOTS * MORE as u32));
        rig.store.grow().unwrap();
        assert_eq!(rig.store.slots() % (EXTENT / PAGE) as u32, 0, "{name}");
        (0..1500).for_each(|turn| rig.turn((SLOTS + turn % 200) * MORE as u32));
    }
}

#[test]
fn a_page_is_read_from_a_compressed_store_by_as_many_bytes_as_from_a_plain_one() {
    const SLOTS: u32 = 128;
    let counted = Counted::of(PAGE, 100 * EXTENT);
    let store = Compressed::new(counted.clone(), BLOCK, PAGE, Codec::Lz4).unwrap();
    let Some(mut rig) = Rig::new(Box::new(store)) else { return };
    rig.store.grow().unwrap();
    for slot in 0..SLOTS {
        rig.write(slot, 1);
    }
    rig.store.split(MORE);
    rig.block = PAGE;
    let mut wanted_back = 0;
    for page in 0..SLOTS * MORE as u32 {
        counted.take();
        rig.read(page, 1);
        // What takes more is written again, and then takes no more.
        if rig.store.wants_back(page) {
            wanted_back += 1;
            rig.store.forget(page..page + 1);
            rig.write(page, 1);
            counted.take();
            rig.read(page, 1);
        }
        assert_eq!(counted.take().0, PAGE, "page {page}");
        assert!(!rig.store.wants_back(page), "page {page}");
    }
    assert!((50..450).contains(&wanted_back), "{wanted_back} pages of blocks that were read as a whole");
    // Pages that are written together share units.
    for page in (0..SLOTS * MORE as u32).step_by(8) {
        rig.write(page, 8);
    }
    let all = SLOTS as usize * BLOCK;
    counted.take();
    (0..SLOTS * MORE as u32).step_by(8).for_each(|page| rig.read(page, 8));
    let read = counted.take().0;
    assert!(read < all / 4 * 3, "{read} bytes of {all}");
}

#[test]
fn stores_that_compress_in_memory_or_in_a_given_room_say_no_from_the_start() {
    let packed = || Box::new(Packed::new(BLOCK, 4 << 20, false).unwrap()) as Box<dyn Store>;
    let fixed = || {
        let mut inner = Ram::new(PAGE, 8 * EXTENT);
        inner.grow().unwrap();
        Box::new(Compressed::new(inner, BLOCK, PAGE, Codec::Lz4).unwrap()) as Box<dyn Store>
    };
    // Of a block that is not compressed, no unit would have one page.
    let large_units = Ram::new(2 * PAGE, 8 * EXTENT);
    let no = [
        packed(),
        fixed(),
        Box::new(Compressed::new(large_units, BLOCK, 2 * PAGE, Codec::Lz4).unwrap()),
        tiered(packed(), file()),
        striped(vec![file(), fixed()]),
    ];
    assert!(no.iter().all(|store| !store.may_split(MORE)));
    // Nor can slots be split that nobody said would be.
    let whole = [
        Box::new(Encrypted::new(file(), BLOCK).unwrap()) as Box<dyn Store>,
        Box::new(Mirror::new(vec![file(), file()], BLOCK).unwrap()),
    ];
    assert!(whole.iter().all(|store| !store.may_split(MORE)));
}
