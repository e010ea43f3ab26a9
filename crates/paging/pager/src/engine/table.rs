//! The table of blocks: their states, their slots and places, and the paged addresses.

use super::files::UNKNOWN;
use super::usage::Usage;
use crate::carry::hash::{PARTS, Parts};
use crate::spans::Spans;
use terapage_stats::RegionTable;
use terapage_sys::{PAGE_LEAST, memory, page_bytes};

/// The state of a block. `ARCHITECTURE.md` draws the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// All zero, no frame, no slot.
    Zero = 0,
    /// The block's frame is in the program's address space.
    Mapped,
    /// The block's frame is in the pool; the store has the same bytes, or they are all zero.
    Soft,
    /// The block's frame is in the pool only so that its touch is seen. Its bytes may be newer than
    /// the store's.
    Watched,
    /// The block's frame is in the pool and is being written to the store.
    Writing,
    /// The block is being read from the store into a frame in the pool.
    Reading,
    /// Only the store has the block's bytes.
    Stored,
    /// The block is no longer paged: the program protected, locked or mapped over it. A block's
    /// entry never has this state; [`Table::loose`] notes it.
    Loose,
}

impl State {
    /// Whether a block may change from this state to another: the arrows of `ARCHITECTURE.md`.
    fn may_become(self, to: State) -> bool {
        match self {
            // All blocks of a range that is discarded become Zero.
            State::Zero => matches!(to, State::Zero | State::Mapped | State::Stored),
            State::Mapped => matches!(to, State::Watched | State::Soft | State::Writing | State::Zero),
            State::Soft => matches!(to, State::Mapped | State::Stored | State::Zero),
            State::Watched => matches!(to, State::Mapped | State::Soft | State::Writing | State::Zero),
            State::Writing => matches!(to, State::Soft | State::Mapped),
            State::Reading => matches!(to, State::Mapped | State::Watched | State::Soft | State::Stored),
            State::Stored => matches!(to, State::Reading | State::Zero),
            State::Loose => false,
        }
    }
}

const STATES: usize = State::Loose as usize + 1;

/// A thread waits for the block.
pub(crate) const WANTED: u8 = 1;
/// The block is the first of a prefetched run, and stays out of the program: its first touch tells
/// how far the program is.
pub(crate) const MARKER: u8 = 2;
/// The block is a sample of a prefetched run, and stays out of the program: whether it is touched
/// tells how much of the blocks read ahead is used.
pub(crate) const SAMPLE: u8 = 4;
/// The block is the first of a run that was read in the order of the last run, and stays out of the
/// program until it is touched.
pub(crate) const LEARNT: u8 = 8;

/// The block was read together with a neighbour for which a thread waited. No thread has touched it
/// since, and the policy does not count it as in memory.
pub(crate) const COMPANION: u8 = 16;

/// The data about a block. An entry of zero bytes is a block that was never touched.
#[repr(C)]
pub(crate) struct Entry {
    /// The hash of the bytes in the slot.
    pub hash: u128,
    /// One more than the slot's number; 0 for no slot.
    slot: u32,
    /// The place in the pool with the frame, in states whose frame is in the pool.
    pub place: u32,
    /// The number of times that the block entered the soft list, so that old items of the list are
    /// recognised.
    pub stamp: u32,
    /// The store of the slot: the process's own, or one inherited at a fork.
    pub origin: u8,
    pub state: State,
    pub flags: u8,
    /// Only the lower half of the hash is known: the block is a page of a split block, and has not
    /// been read since.
    pub half: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

impl Entry {
    pub fn slot(&self) -> Option<u32> {
        self.slot.checked_sub(1)
    }

    pub fn set_slot(&mut self, slot: Option<u32>) {
        self.slot = slot.map_or(0, |slot| slot + 1);
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// One range of paged addresses.
pub(crate) struct Region {
    /// Its first address, aligned to the block.
    pub start: usize,
    /// The number of its first block.
    pub first: u32,
    /// Blocks in it.
    pub blocks: u32,
    entries: *mut Entry,
    /// The hashes of the pages of each block in the slot, if blocks can be split; otherwise null.
    parts: *mut Parts,
    /// A bit for each [`GROUP`] of blocks: whether one of them was ever anything but Zero or Loose.
    groups: *mut u64,
}

impl Region {
    /// A region without a touched block.
    fn new(start: usize, first: u32, blocks: u32, splits: bool) -> terapage_sys::Result<Region> {
        let entries = memory::reserve(Self::entries_bytes(blocks))?.cast();
        let parts = match splits {
            true => memory::reserve(blocks as usize * size_of::<Parts>())?.cast(),
            false => std::ptr::null_mut(),
        };
        let groups = memory::reserve(Self::groups_bytes(blocks))?.cast();
        Ok(Region { start, first, blocks, entries, parts, groups })
    }

    fn entries_bytes(blocks: u32) -> usize {
        blocks as usize * size_of::<Entry>()
    }

    fn groups_bytes(blocks: u32) -> usize {
        let words = blocks.div_ceil(GROUP * u64::BITS) as usize;
        (words * size_of::<u64>()).next_multiple_of(page_bytes())
    }

    /// Sets the entry of the region's block `index`, which was never touched.
    fn put(&self, index: u32, entry: Entry) {
        let group = index / GROUP;
        // SAFETY: the block is in the region, whose entries are mapped, and each group has a bit;
        // only the splitting thread uses them.
        unsafe {
            *self.entries.add(index as usize) = entry;
            *self.groups.add((group / u64::BITS) as usize) |= 1 << (group % u64::BITS);
        }
    }

    /// Gives the memory of the entries back.
    fn give_back(self) {
        let parts = self.blocks as usize * size_of::<Parts>();
        // SAFETY: there is no reference to an entry, and the region is given up.
        unsafe {
            memory::unmap(self.entries.cast(), Self::entries_bytes(self.blocks)).ok();
            memory::unmap(self.groups.cast(), Self::groups_bytes(self.blocks)).ok();
            memory::unmap(self.parts.cast(), parts).ok();
        }
    }
}

/// The number of blocks whose entries lie in one of the smallest pages.
const GROUP: u32 = (PAGE_LEAST / size_of::<Entry>()) as u32;

/// All regions and their blocks, numbered from 0.
pub(crate) struct Table {
    /// By number.
    regions: Vec<Region>,
    /// The first address of each region, and its index, by address.
    starts: Vec<(usize, usize)>,
    next: u32,
    shift: u32,
    /// Whether blocks can be split.
    splits: bool,
    /// The blocks that are Loose: a set of ranges, since a program may reserve terabytes that
    /// cannot be touched.
    pub loose: Spans,
    /// Loose blocks from this one on do not count as released: there the program has mostly
    /// reserved addresses.
    pub reserved: u32,
    /// The counters of the regions.
    pub usage: Usage,
    /// The number of blocks in each state; Loose blocks count as Zero.
    counts: [usize; STATES],
}

// SAFETY: one thread at a time uses the table: the pager's, or, while that is parked, the forking
// thread.
unsafe impl Send for Table {}

impl Table {
    pub fn new(block: usize, splits: bool, counters: &'static RegionTable) -> Table {
        let usage = Usage::new(counters, block, splits);
        let shift = block.trailing_zeros();
        Table {
            regions: Vec::new(),
            starts: Vec::new(),
            next: 0,
            shift,
            splits,
            loose: Spans::new(),
            reserved: u32::MAX,
            usage,
            counts: [0; STATES],
        }
    }

    /// Adds a range. It begins and ends at block boundaries and overlaps no other range.
    pub fn add(&mut self, start: usize, len: usize) -> terapage_sys::Result<u32> {
        let blocks = (len >> self.shift) as u32;
        let first = self.next;
        let region = Region::new(start, first, blocks, self.splits)?;
        self.next += blocks;
        self.counts[State::Zero as usize] += blocks as usize;
        let place = self.starts.partition_point(|&(other, _)| other < start);
        self.starts.insert(place, (start, self.regions.len()));
        self.regions.push(region);
        Ok(first)
    }

    /// Whether the numbers suffice for blocks after a split.
    pub fn may_split(&self) -> bool {
        self.splits && self.next.checked_mul(PARTS as u32).is_some()
    }

    /// Makes each page of a block a block. All touched blocks must be settled, and none Soft.
    /// `is_known` says whether the pages' hashes are known for blocks in the slots of an origin.
    ///
    /// # Errors
    /// There are no addresses for the new entries: nothing has changed.
    pub fn split(&mut self, is_known: impl Fn(u8) -> bool) -> terapage_sys::Result<()> {
        const MORE: u32 = PARTS as u32;
        let mut regions = Vec::with_capacity(self.regions.len());
        for old in &self.regions {
            regions.push(Region::new(old.start, old.first * MORE, old.blocks * MORE, false)?);
        }
        for (old, new) in self.regions.iter().zip(&regions) {
            let end = old.first + old.blocks;
            let mut from = old.first;
            while let Some(block) = self.next_touched(from, end) {
                from = block + 1;
                let entry = self.get(block);
                if entry.state == State::Zero {
                    continue;
                }
                assert!(matches!(entry.state, State::Mapped | State::Watched | State::Stored));
                let parts = self.parts_of(block);
                for (index, part) in (0..MORE).zip(parts) {
                    let known = entry.slot().is_some() && is_known(entry.origin);
                    new.put(
                        (block - old.first) * MORE + index,
                        Entry {
                            hash: if known { u128::from(part) } else { UNKNOWN },
                            slot: entry.slot().map_or(0, |slot| slot * MORE + index + 1),
                            place: entry.place * MORE + index,
                            stamp: 0,
                            origin: entry.origin,
                            state: entry.state,
                            flags: 0,
                            half: known,
                        },
                    );
                }
            }
        }
        for old in std::mem::replace(&mut self.regions, regions) {
            old.give_back();
        }
        self.next *= MORE;
        self.shift -= MORE.ilog2();
        self.splits = false;
        let more = PARTS;
        let loose: Vec<_> = self.loose.iter().collect();
        self.loose = Spans::new();
        loose.into_iter().for_each(|(from, to)| self.loose.insert(from * more, to * more));
        self.reserved = self.reserved.saturating_mul(MORE);
        self.counts.iter_mut().for_each(|count| *count *= more);
        self.usage.split(more);
        Ok(())
    }

    /// The noted hashes of the pages of a block.
    fn parts_of(&self, block: u32) -> Parts {
        let region = self.region_of(block);
        // SAFETY: the block is in the region, whose array is mapped.
        unsafe { *region.parts.add((block - region.first) as usize) }
    }

    /// How many pages of a block differ from the noted ones; 0 if none are noted.
    pub fn changed_pages(&self, block: u32, parts: &Parts) -> u32 {
        match self.splits {
            true => self.parts_of(block).iter().zip(parts).map(|(old, new)| u32::from(old != new)).sum(),
            false => 0,
        }
    }

    /// Notes the hashes of a block's bytes, which its slot will have, and of its pages.
    pub fn set_hash(&mut self, block: u32, hash: u128, parts: Parts) {
        let entry = self.get_mut(block);
        (entry.hash, entry.half) = (hash, false);
        let region = self.region_of(block);
        if self.splits {
            // SAFETY: the block is in the region, which has parts, and `self` is borrowed for
            // changing.
            unsafe { *region.parts.add((block - region.first) as usize) = parts };
        }
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        1 << self.shift
    }

    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The block at an address.
    pub fn block_at(&self, at: usize) -> Option<u32> {
        let place = self.starts.partition_point(|&(start, _)| start <= at).checked_sub(1)?;
        let region = &self.regions[self.starts[place].1];
        let index = (at - region.start) >> self.shift;
        (index < region.blocks as usize).then(|| region.first + index as u32)
    }

    /// The region of `block`, if it is in one.
    fn region_at(&self, block: u32) -> Option<&Region> {
        // The last region has the arena.
        if let Some(last) = self.regions.last().filter(|last| block >= last.first) {
            return (block - last.first < last.blocks).then_some(last);
        }
        let place = self.regions.partition_point(|region| region.first <= block).checked_sub(1)?;
        Some(&self.regions[place])
    }

    fn region_of(&self, block: u32) -> &Region {
        self.region_at(block).expect("a block of a region")
    }

    /// The end of the region of `block`: the number after its last block.
    pub fn end_of(&self, block: u32) -> u32 {
        let region = self.region_of(block);
        region.first + region.blocks
    }

    /// The blocks of the region of `block`, if it is in one.
    pub fn block_range_of(&self, block: u32) -> Option<std::ops::Range<u32>> {
        let region = self.region_at(block)?;
        Some(region.first..region.first + region.blocks)
    }

    /// The address of a block.
    pub fn address(&self, block: u32) -> usize {
        let region = self.region_of(block);
        region.start + (((block - region.first) as usize) << self.shift)
    }

    pub fn get(&self, block: u32) -> &Entry {
        let region = self.region_of(block);
        // SAFETY: the block is in the region, whose entries are mapped; zeros are a valid entry.
        unsafe { &*region.entries.add((block - region.first) as usize) }
    }

    pub fn get_mut(&mut self, block: u32) -> &mut Entry {
        let region = self.region_of(block);
        // SAFETY: the block is in the region, and `self` is borrowed for changing.
        unsafe { &mut *region.entries.add((block - region.first) as usize) }
    }

    /// Changes the state of a block. There is no other way to change it, since blocks are counted
    /// by state, and frames by region.
    pub fn set_state(&mut self, block: u32, state: State) {
        debug_assert!(state != State::Loose, "that is noted elsewhere");
        let old = std::mem::replace(&mut self.get_mut(block).state, state);
        if cfg!(any(debug_assertions, terapage_model)) {
            assert!(old.may_become(state), "block {block} goes from {old:?} to {state:?}");
        }
        if old == State::Zero && state != State::Zero {
            let region = self.region_of(block);
            let group = (block - region.first) / GROUP;
            // SAFETY: each group of the region has a bit, and only this thread uses the table.
            unsafe { *region.groups.add((group / u64::BITS) as usize) |= 1 << (group % u64::BITS) };
        }
        self.counts[old as usize] -= 1;
        self.counts[state as usize] += 1;
        self.usage.changed(block, old, state);
    }

    /// The number of blocks in a state. Loose blocks count as Zero.
    pub fn count(&self, state: State) -> usize {
        self.counts[state as usize]
    }

    /// Checks the counts by inspecting each block.
    ///
    /// # Panics
    /// They are wrong.
    pub fn assert_counts(&self) {
        let mut counts = [0; STATES];
        for region in &self.regions {
            (region.first..region.first + region.blocks)
                .for_each(|block| counts[self.get(block).state as usize] += 1);
        }
        assert_eq!(counts, self.counts, "blocks are miscounted");
    }

    pub fn state(&self, block: u32) -> State {
        match self.get(block).state {
            State::Zero if self.is_loose(block) => State::Loose,
            state => state,
        }
    }

    fn is_loose(&self, block: u32) -> bool {
        self.loose.meets(block as usize, block as usize + 1)
    }

    /// The first block from `block` to `end` that may be in another state than Zero or Loose; both
    /// are in one region. The time depends on the touched part, hardly on the length.
    pub fn next_touched(&self, block: u32, end: u32) -> Option<u32> {
        if block >= end {
            return None;
        }
        let region = self.region_of(block);
        let (index, last) = (block - region.first, end - 1 - region.first);
        let mut group = index / GROUP;
        while group <= last / GROUP {
            // SAFETY: each group of the region has a bit.
            let word = unsafe { *region.groups.add((group / u64::BITS) as usize) } >> (group % u64::BITS);
            if word != 0 {
                let found = (group + word.trailing_zeros()) * GROUP;
                return (found <= last).then(|| region.first + found.max(index));
            }
            group = (group / u64::BITS + 1) * u64::BITS;
        }
        None
    }

    /// The parts of `first` to `end` that are Loose (`loose`), or that are not.
    pub fn parts(&self, first: u32, end: u32, loose: bool) -> Vec<(u32, u32)> {
        let (from, to) = (first as usize, end.max(first) as usize);
        let parts = if loose { self.loose.within(from, to) } else { self.loose.without(from, to) };
        parts.into_iter().map(|(from, to)| (from as u32, to as u32)).collect()
    }
}
