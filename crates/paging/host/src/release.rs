//! `terapage release`: the thread that has adopted the program waits here until it is asked to give
//! the program back (`preload`: `space/arena/release.rs`).
//!
//! While it waits, its thread pointer is lent with the seat, so it makes nothing but one call.

use crate::raw::raw;
use crate::seat;
use terapage_preload::release;
use terapage_stats::Control;
use terapage_sys::thread;

/// Waits for a release, which may have been asked for already, until one was done.
pub fn serve(control: &'static Control) {
    seat::take();
    thread::counted(|| {
        loop {
            seat::give();
            wait(control);
            seat::take();
            let paused = || {
                seat::give();
                seat::take();
            };
            if release::serve(control, paused) {
                break;
            }
        }
    });
    seat::give();
}

/// Waits until a release is asked for. Another process wakes this thread.
fn wait(control: &Control) {
    loop {
        let stage = control.stage();
        if !stage.waits() {
            return;
        }
        // SAFETY: the word stays mapped; without a time, the wait has no limit.
        unsafe { raw!(libc::SYS_futex, control.stage.as_ptr(), libc::FUTEX_WAIT, stage as u32, 0) };
    }
}
