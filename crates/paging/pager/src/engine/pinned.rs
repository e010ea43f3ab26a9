//! What system calls have pinned, and what they wait for, as parts of the budget.
//!
//! A pinned block keeps its frame until its call ends, which may be never. So calls pin much only
//! where there is room: frames beyond those that the pager always needs. What is pinned, by small
//! calls also without room, is part of the least that this process needs of a shared budget. A call
//! that cannot be divided, and finds no room, waits: its wish is passed on to the job.

use super::Engine;
use crate::frames::lease::FRAMES_MIN;
use crate::pins::Wished;
use terapage_sys::thread::now_ns;

/// Frames that calls may not pin are the limit divided by this, but at most the whole budget
/// divided by `BUDGET_PART`, and at most `KEPT_BYTES`: a process has at least so much of a budget.
const LIMIT_PART: usize = 4;
const BUDGET_PART: usize = 8;
const KEPT_BYTES: usize = 4 << 20;

/// The number of ticks after which a thread that has not looked again has left its call.
const TICKS: u32 = 20;

/// A call that waits for room.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    seen: Wished,
    since_ns: u64,
    /// Ticks since its thread has looked.
    ticks: u32,
}

impl Engine {
    /// Bytes of the blocks that calls have pinned.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let Some(pins) = self.mover.pins() else { return 0 };
        let mut parts = Vec::new();
        pins.each_within(0, usize::MAX, |from, to| {
            parts.push((from / self.block, to.div_ceil(self.block)));
        });
        parts.sort_unstable();
        let (mut blocks, mut end) = (0, 0);
        for (from, to) in parts {
            blocks += to.saturating_sub(from.max(end));
            end = to.max(end);
        }
        blocks * self.block
    }

    /// The lease, bytes, with which the call has room that waits for it, and since when it has
    /// waited, ns: zeros for none.
    pub(crate) fn wished(&mut self, is_tick: bool) -> (usize, u64) {
        let Some(pins) = self.mover.pins() else { return (0, 0) };
        let (wished, waiting) = (pins.wished(), &mut self.waiting);
        if wished.bytes == 0 {
            return (0, 0);
        }
        if wished.number != waiting.seen.number || waiting.since_ns == 0 {
            waiting.since_ns = now_ns();
        }
        waiting.ticks = if wished == waiting.seen { waiting.ticks + u32::from(is_tick) } else { 0 };
        waiting.seen = wished;
        if waiting.ticks >= TICKS {
            pins.forget_wish(&wished);
            return (0, 0);
        }
        let since_ns = waiting.since_ns;
        let mut frames = wished.bytes / self.block;
        while frames < self.options.frames && self.room_in(frames) < wished.bytes {
            frames += (wished.bytes - self.room_in(frames)).div_ceil(self.block);
        }
        (frames * self.block, since_ns)
    }

    /// Bytes that calls may pin with a lease of this number of frames.
    fn room_in(&self, frames: usize) -> usize {
        let limit = self.limit_of(frames);
        let kept = (limit / LIMIT_PART).min(self.options.frames / BUDGET_PART).min(KEPT_BYTES / self.block);
        limit.saturating_sub(kept.max(FRAMES_MIN)) * self.block
    }

    /// Tells calls how much they may pin: in the frames that there will be once excess frames are
    /// returned. What they have pinned meanwhile is not returned.
    pub(crate) fn open_room(&mut self) {
        let Some(pins) = self.mover.pins() else { return };
        let lease = &self.frames.lease;
        let room = self.room_in(lease.goal.min(lease.frames));
        pins.set_room(room, self.block);
        let more = self.pinned_bytes().saturating_sub(room) / self.block;
        let lease = &mut self.frames.lease;
        lease.goal = lease.goal.max(lease.frames.min(lease.goal + more));
    }
}
