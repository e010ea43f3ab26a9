//! Files in place of the kernel's own mapping, which the program only reads, or changes privately.
//!
//! The blocks are those of a mapped file ([`super::files`]), and their range is *sealed*: each page
//! comes into the program write-protected, so no byte can change. If the program writes to a page
//! that it may only read, its block gets the kernel's own protection, and the kernel refuses the
//! write as it refuses every write to such memory. Since nobody changes the file either, these
//! blocks have no hashes, and are clean whenever they leave.
//!
//! A private mapping may be written, which does not change the file. The first write to a block
//! unseals the block: from then on it is ordinary memory, whose bytes go to the pager's own store.
//! If the program drops its changes, the block is the file's again.
//!
//! The range may become the kernel's mapping of the file, in place, and no thread may see other
//! bytes meanwhile. So the blocks become Loose while their pages stay in the program, and the
//! caller, not the pager's thread, maps the file over them. A thread that touches a missing page in
//! between is woken, touches it again, and at last finds the kernel's mapping.

use super::Engine;
use super::files::{Gone, Mapped, Part, UNKNOWN};
use super::table::State;
use crate::error::Error;
use crate::pager::Pager;
use std::fs::File;
use std::os::fd::AsRawFd;
use terapage_stats::Counters;
use terapage_sys::memory;

impl Engine {
    fn addresses(&self, first: u32, end: u32) -> (usize, usize) {
        (self.table.address(first), (end - first) as usize * self.block)
    }

    /// Maps part of a file at blocks, whose old bytes are dropped. The program may only read them.
    fn map_sealed(&mut self, first: u32, end: u32, part: Part) -> Result<(), Error> {
        if !self.mover.program.can_protect() {
            return Err(Error::NoProtection);
        }
        self.map_file(first, end, part)?;
        let (at, len) = self.addresses(first, end);
        // No page of the file is in the program yet: only this thread puts pages there.
        let sealed = self.mover.seal(at, len);
        if sealed.is_err() {
            self.unmap_file(first, end)?;
        }
        Ok(sealed?)
    }

    /// Unmaps sealed blocks, which nobody uses any longer. They are fresh memory from now on.
    fn unmap_sealed(&mut self, first: u32, end: u32) -> Result<(), Error> {
        self.settle(first, end);
        let (at, len) = self.addresses(first, end);
        self.mover.program.unregister(at, len)?;
        self.let_go(first, end);
        // A block to which the program has tried to write is read-only now. SAFETY: the caller says
        // that nobody uses the range.
        unsafe { memory::protect(at, len, memory::READ_WRITE) }?;
        // SAFETY: the caller says that nobody uses the range.
        unsafe { memory::discard(at, len) }?;
        self.mover.program.wake(at, len).ok();
        self.restore(first, end)
    }

    /// Gives the sealed ones of some blocks up, as at most `most` ranges of whole units of `unit`
    /// bytes, which are returned. Their pages stay in the program until the caller maps something
    /// over all of them, which the caller does at once. The other blocks, which the program has
    /// changed, are ordinary ones from now on.
    fn leave_sealed(
        &mut self,
        first: u32,
        end: u32,
        unit: usize,
        most: usize,
    ) -> Result<Vec<(usize, usize)>, Error> {
        self.settle(first, end);
        let (at, len) = self.addresses(first, end);
        self.unseal_parts_of_units(at, at + len, unit);
        self.unseal_shortest(at, at + len, most);
        self.settle(first, end);
        let sealed = self.mover.events.sealed_within(at, at + len);
        for &(from, to) in &sealed {
            self.mover.events.let_leave(from, to);
            let (first, end) = self.blocks_of(from, to - from)?;
            self.let_go(first, end);
        }
        self.forget_part(first, end);
        Ok(sealed)
    }

    /// Unseals the rest of units of which the program has changed a part: after a split, a unit of
    /// the caller is several blocks, and the caller does not page one in part.
    fn unseal_parts_of_units(&mut self, from: usize, to: usize, unit: usize) {
        for (start, end) in self.mover.events.changed_within(from, to) {
            let (start, end) = (start / unit * unit, end.next_multiple_of(unit));
            for (start, end) in self.mover.events.sealed_within(start.max(from), end.min(to)) {
                self.unseal(start, end);
            }
        }
    }

    /// Unseals the shortest sealed ranges, so that at most `most` are left: the number of mappings
    /// of a process is limited.
    fn unseal_shortest(&mut self, from: usize, to: usize, most: usize) {
        let mut sealed = self.mover.events.sealed_within(from, to);
        let excess = sealed.len().saturating_sub(most);
        sealed.sort_unstable_by_key(|(from, to)| to - from);
        sealed[..excess].iter().for_each(|&(from, to)| self.unseal(from, to));
    }

    /// Unseals sealed blocks, as if the program had changed them.
    fn unseal(&mut self, from: usize, to: usize) {
        for at in (from..to).step_by(self.block) {
            let block = self.table.block_at(at).expect("sealed blocks are paged");
            self.bring_back(block);
            self.change(block);
        }
    }

    /// Forgets all that is known about blocks of a mapped file, which are Loose from now on. None
    /// of these blocks is being read or written.
    fn let_go(&mut self, first: u32, end: u32) {
        let mut from = first;
        while let Some(block) = self.table.next_touched(from, end) {
            from = block + 1;
            let place = self.table.get(block).place;
            match self.table.state(block) {
                State::Zero | State::Loose => continue,
                State::Mapped => self.frames.count -= 1,
                State::Soft | State::Watched => self.frames.pool.put_free(place),
                State::Stored => {}
                State::Reading | State::Writing => unreachable!("the range was settled"),
            }
            self.policy.remove(block);
            self.drop_slot(block);
            self.table.get_mut(block).flags = 0;
            self.table.set_state(block, State::Zero);
        }
        self.note_loose(first, end);
        let (at, len) = self.addresses(first, end);
        self.mover.events.unseal(at, at + len);
        self.mover.events.forget_private(at, at + len);
        self.forget_part(first, end);
    }

    /// Takes blocks from the files that are mapped there. A file with no block left is closed.
    fn forget_part(&mut self, first: u32, end: u32) {
        let (met, mut rest): (Vec<Mapped>, Vec<Mapped>) = std::mem::take(&mut self.files)
            .into_iter()
            .partition(|file| file.first < end && first < file.end);
        // A file may be met in several parts, but its number is free only once.
        let mut origins: Vec<u8> = met.iter().map(Mapped::origin).collect();
        origins.sort_unstable();
        origins.dedup();
        for file in met {
            let origin = file.origin;
            for (first, end) in [(file.first, first), (end, file.end)] {
                if first < end {
                    let slot = file.slot + (first - file.first);
                    rest.push(Mapped { first, end, origin, slot });
                }
            }
        }
        self.files = rest;
        for origin in origins {
            if !self.is_file(origin) {
                self.io.remove_store(origin, Box::new(Gone));
            }
        }
    }

    /// The program has written to a sealed block, which is in memory.
    pub(crate) fn write_to_sealed(&mut self, block: u32, at: usize) {
        if self.mover.events.may_write(at) {
            self.settle(block, block + 1);
            self.change(block);
        } else {
            self.refuse_write(block);
        }
    }

    /// The program changes a sealed block, which is in memory and settled: the block is ordinary
    /// memory from now on. This wakes its threads.
    fn change(&mut self, block: u32) {
        let (at, len) = self.addresses(block, block + 1);
        self.drop_slot(block);
        self.mover.events.unseal(at, at + len);
        Counters::add(&self.counters.changed_file_bytes, len as u64);
        if self.mover.program.protect(at, len, false).is_err() {
            // The thread tries again, and the write is allowed then.
            self.mover.program.wake(at, len).ok();
        }
    }

    /// From now on the program may change these blocks of a file privately. Returns the ranges that
    /// are not paged any more, because the program has tried to write to them before.
    fn let_write(&mut self, first: u32, end: u32) -> Result<Vec<(usize, usize)>, Error> {
        let (at, len) = self.addresses(first, end);
        self.mover.events.let_write(at, at + len);
        let loose = self.table.parts(first, end, true);
        let addresses = |&(first, end): &(u32, u32)| {
            let (at, len) = self.addresses(first, end);
            (at, at + len)
        };
        Ok(loose.iter().map(addresses).collect())
    }

    /// Drops the program's changes of blocks that lie wholly in a range and that nothing else
    /// holds: they have the file's bytes again. Returns the other changed parts of the range.
    fn drop_changes(&mut self, from: usize, to: usize) -> Result<Vec<(usize, usize)>, Error> {
        let (start, stop) = (from / self.block * self.block, to.next_multiple_of(self.block));
        let (first, end) = self.blocks_of(start, stop - start)?;
        self.settle(first, end);
        let mut rest = Vec::new();
        for (start, stop) in self.mover.events.changed_within(start, stop) {
            for at in (start..stop).step_by(self.block) {
                let is_whole = from <= at && at + self.block <= to;
                let block = self.table.block_at(at).expect("changed blocks are paged");
                if !is_whole || !self.drop_change(block)? {
                    rest.push((at.max(from), (at + self.block).min(to)));
                }
            }
        }
        Ok(rest)
    }

    /// Drops the program's changes of a settled block. Returns whether that was possible.
    fn drop_change(&mut self, block: u32) -> Result<bool, Error> {
        let file = self.file_at(block, block + 1).ok_or(Error::NoFile)?;
        // The block is first taken out, since no thread may see zeros meanwhile.
        if self.table.state(block) == State::Mapped && !self.take_out(block) {
            return Ok(false);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.discard(block, 1);
        }
        self.make_zero(block, block + 1)?;
        let file = &self.files[file];
        let (slot, origin) = (file.slot + (block - file.first), file.origin);
        let entry = self.table.get_mut(block);
        entry.set_slot(Some(slot));
        entry.origin = origin;
        (entry.hash, entry.half) = (UNKNOWN, false);
        self.table.set_state(block, State::Stored);
        let (at, len) = self.addresses(block, block + 1);
        self.mover.events.seal(at, at + len);
        Ok(true)
    }

    /// The program has written to a sealed block that it may only read: the kernel refuses the
    /// write when it is tried again.
    fn refuse_write(&mut self, block: u32) {
        let (at, len) = self.addresses(block, block + 1);
        // SAFETY: the program may only read the block.
        let protected = unsafe { memory::protect(at, len, memory::READ_ONLY) }.map_err(Error::from);
        // This wakes the thread.
        if let Err(error) = protected.and_then(|()| self.release(block, block + 1)) {
            self.stop(&error.to_string());
        }
    }
}

impl Pager {
    /// Like [`map_file`](Self::map_file), for a file that the program only reads and nobody
    /// changes.
    ///
    /// # Errors
    /// Those of [`map_file`](Self::map_file); the kernel cannot protect single pages; the process
    /// may have no more mappings.
    pub fn map_sealed(
        &self,
        start: usize,
        len: usize,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        let part = Part { fd: file.as_raw_fd(), offset, bytes };
        self.mailbox.ask_for(start, len, move |engine, first, end| engine.map_sealed(first, end, part))
    }

    /// Unmaps a part of a sealed range that nobody uses any longer. The part reads as zeros from
    /// now on, and is paged as other memory.
    ///
    /// # Errors
    /// The range is not completely paged, or the process may have no more mappings.
    pub fn unmap_sealed(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::unmap_sealed)
    }

    /// Stops paging the sealed parts of a range, at most `most` of them, in whole units of `unit`
    /// bytes, and returns them. The caller then maps something over all of these at once. Until
    /// then, threads that touch such a part see the file's bytes, or wait. Other units, of which
    /// the program has changed a part, stay paged, as ordinary memory; so do the shortest sealed
    /// parts, if there are more than `most`.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn leave_sealed(
        &self,
        start: usize,
        len: usize,
        unit: usize,
        most: usize,
    ) -> Result<Vec<(usize, usize)>, Error> {
        let leave = move |engine: &mut Engine, first, end| engine.leave_sealed(first, end, unit, most);
        self.mailbox.ask_for(start, len, leave)
    }

    /// From now on the program may change a part of a sealed range, which does not change the file.
    /// Returns the blocks that are not paged any more, because the program has tried to write to
    /// them before.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn let_write(&self, start: usize, len: usize) -> Result<Vec<(usize, usize)>, Error> {
        self.mailbox.ask_for(start, len, Engine::let_write)
    }

    /// The blocks of a range that the program has changed since [`let_write`](Self::let_write).
    ///
    /// # Errors
    /// The pager has ended.
    pub fn changed_within(&self, from: usize, to: usize) -> Result<Vec<(usize, usize)>, Error> {
        self.mailbox.ask(move |engine| Ok(engine.mover.events.changed_within(from, to)))
    }

    /// Drops the program's changes in a range of whole pages, so that blocks of it have the file's
    /// bytes again. Returns the changed parts that are no whole blocks, or that something else
    /// holds: there the caller copies the file's bytes.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn drop_changes(&self, from: usize, to: usize) -> Result<Vec<(usize, usize)>, Error> {
        self.mailbox.ask(move |engine| engine.drop_changes(from, to))
    }

    /// A range is no private mapping of a file any more, but ordinary memory.
    ///
    /// # Errors
    /// The pager has ended.
    pub fn forget_private(&self, from: usize, to: usize) -> Result<(), Error> {
        self.mailbox.ask(move |engine| {
            engine.mover.events.forget_private(from, to);
            Ok(())
        })
    }
}
