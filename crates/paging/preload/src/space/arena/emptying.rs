//! Memory that the program returns, or whose bytes it drops.

use super::*;

impl Arena {
    /// Gives pages back. With `keep`, their bytes may stay, and be handed out again unchanged.
    pub fn give(&mut self, at: usize, to: usize, keep: bool) {
        let mut freed = Vec::new();
        self.unmap_files(at, to);
        self.unmap_edges(at, to);
        self.forget(at, to);
        self.ranges.give(at, to, |from, to| freed.push((from, to)));
        for (from, to) in freed {
            if is_wide(from) {
                self.close(from, to);
                self.ranges.put(from, to, true);
                continue;
            }
            self.restore(from, to);
            let keep = keep && to - from <= DIRTY_BYTES / 2;
            if !keep && self.pager.is_some() {
                self.ranges.put_waiting(from, to);
                continue;
            }
            if !keep {
                self.discard_blocks(from, to);
            }
            self.ranges.put(from, to, !keep);
        }
        let (count, bytes) = self.ranges.waiting();
        if count >= WAITING_MOST || bytes > most_waiting() {
            self.drop_waiting();
        }
        if self.ranges.dirty_bytes > self.most_dirty() {
            for (from, to) in self.ranges.take_dirty() {
                self.discard_blocks(from, to);
                self.ranges.put(from, to, true);
            }
        }
        self.count_by_region(at, to);
    }

    /// Discards all waiting ranges, by one request.
    pub(super) fn drop_waiting(&mut self) {
        let waiting: Vec<_> = self.ranges.take_waiting().into_iter().collect();
        if let Some(pager) = self.pager.as_ref().filter(|_| !waiting.is_empty()) {
            setup::or_fail(pager.discard_all(&waiting));
        }
        waiting.into_iter().for_each(|(from, to)| self.ranges.put(from, to, true));
    }

    /// The most unused bytes that stay in memory. Without a pager they count as the program's.
    pub(super) fn most_dirty(&self) -> usize {
        match &self.pager {
            None => DIRTY_BYTES.min(self.start_at.saturating_sub(self.in_use())),
            Some(_) => DIRTY_BYTES,
        }
    }

    /// Drops the bytes of pages: they read as zeros from now on.
    pub fn discard(&mut self, at: usize, to: usize) {
        self.drop_bytes(at, to, libc::MADV_DONTNEED).ok();
    }

    /// Drops bytes by the program's advice (`MADV_DONTNEED` and the like). The kernel may refuse
    /// this for memory that is not paged, for example locked memory.
    pub fn drop_bytes(&mut self, at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
        if self.pager.is_none() {
            return self.drop_unpaged(at, to, advice);
        }
        let block = setup::block();
        for (from, end) in self.reasons.paged_within(at, to) {
            let (first, last) = (from.next_multiple_of(block), end / block * block);
            if first < last {
                self.discard_blocks(first, last);
            }
            // The parts of blocks at both ends are filled with zeros by this thread, which faults
            // like any other.
            for (from, end) in [(from, first.min(end)), (last.max(first.min(end)), end)] {
                // SAFETY: the program asks for zeros there; paged pages are readable and writable.
                unsafe { memory::bytes(from, end - from) }.fill(0);
            }
        }
        let loose = self.reasons.loose_within(at, to);
        loose.into_iter().try_for_each(|(from, end)| self.drop_unpaged(from, end, advice))
    }

    /// Drops bytes that are not paged. If the memory may be paged later, its bytes are dropped at
    /// once: with `MADV_FREE` they could vanish later, while paged.
    pub(super) fn drop_unpaged(&self, at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
        let at_once = if advice == libc::MADV_FREE { libc::MADV_DONTNEED } else { advice };
        let (others, kept) =
            (self.reasons.without(at, to, Why::KEPT), self.reasons.within(at, to, Why::KEPT));
        for (parts, advice) in [(others, at_once), (kept, advice)] {
            for (from, end) in parts {
                // SAFETY: the program asks for the bytes to be dropped.
                unsafe { memory::drop_bytes(from, end - from, advice) }?;
            }
        }
        Ok(())
    }

    pub(super) fn discard_blocks(&self, from: usize, to: usize) {
        match &self.pager {
            Some(pager) => setup::or_fail(pager.discard(from, to - from)),
            // SAFETY: the range has no user.
            None => unsafe { memory::discard(from, to - from) }.unwrap_or(()),
        }
    }
}
