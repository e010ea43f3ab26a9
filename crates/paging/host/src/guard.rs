//! Guarded mode in a host (`preload`: `guard/`): system calls must not meet an absent page.
//!
//! A thread of the program makes each trapped call itself, on its own stack and with its own
//! blocked signals, at the gate, where the filter of guarded mode lets calls pass. Before, the
//! library pins what the call touches. Afterwards the thread unpins by two stores, or, if the
//! library has more to do, by another trap. What belongs to such a call lies in a record of the
//! thread's slot.

use crate::calls::Outcome;
use crate::frame::Context;
use crate::own_stack::{Call, DATA, SYSCALL_BYTES};
use crate::raw::{self, error, raw};
use crate::slots::{self, Slot};
use crate::trap::clone;
use crate::{frame, library, own_memory, place, seat};
use std::arch::{asm, global_asm};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use terapage_calls::{Memory, Outcome as Outcomes};
use terapage_sys::hosting::{GATE, GUARDED, GuardedCall, IS_CROWDED, LOOKS, MADE_BY_THREAD};

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
    call: GuardedCall,
    /// [`FREE`], [`USED`] or [`ON_STACK`].
    used: AtomicUsize,
    /// Where the program continues, with which stack pointer, and the call's registers and number.
    rip: usize,
    rsp: usize,
    registers: [usize; 6],
    number: i64,
    /// Where the thread continues after the call.
    after: usize,
    answer: isize,
    /// Memory that arguments name.
    data: [u64; DATA],
}

const FREE: usize = 0;
/// A call uses the record.
const USED: usize = 1;
/// As [`USED`], and the record's address lies on the stack.
const ON_STACK: usize = 2;

/// The most calls of a thread that signals interrupt at the same time.
pub const RECORDS: usize = 8;

/// Bytes below a stack's pointer that belong to the code that runs there, and room for the record's
/// address.
const BELOW: usize = 128 + 16;

const WORDS: usize = offset_of!(Record, call) + offset_of!(GuardedCall, words);
const REGISTERS: usize = offset_of!(Record, registers);

// `make` makes the call at the gate. As after the kernel's own return, no other register than rcx
// and r11 has changed in the end. The kernel may repeat the call after a handler: its registers
// still have the same values.
global_asm!(
    ".globl terapage_guard_make",
    ".hidden terapage_guard_make",
    ".hidden terapage_guard_unpin",
    ".globl terapage_guard_unpin",
    ".globl terapage_guard_made",
    ".hidden terapage_guard_made",
    ".hidden terapage_guard_trap",
    ".globl terapage_guard_trap",
    ".hidden terapage_guard_trapped",
    ".globl terapage_guard_trapped",
    ".p2align 4",
    "terapage_guard_make:",
    "mov [rsp], rcx",
    "mov qword ptr [rcx + {used}], {on_stack}",
    "movabs rcx, {gate}",
    "call rcx",
    "terapage_guard_made:",
    "mov rcx, [rsp]",
    "jmp [rcx + {after}]",
    ".p2align 4",
    "terapage_guard_unpin:",
    "mov r11, [rcx + {words}]",
    "mov qword ptr [r11], 0",
    "mov r11, [rcx + {words} + 8]",
    "mov qword ptr [r11], 0",
    "mov rdi, [rcx + {registers}]",
    "mov rsi, [rcx + {registers} + 8]",
    "mov rdx, [rcx + {registers} + 16]",
    "mov r10, [rcx + {registers} + 24]",
    "mov r8, [rcx + {registers} + 32]",
    "mov r9, [rcx + {registers} + 40]",
    "mov r11, [rcx + {rip}]",
    "mov rsp, [rcx + {rsp}]",
    "mov qword ptr [rcx + {used}], {free}",
    "mov rcx, r11",
    "jmp rcx",
    ".p2align 4",
    "terapage_guard_trap:",
    "mov [rcx + {answer}], rax",
    "mov rdi, -1",
    "movabs rsi, {arena}",
    "mov edx, 0",
    "mov eax, {read}",
    "syscall",
    "terapage_guard_trapped:",
    "ud2",
    gate = const GATE,
    arena = const GUARDED.start,
    read = const libc::SYS_read,
    after = const offset_of!(Record, after),
    words = const WORDS,
    registers = const REGISTERS,
    rsp = const offset_of!(Record, rsp),
    rip = const offset_of!(Record, rip),
    used = const offset_of!(Record, used),
    free = const FREE,
    on_stack = const ON_STACK,
    answer = const offset_of!(Record, answer),
);

unsafe extern "C" {
    fn terapage_guard_make();
    fn terapage_guard_made();
    fn terapage_guard_unpin();
    fn terapage_guard_trap();
    fn terapage_guard_trapped();
}

/// Whether a thread has made a call of a record, and the library has more to do.
pub fn has_made(context: &Context) -> bool {
    context.rip == terapage_guard_trapped as *const () as usize
}

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
    match (is_aside(context.rsp), is_aside(record.rsp)) {
        (true, true) | (false, false) => record.rsp <= context.rsp,
        // A handler on the other stack interrupts a call on the usual one.
        (true, false) => false,
        (false, true) => true,
    }
}

/// Whether the stack may still have what a call that goes on needs there: the record's address.
fn is_on_stack(record: &Record) -> bool {
    let mut word = [0; size_of::<usize>()];
    record.used.load(Relaxed) != ON_STACK
        || raw::read(record.rsp - BELOW, &mut word)
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
            seems_left(record, context) && (record.rsp == context.rsp || !has_room || !is_on_stack(record))
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
    (record.call.depth, record.call.done) = (context.rsp, 0);
    record.call.at_position = usize::from(own_memory::is_meant(call.number, &call.arguments));
    record.answer = IS_CROWDED;
    // SAFETY: the caller keeps the seat's contract.
    unsafe { wait_for_room(record) };
    if record.answer != MADE_BY_THREAD {
        return Outcome::Answer(record.answer);
    }
    (record.rip, record.rsp, record.registers) = (context.rip, context.rsp, context.arguments());
    // SAFETY: the slot is this thread's.
    record.number = unsafe { (*slot).number };
    record.used.store(USED, Release);
    enter(context, record);
    Outcome::Continues
}

/// While other calls have pinned too much memory for a record's call: waits, without the seat, and
/// tries again. The wait has an end, because the other calls may be waiting for this one.
///
/// # Safety
/// As for [`make`].
unsafe fn wait_for_room(record: &mut Record) {
    unsafe extern "C" fn pin(record: usize) {
        let record = record as *mut Record;
        // SAFETY: the record is the calling thread's.
        unsafe { (*record).answer = library::pin(&raw mut (*record).call) };
    }
    for look in 0..LOOKS {
        if record.answer != IS_CROWDED {
            return;
        }
        if look > 0 {
            raw::sleep_ms(1);
        }
        // SAFETY: the caller keeps the seat's contract.
        unsafe { seat::with(pin, std::ptr::from_mut(record) as usize) };
    }
    if record.answer == IS_CROWDED {
        record.answer = if record.call.done > 0 { record.call.done as isize } else { error(libc::ENOMEM) };
    }
}

/// Changes the context of a thread so that it makes the call of a record.
fn enter(context: &mut Context, record: &mut Record) {
    let after = if record.call.words[0] == 0 { terapage_guard_trap } else { terapage_guard_unpin };
    record.after = after as *const () as usize;
    context.rcx = std::ptr::from_mut(record) as usize;
    context.rip = terapage_guard_make as *const () as usize;
    context.rsp = record.rsp - BELOW;
    context.rax = record.call.number as usize;
    set_arguments(context, record.call.arguments);
}

fn set_arguments(context: &mut Context, arguments: [usize; 6]) {
    [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9] = arguments;
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
        let record = &mut **(context.rsp as *const *mut Record);
        seat::with(unpin, std::ptr::from_mut(record) as usize);
        wait_for_room(record);
        if record.answer == MADE_BY_THREAD {
            enter(context, record);
            return Outcome::Continues;
        }
        set_arguments(context, record.registers);
        (context.rip, context.rsp, context.rcx) = (record.rip, record.rsp, record.rip);
        record.used.store(FREE, Release);
        Outcome::Answer(record.answer)
    }
}

/// Puts a thread that was interrupted back to its trapped instruction, if it was about to make a
/// call of a record which has had no effect yet, or the kernel would have begun the call again.
///
/// # Safety
/// The kernel has passed the context to a handler.
pub unsafe fn roll_back(context: &mut Context) {
    let of = |code: unsafe extern "C" fn()| code as *const () as usize;
    let (make, made) = (of(terapage_guard_make), of(terapage_guard_made));
    // SAFETY: the stack has there what `terapage_guard_make` has put there.
    let record = unsafe {
        let word = |index: usize| *(context.rsp as *const usize).add(index);
        match context.rip {
            at if at == make => context.rcx,
            at if (make..made).contains(&at) => word(0),
            GATE if word(0) == made => word(1),
            _ => return,
        }
    };
    // SAFETY: the record is the calling thread's.
    let record = unsafe { &mut *(record as *mut Record) };
    if record.call.done > 0 {
        return;
    }
    set_arguments(context, record.registers);
    (context.rip, context.rsp) = (record.rip - SYSCALL_BYTES, record.rsp);
    context.rax = record.number as usize;
    // Otherwise the library must unpin: by the thread's next call, before which the record is
    // dropped.
    if record.call.words[0] != 0 {
        for word in record.call.words {
            // SAFETY: the words are those of the call's pins.
            unsafe { (*(word as *const AtomicUsize)).store(0, Release) };
        }
        record.used.store(FREE, Release);
    }
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
pub unsafe fn thread(slot: *mut Slot, [flags, stack, parent, child, pointer, _]: [usize; 6]) -> isize {
    // SAFETY: the slots are this thread's; the child uses only the context of its own.
    unsafe {
        let errno = keep(flags, stack, parent, child);
        if errno != 0 {
            return error(errno);
        }
        let Some(new) = slots::reserve() else { return error(libc::EAGAIN) };
        let begins = Slot::context(new);
        frame::copy(Slot::context(slot), begins);
        (*begins).rax = 0;
        (*begins).forget_stack_aside();
        if stack != 0 {
            (*begins).rsp = stack;
        }
        let answer = clone(flags, parent, child, pointer, begins);
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
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: only a free page is taken, which this function fills, uses and frees.
    unsafe {
        let map = |&at: &usize| raw!(libc::SYS_mmap, at, PAGE, rights, flags, -1_isize, 0) == at as isize;
        let Some(at) = TRIAL.step_by(1 << 16).find(map) else { return false };
        // `syscall; ret`
        (at as *mut [u8; 3]).write([0x0f, 0x05, 0xc3]);
        let runs = raw!(libc::SYS_mprotect, at, PAGE, libc::PROT_READ | libc::PROT_EXEC) == 0;
        if runs {
            TRIES.store(true, Relaxed);
            let answer: isize;
            // No such descriptor: no memory is touched.
            asm!(
                "call {at}",
                at = in(reg) at,
                inlateout("rax") libc::SYS_readv as isize => answer,
                in("rdi") -1_isize, in("rsi") 0_usize, in("rdx") 0_usize,
                lateout("rcx") _, lateout("r11") _,
            );
            debug_assert!(answer < 0);
            TRIES.store(false, Relaxed);
        }
        raw!(libc::SYS_munmap, at, PAGE);
    }
    TRAPPED.load(Relaxed)
}

const PAGE: usize = 4096;
