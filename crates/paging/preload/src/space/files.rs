//! Files that the program maps only to read, paged in place of the kernel's own mapping
//! (`terapage run --files`).
//!
//! The library holds a read lease of each such file. Before anybody writes to the file, the kernel
//! notifies the library. The library gives the mapping back to the kernel, in place, and then gives
//! up the lease. It also gives mappings back before calls that the pager cannot serve as the kernel
//! does: a fork, a change of rights, a lock.

use crate::arena::{ARENA, Arena};
use crate::{exit, hosted, maps, places, setup};
use libc::{MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_READ};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use terapage_config::Size;
use terapage_stats::Counters;
use terapage_sys::fd::Room;
use terapage_sys::lease::{self, Lease};
use terapage_sys::{file, memory, page_bytes, thread};

/// Smaller mappings are left to the kernel.
const LEAST: usize = 1 << 20;

/// A mapping is left to the kernel if more than this lies beyond the file's end.
const BEYOND: usize = 1 << 40;

/// A mapping is left to the kernel if less than this part (1/16) of it is missing in the page
/// cache.
const UNCACHED_PART: u64 = 16;

/// The thread that waits until leases must be given up; 0 if there is none.
static WATCHER: AtomicU32 = AtomicU32::new(0);

/// The thread checks all leases after this time, ms, even if no signal has come.
const LOOK_MS: u64 = 5000;

/// A part of a mapped file that is paged. It begins at a block's edge.
#[derive(Clone)]
struct Part {
    /// The end of its pages; its last block may be longer.
    to: usize,
    /// The place in the file at which it begins.
    offset: u64,
    /// MAP_SHARED or MAP_PRIVATE.
    kind: c_int,
    lease: Arc<Lease>,
}

impl Part {
    fn end(&self) -> usize {
        self.to.next_multiple_of(setup::block())
    }
}

/// The mapped files that are paged.
pub struct Files {
    /// Parts by their start.
    parts: BTreeMap<usize, Part>,
    /// Bytes of the parts' blocks.
    bytes: usize,
}

impl Files {
    pub const fn none() -> Files {
        Files { parts: BTreeMap::new(), bytes: 0 }
    }

    /// Bytes of the arena that hold files.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first part that meets a range of blocks.
    fn first(&self, at: usize, to: usize) -> Option<(usize, Part)> {
        let before = self.parts.range(..=at).next_back().filter(|(_, part)| part.end() > at);
        let (&from, part) = before.or_else(|| self.parts.range(at..to).next())?;
        Some((from, part.clone()))
    }

    /// Whether a range lies within one part.
    fn has(&self, at: usize, to: usize) -> bool {
        let part = self.parts.range(..=at).next_back();
        part.is_some_and(|(_, part)| to <= part.to)
    }

    /// Takes whole blocks out of the part that begins at `from`.
    fn cut(&mut self, from: usize, first: usize, end: usize) {
        let Some(part) = self.parts.remove(&from) else { return };
        self.bytes -= end - first;
        if from < first {
            self.parts.insert(from, Part { to: first, ..part.clone() });
        }
        if end < part.end() {
            self.parts.insert(end, Part { offset: part.offset + (end - from) as u64, ..part });
        }
    }
}

/// Whether a mapping is of a kind that `--files` pages.
pub fn may_page(len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> bool {
    let beside = libc::MAP_NORESERVE | libc::MAP_POPULATE | libc::MAP_NONBLOCK;
    len >= LEAST
        && prot == PROT_READ
        && matches!(flags & !beside, MAP_SHARED | MAP_PRIVATE)
        && fd >= 0
        && offset >= 0
        && maps::is_served()
        && exit::is_owner()
        && !hosted::is_host()
}

/// The size of a regular file on a file system whose files can be leased.
pub fn size_of(fd: c_int) -> Option<u64> {
    // SAFETY: plain data, for which zeros are a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` has room for the answer.
    let known = unsafe { libc::fstat(fd, &raw mut status) } == 0;
    let is_regular = known && status.st_mode & libc::S_IFMT == libc::S_IFREG;
    (is_regular && lease::is_possible(fd)).then_some(status.st_size as u64)
}

/// Bytes of the file in a mapping of `len` bytes from `offset`, and the length of the part of the
/// mapping that can be paged. Beyond the file's last page a touch is a bus error, which only the
/// kernel raises: the blocks from there on are the kernel's. `None` if too little can be paged.
fn part_of(fd: c_int, offset: u64, len: usize) -> Option<(u64, usize)> {
    let bytes = size_of(fd)?.checked_sub(offset)?.min(len as u64);
    let pages = (bytes as usize).next_multiple_of(page_bytes());
    let part = if pages == len { len } else { pages / setup::block() * setup::block() };
    (part >= LEAST && len - part <= BEYOND).then_some((bytes, part))
}

/// Says, with `--verbose`, what happens with a file.
fn say(fd: c_int, what: &str) {
    if setup::settings().is_some_and(|settings| settings.verbose) {
        let path = std::fs::read_link(format!("/proc/thread-self/fd/{fd}")).unwrap_or_default();
        thread::say(&format!("terapage: {}: {what}\n", path.display()));
    }
}

/// Maps a file that the program only reads, if the file should be paged. Returns the address;
/// `None` leaves the mapping to the kernel.
pub fn serve(len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> Option<usize> {
    let is_on = setup::settings().is_some_and(|settings| settings.files);
    if !is_on || !may_page(len, prot, flags, fd, offset) {
        return None;
    }
    // This opens files: if the thread were cancelled here, they would stay open.
    let _internal = thread::Internal::enter();
    let (len, offset) = (len.checked_next_multiple_of(page_bytes())?, offset as u64);
    let (_, part) = part_of(fd, offset, len)?;
    let mut arena = ARENA.lock();
    if arena.in_use() + arena.files.bytes + places::read_bytes() + part <= setup::budget() {
        return None;
    }
    let most = part as u64 - part as u64 / UNCACHED_PART;
    if file::cached_bytes(fd, offset, part as u64).is_some_and(|cached| cached > most) {
        say(fd, "the kernel maps this file, which is in the page cache");
        return None;
    }
    let room = Room::make();
    let mapped = arena.map_file(len, flags & (MAP_SHARED | MAP_PRIVATE), fd, offset);
    drop(room);
    match mapped {
        Ok(at) => {
            say(fd, &format!("{} of this file are paged", Size(part as u64)));
            Some(at)
        }
        Err(why) => {
            say(fd, &format!("the kernel maps this file: {why}"));
            None
        }
    }
}

/// Whether this process has ever paged a mapped file.
pub fn were_paged() -> bool {
    WATCHER.load(SeqCst) != 0
}

/// The thread that waits until leases must be given up. It starts with the first lease.
fn watcher() -> terapage_sys::Result<u32> {
    if WATCHER.load(SeqCst) == 0 {
        thread::spawn(c"terapage-files", || {
            WATCHER.store(thread::id(), SeqCst);
            thread::wake(&WATCHER);
            loop {
                lease::wait(LOOK_MS);
                ARENA.lock().give_up_leases();
            }
        })?;
        while WATCHER.load(SeqCst) == 0 {
            thread::wait(&WATCHER, 0);
        }
    }
    Ok(WATCHER.load(SeqCst))
}

/// A call of this process would wait for a lease: gives up the leases for which somebody waits.
pub fn give_way() {
    if were_paged() && exit::is_owner() {
        ARENA.lock().give_up_leases();
    }
}

/// Called in the child of a fork, which has neither paged files nor this thread.
pub fn in_child() {
    WATCHER.store(0, SeqCst);
}

impl Arena {
    /// Maps and leases a file that is open under `fd`, or says why the file cannot be paged.
    fn map_file(&mut self, len: usize, kind: c_int, fd: c_int, offset: u64) -> Result<usize, String> {
        let lease = watcher().and_then(|thread| Lease::take(fd, thread));
        let lease = lease.map_err(|error| format!("it cannot be leased: {error}"))?;
        // From here on nobody changes the file.
        let (bytes, part) = part_of(lease.fd(), offset, len).ok_or("it was truncated")?;
        // SAFETY: the lease has the descriptor open.
        let plain = unsafe { BorrowedFd::borrow_raw(lease.fd()) }.try_clone_to_owned().map(File::from);
        let plain = plain.map_err(|error| format!("it cannot be opened again: {error}"))?;
        let (direct, _) =
            file::past_cache(&plain, offset).map_err(|error| format!("it cannot be read: {error}"))?;
        if self.pager.is_none() {
            self.start();
        }
        let block = setup::block();
        let whole = len.next_multiple_of(block);
        // `take` must not count these bytes as memory of the store: files take no space there.
        self.files.bytes += whole;
        let at = self.take(whole, block, true).filter(|_| self.pager.is_some());
        let mapped = at.map(|at| {
            let pager = self.pager.as_ref().expect("it was there");
            pager.map_sealed(at, whole, direct.as_ref().unwrap_or(&plain), offset, bytes).map(|()| at)
        });
        match mapped {
            Some(Ok(at)) => {
                self.files.parts.insert(at, Part { to: at + len, offset, kind, lease: Arc::new(lease) });
                self.count(|counters| Counters::add(&counters.mapped_file_bytes, part as u64));
                if part < len {
                    // Nobody knows the range yet.
                    self.become_the_kernels(at + part, at + len);
                }
                Ok(at)
            }
            other => {
                self.files.bytes -= whole;
                if let Some(at) = at {
                    self.give(at, at + whole, false);
                }
                Err(other.map_or("there is no room".to_owned(), |error| {
                    error.expect_err("handled above").to_string()
                }))
            }
        }
    }

    fn count(&self, count: impl FnOnce(&Counters)) {
        if let Some(pager) = &self.pager {
            count(pager.counters());
        }
    }

    /// Whether all of a range belongs to one mapping of a file that is paged.
    pub fn is_file(&self, at: usize, to: usize) -> bool {
        self.files.has(at, to)
    }

    /// Gives files back to the kernel: every block of them that the range touches becomes the
    /// kernel's mapping of the file, in place.
    pub fn leave_files(&mut self, at: usize, to: usize) {
        let left = self.become_the_kernels(at, to);
        self.count(|counters| Counters::add(&counters.files_left, left));
    }

    /// Makes every block of files that the range touches the kernel's mapping of the file, in
    /// place. Returns the number of parts.
    fn become_the_kernels(&mut self, at: usize, to: usize) -> u64 {
        let block = setup::block();
        let (at, to) = (at / block * block, to.next_multiple_of(block));
        let mut left = 0;
        while let Some((from, part)) = self.files.first(at, to) {
            self.give_back(from, &part, at.max(from), to.min(part.end()));
            left += 1;
        }
        left
    }

    /// The parts of a range that are paged files, if the range also has other parts.
    pub fn files_among_others(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        if self.is_file(at, to) {
            return Vec::new();
        }
        let from = self.files.parts.range(..=at).next_back().map_or(at, |(&from, _)| from);
        let parts = self.files.parts.range(from..to).map(|(&from, part)| (from.max(at), part.to.min(to)));
        parts.filter(|(from, to)| from < to).collect()
    }

    /// Gives all files back to the kernel.
    pub fn leave_all_files(&mut self) {
        self.leave_files(0, usize::MAX / 2);
    }

    /// Gives blocks of a part back to the kernel.
    fn give_back(&mut self, from: usize, part: &Part, first: usize, end: usize) {
        let Some(pager) = &self.pager else { setup::fail("a paged file without a pager") };
        setup::or_fail(pager.leave_sealed(first, end - first));
        let to = end.min(part.to);
        let (flags, offset) = (part.kind | MAP_FIXED, part.offset + (first - from) as u64);
        // SAFETY: the pager has given the range up for this, and the file has the same bytes.
        let mapped = unsafe {
            libc::syscall(
                libc::SYS_mmap,
                first,
                to - first,
                i64::from(PROT_READ),
                i64::from(flags),
                i64::from(part.lease.fd()),
                offset,
            )
        };
        // SAFETY: no code uses the rest of the last block.
        let rest = if to < end { unsafe { memory::replace(to as *mut u8, end - to) } } else { Ok(()) };
        if mapped < 0 || rest.is_err() {
            setup::fail("a mapped file cannot become the kernel's mapping again");
        }
        self.files.cut(from, first, end);
        self.keep_mapped(first, to);
        if to < end {
            self.give(to, end, false);
        }
    }

    /// Unmaps the files in a range that the program returns. Blocks of which only a part is
    /// returned go to the kernel.
    pub fn unmap_files(&mut self, at: usize, to: usize) {
        let block = setup::block();
        while let Some((from, part)) = self.files.first(at, to) {
            let at = at.max(from);
            let to = if to >= part.to { part.end() } else { to };
            let (first, end) = (at.next_multiple_of(block), to / block * block);
            if first > at {
                self.leave_files(at, at + 1);
            } else if end < to {
                self.leave_files(to - 1, to);
            } else {
                let Some(pager) = &self.pager else { setup::fail("a paged file without a pager") };
                setup::or_fail(pager.unmap_sealed(first, end - first));
                self.files.cut(from, first, end);
                if end > part.to {
                    self.give(part.to, end, false);
                }
            }
        }
    }

    /// Gives files back to the kernel whose leases must be given up, and gives up the leases.
    fn give_up_leases(&mut self) {
        let asked = |(&from, part): (&usize, &Part)| (!part.lease.is_held()).then_some((from, part.to));
        let parts: Vec<_> = self.files.parts.iter().filter_map(asked).collect();
        for (from, to) in parts {
            let Some((_, part)) = self.files.first(from, to) else { continue };
            self.leave_files(from, to);
            say(part.lease.fd(), "the kernel maps this file from now on, since it is opened for writing");
        }
    }

    /// Follows advice about a range of one file. Returns whether the pager knows this advice.
    pub fn advise_file(&mut self, from: usize, to: usize, advice: c_int) -> bool {
        let Some(pager) = &self.pager else { return false };
        let block = setup::block();
        let (first, len) = (from / block * block, to.next_multiple_of(block) - from / block * block);
        let done = match advice {
            libc::MADV_WILLNEED | libc::MADV_POPULATE_READ => pager.will_need(first, len),
            libc::MADV_RANDOM => pager.set_random(first, len, true),
            libc::MADV_NORMAL | libc::MADV_SEQUENTIAL => pager.set_random(first, len, false),
            libc::MADV_DONTNEED | libc::MADV_COLD | libc::MADV_PAGEOUT => pager.done_with(first, len),
            libc::MADV_DODUMP | libc::MADV_DONTDUMP | libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => Ok(()),
            _ => return false,
        };
        setup::or_fail(done);
        true
    }
}
