//! A program that was running before this library began: `terapage adopt` has brought the host into
//! it (docs/host.md). The memory that it has is paged where it lies.
//!
//! A thread of the host begins while all threads of the program are stopped. It makes the pager,
//! but takes over nothing. Once the filter is set, the program's threads run, and their calls about
//! memory wait for the seat. The thread holds the seat whenever it takes over a piece, so that
//! mappings do not change meanwhile.
#![cfg_attr(
    not(target_env = "musl"),
    allow(dead_code, reason = "only the host for musl comes into running programs")
)]

use crate::arena::ARENA;
use crate::{brk, setup, statics};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use terapage_sys::adoption::{Report, State, TEXT_MOST};
use terapage_sys::thread;

/// The report, until the filter is set; 0 for none.
static BEGINNING: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are taken over at once. Calls about memory wait meanwhile, and so do faults.
const PIECE: usize = 16 << 20;

/// Whether memory is still being taken over: until then much of it is in no budget.
static TAKES_OVER: AtomicBool = AtomicBool::new(false);

/// Whether memory is still being taken over.
pub fn is_taking_over() -> bool {
    TAKES_OVER.load(Relaxed)
}

/// Notes that this process is being adopted: an error must not end it.
pub fn begin(report: &'static Report) {
    TAKES_OVER.store(true, Relaxed);
    BEGINNING.store(std::ptr::from_ref(report) as usize, Relaxed);
    brk::stay();
}

/// Notes that there is no way back: from here on an error ends the process.
pub fn hold() {
    BEGINNING.store(0, Relaxed);
}

/// While the process is being adopted: reports why that fails, and ends the calling thread. The
/// rest is `terapage adopt`'s, which leaves the program as it was.
pub fn give_up_if_beginning(why: &str) {
    let at = BEGINNING.load(Relaxed) as *mut Report;
    if at.is_null() {
        return;
    }
    let len = why.len().min(TEXT_MOST);
    // SAFETY: the report stays mapped, and nobody reads its text before the state says so.
    unsafe {
        (&raw mut (*at).text).cast::<u8>().copy_from_nonoverlapping(why.as_ptr(), len);
        (*at).text_len.store(len as u32, Relaxed);
        (*at).state.store(State::Failed as u32, Release);
    }
    loop {
        // SAFETY: ends this thread.
        unsafe { libc::syscall(libc::SYS_exit, 0_i64) };
    }
}

/// In the child of a fork, nobody takes over the rest.
pub fn in_child() {
    TAKES_OVER.store(false, Relaxed);
}

/// Makes the pager for memory in these ranges, and takes over nothing yet. Returns whether there is
/// a pager.
pub fn start(ranges: &[(usize, usize)]) -> bool {
    statics::adopt(ranges, setup::block());
    let mut arena = ARENA.lock();
    for (from, len) in statics::ranges() {
        arena.close_unpaged(from, from + len);
    }
    if arena.pager.is_none() {
        arena.start();
    }
    arena.pager.is_some()
}

/// Bytes that [`take_over`] will page.
pub fn bytes() -> usize {
    statics::bytes()
}

/// Takes over the memory piece by piece. Between pieces `pause` is called, with the bytes that were
/// taken over since.
pub fn take_over(mut pause: impl FnMut(usize)) {
    for (start, len) in statics::ranges() {
        for from in (start..start + len).step_by(PIECE) {
            let to = (from + PIECE).min(start + len);
            for (from, to) in plain_within(from, to) {
                ARENA.lock().readmit(from, to);
            }
            pause(to - from);
        }
    }
    TAKES_OVER.store(false, Relaxed);
}

/// The parts of a range that are readable, writable, private memory, as the kernel says: the
/// program may have changed others since.
fn plain_within(from: usize, to: usize) -> Vec<(usize, usize)> {
    let _internal = thread::Internal::enter();
    let maps = std::fs::read_to_string("/proc/thread-self/maps").unwrap_or_default();
    maps.lines().filter_map(plain).filter_map(|part| within(part, from, to)).collect()
}

/// The range of a line of `/proc/PID/maps` (proc(5)), if it is such memory.
fn plain(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let is_plain = words.next() == Some("rw-p") && words.nth(2) == Some("0");
    is_plain.then_some((number(start)?, number(end)?))
}

fn within((start, end): (usize, usize), from: usize, to: usize) -> Option<(usize, usize)> {
    let part = (start.max(from), end.min(to));
    (part.0 < part.1).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::{plain, within};

    #[test]
    fn lines_of_plain_memory_are_found() {
        assert_eq!(plain("1000-3000 rw-p 00000000 00:00 0 [heap]"), Some((0x1000, 0x3000)));
        assert_eq!(plain("1000-3000 rw-p 00000000 00:00 0"), Some((0x1000, 0x3000)));
        assert_eq!(plain("1000-3000 rw-p 00001000 08:01 12 /lib/a"), None);
        assert_eq!(plain("1000-3000 r--p 00000000 00:00 0"), None);
        assert_eq!(within((1, 5), 3, 9), Some((3, 5)));
        assert_eq!(within((1, 3), 3, 9), None);
    }
}
