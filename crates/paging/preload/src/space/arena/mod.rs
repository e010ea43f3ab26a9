//! The arena: one range of addresses for all paged memory, and the pager over it.
//!
//! Its second part is the *wide* part, for reservations of terabytes, of which a program opens
//! little. Only its opened parts can be touched. For the kernel and the pager, unused addresses
//! there equal reserved addresses that were not opened: they inspect neither.

mod emptying;
mod mappings;
pub mod release;
mod unpaged;

pub use release::{is_released, is_without_budget};

use crate::brk::Break;
use crate::files::Files;
use crate::limits::Kernels;
use crate::lock::Lock;
use crate::places::{Insistence, Places};
use crate::ranges::Ranges;
use crate::reasons::{Reasons, Why};
use crate::regions::Named;
use crate::rereads::Mapped;
use crate::{exit, guard, job, limits, setup, statics};
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_config::Size;
use terapage_heap::Table;
use terapage_pager::Pager;
use terapage_sys::fd::Room;
use terapage_sys::{PAGE_LEAST, memory, thread};

/// The most bytes of freed allocations that are kept, to be handed out again with their old bytes.
const DIRTY_BYTES: usize = 64 << 20;

/// The most ranges that wait to be discarded, so that one request to the pager's thread serves all.
const WAITING_MOST: usize = 64;
/// The most bytes of waiting ranges, and their largest part of the budget, since they have frames.
const WAITING_BYTES: usize = 4 << 20;
const WAITING_PART: usize = 64;

/// The most bytes that wait to be discarded.
fn most_waiting() -> usize {
    WAITING_BYTES.min(setup::budget() / WAITING_PART)
}

/// Once this many bytes are in use, the rest of the arena gets huge pages, until it is paged.
const HUGE_FROM: usize = 8 << 20;

/// The part of the arena that core dumps contain grows in steps of this many bytes: each step costs
/// a system call.
const DUMP_STEP: usize = 64 << 20;

/// With `--store-size SIZE,strict` the store is asked for this much more than is in use, if it has
/// that: then not every allocation must ask.
const BACKED_STEP: usize = 16 << 20;

/// The most bytes of the arena's first part.
const FIRST_MOST: usize = 4 << 40;
/// The most bytes of the arena. A mapping of half of a process's addresses would leave little room
/// for others.
const MOST: usize = 32 << 40;

/// A place that the program names may lie this many bytes behind all addresses that were ever
/// handed out.
const PLACES_BEHIND: usize = 64 << 20;

/// The ends of the arena are multiples of this many bytes, so blocks of any size fit.
const ALIGN: usize = 2 << 20;

/// The state of the arena, which its lock guards.
pub struct Arena {
    pub ranges: Ranges,
    /// Why pages, and with them their blocks, are not paged.
    reasons: Reasons,
    pub pager: Option<Pager>,
    /// Ranges that are counted as separate regions.
    pub named: Vec<Named>,
    /// How the program treats reservations that are not at the places that it named.
    pub reserving: Insistence,
    /// The same for readable and writable memory.
    pub mapping: Insistence,
    /// The kernel's mappings at places that the program named.
    pub places: Places,
    /// Private, writable mappings of files.
    pub copies: Places,
    /// Large mappings of files that the program only reads, and that are left to the kernel.
    pub reads: Places,
    /// Their files, if `--files` is off: what the kernel reads of them again.
    pub rereads: Vec<Mapped>,
    /// Mapped files that are paged.
    pub files: Files,
    /// Large mappings that the program's own `malloc` made before the pager began.
    early: Vec<(usize, usize)>,
    /// The range of `brk` and `sbrk`.
    pub program_break: Break,
    /// Whether the kernel uses huge pages.
    huge: bool,
    /// Core dumps contain the addresses before this one.
    dumped: usize,
    /// The pager is started when more bytes than this are in use.
    start_at: usize,
    /// The store has room for this many bytes, according to the last request.
    backed: usize,
}

pub static ARENA: Lock<Arena> = Lock::leading(Arena {
    ranges: Ranges::empty(),
    reasons: Reasons::new(PAGE_LEAST),
    reserving: Insistence::new(),
    mapping: Insistence::new(),
    places: Places::named(),
    copies: Places::of_files(),
    reads: Places::of_read_files(),
    rereads: Vec::new(),
    files: Files::none(),
    early: Vec::new(),
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
    // The end first: whoever sees it sees the start, too.
    at < END.load(Acquire) && at >= START.load(Relaxed)
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
    let to = to.min(END.load(Acquire));
    let from = from.max(START.load(Relaxed));
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
/// A limit divided by this is left to the program: for its code, its threads' stacks, its files.
const BESIDE_PART: usize = 8;
/// The arena, and also the pool, have at least this many times the budget of addresses.
const BUDGETS: usize = 2;

/// Bytes of an arena of `len` bytes, with its bookkeeping.
fn with_books(len: usize, block: usize) -> usize {
    len + len / block * BOOKS + Table::bytes_for(len)
}

/// Bytes of the largest arena that fits into the rest of a limit; 0 if none fits.
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
    let place = guard::is_on().then_some(guard::ARENA.start);
    let reserve = |len| Some((len, memory::reserve_at(place, len).ok()? as usize));
    let Some(limit) = limits::of_kernel() else {
        let sizes = (33..=46).rev().map(|shift| (1usize << shift).min(most));
        return sizes.into_iter().find_map(reserve).ok_or_else(|| {
            "no address space for the arena (at least 8 GiB): the kernel gives none; with \
             vm.overcommit_memory=2 it promises all that is reserved, so set that to 0 or 1"
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
        // SAFETY: the range was reserved just now, and has no user.
        setup::or_fail(unsafe { memory::close(wide, to - wide) }.map_err(terapage_pager::Error::from));
        memory::advise(wide, to - wide, memory::MADV_NOHUGEPAGE);
        arena.reasons.set_unused(wide, to);
    }
    if !memory::has_huge() {
        memory::advise(from, wide - from, memory::MADV_NOHUGEPAGE);
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
        if !self.huge && self.ranges.used_bytes > HUGE_FROM && memory::has_huge() {
            // A program that grows is likely to be paged, and frames that are neighbours in memory
            // make fewer pieces for the device. Small programs stay as they are.
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

    /// Whether the store could hold all memory in use and `more` bytes, if that is required
    /// (`--store-size SIZE,strict`).
    pub fn is_backed(&mut self, more: usize) -> bool {
        let wants = setup::settings().is_some_and(|settings| settings.store_size.strict);
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

    /// Includes memory that was handed out in core dumps, which must not contain terabytes that
    /// were never used.
    fn show_in_dumps(&mut self) {
        let fresh = self.ranges.fresh();
        if fresh > self.dumped {
            let (from, to) = (self.dumped.max(START.load(Relaxed)), WIDE.load(Relaxed));
            self.dumped = fresh.next_multiple_of(DUMP_STEP).min(to);
            memory::advise(from, self.dumped - from, libc::MADV_DODUMP);
        }
    }

    /// Bytes that the program may have filled, without mapped files.
    pub fn in_use(&self) -> usize {
        let without = self.reasons.special_bytes() + self.files.bytes();
        (self.ranges.used_bytes + statics::bytes()).saturating_sub(without)
    }

    /// Bytes of static arrays that the program may have filled.
    pub fn static_bytes(&self) -> usize {
        statics::ranges().map(|(start, len)| len - self.special_bytes(start, start + len)).sum()
    }

    /// Starts the pager if the program has grown enough.
    pub fn start_if_due(&mut self) {
        // Before there is a pager, freed bytes stay in memory until their whole block is free.
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

    /// The number of bytes in use at which paging starts, if the job has room for more without a
    /// pager.
    fn may_wait(&self, rests: usize) -> Option<usize> {
        if setup::start_bytes().is_some() || self.start_at == usize::MAX {
            return None;
        }
        let _internal = thread::Internal::enter();
        let _room = Room::make();
        job::unpaged(self.in_use() + rests)
    }

    /// In the child of a fork, which is a separate process for the job.
    pub fn begin_child(&mut self) {
        // Its store is another one.
        self.backed = 0;
        if self.pager.is_none() && !is_released() {
            self.start_at = job::start_of_child(self.start_at, self.in_use());
        }
    }

    /// Starts the pager, if this process may have one: not once it was released.
    pub fn start(&mut self) {
        self.start_at = usize::MAX;
        if is_released() {
            return;
        }
        let _internal = thread::Internal::enter();
        // If no room can be made, the call that opens a descriptor names the limit.
        let room = Room::make();
        let pager = setup::start_pager(self.in_use());
        drop(room);
        let Some(pager) = pager else { return };
        // The arena comes last: blocks are numbered in this order, and policies keep arrays indexed
        // by number.
        for (start, len) in statics::ranges() {
            setup::or_fail(pager.add_around(start, len, len, &self.reasons.loose_within(start, start + len)));
        }
        let (from, to) = (START.load(Relaxed), END.load(Relaxed));
        let loose = self.reasons.loose_within(from, to);
        setup::or_fail(pager.add_around(from, to - from, self.ranges.fresh() - from, &loose));
        crate::direct::begin(pager.moves());
        self.pager = Some(pager);
        self.name_regions();
        self.set_forkable(false);
    }

    /// Sets whether a fork copies paged memory. Only a fork known to the pager may copy it: the
    /// child of another fork must stop at its first touch, not read zeros.
    pub fn set_forkable(&self, forkable: bool) {
        let advice = if forkable { libc::MADV_DOFORK } else { libc::MADV_DONTFORK };
        // Mappings of the program stay as they are. For some of them (a device's registers, a ring
        // of events) the kernel refuses the advice, and would stop there.
        for (from, to) in self.reasons.without(START.load(Relaxed), END.load(Relaxed), Why::MAPPED) {
            memory::advise(from, to - from, advice);
        }
        for (start, len) in statics::ranges() {
            // Parts that the program has unmapped may hold other memory by now.
            let parts = match forkable {
                true => self.reasons.without(start, start + len, Why::KEPT),
                false => self.reasons.paged_within(start, start + len),
            };
            for (from, to) in parts {
                memory::advise(from, to - from, advice);
            }
        }
    }

    /// Changes the reasons of pages of the used range in which `at` lies.
    fn note(&mut self, at: usize, change: impl FnOnce(&mut Reasons)) {
        let before = self.reasons.special_bytes();
        change(&mut self.reasons);
        self.count_special(at, before, self.reasons.special_bytes());
    }
}
