//! Blocks in memory, compressed (LZ4): a store that is faster than any disk, and whose contents
//! exceed its memory.
//!
//! The memory is divided into small units. A block has as many units as its compressed bytes fill,
//! wherever they lie, in a chain, so that nothing is lost between blocks of different lengths.

use crate::common::extents::room_for_numbers;
use crate::shelf::{Below, BelowMut, Ended, Error, Failure, Op, OpKind, Store, StoreRing, Why};
use crate::{EXTENT, common::pieces::each_block};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_sys::memory;
use terapage_sys::ring::Done;

/// The number of units of a block that does not compress.
const UNITS: usize = 64;
/// The least unit, bytes: each has 4 bytes of bookkeeping.
const UNIT_LEAST: usize = 128;

/// The store wants slots back if less than its whole memory divided by this is left. Chosen, not
/// measured.
const SCARCE_PART: usize = 16;

/// No unit: the end of a chain.
const NONE: u32 = u32::MAX;

/// Bytes of units that were ever used, in all such stores of this process: they are in memory.
static TOUCHED: AtomicUsize = AtomicUsize::new(0);

/// Bytes of memory that the compressed stores of this process use, or inherited from the process
/// that forked it.
pub fn packed_bytes() -> usize {
    TOUCHED.load(Relaxed)
}

/// A store in memory, of compressed blocks.
pub struct Packed {
    block: usize,
    units: Units,
    /// For each slot, the first unit of its chain and the bytes in it.
    slots: Vec<Location>,
    /// Blocks that would shrink by less than a quarter are refused, since another store can take
    /// them.
    choosy: bool,
    table: CompressTable,
    /// Room for a block that lies in several pieces, and for a compressed one.
    whole: Vec<u8>,
    packed: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Location {
    first: u32,
    /// A block's length means that it is not compressed.
    len: u32,
}

const NOWHERE: Location = Location { first: NONE, len: 0 };

/// The memory, in units.
struct Units {
    at: usize,
    size: usize,
    /// For each unit, the next unit of its chain. It grows with the number of units ever used.
    next: Vec<u32>,
    /// The first unit of the chain of free units that were used before.
    free: u32,
    free_count: usize,
    most: usize,
}

impl Units {
    /// The number of units that are available.
    fn left(&self) -> usize {
        self.most - self.next.len() + self.free_count
    }

    fn bytes(&self, unit: u32) -> &[u8] {
        // SAFETY: the unit lies in memory that was mapped only for this store, which writes to it
        // only by `bytes_mut`.
        unsafe { memory::bytes(self.at + unit as usize * self.size, self.size) }
    }

    fn bytes_mut(&mut self, unit: u32) -> &mut [u8] {
        // SAFETY: the unit lies in what was mapped for this store alone, and nobody has another
        // slice of it.
        unsafe { memory::bytes(self.at + unit as usize * self.size, self.size) }
    }

    /// A chain with the bytes; `None` if there is no room.
    fn put(&mut self, bytes: &[u8]) -> Option<u32> {
        if bytes.len().div_ceil(self.size) > self.left() {
            return None;
        }
        let mut first = NONE;
        // The chain is made from its end, so that each unit knows the next.
        for part in bytes.chunks(self.size).rev() {
            let unit = if self.free == NONE {
                self.next.push(NONE);
                TOUCHED.fetch_add(self.size, Relaxed);
                self.next.len() as u32 - 1
            } else {
                let unit = self.free;
                self.free = self.next[unit as usize];
                self.free_count -= 1;
                unit
            };
            self.bytes_mut(unit)[..part.len()].copy_from_slice(part);
            self.next[unit as usize] = first;
            first = unit;
        }
        Some(first)
    }

    /// Fills `to` with the bytes of a chain.
    fn get(&self, mut unit: u32, to: &mut [u8]) {
        for part in to.chunks_mut(self.size) {
            part.copy_from_slice(&self.bytes(unit)[..part.len()]);
            unit = self.next[unit as usize];
        }
    }

    fn drop_chain(&mut self, first: u32) {
        if first == NONE {
            return;
        }
        let (mut last, mut count) = (first, 1);
        while self.next[last as usize] != NONE {
            last = self.next[last as usize];
            count += 1;
        }
        self.next[last as usize] = self.free;
        self.free = first;
        self.free_count += count;
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        TOUCHED.fetch_sub(self.next.len() * self.size, Relaxed);
        // SAFETY: mapped in `Packed::new`; there is no slice of it.
        unsafe { memory::unmap(self.at as *mut u8, self.most * self.size) }.ok();
    }
}

impl Packed {
    /// Slots of `block` bytes in `limit` bytes of memory, with the bookkeeping of units. If it is
    /// `choosy`, it refuses blocks that do not shrink by a quarter.
    ///
    /// # Errors
    /// There is not enough address space, or the limit is too small for a block.
    pub fn new(block: usize, limit: u64, choosy: bool) -> Result<Packed, Error> {
        let name = || "memory".to_owned();
        let size = (block / UNITS).max(UNIT_LEAST);
        let most = (limit as usize / (size + size_of::<u32>())).min(NONE as usize);
        if most * size < block {
            let why = format!("cannot hold one block in {limit} bytes (write ram:64M or more)");
            return Err(Error::Unfit { name: "ram:".to_owned(), why });
        }
        let at = memory::reserve(most * size).map_err(|source| Error::System { name: name(), source })?;
        Ok(Packed {
            block,
            units: Units { at: at as usize, size, next: Vec::new(), free: NONE, free_count: 0, most },
            slots: Vec::new(),
            choosy,
            table: CompressTable::default(),
            whole: vec![0; block],
            packed: vec![0; get_maximum_output_size(block)],
        })
    }

    /// Bytes of memory that blocks have.
    pub fn used_bytes(&self) -> usize {
        (self.units.most - self.units.left()) * self.units.size
    }
}

impl Store for Packed {
    fn name(&self) -> String {
        format!("memory ({} MiB, compressed)", (self.units.most * self.units.size) >> 20)
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Slots cost little until they are written.
    fn grow(&mut self) -> Result<(), Error> {
        let per_extent = EXTENT / self.block;
        room_for_numbers(self.slots.len() / per_extent, self.block, || self.name())?;
        self.slots.resize(self.slots.len() + per_extent, NOWHERE);
        Ok(())
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    /// A block that was compressed as a whole cannot be read in parts.
    fn may_split(&self, _more: usize) -> bool {
        false
    }

    fn split(&mut self, _more: usize) {
        unreachable!("its slots cannot be split");
    }

    fn joins(&self, slot: u32) -> bool {
        slot > 0 && slot < self.slots()
    }

    unsafe fn begin(&mut self, _: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        let (mut slot, mut result) = (op.slot as usize, Ok(()));
        let Packed { units, slots, packed, table, choosy, .. } = self;
        let act = |bytes: &mut [u8]| {
            let done = match op.kind {
                OpKind::Read => get(units, slots[slot], packed, bytes),
                OpKind::Write => put(units, &mut slots[slot], (table, packed), *choosy, bytes),
            };
            if let Err(why) = done {
                result = Err(Failure::lasting(why));
            }
            slot += 1;
        };
        // SAFETY: the caller keeps the pieces' memory valid; no code writes to it, or uses it at
        // all during a read.
        unsafe {
            match op.kind {
                OpKind::Read => each_block::<true>(op.pieces, &mut self.whole, act),
                OpKind::Write => each_block::<false>(op.pieces, &mut self.whole, act),
            }
        }
        ended.push(Ended { id: op.id, result });
    }

    fn event(&mut self, _: &mut StoreRing<'_>, _: Done, _: &mut Vec<Ended>) {}

    fn wants_back(&self, _slot: u32) -> bool {
        self.units.left() < self.units.most / SCARCE_PART
    }

    fn forget(&mut self, slots: Range<u32>) {
        for slot in &mut self.slots[slots.start as usize..slots.end as usize] {
            self.units.drop_chain(std::mem::replace(slot, NOWHERE).first);
        }
    }
}

/// Puts a block into a slot, replacing its old contents, if there is room.
fn put(
    units: &mut Units,
    slot: &mut Location,
    (table, packed): (&mut CompressTable, &mut [u8]),
    choosy: bool,
    block: &[u8],
) -> Result<(), Why> {
    units.drop_chain(std::mem::replace(slot, NOWHERE).first);
    let no_room = || Why::Text("there is no room (put a disk behind it: tier:ram:SIZE+PATH)".to_owned());
    // Nothing compresses into less: no need to try.
    if units.left() * units.size < block.len() / 32 {
        return Err(no_room());
    }
    let len = compress_into_with_table(block, packed, table).map_err(|error| Why::Text(error.to_string()))?;
    let pays = len <= block.len() / 4 * 3;
    if choosy && !pays {
        return Err(Why::Text("it does not compress".to_owned()));
    }
    let bytes = if pays { &packed[..len] } else { block };
    let first = units.put(bytes).ok_or_else(no_room)?;
    *slot = Location { first, len: bytes.len() as u32 };
    Ok(())
}

/// The block in a slot.
fn get(units: &Units, slot: Location, packed: &mut [u8], block: &mut [u8]) -> Result<(), Why> {
    let len = slot.len as usize;
    if slot.first == NONE {
        return Err(Why::Text("nothing was written there".to_owned()));
    }
    if len == block.len() {
        units.get(slot.first, block);
        return Ok(());
    }
    units.get(slot.first, &mut packed[..len]);
    match decompress_into(&packed[..len], block) {
        Ok(bytes) if bytes == block.len() => Ok(()),
        _ => Err(Why::Wrong),
    }
}
