//! Pins: ranges that a system call uses while the kernel cannot wait for the pager.
//!
//! Without the right to handle faults inside the kernel, a call that meets an absent page fails
//! with EFAULT. So the thread that makes a call first pins what the call touches, touches it
//! itself, and unpins it afterwards. The pager announces what it is about to take out of the
//! program, and then looks at the pins (Dekker's order): either the pager sees the pin and leaves
//! the range alone, or the thread sees the announcement, waits for its end, and touches afterwards.
//!
//! This holds on each processor, since both sides have a sequentially consistent fence between
//! their own store and their look at the other's. On 64-bit Arm that is a full barrier (`dmb ish`).
//! All else that one side must see before something (the ranges before their number, the pages as
//! they are after the end of an announcement) is released and acquired.
//!
//! A pin is used in signal handlers: nothing here allocates, locks or sleeps.

use crate::sync::{AtomicUsize, fence};
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use terapage_sys::page_bytes;

/// Ranges of one slot. A call with more ranges takes more slots.
pub const RANGES: usize = 16;

/// The low bits of an announcement have the number of pages, the others the first page's number.
const PAGES_BITS: u32 = 22;

/// The most pages of one announcement.
pub(crate) const PAGES_MOST: usize = (1 << PAGES_BITS) - 1;

/// The pins of one call, or a part of them.
struct Slot {
    /// The `pthread_self` of the thread; 0 if the slot is free.
    owner: AtomicUsize,
    /// The thread's id.
    thread: AtomicUsize,
    /// The stack pointer of the call.
    depth: AtomicUsize,
    /// The number of valid ranges.
    count: AtomicUsize,
    /// From, to.
    ranges: [[AtomicUsize; 2]; RANGES],
}

impl Slot {
    fn free() -> Slot {
        Slot {
            owner: AtomicUsize::new(0),
            thread: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            ranges: std::array::from_fn(|_| [AtomicUsize::new(0), AtomicUsize::new(0)]),
        }
    }

    fn free_again(&self) {
        self.count.store(0, Release);
        self.owner.store(0, Release);
    }
}

/// The pins of a process.
pub struct Pins {
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    used: AtomicUsize,
    /// What the pager takes away at this moment; 0 for nothing.
    leaving: AtomicUsize,
    /// Bytes for which the pager has frames that calls may keep.
    room: AtomicUsize,
    /// Ranges take whole multiples of this many bytes in memory.
    unit: AtomicUsize,
    wish: Wish,
}

/// A call that waits for more room: one at a time.
struct Wish {
    /// The `pthread_self` of its thread; 0 for none.
    owner: AtomicUsize,
    /// The stack pointer of the call. A signal handler's calls, which come while it waits, have
    /// lower ones.
    depth: AtomicUsize,
    /// The room that it waits for.
    bytes: AtomicUsize,
    /// How often the thread has looked: it does so until it gives up, or leaves the call.
    looks: AtomicUsize,
    /// How many wishes there were.
    number: AtomicUsize,
}

/// What the pager sees of a wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wished {
    owner: usize,
    /// The room that a call waits for, bytes; 0 for none.
    pub bytes: usize,
    /// These change while the call waits, and with each new one.
    pub looks: usize,
    pub number: usize,
}

/// The largest [unit](Pins::set_room) of a range: neighbouring ranges of a larger block would count
/// as several.
const UNIT_MOST: usize = 64 << 10;

impl fmt::Debug for Pins {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pins({} slots)", self.slots.len())
    }
}

/// A thread that pins.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Its `pthread_self`: not 0.
    pub owner: usize,
    /// Its id.
    pub thread: usize,
    /// Its stack pointer.
    pub depth: usize,
    /// The slot that it used last: tried first, so that threads do not search.
    pub hint: usize,
}

/// The pins of a call. Dropping it has no effect: a handler that leaves a call by `longjmp` drops
/// nothing either.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    caller: Caller,
    /// The newest slot.
    slot: Option<usize>,
    /// How many slots the call has.
    slots: usize,
    bytes: usize,
}

impl Call {
    /// The slot to try first next time.
    pub fn hint(&self) -> usize {
        self.slot.unwrap_or(self.caller.hint)
    }
}

/// Whether two ranges, from and to, have a common byte.
fn meet((from, to): (usize, usize), (other, end): (usize, usize)) -> bool {
    from < end && other < to
}

impl Pins {
    /// Room for the pins of this many calls at the same time.
    pub fn new(slots: usize) -> Pins {
        Pins {
            slots: (0..slots).map(|_| Slot::free()).collect(),
            used: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            room: AtomicUsize::new(usize::MAX),
            unit: AtomicUsize::new(1),
            wish: Wish {
                owner: AtomicUsize::new(0),
                depth: AtomicUsize::new(0),
                bytes: AtomicUsize::new(0),
                looks: AtomicUsize::new(0),
                number: AtomicUsize::new(0),
            },
        }
    }

    /// Begins the pins of a call.
    pub fn begin(&self, caller: Caller) -> Call {
        Call { caller, slot: None, slots: 0, bytes: 0 }
    }

    /// Adds a range to a call's pins. Returns whether there was room: if not, other calls must end
    /// first. It is only a pin after [`settle`](Self::settle).
    pub fn add(&self, call: &mut Call, from: usize, to: usize) -> bool {
        let count = call.slot.map_or(RANGES, |slot| self.slots[slot].count.load(Relaxed));
        if count > 0
            && let Some(slot) = call.slot
        {
            let [start, end] = &self.slots[slot].ranges[count - 1];
            if from >= start.load(Relaxed) && to <= end.load(Relaxed) {
                return true;
            }
        }
        let (slot, count) = match call.slot {
            Some(slot) if count < RANGES => (slot, count),
            _ => match self.claim(call.caller) {
                Some(slot) => {
                    call.slots += 1;
                    (slot, 0)
                }
                None => return false,
            },
        };
        call.slot = Some(slot);
        let slot = &self.slots[slot];
        let [start, end] = &slot.ranges[count];
        start.store(from, Relaxed);
        end.store(to, Relaxed);
        slot.count.store(count + 1, Release);
        call.bytes += to - from;
        true
    }

    /// The words that a thread may set to 0, in this order, to end the pins of a call with one
    /// slot; `None` if [`end`](Self::end) must do it.
    pub fn words(&self, call: &Call) -> Option<[usize; 2]> {
        let slot = &self.slots[call.slot.filter(|_| call.slots == 1)?];
        Some([&slot.count, &slot.owner].map(|word| std::ptr::from_ref(word) as usize))
    }

    /// Bytes that a call has pinned.
    pub fn bytes(call: &Call) -> usize {
        call.bytes
    }

    /// Bytes that all calls have pinned, in whole units. If two threads add pins and then call
    /// this, at least one of them sees the pins of both. A thread that then reads the
    /// [room](Self::room) sees what the pager has set, or the pager sees the thread's pins.
    pub fn all_bytes(&self) -> usize {
        fence(SeqCst);
        let unit = self.unit.load(Relaxed);
        let of_slot = |slot: &Slot| {
            let count = slot.count.load(Acquire);
            // A slot that another thread uses may change meanwhile.
            let bytes = |[from, to]: &[AtomicUsize; 2]| {
                let (from, to) = (from.load(Relaxed) / unit, to.load(Relaxed).div_ceil(unit));
                to.saturating_sub(from) * unit
            };
            slot.ranges[..count].iter().map(bytes).sum::<usize>()
        };
        self.slots[..self.used.load(Relaxed)].iter().map(of_slot).sum()
    }

    /// Bytes for which the pager has frames that calls may keep, whatever else it needs.
    pub fn room(&self) -> usize {
        self.room.load(Relaxed)
    }

    /// The pager sets the room, and the bytes of a block. Afterwards it looks at the pins: those
    /// that it does not see yet are made by threads that see the new room.
    pub(crate) fn set_room(&self, bytes: usize, block: usize) {
        self.unit.store(block.min(UNIT_MOST), Relaxed);
        self.room.store(bytes, Relaxed);
        fence(SeqCst);
    }

    /// A call may pin nothing yet, since with it this number of bytes would be pinned. It waits for
    /// room, and its thread says so again with each look.
    pub fn wish(&self, caller: Caller, bytes: usize) {
        let wish = &self.wish;
        // A handler's call waits in the place of the call that the handler has interrupted.
        let is_known = wish.owner.load(Relaxed) == caller.owner && caller.depth <= wish.depth.load(Relaxed);
        if !is_known {
            self.unwish(caller);
            if wish.owner.compare_exchange(0, caller.owner, Acquire, Relaxed).is_err() {
                return;
            }
            wish.depth.store(caller.depth, Relaxed);
        }
        wish.bytes.store(bytes, Relaxed);
        wish.looks.fetch_add(1, Release);
    }

    /// A call waits no longer, nor do those that its thread had made before further down the stack.
    /// A call that a signal handler has interrupted still waits.
    pub fn unwish(&self, caller: Caller) {
        let wish = &self.wish;
        if wish.owner.load(Relaxed) == caller.owner && wish.depth.load(Relaxed) <= caller.depth {
            self.end_wish(caller.owner);
        }
    }

    fn end_wish(&self, owner: usize) {
        self.wish.number.fetch_add(1, Relaxed);
        // If a thread has just made it another wish, that one says so again.
        self.wish.owner.compare_exchange(owner, 0, Release, Relaxed).ok();
    }

    /// What a call waits for.
    pub(crate) fn wished(&self) -> Wished {
        let wish = &self.wish;
        let owner = wish.owner.load(Acquire);
        let [looks, bytes, number] = [&wish.looks, &wish.bytes, &wish.number].map(|word| word.load(Acquire));
        Wished { owner, bytes: if owner == 0 { 0 } else { bytes }, looks, number }
    }

    /// Ends the wish of a thread that looks no longer.
    pub(crate) fn forget_wish(&self, wished: &Wished) {
        self.end_wish(wished.owner);
    }

    /// Takes a free slot.
    fn claim(&self, caller: Caller) -> Option<usize> {
        let take = |slot: &Slot| {
            slot.owner.load(Relaxed) == 0
                && slot.owner.compare_exchange(0, caller.owner, Acquire, Relaxed).is_ok()
        };
        let hinted = self.slots.get(caller.hint).filter(|slot| take(slot)).map(|_| caller.hint);
        let at = hinted.or_else(|| self.slots.iter().position(take))?;
        let slot = &self.slots[at];
        slot.thread.store(caller.thread, Relaxed);
        slot.depth.store(caller.depth, Relaxed);
        // A pager that does not see the new mark yet has announced before: then the caller sees the
        // announcement.
        if self.used.load(SeqCst) <= at {
            self.used.fetch_max(at + 1, SeqCst);
        }
        Some(at)
    }

    /// Waits until the pager takes nothing of the call's ranges away. `pause` is called between the
    /// looks. From here on the ranges, once touched, stay until [`end`](Self::end).
    pub fn settle(&self, call: &Call, mut pause: impl FnMut()) {
        fence(SeqCst);
        while self.is_taking_any(call) {
            pause();
        }
    }

    /// Whether the pager is taking any of a call's ranges away.
    fn is_taking_any(&self, call: &Call) -> bool {
        let leaving = self.leaving.load(Acquire);
        if leaving == 0 {
            return false;
        }
        let from = (leaving >> PAGES_BITS) * page_bytes();
        let taken = (from, from + (leaving & PAGES_MOST) * page_bytes());
        let own = |slot: &&Slot| {
            slot.owner.load(Relaxed) == call.caller.owner && slot.depth.load(Relaxed) == call.caller.depth
        };
        let used = self.used.load(Relaxed);
        self.slots[..used].iter().filter(own).any(|slot| Self::meets(slot, taken))
    }

    fn meets(slot: &Slot, range: (usize, usize)) -> bool {
        let count = slot.count.load(Acquire);
        slot.ranges[..count].iter().any(|[from, to]| meet((from.load(Relaxed), to.load(Relaxed)), range))
    }

    /// Ends the pins of a call.
    pub fn end(&self, call: Call) {
        if let (Some(slot), 1) = (call.slot, call.slots) {
            self.slots[slot].free_again();
        } else if call.slots > 0 {
            let caller = call.caller;
            self.drop_where(|slot| {
                slot.owner.load(Relaxed) == caller.owner && slot.depth.load(Relaxed) == caller.depth
            });
        }
    }

    /// Drops the pins that a thread has left behind: `is_over` decides by the id of the thread that
    /// made them and the stack pointer of their call.
    pub fn forget(&self, owner: usize, is_over: impl Fn(usize, usize) -> bool) {
        self.drop_where(|slot| {
            slot.owner.load(Relaxed) == owner && is_over(slot.thread.load(Relaxed), slot.depth.load(Relaxed))
        });
    }

    /// Drops the pins of threads that have ended. One thread at a time calls this function or
    /// [`forget`](Self::forget).
    pub fn forget_ended(&self, has_ended: impl Fn(usize) -> bool) {
        self.drop_where(|slot| {
            // The thread's id is valid once there is a range.
            let thread = || (slot.count.load(Acquire) > 0).then(|| slot.thread.load(Relaxed));
            let seen = thread();
            let is_over = seen.is_some_and(&has_ended);
            // The thread may have ended its call as well, and another have taken the slot: that is
            // seen now, since it was before the end, or has the other's id.
            fence(Acquire);
            is_over && thread() == seen
        });
    }

    /// In the child of a fork, whose only thread has this `pthread_self` and now this id: the pins
    /// of all others are void.
    pub fn in_child(&self, owner: usize, thread: usize) {
        self.drop_where(|slot| slot.owner.load(Relaxed) != owner);
        for slot in &self.slots[..self.used.load(Relaxed)] {
            slot.thread.store(thread, Relaxed);
        }
        self.leaving.store(0, Relaxed);
        self.wish.owner.store(0, Relaxed);
    }

    fn drop_where(&self, is_over: impl Fn(&Slot) -> bool) {
        for slot in self.slots[..self.used.load(Relaxed)].iter().filter(|slot| is_over(slot)) {
            slot.free_again();
        }
    }

    /// Calls `each` with the pinned parts of a range.
    pub fn each_within(&self, from: usize, to: usize, mut each: impl FnMut(usize, usize)) {
        for slot in &self.slots[..self.used.load(SeqCst)] {
            for [start, end] in &slot.ranges[..slot.count.load(Acquire)] {
                let (start, end) = (start.load(Relaxed).max(from), end.load(Relaxed).min(to));
                if start < end {
                    each(start, end);
                }
            }
        }
    }

    /// Whether a thread has any pins.
    pub fn has_any(&self, owner: usize) -> bool {
        self.slots[..self.used.load(Relaxed)].iter().any(|slot| slot.owner.load(Relaxed) == owner)
    }

    /// The pager's thread is about to take a range away. Returns whether it may: then
    /// [`taken`](Self::taken) follows. It may not if anything there is pinned.
    pub(crate) fn take(&self, at: usize, len: usize) -> bool {
        let pages = len.div_ceil(page_bytes());
        assert!(pages <= PAGES_MOST, "a range that is too long to be announced");
        self.leaving.store(((at / page_bytes()) << PAGES_BITS) | pages, Relaxed);
        fence(SeqCst);
        let used = self.used.load(Acquire);
        let is_free = self.slots[..used].iter().all(|slot| !Self::meets(slot, (at, at + len)));
        if !is_free {
            self.taken();
        }
        is_free
    }

    /// The pager's thread has taken away what it announced.
    pub(crate) fn taken(&self) {
        self.leaving.store(0, Release);
    }
}

#[cfg(all(test, not(terapage_model)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_a_handler_interrupts_keeps_its_place_among_those_that_wait() {
        let pins = Pins::new(4);
        let of = |owner, depth| Caller { owner, thread: owner, depth, hint: 0 };
        let (waits, handlers, other) = (of(1, 900), of(1, 500), of(2, 900));
        pins.wish(waits, 100);
        let first = pins.wished();
        pins.unwish(handlers);
        pins.wish(handlers, 50);
        assert_eq!(pins.wished().number, first.number);
        assert_eq!(pins.wished().bytes, 50, "this call waits now");
        pins.unwish(handlers);
        pins.wish(other, 70);
        pins.unwish(other);
        pins.wish(waits, 100);
        assert_eq!((pins.wished().number, pins.wished().bytes), (first.number, 100));
        // The handler was left, and what called it as well.
        let later = of(1, 950);
        pins.wish(later, 80);
        assert_ne!(pins.wished().number, first.number);
        assert_eq!(pins.wished().bytes, 80);
        pins.unwish(waits);
        assert_eq!(pins.wished().bytes, 80);
        pins.unwish(later);
        assert_eq!(pins.wished().bytes, 0);
    }
}
