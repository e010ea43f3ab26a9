//! A program that runs already: `terapage adopt` has mapped this host into its process, and has
//! begun a thread here, while all threads of the program are stopped (crate `adopt`).
//!
//! The thread begins the library and the pager, and sets the handler and the filter, as for any
//! hosted program. Until the filter is set, an error is only reported: the program goes on as it
//! was. Then the program's threads run, and this thread takes over their memory piece by piece, and
//! then waits for `terapage release`. At the end it goes, and its seat stays.

use crate::hosting::{AT_MINSIGSTKSZ, least_descriptor, random};
use crate::raw::raw;
use crate::start::Passed;
use crate::{filter, frame, library, place, release, seat, signals, slots, trap};
use std::ffi::c_char;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terapage_preload::adopted;
use terapage_stats::Stage;
use terapage_sys::adoption::{Orders, REPORT, Report, State};

/// In place of a program's name: the address of the report, in hexadecimal digits.
const MARK: &[u8] = b"TERAPAGE_HOSTED=adopt:";

/// The report, if this thread was begun by `terapage adopt`.
pub fn report(passed: &Passed) -> Option<&'static Report> {
    let digits = passed.texts().find_map(|text| text.strip_prefix(MARK))?;
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
    let orders = unsafe {
        terapage_preload::begin(environment);
        Orders::read(std::ptr::from_ref(report).byte_add(REPORT).cast())
    };
    let fail = |why: &str| adopted::give_up_if_beginning(why);
    if passed.auxiliary(AT_MINSIGSTKSZ).is_some_and(|bytes| bytes > frame::REGISTERS_MOST) {
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
    let code: Vec<Range<usize>> = orders.code.iter().map(|&(a, b)| a as usize..b as usize).collect();
    if let Err(errno) = trap_calls(&code, orders.fails) {
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
fn trap_calls(code: &[Range<usize>], fails: bool) -> Result<(), i32> {
    if !trap::open() || fails {
        return Err(libc::EINVAL);
    }
    signals::clear_actions();
    // SAFETY: the handler was set just now.
    unsafe { filter::install_for_all(least_descriptor(), code) }
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
