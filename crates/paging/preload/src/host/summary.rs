//! The summary of a run (`terapage run --summary`), printed at its end by its first process.
//!
//! Each process of the run appends, at its end, a line of numbers to a memory file, which it has
//! inherited or finds in the first process. The first process adds them up. A process that is
//! killed, or executes a program without the library, is missing.

use crate::arena::ARENA;
use crate::{beside, exit};
use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use terapage_stats::{Snapshot, Whole};
use terapage_sys::{fd, thread};

/// The name of the memory file, as `/proc/PID/fd` shows it.
const NAME: &[u8] = b"/memfd:terapage-summary";

/// The descriptor of the memory file in this process, or -1.
static OWN: AtomicI32 = AtomicI32::new(-1);
/// Else the process that has the file, and its number there.
static OTHERS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Standard error as it was at the start, or -1: programs close theirs before they end, to hear of
/// errors (GNU's do).
static ERRORS: AtomicI32 = AtomicI32::new(-1);

/// When the run began, ns, on the monotonic clock; 0 if no summary is wanted.
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);

/// How many numbers a line has.
const NUMBERS: usize = 9;

/// Begins. `asked` is the setting of `terapage run`: the process that has the memory file, the
/// number there, and when the run began.
pub fn begin(asked: Option<OsString>) {
    let Some(asked) = asked else { return };
    let numbers: Vec<u64> =
        asked.to_str().unwrap_or("").split(':').filter_map(|part| part.parse().ok()).collect();
    let [root, number, began_ns] = numbers[..] else { return };
    if is_it(number) {
        fd::note(number as i32);
        OWN.store(number as i32, Relaxed);
    }
    OTHERS[0].store(root as u32, Relaxed);
    OTHERS[1].store(number as u32, Relaxed);
    BEGAN_NS.store(began_ns, Relaxed);
    if exit::is_run() {
        keep_errors();
    }
}

/// Keeps standard error open, out of the program's way.
fn keep_errors() {
    // SAFETY: no memory is touched.
    let kept = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
    if kept < 0 {
        return;
    }
    // SAFETY: made just now, and nobody else's.
    if let Ok(kept) = fd::Fd::adopt(unsafe { OwnedFd::from_raw_fd(kept) }) {
        ERRORS.store(kept.raw(), Relaxed);
        // It stays open as long as the process lives.
        std::mem::forget(kept);
    }
}

/// Says the summary where standard error was at the start.
fn say(text: &str) {
    let kept = ERRORS.load(Relaxed);
    // SAFETY: the bytes are valid.
    let written = unsafe { libc::syscall(libc::SYS_write, i64::from(kept), text.as_ptr(), text.len()) };
    if written < 0 {
        thread::say(text);
    }
}

/// Whether the memory file is open in this process under this number.
fn is_it(number: u64) -> bool {
    let link = std::fs::read_link(format!("/proc/thread-self/fd/{number}"));
    link.is_ok_and(|link| std::os::unix::ffi::OsStrExt::as_bytes(link.as_os_str()).starts_with(NAME))
}

/// Opens the memory file for reading, and for appending.
fn file() -> Option<std::fs::File> {
    let (root, number) = match OWN.load(Relaxed) {
        own if own >= 0 && is_it(own as u64) => (std::process::id(), own as u32),
        _ => (OTHERS[0].load(Relaxed), OTHERS[1].load(Relaxed)),
    };
    std::fs::OpenOptions::new().read(true).append(true).open(format!("/proc/{root}/fd/{number}")).ok()
}

/// The numbers of a process: whether it was paged; its peaks, of the budget and beside it; bytes in
/// and out; hard faults, and the wait for them; blocks read on demand and ahead.
fn numbers(now: &Snapshot) -> [u64; NUMBERS] {
    [
        u64::from(now.started_s > 0),
        now.resident_peak_bytes,
        now.beside_peak_bytes,
        now.page_in_bytes,
        now.page_out_bytes,
        now.hard_faults,
        now.hard_wait_us,
        now.demand_blocks,
        now.prefetched_blocks,
    ]
}

/// Called at the end of the process. `is_root` says that the run began with it.
pub fn finish(is_root: bool) {
    let began_ns = BEGAN_NS.load(Relaxed);
    if began_ns == 0 {
        return;
    }
    let snapshot = match &ARENA.lock().pager {
        Some(pager) => pager.snapshot(),
        None => exit::never_paged(),
    };
    let own = numbers(&snapshot);
    let file = file();
    if !is_root {
        let line = own.map(|number| number.to_string()).join(" ") + "\n";
        if let Some(mut file) = file {
            std::io::Write::write_all(&mut file, line.as_bytes()).ok();
        }
        return;
    }
    let mut text =
        vec![0; file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |found| found.len() as usize)];
    if let Some(file) = &file
        && file.read_exact_at(&mut text, 0).is_err()
    {
        text.clear();
    }
    let mut all = read(&String::from_utf8_lossy(&text));
    all.push(own);
    let seconds = thread::now_ns().saturating_sub(began_ns) as f64 / 1e9;
    let is_shared = crate::job::is_shared();
    say(&show(&all, seconds, snapshot.budget_bytes, is_shared, snapshot.block_bytes));
}

/// Reads the lines of the processes.
fn read(text: &str) -> Vec<[u64; NUMBERS]> {
    let numbers = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        numbers.try_into().ok()
    };
    text.lines().filter_map(numbers).collect()
}

/// The summary: a line, and a second one if something would help.
///
/// `is_shared`: the budget is that of all processes together.
fn show(processes: &[[u64; NUMBERS]], seconds: f64, budget: u64, is_shared: bool, block: u64) -> String {
    let mut sums = [0_u64; NUMBERS];
    for process in processes {
        sums.iter_mut().zip(process).for_each(|(sum, number)| *sum += number);
    }
    let [paged, resident, beside, bytes_in, bytes_out, faults, wait_us, demand, ahead] = sums;
    let mib = |bytes: u64| bytes >> 20;
    let waited = wait_us as f64 / 1e6;
    let share = if seconds > 0.0 { waited * 100.0 / seconds } else { 0.0 };
    let (many, each) = match processes.len() {
        1 => ("1 process".to_owned(), ""),
        count if is_shared => (format!("{count} processes"), " of all (each one's peak, summed)"),
        count => (format!("{count} processes"), " each, summed"),
    };
    let mut text = format!(
        "terapage: summary: {seconds:.1} s, {many}, {paged} paged; peak {} MiB in the budget of {} MiB{each}, {} MiB beside it; page-in {} MiB, \
         page-out {} MiB, blocks of {} KiB; {faults} hard faults, threads waited {waited:.1} s for them ({share:.0}% of the time)\n",
        mib(resident),
        mib(budget),
        mib(beside),
        mib(bytes_in),
        mib(bytes_out),
        block >> 10,
    );
    if share < 20.0 {
        return text;
    }
    let at_random = demand > 4 * ahead;
    if at_random && block > 4 << 10 {
        text += &format!(
            "terapage: what may help: --block 4K ({demand} blocks were read because a thread waited, {ahead} ahead: reads at random places), \
             or a larger budget (terapage advise tells how large)\n"
        );
    } else {
        text += "terapage: what may help: a larger budget (terapage advise tells how large)\n";
    }
    text
}

/// In a forked child: its waits are counted anew, and whoever reads standard error does not wait
/// for it.
pub fn in_child() {
    let kept = ERRORS.swap(-1, Relaxed);
    if kept >= 0 {
        // SAFETY: kept by `keep_errors`, and used by nobody from now on. Dropped, it is closed and
        // noted no more.
        drop(fd::Fd::keep(unsafe { OwnedFd::from_raw_fd(kept) }));
    }
    WINDOW.iter().for_each(|cell| cell.store(0, Relaxed));
}

/// The start of the window that is checked for thrashing: its time, ns; the wait until then, us;
/// the bytes paged in until then.
static WINDOW: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static HINTED: AtomicBool = AtomicBool::new(false);

/// How long a program is watched before it is told.
const WINDOW_NS: u64 = 30_000_000_000;

/// Says once, on a terminal, that the program mostly waits.
pub fn watch(whole: Whole) {
    let counters = whole.snapshot();
    let budget = counters.budget_bytes;
    let now = [thread::now_ns(), counters.hard_wait_us, counters.page_in_bytes];
    let began = [0, 1, 2].map(|at| WINDOW[at].load(Relaxed));
    if began[0] > 0 && now[0] - began[0] < WINDOW_NS {
        return;
    }
    WINDOW.iter().zip(now).for_each(|(cell, now)| cell.store(now, Relaxed));
    // SAFETY: no memory is touched.
    let is_terminal = || unsafe { libc::isatty(2) } == 1;
    if began[0] == 0 || HINTED.load(Relaxed) || !thrashes(began, now, budget) || !is_terminal() {
        return;
    }
    let waited = (now[1] - began[1]) * 100_000 / (now[0] - began[0]).max(1);
    let line = format!(
        "terapage: process {}: {waited}% of the last 30 s went to waiting for page-ins, {} MiB: more is in use than the budget of {} MiB holds \
         (raise --memory; terapage advise tells how far)\n",
        std::process::id(),
        (now[2] - began[2]) >> 20,
        budget >> 20
    );
    HINTED.store(beside::say(&line), Relaxed);
}

/// Whether waits were more than nine tenths of the time, and several times the budget was read.
fn thrashes(began: [u64; 3], now: [u64; 3], budget: u64) -> bool {
    let [passed_ns, waited_us, bytes] = [0, 1, 2].map(|at| now[at].saturating_sub(began[at]));
    waited_us * 1000 > passed_ns / 10 * 9 && bytes > 3 * budget
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_add_up() {
        let text = "1 1048576 2097152 3145728 4194304 5 2000000 100 10\nbroken\n0 0 1048576 0 0 0 0 0 0\n";
        let all = read(text);
        assert_eq!(all.len(), 2);
        let shown = show(&all, 4.0, 64 << 20, false, 16 << 10);
        assert!(shown.starts_with(
            "terapage: summary: 4.0 s, 2 processes, 1 paged; peak 1 MiB in the budget of 64 MiB each, summed, 3 MiB beside it; page-in 3 MiB, page-out 4 MiB, \
             blocks of 16 KiB; 5 hard faults, threads waited 2.0 s for them (50% of the time)\n"
        ), "{shown}");
        assert!(shown.contains("--block 4K (100 blocks") && shown.lines().count() == 2, "{shown}");
        let shared = show(&all, 4.0, 64 << 20, true, 4 << 10);
        assert!(!shared.contains("--block") && shared.contains("of 64 MiB of all (each"), "{shared}");
        assert_eq!(show(&all, 40.0, 64 << 20, true, 16 << 10).lines().count(), 1);
    }

    #[test]
    fn thrashing_is_waiting_for_much() {
        let second = 1_000_000_000;
        assert!(thrashes([0; 3], [30 * second, 28_000_000, 400], 100));
        assert!(!thrashes([0; 3], [30 * second, 26_000_000, 400], 100));
        assert!(!thrashes([0; 3], [30 * second, 28_000_000, 300], 100));
    }
}
