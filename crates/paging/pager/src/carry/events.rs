//! Changes of paged memory that the program makes by direct system calls, past the library. The
//! kernel reports each such call, and lets it continue once the report is read.
//!
//! Removed pages (`MADV_DONTNEED` and the like) vanish after that, at a time that is not reported.
//! With `MADV_FREE` they stay until memory is short, and the program may write to them. From the
//! moment the report is read:
//! - blocks that were paged out come into the program as zeros, whichever thread brings them;
//! - the pager's thread makes paged-out blocks zero, before it serves later events;
//! - the kernel removes the pages that are in the program. Until then the pager does not page them
//!   out, because they could come back with old bytes;
//! - a page that is missing there was not lost: it is zero from then on.
//!
//! If paged memory is unmapped or moved, the program is stopped.

use super::mover::{Lost, Mover};
use crate::spans::Spans;
use crate::sync::{RwLock, read, write};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use terapage_sys::userfaultfd::{Change, Changed, Fault, Stuck};
use terapage_sys::{PAGE, memory, thread};

const EAGAIN: i32 = 11;

/// After a removal, its pages may still vanish for this long, ns, or at most for twice as long.
/// Chosen, not measured.
const GOING_NS: u64 = 1_000_000_000;

#[derive(Default)]
struct Notes {
    /// Removed ranges with paged-out blocks that may still have old bytes.
    waiting: Spans,
    /// All ranges that were ever removed.
    removed: Spans,
    /// Pages that were in the program when they were removed, and may still vanish: those noted
    /// since `at_ns`, and in the previous period.
    going: [Spans; 2],
    /// Ranges in which pages may still vanish, including pages that have come in since.
    emptied: [Spans; 2],
    at_ns: u64,
    faults: Vec<Fault>,
    changes: Vec<Changed>,
}

impl Notes {
    /// Forgets pages that have had the time to vanish: either they are gone, or they stay.
    fn pass_time(&mut self) {
        let now_ns = thread::now_ns();
        if now_ns < self.at_ns + GOING_NS {
            return;
        }
        let late = now_ns >= self.at_ns + 2 * GOING_NS;
        for [now, before] in [&mut self.going, &mut self.emptied] {
            *before = std::mem::take(now);
            if late {
                *before = Spans::new();
            }
        }
        self.at_ns = now_ns;
    }

    fn may_go(&self, from: usize, to: usize) -> bool {
        self.going.iter().any(|spans| spans.meets(from, to))
    }

    /// Notes that pages have come into the program.
    fn came(&mut self, from: usize, to: usize) {
        self.waiting.remove(from, to);
        self.going.iter_mut().for_each(|spans| spans.remove(from, to));
    }

    /// Notes that pages that were in the program are gone.
    fn has_gone(&mut self, from: usize, to: usize) {
        self.going.iter_mut().for_each(|spans| spans.remove(from, to));
        self.emptied.iter_mut().for_each(|spans| spans.remove(from, to));
    }
}

/// Events that were read from the program's userfaultfd but not yet handled.
#[derive(Default)]
pub(crate) struct Events {
    notes: RwLock<Notes>,
    /// Whether there are any.
    some: AtomicBool,
}

impl Events {
    /// A copy for the child of a fork, in which removed pages may be missing, too.
    pub fn inherited(&self) -> Events {
        let notes = read(&self.notes);
        let mut removed = Spans::new();
        notes.removed.iter().for_each(|(from, to)| removed.insert(from, to));
        let mut waiting = Spans::new();
        notes.waiting.iter().for_each(|(from, to)| waiting.insert(from, to));
        let some = AtomicBool::new(notes.waiting.iter().next().is_some());
        Events { notes: RwLock::new(Notes { waiting, removed, ..Notes::default() }), some }
    }

    /// Whether anything was read and not yet handled.
    pub fn has_any(&self) -> bool {
        self.some.load(SeqCst)
    }

    /// Whether any page of a range may be missing.
    pub fn were_removed(&self, at: usize, len: usize) -> bool {
        read(&self.notes).removed.meets(at, at + len)
    }

    /// Calls `touch` if a present page cannot vanish meanwhile: touching a missing page would be a
    /// fault.
    pub fn while_it_stays(&self, page: usize, touch: impl FnOnce()) {
        write(&self.notes).pass_time();
        // No event is read while this lock is held, and no page vanishes before its event was read.
        let notes = read(&self.notes);
        if !notes.emptied.iter().any(|spans| spans.meets(page, page + PAGE)) {
            touch();
        }
    }

    /// Whether a missing page was removed. A removed page is noted as gone.
    pub fn is_missed(&self, page: usize) -> bool {
        let mut notes = write(&self.notes);
        if notes.may_go(page, page + PAGE) {
            notes.has_gone(page, page + PAGE);
        }
        notes.removed.meets(page, page + PAGE)
    }

    /// Forgets the pages of a range that are gone, or have had the time to vanish.
    fn look_again(&self, from: usize, to: usize, is_there: impl Fn(usize) -> bool) {
        let mut notes = write(&self.notes);
        notes.pass_time();
        for page in (from..to).step_by(PAGE) {
            if notes.may_go(page, page + PAGE) && !is_there(page) {
                notes.has_gone(page, page + PAGE);
            }
        }
    }

    /// The first removed range that may be paged out with old bytes.
    pub fn first_waiting(&self) -> Option<(usize, usize)> {
        read(&self.notes).waiting.iter().next()
    }

    /// Whether any of a range was removed and may be out with old bytes.
    #[cfg(terapage_model)]
    pub fn is_waiting(&self, from: usize, to: usize) -> bool {
        read(&self.notes).waiting.meets(from, to)
    }

    /// Notes that no part of a range is out with old bytes.
    pub fn is_done(&self, from: usize, to: usize) {
        write(&self.notes).waiting.remove(from, to);
    }
}

impl Mover {
    /// Reads the program's events, `most` messages at a time. Faults are kept for
    /// [`take_faults_read`](Self::take_faults_read).
    pub fn read_events(&self, most: usize) -> terapage_sys::Result<()> {
        // While this lock is held, no page is on its way into the program or out of it.
        let mut notes = write(&self.events.notes);
        let notes = &mut *notes;
        loop {
            let got = self.program.read(most, &mut notes.faults, &mut notes.changes)?;
            let mut changes = std::mem::take(&mut notes.changes);
            for Changed { change, from, to } in changes.drain(..) {
                match change {
                    Change::Removed => {
                        notes.waiting.insert(from, to);
                        notes.removed.insert(from, to);
                        notes.pass_time();
                        notes.going[0].insert(from, to);
                        notes.emptied[0].insert(from, to);
                    }
                    Change::Unmapped => refuse("unmapped or mapped over", from, to),
                    Change::Moved => refuse("moved", from, to),
                }
            }
            notes.changes = changes;
            if got > 0 {
                self.events.some.store(true, SeqCst);
            }
            if got < most || most == 1 {
                return Ok(());
            }
        }
    }

    /// Reads a pending fault while the pager is parked. Takes no lock: a fork may copy this process
    /// meanwhile, and a held lock would stay locked in the child.
    pub fn read_fault(&self, faults: &mut Vec<Fault>) -> terapage_sys::Result<()> {
        let mut changes = Vec::new();
        self.program.read(1, faults, &mut changes)?;
        assert!(changes.is_empty(), "the kernel gives faults before changes");
        Ok(())
    }

    /// The faults that were read, for the pager's thread.
    pub fn take_faults_read(&self, faults: &mut impl Extend<Fault>) {
        self.events.some.store(false, SeqCst);
        faults.extend(write(&self.events.notes).faults.drain(..));
    }

    /// Puts pages into the program at `to` by `step`, which begins after some bytes. `place` is the
    /// address of their bytes; `None` for zeros. The bytes of removed pages become zeros.
    pub fn bring(
        &self,
        to: usize,
        place: Option<usize>,
        len: usize,
        mut patience: u32,
        step: impl Fn(usize) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        let mut done = 0;
        loop {
            let brought = self.bring_once(to, place, done..len, &step);
            let Err(stuck) = brought else { return Ok(()) };
            done += stuck.done;
            if stuck.errno != EAGAIN {
                return Err(Stuck { done, ..stuck });
            }
            // While a call changes the program's memory, no page can come in: the call must be
            // reported, and continue.
            if self.program.is_changing() {
                if self.read_events(16).is_err() {
                    return Err(Stuck { done, ..stuck });
                }
            } else if patience == 0 {
                return Err(Stuck { done, ..stuck });
            } else {
                patience -= 1;
            }
            thread::pause().ok();
        }
    }

    /// Tries once to bring the remaining pages.
    fn bring_once(
        &self,
        to: usize,
        place: Option<usize>,
        rest: std::ops::Range<usize>,
        step: &impl Fn(usize) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        let (from, end) = (to + rest.start, to + rest.end);
        let notes = read(&self.events.notes);
        if !notes.waiting.meets(from, end) && !notes.may_go(from, end) {
            return step(rest.start);
        }
        drop(notes);
        let mut notes = write(&self.events.notes);
        for (from, end) in place.map(|_| notes.waiting.within(from, end)).unwrap_or_default() {
            let at = place.unwrap_or_default() + (from - to);
            // A page beyond the kernel's count may have moved already, and is not here any more.
            for page in (at..at + (end - from)).step_by(PAGE).filter(|&page| self.page_present(page)) {
                // SAFETY: the place has frames that only the calling thread uses.
                unsafe { memory::bytes(page, PAGE) }.fill(0);
            }
        }
        let brought = step(rest.start);
        match brought {
            Ok(()) => notes.came(from, end),
            // The kernel's count may be wrong. No other page was there.
            Err(_) => (from..end)
                .step_by(PAGE)
                .filter(|&page| self.page_present(page))
                .for_each(|page| notes.came(page, page + PAGE)),
        }
        brought
    }

    /// Takes pages out of the program by `step`; `None` if some of them may vanish at any moment.
    /// `None`.
    pub fn take_out<T>(&self, from: usize, len: usize, step: impl FnOnce() -> T) -> Option<T> {
        let mut notes = read(&self.events.notes);
        if notes.may_go(from, from + len) {
            drop(notes);
            self.events.look_again(from, from + len, |page| self.page_present(page));
            notes = read(&self.events.notes);
        }
        // No event is read meanwhile.
        if notes.may_go(from, from + len) { None } else { Some(step()) }
    }

    /// Fills the page at `to`, in the pool, with the zeros of a removed page. Returns whether the
    /// page was removed.
    pub fn fill_removed(&self, to: usize, page: usize) -> Result<bool, Lost> {
        let removed = self.events.is_missed(page);
        if removed {
            self.fill(to, PAGE)?;
        }
        Ok(removed)
    }
}

/// Stops the program after a call that paging cannot follow: the kernel has already executed the
/// call, and may map other memory there.
fn refuse(what: &str, from: usize, to: usize) -> ! {
    thread::stop(&format!(
        "terapage: paged memory, {from:#x} to {to:#x}, was {what} by a direct system call, past the C library; the program is stopped rather than given wrong bytes\n"
    ))
}
