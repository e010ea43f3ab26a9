//! The handler: a trapped call arrives here, in the thread that made it.
//!
//! The handler takes a slot, copies the thread's context there, and continues on the slot's stack.
//! The call is served, its result is put into the copy, and the thread is restored from the copy:
//! behind the call, or in front of a call that it makes [itself](crate::own_stack). All signals are
//! blocked from the trap to the end.

use crate::calls::{self, Outcome};
use crate::exec::tracing;
use crate::frame::{FROM_FILTER, Trapped};
use crate::machine::{self, Context};
use crate::own_stack;
use crate::raw::{self, is_error, raw};
use crate::signals;
use crate::slots::{self, Slot};
use crate::{filter, filter::MARK, guard, library, seat};
use terapage_sys::hosting::{GUARD_MARK, at_gate};
use terapage_sys::page_bytes;

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

/// Sets the handler, and notes the action that there was. Returns whether it was set.
pub fn open() -> bool {
    let mut before = Action::default();
    let (flag, restorer) = machine::restorer();
    let action = Action {
        handler: on_trap as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | flag,
        restorer,
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
        context.settle((*what).place);
        if guard::is_trial() {
            context.answer(raw::error(libc::EBADF));
            return;
        }
        if context.leave_frame() {
            return;
        }
        if filter::is_own(context.place()) && !context.has_made() && !context.has_failed() {
            // A call of the host's, or of the library's threads: it meets no absent page.
            context.answer(at_gate(i64::from((*what).number), context.arguments()));
            return;
        }
        let number = i64::from((*what).number);
        if filter::is_vdso(context.place())
            && matches!(number, libc::SYS_clock_gettime | libc::SYS_clock_getres)
        {
            // It may be one of the host's threads, which have no slot: so the answer, which need
            // not be there, is written by this thread.
            let ([clock, to, ..], mut time) = (context.arguments(), [0_i64; 2]);
            let answer = at_gate(number, [clock, time.as_mut_ptr() as usize, 0, 0, 0, 0]);
            if answer == 0 && to != 0 {
                (to as *mut [i64; 2]).write_unaligned(time);
            }
            context.answer(answer);
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
        machine::copy(context, Slot::context(slot));
        (*slot).number = i64::from((*what).number);
        (*slot).arguments = (*context).arguments();
        machine::switch(Slot::stack(slot), serve, slot)
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
            Outcome::Answer(answer) => context.answer(answer),
            Outcome::OnOwnStack(call) => own_stack::continue_with(context, &call),
            Outcome::Continues => {}
        }
        machine::resume(context)
    }
}

/// Serves the call of the slot in guarded mode: what the kernel does is pinned.
unsafe fn guarded(slot: *mut Slot) -> Outcome {
    // SAFETY: the slot is this thread's, and the thread runs on its stack.
    unsafe {
        if (*Slot::context(slot)).has_made() {
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

/// Serves a `clone` with CLONE_VM and CLONE_VFORK. The child, which has this memory and the
/// thread's stack until it executes a program or ends, continues from the slot's context; later
/// this thread does, too. Between the two, this thread does not use the slot's context.
///
/// # Safety
/// The slot is this thread's, and the thread runs on its stack, with all signals blocked.
pub unsafe fn vfork(slot: *mut Slot, [flags, stack, parent, child, pointer]: [usize; 5]) -> isize {
    let context = Slot::context(slot);
    // SAFETY: the child uses only the context, which belongs to it until this thread continues.
    unsafe {
        let (before, handlers) = ((*context).depth(), (*context).stack);
        (*context).answer(0);
        let lent = if stack != 0 { lend_stack(&mut *context) } else { None };
        if stack != 0 {
            (*context).set_depth(stack);
        }
        if guard::is_active() {
            guard::keep_lent(flags, stack, parent, child);
        } else {
            bring((*context).depth());
        }
        library::lend();
        let answer = machine::clone(flags, parent, child, pointer, context);
        (*context).set_depth(before);
        (*context).stack = handlers;
        if let Some(at) = lent {
            raw!(libc::SYS_munmap, at, LENT);
        }
        if answer > 0 {
            let child = answer as u32;
            seat::leave_for(child);
            slots::of_ended(child, |slot| {
                crate::exec::forget(slot);
                signals::forget(slot);
                tracing::forget(slot);
            });
        }
        seat::with(is_back, 0);
        answer
    }
}

/// Bytes of a stack for the handler in a child with a stack of its own.
const LENT: usize = machine::FRAME + (32 << 10);

/// Gives a child with a stack of its own another for the handler, unless it has one: its own may be
/// too small for what the kernel saves there. (In musl's `posix_spawn` it has 5 KiB.)
fn lend_stack(context: &mut Context) -> Option<usize> {
    let [_, flags, bytes] = context.stack;
    if bytes > 0 && flags as i32 & libc::SS_DISABLE == 0 {
        return None;
    }
    let at = raw::map(LENT)?;
    context.stack = [at, 0, LENT];
    Some(at)
}

unsafe extern "C" fn is_back(_: usize) {
    library::is_back();
}

/// Brings in the stack of a child that begins there. gdb stops all other threads of the process,
/// and so the pager, until such a child has executed a program.
fn bring(stack: usize) {
    const PAGES: usize = 8;
    let top = stack.wrapping_sub(1) / page_bytes() * page_bytes();
    for page in 0..PAGES {
        let at = top.wrapping_sub(page * page_bytes());
        // SAFETY: the bytes stay as they are, and the kernel checks the address.
        let answer = unsafe { raw!(libc::SYS_madvise, at, page_bytes(), libc::MADV_POPULATE_WRITE) };
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
