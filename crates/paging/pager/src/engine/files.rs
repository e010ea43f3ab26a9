//! Data files as regions: the blocks of a mapped file begin in the file.
//!
//! A file is a store that is only read, with a separate origin (a number). A block that the program
//! has changed goes to the pager's own store like any other block. `Pager::sync_file` writes the
//! block to the file, and from then on the file is the block's store again.
//!
//! The pager did not write the bytes of a file, so it has no hashes of them at first. The first
//! page-in of a block takes its hash; later page-ins are checked against it. If somebody else
//! changes a mapped file, the program is stopped when a block that was read before comes back
//! different.

use super::Engine;
use super::table::State;
use crate::carry::hash;
use crate::error::Error;
use crate::pager::Pager;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use terapage_store::{
    Below, BelowMut, EXTENT, Ended, Error as StoreError, Notes, Op, OpKind, Store, StoreRing,
};
use terapage_sys::fd::Fd;
use terapage_sys::memory;
use terapage_sys::ring::{Done, Piece};

/// The hash of a block whose bytes in its file were never read.
pub(crate) const UNKNOWN: u128 = 0;

/// Parts of a file, of [`EXTENT`] bytes, that are written before the file is made durable. Their
/// hashes are kept until then. Chosen, not measured.
const DURABLE_PARTS: usize = 512;

/// The name of the call that makes a file durable, for errors.
pub const FDATASYNC: &str = "fdatasync";

/// Part of a file, as given to `Pager::map_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// A descriptor that is open for reading until the request is answered.
    pub fd: RawFd,
    pub offset: u64,
    /// Bytes of the part; zeros follow.
    pub bytes: u64,
}

/// Blocks that hold part of a file.
pub(crate) struct Mapped {
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) origin: u8,
    /// The slot of the first block in the file.
    pub(super) slot: u32,
}

impl Mapped {
    /// The number of the file, as a store.
    pub fn origin(&self) -> u8 {
        self.origin
    }

    /// Each block has become `more` blocks.
    pub fn split(&mut self, more: u32) {
        self.first *= more;
        self.end *= more;
        self.slot *= more;
    }
}

/// A file as a store, from `offset` on. Behind `bytes` bytes it reads as zeros.
struct DataFile {
    fd: Fd,
    offset: u64,
    bytes: u64,
    block: usize,
    under_way: Notes<DataRead>,
}

/// A read of a file that is under way.
struct DataRead {
    wanted: usize,
    /// For a read past the end: its pieces, and the number of its bytes that the file has.
    past_end: Option<(Vec<Piece>, usize)>,
}

/// The store in place of a file that is no longer mapped.
pub(super) struct Gone;

impl Store for DataFile {
    fn name(&self) -> String {
        let link = format!("/proc/thread-self/fd/{}", self.fd.raw());
        let path = std::fs::read_link(link).unwrap_or_default();
        format!("{} (a mapped file, perhaps changed by another program)", path.display())
    }

    fn slots(&self) -> u32 {
        self.bytes.div_ceil(self.block as u64) as u32
    }

    fn grow(&mut self) -> Result<(), StoreError> {
        Err(StoreError::Full { name: self.name(), why: "it is open only for reading".to_owned() })
    }

    fn joins(&self, _slot: u32) -> bool {
        true
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn may_split(&self, _more: usize) -> bool {
        true
    }

    fn split(&mut self, more: usize) {
        self.block /= more;
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        assert!(op.kind == OpKind::Read, "page-outs go to the pager's own store");
        let (at, wanted) = (u64::from(op.slot) * self.block as u64, op.bytes());
        // SAFETY: the caller promises pieces that stay valid until the end of the read, as the ring
        // requires.
        let begun = unsafe { ring.read(self.fd.raw(), op.pieces, self.offset + at, u64::from(op.id)) };
        if let Err(error) = begun {
            return ended.push(Ended::unbegun(op.id, &error));
        }
        let past_end = (at + wanted as u64 > self.bytes)
            .then(|| (op.pieces.to_vec(), self.bytes.saturating_sub(at) as usize));
        self.under_way.put(op.id, DataRead { wanted, past_end });
    }

    fn event(&mut self, _: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        let id = done.tag as u32;
        let read = self.under_way.take(id).expect("a read under way");
        let mut result = done.result;
        if let Some((pieces, has)) = read.past_end
            && result >= has as i32
        {
            // The file may have grown behind the mapped part: there the read gives zeros all the
            // same.
            let mut at = 0;
            for piece in pieces {
                let keep = has.saturating_sub(at).min(piece.len());
                // SAFETY: the read has ended, and its pieces have no user before the engine has
                // handled the end.
                unsafe { memory::bytes(piece.at() + keep, piece.len() - keep) }.fill(0);
                at += piece.len();
            }
            result = at as i32;
        }
        ended.push(Ended::by_result(id, result, read.wanted));
    }

    fn inherit(&mut self) -> Result<(), StoreError> {
        self.under_way.clear();
        Ok(())
    }
}

impl Store for Gone {
    fn name(&self) -> String {
        "a file that is no longer mapped".to_owned()
    }

    fn slots(&self) -> u32 {
        0
    }

    fn grow(&mut self) -> Result<(), StoreError> {
        Err(StoreError::Full { name: self.name(), why: "it is gone".to_owned() })
    }

    fn below(&self) -> Below<'_> {
        Below::Nothing
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Nothing
    }

    fn may_split(&self, _more: usize) -> bool {
        true
    }

    fn split(&mut self, _more: usize) {}

    unsafe fn begin(&mut self, _: &mut StoreRing<'_>, _: Op<'_>, _: &mut Vec<Ended>) {
        unreachable!("no block refers to it")
    }

    fn event(&mut self, _: &mut StoreRing<'_>, _: Done, _: &mut Vec<Ended>) {
        unreachable!("it has begun nothing")
    }
}

impl Engine {
    /// Whether an origin is that of a mapped file.
    pub(crate) fn is_file(&self, origin: u8) -> bool {
        self.files.iter().any(|file| file.origin == origin)
    }

    /// Maps part of a file at blocks, whose old bytes are dropped.
    pub(crate) fn map_file(&mut self, first: u32, end: u32, part: Part) -> Result<(), Error> {
        self.discard(first, end)?;
        // SAFETY: the requesting thread keeps the file open until this request is answered.
        let fd = unsafe { BorrowedFd::borrow_raw(part.fd) };
        let store = DataFile {
            fd: Fd::copy(fd)?,
            offset: part.offset,
            bytes: part.bytes,
            block: self.block,
            under_way: Notes::default(),
        };
        let slots = store.slots();
        // The last step that can fail: from here on the number is in use.
        let origin = self.io.add_store(Box::new(store))?;
        self.files.push(Mapped { first, end, origin, slot: 0 });
        for slot in 0..slots.min(end - first) {
            let entry = self.table.get_mut(first + slot);
            entry.set_slot(Some(slot));
            entry.origin = origin;
            (entry.hash, entry.half) = (UNKNOWN, false);
            self.table.set_state(first + slot, State::Stored);
        }
        Ok(())
    }

    /// The index of the file that is mapped at these blocks.
    pub(super) fn file_at(&self, first: u32, end: u32) -> Option<usize> {
        self.files.iter().position(|file| file.first <= first && end <= file.end)
    }

    /// Unmaps the file at these blocks: they read as zeros from now on.
    pub(crate) fn unmap_file(&mut self, first: u32, end: u32) -> Result<(), Error> {
        let index = self.file_at(first, end).ok_or(Error::NoFile)?;
        self.discard(first, end)?;
        let file = self.files.swap_remove(index);
        self.io.remove_store(file.origin, Box::new(Gone));
        Ok(())
    }

    /// Whether the bytes of each block may differ from the file's, and the number of bytes of a
    /// block.
    pub(crate) fn changed(&mut self, first: u32, end: u32) -> Result<(Vec<bool>, usize), Error> {
        let index = self.file_at(first, end).ok_or(Error::NoFile)?;
        let origin = self.files[index].origin;
        self.settle(first, end);
        let mut marks = Vec::with_capacity((end - first) as usize);
        for block in first..end {
            let entry = self.table.get(block);
            let from_file = entry.slot().is_some() && entry.origin == origin;
            let mark = match entry.state {
                State::Stored | State::Soft => !from_file,
                // Pages may be missing, which this thread cannot wait for.
                State::Mapped if self.mover.events.were_removed(self.table.address(block), self.block) => {
                    true
                }
                _ if from_file && entry.half => true,
                State::Mapped if from_file => {
                    let (at, hash) = (self.table.address(block), entry.hash);
                    // SAFETY: the block is mapped, and only this thread takes it away. If the
                    // program writes to it meanwhile, the write counts as a change now, or is found
                    // at the next sync.
                    hash::hash(unsafe { memory::bytes(at, self.block) }) != hash
                }
                State::Watched if from_file => hash::hash(self.frames.pool.bytes(entry.place)) != entry.hash,
                _ => true,
            };
            if mark && from_file {
                // The file is about to be written, and will then not have the block's old bytes.
                self.drop_slot(block);
            }
            marks.push(mark);
        }
        Ok((marks, self.block))
    }

    /// Notes that the file now has bytes with these hashes, for each block whose hash is not
    /// [`UNKNOWN`].
    pub(crate) fn written(&mut self, first: u32, end: u32, hashes: &[u128]) -> Result<(), Error> {
        let index = self.file_at(first, end).ok_or(Error::NoFile)?;
        let (start, origin) = (self.files[index].first, self.files[index].origin);
        self.settle(first, end);
        if hashes.len() != (end - first) as usize {
            // Blocks were split after the hashes were computed. The blocks have other slots, or
            // none, so nothing is lost.
            return Ok(());
        }
        for (block, &hash) in (first..end).zip(hashes) {
            let entry = self.table.get(block);
            let same = match entry.state {
                // At the page-out, the hash is compared with that of the bytes at that time.
                State::Mapped | State::Watched => true,
                State::Soft | State::Stored => entry.slot().is_some() && entry.hash == hash,
                _ => false,
            };
            if hash == UNKNOWN || !same {
                continue;
            }
            self.drop_slot(block);
            let entry = self.table.get_mut(block);
            entry.set_slot(Some(block - start));
            entry.origin = origin;
            (entry.hash, entry.half) = (hash, false);
        }
        Ok(())
    }
}

impl Pager {
    /// Maps `bytes` bytes of a file, from `offset` on, at a paged range; zeros follow. The file is
    /// read as the blocks are touched. If it was opened with O_DIRECT, `offset` must be a multiple
    /// of the page size.
    ///
    /// # Errors
    /// The range is not completely paged, or too many files are mapped.
    pub fn map_file(
        &self,
        start: usize,
        len: usize,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        let part = Part { fd: file.as_raw_fd(), offset, bytes };
        self.mailbox.ask_for(start, len, move |engine, first, end| engine.map_file(first, end, part))
    }

    /// Unmaps a range: it reads as zeros from now on. Changes that were not synced are lost.
    ///
    /// # Errors
    /// No file is mapped there.
    pub fn unmap_file(&self, start: usize, len: usize) -> Result<(), Error> {
        self.mailbox.ask_for(start, len, Engine::unmap_file)
    }

    /// Writes the program's changes in a mapped range back to its file, within `bytes` bytes of the
    /// file from `offset` on, and waits until they are durable. Returns the bytes written.
    ///
    /// Only one thread at a time may call it for a file. Bytes that other threads write to the
    /// range meanwhile reach the file now or at the next sync.
    ///
    /// # Errors
    /// The file cannot be written or made durable: the next sync tries the missing parts again. Or
    /// no file is mapped there.
    pub fn sync_file(
        &self,
        start: usize,
        len: usize,
        file: &File,
        offset: u64,
        bytes: u64,
    ) -> Result<u64, Error> {
        let mut buffer = vec![0u8; EXTENT.max(self.block)];
        let mut written = Vec::new();
        let mut total = 0;
        for part in (0..len).step_by(buffer.len()) {
            let size = buffer.len().min(len - part);
            let mut hashes = Vec::new();
            let inside = bytes.saturating_sub(part as u64).min(size as u64) as usize;
            let done = self.write_part(
                start + part,
                &mut buffer[..size],
                inside,
                file,
                offset + part as u64,
                &mut hashes,
            );
            if hashes.iter().any(|&hash| hash != UNKNOWN) {
                written.push((start + part, size, hashes));
            }
            if done.is_err() || written.len() == DURABLE_PARTS {
                // The first error is reported.
                let durable = self.make_durable(file, &mut written);
                total += done?;
                durable?;
            } else {
                total += done?;
            }
        }
        self.make_durable(file, &mut written)?;
        Ok(total)
    }

    /// Writes the changed blocks of a part to the file, which has the part's first `inside` bytes,
    /// and notes the hashes of the blocks written. Returns the bytes written.
    fn write_part(
        &self,
        at: usize,
        buffer: &mut [u8],
        inside: usize,
        file: &File,
        offset: u64,
        hashes: &mut Vec<u128>,
    ) -> Result<u64, Error> {
        let (marks, block) = self.mailbox.ask_for(at, buffer.len(), Engine::changed)?;
        hashes.resize(marks.len(), UNKNOWN);
        let (mut first, mut total) = (0, 0);
        while let Some(skip) = marks[first..].iter().position(|&mark| mark) {
            first += skip;
            let run = marks[first..].iter().take_while(|&&mark| mark).count();
            let from = first * block;
            let copy = &mut buffer[..run * block];
            // SAFETY: the range is mapped; a missing page comes in through a fault. If the program
            // writes to it meanwhile, the copied bytes are hashed and written.
            unsafe {
                std::ptr::copy_nonoverlapping((at + from) as *const u8, copy.as_mut_ptr(), copy.len());
            }
            let inside = inside.saturating_sub(from).min(copy.len());
            terapage_sys::file::write_all(file, &copy[..inside], offset + from as u64)
                .map_err(|source| terapage_sys::Error { call: "write to the mapped file", source })?;
            // Behind the end of the file, a page-in gives zeros.
            copy[inside..].fill(0);
            for (hash, bytes) in hashes[first..].iter_mut().zip(copy.chunks(block)) {
                *hash = hash::hash(bytes);
            }
            total += inside as u64;
            first += run;
        }
        Ok(total)
    }

    /// Makes the bytes that were written to the file durable. Only then does the file count as the
    /// blocks' store: if a write fails later, `fdatasync` reports it once, and then only memory has
    /// the bytes.
    fn make_durable(&self, file: &File, written: &mut Vec<(usize, usize, Vec<u128>)>) -> Result<(), Error> {
        file.sync_data().map_err(|source| terapage_sys::Error { call: FDATASYNC, source })?;
        for (start, len, hashes) in written.drain(..) {
            self.mailbox
                .ask_for(start, len, move |engine, first, end| engine.written(first, end, &hashes))?;
        }
        Ok(())
    }
}
