//! A program that runs already: `terapage adopt` has mapped this host into its process, and has
//! begun a thread here, while all threads of the program are stopped (crate `adopt`).
//!
//! The thread begins the library and the pager, and sets the handler and the filter, as for any
//! hosted program. Until the filter is set, an error is only reported: the program goes on as it
//! was. Then the program's threads run, and this thread takes over their memory piece by piece, and
//! then waits for `terapage release`. At the end it goes, and its seat stays.

use crate::hosting::{AT_MINSIGSTKSZ, least_descriptor, random};
use crate::raw::{self, raw};
use crate::start::Passed;
use crate::{filter, guard, library, machine, place, release, seat, signals, slots, trap};
use std::ffi::c_char;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terapage_preload::adopted;
use terapage_stats::Stage;
use terapage_sys::adoption::{GUARDED, Orders, REPORT, Report, State, USUAL};

/// The report, if this thread was begun by `terapage adopt`.
pub fn report(passed: &Passed) -> Option<&'static Report> {
    let named = passed.texts().find_map(|text| text.strip_prefix(b"TERAPAGE_HOSTED="))?;
    let ways = [USUAL, GUARDED].into_iter();
    let digits = ways.filter_map(|way| named.strip_prefix(way.as_bytes())).next()?;
    let at = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    // SAFETY: `terapage adopt` has put the report there, and it stays.
    Some(unsafe { &*(at as *const Report) })
}

/// Adopts the program of this process. The calling thread ends.
///
/// # Safety
/// All other threads of the process are stopped until the report says that the filter is set.
pub unsafe fn adopt(passed: &Passed, report: &'static Report, environment: *const *const c_char) -> ! {
    adopted::begin(report);
    // SAFETY: `terapage adopt` has made the environment and the orders, which stay.
    let orders = unsafe { Orders::read(std::ptr::from_ref(report).byte_add(REPORT).cast()) };
    if orders.is_guarded {
        // This thread's own calls, and those of the threads that it begins, are trapped later.
        raw::block(!seat::TRAPS);
    }
    // SAFETY: as above.
    unsafe { terapage_preload::begin(environment) };
    if orders.is_go {
        guard::has_small_stacks();
    }
    let fail = |why: &str| adopted::give_up_if_beginning(why);
    if passed.auxiliary(AT_MINSIGSTKSZ).is_some_and(|bytes| bytes > machine::REGISTERS_MOST) {
        fail("the processor has more registers than the host knows");
    }
    if !library::find() || !slots::open() || !seat::open() {
        fail("there is no memory for the host");
    }
    seat::take();
    place::begin(random(passed));
    filter::find_own_code();
    let ranges: Vec<(usize, usize)> = orders.data.iter().map(|&(a, b)| (a as usize, b as usize)).collect();
    if !adopted::start(&ranges) {
        fail("there is no right to handle its page faults, or to use the store");
    }
    report.all_bytes.store(adopted::bytes() as u64, Relaxed);
    if let Err(errno) = trap_calls(&orders, passed) {
        trap::close();
        let error = std::io::Error::from_raw_os_error(errno);
        fail(&format!("it cannot have a filter of system calls ({error})"));
    }
    adopted::hold();
    report.state.store(State::Holds as u32, Release);
    wait_for_the_program();
    adopted::take_over(|bytes| {
        report.done_bytes.fetch_add(bytes as u64, Relaxed);
        seat::give();
        seat::take();
    });
    let control = terapage_preload::release::control();
    seat::give();
    // Whoever sees that the program is adopted may release it at once.
    if let Some(control) = control {
        control.set(Stage::Waits);
    }
    report.state.store(State::Done as u32, Release);
    if let Some(control) = control {
        release::serve(control);
    }
    leave()
}

/// Waits until the program's threads run: `terapage adopt` then interrupts this wait. Until then
/// this thread would only take the processor, and the lock of the mappings, from those that let
/// them go.
fn wait_for_the_program() {
    let (none, most) = (0_u64, libc::timespec { tv_sec: 1, tv_nsec: 0 });
    // SAFETY: the kernel reads the set and the time. The call does not begin again.
    unsafe { raw!(libc::SYS_rt_sigtimedwait, &raw const none, 0, &raw const most, size_of_val(&none)) };
}

/// Sets the handler and the filter.
fn trap_calls(orders: &Orders, passed: &Passed) -> Result<(), i32> {
    let ranges = |all: &[(u64, u64)]| -> Vec<Range<usize>> {
        all.iter().map(|&(from, to)| from as usize..to as usize).collect()
    };
    let code = ranges(&orders.code);
    if !trap::open() || orders.fails {
        return Err(libc::EINVAL);
    }
    signals::clear_actions();
    if orders.is_guarded {
        if let Some(at) = passed.auxiliary(libc::AT_SYSINFO_EHDR) {
            filter::note_vdso(at);
        }
        let near = ranges(&orders.near);
        // SAFETY: the handler was set just now.
        unsafe { filter::install_guarded_first(&code, &near)? };
        guard::adopts(near);
    }
    // SAFETY: as above.
    unsafe { filter::install_for_all(least_descriptor(), &code)? };
    if orders.is_guarded {
        terapage_preload::guard::is_set();
        guard::begin();
    }
    Ok(())
}

/// Ends this thread. Its pointer and its stack stay: they are the seat's.
fn leave() -> ! {
    loop {
        // SAFETY: the kernel must not write to a word of the C library at the thread's end.
        unsafe {
            raw!(libc::SYS_set_tid_address, 0);
            raw!(libc::SYS_exit, 0);
        }
    }
}
