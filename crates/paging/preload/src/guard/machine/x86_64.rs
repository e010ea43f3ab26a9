//! x86-64.

use crate::guard::cancel::Site;
use libc::{c_int, mcontext_t};
use std::mem::offset_of;
use terapage_sys::hosting::GATE;

/// `io_pgetevents`, for which the libc crate has no name.
pub const IO_PGETEVENTS: i64 = 333;

/// Bytes of the instruction that makes a call.
pub const CALL_BYTES: usize = 2;

/// Whether a call of this number begins a thread or a process.
pub fn begins(number: i64) -> bool {
    matches!(number, libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork)
}

/// The arguments of a trapped call.
pub fn arguments(context: &mcontext_t) -> [usize; 6] {
    [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9]
        .map(|index| context.gregs[index as usize] as usize)
}

/// The stack pointer of a trapped call.
pub fn depth(context: &mcontext_t) -> usize {
    context.gregs[libc::REG_RSP as usize] as usize
}

/// The thread goes on behind its call, with the answer. The kernel has put the place there.
pub fn answer(context: &mut mcontext_t, answer: isize, _place: usize) {
    context.gregs[libc::REG_RAX as usize] = answer as i64;
}

const RESTORER: c_int = 0x0400_0000;

/// The flag of an action that has the code by which its handler returns, and that code.
pub fn restorer() -> (c_int, usize) {
    (RESTORER, restore as *const () as usize)
}

// Returns from the handler. Unwinders know these bytes. They look one byte before, where no
// function with a description must end.
std::arch::global_asm!(
    ".globl terapage_restore",
    ".hidden terapage_restore",
    ".type terapage_restore, @function",
    ".p2align 4",
    ".skip 16, 0x90",
    "terapage_restore:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00",
    "syscall",
);
unsafe extern "C" {
    #[link_name = "terapage_restore"]
    fn restore();
}

/// The start of the gate's description for unwinders: how long it is, then what holds for all code
/// of this form: version 1, augmentation "zR", addresses as they are; the caller's stack is 8 bytes
/// above, and the return address there.
pub const FRAMES: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1, 0, 0];

// Makes the call of a site, whose address is in `rbx` meanwhile.
std::arch::global_asm!(
    ".globl terapage_site",
    ".hidden terapage_site",
    ".type terapage_site, @function",
    ".globl terapage_site_begins",
    ".hidden terapage_site_begins",
    ".globl terapage_site_made",
    ".hidden terapage_site_made",
    ".globl terapage_site_again",
    ".hidden terapage_site_again",
    ".globl terapage_site_sent",
    ".hidden terapage_site_sent",
    ".globl terapage_site_ends",
    ".hidden terapage_site_ends",
    ".p2align 4",
    "terapage_site:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "mov rbx, rdi",
    "movabs r11, {gate}",
    "terapage_site_begins:",
    "mov rax, [rbx + {came}]",
    "cmp qword ptr [rax], 0",
    "jne terapage_site_again",
    "mov rdi, [rbx]",
    "mov rsi, [rbx + 8]",
    "mov rdx, [rbx + 16]",
    "mov r10, [rbx + 24]",
    "mov r8, [rbx + 32]",
    "mov r9, [rbx + 40]",
    "mov rax, [rbx + {number}]",
    "call r11",
    "terapage_site_made:",
    "pop rbx",
    ".cfi_remember_state",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_restore_state",
    "terapage_site_again:",
    "mov qword ptr [rax], 0",
    "mov eax, {getpid}",
    "call r11",
    "mov [rbx + {process}], rax",
    "movabs r11, {gate}",
    "mov eax, {gettid}",
    "call r11",
    "mov rdi, [rbx + {process}]",
    "mov rsi, rax",
    "mov rdx, [rbx + {signal}]",
    "movabs r11, {gate}",
    "mov eax, {tgkill}",
    "call r11",
    "terapage_site_sent:",
    "movabs r11, {gate}",
    "jmp terapage_site_begins",
    "terapage_site_ends:",
    ".cfi_endproc",
    ".size terapage_site, . - terapage_site",
    gate = const GATE,
    came = const offset_of!(Site, came),
    number = const offset_of!(Site, number),
    signal = const offset_of!(Site, signal),
    process = const offset_of!(Site, process),
    getpid = const libc::SYS_getpid,
    gettid = const libc::SYS_gettid,
    tgkill = const libc::SYS_tgkill,
);
unsafe extern "C" {
    #[link_name = "terapage_site"]
    fn at_site(site: *mut Site) -> isize;
    fn terapage_site_begins();
    fn terapage_site_made();
    fn terapage_site_again();
    fn terapage_site_sent();
    fn terapage_site_ends();
}

/// Makes the call of a site.
///
/// # Safety
/// The same as for the system call; the site's words are valid.
pub unsafe fn make(site: *mut Site) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { at_site(site) }
}

/// The site at which a thread with this context was interrupted, if its call has had no effect: the
/// thread was on its way, or the kernel would have begun the call again.
///
/// # Safety
/// The kernel has made the context.
pub unsafe fn site(context: &mcontext_t) -> Option<*const Site> {
    let register = |index: c_int| context.gregs[index as usize] as usize;
    let of = |code: unsafe extern "C" fn()| code as *const () as usize;
    let at = register(libc::REG_RIP);
    let is_there = match at.checked_sub(GATE) {
        Some(within) if within <= CALL_BYTES => {
            // SAFETY: whoever jumps to the gate has pushed where it returns to.
            let to = unsafe { *(register(libc::REG_RSP) as *const usize) };
            to == of(terapage_site_sent) || within == 0 && to == of(terapage_site_made)
        }
        _ => {
            (of(terapage_site_begins)..of(terapage_site_made)).contains(&at)
                || (of(terapage_site_again)..of(terapage_site_ends)).contains(&at)
        }
    };
    is_there.then_some(register(libc::REG_RBX) as *const Site)
}

unsafe extern "C" {
    /// Where this library's code begins and ends: the linker says so.
    static __ehdr_start: u8;
    static etext: u8;
}

/// Lets a thread that was interrupted where unwinders know nothing be where they do, which changes
/// nothing else: behind a jump of the table by which this library calls others, or at the beginning
/// of [`restore`].
///
/// # Safety
/// The kernel has made the context.
pub unsafe fn settle(context: &mut mcontext_t) {
    const JUMP: [u8; 2] = [0xff, 0x25];
    const JUMP_BYTES: usize = 6;
    const FIRST_BYTES: usize = 7;
    let at = context.gregs[libc::REG_RIP as usize] as usize;
    if at == restore as *const () as usize + FIRST_BYTES {
        set_place(context, at - FIRST_BYTES);
    } else if (&raw const __ehdr_start as usize..&raw const etext as usize - JUMP_BYTES).contains(&at) {
        // SAFETY: the thread is about to execute this code, and to read the word that a jump names.
        unsafe {
            let code = at as *const u8;
            if code.cast::<[u8; 2]>().read() == JUMP {
                let distance = code.add(2).cast::<i32>().read_unaligned() as isize;
                let word = at.wrapping_add(JUMP_BYTES).wrapping_add_signed(distance) as *const usize;
                set_place(context, word.read());
            }
        }
    }
}

/// Lets a context say that the thread is here.
pub fn set_place(context: &mut mcontext_t, place: usize) {
    context.gregs[libc::REG_RIP as usize] = place as i64;
}
