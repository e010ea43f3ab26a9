//! `terapage run --summary`: prepares the data from which the library sums up a run at its end.

use anyhow::Context;
use std::os::fd::{AsRawFd, IntoRawFd};

/// Tells the library which process has the memory file in which processes leave their numbers,
/// under which number, and when the run began.
pub const VARIABLE: &str = "TERAPAGE_SUMMARY";

/// Numbers from here on are out of most programs' way.
const HIGH: i32 = 600;

/// Makes the memory file, which the program and its children inherit, and returns the value of the
/// variable.
pub fn prepare() -> anyhow::Result<String> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create(c"terapage-summary", flags).context("--summary: memfd_create")?;
    // Each process appends; some of them have separate open file descriptions.
    let flags = rustix::fs::fcntl_getfl(&file).context("--summary: fcntl")?;
    rustix::fs::fcntl_setfl(&file, flags | rustix::fs::OFlags::APPEND).context("--summary: fcntl")?;
    let low = file.as_raw_fd();
    let inherited = [HIGH, 64, 16, 3].into_iter().find_map(|least| {
        // SAFETY: no memory is touched.
        let fd = unsafe { libc::fcntl(low, libc::F_DUPFD, least) };
        (fd >= 0).then_some(fd)
    });
    // If no higher number is free, the descriptor keeps its number.
    let number = inherited.unwrap_or_else(|| {
        // SAFETY: no memory is touched.
        unsafe { libc::fcntl(low, libc::F_SETFD, 0) };
        file.into_raw_fd()
    });
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has room.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    Ok(format!("{}:{number}:{now_ns}", std::process::id()))
}
