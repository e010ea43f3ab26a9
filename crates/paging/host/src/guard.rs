//! Guarded mode in a host (`preload`: `guard/`): system calls must not meet an absent page.
//!
//! A thread of the program makes each trapped call itself, on its own stack and with its own
//! blocked signals, at the gate, where the filter of guarded mode lets calls pass. Before, the
//! library pins what the call touches. Afterwards the thread unpins by two stores, or, if the
//! library has more to do, by another trap. What belongs to such a call lies in a record of the
//! thread's slot.

use crate::calls::Outcome;
use crate::machine::{self, Context, RED_ZONE, Saved};
use crate::own_stack::{Call, DATA};
use crate::raw::{self, error, is_error, raw};
use crate::slots::{self, Slot};
use crate::{library, own_memory, place, seat};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use terapage_calls::{Memory, Outcome as Outcomes};
use terapage_sys::hosting::{GATE, GUARDED, GuardedCall, IS_CROWDED, LOOKS, MADE_BY_THREAD};
use terapage_sys::machine::{Code, GATE_CODE, call_at, publish};
use terapage_sys::page_bytes;

static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Notes whether the filter of guarded mode is in force.
pub fn begin() {
    IS_ACTIVE.store(library::guards(), Relaxed);
}

/// Whether calls of the program are guarded.
pub fn is_active() -> bool {
    IS_ACTIVE.load(Relaxed)
}

/// Where pointers of an adopted program lie that may name paged memory.
static NEAR: OnceLock<Vec<Range<usize>>> = OnceLock::new();

/// Notes that this is an adopted program, and where such pointers lie.
#[cfg(target_env = "musl")]
pub fn adopts(near: Vec<Range<usize>>) {
    NEAR.set(near).ok();
}

/// Whether memory may be absent when the kernel touches it.
pub fn may_be_absent(at: usize, len: usize) -> bool {
    let meets = |range: &Range<usize>| at < range.end && at.saturating_add(len) > range.start;
    is_active() && (meets(&GUARDED) || NEAR.get().is_some_and(|near| near.iter().any(meets)))
}

/// Whether this is an adopted program in guarded mode.
pub fn is_adopted() -> bool {
    NEAR.get().is_some()
}

/// What a call names, as far as it is known without the seat.
struct Named {
    /// Whether any of it may be paged.
    is_paged: bool,
}

impl Memory for Named {
    fn range(&mut self, range: terapage_calls::Range) -> bool {
        self.is_paged |= library::meets(range.start, range.len);
        !self.is_paged
    }

    fn read(&mut self, at: usize, into: &mut [u8]) -> bool {
        let is_read = raw::carry(at, into.as_mut_ptr() as usize, into.len()) == into.len() as isize;
        self.is_paged |= !is_read;
        is_read
    }

    fn is_self(&mut self, _pid: i32) -> bool {
        true
    }
}

/// Whether a call of an adopted program needs no pins: it names no memory that may be paged, and no
/// register that is left over makes the library's filter trap it once more.
pub fn needs_no_pins(number: i64, arguments: [usize; 6]) -> bool {
    let lies_in_arena = |&argument: &usize| GUARDED.contains(&argument);
    let mut named = Named { is_paged: false };
    is_adopted()
        && number != libc::SYS_vmsplice
        && !arguments.iter().any(lies_in_arena)
        && matches!(
            terapage_calls::visit(number as usize, &arguments, &mut named),
            Outcomes::Known | Outcomes::Kept | Outcomes::Partly
        )
        && !named.is_paged
}

/// A call under way. A thread has several if signals interrupt calls.
#[repr(C)]
pub struct Record {
    pub call: GuardedCall,
    /// [`FREE`], [`USED`] or [`ON_STACK`].
    pub used: AtomicUsize,
    /// Where the program continues, with which stack pointer, and the call's registers and number.
    pub place: usize,
    pub depth: usize,
    pub saved: Saved,
    number: i64,
    /// Where the thread continues after the call.
    pub after: usize,
    pub answer: isize,
    /// Memory that arguments name.
    data: [u64; DATA],
}

/// No call uses the record.
pub const FREE: usize = 0;
/// A call uses the record.
const USED: usize = 1;
/// As [`USED`], and the record's address lies on the stack.
pub const ON_STACK: usize = 2;

/// The most calls of a thread that signals interrupt at the same time.
pub const RECORDS: usize = 8;

/// Bytes below a stack's pointer that belong to the code that runs there, and room for the record's
/// address.
const BELOW: usize = RED_ZONE + 16;

/// A call that needs no more than the kernel.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn plain(number: i64, arguments: [usize; 6]) -> Outcome {
    if is_active() {
        return Outcome::OnOwnStack(Call { number, arguments, data: [0; DATA] });
    }
    // SAFETY: the caller answers for the call.
    Outcome::Answer(unsafe { raw::call(number, arguments) })
}

fn records<'a>(slot: *mut Slot) -> &'a mut [Record; RECORDS] {
    // SAFETY: the slot is the calling thread's; zeros are records that are free.
    unsafe { &mut (*slot).records }
}

/// The record that the next call of a thread uses. `None` if all are in use.
fn free_one<'a>(slot: *mut Slot) -> Option<&'a mut Record> {
    records(slot).iter_mut().find(|record| record.used.load(Relaxed) == FREE)
}

/// Where the data of the next call will lie, of the thread with this context.
pub fn data_at(context: &Context) -> usize {
    free_one(Slot::of(context)).map_or(raw::NOWHERE, |record| record.data.as_ptr() as usize)
}

/// Whether it looks as if a handler had left the call of a record by a long jump, seen from a
/// thread with this context: a call that goes on was made further up the stack than what runs now.
/// The answer may be wrong if the thread runs on a stack of which the kernel does not know.
fn seems_left(record: &Record, context: &Context) -> bool {
    let (from, size) = context.stack_aside();
    let is_aside = |at: usize| at.wrapping_sub(from) < size;
    match (is_aside(context.depth()), is_aside(record.depth)) {
        (true, true) | (false, false) => record.depth <= context.depth(),
        // A handler on the other stack interrupts a call on the usual one.
        (true, false) => false,
        (false, true) => true,
    }
}

/// Whether the stack may still have what a call that goes on needs there: the record's address.
fn is_on_stack(record: &Record) -> bool {
    let mut word = [0; size_of::<usize>()];
    record.used.load(Relaxed) != ON_STACK
        || raw::read(record.depth - BELOW, &mut word)
            && usize::from_ne_bytes(word) == std::ptr::from_ref(record) as usize
}

/// Drops the records of calls that handlers have left. A record stays as long as its call may go
/// on, unless it has the place of the next call: on the stack, or because all records are in use.
///
/// # Safety
/// The slot is the calling thread's, all of whose signals are blocked.
pub unsafe fn forget_left(slot: *mut Slot) {
    unsafe extern "C" fn forget(call: usize) {
        library::forget(call as *mut GuardedCall);
    }
    // SAFETY: the slot is this thread's.
    let context = unsafe { &*Slot::context(slot) };
    let has_room = free_one(slot).is_some();
    for record in records(slot) {
        let is_left = |record: &Record| {
            seems_left(record, context)
                && (record.depth == context.depth() || !has_room || !is_on_stack(record))
        };
        if record.used.load(Relaxed) != FREE && is_left(record) {
            // SAFETY: the caller keeps the seat's contract.
            unsafe { seat::with(forget, &raw mut record.call as usize) };
            record.used.store(FREE, Release);
        }
    }
}

/// Pins what a call touches, and lets the thread make it.
///
/// # Safety
/// The slot is the calling thread's, all of whose signals are blocked. The program is responsible
/// for the call.
pub unsafe fn make(slot: *mut Slot, call: &Call) -> Outcome {
    // SAFETY: the slot is this thread's.
    let context = unsafe { &mut *Slot::context(slot) };
    let Some(record) = free_one(slot) else { return Outcome::Answer(error(libc::EINTR)) };
    record.data = call.data;
    (record.call.number, record.call.given) = (call.number, call.arguments);
    (record.call.owner, record.call.thread) = (slot as usize, raw::thread_id() as usize);
    (record.call.depth, record.call.done) = (context.depth(), 0);
    record.call.at_position = usize::from(own_memory::is_meant(call.number, &call.arguments));
    record.answer = IS_CROWDED;
    // SAFETY: the caller keeps the seat's contract.
    unsafe { wait_for_room(record) };
    if record.answer != MADE_BY_THREAD {
        return Outcome::Answer(record.answer);
    }
    (record.place, record.depth, record.saved) = (context.place(), context.depth(), context.saved());
    // SAFETY: the slot is this thread's.
    record.number = unsafe { (*slot).number };
    record.used.store(USED, Release);
    context.enter_record(record, BELOW);
    Outcome::Continues
}

/// While other calls have pinned too much memory for a record's call: waits, without the seat, and
/// tries again. The wait has an end, because the other calls may be waiting for this one. If the
/// library has made a piece of the call itself, there is no wait before the next.
///
/// # Safety
/// As for [`make`].
unsafe fn wait_for_room(record: &mut Record) {
    unsafe extern "C" fn pin(record: usize) {
        let record = record as *mut Record;
        // SAFETY: the record is the calling thread's.
        unsafe { (*record).answer = library::pin(&raw mut (*record).call) };
    }
    let mut look = 0;
    while record.answer == IS_CROWDED && look < LOOKS {
        if look > 0 {
            raw::sleep_ms(1);
        }
        let done = record.call.done;
        // SAFETY: the caller keeps the seat's contract.
        unsafe { seat::with(pin, std::ptr::from_mut(record) as usize) };
        look = if record.call.done > done { 0 } else { look + 1 };
    }
    if record.answer == IS_CROWDED {
        record.answer = if record.call.done > 0 { record.call.done as isize } else { error(libc::ENOMEM) };
    }
}

/// After a call of a record: lets the thread make the next piece, or continue in the program.
///
/// # Safety
/// As for [`make`]; [`has_made`] was true.
pub unsafe fn end(slot: *mut Slot) -> Outcome {
    unsafe extern "C" fn unpin(record: usize) {
        let record = record as *mut Record;
        // SAFETY: the record is the calling thread's.
        unsafe { (*record).answer = library::unpin(&raw mut (*record).call, (*record).answer) };
    }
    // SAFETY: the slot is this thread's, which has the record's address on its stack.
    unsafe {
        let context = &mut *Slot::context(slot);
        let record = &mut **(context.depth() as *const *mut Record);
        if !unpin_by_words(record) {
            seat::with(unpin, std::ptr::from_mut(record) as usize);
            wait_for_room(record);
        }
        if record.answer == MADE_BY_THREAD {
            context.enter_record(record, BELOW);
            return Outcome::Continues;
        }
        context.leave(record);
        record.used.store(FREE, Release);
        Outcome::Answer(record.answer)
    }
}

/// Where a thread was interrupted that makes the call of a record.
pub enum Interrupted {
    /// It was about to make the call, or the kernel would have begun the call again.
    Before(*mut Record),
    /// It has made the call, with this answer.
    Made(*mut Record, isize),
}

/// If a thread was interrupted while it made the call of a record: puts it back to its trapped
/// instruction, or behind that, if the call has ended. A call that has transferred a part ends as
/// it would natively, by what it has transferred.
///
/// # Safety
/// The kernel has passed the context to a handler.
pub unsafe fn roll_back(context: &mut Context) {
    // SAFETY: the caller passes the kernel's context; the record is the calling thread's.
    let (record, made) = unsafe {
        match context.interrupted() {
            Some(Interrupted::Before(record)) => (&mut *record, None),
            Some(Interrupted::Made(record, answer)) => (&mut *record, Some(answer)),
            None => return,
        }
    };
    let done = record.call.done;
    let answer = match made {
        Some(answer) if is_error(answer) => Some(if done > 0 { done as isize } else { answer }),
        // What the library has to do is still to come.
        Some(_) if done > 0 || record.call.words[0] == 0 => return,
        Some(answer) => Some(answer),
        None if done == 0 => None,
        None if context.place() == GATE => Some(done as isize),
        None => return,
    };
    context.leave(record);
    match answer {
        Some(answer) => context.answer(answer),
        None => context.repeat(record.number),
    }
    // Otherwise the library must unpin: by the thread's next call, before which the record is
    // dropped.
    if unpin_by_words(record) {
        record.used.store(FREE, Release);
    }
}

/// Unpins by the words of a record's call, if they say how.
fn unpin_by_words(record: &Record) -> bool {
    let can = record.call.words[0] != 0;
    for word in record.call.words.into_iter().filter(|_| can) {
        // SAFETY: the words are those of the call's pins.
        unsafe { (*(word as *const AtomicUsize)).store(0, Release) };
    }
    can
}

/// The most bytes of a thread's stack that are kept in memory.
const STACK: usize = 16 << 20;
/// The same of a Go program, whose threads begin on small stacks, and of a child of `vfork`.
const SMALL: usize = 64 << 10;

/// Whether threads begin on small stacks, as in a Go program that was adopted.
static SMALL_STACKS: AtomicBool = AtomicBool::new(false);

/// Notes that threads begin on small stacks.
#[cfg(target_env = "musl")]
pub fn has_small_stacks() {
    SMALL_STACKS.store(true, Relaxed);
}

/// Keeps the stack of a thread that begins in memory, and the words into which the kernel writes
/// its number. Returns an error (`errno`), or 0.
///
/// # Safety
/// All signals of the calling thread are blocked.
pub unsafe fn keep(flags: usize, stack: usize, parent: usize, child: usize) -> i32 {
    let is_small = place::has_go() || SMALL_STACKS.load(Relaxed);
    // SAFETY: the caller keeps the contract.
    unsafe { keep_upper(flags, (stack, if is_small { SMALL } else { STACK }), parent, child) }
}

/// The same of a process that borrows the memory, and soon executes a program.
///
/// # Safety
/// As for [`keep`].
pub unsafe fn keep_lent(flags: usize, stack: usize, parent: usize, child: usize) -> i32 {
    // SAFETY: the caller keeps the contract.
    unsafe { keep_upper(flags, (stack, SMALL), parent, child) }
}

/// Keeps the upper part of a stack, of `most` bytes at most, and the words.
///
/// # Safety
/// As for [`keep`].
unsafe fn keep_upper(flags: usize, (stack, most): (usize, usize), parent: usize, child: usize) -> i32 {
    struct Request {
        stack: usize,
        most: usize,
        words: [usize; 2],
        errno: i32,
    }
    unsafe extern "C" fn keep(request: usize) {
        // SAFETY: the request comes from below.
        let request = unsafe { &mut *(request as *mut Request) };
        request.errno = library::thread(request.stack, request.most, &request.words);
    }
    let has = |wanted: i32| flags & wanted as usize != 0;
    let parent = if has(libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD) { parent } else { 0 };
    let child = if has(libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) { child } else { 0 };
    let mut request = Request { stack, most, words: [parent, child], errno: 0 };
    // SAFETY: the caller keeps the seat's contract.
    unsafe { seat::with(keep, &raw mut request as usize) };
    request.errno
}

/// Serves a `clone` that shares the memory and does not wait for the child. The child continues
/// from a slot of its own.
///
/// # Safety
/// The slot is this thread's, and the thread runs on its stack, with all signals blocked.
pub unsafe fn thread(slot: *mut Slot, [flags, stack, parent, child, pointer]: [usize; 5]) -> isize {
    // SAFETY: the slots are this thread's; the child uses only the context of its own.
    unsafe {
        let errno = keep(flags, stack, parent, child);
        if errno != 0 {
            return error(errno);
        }
        let Some(new) = slots::reserve() else { return error(libc::EAGAIN) };
        let begins = Slot::context(new);
        machine::copy(Slot::context(slot), begins);
        (*begins).answer(0);
        (*begins).forget_stack_aside();
        if stack != 0 {
            (*begins).set_depth(stack);
        }
        let answer = machine::clone(flags, parent, child, pointer, begins);
        slots::pass_on(new, u32::try_from(answer).unwrap_or(0));
        answer
    }
}

/// Whether a call that is made meanwhile is trapped.
static TRIES: AtomicBool = AtomicBool::new(false);
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// In the handler: whether the call is such a trial.
pub fn is_trial() -> bool {
    TRIES.load(Relaxed) && {
        TRAPPED.store(true, Relaxed);
        true
    }
}

/// Where a page for a trial may lie, and how many places are tried.
const TRIAL: Range<usize> = 1 << 16..1 << 22;

/// Whether calls with memory that points to memory are trapped where fixed executables lie: by the
/// filter of a process that this one descends from.
pub fn has_filter() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let (rights, len) = (libc::PROT_READ | libc::PROT_WRITE, page_bytes());
    // SAFETY: only a free page is taken, which this function fills, uses and frees.
    unsafe {
        let map = |&at: &usize| raw!(libc::SYS_mmap, at, len, rights, flags, -1_isize, 0) == at as isize;
        let Some(at) = TRIAL.step_by(1 << 16).find(map) else { return false };
        (at as *mut Code).write(GATE_CODE);
        publish(at);
        let runs = raw!(libc::SYS_mprotect, at, len, libc::PROT_READ | libc::PROT_EXEC) == 0;
        if runs {
            TRIES.store(true, Relaxed);
            // No such descriptor: no memory is touched.
            let answer = call_at(at, libc::SYS_readv, [usize::MAX, 0, 0, 0, 0, 0]);
            debug_assert!(answer < 0);
            TRIES.store(false, Relaxed);
        }
        raw!(libc::SYS_munmap, at, len);
    }
    TRAPPED.load(Relaxed)
}
