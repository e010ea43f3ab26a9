//! Signals: the program may handle and block all signals except the one by which trapped calls
//! arrive. That signal is removed from every set of blocked signals, and the program's action for
//! it is only noted. What the return from a handler restores, a call changes in the handler's
//! context: blocked signals, and the stack for handlers.

use super::trap::{Action, SET};
use super::{cancel, copy, gate, is_on};
use crate::exit;
use libc::c_long;
use std::cell::Cell;
use terapage_sys::action::Noted;

const OURS: u64 = 1 << (libc::SIGSYS - 1);
const BLOCKED: usize = 3;

/// The program's action for the signal.
static NOTED: Noted = Noted::new();

thread_local! {
    /// The action of a child that borrows the memory, and the thread pointer of the thread that has
    /// begun it (`posix_spawn`), and which child that is: it has actions of its own.
    static LENT: Cell<(u32, Action)> = const { Cell::new((0, [0; 4])) };
}

/// The number of the calling process, if it borrows the memory.
fn borrower() -> Option<u32> {
    (is_on() && !exit::is_owner()).then(std::process::id)
}

/// The action of a process that borrows the memory. At first it has its parent's.
fn lent(process: u32) -> Action {
    if LENT.get().0 == process { LENT.get().1 } else { NOTED.get().0 }
}

/// Sets the action, if one is given. Returns the one before.
fn exchange(given: Option<Action>) -> Action {
    match (borrower(), given) {
        (Some(process), given) => {
            let before = lent(process);
            given.into_iter().for_each(|given| LENT.set((process, given)));
            before
        }
        (None, Some(given)) => NOTED.swap(given),
        (None, None) => NOTED.get().0,
    }
}

/// The action for a signal that has come. If it is for one signal only, the default one follows.
fn taken() -> Action {
    let once = |action: &Action| {
        let handles = !matches!(action[0] as usize, libc::SIG_DFL | libc::SIG_IGN);
        handles && action[1] & libc::SA_RESETHAND as u64 != 0
    };
    let reset = |action: Action| [libc::SIG_DFL as u64, action[1], action[2], action[3]];
    if let Some(process) = borrower() {
        let action = lent(process);
        if once(&action) {
            LENT.set((process, reset(action)));
        }
        return action;
    }
    loop {
        let (action, seen) = NOTED.get();
        if !once(&action) || NOTED.change(seen, reset(action)).is_some() {
            return action;
        }
    }
}

/// In the child of a fork.
pub fn in_child() {
    NOTED.in_child();
}

const fn error(errno: i32) -> isize {
    -(errno as isize)
}

fn read<const WORDS: usize>(at: usize) -> Option<[u64; WORDS]> {
    let mut words = [0_u64; WORDS];
    // SAFETY: words are plain data.
    let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), WORDS * 8) };
    copy::read(at, bytes).then_some(words)
}

fn write<const WORDS: usize>(at: usize, words: [u64; WORDS]) -> bool {
    // SAFETY: words are plain data.
    copy::write(at, unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), WORDS * 8) })
}

/// Serves `rt_sigaction`.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn action([signal, new, old, len, ..]: [usize; 6]) -> isize {
    if len != SET {
        return error(libc::EINVAL);
    }
    let given = if new == 0 { None } else { read::<4>(new) };
    if new != 0 && given.is_none() {
        return error(libc::EFAULT);
    }
    let mut before: Action = [0; 4];
    if signal as i32 == libc::SIGSYS {
        before = exchange(given);
    } else {
        let is_cancel = signal as i32 == cancel::SIGNAL;
        let given = given.map(|mut given| {
            given[BLOCKED] &= !OURS;
            if is_cancel { cancel::wrapped(given) } else { given }
        });
        let new = given.as_ref().map_or(0, |given| given.as_ptr() as usize);
        let arguments = [signal, new, before.as_mut_ptr() as usize, SET, 0, 0];
        // SAFETY: the caller answers for the call; both actions are copies.
        let answer = unsafe { gate::call(libc::SYS_rt_sigaction, arguments) };
        if answer != 0 {
            return answer;
        }
        if is_cancel {
            before = cancel::unwrapped(before);
        }
    }
    if old != 0 && !write(old, before) { error(libc::EFAULT) } else { 0 }
}

/// Serves `rt_sigprocmask`: the signals that are blocked after the handler stand in the context.
pub fn mask(blocked: &mut u64, [how, new, old, len, ..]: [usize; 6]) -> isize {
    if len != SET {
        return error(libc::EINVAL);
    }
    let before = *blocked;
    let mut after = before;
    if new != 0 {
        let Some([given]) = read::<1>(new) else { return error(libc::EFAULT) };
        // Those two signals cannot be blocked.
        let given = given & !OURS & !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
        after = match how as i32 {
            libc::SIG_BLOCK => before | given,
            libc::SIG_UNBLOCK => before & !given,
            libc::SIG_SETMASK => given,
            _ => return error(libc::EINVAL),
        };
    }
    if old != 0 && !write(old, [before]) {
        return error(libc::EFAULT);
    }
    *blocked = after;
    0
}

/// Ends `sigaltstack`, which the kernel has done: the stack after the handler stands in the
/// context. The old one does, too, since the kernel disarms some stacks before it calls a handler.
pub fn stack(aside: &mut libc::stack_t, [new, old, ..]: [usize; 6], depth: usize) -> isize {
    /// The kernel does not use the stack while a handler runs on it.
    const DISARMED: i32 = i32::MIN;
    let (from, size, flags) = (aside.ss_sp as usize, aside.ss_size, aside.ss_flags & DISARMED);
    // Like the kernel: the first byte of the stack is not in use, the one behind it may be.
    let is_used = flags == 0 && depth > from && depth - from <= size;
    let state = match () {
        () if size == 0 => libc::SS_DISABLE,
        () if is_used => libc::SS_ONSTACK,
        () => 0,
    };
    if new != 0 {
        let now = [0, aside as *mut libc::stack_t as usize, 0, 0, 0, 0];
        // SAFETY: there is room for the answer.
        unsafe { gate::call(libc::SYS_sigaltstack, now) };
        aside.ss_flags &= !libc::SS_ONSTACK;
    }
    let before = [from as u64, u64::from((state | flags) as u32), size as u64];
    if old != 0 && !write(old, before) { error(libc::EFAULT) } else { 0 }
}

/// The copies with which a call waits instead of the program's set of blocked signals.
#[derive(Default)]
pub struct Waiting {
    set: u64,
    pair: [u64; 2],
}

impl Waiting {
    /// Puts a copy without the signal in place of the set with which a call waits. What is not
    /// readable is left to the kernel.
    pub fn edit(&mut self, number: c_long, arguments: &mut [usize; 6]) {
        let place = match number {
            libc::SYS_ppoll => 3,
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
            libc::SYS_rt_sigsuspend => 0,
            libc::SYS_pselect6 if arguments[5] != 0 => {
                let Some(pair) = read::<2>(arguments[5]) else { return };
                self.pair = pair;
                if pair[0] != 0 {
                    let Some([set]) = read::<1>(pair[0] as usize) else { return };
                    self.set = set & !OURS;
                    self.pair[0] = &raw const self.set as u64;
                }
                arguments[5] = self.pair.as_ptr() as usize;
                return;
            }
            _ => return,
        };
        if arguments[place] != 0
            && let Some([set]) = read::<1>(arguments[place])
        {
            self.set = set & !OURS;
            arguments[place] = &raw const self.set as usize;
        }
    }
}

/// Handles a signal that the filter has not sent, as the program has asked.
///
/// # Safety
/// The kernel has passed the arguments to the handler.
pub unsafe fn pass_on(signal: i32, what: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let [handler, _, _, blocked] = taken();
    match handler as usize {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            let action: Action = [0; 4];
            // SAFETY: the kernel's default action: the process ends by the signal.
            unsafe {
                let set = [signal as usize, action.as_ptr() as usize, 0, SET, 0, 0];
                gate::call(libc::SYS_rt_sigaction, set);
                let me = terapage_sys::thread::id() as usize;
                gate::call(libc::SYS_tkill, [me, signal as usize, 0, 0, 0, 0]);
            }
        }
        handler => {
            let set = blocked & !OURS;
            let block = [libc::SIG_BLOCK as usize, &raw const set as usize, 0, SET, 0, 0];
            // SAFETY: the program has set a handler, which takes these arguments; the return from
            // this handler restores the blocked signals.
            unsafe {
                gate::call(libc::SYS_rt_sigprocmask, block);
                let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, what, context);
            }
        }
    }
}
