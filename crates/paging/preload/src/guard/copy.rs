//! Copies to and from memory of the program that a call names, which may not be there.

use super::gate;
use crate::arena::{self, ARENA};
use crate::{hosted, paged, reasons, statics};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use terapage_sys::{page_bytes, thread};

/// The most parts of a range that are looked up at once.
const PARTS: usize = 8;

thread_local! {
    /// A range that this thread has found to be all paged.
    static SEEN: Seen = const {
        Seen { turn: Cell::new(0), from: Cell::new(0), to: Cell::new(0), changes: Cell::new(0) }
    };
}

struct Seen {
    /// How often this was replaced: a signal handler may do so while the thread reads it.
    turn: Cell<usize>,
    from: Cell<usize>,
    to: Cell<usize>,
    /// How often reasons had changed then.
    changes: Cell<usize>,
}

impl Seen {
    #[inline]
    fn contains(&self, from: usize, to: usize) -> bool {
        let turn = self.turn.get();
        compiler_fence(SeqCst);
        let contains = self.from.get() <= from && to <= self.to.get();
        let is_new = self.changes.get() == reasons::changes();
        compiler_fence(SeqCst);
        contains && is_new && turn == self.turn.get()
    }

    /// Notes a range. The arena's lock is held, so signals are blocked.
    fn replace(&self, (from, to): (usize, usize)) {
        self.turn.set(self.turn.get() + 1);
        self.from.set(from);
        self.to.set(to);
        self.changes.set(reasons::changes());
    }
}

/// Calls `each` with the parts of a range that are paged, or will be: memory that is there,
/// readable and writable, though its pages may be out. Parts of the arena that the program has
/// protected or mapped belong to the kernel.
pub fn paged_parts(at: usize, len: usize, mut each: impl FnMut(usize, usize)) {
    let page = page_bytes();
    let Some(end) = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(page)) else { return };
    for (from, to) in statics::within(at / page * page, end - at / page * page) {
        look_up(from, to, &mut each);
    }
    let Some((from, to)) = arena::part_of(at / page * page, end) else { return };
    if SEEN.with(|seen| seen.contains(from, to)) {
        return each(from, to);
    }
    look_up(from, to, &mut each);
}

/// The same, in a part of the arena or of static arrays.
fn look_up(mut from: usize, to: usize, each: &mut impl FnMut(usize, usize)) {
    while from < to {
        let (mut parts, mut count) = ([(0, 0); PARTS], 0);
        let rest = {
            // Signals are blocked while the list lives: it lies in the library's own heap.
            let arena = ARENA.lock();
            if let Some(around) = arena.paged_around(from).filter(|_| arena::contains(from)) {
                SEEN.with(|seen| seen.replace(around));
            }
            let found = arena.paged_blocks(from, to);
            for &part in found.iter().take(PARTS) {
                parts[count] = part;
                count += 1;
            }
            if found.len() > PARTS { parts[count - 1].1 } else { to }
        };
        parts[..count].iter().for_each(|&(from, to)| each(from, to));
        from = rest;
    }
}

/// Whether all of a range is paged, and so is mapped, readable and writable.
pub fn is_paged(at: usize, len: usize) -> bool {
    let page = page_bytes();
    let mut sum = 0;
    paged_parts(at, len, |from, to| sum += to - from);
    let end = at.checked_add(len).and_then(|end| end.checked_next_multiple_of(page));
    len > 0 && end.is_some_and(|end| sum >= end - at / page * page)
}

/// Whether a range is memory that this thread can touch. If the thread holds the arena's lock, the
/// C library calls within a fork, and the memory is its own.
fn is_there(at: usize, len: usize) -> bool {
    paged::meets(at, len) && (ARENA.is_mine() || is_paged(at, len))
}

/// The end of the first thread's stack.
static STACK_END: AtomicUsize = AtomicUsize::new(0);

/// Begins, in the first thread.
pub fn begin() {
    // SAFETY: the call only queries. The kernel puts these bytes behind the first thread's stack.
    STACK_END.store(unsafe { libc::getauxval(libc::AT_RANDOM) } as usize, Relaxed);
}

/// The most bytes of a stack that are known to be there.
const NEAR: usize = 1 << 20;

/// Whether a range lies on the stack of this thread, above this function: then it is there.
fn is_on_stack(at: usize, len: usize) -> bool {
    let mark = 0_u8;
    let here = &raw const mark as usize;
    let Some(last) = at.checked_add(len).filter(|_| !hosted::is_host()) else { return false };
    // The C library puts a thread's descriptor at the end of the thread's stack.
    let ends = [thread::own_name(), STACK_END.load(Relaxed)];
    let is_below = |end: usize| here < at && end.wrapping_sub(here) < NEAR && last <= end;
    ends.into_iter().any(is_below)
}

/// In a host: the stack pointer of the program's thread whose call is served; 0 if there is none.
static DEPTH: AtomicUsize = AtomicUsize::new(0);

/// The depth is known while this lives.
pub struct Near;

/// In a host's seat, and so in one thread at a time: the call that is served was made at this stack
/// pointer.
pub fn near(depth: usize) -> Near {
    DEPTH.store(depth, Relaxed);
    Near
}

impl Drop for Near {
    fn drop(&mut self) {
        DEPTH.store(0, Relaxed);
    }
}

/// Whether a range within a page can be read, and lies near the stack pointer of the thread that
/// waits for this host: nobody removes such memory meanwhile. Asking the kernel takes a tenth of
/// the time of a copy that the kernel makes.
fn is_on_stack_of_hosted(at: usize, len: usize) -> bool {
    let depth = DEPTH.load(Relaxed);
    depth != 0 && at >= depth && at - depth < NEAR && is_readable(at + len - 1)
}

/// Whether the kernel can read the page of a byte: before it refuses this way of changing the
/// blocked signals, it reads a set of them there.
fn is_readable(at: usize) -> bool {
    const NO_WAY: usize = usize::MAX;
    let set = at & !(size_of::<u64>() - 1);
    // SAFETY: the kernel checks the address, and changes nothing.
    let answer = unsafe { gate::call(libc::SYS_rt_sigprocmask, [NO_WAY, set, 0, size_of::<u64>(), 0, 0]) };
    answer == -(libc::EINVAL as isize)
}

/// Calls `each` for the part of a range in each page, with the distance from the start, until a
/// call fails. Returns whether no call has failed.
fn by_pages(at: usize, len: usize, mut each: impl FnMut(usize, usize, usize) -> bool) -> bool {
    let mut done = 0;
    while done < len {
        let here = at.wrapping_add(done);
        let part = (page_bytes() - here % page_bytes()).min(len - done);
        if !each(here, done, part) {
            return false;
        }
        done += part;
    }
    true
}

/// Reads memory of the program. Whether all was read.
pub fn read(at: usize, into: &mut [u8]) -> bool {
    if is_on_stack(at, into.len()) {
        // SAFETY: the memory is there.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(at as *const u8, into.len()) };
        return true;
    }
    let place = into.as_mut_ptr() as usize;
    by_pages(at, into.len(), |from, done, len| {
        if !is_there(from, len) && !is_on_stack_of_hosted(from, len) {
            return carry(from, place + done, len);
        }
        // SAFETY: the memory is there.
        unsafe { ((place + done) as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
        true
    })
}

/// Writes to the program's memory. Returns whether all bytes were written; if not, the bytes before
/// the first page that cannot be written were.
pub fn write(at: usize, from: &[u8]) -> bool {
    let place = from.as_ptr() as usize;
    by_pages(at, from.len(), |to, done, len| {
        if !is_there(to, len) {
            return carry(place + done, to, len);
        }
        // SAFETY: the memory is there, and the program passed it to be written.
        unsafe { (to as *mut u8).copy_from_nonoverlapping((place + done) as *const u8, len) };
        true
    })
}

/// Has the kernel copy within this process, as far as the memory is there.
fn carry(from: usize, to: usize, len: usize) -> bool {
    let piece = |at: usize| libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
    let (there, into) = (piece(from), piece(to));
    let own = std::process::id() as usize;
    let arguments = [own, &raw const into as usize, 1, &raw const there as usize, 1, 0];
    // SAFETY: the kernel checks the addresses.
    let got = unsafe { gate::call(libc::SYS_process_vm_readv, arguments) };
    if got == -(libc::EPERM as isize) || got == -(libc::ENOSYS as isize) {
        // A filter forbids the call: then the program's address is trusted. SAFETY: the program
        // passed the address as its own memory.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
        return true;
    }
    got == len as isize
}
