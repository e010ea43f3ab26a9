//! Serves trapped calls. Calls about memory, forks and the end of the process go to the paging
//! library, with the seat. The other calls are served here, without the seat.

use crate::exec::tracing;
use crate::machine::{self, Context};
use crate::own_stack::Call;
use crate::raw::{self, error, is_error, raw};
use crate::slots::{self, Slot};
use crate::trap::{self, vfork};
use crate::{
    direct, exec, filter, guard, library, own_filter, own_memory, place, program, robust, seat, signals,
};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terapage_calls::{By, Hook, Hosted, Service, When};

/// How a call goes on.
pub enum Outcome {
    /// It is over.
    Answer(isize),
    /// The thread makes a call on its own stack, where handlers of the program may run.
    OnOwnStack(Call),
    /// The thread continues from its context.
    Continues,
}

/// Serves the call of the slot, as its row says.
///
/// # Safety
/// The slot is the calling thread's, and the thread runs on its stack, with all signals blocked.
pub unsafe fn serve(slot: *mut Slot) -> Outcome {
    // SAFETY: the slot is this thread's, and the program is responsible for its calls.
    unsafe {
        let (number, arguments, context) = ((*slot).number, (*slot).arguments, Slot::context(slot));
        if number == libc::SYS_rseq && guard::is_adopted() {
            // Its C library relies on it.
            return guard::plain(number, arguments);
        }
        let Some(by) = terapage_calls::hosted(number as usize).and_then(|row| served_by(row, arguments))
        else {
            return match number {
                libc::SYS_io_uring_setup | libc::SYS_io_setup if !library::is_released() => {
                    Outcome::Answer(error(libc::ENOSYS))
                }
                libc::SYS_clone => Outcome::Answer(guard::thread(slot, machine::clone_arguments(arguments))),
                _ => guard::plain(number, arguments),
            };
        };
        Outcome::Answer(match by {
            By::Host(Service::Wait(set)) => {
                return signals::waiting(&*context, number, arguments, usize::from(set));
            }
            By::Host(Service::Select) => return signals::selecting(&*context, arguments),
            By::Host(Service::ReadLink) => return program::read_link(number, arguments),
            By::Host(Service::Open) => return direct::open(&*context, number, arguments),
            By::Host(Service::Execute) => return exec::serve(slot),
            By::Host(Service::Mask) => signals::mask(context, arguments),
            By::Host(Service::Action) => signals::action(slot, arguments),
            By::Host(Service::FileFlags) => direct::set_flags(arguments),
            By::Host(Service::Seek) => own_memory::seek(arguments),
            By::Host(Service::SocketOption) => return direct::set_option(arguments),
            By::Host(Service::OwnFilter) => return own_filter::set(number, arguments),
            By::Host(Service::Trace) => return tracing::serve(slot, arguments),
            By::Host(Service::Vfork) => {
                let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
                vfork(slot, [flags as usize, 0, 0, 0, 0])
            }
            By::Host(Service::Clone) if arguments[0] as i32 & libc::CLONE_VM != 0 => {
                vfork(slot, machine::clone_arguments(arguments))
            }
            By::Host(Service::Clone) => fork(slot, machine::clone_arguments(arguments)),
            By::Library(Hook::Fork) => fork(slot, [libc::SIGCHLD as usize, 0, 0, 0, 0]),
            By::Library(Hook::Mmap) => map(slot),
            By::Library(Hook::Read | Hook::Write | Hook::Readv | Hook::Writev) => {
                return own_memory::serve(slot);
            }
            By::Library(hook) => {
                if hook == Hook::ExitGroup {
                    robust::keep();
                }
                by_library(slot)
            }
            By::Nobody => error(libc::ENOSYS),
        })
    }
}

/// Who serves a call. In guarded mode more calls are trapped than a row says.
fn served_by(Hosted { when, by }: Hosted, arguments: [usize; 6]) -> Option<By> {
    let is_meant = match when {
        _ if !guard::is_active() => true,
        // Only the filter of the rows traps these.
        When::Always | When::Descriptor(_) => true,
        When::Given(index) => arguments[usize::from(index)] != 0,
        // These only need what they name, which is pinned.
        When::Address(_) | When::Marked(_) => matches!(by, By::Host(_)),
        When::Is(index, value) => arguments[usize::from(index)] as u32 == value,
        When::Has(index, bits) => arguments[usize::from(index)] as u32 & bits != 0,
        When::Forks => filter::forks(arguments[0]),
        When::Blocks => arguments[0] as i32 != libc::SIG_UNBLOCK && arguments[1] != 0,
    };
    // In guarded mode these only need what they touch.
    let is_plain = matches!(by, By::Library(Hook::ProcessMadvise | Hook::ProcessVmWritev));
    (is_meant && !(guard::is_active() && is_plain)).then_some(by)
}

/// Serves `mmap`.
///
/// # Safety
/// As for [`serve`].
unsafe fn map(slot: *mut Slot) -> isize {
    // SAFETY: the slot is this thread's, and the program is responsible for its calls.
    unsafe {
        let mut arguments = (*slot).arguments;
        if place::is_refused(arguments) {
            return error(libc::ENOMEM);
        }
        if let Some(at) = place::of_reserved(arguments, (*Slot::context(slot)).place()) {
            arguments[0] = at;
            return raw::call(libc::SYS_mmap, arguments);
        }
        if place::is_table(arguments) {
            return raw::call(libc::SYS_mmap, arguments);
        }
        (*slot).arguments = place::of_mapping(arguments);
        by_library(slot)
    }
}

/// Has the library do the call of the slot.
///
/// # Safety
/// As for [`serve`].
pub unsafe fn by_library(slot: *mut Slot) -> isize {
    unsafe extern "C" fn work(slot: usize) {
        let slot = slot as *mut Slot;
        // SAFETY: the slot is the calling thread's, and the program is responsible for its calls.
        unsafe { (*slot).answer = library::call((*slot).number, &(*slot).arguments) };
    }
    // SAFETY: the caller keeps the seat's contract.
    unsafe {
        seat::with(work, slot as usize);
        (*slot).answer
    }
}

const ODD_FORK: &str = "a child in other namespaces, or with another signal at its end, cannot be forked by a \
                        paged static or Go program: EINVAL (try: --static off)";

/// Flags of a fork that take effect after it.
const AFTER: i32 = libc::CLONE_CHILD_SETTID
    | libc::CLONE_CHILD_CLEARTID
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_PIDFD
    | libc::CLONE_SETTLS;
/// The signal that the parent gets at the child's end.
const SIGNAL: i32 = 0xff;

/// Serves a fork: the child gets a copy of the memory, and its own pager if there is one. This
/// function also returns in the child.
///
/// # Safety
/// As for [`serve`].
unsafe fn fork(slot: *mut Slot, [flags, stack, parent, child, pointer]: [usize; 5]) -> isize {
    let flags = flags as i32;
    // The C library, which must know of the child, cannot make one in other namespaces, or one that
    // shares more than usual.
    if flags & !AFTER & !SIGNAL != 0 || flags & SIGNAL != libc::SIGCHLD {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !SAID.swap(true, Relaxed) {
            trap::say(&["terapage: ", ODD_FORK, "\n"]);
        }
        return error(libc::EINVAL);
    }
    // SAFETY: the slot is this thread's; the kernel checks the program's addresses.
    unsafe {
        ((*slot).number, (*slot).arguments[0]) = (libc::SYS_clone, slot as usize);
        let answer = by_library(slot);
        if is_error(answer) {
            return answer;
        }
        if answer > 0 {
            if flags & libc::CLONE_PARENT_SETTID != 0 {
                raw::write(parent, &(answer as u32).to_ne_bytes());
            }
            if flags & libc::CLONE_PIDFD != 0 {
                let fd = raw!(libc::SYS_pidfd_open, answer, 0);
                raw::write(parent, &(fd as i32).to_ne_bytes());
            }
            return answer;
        }
        slots::in_child(slot);
        own_memory::in_child();
        signals::owns_memory();
        let me = raw::thread_id().to_ne_bytes();
        if flags & (libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD) == libc::CLONE_PARENT_SETTID {
            raw::write(parent, &me);
        }
        if flags & libc::CLONE_CHILD_SETTID != 0 {
            raw::write(child, &me);
        }
        // The C library has set its own words for these two flags.
        let cleared = if flags & libc::CLONE_CHILD_CLEARTID != 0 { child } else { 0 };
        if guard::is_active() {
            guard::keep(flags as usize, 0, 0, cleared);
        }
        raw!(libc::SYS_set_tid_address, cleared);
        raw!(libc::SYS_set_robust_list, 0, ROBUST);
        if flags & libc::CLONE_SETTLS != 0 {
            machine::set_pointer(pointer);
        }
        let context: *mut Context = Slot::context(slot);
        if stack != 0 {
            (*context).set_depth(stack);
        }
        0
    }
}

/// Bytes of the head of a list of robust mutexes.
const ROBUST: usize = 24;
