//! The pager of `terapage run` in a program that a host has loaded: one for musl, a static one. The
//! host's functions are called by a system call, which the host serves.

use std::ffi::c_int;
use terapage_pager::host::{Host, Words, number};
use terapage_stats::Counters;
use terapage_sys::hosting::ASK;

static HOST: Host =
    Host { begin, block, whole, take, give, is_used, advise, map_file, unmap_file, sync_file, counters };

/// The table, if a host has loaded this program, and pages it.
pub fn find() -> Option<&'static Host> {
    (ask(number::IS_PAGED, [])[0] == 1).then_some(&HOST)
}

/// Calls a function by its number, and returns its results.
fn ask<const COUNT: usize>(function: usize, arguments: [usize; COUNT]) -> Words {
    let mut words = Words::default();
    words[..COUNT].copy_from_slice(&arguments);
    // SAFETY: no kernel knows this mode, and a host writes only the words.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, ASK, function, words.as_mut_ptr()) };
    words
}

extern "C" fn begin() -> c_int {
    ask(number::BEGIN, [])[0] as c_int
}

extern "C" fn block() -> usize {
    ask(number::BLOCK, [])[0]
}

extern "C" fn whole(start: &mut usize, len: &mut usize) {
    [*start, *len, ..] = ask(number::WHOLE, []);
}

extern "C" fn take(len: usize, align: usize) -> usize {
    ask(number::TAKE, [len, align])[0]
}

extern "C" fn give(at: usize, len: usize) {
    ask(number::GIVE, [at, len]);
}

extern "C" fn is_used(at: usize, len: usize) -> bool {
    ask(number::IS_USED, [at, len])[0] != 0
}

extern "C" fn advise(at: usize, len: usize, advice: c_int) -> c_int {
    ask(number::ADVISE, [at, len, advice as usize])[0] as c_int
}

extern "C" fn map_file(at: usize, len: usize, fd: c_int, offset: u64, bytes: u64) -> c_int {
    ask(number::MAP_FILE, [at, len, fd as usize, offset as usize, bytes as usize])[0] as c_int
}

extern "C" fn unmap_file(at: usize, len: usize) -> c_int {
    ask(number::UNMAP_FILE, [at, len])[0] as c_int
}

extern "C" fn sync_file(
    at: usize,
    len: usize,
    fd: c_int,
    offset: u64,
    bytes: u64,
    written: &mut u64,
) -> c_int {
    let [answer, bytes, ..] = ask(number::SYNC_FILE, [at, len, fd as usize, offset as usize, bytes as usize]);
    *written = bytes as u64;
    answer as c_int
}

extern "C" fn counters() -> *const Counters {
    ask(number::COUNTERS, [])[0] as *const Counters
}
