//! Drives a store: a ring, several operations at once, and a map of each slot's contents.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use terapage_store::{Below, BelowMut, EXTENT, Ended, Error, Failure, Op, OpKind, Store, StoreRing, Why};
use terapage_sys::memory;
use terapage_sys::ring::{Done, IoEngine, Piece, Ring};

pub const BLOCK: usize = 4096;

/// Memory that a test can inspect and change.
#[derive(Clone, Default)]
pub struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    operations: Arc<AtomicUsize>,
}

impl Disk {
    pub fn slot(&self, slot: u32) -> Vec<u8> {
        self.bytes.lock().unwrap()[slot as usize * BLOCK..][..BLOCK].to_vec()
    }

    /// The number of operations.
    pub fn operations(&self) -> usize {
        self.operations.load(SeqCst)
    }

    pub fn put(&self, slot: u32, bytes: &[u8]) {
        self.bytes.lock().unwrap()[slot as usize * BLOCK..][..BLOCK].copy_from_slice(bytes);
    }
}

impl Store for Disk {
    fn name(&self) -> String {
        "disk".to_owned()
    }

    fn slots(&self) -> u32 {
        (self.bytes.lock().unwrap().len() / BLOCK) as u32
    }

    fn grow(&mut self) -> Result<(), Error> {
        let mut bytes = self.bytes.lock().unwrap();
        let len = bytes.len() + EXTENT;
        bytes.resize(len, 0xcc);
        Ok(())
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

    unsafe fn begin(&mut self, _: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        self.operations.fetch_add(1, SeqCst);
        let (mut bytes, mut at) = (self.bytes.lock().unwrap(), op.slot as usize * BLOCK);
        for piece in op.pieces {
            // SAFETY: the store around it passes on memory that is kept valid until the completion.
            let memory = unsafe { memory::bytes(piece.at(), piece.len()) };
            let slots = &mut bytes[at..at + piece.len()];
            match op.kind {
                OpKind::Read => memory.copy_from_slice(slots),
                OpKind::Write => slots.copy_from_slice(memory),
            }
            at += piece.len();
        }
        ended.push(Ended::well(op.id));
    }

    fn event(&mut self, _: &mut StoreRing<'_>, _: Done, _: &mut Vec<Ended>) {}
}

/// The most slots of one operation, and the most operations at once.
pub const MOST: usize = 9;
const DEPTH: u32 = 12;

/// A store, with the pager's resources for it.
pub struct Rig<S> {
    pub store: S,
    ring: Ring,
    memory: usize,
    ended: Vec<Ended>,
    seed: u64,
    /// The number of repeated reads after wrong bytes, and the number of those that were still
    /// wrong.
    pub retries: u32,
    pub wrong_for_good: u32,
}

/// The contents of a slot: bytes that follow from a number, which also says how well they compress;
/// or, after a failed write, undefined bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Bytes(u64),
    Anything,
}

/// The failures that a store may have in [`Rig::against_a_map`].
#[derive(Clone, Copy, Default)]
pub struct Allowed {
    /// Operations may fail.
    pub failures: bool,
    /// Whether the store itself reports wrong bytes; otherwise the pager's hash must.
    pub flips: bool,
}

impl<S: Store> Rig<S> {
    /// `None` if there is no ring.
    pub fn new(store: S, seed: u64) -> Option<Rig<S>> {
        let ring = match Ring::with(IoEngine::of_tests(), 64, true) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("SKIPPED: no ring: {error}");
                return None;
            }
        };
        let memory = memory::reserve(DEPTH as usize * MOST * BLOCK).unwrap() as usize;
        let mut rig = Rig { store, ring, memory, ended: Vec::new(), seed, retries: 0, wrong_for_good: 0 };
        rig.store.grow().unwrap();
        rig.call(|store, ring, ended| store.open(ring, ended));
        Some(rig)
    }

    pub fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }

    fn call(&mut self, call: impl FnOnce(&mut S, &mut StoreRing<'_>, &mut Vec<Ended>)) {
        call(&mut self.store, &mut StoreRing::new(&mut self.ring, 0, 48), &mut self.ended);
    }

    pub fn bytes(&mut self, id: u32, slots: usize) -> &mut [u8] {
        // SAFETY: mapped in `new`, never freed, and used only by this rig and its operations, each
        // of which has a separate part.
        unsafe { memory::bytes(self.memory + id as usize * MOST * BLOCK, slots * BLOCK) }
    }

    /// Begins an operation, with the memory cut into pieces anywhere.
    pub fn begin(&mut self, id: u32, kind: OpKind, slots: Range<u32>) {
        let (mut at, mut left) = (self.memory + id as usize * MOST * BLOCK, slots.len() * BLOCK);
        let mut pieces = Vec::new();
        while left > 0 {
            let len = if self.random(2) == 0 { left } else { (self.random(3 * BLOCK) + 1).min(left) };
            pieces.push(Piece::new(at, len));
            (at, left) = (at + len, left - len);
        }
        // The test ends before the leak matters.
        let op = Op { id, kind, slot: slots.start, pieces: pieces.leak(), urgent: true };
        // SAFETY: the pieces are never freed, nor is their memory, which belongs to this operation.
        self.call(|store, ring, ended| unsafe { store.begin(ring, op, ended) });
    }

    /// Begins a write of an operation's same memory into its slots again and again.
    pub fn write_repeated(&mut self, id: u32, slots: Range<u32>) {
        let at = self.memory + id as usize * MOST * BLOCK;
        let pieces = vec![Piece::new(at, BLOCK); slots.len()].leak();
        let op = Op { id, kind: OpKind::Write, slot: slots.start, pieces, urgent: false };
        // SAFETY: as above.
        self.call(|store, ring, ended| unsafe { store.begin(ring, op, ended) });
    }

    /// Waits for the next end.
    pub fn next(&mut self) -> Ended {
        while self.ended.is_empty() {
            self.ring.enter(1).unwrap();
            while let Some(done) = self.ring.done() {
                self.call(|store, ring, ended| store.event(ring, done, ended));
            }
        }
        self.ended.remove(0)
    }

    pub fn judge(&mut self, id: u32, slots: Range<u32>, good: bool) {
        self.call(|store, ring, ended| store.judge(ring, id, slots, good, ended));
    }

    pub fn write(&mut self, slot: u32, bytes: &[u8]) -> Result<(), Failure> {
        self.bytes(0, 1).copy_from_slice(bytes);
        self.begin(0, OpKind::Write, slot..slot + 1);
        self.next().result
    }

    pub fn read(&mut self, slot: u32) -> Result<Vec<u8>, Failure> {
        self.bytes(0, 1).fill(0x5a);
        self.begin(0, OpKind::Read, slot..slot + 1);
        self.next().result.map(|()| self.bytes(0, 1).to_vec())
    }

    /// Random operations, several at once, on `slots` slots; all reads must agree with the map.
    pub fn against_a_map(&mut self, slots: u32, turns: usize, allowed: Allowed) {
        while self.store.slots() < slots {
            self.store.grow().unwrap();
        }
        let mut map: HashMap<u32, Holds> = HashMap::new();
        // The number of a write, or the count of repetitions of a read.
        let mut under_way: HashMap<u32, (OpKind, Range<u32>, u64)> = HashMap::new();
        let (mut number, mut well, mut failed) = (0, 0, 0);
        for turn in 0..turns {
            let free: Vec<u32> = (0..DEPTH).filter(|id| !under_way.contains_key(id)).collect();
            let last = turn + DEPTH as usize >= turns;
            if !free.is_empty() && self.random(3) > 0 && !last {
                let id = free[self.random(free.len())];
                let first = self.random(slots as usize) as u32;
                let end = (first + 1 + self.random(MOST) as u32).min(slots);
                let busy: HashSet<u32> = under_way.values().flat_map(|(_, slots, _)| slots.clone()).collect();
                let range = first..end;
                if range.clone().any(|slot| busy.contains(&slot)) {
                    continue;
                }
                match self.random(8) {
                    0 => {
                        map.retain(|slot, _| !range.contains(slot));
                        self.store.forget(range);
                    }
                    1..=4 => {
                        number += 1;
                        for (index, slot) in range.clone().enumerate() {
                            let bytes = content(number, slot);
                            self.bytes(id, MOST)[index * BLOCK..][..BLOCK].copy_from_slice(&bytes);
                        }
                        under_way.insert(id, (OpKind::Write, range.clone(), number));
                        self.begin(id, OpKind::Write, range);
                    }
                    _ if range.clone().all(|slot| matches!(map.get(&slot), Some(Holds::Bytes(_)))) => {
                        self.bytes(id, MOST).fill(0x5a);
                        under_way.insert(id, (OpKind::Read, range.clone(), 0));
                        self.begin(id, OpKind::Read, range);
                    }
                    _ => {}
                }
                continue;
            }
            if under_way.is_empty() {
                continue;
            }
            let end = self.next();
            let (kind, range, number) = under_way.remove(&end.id).expect("an operation under way");
            assert!(allowed.failures || end.result.is_ok(), "{kind:?} {range:?}: {:?}", end.result);
            let holds = if end.result.is_ok() { Holds::Bytes(number) } else { Holds::Anything };
            (well, failed) =
                (well + usize::from(end.result.is_ok()), failed + usize::from(end.result.is_err()));
            if kind == OpKind::Write {
                map.extend(range.map(|slot| (slot, holds)));
            } else if end.result.is_ok() {
                let mut good = true;
                for (index, slot) in range.clone().enumerate() {
                    let Some(Holds::Bytes(wrote)) = map.get(&slot) else { panic!("read, so written") };
                    let found = &self.bytes(end.id, MOST)[index * BLOCK..][..BLOCK];
                    good &= found == content(*wrote, slot);
                }
                assert!(good || allowed.flips, "slots {range:?} have other bytes than were written");
                self.judge(end.id, range.clone(), good);
                let tried = number as u32;
                if !good && tried < self.retries {
                    under_way.insert(end.id, (OpKind::Read, range.clone(), u64::from(tried) + 1));
                    self.begin(end.id, OpKind::Read, range);
                } else {
                    self.wrong_for_good += u32::from(!good);
                }
            } else {
                assert_ne!(end.result, Err(Failure::lasting(Why::Text("no copy".to_owned()))));
            }
        }
        println!("{well} operations ended well, {failed} failed");
        assert!(well > turns / 8, "too little was tried");
    }
}

/// The bytes of a slot for a number: zeros, text, or noise in part or in all.
pub fn content(number: u64, slot: u32) -> Vec<u8> {
    let mut state = number << 32 | u64::from(slot) | 1 << 63;
    let noise = match number % 4 {
        0 => 0,
        1 => BLOCK / 16,
        2 => BLOCK / 2,
        _ => BLOCK,
    };
    let mut bytes: Vec<u8> = format!("{number} in {slot}; ").bytes().cycle().take(BLOCK).collect();
    if number.is_multiple_of(8) {
        bytes.fill(0);
        bytes[..8].copy_from_slice(&state.to_le_bytes());
    }
    for byte in &mut bytes[..noise] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    bytes
}
