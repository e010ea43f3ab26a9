//! Signals: the program may handle and block all signals except the one by which trapped calls
//! arrive.
//!
//! A trapped call in a thread that blocks this signal would end the process. So the signal is
//! removed from every set of blocked signals, and the program's action for it is only noted. The
//! noted action applies if the signal comes from elsewhere: from one of the program's filters, or
//! from `kill`. A child of `vfork` or `posix_spawn` borrows the memory, but has actions of its own:
//! it notes its action in its slot.

use crate::calls::Outcome;
use crate::cancel;
use crate::guard;
use crate::machine::Context;
use crate::own_stack::{self, Call, DATA};
use crate::raw::{self, error, raw};
use crate::robust;
use crate::slots::{self, Slot};
use crate::trap::Action;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use terapage_sys::action::{Noted, Words};

const OURS: u64 = 1 << (libc::SIGSYS - 1);
/// Bytes of a set of signals.
const SET: usize = size_of::<u64>();

/// The program's action for the signal.
static NOTED: Noted = Noted::new();

/// The process that owns the memory.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// At the start of a program, which has no handlers yet: in guarded mode the library had set one.
pub fn begin() {
    if !matches!(noted().handler, libc::SIG_DFL | libc::SIG_IGN) {
        note(&Action::default());
    }
}

/// Notes that this process owns the memory: at the start, and in the child of a fork.
pub fn owns_memory() {
    OWNER.store(process(), Relaxed);
    NOTED.in_child();
}

/// Whether the calling process borrows the memory.
pub fn borrows_memory() -> bool {
    process() != OWNER.load(Relaxed)
}

fn process() -> u32 {
    // SAFETY: no memory is touched.
    unsafe { raw!(libc::SYS_getpid) as u32 }
}

/// Where the calling process, if it borrows the memory, has noted its action: in the slot of its
/// thread. At first it has its parent's.
fn lent<'a>(slot: *mut Slot) -> Option<&'a mut Action> {
    let process = process();
    if process == OWNER.load(Relaxed) {
        return None;
    }
    // SAFETY: the slot is the calling thread's.
    let lent = unsafe { &mut (*slot).lent };
    if lent.1 != process {
        *lent = (noted(), process);
    }
    Some(&mut lent.0)
}

/// A child of `vfork` has gone, and leaves its slot.
pub fn forget(slot: *mut Slot) {
    // SAFETY: nobody uses the slot.
    unsafe { (*slot).lent.1 = 0 };
}

/// The action for the signal of the process that owns the memory.
pub fn noted() -> Action {
    of_words(NOTED.get().0)
}

/// Notes that action.
pub fn note(action: &Action) {
    NOTED.swap(words(action));
}

fn words(action: &Action) -> Words {
    // SAFETY: an action is four words.
    unsafe { std::mem::transmute_copy(action) }
}

fn of_words(words: Words) -> Action {
    // SAFETY: any words are an action.
    unsafe { std::mem::transmute_copy(&words) }
}

/// The action for a signal that has come to the process that owns the memory. If it is for one
/// signal only, the default one follows.
fn taken() -> Action {
    loop {
        let (action, seen) = NOTED.get();
        let action = of_words(action);
        let reset = words(&Action { handler: libc::SIG_DFL, ..action });
        if !action.is_for_once() || NOTED.change(seen, reset).is_some() {
            return action;
        }
    }
}

/// Removes the signal from the sets that the program's handlers block while they run.
#[cfg(target_env = "musl")]
pub fn clear_actions() {
    for signal in 1..=64 {
        let mut action = Action::default();
        // SAFETY: the actions have this form; only the set changes.
        unsafe {
            let asked = raw!(libc::SYS_rt_sigaction, signal, 0, &raw mut action, SET);
            let handles = !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN);
            if asked == 0 && signal != libc::SIGSYS && handles && action.blocked & OURS != 0 {
                action.blocked &= !OURS;
                raw!(libc::SYS_rt_sigaction, signal, &raw const action, 0, SET);
            }
        }
    }
}

/// The bytes of an action.
fn bytes(action: &Action) -> [u8; 32] {
    // SAFETY: an action is four words, and any bytes are words.
    unsafe { std::mem::transmute_copy(action) }
}

/// Reads an action of the program.
fn read(at: usize) -> Option<Action> {
    let mut bytes = [0_u8; size_of::<Action>()];
    // SAFETY: an action is four words, and any bytes are words.
    raw::read(at, &mut bytes).then(|| unsafe { std::mem::transmute_copy(&bytes) })
}

/// Serves `rt_sigaction`.
///
/// # Safety
/// The same as for the system call. The slot is the calling thread's.
pub unsafe fn action(slot: *mut Slot, [signal, new, old, len, ..]: [usize; 6]) -> isize {
    if len != SET {
        return error(libc::EINVAL);
    }
    let given = if new == 0 { None } else { read(new) };
    if new != 0 && given.is_none() {
        return error(libc::EFAULT);
    }
    if signal as i32 == libc::SIGSYS {
        let before = match (lent(slot), given) {
            (Some(action), given) => std::mem::replace(action, given.unwrap_or(*action)),
            (None, Some(given)) => of_words(NOTED.swap(words(&given))),
            (None, None) => noted(),
        };
        return if old != 0 && !raw::write(old, &bytes(&before)) { error(libc::EFAULT) } else { 0 };
    }
    let given = given.map(|given| Action { blocked: given.blocked & !OURS, ..given });
    let number = signal as i32;
    let given =
        given.map(|given| if cancel::is_meant(number) { cancel::wrapped(number, given) } else { given });
    let place = given.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    if !cancel::is_meant(number) && !guard::may_be_absent(old, size_of::<Action>()) {
        // SAFETY: the caller is responsible for the call; the action is a copy.
        return unsafe { raw!(libc::SYS_rt_sigaction, signal, place, old, len) };
    }
    let mut before = Action::default();
    // SAFETY: as above; there is room for the old action.
    let answer = unsafe { raw!(libc::SYS_rt_sigaction, signal, place, &raw mut before, len) };
    let before = cancel::unwrapped(number, before);
    if answer == 0 && old != 0 && !raw::write(old, &bytes(&before)) { error(libc::EFAULT) } else { answer }
}

/// Serves `rt_sigprocmask`: the signals that are blocked after the handler stand in the context.
///
/// # Safety
/// The context is that of the calling thread, all of whose signals are blocked now, and which runs
/// on the stack of its slot.
pub unsafe fn mask(context: *mut Context, [how, new, old, len, ..]: [usize; 6]) -> isize {
    if len != SET {
        return error(libc::EINVAL);
    }
    // As all signals are blocked, these calls change nothing, and the kernel checks the addresses.
    let set = |new: usize, old: usize| match (new, old) {
        // SAFETY: the kernel checks the addresses.
        _ if !guard::may_be_absent(new | old, SET) => unsafe {
            raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, new, old, len)
        },
        (0, old) if raw::write(old, &0_u64.to_ne_bytes()) => 0,
        (new, 0) if raw::read(new, &mut [0; SET]) => 0,
        _ => error(libc::EFAULT),
    };
    // SAFETY: the addresses were checked; the context is the calling thread's.
    unsafe {
        let answer = set(new, 0);
        if answer != 0 {
            return answer;
        }
        let given = if new == 0 { 0 } else { (new as *const u64).read_unaligned() & !OURS };
        if how as i32 != libc::SIG_UNBLOCK && robust::may_end(given) {
            robust::keep();
        }
        let before = (*context).blocked;
        let after = match how as i32 {
            _ if new == 0 => before,
            libc::SIG_BLOCK => before | given,
            libc::SIG_UNBLOCK => before & !given,
            libc::SIG_SETMASK => given,
            _ => return error(libc::EINVAL),
        };
        if old != 0 {
            let answer = set(0, old);
            if answer != 0 {
                return answer;
            }
            (old as *mut u64).write_unaligned(before);
        }
        (*context).blocked = after;
    }
    0
}

/// Serves calls that wait with a different set of blocked signals: `place` is the argument that
/// names the set.
///
/// # Safety
/// The same as for the system call. The context is the calling thread's.
pub unsafe fn waiting(context: &Context, number: i64, arguments: [usize; 6], place: usize) -> Outcome {
    let mut call = Call { number, arguments, data: [0; DATA] };
    let mut set = [0_u8; SET];
    if !raw::read(arguments[place], &mut set) {
        // The call fails, without a wait. The kernel knows which of its arguments is wrong first.
        call.arguments[place] = raw::NOWHERE;
        // SAFETY: the caller is responsible for the call.
        return unsafe { guard::plain(number, call.arguments) };
    }
    call.data[0] = u64::from_ne_bytes(set) & !OURS;
    call.arguments[place] = own_stack::data_at(context);
    Outcome::OnOwnStack(call)
}

/// Serves `pselect6`, whose last argument names a pair: the set's address, and its length.
///
/// # Safety
/// As for [`waiting`].
pub unsafe fn selecting(context: &Context, arguments: [usize; 6]) -> Outcome {
    let mut bytes = [0_u8; 16];
    if !raw::read(arguments[5], &mut bytes) {
        return Outcome::Answer(error(libc::EFAULT));
    }
    // SAFETY: a pair is two words, and any bytes are words.
    let [place, len]: [usize; 2] = unsafe { std::mem::transmute(bytes) };
    let mut set = [0_u8; SET];
    let place = match place {
        0 => 0,
        _ if raw::read(place, &mut set) => own_stack::data_at(context),
        _ => raw::NOWHERE,
    };
    let mut call = Call { number: libc::SYS_pselect6, arguments, data: [0, place as u64, len as u64] };
    call.data[0] = u64::from_ne_bytes(set) & !OURS;
    call.arguments[5] = own_stack::data_at(context) + size_of::<u64>();
    Outcome::OnOwnStack(call)
}

/// Handles a signal that no call of ours has sent, as the program has asked.
///
/// # Safety
/// The kernel has passed the arguments to the handler.
pub unsafe fn pass_on(signal: i32, what: *const u8, context: *const Context) {
    let slot = if borrows_memory() { slots::take(raw::thread_id()) } else { None };
    let Action { handler, blocked, .. } = match slot.and_then(lent) {
        Some(action) if action.is_for_once() => {
            std::mem::replace(action, Action { handler: libc::SIG_DFL, ..*action })
        }
        Some(action) => *action,
        None => taken(),
    };
    match handler {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            let (action, own) = (Action::default(), OURS);
            // SAFETY: the kernel's default action: the process ends by the signal.
            unsafe {
                raw!(libc::SYS_rt_sigaction, signal, &raw const action, 0, SET);
                raw!(libc::SYS_tkill, raw::thread_id(), signal);
                raw!(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const own, 0, SET);
            }
        }
        handler => {
            // SAFETY: the program has set a handler, which takes these arguments.
            unsafe {
                raw::block(((*context).blocked | blocked) & !OURS);
                let handler: unsafe extern "C" fn(i32, *const u8, *const Context) =
                    std::mem::transmute(handler);
                handler(signal, what, context);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(blocked: u64) -> Context {
        // SAFETY: a context is plain data, for which zeros are a value.
        let mut context: Context = unsafe { std::mem::zeroed() };
        context.blocked = blocked;
        context
    }

    fn changed(before: u64, how: i32, set: u64) -> (isize, u64, u64) {
        let (mut context, mut old) = (context(before), 0_u64);
        let arguments = [how as usize, &raw const set as usize, &raw mut old as usize, SET, 0, 0];
        let mut now = 0_u64;
        let all = ALL;
        // SAFETY: all sets have the given length, and the blocked signals are restored below.
        let answer = unsafe {
            raw!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const all, &raw mut now, SET);
            mask(&raw mut context, arguments)
        };
        raw::block(now);
        (answer, old, context.blocked)
    }
    const ALL: u64 = u64::MAX;

    #[test]
    fn masks_change_as_the_kernel_changes_them_but_for_one_signal() {
        assert_eq!(changed(6, libc::SIG_BLOCK, 8), (0, 6, 14));
        assert_eq!(changed(6, libc::SIG_UNBLOCK, 2), (0, 6, 4));
        assert_eq!(changed(6, libc::SIG_SETMASK, ALL), (0, 6, !OURS));
        assert_eq!(changed(6, 7, 8).0, error(libc::EINVAL));
        let mut context = context(0);
        // SAFETY: nothing is written.
        let lost = unsafe { mask(&raw mut context, [0, 1, 0, SET, 0, 0]) };
        assert_eq!(lost, error(libc::EFAULT));
    }

    #[test]
    fn the_program_sees_the_action_that_it_has_set() {
        let mine = Action { handler: 5, flags: 7, restorer: 9, blocked: ALL };
        let mut seen = Action::default();
        let arguments = [libc::SIGSYS as usize, &raw const mine as usize, 0, SET, 0, 0];
        let question = [libc::SIGSYS as usize, 0, &raw mut seen as usize, SET, 0, 0];
        owns_memory();
        let no_slot = std::ptr::null_mut();
        // SAFETY: the action is only noted; `seen` has room for an action.
        unsafe {
            assert_eq!(action(no_slot, arguments), 0);
            assert_eq!(action(no_slot, question), 0);
            assert_eq!(seen, mine);
            assert_eq!(action(no_slot, [libc::SIGSYS as usize, 1, 0, SET, 0, 0]), error(libc::EFAULT));
            let default = Action::default();
            action(no_slot, [libc::SIGSYS as usize, &raw const default as usize, 0, SET, 0, 0]);
        }
    }
}
