//! Parts of the arena that are not paged for a while: memory that the program protects, locks or
//! keeps across forks.

use super::*;

impl Arena {
    /// The parts of a range whose pages are special: not plain readable and writable memory.
    pub fn special_within(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.within(at, to, Why::SPECIAL)
    }

    /// Bytes of a range whose pages are special.
    pub fn special_bytes(&self, at: usize, to: usize) -> usize {
        self.special_within(at, to).iter().map(|(from, to)| to - from).sum()
    }

    /// The parts of a range with special properties, ascending and disjoint: a fork's child must
    /// find them empty, or they are shared, a file's, locked, or have a protection key.
    pub fn special(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.within(at, to, Why::WIPED | Why::KEPT | Why::LOCKED)
    }

    /// Bytes of locked pages.
    pub fn locked_bytes(&self) -> usize {
        self.reasons.locked_bytes()
    }

    /// The parts of a range that are not locked.
    pub fn unlocked_within(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.without(at, to, Why::LOCKED)
    }

    /// Whether the block at an address is not paged.
    pub fn is_loose(&self, at: usize) -> bool {
        self.reasons.any_loose(at, at + 1)
    }

    /// Whether any block of a range is not paged.
    pub fn any_loose(&self, at: usize, to: usize) -> bool {
        self.reasons.any_loose(at, to)
    }

    /// Lengthens a range to `len` bytes, if there is room. The new bytes are zero.
    pub fn extend(&mut self, at: usize, len: usize) -> bool {
        let Some(to) = self.ranges.end_of(at) else { return false };
        let edge = to.next_multiple_of(setup::block());
        // The rest of a wide range's last block cannot be touched, and the rest of a released block
        // may have any contents.
        let is_special = to < edge && self.is_loose(to);
        if self.ranges.is_waiting(edge) {
            self.drop_waiting();
        }
        let extended = !is_wide(at) && !is_special && self.ranges.extend(at, len);
        if extended && to < edge {
            // The program may have unmapped the rest before, so it may have old bytes.
            self.discard(to, edge.min(at + len));
        }
        self.start_if_due();
        self.show_in_dumps();
        self.count_by_region(at, at + len);
        extended
    }

    /// Stops paging every block that the range touches, since the program makes pages of the range
    /// special.
    ///
    /// # Errors
    /// ENOMEM if the process may have no more mappings; then nothing has changed.
    pub fn release(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        self.stop(at, to)?;
        self.note(at, |reasons| reasons.close(at, to));
        Ok(())
    }

    /// Notes that a range is not paged, before there is a pager.
    pub fn close_unpaged(&mut self, at: usize, to: usize) {
        self.note(at, |reasons| reasons.close(at, to));
    }

    /// Lets the pager release every block that the range touches. The caller then notes why.
    pub(super) fn stop(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        let block = setup::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        self.leave_files(first, last);
        let parts = self.reasons.paged_within(first, last);
        for (index, &(from, to)) in parts.iter().enumerate() {
            match self.pager.as_ref().map_or(Ok(()), |pager| pager.release(from, to - from)) {
                Err(terapage_pager::Error::System(error)) if error.errno() == libc::ENOMEM => {
                    parts[..index].iter().for_each(|&(from, to)| self.page_again(from, to));
                    return Err(error);
                }
                other => setup::or_fail(other),
            }
        }
        Ok(())
    }

    /// Notes that pages of a range are plain memory again, with their bytes, and pages the blocks
    /// that have no special page left.
    pub fn readmit(&mut self, at: usize, to: usize) {
        self.end_reason(at, to, Reasons::plain_again);
        self.start_if_due();
    }

    /// Takes a reason from pages of a range, and pages the blocks that have none left.
    pub(super) fn end_reason(&mut self, at: usize, to: usize, end: fn(&mut Reasons, usize, usize)) {
        let block = setup::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        let loose = self.reasons.loose_within(first, last);
        self.note(at, |reasons| end(reasons, at, to));
        for (from, to) in loose {
            for (from, to) in self.reasons.paged_within(from, to) {
                self.page_again(from, to);
            }
        }
    }

    /// The parts of a range whose blocks are paged.
    pub fn paged_blocks(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.paged_within(at, to)
    }

    /// The largest paged range around an address of the arena.
    pub fn paged_around(&self, at: usize) -> Option<(usize, usize)> {
        self.reasons.paged_around(at, START.load(Relaxed), END.load(Relaxed))
    }

    /// The parts of a range that may have nonzero bytes.
    pub fn filled_within(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        let Some(pager) = &self.pager else { return vec![(at, to)] };
        let block = setup::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        let touched = setup::or_fail(pager.touched(first, last - first));
        let parts = touched.into_iter().chain(self.reasons.loose_within(first, last));
        parts.map(|(from, end)| (from.max(at), end.min(to))).collect()
    }

    /// Pages parts again that were released for a call that the kernel then refused. They were
    /// readable and writable; the kernel may have changed some of several mappings before it
    /// refused.
    pub fn take_back(&mut self, parts: Vec<(usize, usize)>) {
        let rights = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        for (from, to) in parts {
            // SAFETY: the memory belongs to the program, and gets the rights that it had before the
            // call.
            if memory::alike(|| unsafe { libc::syscall(libc::SYS_mprotect, from, to - from, rights) }) == 0 {
                self.reasons.unkeep(from, to);
                self.readmit(from, to);
            }
        }
    }

    /// Lets the pager page blocks that have no reason any more not to be paged.
    pub(super) fn page_again(&self, from: usize, to: usize) {
        if let Some(pager) = &self.pager {
            guard::bring_pinned(from, to);
            memory::advise(from, to - from, libc::MADV_DONTFORK);
            setup::or_fail(pager.restore(from, to - from));
        }
    }

    /// Stops paging every block that the range touches, until its pages are returned or mapped
    /// again. Every fork copies the range.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub fn keep(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        self.release(at, to)?;
        self.reasons.keep(at, to);
        // The range may hold other memory later, of which the advice for each fork stays. So what
        // stays here instead is copied by every fork from now on.
        memory::advise(at, to - at, libc::MADV_DOFORK);
        Ok(())
    }

    /// Like [`keep`](Self::keep), for a range that was already released and over which the program
    /// has mapped something.
    pub fn keep_mapped(&mut self, at: usize, to: usize) {
        self.note(at, |reasons| reasons.keep_mapped(at, to));
    }

    /// Stops paging every block that the range touches, until its pages are unlocked.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub fn lock_pages(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        self.stop(at, to)?;
        self.note(at, |reasons| reasons.lock(at, to));
        Ok(())
    }

    /// Notes that pages of a range are not locked any more: they are as before.
    pub fn unlock_pages(&mut self, at: usize, to: usize) {
        for (from, end) in self.reasons.within(at, to, Why::LOCKED) {
            self.end_reason(from, end, Reasons::unlock);
        }
    }

    /// Notes that no page is locked. In the child of a fork this is so from its beginning.
    pub fn unlock_all(&mut self) {
        self.unlock_pages(0, usize::MAX);
    }

    /// Forgets the properties of a range, which is replaced by other memory.
    pub fn forget(&mut self, at: usize, to: usize) {
        self.forget_private(at, to);
        self.reasons.forget(at, to);
    }

    /// The parts of a range over which the program, or this library for it, has mapped something.
    pub fn mapped_by_program(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.within(at, to, Why::MAPPED)
    }

    /// The other parts of a range.
    pub fn not_mapped_by_program(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.without(at, to, Why::MAPPED)
    }

    /// Whether any page of a range is locked.
    pub fn has_locked(&self, at: usize, to: usize) -> bool {
        !self.reasons.within(at, to, Why::LOCKED).is_empty()
    }

    /// Notes that the child of a fork must find pages of a range empty. Such pages are not paged:
    /// the kernel empties them.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub fn wipe_on_fork(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        self.stop(at, to)?;
        self.note(at, |reasons| reasons.wipe(at, to));
        Ok(())
    }

    /// Notes that the child of a fork may find pages of a range as they are.
    pub fn keep_on_fork(&mut self, at: usize, to: usize) {
        for (from, end) in self.reasons.within(at, to, Why::WIPED) {
            self.end_reason(from, end, Reasons::unwipe);
        }
    }

    /// Puts fresh zero memory over a range, like a fixed mapping, and pages its whole blocks.
    pub fn renew(&mut self, at: usize, to: usize) {
        self.forget(at, to);
        let block = setup::block();
        let (first, last) = (at.next_multiple_of(block), to / block * block);
        for (from, end) in self.reasons.loose_within(at, to) {
            // SAFETY: the program replaces the old mappings.
            let replaced = unsafe { memory::replace(from as *mut u8, end - from) };
            setup::or_fail(replaced.map_err(terapage_pager::Error::from));
        }
        for (from, end) in self.reasons.paged_within(at, to) {
            self.discard(from, end);
        }
        if first < last {
            self.readmit(first, last);
        }
        if at < first.min(to) {
            self.readmit(at, first.min(to));
        }
        if last.max(at) < to {
            self.readmit(last.max(at), to);
        }
    }

    /// After a refused fixed mapping: the unused parts of the range become fresh and paged,
    /// whatever the kernel has done to them.
    pub fn regain(&mut self, at: usize, to: usize) {
        for (from, end) in self.ranges.unused(at, to) {
            if !is_wide(from) {
                self.renew(from, end);
            }
        }
    }

    /// Makes blocks that no longer have a user plain memory again, and pages them.
    pub fn restore(&mut self, from: usize, to: usize) {
        let loose = self.reasons.loose_within(from, to);
        if loose.is_empty() {
            return;
        }
        self.note(from, |reasons| reasons.free(from, to));
        for (start, end) in loose {
            // SAFETY: the range has no user.
            let replaced = unsafe { memory::replace(start as *mut u8, end - start) };
            setup::or_fail(replaced.map_err(terapage_pager::Error::from));
            self.page_again(start, end);
        }
    }
}
