//! Files that the program only reads, in place of the kernel's own mapping.
//!
//! The blocks are those of a mapped file ([`super::files`]), and their range is *sealed*: each page
//! comes into the program write-protected, so no byte can change. If the program writes to a page,
//! its block gets the kernel's own protection, and the kernel refuses the write as it refuses every
//! write to memory that may only be read. Since nobody changes the file either, these blocks have
//! no hashes, and are clean whenever they leave.
//!
//! The range may become the kernel's mapping of the file, in place, and no thread may see other
//! bytes meanwhile. So the blocks become Loose while their pages stay in the program, and the
//! caller, not the pager's thread, maps the file over them. A thread that touches a missing page in
//! between is woken, touches it again, and at last finds the kernel's mapping.

use super::Engine;
use super::files::{Gone, Mapped, Part};
use super::table::State;
use crate::error::Error;
use crate::pager::Pager;
use std::fs::File;
use std::os::fd::AsRawFd;
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

    /// Gives sealed blocks up. Their pages stay in the program until the caller maps something over
    /// all of them, which the caller does at once.
    fn leave_sealed(&mut self, first: u32, end: u32) -> Result<(), Error> {
        self.settle(first, end);
        let (at, len) = self.addresses(first, end);
        self.mover.events.let_leave(at, at + len);
        self.let_go(first, end);
        Ok(())
    }

    /// Forgets all that is known about sealed blocks, which are Loose. None of these blocks is
    /// being read.
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
        self.forget_part(first, end);
    }

    /// Takes blocks from the files that are mapped there. A file with no block left is closed.
    fn forget_part(&mut self, first: u32, end: u32) {
        let (met, mut rest): (Vec<Mapped>, Vec<Mapped>) = std::mem::take(&mut self.files)
            .into_iter()
            .partition(|file| file.first < end && first < file.end);
        for file in met {
            let origin = file.origin;
            for (first, end) in [(file.first, first), (end, file.end)] {
                if first < end {
                    rest.push(Mapped { first, end, origin });
                }
            }
            if rest.iter().all(|other| other.origin != origin) {
                self.io.remove_store(origin, Box::new(Gone));
            }
        }
        self.files = rest;
    }

    /// The program has written to a sealed block: the kernel refuses the write when it is tried
    /// again.
    pub(crate) fn refuse_write(&mut self, block: u32) {
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

    /// Stops paging a part of a sealed range. The caller then maps something over all of it at
    /// once. Until then, threads that touch this part see the file's bytes, or wait.
    ///
    /// # Errors
    /// The range is not completely paged.
    pub fn leave_sealed(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::leave_sealed)
    }
}
