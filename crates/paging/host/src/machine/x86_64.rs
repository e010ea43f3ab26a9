//! x86-64.

use crate::guard::{FREE, Interrupted, ON_STACK, Record};
use crate::own_stack::{DATA, Execution};
use crate::raw::raw;
use std::arch::{asm, global_asm, naked_asm};
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_sys::hosting::{GATE, GUARDED, GuardedCall};

/// The machine of executables, as their headers name it.
pub const ELF_MACHINE: usize = 62;

/// The end of a program's addresses.
pub const ADDRESSES: usize = 1 << 47;

/// `MAP_32BIT`.
pub const MAP_LOW: i32 = libc::MAP_32BIT;

/// The call `open`.
pub const OPEN: Option<i64> = Some(libc::SYS_open);

/// Bytes of the system call instruction.
pub const CALL_BYTES: usize = 2;

/// Bytes below a stack's pointer that belong to the code that runs there (System V ABI).
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
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// The state of a thread that the kernel saves when it calls the handler, and from which it
/// restores the thread (`struct ucontext`). The layout is part of the kernel's interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Context {
    flags: u64,
    link: u64,
    /// The stack for handlers: its address, its flags, its bytes.
    pub stack: [usize; 3],
    r8: usize,
    r9: usize,
    r10: usize,
    r11: usize,
    r12: usize,
    r13: usize,
    r14: usize,
    r15: usize,
    rdi: usize,
    rsi: usize,
    rbp: usize,
    rbx: usize,
    rdx: usize,
    rax: usize,
    rcx: usize,
    rsp: usize,
    rip: usize,
    others: [u64; 6],
    /// The processor's other registers.
    registers: *mut u8,
    unused: [u64; 8],
    /// The signals that were blocked.
    pub blocked: u64,
}

const _: () = assert!(size_of::<Context>() == 304 && offset_of!(Context, registers) == 224);

/// The registers that the host's code changes when a thread makes a call by it, and that the
/// kernel's return from a call would not.
pub type Saved = [usize; 6];

impl Context {
    /// The arguments of the trapped system call.
    pub fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    fn set_arguments(&mut self, arguments: [usize; 6]) {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9] = arguments;
    }

    /// Where the thread is.
    pub fn place(&self) -> usize {
        self.rip
    }

    /// The stack pointer.
    pub fn depth(&self) -> usize {
        self.rsp
    }

    /// Lets the thread continue with another stack pointer.
    pub fn set_depth(&mut self, depth: usize) {
        self.rsp = depth;
    }

    /// The thread continues with this answer of its call.
    pub fn answer(&mut self, answer: isize) {
        self.rax = answer as usize;
    }

    /// At a trapped call: lets the context say where the call ends. The kernel has done so.
    pub fn settle(&mut self, _place: usize) {}

    /// Lets the thread make its call, which has this number, again.
    pub fn repeat(&mut self, number: i64) {
        self.rip -= CALL_BYTES;
        self.rax = number as usize;
    }

    /// The [registers](Saved) to restore after a call by the host's code.
    pub fn saved(&self) -> Saved {
        self.arguments()
    }

    /// Restores them.
    pub fn restore(&mut self, saved: &Saved) {
        self.set_arguments(*saved);
    }

    /// After the call of a record: as the kernel's own return, which changes `rcx`.
    pub fn leave(&mut self, record: &Record) {
        self.set_arguments(record.saved);
        (self.rip, self.rsp, self.rcx) = (record.place, record.depth, record.place);
    }

    /// Lets the thread make a call in [`make`](terapage_own_make), with its stack pointer at a
    /// [`Frame`].
    pub fn enter_frame(&mut self, at: usize, number: i64, arguments: [usize; 6]) {
        self.rcx = self.rip;
        self.rip = of(terapage_own_make);
        self.rsp = at;
        self.rax = number as usize;
        self.set_arguments(arguments);
    }

    /// [`make`](terapage_own_make) has let the thread continue in the program.
    ///
    /// # Safety
    /// None: nothing is done.
    pub unsafe fn leave_frame(&mut self) -> bool {
        false
    }

    /// Lets the thread execute a program in [`execute`].
    pub fn enter_execution(&mut self, at: *mut Execution, [path, arguments, environment]: [usize; 3]) {
        self.rcx = at as usize;
        self.rip = execute as *const () as usize;
        [self.rdi, self.rsi, self.rdx] = [path, arguments, environment];
    }

    /// Lets the thread make the call of a record, with its stack pointer `below` the record's.
    pub fn enter_record(&mut self, record: &mut Record, below: usize) {
        let after = if record.call.words[0] == 0 { terapage_guard_trap } else { terapage_guard_unpin };
        record.after = after as *const () as usize;
        self.rcx = std::ptr::from_mut(record) as usize;
        self.rip = terapage_guard_make as *const () as usize;
        self.rsp = record.depth - below;
        self.rax = record.call.number as usize;
        self.set_arguments(record.call.arguments);
    }

    /// Whether the thread has made the call of a record, and the host has more to do.
    pub fn has_made(&self) -> bool {
        self.rip == terapage_guard_trapped as *const () as usize
    }

    /// Whether the thread comes back from a failed exec elsewhere than at its own call.
    pub fn has_failed(&self) -> bool {
        false
    }

    /// If the thread was interrupted while it made a call of a record.
    ///
    /// # Safety
    /// The kernel has made the context.
    pub unsafe fn interrupted(&self) -> Option<Interrupted> {
        const MADE: usize = GATE + CALL_BYTES;
        let (make, made) = (of(terapage_guard_make), of(terapage_guard_made));
        let (unpin, left) = (of(terapage_guard_unpin), of(terapage_guard_left));
        // SAFETY: the stack has there what `terapage_guard_make` has put there.
        let word = |index: usize| unsafe { *(self.rsp as *const usize).add(index) };
        let is_before = |at: usize| Some(Interrupted::Before(at as *mut Record));
        let is_made = |at: usize| Some(Interrupted::Made(at as *mut Record, self.rax as isize));
        match self.rip {
            at if at == make => is_before(self.rcx),
            at if (make..made).contains(&at) => is_before(word(0)),
            GATE if word(0) == made => is_before(word(1)),
            MADE if word(0) == made => is_made(word(1)),
            at if at == made => is_made(word(0)),
            at if (made..unpin).contains(&at) || (unpin..left).contains(&at) => is_made(self.rcx),
            _ => None,
        }
    }

    /// If the thread was interrupted in [`make`](terapage_own_make): puts it back to its call, to
    /// make it again, or behind the call, if that was made. And if it was interrupted on its last
    /// steps back into the program, puts it there.
    ///
    /// # Safety
    /// The kernel has made the context.
    pub unsafe fn finish(&mut self) {
        let (make, made, back) = (of(terapage_own_make), of(terapage_own_made), of(terapage_own_back));
        let (left, trap) = (of(terapage_guard_left), of(terapage_guard_trap));
        if (make..back).contains(&self.rip) {
            // SAFETY: the frame lies there as long as the thread is in that code.
            let frame = unsafe { &*(self.rsp as *const Frame) };
            let is_made = self.rip >= made;
            let place = if self.rip == make { self.rcx } else { frame.place };
            (self.rip, self.rsp, self.rcx) = (place, frame.depth, place);
            self.set_arguments(frame.saved);
            if !is_made {
                self.repeat(self.rax as i64);
            }
        } else if self.rip == back {
            self.rip = self.rcx;
        } else if (left..trap).contains(&self.rip) {
            (self.rip, self.rcx) = (self.r11, self.r11);
        }
    }
}

/// The address of code.
fn of(code: unsafe extern "C" fn()) -> usize {
    code as *const () as usize
}

/// Where a thread continues after a failed exec: it makes its own call again.
pub fn after_exec(call: usize) -> usize {
    call
}

/// The arguments of `clone` in one order on all processors: flags, stack, parent's word, child's
/// word, thread pointer.
pub fn clone_arguments([flags, stack, parent, child, pointer, _]: [usize; 6]) -> [usize; 5] {
    [flags, stack, parent, child, pointer]
}

/// Bytes before a context in a frame from which the kernel restores a thread: none that it reads.
pub const BEFORE: usize = 0;
/// Bytes of a frame: room for a context, and after it for the other registers.
pub const FRAME: usize = 16 << 10;
/// Bytes of a slot: a guard page, a stack that grows towards the page, its fields, and a frame.
pub const SLOT: usize = 64 << 10;

const REGISTERS: usize = 320;
/// Bytes of the other registers, unless their header says that there are more.
const PLAIN: usize = 512;
/// The place of a number that says how many bytes the registers have, and the value that marks it
/// (`struct _fpx_sw_bytes`, FP_XSTATE_MAGIC1).
const EXTENDED: usize = 464;
const EXTENDED_MARK: u32 = 0x4650_5853;

/// The most bytes of other registers for which a frame has room.
pub const REGISTERS_MOST: usize = FRAME - REGISTERS;

/// Copies a context, with the other registers, to a frame from which it can be restored, whatever
/// happens to its original stack.
///
/// # Safety
/// The kernel has made the context, and `to` is aligned to 64 bytes and has room for a frame.
pub unsafe fn copy(from: *const Context, to: *mut Context) {
    // SAFETY: the caller passes a context, and the kernel puts the registers where it says.
    unsafe {
        to.copy_from_nonoverlapping(from, 1);
        let registers = (*from).registers;
        if registers.is_null() {
            return;
        }
        let place = to.cast::<u8>().add(REGISTERS);
        let extended = registers.add(EXTENDED).cast::<u32>();
        let len = if extended.read_unaligned() == EXTENDED_MARK {
            extended.add(1).read_unaligned() as usize
        } else {
            PLAIN
        };
        place.copy_from_nonoverlapping(registers, len.min(REGISTERS_MOST));
        (*to).registers = place;
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
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {serve}",
            stack = in(reg) stack,
            serve = in(reg) serve,
            in("rdi") argument,
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
            "mov rsp, {context}",
            "mov eax, {number}",
            "syscall",
            "ud2",
            context = in(reg) context,
            number = const libc::SYS_rt_sigreturn,
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
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rsp, r12",
            "mov eax, {number}",
            "syscall",
            "ud2",
            "2:",
            number = const libc::SYS_rt_sigreturn,
            inlateout("rax") libc::SYS_clone as isize => answer,
            in("rdi") flags,
            in("rsi") 0_usize,
            in("rdx") parent,
            in("r10") child,
            in("r8") pointer,
            in("r12") begins,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

const RESTORER: u64 = 0x0400_0000;

/// The flag of an action that has the code by which its handler returns, and that code.
pub fn restorer() -> (u64, usize) {
    (RESTORER, restore as *const () as usize)
}

/// Returns from a handler.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    naked_asm!("mov eax, {number}", "syscall", number = const libc::SYS_rt_sigreturn)
}

/// Whether the processor has instructions for the thread pointer, and the kernel allows them.
static BY_INSTRUCTION: AtomicBool = AtomicBool::new(false);

/// `HWCAP2_FSGSBASE`.
const FSGSBASE: u64 = 1 << 1;
/// Codes of `arch_prctl`.
const SET_FS: usize = 0x1002;
const GET_FS: usize = 0x1003;

/// Finds out how [`pointer`] and [`set_pointer`] work here.
pub fn find_pointer() {
    // SAFETY: the call only queries.
    let has = unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE != 0;
    BY_INSTRUCTION.store(has, Relaxed);
}

/// The thread pointer of the calling thread.
pub fn pointer() -> usize {
    let mut at = 0_usize;
    if BY_INSTRUCTION.load(Relaxed) {
        // SAFETY: the processor has the instruction, which changes nothing else.
        unsafe { asm!("rdfsbase {}", out(reg) at, options(nomem, nostack, preserves_flags)) };
    } else {
        // SAFETY: `at` has room for the answer.
        unsafe { raw!(libc::SYS_arch_prctl, GET_FS, &raw mut at) };
    }
    at
}

/// Sets the thread pointer of the calling thread.
///
/// # Safety
/// Code that runs until the pointer is set back finds its data through it, or uses none.
pub unsafe fn set_pointer(at: usize) {
    if BY_INSTRUCTION.load(Relaxed) {
        // SAFETY: the processor has the instruction; the caller is responsible for the pointer.
        unsafe { asm!("wrfsbase {}", in(reg) at, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above.
        unsafe { raw!(libc::SYS_arch_prctl, SET_FS, at) };
    }
}

/// Calls `work` on another stack, which begins at `top`.
///
/// # Safety
/// The stack is the calling thread's, and `work` may be called with `argument`.
pub unsafe fn call_on(top: usize, work: unsafe extern "C" fn(usize), argument: usize) {
    // SAFETY: the caller keeps the contract.
    unsafe {
        asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {work}",
            "mov rsp, r12",
            top = in(reg) top,
            work = in(reg) work,
            in("rdi") argument,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Copies words to a stack, and begins a program there.
///
/// # Safety
/// There is room for the words at `to`, and a program's entry at `entry`. Nothing of the stack is
/// used any more.
pub unsafe fn begin(to: usize, from: usize, words: usize, entry: usize) -> ! {
    // SAFETY: the caller keeps the contract.
    unsafe {
        asm!(
            "mov rsp, rdi",
            "rep movsq",
            "xor edx, edx",
            "xor ebp, ebp",
            "jmp r8",
            in("rdi") to,
            in("rsi") from,
            in("rcx") words,
            in("r8") entry,
            options(noreturn),
        )
    }
}

/// Prepares what is below: there is nothing to prepare.
pub fn open() -> bool {
    true
}

/// Code of the host that lies where the program's code may lie: there is none.
pub fn code_in_area() -> Option<Range<usize>> {
    None
}

/// What lies on a thread's stack while the thread makes a call in [`make`](terapage_own_make),
/// which knows the layout.
#[repr(C)]
pub struct Frame {
    /// Where the program continues, and with which stack pointer and arguments.
    place: usize,
    depth: usize,
    saved: Saved,
    /// Memory that the call's arguments name.
    pub data: [u64; DATA],
}

impl Frame {
    /// The frame for a call of a thread with this context.
    pub fn of(context: &Context, data: [u64; DATA]) -> Frame {
        Frame { place: context.rip, depth: context.rsp, saved: context.saved(), data }
    }
}

// `make` makes the call, and continues in the program. As in the kernel's own return from a call,
// rcx and r11 are changed, and no other register and no flag. The kernel may repeat the call after
// a handler: its registers still have the same values.
global_asm!(
    ".globl terapage_own_make",
    ".hidden terapage_own_make",
    ".globl terapage_own_made",
    ".hidden terapage_own_made",
    ".globl terapage_own_back",
    ".hidden terapage_own_back",
    ".p2align 4",
    "terapage_own_make:",
    "mov [rsp], rcx",
    "syscall",
    "terapage_own_made:",
    "mov rdi, [rsp + 16]",
    "mov rsi, [rsp + 24]",
    "mov rdx, [rsp + 32]",
    "mov r10, [rsp + 40]",
    "mov r8, [rsp + 48]",
    "mov r9, [rsp + 56]",
    "mov rcx, [rsp]",
    "mov rsp, [rsp + 8]",
    "terapage_own_back:",
    "jmp rcx",
);

unsafe extern "C" {
    fn terapage_own_make();
    fn terapage_own_made();
    fn terapage_own_back();
}

/// In the third argument of an exec: a failed exec of [`execute`] comes back to the handler. No
/// environment lies at such an address.
pub const FAILED: usize = 0x8000_7e4a_7e4a_7e4a;

#[unsafe(naked)]
unsafe extern "C" fn execute() {
    naked_asm!(
        "lea rsp, [rsp - {room}]",
        "mov [rsp], rcx",
        "mov eax, {number}",
        "syscall",
        "mov rdi, [rsp]",
        "lea rsp, [rsp + {room}]",
        "mov rsi, rax",
        "mov rdx, {failed}",
        "mov rcx, [rdi + {again}]",
        "mov eax, {number}",
        "jmp rcx",
        room = const RED_ZONE + 16,
        number = const libc::SYS_execve,
        failed = const FAILED,
        again = const offset_of!(Execution, again),
    )
}

const SAVED: usize = offset_of!(Record, saved);
/// Where the words lie by which the thread unpins.
const WORDS: usize = offset_of!(Record, call) + offset_of!(GuardedCall, words);

// `make` makes the call of a record at the gate. As after the kernel's own return, no other
// register than rcx and r11 has changed in the end. The kernel may repeat the call after a handler:
// its registers still have the same values.
global_asm!(
    ".globl terapage_guard_make",
    ".hidden terapage_guard_make",
    ".hidden terapage_guard_unpin",
    ".globl terapage_guard_unpin",
    ".globl terapage_guard_made",
    ".hidden terapage_guard_made",
    ".hidden terapage_guard_left",
    ".globl terapage_guard_left",
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
    "mov rdi, [rcx + {saved}]",
    "mov rsi, [rcx + {saved} + 8]",
    "mov rdx, [rcx + {saved} + 16]",
    "mov r10, [rcx + {saved} + 24]",
    "mov r8, [rcx + {saved} + 32]",
    "mov r9, [rcx + {saved} + 40]",
    "mov r11, [rcx + {place}]",
    "mov rsp, [rcx + {depth}]",
    "mov qword ptr [rcx + {used}], {free}",
    "terapage_guard_left:",
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
    saved = const SAVED,
    depth = const offset_of!(Record, depth),
    place = const offset_of!(Record, place),
    used = const offset_of!(Record, used),
    free = const FREE,
    on_stack = const ON_STACK,
    answer = const offset_of!(Record, answer),
);

unsafe extern "C" {
    fn terapage_guard_make();
    fn terapage_guard_made();
    fn terapage_guard_unpin();
    fn terapage_guard_left();
    fn terapage_guard_trap();
    fn terapage_guard_trapped();
}

/// A handler of signals that calls `before` with its arguments, and continues in the handler that
/// `before` returns, which finds the stack as the kernel has left it: it may unwind from there.
macro_rules! handler {
    ($name:ident, $before:ident) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "mov rsi, rdx",
                "call {before}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                before = sym $before,
            )
        }
    };
}
pub(crate) use handler;
