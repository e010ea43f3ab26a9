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
//! If paged memory is unmapped or moved, the program is stopped, unless the library said before
//! that it would map over the range. The program is also stopped if pages of a mapped file are
//! removed, because zeros would be wrong there: in a *sealed* range, which the program only reads,
//! or in a private mapping to which the program may write.

use super::mover::{Lost, Mover};
use crate::spans::Spans;
use std::time::Duration;
use terapage_sys::userfaultfd::{Change, Changed, Fault, Stuck};
use terapage_sys::{memory, page_bytes, thread};

const EAGAIN: i32 = 11;

/// After a removal, its pages may still vanish for this long, ns, or at most for twice as long.
/// Chosen, not measured.
const GOING_NS: u64 = 1_000_000_000;

/// How often, and how far apart, the report of a call that took pages away is looked for. A loaded
/// machine may keep the calling thread waiting before it reports. Chosen, not measured.
const BLAME_TRIES: usize = 200;
const BLAME_STEP: Duration = Duration::from_millis(5);

/// Events that were read from the program's userfaultfd, and what follows from them.
#[derive(Default)]
pub(crate) struct Events {
    /// Whether any were read and not yet handled.
    some: bool,
    /// Removed ranges with paged-out blocks that may still have old bytes.
    waiting: Spans,
    /// All ranges that were ever removed.
    removed: Spans,
    /// Pages that were in the program when they were removed, and may still vanish: those noted
    /// since `at_ns`, and in the previous period.
    going: [Spans; 2],
    /// Ranges in which pages may still vanish, including pages that have come in since.
    emptied: [Spans; 2],
    /// Ranges that hold a file which the program only reads: their pages are write-protected.
    sealed: Spans,
    /// Private mappings of files to which the program may write. The program has changed the parts
    /// of them that are not sealed.
    private: Spans,
    /// Ranges over which the library is about to map something.
    leaving: Spans,
    at_ns: u64,
    faults: Vec<Fault>,
    changes: Vec<Changed>,
}

impl Events {
    /// A copy for the child of a fork, in which removed pages may be missing, too.
    pub fn inherited(&self) -> Events {
        let mut removed = Spans::new();
        self.removed.iter().for_each(|(from, to)| removed.insert(from, to));
        let mut waiting = Spans::new();
        self.waiting.iter().for_each(|(from, to)| waiting.insert(from, to));
        let mut private = Spans::new();
        self.private.iter().for_each(|(from, to)| private.insert(from, to));
        let some = waiting.iter().next().is_some();
        Events { some, waiting, removed, private, ..Events::default() }
    }

    /// Whether anything was read and not yet handled.
    pub fn has_any(&self) -> bool {
        self.some
    }

    /// Whether any page of a range may be missing.
    pub fn were_removed(&self, at: usize, len: usize) -> bool {
        self.removed.meets(at, at + len)
    }

    /// Calls `touch` if a present page cannot vanish meanwhile: touching a missing page would be a
    /// fault. (No event is read meanwhile, and no page vanishes before its event was read.)
    pub fn while_it_stays(&mut self, page: usize, touch: impl FnOnce()) {
        self.pass_time();
        if !self.emptied.iter().any(|spans| spans.meets(page, page + page_bytes())) {
            touch();
        }
    }

    /// Whether a missing page was removed. A removed page is noted as gone.
    pub fn is_missed(&mut self, page: usize) -> bool {
        if self.may_go(page, page + page_bytes()) {
            self.has_gone(page, page + page_bytes());
        }
        self.removed.meets(page, page + page_bytes())
    }

    /// The first removed range that may be paged out with old bytes.
    pub fn first_waiting(&self) -> Option<(usize, usize)> {
        self.waiting.iter().next()
    }

    /// Whether any of a range was removed and may be out with old bytes.
    #[cfg(terapage_model)]
    pub fn is_waiting(&self, from: usize, to: usize) -> bool {
        self.waiting.meets(from, to)
    }

    /// Notes that no part of a range is out with old bytes.
    pub fn is_done(&mut self, from: usize, to: usize) {
        self.waiting.remove(from, to);
    }

    /// The faults that were read, for the engine.
    pub fn take_faults(&mut self, faults: &mut impl Extend<Fault>) {
        self.some = false;
        faults.extend(self.faults.drain(..));
    }

    /// From now on the program may only read the range.
    pub fn seal(&mut self, from: usize, to: usize) {
        self.sealed.insert(from, to);
    }

    /// The program may write to the range.
    pub fn unseal(&mut self, from: usize, to: usize) {
        self.sealed.remove(from, to);
    }

    /// The parts of a range that are sealed.
    pub fn sealed_within(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        self.sealed.within(from, to)
    }

    /// From now on the program may write to the range, whose sealed parts have the file's bytes.
    pub fn let_write(&mut self, from: usize, to: usize) {
        self.private.insert(from, to);
    }

    /// The range is no private mapping of a file any more.
    pub fn forget_private(&mut self, from: usize, to: usize) {
        self.private.remove(from, to);
    }

    /// Whether an address belongs to a private mapping of a file to which the program may write.
    pub fn may_write(&self, at: usize) -> bool {
        self.private.meets(at, at + 1)
    }

    /// The parts of private mappings in a range that the program has changed.
    pub fn changed_within(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let private = self.private.within(from, to).into_iter();
        private.flat_map(|(from, to)| self.sealed.without(from, to)).collect()
    }

    /// Whether the program may only read the range, or a part of it.
    pub fn is_sealed(&self, at: usize, len: usize) -> bool {
        self.sealed.meets(at, at + len)
    }

    /// Whether any range is sealed.
    pub fn any_sealed(&self) -> bool {
        self.sealed.iter().next().is_some()
    }

    /// The end of the first part of a range: the whole part is sealed, or none of it is.
    pub fn end_of_alike(&self, from: usize, to: usize) -> usize {
        match self.sealed.within(from, to).first() {
            None => to,
            Some(&(start, end)) if start == from => end,
            Some(&(start, _)) => start,
        }
    }

    /// The library is about to map something over the range.
    pub fn let_leave(&mut self, from: usize, to: usize) {
        self.leaving.insert(from, to);
    }

    /// The library has mapped something over the range, or will not do so.
    pub fn stays(&mut self, from: usize, to: usize) {
        self.leaving.remove(from, to);
    }

    /// Notes a change that the kernel has reported.
    fn note(&mut self, Changed { change, from, to }: Changed) {
        match change {
            Change::Removed if self.sealed.meets(from, to) || self.private.meets(from, to) => {
                refuse(change, from, to)
            }
            Change::Removed => {
                self.waiting.insert(from, to);
                self.removed.insert(from, to);
                self.pass_time();
                self.going[0].insert(from, to);
                self.emptied[0].insert(from, to);
            }
            Change::Unmapped if self.leaving.without(from, to).is_empty() => self.leaving.remove(from, to),
            Change::Unmapped | Change::Moved => refuse(change, from, to),
        }
    }

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

impl Mover {
    /// Reads the program's events, `most` messages at a time. Faults are kept for
    /// [`Events::take_faults`].
    pub fn read_events(&mut self, most: usize) -> terapage_sys::Result<()> {
        let events = &mut self.events;
        loop {
            let got = self.program.read(most, &mut events.faults, &mut events.changes)?;
            let mut changes = std::mem::take(&mut events.changes);
            changes.drain(..).for_each(|changed| events.note(changed));
            events.changes = changes;
            events.some |= got > 0;
            if got < most || most == 1 {
                return Ok(());
            }
        }
    }

    /// Pages were lost: stops the program with the reason if a call has unmapped or moved memory.
    /// The kernel reports such a call only after the pages are gone.
    pub fn blame_call(&self) {
        let (mut faults, mut changes) = (Vec::new(), Vec::new());
        for _ in 0..BLAME_TRIES {
            self.program.read(16, &mut faults, &mut changes).ok();
            for Changed { change, from, to } in changes.drain(..) {
                if change != Change::Removed {
                    refuse(change, from, to);
                }
            }
            std::thread::sleep(BLAME_STEP);
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

    /// Puts pages into the program at `to` by `step`, which begins after some bytes. `place` is the
    /// address of their bytes; `None` for zeros. The bytes of removed pages become zeros.
    pub fn bring(
        &mut self,
        to: usize,
        place: Option<usize>,
        len: usize,
        mut patience: u32,
        step: impl Fn(&Mover, usize) -> Result<(), Stuck>,
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
        &mut self,
        to: usize,
        place: Option<usize>,
        rest: std::ops::Range<usize>,
        step: &impl Fn(&Mover, usize) -> Result<(), Stuck>,
    ) -> Result<(), Stuck> {
        let (from, end) = (to + rest.start, to + rest.end);
        if !self.events.waiting.meets(from, end) && !self.events.may_go(from, end) {
            return step(self, rest.start);
        }
        for (from, end) in place.map(|_| self.events.waiting.within(from, end)).unwrap_or_default() {
            let at = place.unwrap_or_default() + (from - to);
            // A page beyond the kernel's count may have moved already, and is not here any more.
            for page in (at..at + (end - from)).step_by(page_bytes()).filter(|&page| self.page_present(page))
            {
                // SAFETY: the place has frames that only the calling thread uses.
                unsafe { memory::bytes(page, page_bytes()) }.fill(0);
            }
        }
        let brought = step(self, rest.start);
        match brought {
            Ok(()) => self.events.came(from, end),
            // The kernel's count may be wrong. No other page was there.
            Err(_) => {
                for page in (from..end).step_by(page_bytes()) {
                    if self.page_present(page) {
                        self.events.came(page, page + page_bytes());
                    }
                }
            }
        }
        brought
    }

    /// Takes pages out of the program by `step`; `None` if some of them may vanish at any moment.
    pub fn take_out<T>(&mut self, from: usize, len: usize, step: impl FnOnce(&Mover) -> T) -> Option<T> {
        if self.events.may_go(from, from + len) {
            self.look_again(from, from + len);
        }
        if self.events.may_go(from, from + len) { None } else { Some(step(self)) }
    }

    /// Forgets the pages of a range that are gone, or have had the time to vanish.
    fn look_again(&mut self, from: usize, to: usize) {
        self.events.pass_time();
        for page in (from..to).step_by(page_bytes()) {
            if self.events.may_go(page, page + page_bytes()) && !self.page_present(page) {
                self.events.has_gone(page, page + page_bytes());
            }
        }
    }

    /// Fills the page at `to`, in the pool, with the zeros of a removed page. Returns whether the
    /// page was removed.
    pub fn fill_removed(&mut self, to: usize, page: usize) -> Result<bool, Lost> {
        let removed = self.events.is_missed(page);
        if removed {
            self.fill(to, page_bytes())?;
        }
        Ok(removed)
    }
}

/// Stops the program after a call that paging cannot follow: the kernel has already executed the
/// call, and may map other memory there.
fn refuse(change: Change, from: usize, to: usize) -> ! {
    let what = match change {
        Change::Moved => "moved",
        Change::Unmapped => "unmapped or mapped over",
        Change::Removed => "dropped",
    };
    thread::stop(&format!(
        "terapage: paged memory, {from:#x} to {to:#x}, was {what} by a direct system call, past the C library; the program is stopped rather than given wrong bytes (try: --static all)\n"
    ))
}
