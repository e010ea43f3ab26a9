//! Small objects: slabs of cells of one size.

use crate::sizes::{BYTES, SIZES};
use crate::table::{CHUNK, EMPTY, FIRST_SIZE, NONE, SLAB, SLABS, Slab, Table};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of the bits of a slab: enough for the smallest cells.
const BITS: usize = SLAB / 16 / 8;

/// Bytes of the bits of a chunk's slabs.
pub const CHUNK_BITS: usize = SLABS * BITS;

/// A size with at least this many slabs takes whole chunks, so that its objects follow one another.
const SLABS_APART: u32 = 8;

/// The largest number of freed cells of a size that are remembered: they are likely to be in the
/// processor's cache, and in memory.
const RECENT: usize = 64;

/// The number of empty chunks that are kept.
const SPARE: u32 = 1;

/// For each size, its reciprocal: an offset in a slab times this, shifted right by 32, is the
/// offset divided by the size.
const RECIPROCALS: [u64; SIZES] = {
    let mut reciprocals = [0; SIZES];
    let mut at = 0;
    while at < SIZES {
        reciprocals[at] = (1u64 << 32).div_ceil(BYTES[at] as u64);
        at += 1;
    }
    reciprocals
};

/// For each size, the number of cells in a slab.
const CELLS: [u16; SIZES] = {
    let mut cells = [0; SIZES];
    let mut at = 0;
    while at < SIZES {
        cells[at] = (SLAB / BYTES[at] as usize) as u16;
        at += 1;
    }
    cells
};

/// The number of the cell at an offset in a slab.
#[inline]
fn cell_at(offset: usize, size: usize) -> usize {
    ((offset as u64 * RECIPROCALS[size]) >> 32) as usize
}

/// The slabs of one size.
#[derive(Clone, Copy)]
struct Class {
    /// One more than the number of the first slab in the list of slabs with free cells; 0 if the
    /// list is empty.
    head: u32,
    /// The cells freed last, in order; the first `count` are valid. Allocation takes these cells
    /// first.
    recent: [usize; RECENT],
    count: u8,
    /// The number of slabs.
    slabs: u32,
    /// Slabs reserved for this size that were never used, as a range.
    set_aside: (u32, u32),
}

impl Class {
    /// Forgets the older half of the cells freed last: the bits of their slabs show them as free.
    #[cold]
    fn forget_older(&mut self, size: usize, table: &Table) {
        for at in &self.recent[..RECENT / 2] {
            let word = cell_at(at % SLAB, size) / 64;
            table.slab(table.number(*at)).hint.store(word as u16, Relaxed);
        }
        self.recent.copy_within(RECENT / 2.., 0);
        self.count = (RECENT / 2) as u8;
    }

    /// Forgets the cells of a slab.
    fn forget(&mut self, number: u32, table: &Table) {
        let mut kept = 0;
        for index in 0..usize::from(self.count) {
            let at = self.recent[index];
            if table.number(at) != number {
                self.recent[kept] = at;
                kept += 1;
            }
        }
        self.count = kept as u8;
    }
}

/// The source of slabs and their bits: paged memory, and a heap in it for larger objects.
pub trait Source {
    /// Takes [`CHUNK`] bytes, aligned to [`CHUNK`].
    fn chunk(&mut self) -> Option<usize>;
    fn give_chunk(&mut self, at: usize);
    /// Takes [`CHUNK_BITS`] bytes.
    fn bits(&mut self) -> Option<*mut u64>;
    /// # Safety
    /// [`bits`](Self::bits) returned this memory, and it has no other user.
    unsafe fn give_bits(&mut self, bits: *mut u64);
}

/// The pointer does not point to an object, or the object was freed.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnObject;

/// The small objects of one heap.
pub struct Small {
    classes: [Class; SIZES],
    /// One more than the number of the first slab in the list of slabs without objects; 0 if the
    /// list is empty.
    empty: u32,
    /// Slabs of the newest chunk that were never used, as a range.
    newest: (u32, u32),
    /// The number of chunks whose slabs are all in the list of empty slabs.
    spare: u32,
}

impl Small {
    pub const fn new() -> Self {
        let class = Class { head: 0, recent: [0; RECENT], count: 0, slabs: 0, set_aside: (0, 0) };
        Small { classes: [class; SIZES], empty: 0, newest: (0, 0), spare: 0 }
    }

    /// Takes the cell of a size that was freed last, if one is remembered.
    #[inline]
    pub fn recent(&mut self, size: usize, table: &Table) -> Option<usize> {
        let class = &mut self.classes[size];
        let count = class.count.checked_sub(1)?;
        class.count = count;
        let at = class.recent[usize::from(count)];
        self.take(size, table.number(at), cell_at(at % SLAB, size), table);
        Some(at)
    }

    /// Takes a cell of a size, if no freed cell is remembered.
    #[inline(never)]
    pub fn allocate(
        &mut self,
        size: usize,
        heap: u8,
        table: &Table,
        source: &mut impl Source,
    ) -> Option<usize> {
        if self.classes[size].head == 0 {
            self.fresh(size, heap, table, source)?;
        }
        self.at_hand(size, table)
    }

    /// Takes a cell of a size from a slab with free cells.
    pub fn at_hand(&mut self, size: usize, table: &Table) -> Option<usize> {
        let number = self.classes[size].head.checked_sub(1)?;
        let slab = table.slab(number);
        let words = usize::from(CELLS[size]).div_ceil(64);
        let mut word = usize::from(slab.hint.load(Relaxed));
        // The loop ends within the slab's bits, since a slab in this list has a set bit.
        let cell = loop {
            let bits = bits_of(slab, word * 64).load(Relaxed);
            if bits != 0 {
                break word * 64 + bits.trailing_zeros() as usize;
            }
            word = if word + 1 == words { 0 } else { word + 1 };
        };
        slab.hint.store(word as u16, Relaxed);
        self.take(size, number, cell, table);
        Some(table.start(number) + cell * usize::from(BYTES[size]))
    }

    /// Takes a free cell of a slab.
    #[inline]
    fn take(&mut self, size: usize, number: u32, cell: usize, table: &Table) {
        let slab = table.slab(number);
        let word = bits_of(slab, cell);
        word.store(word.load(Relaxed) & !(1 << (cell % 64)), Relaxed);
        let free = slab.free.load(Relaxed) - 1;
        slab.free.store(free, Relaxed);
        if free == 0 {
            unlink(&mut self.classes[size].head, table, number);
        }
    }

    /// The number of objects in use, and their bytes.
    pub fn in_use(&self, table: &Table) -> (usize, usize) {
        let mut all = (0, 0);
        for (size, class) in self.classes.iter().enumerate() {
            let mut cells = class.slabs as usize * usize::from(CELLS[size]);
            let mut head = class.head;
            while head != 0 {
                let slab = table.slab(head - 1);
                cells -= usize::from(slab.free.load(Relaxed));
                head = slab.after.load(Relaxed);
            }
            all = (all.0 + cells, all.1 + cells * usize::from(BYTES[size]));
        }
        all
    }

    /// Whether an object begins at an address that lies in a slab of this heap.
    pub fn is_object(&self, at: usize, table: &Table) -> bool {
        object_at(at, table).is_some()
    }

    /// Frees a cell.
    ///
    /// # Errors
    /// No cell begins there, or the cell is already free. Then nothing has changed.
    #[inline]
    pub fn free(&mut self, at: usize, table: &Table, source: &mut impl Source) -> Result<(), NotAnObject> {
        let number = table.number(at);
        let slab = table.slab(number);
        let (size, cell) = cell_of(at, slab).ok_or(NotAnObject)?;
        let (word, bit) = (bits_of(slab, cell), 1 << (cell % 64));
        let bits = word.load(Relaxed);
        if bits & bit != 0 {
            return Err(NotAnObject);
        }
        word.store(bits | bit, Relaxed);
        let free = slab.free.load(Relaxed) + 1;
        slab.free.store(free, Relaxed);
        let class = &mut self.classes[size];
        if usize::from(class.count) == RECENT {
            class.forget_older(size, table);
        }
        class.recent[usize::from(class.count) % RECENT] = at;
        class.count += 1;
        if free == 1 || free == CELLS[size] {
            self.has_turned(number, size, table, source);
        }
        Ok(())
    }

    /// Handles a slab that is no longer full, or no longer has objects.
    #[inline(never)]
    fn has_turned(&mut self, number: u32, size: usize, table: &Table, source: &mut impl Source) {
        let (slab, class) = (table.slab(number), &mut self.classes[size]);
        if slab.free.load(Relaxed) == 1 {
            push(&mut class.head, table, number);
            return;
        }
        // The only slab with room is kept, so that an object that is allocated and freed again and
        // again does not make a slab each time.
        if class.head != number + 1 || slab.after.load(Relaxed) != 0 {
            class.forget(number, table);
            self.retire(number, size, table, source);
        }
    }

    /// Puts a slab without objects into the list of empty slabs; a chunk of empty slabs is given
    /// back.
    fn retire(&mut self, number: u32, size: usize, table: &Table, source: &mut impl Source) {
        let class = &mut self.classes[size];
        unlink(&mut class.head, table, number);
        class.slabs -= 1;
        table.slab(number).what.store(EMPTY, Relaxed);
        push(&mut self.empty, table, number);
        let first = number - number % SLABS as u32;
        let used = &table.slab(first).used;
        used.store(used.load(Relaxed) - 1, Relaxed);
        if used.load(Relaxed) > 0 {
            return;
        }
        if self.spare < SPARE {
            self.spare += 1;
            return;
        }
        for number in first..first + SLABS as u32 {
            unlink(&mut self.empty, table, number);
        }
        // SAFETY: none of the chunk's slabs is in a list, so nobody reads their bits again.
        unsafe { source.give_bits(table.slab(first).bits.load(Relaxed)) };
        table.note(table.start(first), CHUNK, 0, NONE);
        source.give_chunk(table.start(first));
    }

    /// Makes a slab for a size, with all cells free, at the head of its list.
    fn fresh(&mut self, size: usize, heap: u8, table: &Table, source: &mut impl Source) -> Option<u32> {
        let number = self.room(size, heap, table, source)?;
        let slab = table.slab(number);
        let (bits, cells) = (slab.bits.load(Relaxed), usize::from(CELLS[size]));
        for word in 0..cells.div_ceil(64) {
            let ones = (cells - word * 64).min(64);
            // SAFETY: a slab has bits enough for the smallest cells.
            unsafe { bits.add(word).write(u64::MAX >> (64 - ones)) };
        }
        slab.what.store(FIRST_SIZE + size as u8, Relaxed);
        slab.free.store(cells as u16, Relaxed);
        slab.hint.store(0, Relaxed);
        let class = &mut self.classes[size];
        class.slabs += 1;
        push(&mut class.head, table, number);
        Some(number)
    }

    /// Finds room for a slab.
    fn room(&mut self, size: usize, heap: u8, table: &Table, source: &mut impl Source) -> Option<u32> {
        if let Some(number) = next(&mut self.classes[size].set_aside) {
            return Some(number);
        }
        if self.empty != 0 {
            let number = self.empty - 1;
            unlink(&mut self.empty, table, number);
            let used = &table.slab(number - number % SLABS as u32).used;
            if used.load(Relaxed) == 0 {
                self.spare -= 1;
            }
            used.store(used.load(Relaxed) + 1, Relaxed);
            return Some(number);
        }
        let many = self.classes[size].slabs >= SLABS_APART;
        if !many && let Some(number) = next(&mut self.newest) {
            return Some(number);
        }
        let Some(first) = chunk(heap, table, source) else {
            let any = self.classes.iter_mut().map(|class| &mut class.set_aside);
            return any.chain([&mut self.newest]).find_map(next);
        };
        let rest = if many { &mut self.classes[size].set_aside } else { &mut self.newest };
        *rest = (first + 1, first + SLABS as u32);
        Some(first)
    }
}

/// Takes a chunk, and returns the number of its first slab. None of its slabs counts as empty.
fn chunk(heap: u8, table: &Table, source: &mut impl Source) -> Option<u32> {
    let bits = source.bits()?;
    let Some(at) = source.chunk() else {
        // SAFETY: the bits were taken just now.
        unsafe { source.give_bits(bits) };
        return None;
    };
    table.note(at, CHUNK, heap, EMPTY);
    let first = table.number(at);
    for index in 0..SLABS {
        // SAFETY: the offset is within the bits of the chunk.
        let bits = unsafe { bits.byte_add(index * BITS) };
        table.slab(first + index as u32).bits.store(bits, Relaxed);
    }
    table.slab(first).used.store(SLABS as u8, Relaxed);
    Some(first)
}

/// The word with the bit of a cell, among the bits of its slab. A thread that changes it holds the
/// heap's lock; a thread that has an object there may read the object's bit.
#[inline]
fn bits_of(slab: &Slab, cell: usize) -> &AtomicU64 {
    // SAFETY: a slab of a size has a bit for each of its cells, and its bits stay while there are
    // objects.
    unsafe { AtomicU64::from_ptr(slab.bits.load(Relaxed).add(cell / 64)) }
}

/// The cell that begins at an address, and its size; it may be free.
#[inline]
fn cell_of(at: usize, slab: &Slab) -> Option<(usize, usize)> {
    let size = slab.size().filter(|&size| size < SIZES)?;
    let cell = cell_at(at % SLAB, size);
    let begins = cell * usize::from(BYTES[size]) == at % SLAB && cell < usize::from(CELLS[size]);
    begins.then_some((size, cell))
}

/// The size of the small object that begins at an address and has not been freed to its heap.
#[inline]
pub fn object_at(at: usize, table: &Table) -> Option<usize> {
    let slab = table.slab(table.number(at));
    let (size, cell) = cell_of(at, slab)?;
    (bits_of(slab, cell).load(Relaxed) & 1 << (cell % 64) == 0).then_some(size)
}

/// Takes the next number out of a range.
fn next(range: &mut (u32, u32)) -> Option<u32> {
    let number = range.0;
    (number < range.1).then(|| {
        range.0 += 1;
        number
    })
}

fn push(head: &mut u32, table: &Table, number: u32) {
    let slab: &Slab = table.slab(number);
    slab.before.store(0, Relaxed);
    slab.after.store(*head, Relaxed);
    if *head != 0 {
        table.slab(*head - 1).before.store(number + 1, Relaxed);
    }
    *head = number + 1;
}

fn unlink(head: &mut u32, table: &Table, number: u32) {
    let slab = table.slab(number);
    let (before, after) = (slab.before.load(Relaxed), slab.after.load(Relaxed));
    match before {
        0 => *head = after,
        before => table.slab(before - 1).after.store(after, Relaxed),
    }
    if after != 0 {
        table.slab(after - 1).before.store(before, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, RECIPROCALS, SIZES, SLAB};

    #[test]
    fn offsets_are_divided_by_every_size() {
        for size in 0..SIZES {
            for offset in 0..SLAB as u64 {
                let bytes = u64::from(BYTES[size]);
                assert_eq!((offset * RECIPROCALS[size]) >> 32, offset / bytes, "{offset} / {bytes}");
            }
        }
    }
}
