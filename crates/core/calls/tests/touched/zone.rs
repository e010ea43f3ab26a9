//! Two zones of memory with the same places: one that is paged if this process is, and one that
//! is not in guarded mode, as part of the program's file. A call gets the same bytes at the same
//! offsets in both.

use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;

use crate::world::Places;
use terapage_fuzz::Random;

const PAGE: usize = 4096;
/// Bytes for each piece of memory.
const SLOT: usize = 4 * PAGE;
/// One slot of this many ends at memory that is no good: closed memory, or memory that cannot be
/// written.
const EDGES: usize = 16;
/// Slots of a zone.
pub const SLOTS: usize = 2048;

/// The memory of a zone that is not paged.
#[repr(align(4096))]
struct Still(std::cell::UnsafeCell<[u8; SLOTS * SLOT]>);

// SAFETY: one thread at a time uses the memory, by its address.
unsafe impl Sync for Still {}

static STILL: Still = Still(std::cell::UnsafeCell::new([0; SLOTS * SLOT]));

/// A zone.
#[derive(Clone, Copy)]
pub struct Zone {
    base: usize,
}

impl Zone {
    /// A zone that may be paged.
    pub fn paged() -> Zone {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses new memory.
        let base = unsafe { libc::mmap(null_mut(), SLOTS * SLOT, rights, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Zone::at(base as usize)
    }

    /// The zone that is not, of which there is one.
    pub fn still() -> Zone {
        Zone::at(STILL.0.get() as usize)
    }

    fn at(base: usize) -> Zone {
        for slot in (EDGES - 1..SLOTS).step_by(EDGES) {
            let rights = if (slot / EDGES).is_multiple_of(2) { libc::PROT_NONE } else { libc::PROT_READ };
            let end = base + (slot + 1) * SLOT;
            // SAFETY: only addresses are made of memory of the zone.
            assert_eq!(unsafe { libc::mprotect((end - PAGE) as *mut _, PAGE, rights) }, 0);
        }
        Zone { base }
    }

    /// Makes all of it zeros.
    pub fn clear(&self) {
        // SAFETY: the memory is the zone's, whose bytes nobody needs between two runs of calls.
        let answer = unsafe { libc::madvise(self.base as *mut _, SLOTS * SLOT, libc::MADV_DONTNEED) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    }

    /// Reads a byte of each page, in any order, so that other pages leave.
    pub fn touch(&self, random: &mut Random, pages: usize) {
        for _ in 0..pages {
            let slot = random.below(SLOTS);
            let good = if slot % EDGES == EDGES - 1 { 3 } else { 4 };
            let at = self.base + slot * SLOT + random.below(good) * PAGE;
            // SAFETY: the page is the zone's, and can be read.
            unsafe { (at as *const u8).read_volatile() };
        }
    }
}

/// What is wrong with one piece of a call's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Its address is this one.
    At(usize),
    /// It ends after this many bytes.
    Short(usize),
}

/// Places in a zone for the pieces of one call.
pub struct InZone {
    zone: Zone,
    random: Random,
    /// The next slot.
    next: Rc<Cell<usize>>,
    /// The slot with a flaw.
    edge: usize,
    /// The piece with a flaw.
    flaw: Option<(usize, Flaw)>,
}

impl InZone {
    /// Places from this slot on. The seed gives the offsets.
    pub fn new(
        zone: Zone,
        next: &Rc<Cell<usize>>,
        edge: usize,
        seed: u64,
        flaw: Option<(usize, Flaw)>,
    ) -> InZone {
        InZone { zone, random: Random::from_seed(!seed), next: Rc::clone(next), edge, flaw }
    }

    fn fill(start: usize, limit: usize, bytes: &[u8]) {
        let fits = bytes.len().min(limit - start);
        // SAFETY: the slot is this call's, and can be written up to the limit.
        unsafe { (start as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), fits) };
    }
}

impl Places for InZone {
    fn place(&mut self, piece: usize, bytes: &[u8], step: usize) -> (usize, usize) {
        match self.flaw.filter(|&(index, _)| index == piece) {
            Some((_, Flaw::At(at))) => return (at, at),
            Some((_, Flaw::Short(len))) => {
                let slot = self.zone.base + (self.edge * EDGES + EDGES - 1) * SLOT;
                let limit = slot + SLOT - PAGE;
                let start = (limit - len) / step * step;
                InZone::fill(start, limit, bytes);
                return (start, limit);
            }
            None => {}
        }
        let next = self.next.get();
        assert!(next < SLOTS, "too many pieces");
        self.next.set(next + if next % EDGES == EDGES - 2 { 2 } else { 1 });
        let slot = self.zone.base + next * SLOT;
        let start = (slot + 16 + self.random.below(PAGE)).next_multiple_of(step);
        // A page that is not all zeros is stored.
        let mark = if start % PAGE < size_of::<u64>() { slot } else { start / PAGE * PAGE };
        // SAFETY: the slot is this call's, and this part of it is not the piece's.
        unsafe { (mark as *mut u64).write(self.random.number()) };
        InZone::fill(start, slot + SLOT, bytes);
        (start, slot + SLOT)
    }
}

/// How many slots with flaws a zone has.
pub const FLAWED: usize = SLOTS / EDGES;
