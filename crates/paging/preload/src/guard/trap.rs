//! The handler: a trapped call arrives here, in the thread that made it, with the thread's signals
//! as they were. It pins what the call touches, makes the call at the gate, and unpins.
//!
//! A handler of the program may run during the call, and may leave it by `longjmp`. So nothing here
//! must be dropped at the end: what such a call has pinned is unpinned at the thread's next call.

use super::filter::MARK;
use super::{cancel, copy, gate, is_on, layout, machine, masks, pieces, pins};
use crate::arena::ARENA;
use crate::{adopted, exit, locked, paged, private, setup, statics};
use libc::{c_int, c_long, c_void, siginfo_t, ucontext_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_calls::{Direction, Memory, Outcome, Range};
use terapage_pager::pins::{Call, Caller, Pins};
use terapage_sys::hosting::LOOKS;
use terapage_sys::{page_bytes, thread};

/// The kernel's description of a trapped call (`siginfo_t`).
#[repr(C)]
struct Trapped {
    signal: i32,
    mark: i32,
    code: i32,
    unused: i32,
    place: usize,
    number: i32,
}

/// The code of a signal from a filter.
const FROM_FILTER: i32 = 1;

/// A process tries whether its calls are trapped, and they are.
static TRIES: AtomicBool = AtomicBool::new(false);
static TRAPPED: AtomicBool = AtomicBool::new(false);

/// An action in the kernel's form (`struct kernel_sigaction`): handler, flags, restorer, blocked
/// signals.
pub type Action = [u64; 4];

/// Bytes of a set of signals.
pub const SET: usize = size_of::<u64>();

/// Sets the handler. Returns the action before.
pub fn open() -> Action {
    let (flag, restorer) = machine::restorer();
    let flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART | flag;
    let action: Action = [on_trap as *const () as u64, flags as u64, restorer as u64, 0];
    let mut before: Action = [0; 4];
    let set = 1_u64 << (libc::SIGSYS - 1);
    let arguments =
        [libc::SIGSYS as usize, action.as_ptr() as usize, before.as_mut_ptr() as usize, SET, 0, 0];
    let unblock = [libc::SIG_UNBLOCK as usize, &raw const set as usize, 0, SET, 0, 0];
    // SAFETY: the handler may run from here on.
    unsafe {
        gate::call(libc::SYS_rt_sigaction, arguments);
        gate::call(libc::SYS_rt_sigprocmask, unblock);
    }
    before
}

/// Sets the action that was there before.
pub fn close(before: &Action) {
    let arguments = [libc::SIGSYS as usize, before.as_ptr() as usize, 0, SET, 0, 0];
    // SAFETY: the action was the process's.
    unsafe { gate::call(libc::SYS_rt_sigaction, arguments) };
}

/// Whether calls are already trapped, by the filter of a process that this one descends from.
pub fn is_trapped() -> bool {
    TRIES.store(true, Relaxed);
    // SAFETY: there is no such descriptor, so no memory is touched.
    unsafe { libc::syscall(libc::SYS_read, -1_i64, super::ARENA.start, 0_usize) };
    TRIES.store(false, Relaxed);
    TRAPPED.load(Relaxed)
}

unsafe extern "C" fn on_trap(signal: c_int, what: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a description and a context; `errno` is the thread's.
    unsafe {
        let trapped = what.cast::<Trapped>();
        if (*trapped).code != FROM_FILTER || (*trapped).mark != i32::from(MARK) {
            masks::pass_on(signal, what, context);
            return;
        }
        let context = context.cast::<ucontext_t>();
        let registers = &(*context).uc_mcontext;
        let (arguments, depth) = (machine::arguments(registers), machine::depth(registers));
        let place = (*trapped).place - machine::CALL_BYTES;
        let errno = *libc::__errno_location();
        let number = c_long::from((*trapped).number);
        let blocked = (&raw mut (*context).uc_sigmask).cast::<u64>();
        let answer = match number {
            _ if TRIES.load(Relaxed) => {
                TRAPPED.store(true, Relaxed);
                -(libc::EBADF as isize)
            }
            libc::SYS_rt_sigaction => masks::action(arguments),
            libc::SYS_rt_sigprocmask => masks::mask(&mut *blocked, arguments),
            libc::SYS_sigaltstack => match call(number, arguments, depth, place) {
                0 => masks::stack(&mut (*context).uc_stack, arguments, depth),
                error => error,
            },
            libc::SYS_execve | libc::SYS_execveat => execute(number, arguments, depth, place),
            _ => call(number, arguments, depth, place),
        };
        *libc::__errno_location() = errno;
        machine::answer(&mut (*context).uc_mcontext, answer, (*trapped).place);
    }
}

/// Makes an exec as [`call`] does. It returns if the program goes on.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn execute(number: c_long, arguments: [usize; 6], depth: usize, place: usize) -> isize {
    let higher = layout::limit_stack();
    // SAFETY: the caller answers for the call.
    let answer = unsafe { call(number, arguments, depth, place) };
    if let Some(higher) = &higher {
        layout::set_stack(higher);
    }
    answer
}

thread_local! {
    /// What a thread knows about itself, so that a call asks nobody.
    static OWN: Own = const { Own { thread: Cell::new(0), hint: Cell::new(usize::MAX), calls: Cell::new(0) } };
}

struct Own {
    /// Its id; 0 if it has not asked yet.
    thread: Cell<u32>,
    /// The slot of its last pins.
    hint: Cell<usize>,
    /// Its calls under way, and those that a handler has left by `longjmp`.
    calls: Cell<usize>,
}

impl Own {
    fn thread(&self) -> u32 {
        if self.thread.get() == 0 {
            self.thread.set(thread::id());
        }
        self.thread.get()
    }
}

/// In the child of a fork: its thread has another id.
pub fn in_child() {
    OWN.with(|own| own.thread.set(0));
}

/// Who makes a call, and where.
#[derive(Clone, Copy)]
pub struct Origin {
    pub caller: Caller,
    /// The trapped instruction; 0 if there is none, or if the call has had an effect.
    pub place: usize,
}

/// Makes a call for the program, which meets no absent page. `depth` is the stack pointer of the
/// call, `place` the trapped instruction, or 0. The result has the form of a system call's.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn call(number: c_long, arguments: [usize; 6], depth: usize, place: usize) -> isize {
    let me = thread::own_name();
    let is_own = thread::is_internal(me) || thread::is_quiet(me);
    // SAFETY: the caller answers for the call.
    unsafe {
        if is_own {
            // Nobody cancels it. The table of its variables may be paged, and it may be the pager.
            return make(number, arguments, 0);
        }
        let Some(pins) = pins().filter(|_| is_on()) else {
            return make(number, arguments, place);
        };
        if matches!(number, libc::SYS_io_uring_setup | libc::SYS_io_setup) {
            // The kernel would use the program's memory at times that nobody knows. Programs then
            // use other calls.
            return -(libc::ENOSYS as isize);
        }
        OWN.with(|own| {
            let thread = own.thread() as usize;
            let caller = Caller { owner: me, thread, depth, hint: own.hint.get() };
            if own.calls.get() > 0 && pins.has_any(me) {
                forget_left(pins, caller);
            }
            if own.calls.get() > 0 && !pins.has_any(me) {
                own.calls.set(0);
            }
            pieces::serve(pins, Origin { caller, place }, number, arguments)
        })
    }
}

/// Makes a call at the gate that touches nothing that could be out.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn pass(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller answers for the call.
    unsafe { make(number, arguments, 0) }
}

/// The same for the call of the instruction at `place`.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn make(number: c_long, mut arguments: [usize; 6], place: usize) -> isize {
    let mut waiting = masks::Waiting::default();
    waiting.edit(number, &mut arguments);
    #[cfg(not(target_env = "musl"))]
    if matches!(number, libc::SYS_execve | libc::SYS_execveat)
        && let Some(refused) = super::tracing::executes(number, arguments)
    {
        return refused;
    }
    // SAFETY: the caller answers for the call.
    unsafe { cancel::call(number, arguments, place) }
}

/// Drops the pins of calls that a handler has left by `longjmp`, and those of a thread that had
/// this descriptor before.
fn forget_left(pins: &Pins, caller: Caller) {
    // SAFETY: zeros are a valid description, which has room for the answer.
    let stack = unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        gate::call(libc::SYS_sigaltstack, [0, &raw mut stack as usize, 0, 0, 0, 0]);
        stack
    };
    let (from, size) = (stack.ss_sp as usize, stack.ss_size);
    let is_other = |at: usize| stack.ss_flags & libc::SS_DISABLE == 0 && at.wrapping_sub(from) < size;
    // A child of vfork borrows its parent's descriptor, and pins in the parent's memory.
    let is_owner = crate::exit::is_owner();
    // One thread at a time.
    let _arena = ARENA.lock();
    pins.forget(caller.owner, |thread, depth| {
        thread != caller.thread && is_owner
            || match (is_other(caller.depth), is_other(depth)) {
                // A call that still waits was made further up the stack than what runs now.
                (true, true) | (false, false) => depth <= caller.depth,
                // A handler on the other stack interrupts a call on the usual one.
                (true, false) => false,
                (false, true) => true,
            }
    });
}

/// What a call touches: pinned and touched as it is named.
struct Touched<'a> {
    pins: &'a Pins,
    call: Call,
    limit: Limit,
    /// Other calls have pinned so much memory that this call must not go on.
    is_crowded: bool,
    /// This call alone names too much.
    is_over: bool,
    /// Bytes that all calls had pinned with this one when it became crowded, and those that it
    /// names besides.
    pinned: usize,
    more: usize,
}

/// How many bytes may be pinned.
#[derive(Clone, Copy)]
pub struct Limit {
    /// By one call.
    own: usize,
    /// By all calls together, if this call has pinned more than [`FEW`]: this part of the budget,
    /// in fourths, and as much of what the pager has [room](Pins::room) for, in thirds.
    fourths: usize,
    budget: usize,
}

/// A call may always pin this many bytes, however much other calls have pinned.
const FEW: usize = 96 << 10;

impl Limit {
    /// All calls together may pin this part of the budget, in fourths; one call may pin half of the
    /// budget.
    pub fn fourths(fourths: usize) -> Limit {
        let budget = setup::budget_now();
        Limit { own: budget / 2, fourths, budget }
    }

    /// Bytes that all calls together may pin, if the pager has this room.
    fn all(&self, room: usize) -> usize {
        (self.budget / 4 * self.fourths).min(room / MOST_FOURTHS * self.fourths)
    }

    /// Whether a call with this limit cannot be made smaller: it waits for room.
    fn is_last(&self) -> bool {
        self.fourths == MOST_FOURTHS
    }
}

/// The largest part of the budget that all calls together may pin, in fourths.
pub(super) const MOST_FOURTHS: usize = 3;

impl Touched<'_> {
    /// Pins a range. Whether that is within the limits. Once the call is crowded, what else it
    /// names is only added up.
    fn pin(&mut self, from: usize, to: usize) -> bool {
        if Pins::bytes(&self.call) + self.more + (to - from) > self.limit.own {
            (self.is_over, self.is_crowded) = (true, false);
        }
        if self.is_over {
            return false;
        }
        if self.is_crowded {
            self.more += to - from;
            return false;
        }
        while !self.pins.add(&mut self.call, from, to) {
            thread::pause().ok();
        }
        if Pins::bytes(&self.call) > FEW {
            self.pinned = self.pins.all_bytes();
            self.is_crowded = self.pinned > self.limit.all(self.pins.room());
        }
        !self.is_crowded
    }

    /// If the call cannot be made smaller: waits for room, or waits no longer.
    fn wish(&self, caller: Caller) {
        let wanted = self.pinned + self.more;
        if self.is_crowded && self.limit.is_last() && wanted <= self.limit.all(usize::MAX) {
            self.pins.wish(caller, wanted);
        } else if !self.is_crowded {
            self.pins.unwish(caller);
        }
    }
}

impl Memory for Touched<'_> {
    fn range(&mut self, range: Range) -> bool {
        if !paged::meets(range.start, range.len) {
            return true;
        }
        if range.kept {
            return locked::keep_in_memory(range.start, range.start.saturating_add(range.len)).is_ok();
        }
        // What an adopted program had is not paged yet, but may be before the call ends: it is
        // touched then (`bring_pinned`).
        let is_early = adopted::is_taking_over();
        if is_early {
            statics::within(range.start, range.len).for_each(|(from, to)| {
                self.pin(from, to);
            });
        }
        copy::paged_parts(range.start, range.len, |from, to| {
            let is_pinned = is_early && statics::meets(from, to - from);
            if !(if is_pinned { !self.is_crowded && !self.is_over } else { self.pin(from, to) }) {
                return;
            }
            self.pins.settle(&self.call, || {
                std::hint::spin_loop();
                thread::pause().ok();
            });
            for page in (from..to).step_by(page_bytes()) {
                // SAFETY: the memory is there, and readable.
                unsafe { (page as *const u8).read_volatile() };
            }
            if range.direction != Direction::In {
                private::make_own(from, to);
            }
        });
        !self.is_over
    }

    fn read(&mut self, at: usize, into: &mut [u8]) -> bool {
        copy::read(at, into)
    }

    /// The number of each thread means the process, and a child of `vfork` means its parent's
    /// memory by both their numbers.
    fn is_self(&mut self, pid: i32) -> bool {
        let owner = exit::owner() as usize;
        // SAFETY: no signal is sent.
        let has_thread = || unsafe { gate::call(libc::SYS_tgkill, [owner, pid as usize, 0, 0, 0, 0]) == 0 };
        [std::process::id(), thread::id()].contains(&(pid as u32)) || pid > 0 && has_thread()
    }
}

/// Makes a call that cannot be divided. If other calls have pinned too much memory, this call
/// waits, without pins of its own. The wait has an end, because the other calls may be waiting for
/// this call.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn whole(pins: &Pins, origin: Origin, number: c_long, arguments: [usize; 6]) -> isize {
    let limit = Limit::fourths(MOST_FOURTHS);
    for _ in 0..LOOKS {
        // SAFETY: the caller answers for the call.
        if let Some(answer) = unsafe { attempt(pins, origin, number, arguments, limit) } {
            return answer;
        }
        thread::sleep_ms(1);
    }
    pins.unwish(origin.caller);
    -(libc::ENOMEM as isize)
}

/// Makes one call, or one piece of it. `None` if other calls have pinned too much.
///
/// # Safety
/// The same as for the system call.
pub unsafe fn attempt(
    pins: &Pins,
    origin: Origin,
    number: c_long,
    arguments: [usize; 6],
    limit: Limit,
) -> Option<isize> {
    OWN.with(|own| own.calls.set(own.calls.get() + 1));
    let named = pieces::named_by_offset(number, &arguments);
    let held = hold(pins, origin.caller, number, arguments, named, limit);
    let answer = match held.refusal {
        _ if held.is_crowded => None,
        Some(errno) => Some(-(errno as isize)),
        // SAFETY: the caller answers for the call.
        None => Some(unsafe { make(number, arguments, origin.place) }),
    };
    pins.end(held.call);
    OWN.with(|own| {
        own.hint.set(held.call.hint());
        own.calls.set(own.calls.get().saturating_sub(1));
    });
    answer
}

/// What [`hold`] has done.
pub struct Held {
    pub call: Call,
    /// Other calls have pinned so much memory that this call must not be made now.
    pub is_crowded: bool,
    /// The error of a call that must not be made.
    pub refusal: Option<c_int>,
}

/// Pins and touches what a call touches, and own memory that it names otherwise.
pub fn hold(
    pins: &Pins,
    caller: Caller,
    number: c_long,
    arguments: [usize; 6],
    named: Option<Range>,
    limit: Limit,
) -> Held {
    let call = pins.begin(caller);
    let mut touched = Touched { pins, call, limit, is_crowded: false, is_over: false, pinned: 0, more: 0 };
    let mut outcome = terapage_calls::visit(number as usize, &arguments, &mut touched);
    if let Some(range) = named
        && !touched.range(range)
    {
        outcome = Outcome::Stopped;
    }
    touched.wish(caller);
    let in_arena = || arguments.iter().any(|&argument| paged::meets(argument, 1));
    let refusal = match outcome {
        Outcome::Known | Outcome::Kept | Outcome::Partly => None,
        // A device's command with other memory.
        Outcome::Unknown if !in_arena() => None,
        Outcome::Unknown if number == libc::SYS_ioctl => Some(libc::ENOTTY),
        Outcome::Unknown | Outcome::Asynchronous
            if matches!(number, libc::SYS_setsockopt | libc::SYS_getsockopt) =>
        {
            Some(pieces::kind_of_socket(arguments[0]).err().unwrap_or(libc::ENOPROTOOPT))
        }
        Outcome::Unknown | Outcome::Asynchronous => Some(libc::ENOSYS),
        Outcome::Stopped => Some(libc::ENOMEM),
    };
    Held { call: touched.call, is_crowded: touched.is_crowded, refusal }
}

/// In `pthread_create`: the pins of threads that have ended.
pub fn forget_ended() {
    let Some(pins) = pins() else { return };
    let me = thread::own_name();
    if thread::is_internal(me) || thread::is_quiet(me) {
        return;
    }
    let own = std::process::id() as usize;
    let _arena = ARENA.lock();
    pins.forget_ended(|thread| {
        // SAFETY: no signal is sent.
        unsafe { gate::call(libc::SYS_tgkill, [own, thread, 0, 0, 0, 0]) == -(libc::ESRCH as isize) }
    });
}
