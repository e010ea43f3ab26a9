//! The arena: one range of addresses for all that is paged, and the pager over it.
//!
//! Its second part is the *wide* part, for reservations of terabytes, of which a program opens
//! little. Only the opened parts of it can be touched. To the kernel and the pager, unused
//! addresses there are the same as reserved addresses that were not opened: they do not look at
//! either.

use crate::brk::Break;
use crate::limits::Kernels;
use crate::lock::Lock;
use crate::places::{Insistence, Places};
use crate::ranges::Ranges;
use crate::reasons::{Reasons, Why};
use crate::regions::Named;
use crate::{exit, job, limits, process, statics};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_config::Size;
use terapage_heap::Table;
use terapage_pager::Pager;
use terapage_sys::fd::Room;
use terapage_sys::{PAGE, memory, thread};

/// The most bytes of freed allocations that are kept, to be given out again with their old bytes.
const DIRTY_BYTES: usize = 64 << 20;

/// The most ranges that wait to be discarded, so that the pager's thread is asked once for all.
const WAITING_MOST: usize = 64;
/// The most bytes of them, and the part of the budget that they may be at most: they have frames.
const WAITING_BYTES: usize = 4 << 20;
const WAITING_PART: usize = 64;

/// The most bytes that wait to be discarded.
fn most_waiting() -> usize {
    let budget = process::settings().map_or(0, |settings| settings.memory.0 as usize);
    WAITING_BYTES.min(budget / WAITING_PART)
}

/// Once this many bytes are in use, the rest of the arena gets huge pages, until it is paged.
const HUGE_FROM: usize = 8 << 20;

/// The part of the arena that core dumps contain grows in steps of this many bytes: each step costs
/// a system call.
const DUMP_STEP: usize = 64 << 20;

/// With `--overcommit no` the store is asked for this much more than is in use, if it has that: not
/// each allocation asks.
const BACKED_STEP: usize = 16 << 20;

/// The most bytes of the arena's first part.
const FIRST_MOST: usize = 4 << 40;
/// The most bytes of the arena. A mapping of half of a process's addresses would leave little room
/// beside it.
const MOST: usize = 32 << 40;

/// A place that the program names may lie so many bytes behind all that was ever given out.
const PLACES_BEHIND: usize = 64 << 20;

/// The ends of the arena are multiples of this many bytes, so blocks of any size fit.
const ALIGN: usize = 2 << 20;

/// The state of the arena, which its lock guards.
pub struct Arena {
    pub ranges: Ranges,
    /// Why pages are not paged, and with them their blocks.
    reasons: Reasons,
    pub pager: Option<Pager>,
    /// Ranges that are counted as regions of their own.
    pub named: Vec<Named>,
    /// What the program does with reservations that are not at the places that it named.
    pub reserving: Insistence,
    /// The same of memory that is readable and writable.
    pub mapping: Insistence,
    /// The kernel's mappings at places that the program named.
    pub places: Places,
    /// The range of `brk` and `sbrk`.
    pub program_break: Break,
    /// Whether the kernel was told to use huge pages.
    huge: bool,
    /// Core dumps contain what lies before this address.
    dumped: usize,
    /// The pager is started when more bytes than this are in use.
    start_at: usize,
    /// The store has room for so many bytes, as far as it was asked for.
    backed: usize,
}

pub static ARENA: Lock<Arena> = Lock::leading(Arena {
    ranges: Ranges::empty(),
    reasons: Reasons::new(PAGE),
    reserving: Insistence::new(),
    mapping: Insistence::new(),
    places: Places::new(),
    program_break: Break::new(),
    huge: false,
    dumped: 0,
    pager: None,
    named: Vec::new(),
    start_at: usize::MAX,
    backed: 0,
});

/// The arena's start. These three are read without the lock, and never change after the library's
/// start.
static START: AtomicUsize = AtomicUsize::new(0);
/// The start of the wide part.
static WIDE: AtomicUsize = AtomicUsize::new(0);
/// The arena's end; 0 if there is no arena.
static END: AtomicUsize = AtomicUsize::new(0);

/// Whether an address is in the arena.
pub fn contains(at: usize) -> bool {
    at >= START.load(Relaxed) && at < END.load(Acquire)
}

/// Whether there is an arena.
pub fn is_open() -> bool {
    END.load(Acquire) != 0
}

/// Whether a range overlaps the arena.
pub fn overlaps(at: usize, len: usize) -> bool {
    at < END.load(Acquire) && at.saturating_add(len) > START.load(Relaxed)
}

/// Whether an address of the arena is in its wide part.
fn is_wide(at: usize) -> bool {
    at >= WIDE.load(Relaxed) && at < END.load(Relaxed)
}

/// The part of a range that lies in the arena.
pub fn part_of(from: usize, to: usize) -> Option<(usize, usize)> {
    let (from, to) = (from.max(START.load(Relaxed)), to.min(END.load(Acquire)));
    (from < to).then_some((from, to))
}

/// The start of the arena, and its bytes.
pub fn whole() -> (usize, usize) {
    let from = START.load(Relaxed);
    (from, END.load(Relaxed) - from)
}

/// Bytes of bookkeeping for each block: the pager's entry, and the policy's.
const BOOKS: usize = 64;
/// Bytes that the library maps besides.
const BESIDE: usize = 64 << 20;
/// One part in this many of a limit is left to the program: for its code, its threads' stacks, its
/// files.
const BESIDE_PART: usize = 8;
/// The arena, and also the pool, have at least this many times the budget of addresses.
const BUDGETS: usize = 2;

/// Bytes of an arena of `len` bytes, with its bookkeeping.
fn with_books(len: usize, block: usize) -> usize {
    len + len / block * BOOKS + Table::bytes_for(len)
}

/// Bytes of the largest arena that fits into what a limit leaves; 0 if none fits.
fn within(limit: &Kernels, block: usize, budget: usize) -> usize {
    let left = limit.left().saturating_sub(BUDGETS * budget + BESIDE + limit.bytes / BESIDE_PART);
    let books = with_books(left, block) - left;
    left.saturating_sub(books)
}

/// The limit that would suffice, in KiB, the unit of the shell.
fn sufficient_kib(limit: &Kernels, block: usize, budget: usize) -> usize {
    let least = (BUDGETS * budget).next_multiple_of(ALIGN) + 2 * ALIGN;
    let need = limit.used + with_books(least, block) + BUDGETS * budget + BESIDE + ALIGN;
    (need * BESIDE_PART / (BESIDE_PART - 1)).next_multiple_of(1 << 20) >> 10
}

/// Reserves as much as possible, at most `most` bytes. Returns the bytes and the address.
fn reserve_most(most: usize, block: usize, budget: usize) -> Result<(usize, usize), String> {
    let reserve = |len| Some((len, memory::reserve(len).ok()? as usize));
    let Some(limit) = limits::of_kernel() else {
        let sizes = (33..=46).rev().map(|shift| (1usize << shift).min(most));
        return sizes.into_iter().find_map(reserve).ok_or_else(|| {
            "no address space for the arena (8 GiB at least): the kernel gives none; with vm.overcommit_memory=2 \
             it promises all that is reserved, so set that to 0 or 1"
                .to_owned()
        });
    };
    let len = within(&limit, block, budget).min(most) / ALIGN * ALIGN;
    let enough = len >= BUDGETS * budget + ALIGN;
    enough.then(|| reserve(len)).flatten().ok_or_else(|| {
        format!(
            "no address space for the arena within the limit that was set (ulimit {flag}): a budget of {} takes \
             `ulimit {flag} {}`",
            Size(budget as u64),
            sufficient_kib(&limit, block, budget),
            flag = limit.flag
        )
    })
}

/// Reserves the arena; its pager is started when more than `start_at` bytes are in use. Its blocks
/// of `block` bytes may be split into blocks of `least` bytes.
///
/// # Errors
/// No such range can be reserved: the text says why, and what to do.
pub fn open(block: usize, least: usize, budget: usize, start_at: usize) -> Result<(), String> {
    let align = ALIGN;
    let most = terapage_pager::BLOCKS_MOST.saturating_mul(least).min(MOST) / align * align;
    let (len, at) = reserve_most(most, block, budget)?;
    let (from, to) = (at.next_multiple_of(align), (at + len) / align * align);
    let wide = to.min(from + FIRST_MOST);
    let mut arena = ARENA.lock();
    arena.reasons = Reasons::new(block);
    if wide < to {
        // SAFETY: the range was reserved just now, and nobody uses it.
        process::or_fail(unsafe { memory::close(wide, to - wide) }.map_err(terapage_pager::Error::from));
        memory::advise(wide, to - wide, memory::MADV_NOHUGEPAGE);
        arena.reasons.set_unused(wide, to);
    }
    arena.ranges = Ranges::new(from, wide, to, block);
    arena.start_at = start_at;
    START.store(from, Relaxed);
    WIDE.store(wide, Relaxed);
    END.store(to, Release);
    Ok(())
}

impl Arena {
    /// Takes `len` bytes, and starts the pager if that is due.
    pub fn take(&mut self, len: usize, align: usize, zero: bool) -> Option<usize> {
        let mut at = self.ranges.take(len, align, zero);
        if at.is_none() && self.ranges.waiting().0 > 0 {
            self.drop_waiting();
            at = self.ranges.take(len, align, zero);
        }
        let at = at?;
        if !self.huge && self.ranges.used_bytes > HUGE_FROM {
            // A program that grows is likely to be paged, and frames that are neighbours in memory
            // make fewer pieces for the device. Small programs are left as they are.
            self.huge = true;
            let newest = at + len >= self.ranges.fresh();
            let from = if newest { at } else { self.ranges.fresh() };
            memory::advise(from, WIDE.load(Relaxed) - from, libc::MADV_HUGEPAGE);
        }
        self.start_if_due();
        if !self.is_backed(0) {
            self.give(at, at + len, false);
            return None;
        }
        self.show_in_dumps();
        self.count_by_region(at, at + len);
        Some(at)
    }

    /// Whether the store could hold all that is in use and `more` bytes, if that is to be so
    /// (`--overcommit no`).
    pub fn is_backed(&mut self, more: usize) -> bool {
        let wants = process::settings().is_some_and(|settings| !settings.overcommit);
        let Some(pager) = self.pager.as_ref().filter(|_| wants) else { return true };
        let in_use = self.in_use() + more;
        if in_use > self.backed && pager.reserve(in_use + BACKED_STEP).is_ok() {
            self.backed = in_use + BACKED_STEP;
        } else if in_use > self.backed && pager.reserve(in_use).is_ok() {
            self.backed = in_use;
        }
        in_use <= self.backed
    }

    /// Whether the program's own limits allow it `more` bytes, which are `data` (private and
    /// writable) or not.
    pub fn may_grow(&self, more: usize, data: bool) -> bool {
        let used = self.ranges.used_bytes;
        let mine = used - self.program_break.spare();
        let closed = END.load(Relaxed) - WIDE.load(Relaxed);
        limits::allow([mine, used - self.ranges.wide_bytes()], closed, more, data)
    }

    /// Puts what was given out into core dumps: they must not contain terabytes that never were.
    fn show_in_dumps(&mut self) {
        let fresh = self.ranges.fresh();
        if fresh > self.dumped {
            let (from, to) = (self.dumped.max(START.load(Relaxed)), WIDE.load(Relaxed));
            self.dumped = fresh.next_multiple_of(DUMP_STEP).min(to);
            memory::advise(from, self.dumped - from, libc::MADV_DODUMP);
        }
    }

    /// Bytes that the program may have filled.
    pub fn in_use(&self) -> usize {
        (self.ranges.used_bytes + statics::bytes()).saturating_sub(self.reasons.special_bytes())
    }

    /// Bytes of static arrays that the program may have filled.
    pub fn static_bytes(&self) -> usize {
        statics::ranges().map(|(start, len)| len - self.special_bytes(start, start + len)).sum()
    }

    /// Starts the pager if the program has grown enough.
    pub fn start_if_due(&mut self) {
        // Before there is a pager, freed bytes stay in memory as long as their block is not all
        // free.
        let rests = self.ranges.block_bytes - self.ranges.used_bytes;
        let is_due = self.pager.is_none() && self.in_use() + rests > self.start_at;
        // A child of vfork shares this memory with its parent, and a pager that it started would
        // end with it.
        if is_due && exit::is_owner() {
            match self.may_wait(rests) {
                Some(start_at) => self.start_at = start_at,
                None => self.start(),
            }
        }
        self.count_in_use();
    }

    /// The bytes in use at which paging starts, if the job has room for more without it.
    fn may_wait(&self, rests: usize) -> Option<usize> {
        if process::start_bytes().is_some() || self.start_at == usize::MAX {
            return None;
        }
        let _internal = thread::Internal::enter();
        let _room = Room::make();
        job::unpaged(self.in_use() + rests)
    }

    /// In the child of a fork, which is a process of its own to the job.
    pub fn begin_child(&mut self) {
        // Its store is another one.
        self.backed = 0;
        if self.pager.is_none() {
            self.start_at = job::start_of_child(self.start_at, self.in_use());
        }
    }

    /// Starts the pager, if this process may have one.
    pub fn start(&mut self) {
        self.start_at = usize::MAX;
        let _internal = thread::Internal::enter();
        // If no room can be made, the call that opens something says which limit it met.
        let room = Room::make();
        let pager = process::start_pager(self.in_use());
        drop(room);
        let Some(pager) = pager else { return };
        // The arena comes last: blocks are numbered in this order, and policies keep arrays indexed
        // by number.
        for (start, len) in statics::ranges() {
            process::or_fail(pager.add_around(
                start,
                len,
                len,
                &self.reasons.loose_within(start, start + len),
            ));
        }
        let (from, to) = (START.load(Relaxed), END.load(Relaxed));
        let loose = self.reasons.loose_within(from, to);
        process::or_fail(pager.add_around(from, to - from, self.ranges.fresh() - from, &loose));
        crate::direct::begin(pager.moves());
        self.pager = Some(pager);
        self.name_regions();
        self.set_forkable(false);
    }

    /// Sets whether a fork copies paged memory. Only a fork that the pager knows of may copy it:
    /// the child of another must stop at its first touch, not read zeros.
    pub fn set_forkable(&self, forkable: bool) {
        let advice = if forkable { libc::MADV_DOFORK } else { libc::MADV_DONTFORK };
        // Mappings of the program stay as they are. The kernel refuses the advice for some of them
        // (a device's registers, a ring of events), and would go no further.
        for (from, to) in self.reasons.without(START.load(Relaxed), END.load(Relaxed), Why::MAPPED) {
            memory::advise(from, to - from, advice);
        }
        for (start, len) in statics::ranges() {
            memory::advise(start, len, advice);
        }
    }

    /// Gives pages back. With `keep`, their bytes may stay, and be given out again as they are.
    pub fn give(&mut self, at: usize, to: usize, keep: bool) {
        let mut freed = Vec::new();
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

    /// Discards all that waits for it, by one request.
    fn drop_waiting(&mut self) {
        let waiting: Vec<_> = self.ranges.take_waiting().into_iter().collect();
        if let Some(pager) = self.pager.as_ref().filter(|_| !waiting.is_empty()) {
            process::or_fail(pager.discard_all(&waiting));
        }
        waiting.into_iter().for_each(|(from, to)| self.ranges.put(from, to, true));
    }

    /// The most bytes that stay in memory though nobody uses them. Without a pager they count as
    /// the program's.
    fn most_dirty(&self) -> usize {
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
    /// this for memory that is not paged, for example if it is locked.
    pub fn drop_bytes(&mut self, at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
        if self.pager.is_none() {
            return self.drop_unpaged(at, to, advice);
        }
        let block = process::block();
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

    /// Drops bytes that are not paged. If they may be paged later, they are dropped at once: with
    /// `MADV_FREE` they could vanish later, while paged.
    fn drop_unpaged(&self, at: usize, to: usize, advice: c_int) -> terapage_sys::Result<()> {
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

    fn discard_blocks(&self, from: usize, to: usize) {
        match &self.pager {
            Some(pager) => process::or_fail(pager.discard(from, to - from)),
            // SAFETY: nobody uses the range.
            None => unsafe { memory::discard(from, to - from) }.unwrap_or(()),
        }
    }

    /// The parts of a range whose pages are special: not plain readable and writable memory.
    pub fn special_within(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.within(at, to, Why::SPECIAL)
    }

    /// Bytes of a range whose pages are special.
    pub fn special_bytes(&self, at: usize, to: usize) -> usize {
        self.special_within(at, to).iter().map(|(from, to)| to - from).sum()
    }

    /// The parts of a range with special properties, ascending and separate: a fork's child must
    /// find them empty, or they are shared, a file's, locked, or have a protection key.
    pub fn special(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.within(at, to, Why::WIPED | Why::KEPT)
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
        let edge = to.next_multiple_of(process::block());
        // The rest of a wide range's last block cannot be touched, and the rest of a released block
        // may be anything.
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
    /// ENOMEM if the process may have no more mappings; nothing has changed then.
    pub fn release(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        let block = process::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        let parts = self.reasons.paged_within(first, last);
        for (index, &(from, to)) in parts.iter().enumerate() {
            match self.pager.as_ref().map_or(Ok(()), |pager| pager.release(from, to - from)) {
                Err(terapage_pager::Error::System(error)) if error.errno() == libc::ENOMEM => {
                    parts[..index].iter().for_each(|&(from, to)| self.page_again(from, to));
                    return Err(error);
                }
                other => process::or_fail(other),
            }
        }
        self.note(at, |reasons| reasons.close(at, to));
        Ok(())
    }

    /// Notes that pages of a range are plain memory again, with their bytes, and pages the blocks
    /// that have no special page left.
    pub fn readmit(&mut self, at: usize, to: usize) {
        let block = process::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        let loose = self.reasons.loose_within(first, last);
        self.note(at, |reasons| reasons.plain_again(at, to));
        for (from, to) in loose {
            for (from, to) in self.reasons.paged_within(from, to) {
                self.page_again(from, to);
            }
        }
        self.start_if_due();
    }

    /// The parts of a range whose blocks are paged.
    pub fn paged_blocks(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        self.reasons.paged_within(at, to)
    }

    /// The parts of a range that may be anything but zero.
    pub fn filled_within(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        let Some(pager) = &self.pager else { return vec![(at, to)] };
        let block = process::block();
        let (first, last) = (at / block * block, to.next_multiple_of(block));
        let touched = process::or_fail(pager.touched(first, last - first));
        let parts = touched.into_iter().chain(self.reasons.loose_within(first, last));
        parts.map(|(from, end)| (from.max(at), end.min(to))).collect()
    }

    /// Pages parts again that were released for a call that the kernel then refused. They were
    /// readable and writable; the kernel may have changed some of several mappings before it
    /// refused.
    pub fn take_back(&mut self, parts: Vec<(usize, usize)>) {
        let rights = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        for (from, to) in parts {
            // SAFETY: the memory is the program's, and gets the rights that it had before the call.
            if memory::alike(|| unsafe { libc::syscall(libc::SYS_mprotect, from, to - from, rights) }) == 0 {
                self.reasons.unkeep(from, to);
                self.readmit(from, to);
            }
        }
    }

    /// Lets the pager page blocks that have no reason any more not to be paged.
    fn page_again(&self, from: usize, to: usize) {
        if let Some(pager) = &self.pager {
            memory::advise(from, to - from, libc::MADV_DONTFORK);
            process::or_fail(pager.restore(from, to - from));
        }
    }

    /// Stops paging every block that the range touches, until its pages are given back or mapped
    /// anew.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub fn keep(&mut self, at: usize, to: usize) -> terapage_sys::Result<()> {
        self.release(at, to)?;
        self.reasons.keep(at, to);
        Ok(())
    }

    /// Like [`keep`](Self::keep), for a range that was released before and over which the program
    /// has mapped something.
    pub fn keep_mapped(&mut self, at: usize, to: usize) {
        self.note(at, |reasons| reasons.keep_mapped(at, to));
    }

    /// Forgets the properties of a range, which is replaced by other memory.
    pub fn forget(&mut self, at: usize, to: usize) {
        self.reasons.forget(at, to);
    }

    /// Sets whether the child of a fork must find pages of a range empty. Such pages are not paged:
    /// the kernel empties them.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub fn wipe_on_fork(&mut self, at: usize, to: usize, wipe: bool) -> terapage_sys::Result<()> {
        if wipe {
            self.release(at, to)?;
            self.reasons.wipe(at, to);
        } else {
            self.reasons.unwipe(at, to);
        }
        Ok(())
    }

    /// Puts fresh zero memory over a range, like a fixed mapping, and pages its whole blocks.
    pub fn renew(&mut self, at: usize, to: usize) {
        self.forget(at, to);
        let block = process::block();
        let (first, last) = (at.next_multiple_of(block), to / block * block);
        for (from, end) in self.reasons.loose_within(at, to) {
            // SAFETY: the program replaces the old mappings.
            let replaced = unsafe { memory::replace(from as *mut u8, end - from) };
            process::or_fail(replaced.map_err(terapage_pager::Error::from));
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

    /// Makes blocks that nobody uses any more plain memory again, and pages them.
    fn restore(&mut self, from: usize, to: usize) {
        let loose = self.reasons.loose_within(from, to);
        if loose.is_empty() {
            return;
        }
        self.note(from, |reasons| reasons.free(from, to));
        for (start, end) in loose {
            // SAFETY: nobody uses the range.
            let replaced = unsafe { memory::replace(start as *mut u8, end - start) };
            process::or_fail(replaced.map_err(terapage_pager::Error::from));
            self.page_again(start, end);
        }
    }

    /// Takes `len` bytes of the wide part, which cannot be touched yet. This only makes a note.
    pub fn take_wide(&mut self, len: usize) -> Option<usize> {
        let at = self.ranges.take_wide(len)?;
        let to = (at + len).next_multiple_of(process::block());
        self.note(at, |reasons| reasons.close(at, to));
        self.count_by_region(at, at + len);
        Some(at)
    }

    /// Takes `len` bytes of the first part, at a multiple of `align`, and makes them untouchable.
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

    /// Makes closed pages of a range in use readable and writable. Whether that could be done.
    pub fn open_pages(&mut self, at: usize, to: usize) -> bool {
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
    /// part, not far behind all that was ever given out, so that what is in use stays together.
    pub fn has_place(&mut self, at: usize, to: usize) -> bool {
        at >= START.load(Relaxed)
            && to <= WIDE.load(Relaxed).min(self.ranges.fresh() + PLACES_BEHIND)
            && !self.ranges.is_used(at, to)
            && self.is_backed(to - at)
    }

    /// Notes that the program unmaps a range: it may have named another place for it.
    pub fn is_unmapped(&mut self, at: usize, to: usize) {
        let special = self.special_bytes(at, to);
        self.reserving.is_unmapped((at, to), is_wide(at), || special >= to - at);
        self.mapping.is_unmapped((at, to), false, || special == 0 && !memory::is_begun(at, to - at));
    }

    /// Takes a range for a fixed mapping. Whether it may be taken. In the wide part, unused pages
    /// of the same blocks stay untouchable.
    pub fn claim(&mut self, at: usize, to: usize) -> bool {
        if !self.ranges.may_take(at, to) {
            return false;
        }
        if is_wide(at) {
            let block = process::block();
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

    /// The first page of a range that is in the arena and not in use: the program has nothing
    /// mapped there.
    pub fn first_hole(&self, at: usize, to: usize) -> Option<usize> {
        self.holes(at, to).first().map(|&(from, _)| from)
    }

    fn holes(&self, at: usize, to: usize) -> Vec<(usize, usize)> {
        part_of(at, to).map_or_else(Vec::new, |(from, to)| self.ranges.unused(from, to))
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
    /// may have to know.
    fn unmap_edges(&mut self, at: usize, to: usize) {
        let block = process::block();
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
                process::or_fail(plain.map_err(terapage_pager::Error::from));
                if self.pager.is_some() {
                    memory::advise(from, end - from, libc::MADV_DONTFORK);
                }
            }
        }
    }

    /// Drops the bytes of whole blocks in a range, which is about to be closed.
    pub fn drop_blocks(&self, at: usize, to: usize) {
        let block = process::block();
        let (first, last) = (at.next_multiple_of(block), to / block * block);
        if first < last {
            for (from, to) in self.reasons.paged_within(first, last) {
                self.discard_blocks(from, to);
            }
        }
    }

    /// Sets further properties of pages whose rights have changed. In the wide part, core dumps
    /// contain only pages that can be touched: the kernel would look at each of the others. All
    /// closed pages are alike, so that the kernel has few mappings.
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

    /// Closes blocks of the wide part that nobody uses any more: they are as if never used.
    fn close(&mut self, from: usize, to: usize) {
        for (start, end) in self.reasons.paged_within(from, to) {
            if let Some(pager) = &self.pager {
                process::or_fail(pager.discard(start, end - start));
                process::or_fail(pager.release(start, end - start));
            }
        }
        self.note(from, |reasons| reasons.set_unused(from, to));
        // SAFETY: nobody uses the range.
        process::or_fail(unsafe { memory::close(from, to - from) }.map_err(terapage_pager::Error::from));
        self.dress(from, to, true);
    }

    /// Changes the reasons of pages of the used range in which `at` lies.
    fn note(&mut self, at: usize, change: impl FnOnce(&mut Reasons)) {
        let before = self.reasons.special_bytes();
        change(&mut self.reasons);
        self.count_special(at, before, self.reasons.special_bytes());
    }
}
