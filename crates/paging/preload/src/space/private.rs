//! Private mappings of files that the program may change (`terapage run --files`).
//!
//! While such a mapping is paged ([`crate::files`]), the first write to a block makes the block
//! ordinary memory. When the mapping goes back to the kernel, only the unchanged blocks become the
//! kernel's mapping of the file: the changed ones stay paged, as ordinary memory. This file notes
//! which mapping they belong to, since some calls must find the file there: dropped pages show the
//! file's bytes, and a moved mapping is still one of the file.

use crate::arena::{ARENA, Arena};
use crate::files;
use crate::setup;
use libc::{MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_READ, PROT_WRITE};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use terapage_sys::fd::Fd;
use terapage_sys::opening::Opening;
use terapage_sys::pagemap::Pagemap;
use terapage_sys::{memory, page_bytes, shared, thread};

/// Ranges of addresses.
type Spans = Vec<(usize, usize)>;

/// A mapping, or what the program has left of it.
#[derive(Clone)]
pub struct Private {
    /// The end of its pages.
    to: usize,
    /// The place in the file at which it begins.
    offset: u64,
    file: Arc<Fd>,
}

/// Private mappings, by their start.
pub struct Privates(BTreeMap<usize, Private>);

impl Privates {
    pub const fn none() -> Privates {
        Privates(BTreeMap::new())
    }

    /// Notes a mapping.
    pub fn add(&mut self, at: usize, to: usize, offset: u64, file: Arc<Fd>) {
        self.0.insert(at, Private { to, offset, file });
    }

    /// The mapping in which an address lies, with its start.
    fn around(&self, at: usize) -> Option<(usize, &Private)> {
        let (&from, private) = self.0.range(..=at).next_back()?;
        (at < private.to).then_some((from, private))
    }

    /// The file under a range that lies in one mapping: its descriptor, and the place in it.
    pub fn under(&self, at: usize, to: usize) -> Option<(Arc<Fd>, u64)> {
        let (from, private) = self.around(at).filter(|(_, private)| to <= private.to)?;
        Some((Arc::clone(&private.file), private.offset + (at - from) as u64))
    }

    /// The addresses inside a range at which mappings begin or end.
    pub fn edges(&self, at: usize, to: usize) -> impl Iterator<Item = usize> {
        let first = self.around(at).map_or(at, |(from, _)| from);
        let met = self.0.range(first..to.max(first));
        met.flat_map(|(&from, private)| [from, private.to]).filter(move |edge| (at + 1..to).contains(edge))
    }

    /// Forgets a range. Returns whether any of it was noted.
    fn cut(&mut self, at: usize, to: usize) -> bool {
        let first = self.around(at).map_or(at, |(from, _)| from);
        let met: Vec<usize> = self.0.range(first..to.max(first)).map(|(&from, _)| from).collect();
        for &from in &met {
            let Some(private) = self.0.remove(&from) else { continue };
            if to < private.to {
                let offset = private.offset + (to - from) as u64;
                self.0.insert(to, Private { offset, ..private.clone() });
            }
            if from < at {
                self.0.insert(from, Private { to: at, ..private });
            }
        }
        !met.is_empty()
    }
}

/// Opens a file once more that is open under `fd`. (A copy of the descriptor could have a lease.)
///
/// # Errors
/// The file cannot be opened.
pub fn open(fd: RawFd) -> terapage_sys::Result<Arc<Fd>> {
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    let opened = File::open(format!("/proc/thread-self/fd/{fd}"));
    let opened = opened.map_err(|source| terapage_sys::Error { call: "open", source })?;
    let opened = Fd::adopt(opened.into())?;
    // As in `Lease::take`.
    if shared::identity(opened.raw()) != shared::identity(fd) {
        let source = std::io::Error::from_raw_os_error(libc::EAGAIN);
        return Err(terapage_sys::Error { call: "open", source });
    }
    Ok(Arc::new(opened))
}

/// The kernel's mappings in a range, with their rights.
pub fn rights_within(from: usize, to: usize) -> Vec<(usize, usize, c_int)> {
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    let maps = std::fs::read_to_string("/proc/thread-self/maps").unwrap_or_default();
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?.max(from), number(end)?.min(to));
        let rights = [(b'r', PROT_READ), (b'w', PROT_WRITE), (b'x', PROT_EXEC)];
        let has = rest.as_bytes().iter().zip(rights).filter(|&(&letter, (name, _))| letter == name);
        Some((start, end, has.map(|(_, (_, right))| right).sum()))
    };
    maps.lines().filter_map(mapping).filter(|(start, end, _)| start < end).collect()
}

/// The file's bytes from `offset` on; zeros behind its end.
fn bytes_of(file: &Fd, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    // SAFETY: the caller has the descriptor open, and this value does not close it.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(file.raw()) });
    let (mut bytes, mut done) = (vec![0; len], 0);
    while done < len {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

impl Arena {
    /// Notes that a range holds no private mapping of a file any more.
    pub fn forget_private(&mut self, at: usize, to: usize) {
        if self.files.privates.cut(at, to)
            && let Some(pager) = &self.pager
        {
            setup::or_fail(pager.forget_private(at, to));
        }
    }

    /// Whether a range lies in one private mapping of a file that the program may change.
    pub fn is_private_file(&self, at: usize, to: usize) -> bool {
        self.files.privates.under(at, to).is_some()
    }

    /// Drops the program's changes in a range of one private mapping, which is paged: it has the
    /// file's bytes again.
    pub fn drop_changes(&mut self, at: usize, to: usize) {
        let Some(pager) = &self.pager else { return };
        for (at, to) in setup::or_fail(pager.drop_changes(at, to)) {
            let Some((file, offset)) = self.files.privates.under(at, to) else { continue };
            match bytes_of(&file, offset, to - at) {
                // SAFETY: the pages are readable and writable, and the program asks for these bytes
                // there. This thread faults like any other.
                Ok(bytes) => unsafe { memory::bytes(at, to - at) }.copy_from_slice(&bytes),
                Err(error) => setup::fail(&format!("a mapped file cannot be read: {error}")),
            }
        }
    }

    /// Drops the program's changes in a range of one private mapping, which went back to the
    /// kernel: its changed pages become the kernel's mapping of the file, too.
    ///
    /// # Errors
    /// EINVAL if pages are locked and the advice is not for these; ENOMEM if the process may have
    /// no more mappings.
    fn show_file(&mut self, at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
        let refusal =
            |errno| terapage_sys::Error { call: "madvise", source: std::io::Error::from_raw_os_error(errno) };
        if advice == libc::MADV_DONTNEED && self.has_locked(at, to) {
            return Err(refusal(libc::EINVAL));
        }
        for (at, to) in self.mapped_by_program(at, to) {
            // SAFETY: the program asks for its changes to be dropped.
            unsafe { memory::drop_bytes(at, to - at, advice) }?;
        }
        for (at, to) in self.not_mapped_by_program(at, to) {
            let Some((file, offset)) = self.files.privates.under(at, to) else { continue };
            let rights = rights_within(at, to);
            self.release(at, to)?;
            for (from, to, prot) in rights {
                let place = offset + (from - at) as u64;
                if !map_file_over((from, to), prot, MAP_PRIVATE, file.raw(), place) {
                    return Err(refusal(libc::ENOMEM));
                }
                self.keep_mapped(from, to);
                if let Some(pager) = &self.pager {
                    setup::or_fail(pager.forget_private(from, to));
                }
            }
        }
        Ok(())
    }

    /// The parts of a range of one private mapping that may differ from the file, because the
    /// program has changed them.
    pub fn changed_within(&self, at: usize, to: usize) -> Spans {
        let mut changed = Vec::new();
        for (at, to) in self.file_pieces(at, to) {
            if let (true, Some(pager)) = (self.is_file(at, to), &self.pager) {
                changed.extend(setup::or_fail(pager.changed_within(at, to)));
            } else {
                changed.extend(self.not_mapped_by_program(at, to));
                self.mapped_by_program(at, to).iter().for_each(|part| changed.extend(copied_pages(*part)));
            }
        }
        changed
    }

    /// The end of the addresses of a private mapping that its file has pages for, of which `at` is
    /// one.
    pub fn end_of_file(&self, at: usize) -> usize {
        let under = self.files.privates.under(at, at + page_bytes());
        let bytes = under.and_then(|(file, offset)| files::size_of(file.raw())?.checked_sub(offset));
        at + (bytes.unwrap_or(0) as usize).next_multiple_of(page_bytes())
    }

    /// What the kernel does for advice that depends on the mapping being a file's. `None` if the
    /// advice does not.
    pub fn advise_private(&mut self, at: usize, to: usize, advice: c_int) -> Option<Result<(), c_int>> {
        if !self.is_private_file(at, to) {
            return None;
        }
        match advice {
            libc::MADV_FREE | libc::MADV_WIPEONFORK => Some(Err(libc::EINVAL)),
            libc::MADV_REMOVE => Some(Err(libc::EACCES)),
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED if !self.is_file(at, to) => {
                Some(self.show_file(at, to, advice).map_err(|error| error.errno()))
            }
            _ => None,
        }
    }

    /// Lets the program change a range of a private mapping that it could only read. Returns
    /// whether the range is paged still, or the error.
    pub fn let_write(&mut self, at: usize, to: usize) -> Result<bool, c_int> {
        match self.may_become_writable(at, to) {
            Some(true) => return Ok(true),
            Some(false) if !self.is_backed(to - at) => return Err(libc::ENOMEM),
            Some(false) => {}
            None => return Ok(false),
        }
        self.note_writable(at, to);
        let Some(pager) = &self.pager else { return Ok(false) };
        let block = setup::block();
        let loose = setup::or_fail(pager.let_write(at, (to - at).next_multiple_of(block)));
        loose.into_iter().for_each(|(at, to)| self.leave_files(at, to));
        Ok(true)
    }
}

/// Maps a file over a range, in place. Returns whether that was possible.
pub fn map_file_over((at, to): (usize, usize), prot: c_int, kind: c_int, fd: RawFd, offset: u64) -> bool {
    // The kernel would refuse what exceeds all memory, though most of it is never written.
    // (All parts of a mapping have this flag, so that they are one mapping again where they meet.)
    let flags = kind | MAP_FIXED | if kind == MAP_PRIVATE { MAP_NORESERVE } else { 0 };
    // SAFETY: the callers have given the range up for this.
    let mapped = unsafe {
        libc::syscall(libc::SYS_mmap, at, to - at, i64::from(prot), i64::from(flags), i64::from(fd), offset)
    };
    mapped >= 0
}

/// The pages of the kernel's private mapping of a file that the program has changed.
fn copied_pages((from, to): (usize, usize)) -> Spans {
    let mut pages = vec![false; (to - from) / page_bytes()];
    let _internal = thread::Internal::enter();
    let listed = Pagemap::open().and_then(|map| map.own(from, &mut pages));
    if let Err(error) = listed {
        setup::fail(&format!("the changes of a mapped file are not known: {error}"));
    }
    let mut parts: Spans = Vec::new();
    for at in (from..to).step_by(page_bytes()).zip(pages).filter_map(|(at, own)| own.then_some(at)) {
        match parts.last_mut() {
            Some((_, end)) if *end == at => *end += page_bytes(),
            _ => parts.push((at, at + page_bytes())),
        }
    }
    parts
}

/// Makes pages of private mappings the program's own, before a call of the kernel that cannot wait
/// for the pager writes to them. The pages are pinned and present.
pub fn make_own(from: usize, to: usize) {
    if !files::may_be_changed() || ARENA.is_mine() {
        return;
    }
    let mut at = from;
    while at < to {
        let part = ARENA.lock().files.writable_within(at, to);
        let Some((from, end)) = part else { return };
        for page in (from..end).step_by(page_bytes()) {
            // SAFETY: the page is present and writable.
            unsafe { memory::make_exclusive(page) };
        }
        at = end;
    }
}
