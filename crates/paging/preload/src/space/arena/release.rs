//! `terapage release`: all paged memory comes back and becomes the kernel's, the pager ends, and
//! the arena is as if it had never had one, except that it will not get another.
//!
//! Memory is *held* piece by piece, while the program runs: a held block is loose, and stays so
//! until the end, or until all is undone. Memory that the program takes or maps meanwhile is paged.
//! The last step holds that, too, together with all that is not in use, and ends the pager.
//!
//! In an adopted program the thread that has adopted it does this (`host`: `release.rs`). In others
//! the pager's thread does: no further thread waits for a release there, and the pager's thread
//! cannot begin one. It must not wait for the program, so it only tries to take the arena's lock,
//! and its requests to the pager are served at once.

use super::*;
use crate::{adopted, copies, files};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use terapage_stats::{Control, Shared, Stage};

/// Bytes of contents that are held at once: calls about memory wait meanwhile, and so do faults.
const PIECE: usize = 4 << 20;
/// Addresses that are looked at together.
const WINDOW: usize = 1 << 30;
/// How often all memory is gone through. What is new since the last time is held in the last step.
const ROUNDS: usize = 6;
/// How often the pager's thread tries to take the lock before it looks for other work. Chosen, not
/// measured.
const TRIES: usize = 2000;

static RELEASED: AtomicBool = AtomicBool::new(false);

/// Whether the program was released: nothing is paged any more, and calls go to the kernel.
pub fn is_released() -> bool {
    RELEASED.load(Relaxed)
}

/// Whether a release is under way, so that more is in memory than the budget allows.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Whether the budget does not hold: the program was released, or is just being released.
pub fn is_without_budget() -> bool {
    is_released() || GOES_ON.load(Relaxed)
}

/// The counters of the pager that a release has ended; null if none has in this process.
static ENDED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// Why a release is not done.
#[derive(Clone, Copy)]
enum Undone {
    /// This side refuses it.
    Refused(&'static str),
    /// It was cancelled.
    Cancelled,
}

const FEW_MAPPINGS: Undone = Undone::Refused("it may have no more mappings (vm.max_map_count)");
const FILES: Undone = Undone::Refused("its mapped files are paged (--files)");
const CHANGES: Undone = Undone::Refused("mapped files that it may change are paged (--files)");
const COPIES: Undone = Undone::Refused("it has loaded libterapage, whose memory the same pager pages");

/// A release that goes on.
struct Release {
    /// All memory before this address was looked at in this round, and this much of it held.
    at: usize,
    bytes: usize,
    rounds: usize,
    /// All is being undone, for this reason.
    undone: Option<Undone>,
}

/// What is to do after a step of a release.
enum Next {
    Step,
    /// All but what is new since was held.
    End,
    /// All is paged again.
    Nothing,
}

/// Serves a request of `terapage release`: releases the program, or undoes what was done, and says
/// why. Between pieces `pause` is called. Returns whether the program is released.
#[cfg_attr(not(target_env = "musl"), allow(dead_code, reason = "the host for musl adopts programs"))]
pub fn serve(control: &Control, mut pause: impl FnMut()) -> bool {
    let mut release = Release::begin(control, &ARENA.lock());
    loop {
        // The lock is free while this thread pauses.
        let next = release.step(&mut ARENA.lock(), control);
        match next {
            Next::Step => pause(),
            Next::Nothing => return false,
            Next::End => {
                let mut arena = ARENA.lock();
                if release.may_end(&mut arena, control) {
                    if let Some(pager) = &arena.pager {
                        setup::or_fail(pager.end());
                    }
                    arena.is_released_now();
                    control.set(Stage::Released);
                    return true;
                }
            }
        }
    }
}

/// The release that the pager's thread does; only that thread uses this.
static GOING: Lock<Option<Release>> = Lock::new(None);

/// In the pager's thread: does a part of the release that is asked for, or of undoing it. Returns
/// whether there is more to do now.
pub fn turn(control: &'static Control) -> bool {
    if adopted::is_adopted() {
        return false;
    }
    // Its holder may wait for this thread, but not spin for it.
    if !(0..TRIES).any(|_| {
        ARENA.try_take() || {
            std::hint::spin_loop();
            false
        }
    }) {
        thread::pause().ok();
        return true;
    }
    // SAFETY: the lock was taken just now, and is released below.
    let arena = unsafe { ARENA.value() };
    let mut going = GOING.lock();
    let release = going.get_or_insert_with(|| Release::begin(control, arena));
    let next = release.step(arena, control);
    let ends = matches!(next, Next::End) && release.may_end(arena, control);
    if ends || matches!(next, Next::Nothing) {
        *going = None;
    }
    drop(going);
    match &arena.pager {
        Some(pager) if ends => {
            // The lock stays taken until the pager is gone: a fork must not copy it half ended.
            setup::or_fail(pager.end_then(move || {
                // SAFETY: this is the thread that has taken the lock.
                unsafe { ARENA.value() }.is_released_now();
                ARENA.give();
                control.set(Stage::Released);
            }));
            false
        }
        _ => {
            ARENA.give();
            !ends && !matches!(next, Next::Nothing)
        }
    }
}

/// The words through which a release is asked for, if there is a pager.
#[cfg_attr(not(target_env = "musl"), allow(dead_code, reason = "the host for musl adopts programs"))]
pub fn control() -> Option<&'static Control> {
    ARENA.lock().pager.as_ref().map(|pager| &pager.shared().control)
}

/// Notes that there is a pager, or will be at once: its thread waits for a release, unless another
/// thread will.
pub fn is_paged(shared: &'static Shared) {
    if !adopted::is_adopted() {
        shared.control.set(Stage::Waits);
    }
}

impl Release {
    fn begin(control: &Control, arena: &Arena) -> Release {
        GOES_ON.store(true, Relaxed);
        control.done_bytes.store(0, Relaxed);
        control.all_bytes.store(arena.contents(0).1 as u64, Relaxed);
        Release { at: 0, bytes: 0, rounds: 0, undone: None }
    }

    /// Holds the next piece, or lets the next one go.
    fn step(&mut self, arena: &mut Arena, control: &Control) -> Next {
        if self.undone.is_none() && control.stage() != Stage::Asked {
            self.undone = Some(Undone::Cancelled);
        }
        if self.undone.is_none() {
            self.undone = arena.refuses();
        }
        if self.undone.is_none() && arena.files.any() {
            // From now on, no more are paged.
            arena.leave_all_files();
        }
        if let Some(why) = self.undone {
            if arena.let_go_next() {
                return Next::Step;
            }
            GOES_ON.store(false, Relaxed);
            control.say(match why {
                Undone::Refused(why) => why,
                Undone::Cancelled => "",
            });
            control.set(Stage::Refused);
            return Next::Nothing;
        }
        match arena.hold_next(self.at) {
            Err(_) => self.undone = Some(FEW_MAPPINGS),
            Ok(Some((next, bytes))) => {
                self.at = next;
                self.bytes += bytes;
                control.done_bytes.fetch_add(bytes as u64, Relaxed);
            }
            Ok(None) => {
                self.rounds += 1;
                if self.bytes < PIECE || self.rounds == ROUNDS {
                    return Next::End;
                }
                (self.at, self.bytes) = (0, 0);
            }
        }
        Next::Step
    }

    /// Holds all that is left, so that the pager can end. If that is not to be, or cannot be, the
    /// next steps undo all.
    fn may_end(&mut self, arena: &mut Arena, control: &Control) -> bool {
        if !control.change(Stage::Asked, Stage::Ends) {
            self.undone = Some(Undone::Cancelled);
        } else if arena.hold_rest().is_err() {
            control.set(Stage::Cancelled);
            self.undone = Some(FEW_MAPPINGS);
        }
        self.undone.is_none()
    }
}

impl Arena {
    /// The first part in use, from `at` on, whose blocks are paged.
    fn next_paged(&self, at: usize) -> Option<(usize, usize)> {
        let spans = statics::ranges().map(|(start, len)| (start, start + len)).chain(self.ranges.used());
        let paged = |(from, to): (usize, usize)| self.reasons.paged_within(from.max(at), to).first().copied();
        spans.filter(|&(_, to)| to > at).filter_map(paged).min()
    }

    /// Bytes with contents in a paged part, as far as `most` bytes of them, and where these end.
    fn contents_within(&self, from: usize, to: usize, most: usize) -> (usize, usize) {
        let mut bytes = 0;
        for (start, end) in self.filled_within(from, to) {
            if bytes + (end - start) > most {
                let end = (start + most - bytes).next_multiple_of(setup::block()).min(to);
                return (end, bytes + end.saturating_sub(start));
            }
            bytes += end - start;
        }
        (to, bytes)
    }

    /// Bytes with contents in paged memory from `at` on, and where they end.
    fn contents(&self, mut at: usize) -> (usize, usize) {
        let mut bytes = 0;
        while let Some((from, to)) = self.next_paged(at) {
            bytes += self.contents_within(from, to, usize::MAX).1;
            at = to;
        }
        (at, bytes)
    }

    /// Holds the next piece from `at` on. Returns where it ends, and its bytes with contents.
    fn hold_next(&mut self, at: usize) -> terapage_sys::Result<Option<(usize, usize)>> {
        let Some((from, to)) = self.next_paged(at) else { return Ok(None) };
        let to = to.min(from + WINDOW);
        let (to, bytes) = self.contents_within(from, to, PIECE);
        self.hold(from, to)?;
        Ok(Some((to, bytes)))
    }

    /// Brings a part into memory, and stops paging it until [`let_go`](Self::let_go).
    fn hold(&mut self, from: usize, to: usize) -> terapage_sys::Result<()> {
        let block = setup::block();
        let (first, last) = (from / block * block, to.next_multiple_of(block));
        if let Some(pager) = &self.pager {
            for (from, to) in self.reasons.paged_within(first, last) {
                setup::or_fail(pager.will_need(from, to - from));
            }
        }
        self.stop(from, to)?;
        self.note(from, |reasons| reasons.hold(from, to));
        Ok(())
    }

    /// Why a release is refused.
    fn refuses(&self) -> Option<Undone> {
        if adopted::is_adopted() {
            // What the program has changed in private mappings would no longer be known as such.
            files::may_be_changed().then_some(CHANGES)
        } else if copies::use_the_pager() {
            Some(COPIES)
        } else {
            // The child of a fork has inherited the changed blocks, but no other mapped file.
            (files::were_paged() || files::may_be_changed()).then_some(FILES)
        }
    }

    /// Holds all that is left, and writes what the pager has recorded.
    fn hold_rest(&mut self) -> terapage_sys::Result<()> {
        if self.files.any() {
            self.leave_all_files();
        }
        // What is not in use becomes zero, and need not come in.
        self.drop_waiting();
        for (from, to) in self.ranges.take_dirty() {
            self.discard_blocks(from, to);
            self.ranges.put(from, to, true);
        }
        let arena = (START.load(Relaxed), END.load(Relaxed));
        let spans: Vec<_> =
            statics::ranges().map(|(start, len)| (start, start + len)).chain([arena]).collect();
        for (from, to) in spans {
            for (from, to) in self.reasons.paged_within(from, to) {
                self.hold(from, to)?;
            }
        }
        if let Some(pager) = &self.pager {
            exit::write_recorded(pager);
        }
        Ok(())
    }

    /// The pager has ended: from now on nothing is paged.
    fn is_released_now(&mut self) {
        let Some(pager) = self.pager.take() else { return };
        ENDED.store(std::ptr::from_ref(pager.shared()).cast_mut(), Relaxed);
        // The counters are still read, through its descriptor.
        std::mem::forget(pager);
        terapage_sys::userfaultfd::close_device();
        self.start_at = usize::MAX;
        self.named.clear();
        RELEASED.store(true, Relaxed);
        crate::direct::end();
        job::leave();
        self.set_forkable(true);
        for (from, to) in self.reasons.within(0, usize::MAX, Why::HELD) {
            self.note(from, |reasons| reasons.let_go(from, to));
        }
    }

    /// The counters of the process's pager, even if it has ended.
    pub fn snapshot(&self) -> Option<terapage_stats::Snapshot> {
        // SAFETY: the pointer is null, or its target lasts as long as the process.
        let ended = || unsafe { ENDED.load(Relaxed).as_ref() }.map(|shared| shared.counters.snapshot());
        self.pager.as_ref().map(Pager::snapshot).or_else(ended)
    }

    /// Pages a piece of the held memory again. Returns whether there was any.
    fn let_go_next(&mut self) -> bool {
        let Some(&(from, to)) = self.reasons.within(0, usize::MAX, Why::HELD).first() else { return false };
        // What is not in use has no contents.
        let is_empty = !statics::meets(from, 1) && !self.ranges.is_used(from, from + 1);
        let next = self.ranges.used().map(|(start, _)| start).find(|&start| start > from);
        let most = if is_empty { next.unwrap_or(to) } else { from + PIECE };
        self.end_reason(from, to.min(most), Reasons::let_go);
        true
    }

    /// In the child of a fork, which nobody releases: pages held memory again.
    pub fn let_go(&mut self) {
        *GOING.lock() = None;
        ENDED.store(std::ptr::null_mut(), Relaxed);
        while self.let_go_next() {}
        // Only now: held memory counts in no budget.
        GOES_ON.store(false, Relaxed);
    }
}
