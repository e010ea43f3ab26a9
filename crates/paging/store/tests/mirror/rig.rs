//! Disks that fail, are away and forget, and a mirror of them as the engine has one.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terapage_store::{
    Below, BelowMut, EXTENT, Ended, Error, Failure, Mirror, Op, OpKind, Presence, Store, StoreRing, Why,
};
use terapage_sys::memory;
use terapage_sys::ring::{Done, IoEngine, Piece, Ring};

pub const BLOCK: usize = 4096;
pub const EIO: i32 = 5;

/// Memory that a test can inspect, corrupt, and make fail.
#[derive(Clone, Default)]
pub struct Disk {
    pub bytes: Arc<Mutex<Vec<u8>>>,
    pub fails: Arc<AtomicBool>,
    /// Its server is to be emptied.
    pub drains: Arc<AtomicBool>,
    /// Its server does not answer.
    pub is_away: Arc<AtomicBool>,
    /// It has given up all that it keeps.
    pub was_emptied: Arc<AtomicBool>,
    /// What it has lost, and has not told yet.
    pub lost: Arc<Mutex<Vec<Range<u32>>>>,
}

impl Disk {
    pub fn slot(&self, slot: u32) -> Vec<u8> {
        self.bytes.lock().unwrap()[slot as usize * BLOCK..][..BLOCK].to_vec()
    }

    pub fn spoil(&self, slot: u32) {
        self.bytes.lock().unwrap()[slot as usize * BLOCK + 7] ^= 4;
    }

    pub fn fail(&self, on: bool) {
        self.fails.store(on, SeqCst);
    }

    pub fn go_away(&self, on: bool) {
        self.is_away.store(on, SeqCst);
    }

    /// Its server is started again, with nothing.
    pub fn lose_all(&self) {
        self.bytes.lock().unwrap().fill(0xcc);
        self.lost.lock().unwrap().push(0..self.slots());
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
        if self.is_away.load(SeqCst) {
            return ended.push(Ended::badly(op.id, Failure::passing(Why::Text("it is away".to_owned()))));
        }
        if self.fails.load(SeqCst) {
            return ended.push(Ended::badly(op.id, Failure::lasting(Why::Errno(EIO))));
        }
        let (mut bytes, mut at) = (self.bytes.lock().unwrap(), op.slot as usize * BLOCK);
        for piece in op.pieces {
            // SAFETY: the mirror passes on memory that its caller keeps valid until the completion.
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

    fn forget(&mut self, slots: Range<u32>) {
        self.was_emptied.fetch_or(slots == (0..self.slots()), SeqCst);
    }

    fn presence(&self) -> Presence<'_> {
        let (answers, drains) = (!self.is_away.load(SeqCst), self.drains.load(SeqCst));
        Presence { answers, drains, ..Presence::default() }
    }

    fn take_lost(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        self.lost.lock().unwrap().drain(..).for_each(tell);
    }
}

/// A mirror, with the engine's resources: a ring, and memory for each operation.
pub struct Rig {
    pub mirror: Mirror,
    pub ring: Ring,
    pub memory: usize,
    pub ended: Vec<Ended>,
}

/// The most slots of one operation.
pub const MOST: usize = 4;
/// Operations at once.
pub const DEPTH: u32 = 6;

impl Rig {
    pub fn new(copies: Vec<Box<dyn Store>>) -> Option<Rig> {
        Rig::with(Mirror::new(copies, BLOCK).unwrap())
    }

    pub fn with(mut mirror: Mirror) -> Option<Rig> {
        let ring = match Ring::with(IoEngine::of_tests(), 64, true) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("SKIPPED: no ring: {error}");
                return None;
            }
        };
        let memory = memory::reserve(DEPTH as usize * MOST * BLOCK).unwrap() as usize;
        mirror.grow().unwrap();
        Some(Rig { mirror, ring, memory, ended: Vec::new() })
    }

    pub fn of(disks: &[&Disk]) -> Option<Rig> {
        Rig::new(disks.iter().map(|disk| Box::new((*disk).clone()) as Box<dyn Store>).collect())
    }

    pub fn bytes(&mut self, id: u32, slots: usize) -> &mut [u8] {
        // SAFETY: mapped in `new`, never freed, and used only by this rig and its operations, each
        // of which has a separate part.
        unsafe { memory::bytes(self.memory + id as usize * MOST * BLOCK, slots * BLOCK) }
    }

    pub fn begin(&mut self, id: u32, kind: OpKind, slots: Range<u32>) {
        let at = self.memory + id as usize * MOST * BLOCK;
        // In two pieces, so that there is something to divide. The test ends before the leak
        // matters.
        let pieces: &[Piece] = match slots.len() {
            1 => vec![Piece::new(at, BLOCK)],
            more => vec![Piece::new(at, BLOCK), Piece::new(at + BLOCK, (more - 1) * BLOCK)],
        }
        .leak();
        let op = Op { id, kind, slot: slots.start, pieces, urgent: true };
        // SAFETY: the pieces are never freed, nor is their memory, which belongs to this operation.
        unsafe { self.mirror.begin(&mut StoreRing::new(&mut self.ring, 0, 48), op, &mut self.ended) };
    }

    /// Waits for the next end.
    pub fn next(&mut self) -> Ended {
        while self.ended.is_empty() {
            self.turn();
        }
        self.ended.remove(0)
    }

    /// Waits for something in the ring.
    pub fn turn(&mut self) {
        self.ring.enter(1).unwrap();
        while let Some(done) = self.ring.done() {
            self.mirror.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut self.ended);
        }
    }

    /// Handles what ends within a moment.
    pub fn rest(&mut self) {
        let until = Instant::now() + Duration::from_millis(2);
        loop {
            // Once more when the time is over: this thread may have slept for all of it.
            let is_over = Instant::now() >= until;
            self.ring.enter(0).unwrap();
            while let Some(done) = self.ring.done() {
                self.mirror.event(&mut StoreRing::new(&mut self.ring, 0, 48), done, &mut self.ended);
            }
            if is_over {
                return;
            }
        }
    }

    pub fn is_in_sync(&self) -> bool {
        let now = self.mirror.redundancy();
        now.missing == 0 && now.behind == 0
    }

    /// Waits until no copy lacks anything.
    pub fn until_in_sync(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        while !self.is_in_sync() {
            assert!(Instant::now() < until, "{:?}", self.mirror.redundancy());
            self.turn();
        }
        assert_eq!(self.mirror.condition(), None);
    }

    pub fn judge(&mut self, id: u32, slots: Range<u32>, good: bool) {
        self.mirror.judge(&mut StoreRing::new(&mut self.ring, 0, 48), id, slots, good, &mut self.ended);
    }

    pub fn write(&mut self, slot: u32, byte: u8) -> Result<(), Failure> {
        self.bytes(0, 1).fill(byte);
        self.begin(0, OpKind::Write, slot..slot + 1);
        self.next().result
    }

    /// Reads a slot as the engine does: repeats the read if its bytes differ from `byte`.
    pub fn read(&mut self, slot: u32, byte: u8) -> Result<(), Failure> {
        for _ in 0..4 {
            self.bytes(0, 1).fill(0xdd);
            self.begin(0, OpKind::Read, slot..slot + 1);
            self.next().result?;
            let good = self.bytes(0, 1).iter().all(|&read| read == byte);
            self.judge(0, slot..slot + 1, good);
            if good {
                return Ok(());
            }
        }
        Err(Failure::lasting(Why::Wrong))
    }
}
