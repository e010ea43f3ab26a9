//! 64-bit Arm.
//!
//! The kernel's return from a call changes no register but that of the answer, so code that makes a
//! call for a thread has no register left by which it could jump back into the program. It ends in
//! a call of its own, at the [exit], which is trapped: the handler then puts the registers back.
//!
//! [exit]: open

use crate::guard::{Interrupted, ON_STACK, Record};
use crate::own_stack::{DATA, Execution};
use crate::raw::raw;
use crate::{place, trap};
use std::arch::{asm, global_asm, naked_asm};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terapage_sys::hosting::GATE;
use terapage_sys::machine::publish;
use terapage_sys::page_bytes;

/// In the processor's state: how the last branch was made (BTYPE). It stays set at a call that is a
/// branch's target. If the thread continued from that state in code that accepts only marked
/// targets of branches (BTI), as that of Debian's libraries, the processor would stop it.
const BRANCHED: u64 = 3 << 10;

/// The machine of executables, as their headers name it.
pub const ELF_MACHINE: usize = 183;

/// The end of a program's addresses.
pub const ADDRESSES: usize = 1 << 48;

/// `MAP_32BIT`, which there is not.
pub const MAP_LOW: i32 = 0;

/// The call `open`, which there is not.
pub const OPEN: Option<i64> = None;

/// Bytes of the system call instruction.
pub const CALL_BYTES: usize = 4;

/// Bytes below a stack's pointer that are not used: Go has its frame pointer there.
pub const RED_ZONE: usize = 128;

/// Makes a system call. The result is the kernel's: from -4095 to -1 it is an error.
///
/// # Safety
/// The same as for the system call.
#[inline]
pub unsafe fn call(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let answer;
    // SAFETY: the instruction changes only these registers; the caller is responsible for the call.
    unsafe {
        asm!(
            "svc #0",
            // The kernel changes it if it makes the call again.
            inlateout("x8") number => _,
            inlateout("x0") a => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    answer
}

/// The state of a thread that the kernel saves when it calls the handler, and from which it
/// restores the thread (`struct ucontext`). The layout is part of the kernel's interface.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Context {
    flags: u64,
    link: u64,
    /// The stack for handlers: its address, its flags, its bytes.
    pub stack: [usize; 3],
    /// The signals that were blocked.
    pub blocked: u64,
    unused: [u64; 16],
    fault: usize,
    /// The registers x0 to x30.
    x: [usize; 31],
    sp: usize,
    pc: usize,
    state: u64,
    unused_too: u64,
    /// The processor's other registers: records, each with its mark and its bytes at its beginning.
    others: [u32; OTHERS / 4],
}

/// Bytes of the other registers, if they need no [`More`].
const OTHERS: usize = 4096;

const _: () = assert!(
    size_of::<Context>() == 4560 && offset_of!(Context, x) == 184 && offset_of!(Context, others) == 464
);

/// The mark of the record that says that more of the registers follow (EXTRA_MAGIC).
const MORE_MARK: u32 = 0x4558_5401;

/// That record (`struct extra_context`).
#[repr(C)]
struct More {
    mark: u32,
    len: u32,
    at: u64,
    bytes: u32,
    unused: [u32; 3],
}

/// The registers that the host's code changes when a thread makes a call by it, and that the
/// kernel's return from a call would not: x0 to x5, x8 to x10, and x30.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Saved([usize; 10]);

/// Their indices.
const SAVED: [usize; 10] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 30];

impl Context {
    /// The arguments of the trapped system call.
    pub fn arguments(&self) -> [usize; 6] {
        std::array::from_fn(|index| self.x[index])
    }

    fn set_call(&mut self, number: i64, arguments: [usize; 6]) {
        self.x[..6].copy_from_slice(&arguments);
        self.x[8] = number as usize;
    }

    /// Where the thread is.
    pub fn place(&self) -> usize {
        self.pc
    }

    /// The stack pointer.
    pub fn depth(&self) -> usize {
        self.sp
    }

    /// Lets the thread continue with another stack pointer.
    pub fn set_depth(&mut self, depth: usize) {
        self.sp = depth;
    }

    /// The thread continues with this answer of its call.
    pub fn answer(&mut self, answer: isize) {
        self.x[0] = answer as usize;
    }

    /// At a trapped call: lets the context say where the call ends. The kernel's own idea of the
    /// place is not used: the register of the answer has held the first argument, and the kernel
    /// takes some values (-512, -513) for those of a call that must be made again.
    pub fn settle(&mut self, place: usize) {
        self.pc = place;
        self.state &= !BRANCHED;
    }

    /// Lets the thread make its call, which has this number, again.
    pub fn repeat(&mut self, number: i64) {
        self.pc -= CALL_BYTES;
        self.x[8] = number as usize;
    }

    /// The [registers](Saved) to restore after a call by the host's code.
    pub fn saved(&self) -> Saved {
        Saved(SAVED.map(|index| self.x[index]))
    }

    /// Restores them.
    pub fn restore(&mut self, saved: &Saved) {
        SAVED.iter().zip(saved.0).for_each(|(&index, value)| self.x[index] = value);
    }

    /// After the call of a record.
    pub fn leave(&mut self, record: &Record) {
        self.restore(&record.saved);
        self.settle(record.place);
        self.sp = record.depth;
    }

    /// Lets the thread make a call in [`make`](terapage_own_make), with its stack pointer at a
    /// [`Frame`].
    pub fn enter_frame(&mut self, at: usize, number: i64, arguments: [usize; 6]) {
        self.pc = of(terapage_own_make);
        self.sp = at;
        self.set_call(number, arguments);
    }

    /// If the thread has made a call in [`make`](terapage_own_make): lets it continue in the
    /// program, with the answer.
    ///
    /// # Safety
    /// The kernel has made the context.
    pub unsafe fn leave_frame(&mut self) -> bool {
        let is_there = self.pc == exit() + CALL_BYTES;
        if is_there {
            // SAFETY: the frame lies on the stack of the thread, which has reached the exit there.
            let frame = unsafe { &*(self.sp as *const Frame) };
            self.restore(&frame.saved);
            self.answer(frame.answer);
            (self.pc, self.sp) = (frame.place, frame.depth);
        }
        is_there
    }

    /// Lets the thread execute a program in [`execute`].
    pub fn enter_execution(&mut self, at: *mut Execution, arguments: [usize; 3]) {
        self.x[9] = at as usize;
        self.pc = execute as *const () as usize;
        self.x[..3].copy_from_slice(&arguments);
    }

    /// Lets the thread make the call of a record, with its stack pointer `below` the record's.
    pub fn enter_record(&mut self, record: &mut Record, below: usize) {
        record.after = exit() + AFTER_RECORD;
        self.x[9] = std::ptr::from_mut(record) as usize;
        self.pc = terapage_guard_make as *const () as usize;
        self.sp = record.depth - below;
        self.set_call(record.call.number, record.call.arguments);
    }

    /// Whether the thread has made the call of a record.
    pub fn has_made(&self) -> bool {
        self.pc == exit() + AFTER_RECORD + CALL_BYTES
    }

    /// Whether the thread comes back from a failed exec.
    pub fn has_failed(&self) -> bool {
        self.pc == exit() + AFTER_EXEC + CALL_BYTES
    }

    /// If the thread was interrupted while it made a call of a record.
    ///
    /// # Safety
    /// The kernel has made the context.
    pub unsafe fn interrupted(&self) -> Option<Interrupted> {
        const MADE: usize = GATE + CALL_BYTES;
        let (make, made) = (of(terapage_guard_make), of(terapage_guard_made));
        let (record, answer) = (self.x[9] as *mut Record, self.x[0] as isize);
        match self.pc {
            at if (make..made).contains(&at) => Some(Interrupted::Before(record)),
            GATE if self.x[30] == made => Some(Interrupted::Before(record)),
            MADE if self.x[30] == made => Some(Interrupted::Made(record, answer)),
            // Until the answer is in the record.
            at if at == made || at == made + CALL_BYTES => Some(Interrupted::Made(record, answer)),
            _ => None,
        }
    }

    /// If the thread was interrupted in [`make`](terapage_own_make): puts it back to its call, to
    /// make it again, or behind the call, if that was made.
    ///
    /// # Safety
    /// The kernel has made the context.
    pub unsafe fn finish(&mut self) {
        let (make, made, ends) = (of(terapage_own_make), of(terapage_own_made), of(terapage_own_ends));
        if !(make..ends).contains(&self.pc) && self.pc != exit() {
            return;
        }
        // SAFETY: the frame lies there as long as the thread is in that code.
        let frame = unsafe { &*(self.sp as *const Frame) };
        let (at, answer) = (self.pc, self.x[0] as isize);
        self.restore(&frame.saved);
        (self.pc, self.sp) = (frame.place, frame.depth);
        if at < made && at >= make {
            // The number of the call was among the registers.
            self.pc -= CALL_BYTES;
        } else {
            self.answer(if at == made { answer } else { frame.answer });
        }
    }
}

/// The address of code.
fn of(code: unsafe extern "C" fn()) -> usize {
    code as *const () as usize
}

/// The arguments of `clone` in one order on all processors: flags, stack, parent's word, child's
/// word, thread pointer.
pub fn clone_arguments([flags, stack, parent, pointer, child, _]: [usize; 6]) -> [usize; 5] {
    [flags, stack, parent, child, pointer]
}

/// Bytes before a context in a frame from which the kernel restores a thread (`siginfo_t`).
pub const BEFORE: usize = 128;
/// Bytes of a frame: room for a context, and after it for the other registers, of which there are
/// 64 KiB and more with the longest vectors (ZA).
pub const FRAME: usize = 128 << 10;
/// Bytes of a slot: a guard page of 64 KiB at most, a stack that grows towards the page, its
/// fields, and a frame.
pub const SLOT: usize = 256 << 10;

/// The most bytes of a context and registers for which a frame has room.
pub const REGISTERS_MOST: usize = FRAME - BEFORE;

/// The record of a context that says that more of the registers follow it.
///
/// # Safety
/// The kernel has made the context.
unsafe fn more(context: *mut Context) -> Option<*mut More> {
    // SAFETY: the records follow one another, and the last has no mark.
    unsafe {
        let mut at = (&raw mut (*context).others).cast::<u8>();
        let end = at.add(OTHERS - size_of::<More>());
        while at <= end {
            let record = at.cast::<More>();
            match ((*record).mark, (*record).len as usize) {
                (MORE_MARK, _) => return Some(record),
                (0, _) | (_, 0) => return None,
                (_, len) => at = at.add(len),
            }
        }
        None
    }
}

/// Copies a context, with the other registers, to a frame from which it can be restored, whatever
/// happens to its original stack.
///
/// # Safety
/// The kernel has made the context, and `to` is aligned to 64 bytes and has room for a frame.
pub unsafe fn copy(from: *const Context, to: *mut Context) {
    // SAFETY: the kernel puts more registers behind the context, as its record says, and expects
    // them there.
    unsafe {
        let len = more(from.cast_mut()).map_or(size_of::<Context>(), |more| {
            ((*more).at as usize + (*more).bytes as usize - from as usize).max(size_of::<Context>())
        });
        if len > REGISTERS_MOST {
            trap::stop("a thread has more registers than the host knows (try: --static off)");
        }
        to.cast::<u8>().copy_from_nonoverlapping(from.cast(), len);
        if let Some(more) = more(to) {
            (*more).at = (*more).at.wrapping_sub(from as u64).wrapping_add(to as u64);
        }
    }
}

/// Continues in `serve`, with an argument, on another stack.
///
/// # Safety
/// The stack is the calling thread's.
pub unsafe fn switch<T>(stack: usize, serve: unsafe extern "C" fn(*mut T) -> !, argument: *mut T) -> ! {
    // SAFETY: the function does not return.
    unsafe {
        asm!(
            "mov sp, x1",
            "mov x29, xzr",
            "mov x30, xzr",
            "br x2",
            in("x0") argument,
            in("x1") stack,
            in("x2") serve,
            options(noreturn),
        )
    }
}

/// Restores the calling thread from a context.
///
/// # Safety
/// The kernel has made the context, and [`copy`] has copied it.
pub unsafe fn resume(context: *mut Context) -> ! {
    // SAFETY: the kernel takes the context back.
    unsafe {
        asm!(
            "mov sp, {frame}",
            "svc #0",
            "brk #1",
            frame = in(reg) context as usize - BEFORE,
            in("x8") libc::SYS_rt_sigreturn,
            options(noreturn),
        )
    }
}

/// Makes the system call `clone` for a child that continues from a context, on this thread's stack
/// until then.
///
/// # Safety
/// Nobody else uses the context until the child has continued from it.
#[inline(always)]
pub unsafe fn clone(
    flags: usize,
    parent: usize,
    child: usize,
    pointer: usize,
    begins: *mut Context,
) -> isize {
    let answer: isize;
    // SAFETY: the child writes nothing to the stack before it continues from the context.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov sp, x20",
            "mov x8, #{number}",
            "svc #0",
            "brk #1",
            "2:",
            number = const libc::SYS_rt_sigreturn,
            inlateout("x8") libc::SYS_clone => _,
            inlateout("x0") flags => answer,
            in("x1") 0_usize,
            in("x2") parent,
            in("x3") pointer,
            in("x4") child,
            in("x20") begins as usize - BEFORE,
        );
    }
    answer
}

/// The flag of an action that has the code by which its handler returns, and that code: none. The
/// kernel has such code.
pub fn restorer() -> (u64, usize) {
    (0, 0)
}

/// Finds out how [`pointer`] and [`set_pointer`] work here: as everywhere.
pub fn find_pointer() {}

/// The thread pointer of the calling thread.
pub fn pointer() -> usize {
    let at;
    // SAFETY: nothing else is changed.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// Sets the thread pointer of the calling thread.
///
/// # Safety
/// Code that runs until the pointer is set back finds its data through it, or uses none.
pub unsafe fn set_pointer(at: usize) {
    // SAFETY: the caller is responsible for the pointer.
    unsafe { asm!("msr tpidr_el0, {}", in(reg) at, options(nostack, preserves_flags)) };
}

/// Calls `work` on another stack, which begins at `top`.
///
/// # Safety
/// The stack is the calling thread's, and `work` may be called with `argument`.
pub unsafe fn call_on(top: usize, work: unsafe extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller keeps the contract.
    unsafe {
        asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {work}",
            "mov sp, x20",
            top = in(reg) top,
            work = in(reg) work,
            in("x0") argument,
            out("x20") _,
            clobber_abi("C"),
        );
    }
}

/// Copies words to a stack, and begins a program there.
///
/// # Safety
/// There is room for the words, of which there are some, at `to`, and a program's entry at `entry`.
/// Nothing of the stack is used any more.
pub unsafe fn begin(to: usize, from: usize, words: usize, entry: usize) -> ! {
    // SAFETY: the caller keeps the contract.
    unsafe {
        asm!(
            "mov sp, x0",
            "2:",
            "ldr x9, [x1], #8",
            "str x9, [x0], #8",
            "subs x2, x2, #1",
            "b.ne 2b",
            "mov x0, xzr",
            "mov x29, xzr",
            "mov x30, xzr",
            "br x3",
            in("x0") to,
            in("x1") from,
            in("x2") words,
            in("x3") entry,
            options(noreturn),
        )
    }
}

/// The code at the exit: for [`make`](terapage_own_make), and behind it for
/// [records](AFTER_RECORD) and [failed execs](AFTER_EXEC). Each is a system call, after which the
/// thread never continues.
const EXIT: [u32; 6] = [0xd400_0001, 0, 0xd400_0001, 0, 0xd400_0001, 0];
/// Where the exit of records is.
const AFTER_RECORD: usize = 8;
/// Where that of failed execs is. The program's own call cannot be made again: no branch may go
/// there if its code accepts only marked targets.
const AFTER_EXEC: usize = 16;

/// Where a thread continues after a failed exec.
pub fn after_exec(_call: usize) -> usize {
    exit() + AFTER_EXEC
}

/// The address of the exit.
static EXIT_AT: AtomicUsize = AtomicUsize::new(0);

fn exit() -> usize {
    EXIT_AT.load(Relaxed)
}

/// Makes the exit: where the program's code may lie, so that the filter traps the call there.
/// `false` if there is no memory.
pub fn open() -> bool {
    let (at, len) = (place::take(page_bytes()), page_bytes());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let (rights, run) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: nothing is replaced; the page is this function's.
    unsafe {
        if raw!(libc::SYS_mmap, at, len, rights, flags, -1_isize, 0) != at as isize {
            return false;
        }
        (at as *mut [u32; EXIT.len()]).write(EXIT);
        publish(at);
        EXIT_AT.store(at, Relaxed);
        raw!(libc::SYS_mprotect, at, len, run) == 0
    }
}

/// Code of the host that lies where the program's code may lie.
pub fn code_in_area() -> Option<Range<usize>> {
    let at = exit();
    (at != 0).then_some(at..at + size_of_val(&EXIT))
}

/// What lies on a thread's stack while the thread makes a call in [`make`](terapage_own_make),
/// which knows the layout.
#[repr(C)]
pub struct Frame {
    answer: isize,
    /// The exit.
    after: usize,
    /// Where the program continues, and with which stack pointer and registers.
    place: usize,
    depth: usize,
    saved: Saved,
    /// Memory that the call's arguments name.
    pub data: [u64; DATA],
}

impl Frame {
    /// The frame for a call of a thread with this context.
    pub fn of(context: &Context, data: [u64; DATA]) -> Frame {
        let (place, depth, saved) = (context.pc, context.sp, context.saved());
        Frame { answer: 0, after: exit(), place, depth, saved, data }
    }
}

// `make` makes the call, and goes to the exit. The kernel may repeat the call after a handler: its
// registers still have the same values.
global_asm!(
    ".globl terapage_own_make",
    ".hidden terapage_own_make",
    ".globl terapage_own_made",
    ".hidden terapage_own_made",
    ".globl terapage_own_ends",
    ".hidden terapage_own_ends",
    ".p2align 4",
    "terapage_own_make:",
    // If there is no room for it, there is no call.
    "str xzr, [sp, #{answer}]",
    "svc #0",
    "terapage_own_made:",
    "str x0, [sp, #{answer}]",
    "ldr x9, [sp, #{after}]",
    // If it were made, it would do nothing.
    "mov x0, #-1",
    "mov x1, #0",
    "mov x8, #{number}",
    "br x9",
    "terapage_own_ends:",
    answer = const offset_of!(Frame, answer),
    after = const offset_of!(Frame, after),
    number = const libc::SYS_munmap,
);

unsafe extern "C" {
    fn terapage_own_make();
    fn terapage_own_made();
    fn terapage_own_ends();
}

/// In the third argument of an exec: a failed exec of [`execute`] comes back to the handler. No
/// environment lies at such an address, whatever its upper eight bits.
pub const FAILED: usize = 0xffff_7e4a_7e4a_7e4a;

#[unsafe(naked)]
unsafe extern "C" fn execute() {
    naked_asm!(
        "sub sp, sp, #{room}",
        "str x9, [sp]",
        "mov x8, #{number}",
        "svc #0",
        "mov x1, x0",
        "ldr x0, [sp]",
        "add sp, sp, #{room}",
        "mov x2, #{low}",
        "movk x2, #{low}, lsl #16",
        "movk x2, #{low}, lsl #32",
        "movk x2, #0xffff, lsl #48",
        "ldr x9, [x0, #{again}]",
        "mov x8, #{number}",
        "br x9",
        room = const RED_ZONE + 16,
        number = const libc::SYS_execve,
        low = const FAILED & 0xffff,
        again = const offset_of!(Execution, again),
    )
}

const _: () = assert!(FAILED == 0xffff << 48 | 0x7e4a << 32 | 0x7e4a << 16 | 0x7e4a);

// `make` makes the call of a record, whose address is in x9 meanwhile, at the gate. The kernel may
// repeat the call after a handler: its registers still have the same values.
global_asm!(
    ".globl terapage_guard_make",
    ".hidden terapage_guard_make",
    ".globl terapage_guard_made",
    ".hidden terapage_guard_made",
    ".p2align 4",
    "terapage_guard_make:",
    "str x9, [sp]",
    "mov x10, #{on_stack}",
    "str x10, [x9, #{used}]",
    "movz x10, #(({gate} >> 32) & 0xffff), lsl #32",
    "movk x10, #(({gate} >> 16) & 0xffff), lsl #16",
    "blr x10",
    "terapage_guard_made:",
    "ldr x9, [sp]",
    "str x0, [x9, #{answer}]",
    "ldr x10, [x9, #{after}]",
    "mov x0, #-1",
    "mov x1, #0",
    "mov x8, #{number}",
    "br x10",
    gate = const GATE,
    after = const offset_of!(Record, after),
    used = const offset_of!(Record, used),
    on_stack = const ON_STACK,
    answer = const offset_of!(Record, answer),
    number = const libc::SYS_munmap,
);
const _: () = assert!(GATE % (1 << 16) == 0 && GATE >> 48 == 0);

unsafe extern "C" {
    fn terapage_guard_make();
    fn terapage_guard_made();
}

/// A handler of signals that calls `before` with its arguments, and continues in the handler that
/// `before` returns, which finds the stack as the kernel has left it: it may unwind from there.
macro_rules! handler {
    ($name:ident, $before:ident) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "mov x1, x2",
                "bl {before}",
                "mov x9, x0",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "br x9",
                before = sym $before,
            )
        }
    };
}
pub(crate) use handler;
