//! The handler: a trapped call arrives here, in the thread that made it.
//!
//! The handler takes a slot, copies the thread's context there, and continues on the slot's stack.
//! The call is served, its result is put into the copy, and the thread is restored from the copy:
//! behind the call, or in front of a call that it makes [itself](crate::own_stack). All signals are
//! blocked from the trap to the end.

use crate::calls::{self, Outcome};
use crate::frame::{self, Context, FROM_FILTER, Trapped};
use crate::own_stack;
use crate::raw::{self, is_error, raw};
use crate::signals;
use crate::slots::{self, Slot};
use crate::{filter, filter::MARK, guard, library, seat};
use std::arch::{asm, naked_asm};
use terapage_sys::hosting::{GUARD_MARK, at_gate};

/// An action in the kernel's form (`struct kernel_sigaction`).
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Action {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub blocked: u64,
}

impl Action {
    /// Whether a handler is called for one signal only.
    pub fn is_for_once(&self) -> bool {
        !matches!(self.handler, libc::SIG_DFL | libc::SIG_IGN) && self.flags & libc::SA_RESETHAND as u64 != 0
    }
}

const RESTORER: u64 = 0x0400_0000;

/// Sets the handler, and notes the action that there was. Returns whether it was set.
pub fn open() -> bool {
    let mut before = Action::default();
    let action = Action {
        handler: on_trap as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | RESTORER,
        restorer: restore as *const () as usize,
        blocked: u64::MAX,
    };
    // SAFETY: the handler may run at any time from here on.
    let set = unsafe { raw!(libc::SYS_rt_sigaction, libc::SIGSYS, &raw const action, &raw mut before, 8) };
    signals::owns_memory();
    signals::note(&before);
    set == 0
}

/// Puts back the program's action.
#[cfg(target_env = "musl")]
pub fn close() {
    let before = signals::noted();
    // SAFETY: the action is the program's.
    unsafe { raw!(libc::SYS_rt_sigaction, libc::SIGSYS, &raw const before, 0, 8) };
}

/// Returns from a handler.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    naked_asm!("mov eax, {number}", "syscall", number = const libc::SYS_rt_sigreturn)
}

unsafe extern "C" fn on_trap(signal: i32, what: *const Trapped, context: *const Context) {
    // SAFETY: the kernel passes a description that it has made.
    let is_ours = unsafe {
        (*what).code == FROM_FILTER && [MARK, GUARD_MARK].iter().any(|&mark| (*what).errno == i32::from(mark))
    };
    if !is_ours && guard::is_active() && seat::is_taken() {
        // It waits until the program continues. SAFETY: the kernel passes the thread's context.
        unsafe {
            (*context.cast_mut()).blocked |= 1 << (libc::SIGSYS - 1);
            raw!(libc::SYS_tkill, raw::thread_id(), signal);
        }
        return;
    }
    if !is_ours {
        // SAFETY: as above.
        unsafe { signals::pass_on(signal, what.cast(), context) };
        return;
    }
    // SAFETY: the kernel passes the thread's context, and takes it back.
    unsafe {
        let context = &mut *context.cast_mut();
        if guard::is_trial() {
            context.rax = raw::error(libc::EBADF) as usize;
            return;
        }
        if filter::is_own(context.rip) && !guard::has_made(context) {
            // A call of the host's, or of the library's threads: it meets no absent page.
            context.rax = at_gate(i64::from((*what).number), context.arguments()) as usize;
            return;
        }
        let number = i64::from((*what).number);
        if filter::is_vdso(context.rip) && matches!(number, libc::SYS_clock_gettime | libc::SYS_clock_getres)
        {
            // It may be one of the host's threads, which have no slot: so the answer, which need
            // not be there, is written by this thread.
            let ([clock, to, ..], mut time) = (context.arguments(), [0_i64; 2]);
            let answer = at_gate(number, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]);
            if answer == 0 && to != 0 {
                (to as *mut [i64; 2]).write_unaligned(time);
            }
            context.rax = answer as usize;
            return;
        }
    }
    let Some(slot) = slots::take(raw::thread_id()) else {
        stop(
            "the program has more than 16,384 threads that map memory: a paged static or Go program \
              cannot have more (try: --static off)",
        )
    };
    // SAFETY: the slot is this thread's from here on; its stack is free.
    unsafe {
        frame::copy(context, Slot::context(slot));
        (*slot).number = i64::from((*what).number);
        (*slot).arguments = (*context).arguments();
        asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {serve}",
            stack = in(reg) Slot::stack(slot),
            serve = sym serve,
            in("rdi") slot,
            options(noreturn),
        );
    }
}

/// Serves the call of the slot, and restores the thread.
unsafe extern "C" fn serve(slot: *mut Slot) -> ! {
    // SAFETY: the slot is this thread's, and the thread runs on its stack.
    unsafe {
        let outcome = match guard::is_active() {
            true => guarded(slot),
            false => calls::serve(slot),
        };
        let context = &mut *Slot::context(slot);
        match outcome {
            Outcome::Answer(answer) => context.rax = answer as usize,
            Outcome::OnOwnStack(call) => own_stack::continue_with(context, &call),
            Outcome::Continues => {}
        }
        resume(slot)
    }
}

/// Serves the call of the slot in guarded mode: what the kernel does is pinned.
unsafe fn guarded(slot: *mut Slot) -> Outcome {
    // SAFETY: the slot is this thread's, and the thread runs on its stack.
    unsafe {
        if guard::has_made(&*Slot::context(slot)) {
            return guard::end(slot);
        }
        guard::forget_left(slot);
        match calls::serve(slot) {
            // Whether it names words of the slot is seen by its arguments.
            Outcome::OnOwnStack(call)
                if call.arguments == (*slot).arguments
                    && own_stack::has_room(&*Slot::context(slot))
                    && guard::needs_no_pins(call.number, call.arguments) =>
            {
                Outcome::OnOwnStack(call)
            }
            Outcome::OnOwnStack(call) => guard::make(slot, &call),
            outcome => outcome,
        }
    }
}

/// Restores the thread of the slot.
///
/// # Safety
/// The slot is this thread's, and all signals are blocked.
unsafe fn resume(slot: *mut Slot) -> ! {
    // SAFETY: the kernel has made the context, and takes it back.
    unsafe {
        asm!(
            "mov rsp, {context}",
            "mov eax, {number}",
            "syscall",
            "ud2",
            context = in(reg) Slot::context(slot),
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

/// Serves a `clone` with CLONE_VM and CLONE_VFORK. The child, which has this memory and the
/// thread's stack until it executes a program or ends, continues from the slot's context; later
/// this thread does, too. Between the two, this thread does not use the slot's context.
///
/// # Safety
/// The slot is this thread's, and the thread runs on its stack, with all signals blocked.
pub unsafe fn vfork(slot: *mut Slot, [flags, stack, parent, child, pointer, _]: [usize; 6]) -> isize {
    let context = Slot::context(slot);
    // SAFETY: the child uses only the context, which belongs to it until this thread continues.
    unsafe {
        let before = (*context).rsp;
        (*context).rax = 0;
        if stack != 0 {
            (*context).rsp = stack;
        }
        if guard::is_active() {
            guard::keep_lent(flags, stack, parent, child);
        } else {
            bring((*context).rsp);
        }
        library::lend();
        let answer = clone(flags, parent, child, pointer, context);
        (*context).rsp = before;
        if answer > 0 {
            let child = answer as u32;
            seat::leave_for(child);
            slots::of_ended(child, |slot| {
                crate::exec::forget(slot);
                signals::forget(slot);
            });
        }
        seat::with(is_back, 0);
        answer
    }
}

unsafe extern "C" fn is_back(_: usize) {
    library::is_back();
}

/// Brings in the stack of a child that begins there. gdb stops all other threads of the process,
/// and so the pager, until such a child has executed a program.
fn bring(stack: usize) {
    const PAGE: usize = 4096;
    const PAGES: usize = 8;
    let top = stack.wrapping_sub(1) & !(PAGE - 1);
    for page in 0..PAGES {
        let at = top.wrapping_sub(page * PAGE);
        // SAFETY: the bytes stay as they are, and the kernel checks the address.
        let answer = unsafe { raw!(libc::SYS_madvise, at, PAGE, libc::MADV_POPULATE_WRITE) };
        if is_error(answer) {
            break;
        }
    }
}

/// Writes to standard error.
pub fn say(parts: &[&str]) {
    for part in parts {
        // SAFETY: the text has this length.
        unsafe { raw!(libc::SYS_write, 2, part.as_ptr(), part.len()) };
    }
}

/// Ends the process: it cannot go on.
pub fn stop(why: &str) -> ! {
    say(&["terapage: ", why, "\n"]);
    loop {
        // SAFETY: ends the process.
        unsafe { raw!(libc::SYS_exit_group, 125) };
    }
}
