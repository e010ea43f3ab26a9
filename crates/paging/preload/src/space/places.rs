//! Places that a program names for its mappings without insisting on them (the first argument of
//! `mmap`, without MAP_FIXED), and whether it insists after all: some programs unmap memory at
//! other places, and try the next place.

use crate::elf::each_segment;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A program that returns this many mappings, unused, one after another, because they are not at
/// the places that it named, gets its places. Java tries some twenty places for a heap, and in the
/// end accepts any place; Java with ZGC tries thousands, and then fails.
const SPURNED_MOST: usize = 64;

/// A jump or a call reaches this many bytes in both directions.
const REACH: usize = 1 << 31;

/// The most bytes of one writable mapping for code: a compiler asks for little at a time.
const WRITABLE_MOST: usize = 16 << 20;

/// The most bytes of all mappings near code that the kernel serves. Mappings beyond that are data.
const ALL_MOST: usize = 4 << 30;
/// The same, of mappings that could be written to from the beginning.
const ALL_WRITABLE_MOST: usize = 256 << 20;

/// Bytes of private, writable mappings of files. Pages that are written become the program's own.
static COPIED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of private, writable mappings of files that were not unmapped.
pub fn copied_bytes() -> usize {
    COPIED.load(Relaxed)
}

/// Bytes of mappings that only read a file, and that could be paged but are left to the kernel.
static READ: AtomicUsize = AtomicUsize::new(0);

/// Bytes of mappings that only read a file, are left to the kernel, and were not unmapped.
pub fn read_bytes() -> usize {
    READ.load(Relaxed)
}

/// Bytes of the kernel's mappings at places that the program named. They are kept outside the
/// arena's lock, for threads that must not wait for it.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that the kernel mapped at places that the program named, and that were not unmapped.
pub fn bytes() -> usize {
    BYTES.load(Relaxed)
}

/// Whether a place is near code: a jump can reach all of it from somewhere in the program or a
/// library. A compiler that names such a place needs the memory there.
pub fn is_near_code(at: usize, len: usize) -> bool {
    let mut found = false;
    each_segment(|segment| {
        let (from, to) = (segment.range.start.saturating_sub(REACH), segment.range.end + REACH);
        found |= segment.is_code && at >= from && at + len <= to;
    });
    found
}

/// How a program treats mappings that are not at the places that it named.
pub struct Insistence {
    /// The last such mapping: from, to.
    offered: Option<(usize, usize)>,
    /// The number of such mappings that the program returned unused, one after another.
    spurned: usize,
    /// Whether it returned so many that it now gets the places that it names, from the kernel.
    insists: bool,
}

impl Insistence {
    pub const fn new() -> Self {
        Insistence { offered: None, spurned: 0, insists: false }
    }

    /// Whether the program gets its mappings at the places that it names.
    pub fn insists(&self) -> bool {
        // Go names many places, and in the end accepts any.
        self.insists && !crate::hosted::is_host()
    }

    /// Notes a mapping that was served. `named` says that the program had named another place.
    pub fn offer(&mut self, at: usize, to: usize, named: bool) {
        // The program uses the previous mapping, or accepts any place.
        if self.offered.is_some() || !named {
            self.spurned = 0;
        }
        self.offered = named.then_some((at, to));
    }

    /// Whether to refuse the program a free place that it names, because it has not tried often.
    pub fn declines(&mut self) -> bool {
        self.spurned += 1;
        self.insists |= self.spurned >= SPURNED_MOST;
        !self.insists
    }

    /// Notes that the program unmaps a range. If it had named another place for this range, and did
    /// not use it (`is_unused`), it insists on its places: after many such ranges, because programs
    /// also return them for their alignment, or at once.
    pub fn is_unmapped(&mut self, (at, to): (usize, usize), at_once: bool, is_unused: impl FnOnce() -> bool) {
        if self.offered == Some((at, to)) {
            self.offered = None;
            if is_unused() {
                self.spurned += 1;
                self.insists |= at_once || self.spurned >= SPURNED_MOST;
            }
        }
    }
}

/// Mappings of the kernel's: at places that the program named, or private ones of files.
pub struct Places {
    /// For each mapping, by its start: its end, and whether it was writable from the beginning.
    all: BTreeMap<usize, (usize, bool)>,
    /// Their bytes.
    bytes: &'static AtomicUsize,
}

impl Places {
    /// At places that the program named.
    pub const fn named() -> Self {
        Places { all: BTreeMap::new(), bytes: &BYTES }
    }

    /// Of files.
    pub const fn of_files() -> Self {
        Places { all: BTreeMap::new(), bytes: &COPIED }
    }

    /// The mappings whose bytes [`read_bytes`] counts.
    pub const fn of_read_files() -> Self {
        Places { all: BTreeMap::new(), bytes: &READ }
    }

    /// Whether the kernel may serve `len` more bytes near code.
    pub fn have_room(&self, len: usize, writable: bool) -> bool {
        let mappings = self.all.iter().map(|(from, &(to, is))| (to - from, is));
        let (some, all) = mappings
            .fold((0, 0), |(some, all), (bytes, is)| (if is { some + bytes } else { some }, all + bytes));
        let is_small = len <= WRITABLE_MOST && some + len <= ALL_WRITABLE_MOST;
        len <= ALL_MOST && all + len <= ALL_MOST && (is_small || !writable)
    }

    /// Notes a mapping of the kernel's.
    pub fn add(&mut self, at: usize, to: usize, writable: bool) {
        self.remove(at, to);
        self.all.insert(at, (to, writable));
        self.bytes.fetch_add(to - at, Relaxed);
    }

    /// Notes that the program unmaps a range.
    pub fn remove(&mut self, at: usize, to: usize) {
        let touching: Vec<_> =
            self.all.range(..to).filter(|&(_, &(end, _))| end > at).map(|(&from, &it)| (from, it)).collect();
        for (from, (end, writable)) in touching {
            self.all.remove(&from);
            self.bytes.fetch_sub(end.min(to) - from.max(at), Relaxed);
            if from < at {
                self.all.insert(from, (at, writable));
            }
            if end > to {
                self.all.insert(to, (end, writable));
            }
        }
    }
}

/// The alignment of a named place, up to the length of the mapping: the program may want only that.
pub fn alignment(place: usize, len: usize) -> usize {
    let most = 1 << (usize::BITS - 1 - len.leading_zeros());
    if place == 0 { 1 } else { (1 << place.trailing_zeros()).min(most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_gives_back_each_mapping_insists() {
        let mut program = Insistence::new();
        for round in 1..=SPURNED_MOST {
            assert!(!program.insists(), "{round}");
            program.offer(0, 4096, true);
            program.is_unmapped((0, 4096), false, || true);
        }
        assert!(program.insists());
    }

    #[test]
    fn a_program_that_uses_what_it_gets_does_not_insist() {
        let mut program = Insistence::new();
        for _ in 0..3 * SPURNED_MOST {
            program.offer(0, 4096, true);
            program.is_unmapped((0, 4096), true, || false);
            program.offer(0, 8192, true);
            // The program returns a part, for the alignment.
            program.is_unmapped((0, 4096), true, || true);
        }
        assert!(!program.insists());
    }

    #[test]
    fn code_of_this_program_is_near_and_all_memory_is_not() {
        let here = is_near_code as *const () as usize;
        assert!(is_near_code(here + REACH / 2, 4096) && is_near_code(here - REACH / 2, 4096));
        assert!(!is_near_code(1 << 40, 4096) && !is_near_code(here, 3 * REACH));
    }

    #[test]
    fn mappings_at_named_places_are_counted() {
        let mut places = Places::named();
        places.add(0x10_0000, 0x20_0000, true);
        assert!(places.have_room(WRITABLE_MOST, true) && !places.have_room(WRITABLE_MOST + 1, true));
        assert!(places.have_room(1 << 30, false) && !places.have_room(4 << 30, false));
        places.remove(0x18_0000, 0x19_0000);
        assert_eq!(bytes(), 0xf_0000);
        places.remove(0, 1 << 40);
        assert_eq!(bytes(), 0);
    }

    #[test]
    fn a_place_is_aligned_up_to_the_length() {
        assert_eq!(alignment(0x1234_0000, 1 << 30), 0x4_0000);
        assert_eq!(alignment(0x1000_0000, 508 << 10), 256 << 10);
        assert_eq!(alignment(0, 1 << 20), 1);
    }
}
