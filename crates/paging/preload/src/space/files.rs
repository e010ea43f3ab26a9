//! Files that the program maps to read, or to change privately, paged in place of the kernel's own
//! mapping (`terapage run --files`).
//!
//! The library holds a read lease of each such file. Before anybody writes to the file, the kernel
//! notifies the library. The library gives the mapping back to the kernel, in place, and then gives
//! up the lease. It also gives mappings back before calls that the pager cannot serve as the kernel
//! does: a fork, a change of rights, a lock. Blocks that the program has changed stay paged
//! ([`crate::private`]).

use crate::arena::{self, ARENA, Arena};
use crate::maps::READ_WRITE;
use crate::private::{Privates, map_file_over};
use crate::{exit, hosted, maps, places, private, setup};
use libc::{MAP_PRIVATE, MAP_SHARED, PROT_READ};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use terapage_config::Size;
use terapage_stats::Counters;
use terapage_sys::fd::Room;
use terapage_sys::lease::{self, Lease};
use terapage_sys::opening::Opening;
use terapage_sys::{file, memory, page_bytes, thread};

/// Smaller mappings are left to the kernel.
const LEAST: usize = 1 << 20;

/// A mapping is left to the kernel if more than this lies beyond the file's end.
const BEYOND: usize = 1 << 40;

/// A mapping is left to the kernel if less than this part (1/16) of it is missing in the page
/// cache.
const UNCACHED_PART: u64 = 16;

/// A mapping that the program has changed here and there goes back to the kernel in at most this
/// many parts, each of which is a mapping (`vm.max_map_count` is 65,530).
const PARTS_MOST: usize = 8192;
/// The same if the process may have few more mappings.
const PARTS_FEW: usize = 64;

/// Whether any private mapping that may be changed was ever paged.
static MAY_BE_CHANGED: AtomicBool = AtomicBool::new(false);

/// The thread that waits until leases must be given up; 0 if there is none.
static WATCHER: AtomicU32 = AtomicU32::new(0);

/// The real and the saved user of that thread.
static WATCHERS_USERS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

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
    /// Whether the program may change it, privately.
    writable: bool,
    lease: Arc<Lease>,
}

impl Part {
    fn end(&self) -> usize {
        self.to.next_multiple_of(setup::block())
    }

    fn prot(&self) -> c_int {
        if self.writable { READ_WRITE } else { PROT_READ }
    }
}

/// The mapped files that are paged.
pub struct Files {
    /// Parts by their start.
    parts: BTreeMap<usize, Part>,
    /// Bytes of the blocks of parts that the program only reads.
    bytes: usize,
    /// Private mappings, paged or given back.
    pub privates: Privates,
}

impl Files {
    pub const fn none() -> Files {
        Files { parts: BTreeMap::new(), bytes: 0, privates: Privates::none() }
    }

    /// Bytes of the arena that hold files which the program only reads. Those of others count as
    /// memory in use, since the store must hold them once they are changed.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether any file is paged.
    pub fn any(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The first part of a range in which the program may change a paged file.
    pub fn writable_within(&self, at: usize, to: usize) -> Option<(usize, usize)> {
        let before = self.parts.range(..=at).next_back().map_or(at, |(&from, _)| from);
        let mut met = self.parts.range(before..to).filter(|(_, part)| part.writable && part.to > at);
        met.next().map(|(&from, part)| (from.max(at), part.to.min(to)))
    }

    /// The first part that meets a range of blocks.
    fn first(&self, at: usize, to: usize) -> Option<(usize, Part)> {
        let before = self.parts.range(..=at).next_back().filter(|(_, part)| part.end() > at);
        let (&from, part) = before.or_else(|| self.parts.range(at..to).next())?;
        Some((from, part.clone()))
    }

    /// The parts that meet a range.
    pub fn within(&self, at: usize, to: usize) -> impl Iterator<Item = (usize, usize)> {
        let before = self.parts.range(..=at).next_back().map_or(at, |(&from, _)| from);
        let met = self.parts.range(before..to).map(|(&from, part)| (from, part.end()));
        met.filter(move |&(_, end)| end > at)
    }

    /// Whether a range lies within one part.
    fn has(&self, at: usize, to: usize) -> bool {
        let part = self.parts.range(..=at).next_back();
        part.is_some_and(|(_, part)| to <= part.to)
    }

    /// Takes whole blocks out of the part that begins at `from`.
    fn cut(&mut self, from: usize, first: usize, end: usize) {
        let Some(part) = self.parts.remove(&from) else { return };
        self.bytes -= if part.writable { 0 } else { end - first };
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
    let kind = flags & !beside;
    len >= LEAST
        && (prot == PROT_READ && kind == MAP_SHARED
            || kind == MAP_PRIVATE && prot & !libc::PROT_WRITE == PROT_READ)
        && fd >= 0
        && offset >= 0
        && maps::is_served()
        && exit::is_owner()
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

/// Whether a hosted program's loader may map a file to run its code: it first maps all of a library
/// to read. The host sees the calls of such code only where it has put the code.
fn may_be_code(kind: c_int, fd: c_int) -> bool {
    const MAGIC: &[u8; 4] = b"\x7fELF";
    if !hosted::is_host() || kind != MAP_PRIVATE {
        return false;
    }
    let mut head = [0_u8; MAGIC.len()];
    // SAFETY: the kernel writes no more bytes than there is room for.
    unsafe { libc::syscall(libc::SYS_pread64, fd, head.as_mut_ptr(), MAGIC.len(), 0_i64) };
    head == *MAGIC
}

/// Says, with `--verbose`, what happens with a file.
fn say(fd: c_int, what: &str) {
    if setup::settings().is_some_and(|settings| settings.verbose) {
        let path = std::fs::read_link(format!("/proc/thread-self/fd/{fd}")).unwrap_or_default();
        thread::say(&format!("terapage: {}: {what}\n", path.display()));
    }
}

/// Maps a file, if the file should be paged. Returns the address; `None` leaves the mapping to the
/// kernel.
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
    let kernels = places::read_bytes() + places::copied_bytes();
    if arena.in_use() + arena.files.bytes + kernels + part <= setup::budget() || arena::is_without_budget() {
        return None;
    }
    let kind = flags & (MAP_SHARED | MAP_PRIVATE);
    if may_be_code(kind, fd) {
        say(fd, "the kernel maps this file, which may be a library");
        return None;
    }
    let most = part as u64 - part as u64 / UNCACHED_PART;
    if file::cached_bytes(fd, offset, part as u64).is_some_and(|cached| cached > most) {
        say(fd, "the kernel maps this file, which is in the page cache");
        return None;
    }
    let room = Room::make();
    let mapped = arena.map_file(len, (kind, prot != PROT_READ), fd, offset);
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

/// Whether this process has ever paged a private mapping that the program may change.
pub fn may_be_changed() -> bool {
    MAY_BE_CHANGED.load(Relaxed)
}

/// The thread that waits until leases must be given up. It starts with the first lease. If the
/// program has changed its user since, but not that of the library's threads (a static program
/// knows only its own), the kernel would not let it send the thread a signal: then there is another
/// thread.
fn watcher() -> terapage_sys::Result<u32> {
    let is_reached = || {
        let [user, effective, _] = lease::users();
        let reached = [&WATCHERS_USERS[0], &WATCHERS_USERS[1]].map(|user| user.load(SeqCst));
        effective == 0 || reached.contains(&effective) || reached.contains(&user)
    };
    if WATCHER.load(SeqCst) == 0 || !is_reached() {
        WATCHER.store(0, SeqCst);
        thread::spawn(c"terapage-files", || {
            let [user, _, saved] = lease::users();
            WATCHERS_USERS[0].store(user, SeqCst);
            WATCHERS_USERS[1].store(saved, SeqCst);
            WATCHER.store(thread::id(), SeqCst);
            thread::wake(&WATCHER);
            while !arena::is_released() {
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
    fn map_file(
        &mut self,
        len: usize,
        (kind, writable): (c_int, bool),
        fd: c_int,
        offset: u64,
    ) -> Result<usize, String> {
        let lease = watcher().and_then(|thread| Lease::take(fd, thread));
        let lease = lease.map_err(|error| format!("it cannot be leased: {error}"))?;
        // From here on nobody changes the file.
        let (bytes, part) = part_of(lease.fd(), offset, len).ok_or("it was truncated")?;
        // Until the pager has copies.
        let _opening = Opening::begin();
        // SAFETY: the lease has the descriptor open, and closes it.
        let plain = ManuallyDrop::new(unsafe { File::from_raw_fd(lease.fd()) });
        let (direct, _) =
            file::past_cache(&plain, offset).map_err(|error| format!("it cannot be read: {error}"))?;
        let private = (kind == MAP_PRIVATE).then(|| private::open(lease.fd())).transpose();
        let private = private.map_err(|error| format!("it cannot be opened again: {error}"))?;
        if self.pager.is_none() {
            self.start();
        }
        let block = setup::block();
        let whole = len.next_multiple_of(block);
        // `take` must not count these bytes as memory of the store: unchanged files take no space
        // there.
        let counted = if writable { 0 } else { whole };
        self.files.bytes += counted;
        let at = self.take(whole, block, true).filter(|_| self.pager.is_some());
        let mapped = at.map(|at| {
            // The program may have named free memory to the kernel, which is then not paged.
            self.restore(at, at + whole);
            let pager = self.pager.as_ref().expect("it was there");
            pager.map_sealed(at, whole, direct.as_ref().unwrap_or(&plain), offset, bytes).map(|()| at)
        });
        match mapped {
            Some(Ok(at)) => {
                let lease = Arc::new(lease);
                self.files.parts.insert(at, Part { to: at + len, offset, kind, writable, lease });
                if let Some(file) = private {
                    self.files.privates.add(at, at + len, offset, file);
                }
                if writable {
                    self.note_writable(at, at + len);
                    let pager = self.pager.as_ref().expect("it was there");
                    setup::or_fail(pager.let_write(at, whole));
                }
                self.count(|counters| Counters::add(&counters.mapped_file_bytes, part as u64));
                if part < len {
                    // Nobody knows the range yet.
                    self.become_the_kernels(at + part, at + len);
                }
                Ok(at)
            }
            other => {
                self.files.bytes -= counted;
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

    /// The pieces of a range, ascending: each lies in one paged part of a file and in one private
    /// mapping, or in none.
    pub fn file_pieces(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        let from = self.files.parts.range(..=at).next_back().map_or(at, |(&from, _)| from);
        let parts = self.files.parts.range(from..to).flat_map(|(&from, part)| [from, part.to]);
        let mut edges: Vec<usize> = parts.filter(|edge| (at + 1..to).contains(edge)).collect();
        edges.extend(self.files.privates.edges(at, to));
        edges.extend([at, to]);
        edges.sort_unstable();
        edges.dedup();
        edges.windows(2).map(|edges| (edges[0], edges[1])).collect()
    }

    /// The rights of a private mapping, part by part.
    pub fn rights_of(&self, at: usize, to: usize) -> Vec<(usize, usize, c_int)> {
        let mut rights = Vec::new();
        for (at, to) in self.file_pieces(at, to) {
            match self.files.first(at, to).filter(|_| self.is_file(at, to)) {
                // For the kernel, all that is paged may be written.
                Some((_, part)) => rights.push((at, to, part.prot())),
                None => rights.extend(private::rights_within(at, to)),
            }
        }
        rights
    }

    /// Whether all of a range belongs to one mapping of a file that is paged, and that the program
    /// may only read.
    pub fn is_file_to_read(&self, at: usize, to: usize) -> bool {
        self.is_file(at, to) && self.files.first(at, to).is_some_and(|(_, part)| !part.writable)
    }

    /// Whether a range of one paged file may already be written (`true`), or may become so while it
    /// stays paged. `None` if it may not.
    pub fn may_become_writable(&self, at: usize, to: usize) -> Option<bool> {
        let (_, part) = self.files.first(at, to).filter(|_| self.is_file(at, to))?;
        let is_whole =
            at.is_multiple_of(setup::block()) && (to.is_multiple_of(setup::block()) || to == part.to);
        (part.writable || part.kind == MAP_PRIVATE && is_whole).then_some(part.writable)
    }

    /// Notes that the program may change a range of one paged file. The range begins with a block,
    /// and ends with one or with the mapping.
    pub fn note_writable(&mut self, at: usize, to: usize) {
        let Some((from, part)) = self.files.first(at, to) else { return };
        let offset = part.offset + (at - from) as u64;
        self.files.cut(from, at, to.next_multiple_of(setup::block()));
        self.files.parts.insert(at, Part { to, offset, writable: true, ..part });
        MAY_BE_CHANGED.store(true, Relaxed);
    }

    /// Gives all files back to the kernel.
    pub fn leave_all_files(&mut self) {
        self.leave_files(0, usize::MAX / 2);
    }

    /// Gives blocks of a part back to the kernel, but those that the program has changed.
    fn give_back(&mut self, from: usize, part: &Part, first: usize, end: usize) {
        let Some(pager) = &self.pager else { setup::fail("a paged file without a pager") };
        let changed = if part.writable { setup::or_fail(pager.changed_within(first, end)) } else { vec![] };
        let is_crowded = changed.len() > PARTS_FEW && !memory::has_room_for_mappings(2 * PARTS_MOST);
        let most = if is_crowded { PARTS_FEW } else { PARTS_MOST };
        let sealed = setup::or_fail(pager.leave_sealed(first, end - first, setup::block(), most));
        let to = end.min(part.to);
        for &(at, end) in &sealed {
            // The pager has given these up for this, and the file has the same bytes.
            let offset = part.offset + (at - from) as u64;
            let mut done = map_file_over((at, end.min(to)), part.prot(), part.kind, part.lease.fd(), offset);
            if to < end {
                // SAFETY: no code uses the rest of the last block.
                done &= unsafe { memory::replace(to as *mut u8, end - to) }.is_ok();
            }
            if !done {
                setup::fail("a mapped file cannot become the kernel's mapping again");
            }
        }
        self.files.cut(from, first, end);
        sealed.into_iter().for_each(|(at, end)| self.keep_mapped(at, end.min(to)));
        if to < end {
            self.give_rest(to, end);
        }
    }

    /// Gives the rest of a mapping's last block back.
    fn give_rest(&mut self, from: usize, to: usize) {
        if let Some(pager) = &self.pager {
            setup::or_fail(pager.forget_private(from, to));
        }
        self.give(from, to, false);
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
                    self.give_rest(part.to, end);
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
        let drops = matches!(advice, libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED);
        if drops && !self.is_file_to_read(from, to) {
            self.drop_changes(from, to);
        }
        let Some(pager) = &self.pager else { return false };
        let block = setup::block();
        let (first, len) = (from / block * block, to.next_multiple_of(block) - from / block * block);
        let done = match advice {
            libc::MADV_WILLNEED | libc::MADV_POPULATE_READ => pager.will_need(first, len),
            libc::MADV_RANDOM => pager.set_random(first, len, true),
            libc::MADV_NORMAL | libc::MADV_SEQUENTIAL => pager.set_random(first, len, false),
            libc::MADV_DONTNEED | libc::MADV_DONTNEED_LOCKED | libc::MADV_COLD | libc::MADV_PAGEOUT => {
                pager.done_with(first, len)
            }
            libc::MADV_DODUMP | libc::MADV_DONTDUMP | libc::MADV_HUGEPAGE | libc::MADV_NOHUGEPAGE => Ok(()),
            _ => return false,
        };
        setup::or_fail(done);
        true
    }
}
