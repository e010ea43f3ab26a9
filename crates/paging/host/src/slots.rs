//! Slots: for each thread with a trapped call, a place for its context and a small stack.
//!
//! A call may concern the memory on which the thread runs: musl's threads unmap their stacks when
//! they end, and the GNU C library drops the unused part of a stack. So the context is copied to a
//! slot, the handler continues on the slot's stack, and the thread is restored from the copy.
//!
//! There is no sign that a thread has been restored. So a slot stays with its thread, which uses it
//! for later calls, too, until the thread has ended. One slot is enough: all signals are blocked
//! while the handler runs, and calls during which handlers of the program may run are made
//! [elsewhere](crate::own_stack). So no handler of the program runs on a slot's stack, or leaves it
//! by a long jump.

use crate::guard::{RECORDS, Record};
use crate::machine::{BEFORE, Context, FRAME, SLOT};
use crate::raw::{self, error, raw};
use crate::trap::Action;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

/// Bytes for the fields.
const FIELDS: usize = 8 << 10;
/// The most slots.
const SLOTS: usize = 1 << 14;
/// The number of slots that are checked for ended threads when a new slot is taken.
const LOOKS: usize = 8;

/// The fields of a slot.
#[repr(C, align(64))]
pub struct Slot {
    /// The call.
    pub number: i64,
    pub arguments: [usize; 6],
    /// The call's answer.
    pub answer: isize,
    /// The arguments of an exec for the kernel.
    pub exec: crate::exec::Prepared,
    /// The last exec that gave way to handlers.
    pub delayed: crate::exec::Delayed,
    /// Calls under way, in guarded mode.
    pub records: [Record; RECORDS],
    /// The action for our signal of a process that borrows the memory, and the process.
    pub lent: (Action, u32),
    /// The process that uses the slot, if it is traced from its exec on; otherwise 0.
    pub traced_later: u32,
    /// Whether the slot has its guard page.
    is_guarded: bool,
}

const _: () = assert!(size_of::<Slot>() <= FIELDS);

/// The owner of each slot: the thread's number, or 0.
static OWNERS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// The first slot; 0 if there are none yet.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// The number of slots, from the first on, that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Where the next search for ended threads begins.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Reserves the slots. `false` if there is no room.
pub fn open() -> bool {
    let Some(at) = raw::map(SLOT * SLOTS) else { return false };
    FIRST.store(at, Release);
    true
}

fn slot(index: usize) -> *mut Slot {
    (FIRST.load(Acquire) + (index + 1) * SLOT - FRAME - FIELDS) as *mut Slot
}

fn owner<'a>(slot: *mut Slot) -> &'a AtomicU32 {
    &OWNERS[(slot as usize - FIRST.load(Acquire)) / SLOT]
}

fn used<'a>() -> &'a [AtomicU32] {
    &OWNERS[..USED.load(Acquire).min(SLOTS)]
}

/// The slot of the calling thread, whose number is `thread`. `None` if all are taken.
pub fn take(thread: u32) -> Option<*mut Slot> {
    let own = used().iter().position(|owner| owner.load(Relaxed) == thread);
    own.or_else(|| free_one(thread)).map(slot)
}

/// Takes a slot of an ended thread, or an unused slot.
fn free_one(thread: u32) -> Option<usize> {
    let all = used().len();
    let looks = (0..LOOKS.min(all)).map(|_| NEXT.fetch_add(1, Relaxed) % all);
    if let Some(index) = looks.into_iter().find(|&index| claim(index, thread)) {
        return Some(index);
    }
    let next = || USED.fetch_update(AcqRel, Acquire, |used| (used < SLOTS).then_some(used + 1)).ok();
    // Once a slot counts as used, another thread may claim it first: then the next one is tried.
    std::iter::from_fn(next).chain(0..SLOTS).find(|&index| claim(index, thread))
}

/// The owner of a slot for a thread that has not begun: no thread has this number, and the kernel
/// does not say that it has ended.
const RESERVED: u32 = u32::MAX;

/// Takes a slot for a thread that the calling thread is about to begin.
pub fn reserve() -> Option<*mut Slot> {
    free_one(RESERVED).map(slot)
}

/// Gives a reserved slot to a thread, or back if `thread` is 0.
pub fn pass_on(slot: *mut Slot, thread: u32) {
    owner(slot).store(thread, Release);
}

/// Takes the slot if its thread has ended. Returns whether it was taken.
fn claim(index: usize, thread: u32) -> bool {
    let was = OWNERS[index].load(Relaxed);
    let is_taken =
        (was == 0 || has_ended(was)) && OWNERS[index].compare_exchange(was, thread, AcqRel, Relaxed).is_ok();
    if is_taken {
        guard(slot(index));
    }
    is_taken
}

/// Gives the slot its guard page: a stack that grew into the slot below would destroy the registers
/// of another thread. If the kernel allows no more mappings, the slot has no such page.
fn guard(slot: *mut Slot) {
    // SAFETY: the calling thread has the slot; nothing else lies in the page.
    unsafe {
        if !(*slot).is_guarded {
            raw::guard(Slot::stack(slot) + FIELDS + FRAME - SLOT);
            (*slot).is_guarded = true;
        }
    }
}

/// Whether a thread no longer exists, in this process or another: a child of `vfork` uses the same
/// slots.
fn has_ended(thread: u32) -> bool {
    // SAFETY: no signal is sent; no memory is touched.
    unsafe { raw!(libc::SYS_tkill, thread, 0) == error(libc::ESRCH) }
}

/// In the child of a fork, which has one thread: the slot in which the fork was served belongs to
/// it.
pub fn in_child(mine: *mut Slot) {
    used().iter().for_each(|owner| owner.store(0, Relaxed));
    owner(mine).store(raw::thread_id(), Relaxed);
}

/// Passes the slot of a thread that has ended to `each`, and frees it.
pub fn of_ended(thread: u32, mut each: impl FnMut(*mut Slot)) {
    for (index, owner) in used().iter().enumerate() {
        if owner.load(Acquire) == thread {
            each(slot(index));
            owner.store(0, Release);
        }
    }
}

impl Slot {
    /// The start of the slot's stack, which grows down.
    pub fn stack(slot: *mut Slot) -> usize {
        slot as usize
    }

    /// The slot of a context.
    pub fn of(context: &Context) -> *mut Slot {
        (std::ptr::from_ref(context) as usize - BEFORE - FIELDS) as *mut Slot
    }

    /// The context of the slot's thread.
    pub fn context(slot: *mut Slot) -> *mut Context {
        (slot as usize + FIELDS + BEFORE) as *mut Context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_slot_and_ended_threads_give_theirs_back() {
        assert!(open());
        let me = raw::thread_id();
        let first = take(me).unwrap();
        assert_eq!(take(me).unwrap(), first, "one slot is enough for all calls of a thread");
        for _ in 0..100 {
            std::thread::spawn(|| assert!(take(raw::thread_id()).is_some())).join().unwrap();
        }
        assert!(USED.load(Relaxed) < 20, "{}", USED.load(Relaxed));
        const TOGETHER: usize = 64;
        let (begin, have) = (std::sync::Barrier::new(TOGETHER), std::sync::Barrier::new(TOGETHER));
        let take_one = || {
            begin.wait();
            let slot = take(raw::thread_id()).unwrap();
            have.wait();
            slot as usize
        };
        let mut all: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(take_one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), TOGETHER, "threads at the same time have different slots");
        assert_eq!(Slot::context(first) as usize % 64, 0);
        let page = terapage_sys::page_bytes();
        for slot in all.into_iter().chain([first as usize]) {
            let (mut byte, lowest) = ([0], Slot::stack(slot as *mut Slot) + FIELDS + FRAME - SLOT);
            assert!(raw::read(lowest + page, &mut byte), "the stack");
            assert!(!raw::read(lowest + page - 1, &mut byte), "the guard page below it");
        }
    }
}
