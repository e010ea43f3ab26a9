//! Moves frames between the pool and the program. Either a whole run has moved, or the mover knows
//! which part has moved; it guesses nothing.
//!
//! If the kernel has `UFFDIO_MOVE`, frames are moved by it. If a move stops part way (a page is
//! pinned by I/O, or shared since a fork), the kernel's page map says where the pages are; the
//! call's count is not reliable. The remaining pages are moved one by one.
//!
//! Without `UFFDIO_MOVE` (before Linux 6.8), pages are write-protected and copied: slower, but with
//! the same results.

use super::events::Events;
use crate::pins::Pins;
use std::ops::Range;
use terapage_sys::memory::{self, HUGE};
use terapage_sys::pagemap::Pagemap;
use terapage_sys::userfaultfd::{Kind, Stuck, Userfaultfd};
use terapage_sys::{Result, page_bytes, thread};

/// The number of tries to move a busy page; after that it is copied, or stays. Chosen, not
/// measured.
const PATIENCE: usize = 30;

/// Before the second try, and each eighth one after it, a page is split off the huge page of which
/// it is a part. Chosen, not measured.
const PART_STEP: usize = 8;

/// More tries of a move if the kernel is busy for a moment. Chosen, not measured.
const MOVE_PATIENCE: u32 = 100;
/// The kernel's error if it is busy for a moment.
const EAGAIN: i32 = 11;

/// More tries of a copy if the kernel is busy for a moment. Chosen, not measured.
const COPY_PATIENCE: u32 = 10_000;

/// A page is neither at its source nor at its destination: the program's bytes are lost.
#[derive(Debug, thiserror::Error)]
#[error("page {at:#x} has vanished ({doing}, errno {errno})")]
pub(crate) struct Lost {
    at: usize,
    doing: &'static str,
    errno: i32,
}

/// Whether frames were taken out of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All of them are in the pool.
    All,
    /// None is in the pool: something else holds a page, for example I/O of the program, or a pin.
    Busy,
}

pub(crate) struct Mover {
    /// Faults of the program.
    pub program: Userfaultfd,
    /// The events that were read from `program`.
    pub events: Events,
    /// The userfaultfd of the pool: to touch a place without a frame is an error, not a wait.
    pool: Userfaultfd,
    pagemap: Pagemap,
    moves: bool,
    pins: Option<&'static Pins>,
    zeros: usize,
    /// Whether installing a page wakes no thread.
    quiet: bool,
    /// Pages that could not be moved at the first try.
    pub retries: u64,
}

/// Bytes of the zeros that fresh pages are copied from: few enough for the first-level cache.
const ZEROS: usize = 64 << 10;

/// Moves a page that was not moved with its neighbours. Returns whether it has moved.
///
/// `shift` makes the page exclusive to this process, if it can do so without a fault, and tries to
/// move the page.
fn shift_page(from: usize, mut shift: impl FnMut() -> bool) -> bool {
    (0..PATIENCE).any(|tries| {
        if tries % PART_STEP == 1 {
            memory::part(from);
        }
        shift()
    })
}

impl Mover {
    /// Opens both userfaultfds. With `copy`, `UFFDIO_MOVE` is not used even if the kernel has it.
    /// Nothing that is pinned is taken out of the program.
    pub fn open(copy: bool, pins: Option<&'static Pins>) -> Result<Mover> {
        let program = Userfaultfd::open(Kind::Events { copies: copy })?;
        let pool = Userfaultfd::open(Kind::Sigbus)?;
        let moves = program.can_move() && !copy;
        let zeros = memory::reserve(ZEROS)? as usize;
        memory::populate(zeros, ZEROS)
            .or_else(|_| {
                // SAFETY: the range was mapped just now, and only this function uses it. Before
                // Linux 5.14, writing populates the range.
                unsafe { memory::bytes(zeros, ZEROS) }.fill(0);
                Ok::<(), terapage_sys::Error>(())
            })
            .ok();
        Ok(Mover {
            program,
            events: Events::default(),
            pool,
            pagemap: Pagemap::open()?,
            moves,
            pins,
            zeros,
            quiet: false,
            retries: 0,
        })
    }

    /// A mover with new descriptors, for the child of a fork.
    pub fn reopen(&self) -> Result<Mover> {
        let mut fresh = Mover::open(!self.moves, self.pins)?;
        fresh.events = self.events.inherited();
        fresh.retries = self.retries;
        Ok(fresh)
    }

    /// Whether frames are moved, not copied.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// While `quiet`, installing a page wakes no thread: the caller wakes the waiters itself.
    pub fn be_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    pub fn wakes(&self) -> bool {
        !self.quiet
    }

    fn wake(&self, at: usize, len: usize) -> Result<()> {
        if self.wakes() { self.program.wake(at, len) } else { Ok(()) }
    }

    /// From now on `program` receives the program's faults in the range.
    pub fn register(&self, at: usize, len: usize) -> Result<()> {
        memory::advise(at, len, memory::MADV_NOHUGEPAGE);
        self.program.register(at, len, !self.moves)
    }

    /// From now on the program may only read this registered range, whose pages come in as
    /// write-protected copies.
    pub fn seal(&mut self, at: usize, len: usize) -> Result<()> {
        self.program.register(at, len, true)?;
        self.events.seal(at, at + len);
        Ok(())
    }

    /// Registers a reserved range as the pool.
    pub fn register_pool(&self, at: usize, len: usize) -> Result<()> {
        if self.moves { self.pool.register(at, len, false) } else { Ok(()) }
    }

    /// Which pages are present.
    pub fn present(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        self.pagemap.present(at, pages)
    }

    /// Which pages are present and shared, with another process or as the kernel's page of zeros.
    pub fn shared(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        self.pagemap.shared(at, pages)
    }

    /// Calls `each` with every range of present pages in this range. Whether the kernel can tell.
    pub fn each_present(&self, range: Range<usize>, each: impl FnMut(Range<usize>)) -> Result<bool> {
        self.pagemap.each_present(range, each)
    }

    /// Whether the page at `at` is present.
    pub fn page_present(&self, at: usize) -> bool {
        let mut page = [false];
        self.pagemap.present(at, &mut page).is_ok() && page[0]
    }

    /// Puts zero pages where the program has no pages, and wakes the waiters.
    pub fn fresh(&mut self, at: usize, len: usize) -> std::result::Result<(), Lost> {
        for offset in (0..len).step_by(ZEROS) {
            let part = ZEROS.min(len - offset);
            if let Err(stuck) = self.copy_in(at + offset, self.zeros, part, self.wakes()) {
                // The kernel copies into one mapping at a time, and the range may consist of
                // several mappings.
                for page in (stuck.done..part).step_by(page_bytes()) {
                    let at = at + offset + page;
                    if let Err(stuck) = self.copy_in(at, self.zeros, page_bytes(), self.wakes()) {
                        return Err(Lost { at, doing: "first touch", errno: stuck.errno });
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a frame of zeros in a place of the pool.
    pub fn fill(&self, place: usize, len: usize) -> std::result::Result<(), Lost> {
        for offset in (0..len).step_by(ZEROS) {
            let part = ZEROS.min(len - offset);
            if self.moves {
                // SAFETY: the zeros belong to the mover and are never written.
                let copied =
                    unsafe { self.pool.copy(place + offset, self.zeros, part, false, false, COPY_PATIENCE) };
                if let Err(stuck) = copied {
                    return Err(Lost {
                        at: place + offset + stuck.done,
                        doing: "new frame",
                        errno: stuck.errno,
                    });
                }
            } else {
                // SAFETY: the place belongs to the pool, and has no other user yet; writing gives
                // it pages.
                unsafe { memory::bytes(place + offset, part) }.fill(0);
            }
        }
        Ok(())
    }

    /// Fills places, of `len` bytes each, with frames that are neighbours in the machine's memory,
    /// if the kernel has a huge page: a device transfers few large pieces faster than many small
    /// ones. Returns the number of filled places; their bytes are zero. Needs `UFFDIO_MOVE`.
    ///
    /// `stage` comes from `Maker::take` and is given up.
    pub fn fill_huge(&self, stage: usize, places: &[usize], len: usize) -> usize {
        debug_assert!(self.moves && places.len() * len == HUGE);
        let mut filled = 0;
        while filled < places.len() {
            let run = (filled..places.len())
                .take_while(|&at| places[at] == places[filled] + (at - filled) * len)
                .count();
            // The huge page is never moved in one piece: the kernel must split it while it is
            // marked.
            let run = run.min(places.len().div_ceil(2));
            let from = stage + filled * len;
            // SAFETY: the stage is given up here.
            let went = unsafe { self.pool.shift(places[filled], from, run * len, false, MOVE_PATIENCE) };
            let whole = match went {
                Ok(()) => run,
                Err(stuck) => {
                    let whole = stuck.done / len;
                    let rest = places[filled] + whole * len;
                    // A partly filled place must be emptied. SAFETY: that place has no user.
                    unsafe { memory::discard(rest, (run - whole) * len) }.ok();
                    whole
                }
            };
            filled += whole;
            if whole < run {
                break;
            }
        }
        for &place in &places[..filled] {
            super::mark(place, len, 0);
        }
        if filled < places.len() {
            // SAFETY: only this function uses the stage.
            unsafe { memory::replace(stage as *mut u8, HUGE) }.ok();
        }
        filled
    }

    /// Moves the frames of `len` bytes from the pool to the program, and wakes the waiters.
    pub fn install(&mut self, to: usize, place: usize, len: usize) -> std::result::Result<(), Lost> {
        // The program could write to a moved page before the page is protected.
        if self.moves && !self.events.is_sealed(to, len) {
            match self.move_in(to, place, len, self.wakes(), MOVE_PATIENCE) {
                Ok(()) => return Ok(()),
                Err(stuck) => self.install_by_pages(to, place, len, stuck.errno)?,
            }
        } else {
            self.copy_by_parts(to, place, len)?;
            // SAFETY: the bytes are in the program now.
            unsafe { memory::discard(place, len) }.ok();
        }
        self.wake(to, len).ok();
        Ok(())
    }

    /// Copies `len` bytes from the pool into the program, and wakes the waiters: the frames stay in
    /// the pool. If the kernel has no memory for a copy, the frames go into the program, as with
    /// [`install`](Self::install). Returns whether they were copied.
    pub fn copy(&mut self, to: usize, place: usize, len: usize) -> std::result::Result<bool, Lost> {
        let Err(stuck) = self.copy_in(to, place, len, self.wakes()) else {
            return Ok(true);
        };
        self.install_by_pages(to + stuck.done, place + stuck.done, len - stuck.done, stuck.errno)?;
        // SAFETY: the bytes are in the program now.
        unsafe { memory::discard(place, len) }.ok();
        self.wake(to, len).ok();
        Ok(false)
    }

    /// Copies `len` bytes from a bounce buffer into the program, and wakes the waiters. Empties
    /// `place`, if the frames there are no longer needed.
    pub fn copy_from(
        &mut self,
        to: usize,
        buffer: usize,
        len: usize,
        place: Option<usize>,
    ) -> std::result::Result<(), Lost> {
        self.copy_by_parts(to, buffer, len)?;
        // SAFETY: the bytes of these frames are not needed.
        place.map(|place| unsafe { memory::discard(place, len) }.ok());
        self.wake(to, len).ok();
        Ok(())
    }

    /// Copies bytes into the program. The kernel handles one mapping at a time, and the range may
    /// consist of several mappings.
    fn copy_by_parts(&mut self, to: usize, from: usize, len: usize) -> std::result::Result<(), Lost> {
        let Err(stuck) = self.copy_in(to, from, len, false) else { return Ok(()) };
        for page in (stuck.done..len).step_by(page_bytes()) {
            if let Err(stuck) = self.copy_in(to + page, from + page, page_bytes(), false) {
                return Err(Lost { at: to + page, doing: "page-in by copy", errno: stuck.errno });
            }
        }
        Ok(())
    }

    /// Moves frames from the pool to the program.
    fn move_in(
        &mut self,
        to: usize,
        place: usize,
        len: usize,
        wake: bool,
        patience: u32,
    ) -> std::result::Result<(), Stuck> {
        self.bring(to, Some(place), len, patience, |mover, done| {
            // SAFETY: the place belongs to the pool, and is given up here.
            unsafe { mover.program.shift(to + done, place + done, len - done, wake, 0) }
        })
    }

    /// Copies bytes from the pool, or zeros, into the program.
    fn copy_in(&mut self, to: usize, place: usize, len: usize, wake: bool) -> std::result::Result<(), Stuck> {
        let bytes = (place != self.zeros).then_some(place);
        let protect = self.events.is_sealed(to, len);
        self.bring(to, bytes, len, COPY_PATIENCE, |mover, done| {
            // SAFETY: nobody writes to the place meanwhile, and the mover's zeros are never
            // written.
            unsafe { mover.program.copy(to + done, place + done, len - done, wake, protect, 0) }
        })
    }

    /// Takes the present frames of `len` bytes out of the program into the pool. Returns whether
    /// all were taken; the others stay in the program.
    pub fn take_what_is_there(&self, place: usize, from: usize, len: usize) -> bool {
        // SAFETY: the program no longer needs these bytes.
        unsafe { self.pool.shift_what_is_there(place, from, len) }.is_ok()
    }

    fn install_by_pages(
        &mut self,
        to: usize,
        place: usize,
        len: usize,
        errno: i32,
    ) -> std::result::Result<(), Lost> {
        let is_sealed = self.events.is_sealed(to, len);
        for offset in (0..len).step_by(page_bytes()) {
            let (to, from) = (to + offset, place + offset);
            if !self.page_present(from) {
                // Or the page came in, and a direct call has removed it.
                if self.page_present(to) || self.events.is_missed(to) {
                    continue;
                }
                return Err(Lost { at: to, doing: "page-in", errno });
            }
            self.retries += 1;
            let shift = || {
                // SAFETY: the page is present in the pool, whose memory is writable, and no other
                // thread uses it.
                unsafe { memory::make_exclusive(from) };
                // No other thread takes the pool's pages: a missing page was moved, whatever the
                // kernel returned.
                self.move_in(to, from, page_bytes(), false, MOVE_PATIENCE).is_ok() || !self.page_present(from)
            };
            if is_sealed || !shift_page(from, shift) {
                if let Err(stuck) = self.copy_in(to, from, page_bytes(), false) {
                    return Err(Lost { at: to, doing: "page-in by copy", errno: stuck.errno });
                }
                // SAFETY: the bytes are in the program now.
                unsafe { memory::discard(from, page_bytes()) }.ok();
            }
        }
        Ok(())
    }

    /// The pins of the program's calls, if the kernel cannot wait for the pager.
    pub fn pins(&self) -> Option<&'static Pins> {
        self.pins
    }

    /// Takes the frames of `len` bytes out of the program into the pool, where the program cannot
    /// change them.
    pub fn take(&mut self, place: usize, from: usize, len: usize) -> std::result::Result<Taken, Lost> {
        let Some(pins) = self.pins else { return self.take_unpinned(place, from, len) };
        if !pins.take(from, len) {
            return Ok(Taken::Busy);
        }
        let taken = self.take_unpinned(place, from, len);
        pins.taken();
        taken
    }

    fn take_unpinned(&mut self, place: usize, from: usize, len: usize) -> std::result::Result<Taken, Lost> {
        if !self.moves {
            return self.take_by_copy(place, from, len);
        }
        let shift = |mover: &Mover| {
            // SAFETY: the program gets its bytes back through a fault.
            unsafe { mover.pool.shift(place, from, len, false, MOVE_PATIENCE) }
        };
        let Some(went) = self.take_out(from, len, shift) else { return Ok(Taken::Busy) };
        match went {
            Ok(()) => Ok(Taken::All),
            Err(stuck) => self.take_by_pages(place, from, len, stuck.errno),
        }
    }

    fn take_by_pages(
        &mut self,
        place: usize,
        from: usize,
        len: usize,
        errno: i32,
    ) -> std::result::Result<Taken, Lost> {
        for offset in (0..len).step_by(page_bytes()) {
            let (to, page) = (place + offset, from + offset);
            if !self.page_present(page) {
                if self.page_present(to) || self.fill_removed(to, page)? {
                    continue;
                }
                return Err(Lost { at: page, doing: "page-out", errno });
            }
            self.retries += 1;
            let move_out = |mover: &Mover| {
                // SAFETY: the program gets its bytes back through a fault.
                unsafe { mover.pool.shift(to, page, page_bytes(), false, MOVE_PATIENCE) }.is_ok()
            };
            let shift = || {
                // A page of a sealed range is protected, and no fork shares it.
                if !self.events.is_sealed(page, page_bytes()) {
                    // SAFETY: the page is present: only this thread takes it away, and it has not
                    // been removed. The program's memory is writable.
                    self.events.while_it_stays(page, || unsafe { memory::make_exclusive(page) });
                }
                self.take_out(page, page_bytes(), move_out) == Some(true)
                    // The page has vanished since it was seen: it was moved although the kernel
                    // said that it was not (seen with Linux 6.18), or it was removed.
                    || !self.page_present(page)
                        && (self.page_present(to)
                            || self.fill_removed(to, page).is_ok_and(|removed| removed))
            };
            if !shift_page(page, shift) {
                self.put_back(place, from, offset)?;
                return Ok(Taken::Busy);
            }
        }
        Ok(Taken::All)
    }

    /// Moves the first `len` bytes, which are in the pool, back into the program.
    fn put_back(&mut self, place: usize, from: usize, len: usize) -> std::result::Result<(), Lost> {
        if len > 0 {
            self.install_by_pages(from, place, len, 0)?;
        }
        self.wake(from, len.max(page_bytes())).ok();
        Ok(())
    }

    fn take_by_copy(&self, place: usize, from: usize, len: usize) -> std::result::Result<Taken, Lost> {
        let lost = |at, errno| Lost { at, doing: "page-out by copy", errno };
        let mut there = [false; 512];
        let there = &mut there[..len.div_ceil(page_bytes()).min(512)];
        for start in (0..len).step_by(page_bytes() * 512) {
            let pages = &mut there[..((len - start) / page_bytes()).min(512)];
            self.present(from + start, pages).map_err(|error| lost(from, error.errno()))?;
            if let Some(gone) = pages.iter().position(|present| !present) {
                return Err(lost(from + start + gone * page_bytes(), 0));
            }
        }
        // Linux 6.1 protects one mapping at a time, and the range may consist of several mappings.
        let by_pages = |_| {
            (from..from + len)
                .step_by(page_bytes())
                .try_for_each(|at| self.program.protect(at, page_bytes(), true))
        };
        match self.program.protect(from, len, true).or_else(by_pages) {
            // A call is changing the program's memory, and the report of the call must be read
            // first.
            Err(error) if error.errno() == EAGAIN => return Ok(Taken::Busy),
            other => other.map_err(|error| lost(from, error.errno()))?,
        }
        // SAFETY: the program's pages are present and write-protected; the place belongs to the
        // pool and is empty.
        unsafe { memory::bytes(place, len).copy_from_slice(memory::bytes(from, len)) };
        // SAFETY: the program gets its bytes back through a fault.
        unsafe { memory::discard(from, len) }.map_err(|error| lost(from, error.errno()))?;
        self.wake(from, len).map_err(|error| lost(from, error.errno()))?;
        thread::pause().ok();
        Ok(Taken::All)
    }
}
