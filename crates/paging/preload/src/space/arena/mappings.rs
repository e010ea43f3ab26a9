//! Mappings at addresses that the program names, and reservations.

use super::*;

/// The parts in which an early mapping is paged; [`memory::is_begun`] inspects as much.
const EARLY_PART: usize = 1 << 20;

impl Arena {
    /// Takes `len` bytes of the wide part, which cannot be touched yet. This only makes a note.
    pub fn take_wide(&mut self, len: usize) -> Option<usize> {
        let at = self.ranges.take_wide(len)?;
        let to = (at + len).next_multiple_of(setup::block());
        self.note(at, |reasons| reasons.close(at, to));
        self.count_by_region(at, at + len);
        Some(at)
    }

    /// Takes `len` bytes of the first part, at a multiple of `align`, and makes them inaccessible.
    pub fn take_closed(&mut self, len: usize, align: usize) -> Option<usize> {
        let at = self.ranges.take(len, align, true)?;
        // SAFETY: the range was taken just now.
        let close = || unsafe { libc::syscall(libc::SYS_mprotect, at, len, libc::PROT_NONE as i64) } == 0;
        if self.release(at, at + len).is_ok() && close() {
            return Some(at);
        }
        self.give(at, at + len, false);
        None
    }

    /// Takes a range for a mapping that the program's own `malloc` makes before the pager begins.
    /// It can be used, but is not paged until [`open_early`](Self::open_early).
    pub fn take_early(&mut self, len: usize, align: usize) -> Option<usize> {
        let at = self.take_closed(len, align)?;
        let rights = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the range was taken just now.
        if unsafe { libc::syscall(libc::SYS_mprotect, at, len, rights) } != 0 {
            self.give(at, at + len, false);
            return None;
        }
        self.early.push((at, at + len));
        Some(at)
    }

    /// Pages those parts of early mappings that are not in use by now. The pager's threads may need
    /// the others.
    pub fn open_early(&mut self) {
        for (at, end) in std::mem::take(&mut self.early) {
            if !self.ranges.unused(at, end).is_empty() {
                // A part was unmapped. The rest stays as it is.
                continue;
            }
            let mut from = at;
            for part in (at..end).step_by(EARLY_PART) {
                let next = end.min(part + EARLY_PART);
                if memory::is_begun(part, next - part) {
                    self.open_pages(from, part);
                    from = next;
                }
            }
            self.open_pages(from, end);
        }
    }

    /// Makes closed pages of a range in use readable and writable. Returns whether that was
    /// possible.
    pub fn open_pages(&mut self, at: usize, to: usize) -> bool {
        if at == to {
            return true;
        }
        if !self.is_backed(to - at) {
            return false;
        }
        let rights = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the pages could not be touched before.
        let opened = memory::alike(|| unsafe { libc::syscall(libc::SYS_mprotect, at, to - at, rights) }) == 0;
        if opened {
            self.dress(at, to, false);
            self.readmit(at, to);
        }
        opened
    }

    /// Whether a place that the program names, without insisting, is free for it: in the first
    /// part, not far behind all addresses that were ever handed out, so that used memory stays
    /// together.
    pub fn has_place(&mut self, at: usize, to: usize) -> bool {
        at >= START.load(Relaxed)
            && to <= WIDE.load(Relaxed).min(self.ranges.fresh() + PLACES_BEHIND)
            && !self.ranges.is_used(at, to)
            && self.is_backed(to - at)
    }

    /// Notes that the program unmaps a range: it may have named another place for this range.
    pub fn is_unmapped(&mut self, at: usize, to: usize) {
        let special = self.special_bytes(at, to);
        self.reserving.is_unmapped((at, to), is_wide(at), || special >= to - at);
        self.mapping.is_unmapped((at, to), false, || special == 0 && !memory::is_begun(at, to - at));
    }

    /// Takes a range for a fixed mapping. Returns whether the range may be taken. In the wide part,
    /// unused pages of the same blocks stay inaccessible.
    pub fn claim(&mut self, at: usize, to: usize) -> bool {
        if !self.ranges.may_take(at, to) {
            return false;
        }
        if is_wide(at) {
            let block = setup::block();
            for edge in [at / block * block, (to - 1) / block * block] {
                if self.is_loose(edge) {
                    for (from, end) in self.ranges.unused(edge, edge + block) {
                        self.note(from, |reasons| reasons.close(from, end));
                    }
                }
            }
        }
        true
    }

    /// The first page of a range that is in the arena and not in use: the program has no mapping
    /// there.
    pub fn first_hole(&self, at: usize, to: usize) -> Option<usize> {
        self.holes(at, to).first().map(|&(from, _)| from)
    }

    pub(super) fn holes(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        part_of(at, to).map_or_else(Vec::new, |(from, to)| self.ranges.unused(from, to))
    }

    /// The part of a range around an address that is in use and has no mapped file that is paged.
    pub fn in_use_around(&self, from: usize, to: usize, at: usize) -> Option<(usize, usize)> {
        let mut others = self.holes(from, to).into_iter().chain(self.files.within(from, to));
        others.try_fold((from, to), |(from, to), (start, end)| {
            if at < start { Some((from, to.min(start))) } else { (at >= end).then_some((from.max(end), to)) }
        })
    }

    /// The parts of a range without the pages of the arena that are not in use.
    pub fn mapped_within(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        let mut next = at;
        let mut parts = Vec::new();
        for (from, end) in self.holes(at, to).into_iter().chain([(to, to)]) {
            if next < from {
                parts.push((next, from));
            }
            next = end;
        }
        parts
    }

    /// Unmaps, at once, mappings of the program in blocks of which it unmaps only a part: a file
    /// may depend on it.
    pub(super) fn unmap_edges(&mut self, at: usize, to: usize) {
        let block = setup::block();
        let (first, last) = (at.next_multiple_of(block).min(to), (to / block * block).max(at));
        for (from, end) in [(at, first), (last.max(first), to)] {
            for (from, end) in self.reasons.within(from, end, Why::MAPPED) {
                // SAFETY: the program unmaps these pages.
                let plain = unsafe {
                    if is_wide(from) {
                        memory::close(from, end - from)
                    } else {
                        memory::replace(from as *mut u8, end - from).map(|_| ())
                    }
                };
                setup::or_fail(plain.map_err(terapage_pager::Error::from));
                if self.pager.is_some() {
                    memory::advise(from, end - from, libc::MADV_DONTFORK);
                }
            }
        }
    }

    /// Drops the bytes of whole blocks in a range, which is about to be closed.
    pub fn drop_blocks(&self, at: usize, to: usize) {
        let block = setup::block();
        let (first, last) = (at.next_multiple_of(block), to / block * block);
        if first < last {
            for (from, to) in self.reasons.paged_within(first, last) {
                self.discard_blocks(from, to);
            }
        }
    }

    /// Sets further properties of pages whose rights have changed. In the wide part, core dumps
    /// contain only accessible pages: otherwise the kernel would inspect each of the others. All
    /// closed pages have the same properties, so that the kernel has few mappings.
    pub fn dress(&self, at: usize, to: usize, is_closed: bool) {
        if is_wide(at) {
            memory::advise(at, to - at, if is_closed { libc::MADV_DONTDUMP } else { libc::MADV_DODUMP });
            if is_closed {
                memory::advise(at, to - at, libc::MADV_NOHUGEPAGE);
                if self.pager.is_some() {
                    for (from, end) in self.reasons.without(at, to, Why::MAPPED) {
                        memory::advise(from, end - from, libc::MADV_DONTFORK);
                    }
                }
            }
        }
    }

    /// Closes blocks of the wide part that no longer have a user: they become as if never used.
    pub(super) fn close(&mut self, from: usize, to: usize) {
        for (start, end) in self.reasons.paged_within(from, to) {
            if let Some(pager) = &self.pager {
                setup::or_fail(pager.discard(start, end - start));
                setup::or_fail(pager.release(start, end - start));
            }
        }
        self.note(from, |reasons| reasons.set_unused(from, to));
        // SAFETY: no code uses the range.
        setup::or_fail(unsafe { memory::close(from, to - from) }.map_err(terapage_pager::Error::from));
        self.dress(from, to, true);
    }
}
