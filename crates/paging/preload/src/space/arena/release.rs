//! `terapage release`: all paged memory comes back and becomes the kernel's, the pager ends, and
//! the arena is as if it had never had one, except that it will not get another.
//!
//! Memory is *held* piece by piece, while the program runs: a held block is loose, and stays so
//! until the end, or until all is undone. Memory that the program takes or maps meanwhile is paged.
//! The last step holds that, too, together with all that is not in use, and ends the pager.
#![cfg_attr(
    not(target_env = "musl"),
    allow(dead_code, reason = "only programs that the host for musl has adopted are released")
)]

use super::*;
use std::sync::atomic::AtomicBool;
use terapage_stats::{Control, Stage};

/// Bytes of contents that are held at once: calls about memory wait meanwhile, and so do faults.
const PIECE: usize = 4 << 20;
/// Addresses that are looked at together.
const WINDOW: usize = 1 << 30;
/// How often all memory is gone through. What is new since the last time is held in the last step.
const ROUNDS: usize = 6;

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

/// Why a release is not done.
enum Undone {
    /// This side refuses it.
    Refused(&'static str),
    /// It was cancelled.
    Cancelled,
}

const FEW_MAPPINGS: &str = "it may have no more mappings (vm.max_map_count)";

/// Serves a request of `terapage release`: releases the program, or undoes what was done, and says
/// why. Between pieces `pause` is called. Returns whether the program is released.
pub fn serve(control: &Control, mut pause: impl FnMut()) -> bool {
    GOES_ON.store(true, Relaxed);
    let done = release_all(control, &mut pause);
    let Err(undone) = done else { return true };
    take_all_back(&mut pause);
    GOES_ON.store(false, Relaxed);
    control.say(match undone {
        Undone::Refused(why) => why,
        Undone::Cancelled => "",
    });
    control.set(Stage::Refused);
    false
}

/// The words through which a release is asked for, if there is a pager.
pub fn control() -> Option<&'static Control> {
    ARENA.lock().pager.as_ref().map(|pager| &pager.shared().control)
}

fn release_all(control: &Control, pause: &mut impl FnMut()) -> Result<(), Undone> {
    let refused = || Undone::Refused(FEW_MAPPINGS);
    control.done_bytes.store(0, Relaxed);
    control.all_bytes.store(ARENA.lock().contents(0).1 as u64, Relaxed);
    for _ in 0..ROUNDS {
        let (mut at, mut round) = (0, 0);
        loop {
            // The lock is free while this thread pauses.
            let held = ARENA.lock().hold_next(at).map_err(|_| refused())?;
            let Some((next, bytes)) = held else { break };
            at = next;
            round += bytes;
            control.done_bytes.fetch_add(bytes as u64, Relaxed);
            if control.stage() != Stage::Asked {
                return Err(Undone::Cancelled);
            }
            pause();
        }
        if round < PIECE {
            break;
        }
    }
    if !control.change(Stage::Asked, Stage::Ends) {
        return Err(Undone::Cancelled);
    }
    ARENA.lock().end_pager().map_err(|_| refused())?;
    control.set(Stage::Released);
    Ok(())
}

/// Pages all held memory again.
fn take_all_back(pause: &mut impl FnMut()) {
    while ARENA.lock().let_go_next() {
        pause();
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

    /// Holds all that is left, and ends the pager.
    fn end_pager(&mut self) -> terapage_sys::Result<()> {
        if self.files.bytes() > 0 {
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
        let Some(pager) = self.pager.take() else { return Ok(()) };
        pager.finish_trace().ok();
        setup::or_fail(pager.end());
        // The counters are still read, through its descriptor.
        std::mem::forget(pager);
        terapage_sys::userfaultfd::close_device();
        self.start_at = usize::MAX;
        self.named.clear();
        RELEASED.store(true, Relaxed);
        job::leave();
        self.set_forkable(true);
        for (from, to) in self.reasons.within(0, usize::MAX, Why::HELD) {
            self.note(from, |reasons| reasons.let_go(from, to));
        }
        Ok(())
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
        GOES_ON.store(false, Relaxed);
        while self.let_go_next() {}
    }
}
