//! The arena: one range of addresses for all that is paged, and the pager over it.

use crate::lock::Lock;
use crate::ranges::Ranges;
use crate::{process, statics};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_pager::Pager;
use terapage_sys::{memory, thread};

/// Bytes of old allocations that are kept, to be given out again as they are.
const DIRTY_BYTES: usize = 64 << 20;

/// What the arena's lock guards.
pub struct Arena {
    pub ranges: Ranges,
    /// Blocks that are not paged, because the program protected, locked or mapped over part of them.
    loose: BTreeMap<usize, usize>,
    pub pager: Option<Pager>,
    /// The pager is started when more bytes than this are in use.
    start_at: usize,
}

pub static ARENA: Lock<Arena> =
    Lock::new(Arena { ranges: Ranges::empty(), loose: BTreeMap::new(), pager: None, start_at: usize::MAX });

/// Where the arena lies: read without the lock, never changed after the start.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Whether an address is the arena's.
pub fn contains(at: usize) -> bool {
    at >= START.load(Relaxed) && at < END.load(Acquire)
}

/// Whether any of a range is.
pub fn overlaps(at: usize, len: usize) -> bool {
    at < END.load(Acquire) && at.saturating_add(len) > START.load(Relaxed)
}

/// The arena's first address.
pub fn start() -> usize {
    START.load(Relaxed)
}

/// Reserves the arena. `false` where the machine gives no such range.
pub fn open(block: usize, budget: usize) -> bool {
    let align = 2 << 20;
    let sizes = (33..=42).rev().map(|shift| 1usize << shift);
    let Some((len, at)) = sizes.into_iter().find_map(|len| Some((len, memory::reserve(len).ok()? as usize)))
    else {
        return false;
    };
    let (from, to) = (at.next_multiple_of(align), (at + len) / align * align);
    const MADV_NOHUGEPAGE: i32 = 15;
    memory::advise(from, to - from, MADV_NOHUGEPAGE);
    let mut arena = ARENA.lock();
    arena.ranges = Ranges::new(from, to, block);
    arena.start_at = budget / 2;
    START.store(from, Relaxed);
    END.store(to, Release);
    true
}

impl Arena {
    /// Takes `len` bytes; starts the pager when that is due.
    pub fn take(&mut self, len: usize, align: usize, zero: bool) -> Option<usize> {
        let at = self.ranges.take(len, align, zero)?;
        self.start_if_due();
        Some(at)
    }

    /// Starts the pager if the program has grown enough.
    pub fn start_if_due(&mut self) {
        if self.pager.is_none() && self.ranges.used_bytes + statics::bytes() > self.start_at {
            self.start_at = usize::MAX;
            let _internal = thread::Internal::enter();
            let pager = process::start_pager();
            // The arena comes last: blocks are numbered in this order, and policies keep arrays by number.
            for (start, len) in statics::ranges() {
                process::or_fail(pager.add(start, len, len));
            }
            let (from, to) = (START.load(Relaxed), END.load(Relaxed));
            let added = pager.add(from, to - from, self.ranges.fresh() - from);
            process::or_fail(added);
            for (&from, &to) in &self.loose {
                process::or_fail(pager.release(from, to - from));
            }
            self.pager = Some(pager);
            self.set_forkable(false);
        }
        if let Some(pager) = &self.pager {
            let used = self.ranges.used_bytes + statics::bytes();
            pager.counters().region_bytes.store(used as u64, Relaxed);
        }
    }

    /// Whether a fork copies paged memory. Only one that the pager hears of may: a child made behind its
    /// back is to stop at the first touch, not to read zeros.
    pub fn set_forkable(&self, forkable: bool) {
        let advice = if forkable { libc::MADV_DOFORK } else { libc::MADV_DONTFORK };
        let (from, to) = (START.load(Relaxed), END.load(Relaxed));
        memory::advise(from, to - from, advice);
        for (start, len) in statics::ranges() {
            memory::advise(start, len, advice);
        }
    }

    /// Gives pages back. `keep`: their bytes may stay and be given out again as they are.
    pub fn give(&mut self, at: usize, to: usize, keep: bool) {
        let mut freed = Vec::new();
        self.ranges.give(at, to, |from, to| freed.push((from, to)));
        for (from, to) in freed {
            self.restore(from, to);
            let keep = keep && to - from <= DIRTY_BYTES / 2;
            if !keep {
                self.discard_blocks(from, to);
            }
            self.ranges.put(from, to, !keep);
        }
        if self.ranges.dirty_bytes > DIRTY_BYTES {
            for (from, to) in self.ranges.take_dirty() {
                self.discard_blocks(from, to);
                self.ranges.put(from, to, true);
            }
        }
    }

    /// The pages read as zeros from now on.
    pub fn discard(&mut self, at: usize, to: usize) {
        if self.pager.is_none() {
            // SAFETY: the program has asked for it.
            unsafe { memory::discard(at, to - at) }.ok();
            return;
        }
        let block = process::block();
        let (first, last) = (at.next_multiple_of(block), to / block * block);
        if first < last {
            self.discard_blocks(first, last);
        }
        // What is left of a block at either end is written, by this thread like any other.
        let zero = |from: usize, to: usize| {
            // SAFETY: the program has asked for it; the pages are readable and writable where they are paged.
            unsafe { memory::bytes(from, to - from) }.fill(0);
        };
        if first > last {
            self.zero_or_discard(at, to, zero);
        } else {
            self.zero_or_discard(at, first.min(to), zero);
            self.zero_or_discard(last.max(at), to, zero);
        }
    }

    fn zero_or_discard(&self, at: usize, to: usize, zero: impl Fn(usize, usize)) {
        if at >= to {
        } else if self.is_loose(at) {
            // SAFETY: the program has asked for it.
            unsafe { memory::discard(at, to - at) }.ok();
        } else {
            zero(at, to);
        }
    }

    fn discard_blocks(&self, from: usize, to: usize) {
        match &self.pager {
            Some(pager) => process::or_fail(pager.discard(from, to - from)),
            // SAFETY: nobody uses the range.
            None => unsafe { memory::discard(from, to - from) }.unwrap_or(()),
        }
    }

    /// Whether the block at an address is not paged.
    pub fn is_loose(&self, at: usize) -> bool {
        self.loose.range(..=at).next_back().is_some_and(|(_, &to)| to > at)
    }

    /// Whether any block of a range is not paged.
    pub fn any_loose(&self, at: usize, to: usize) -> bool {
        self.loose.range(..to).next_back().is_some_and(|(_, &end)| end > at)
    }

    /// Lengthens a range to `len` bytes, the new ones zero, if there is room.
    pub fn extend(&mut self, at: usize, len: usize) -> bool {
        let extended = self.ranges.extend(at, len);
        self.start_if_due();
        extended
    }

    /// Stops paging every block that the range touches.
    pub fn release(&mut self, at: usize, to: usize) {
        let block = process::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        let mut from = first;
        while from < last {
            if self.is_loose(from) {
                from += block;
                continue;
            }
            let end = self.loose.range(from..last).next().map_or(last, |(&next, _)| next);
            if let Some(pager) = &self.pager {
                process::or_fail(pager.release(from, end - from));
            }
            self.loose.insert(from, end);
            from = end;
        }
    }

    /// Pages blocks again that nobody uses any more.
    fn restore(&mut self, from: usize, to: usize) {
        let touching: Vec<_> = self
            .loose
            .range(..to)
            .map(|(&start, &end)| (start, end))
            .filter(|&(_, end)| end > from)
            .collect();
        for (start, end) in touching {
            self.loose.remove(&start);
            if start < from {
                self.loose.insert(start, from);
            }
            if end > to {
                self.loose.insert(to, end);
            }
            let (start, end) = (start.max(from), end.min(to));
            // SAFETY: nobody uses the range.
            let replaced = unsafe { memory::replace(start as *mut u8, end - start) };
            process::or_fail(replaced.map_err(terapage_pager::Error::from));
            if let Some(pager) = &self.pager {
                process::or_fail(pager.restore(start, end - start));
            }
        }
    }
}
