//! The summary of a run (`terapage run --summary`), which its first process prints at its end.
//!
//! Each process of the run appends lines to a memory file, which it has inherited or finds in the
//! first process: when it begins, when it executes another program, and, at its end, its numbers.
//! The first process adds them up. A process that is killed, or executes a program without the
//! library, has no numbers, but is counted.

mod helps;

use crate::arena::ARENA;
use crate::{exit, guard, rereads, untracked};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};
use terapage_stats::{Counters, Snapshot};
use terapage_sys::opening::Opening;
use terapage_sys::{fd, thread};

/// The name of the memory file, as in `/proc/PID/fd`.
const NAME: &[u8] = b"/memfd:terapage-summary";

/// The descriptor of the memory file in this process, or -1.
static OWN: AtomicI32 = AtomicI32::new(-1);
/// Otherwise the process that has the file, and its number there.
static OTHERS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Standard error as it was at the start, or -1: programs close theirs before they end, to detect
/// errors (as GNU's do).
static ERRORS: AtomicI32 = AtomicI32::new(-1);

/// The time when the run began, ns, on the monotonic clock; 0 if no summary is wanted.
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);

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
    append(BEGINS, "");
}

/// Whether a summary is wanted.
pub fn is_asked() -> bool {
    BEGAN_NS.load(Relaxed) > 0
}

/// The first letters of lines: a process begins, executes another program, ends with its numbers,
/// or names a mapped file that the kernel read more than once.
const BEGINS: &str = "b";
const EXECUTES: &str = "x";
const ENDS: &str = "e";
const REREADS: &str = "r";

/// Appends a line: the action of the calling process, its number, and more.
fn append(what: &str, more: &str) {
    // Files are opened here: a cancelled thread would end with them open.
    let _internal = thread::Internal::enter();
    let _opening = Opening::begin();
    if let Some(mut file) = file() {
        std::io::Write::write_all(&mut file, format!("{what} {} {more}\n", std::process::id()).as_bytes())
            .ok();
    }
}

/// The process is about to execute another program.
pub fn executes() {
    if is_asked() {
        append(EXECUTES, "");
    }
}

/// Keeps standard error open, out of the program's way.
fn keep_errors() {
    // SAFETY: the descriptor is only copied.
    if let Ok(kept) = fd::Fd::copy(unsafe { BorrowedFd::borrow_raw(2) }) {
        ERRORS.store(kept.raw(), Relaxed);
        // The descriptor stays open while the process lives.
        std::mem::forget(kept);
    }
}

/// Writes the summary to standard error as it was at the start.
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

/// The number of numbers in a line.
const NUMBERS: usize = 19;

/// The numbers of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Numbers {
    /// 1 if the process was paged.
    paged: u64,
    resident_peak: u64,
    untracked_peak: u64,
    bytes_in: u64,
    bytes_out: u64,
    major_faults: u64,
    major_us: u64,
    minor_faults: u64,
    minor_us: u64,
    requests: u64,
    request_us: u64,
    program_us: u64,
    demand: u64,
    ahead: u64,
    used_runs: u64,
    wasted_runs: u64,
    together: u64,
    apart: u64,
    mapped: u64,
}

impl Numbers {
    fn of(now: &Snapshot) -> Numbers {
        Numbers {
            paged: u64::from(now.started_s > 0),
            resident_peak: now.resident_peak_bytes,
            untracked_peak: now.untracked_peak_bytes,
            bytes_in: now.page_in_bytes,
            bytes_out: now.page_out_bytes,
            major_faults: now.major_faults,
            major_us: now.major_wait_us,
            minor_faults: now.minor_faults.saturating_add(now.first_touches),
            minor_us: now.minor_wait_us,
            requests: now.requests,
            request_us: now.request_wait_us,
            program_us: now.program_us,
            demand: now.demand_blocks,
            ahead: now.prefetched_blocks,
            used_runs: now.prefetch_used_runs,
            wasted_runs: now.prefetch_wasted_runs,
            together: now.trials_together,
            apart: now.trials_apart,
            mapped: now.mapped_file_bytes,
        }
    }

    fn each(&mut self) -> [&mut u64; NUMBERS] {
        [
            &mut self.paged,
            &mut self.resident_peak,
            &mut self.untracked_peak,
            &mut self.bytes_in,
            &mut self.bytes_out,
            &mut self.major_faults,
            &mut self.major_us,
            &mut self.minor_faults,
            &mut self.minor_us,
            &mut self.requests,
            &mut self.request_us,
            &mut self.program_us,
            &mut self.demand,
            &mut self.ahead,
            &mut self.used_runs,
            &mut self.wasted_runs,
            &mut self.together,
            &mut self.apart,
            &mut self.mapped,
        ]
    }

    fn add(&mut self, mut other: Numbers) {
        for (sum, number) in self.each().into_iter().zip(other.each()) {
            *sum = sum.saturating_add(*number);
        }
    }

    fn to_text(mut self) -> String {
        self.each().map(|number| number.to_string()).join(" ")
    }

    fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> Option<Numbers> {
        let words: [&str; NUMBERS] = words.collect::<Vec<_>>().try_into().ok()?;
        let mut read = Numbers::default();
        for (number, word) in read.each().into_iter().zip(words) {
            *number = word.parse().ok()?;
        }
        Some(read)
    }

    /// The time for which threads waited for memory, as a percentage of the time for which they
    /// worked or waited for memory.
    fn waited_percent(&self) -> f64 {
        let waited = (self.major_us + self.minor_us + self.request_us) as f64;
        waited * 100.0 / (waited + self.program_us as f64).max(1.0)
    }
}

/// The contents of the lines.
#[derive(Debug, Default, PartialEq)]
struct Collected {
    /// The numbers of processes that have ended.
    ended: Vec<Numbers>,
    /// Processes that began, and have not ended: whether they last executed a program.
    others: Vec<(u32, bool)>,
    /// Mapped files that the kernel read more than once, and how much of each at least, per cent.
    rereads: BTreeMap<String, u64>,
}

impl Collected {
    fn add_reread(&mut self, percent: u64, path: String) {
        let most = self.rereads.entry(path).or_default();
        *most = percent.max(*most);
    }
}

/// Called at the end of the process. `is_root` says that the run began with this process.
pub fn finish(is_root: bool) {
    if !is_asked() {
        return;
    }
    let arena = ARENA.lock();
    let snapshot = arena.snapshot().unwrap_or_else(exit::never_paged);
    let rereads = rereads::found(&arena);
    drop(arena);
    // A name with another character could end the line.
    let rereads = rereads
        .into_iter()
        .map(|(percent, path)| (percent, path.to_string_lossy().replace(char::is_control, "?")));
    let own = Numbers::of(&snapshot);
    if !is_root {
        rereads.for_each(|(percent, path)| append(REREADS, &format!("{percent} {path}")));
        return append(ENDS, &own.to_text());
    }
    let file = file();
    let mut text =
        vec![0; file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |found| found.len() as usize)];
    if let Some(file) = &file
        && file.read_exact_at(&mut text, 0).is_err()
    {
        text.clear();
    }
    let mut collected = read(&String::from_utf8_lossy(&text), std::process::id());
    collected.ended.push(own);
    rereads.for_each(|(percent, path)| collected.add_reread(percent, path));
    let run = Run {
        seconds: thread::now_ns().saturating_sub(BEGAN_NS.load(Relaxed)) as f64 / 1e9,
        budget: snapshot.budget_bytes,
        is_auto: snapshot.budget_auto > 0,
        block: snapshot.block_bytes,
        peak_of_all: crate::job::peak(),
        goes_unpaged: crate::setup::goes_unpaged(),
    };
    say(&show(&collected, &run, is_alive));
}

/// Reads the lines of the processes but `root`.
fn read(text: &str, root: u32) -> Collected {
    let mut collected = Collected::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(what), Some(Ok(pid))) = (words.next(), words.next().map(str::parse::<u32>)) else {
            continue;
        };
        if pid == root {
            continue;
        }
        let before = collected.others.iter().position(|(other, _)| *other == pid);
        match (what, before) {
            (BEGINS, None) => collected.others.push((pid, false)),
            (BEGINS, Some(at)) => collected.others[at].1 = false,
            (EXECUTES, Some(at)) => collected.others[at].1 = true,
            (ENDS, _) => {
                before.map(|at| collected.others.swap_remove(at));
                collected.ended.extend(Numbers::from_words(words));
            }
            (REREADS, _) => {
                let file = line.splitn(4, ' ').skip(2).collect::<Vec<_>>();
                if let [percent, path] = file[..]
                    && let Ok(percent) = percent.parse()
                {
                    collected.add_reread(percent, path.to_owned());
                }
            }
            _ => {}
        }
    }
    collected
}

/// Whether a process runs.
fn is_alive(pid: u32) -> bool {
    let _opening = Opening::begin();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Data about the run as a whole.
struct Run {
    seconds: f64,
    budget: u64,
    /// It follows the free memory.
    is_auto: bool,
    block: u64,
    /// The peak of all processes together; `None` if each has a separate budget.
    peak_of_all: Option<u64>,
    /// Whether the first process could not be paged.
    goes_unpaged: bool,
}

impl Run {
    fn shown_budget(&self) -> String {
        let mib = self.budget >> 20;
        if self.is_auto { format!("auto ({mib} MiB at the end)") } else { format!("{mib} MiB") }
    }
}

/// The summary: a line, and a second one if something would help.
fn show(collected: &Collected, run: &Run, is_alive: impl Fn(u32) -> bool) -> String {
    let mut all = Numbers::default();
    collected.ended.iter().for_each(|process| all.add(*process));
    let most = collected.ended.iter().map(|process| process.resident_peak).max().unwrap_or(0);
    used(collected, run, &all, most, is_alive) + &helps::line(collected, run, &all, most)
}

/// What the run has used, in one line.
fn used(
    collected: &Collected,
    run: &Run,
    all: &Numbers,
    most: u64,
    is_alive: impl Fn(u32) -> bool,
) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let is_one = collected.ended.len() == 1 && collected.others.is_empty();
    let (many, peak, each, at_most) = match run.peak_of_all {
        _ if is_one => ("1 process".to_owned(), most, "", ""),
        Some(peak) => {
            (format!("{} processes", collected.ended.len()), peak.max(most), " of all together", "at most ")
        }
        None => (format!("{} processes", collected.ended.len()), most, " each (the largest)", "at most "),
    };
    if all.paged == 0 && run.is_auto && !run.goes_unpaged {
        // The library does not count memory that it leaves to the kernel.
        return format!(
            "terapage: summary: {:.1} s, {many}; nothing was paged, since the data fit into free memory; \
             {at_most}{} MiB untracked{}\n",
            run.seconds,
            mib(all.untracked_peak),
            not_counted(collected, is_alive),
        );
    }
    if all.paged == 0 {
        let fits = !run.goes_unpaged && peak + all.untracked_peak <= run.budget;
        return format!(
            "terapage: summary: {:.1} s, {many}; nothing was paged{}: peak {} MiB in the budget of {}{each}, {at_most}{} MiB untracked{}\n",
            run.seconds,
            if fits { ", since the data fit" } else { "" },
            mib(peak),
            run.shown_budget(),
            mib(all.untracked_peak),
            not_counted(collected, is_alive),
        );
    }
    let seconds = |us: u64| us as f64 / 1e6;
    let share = all.waited_percent();
    format!(
        "terapage: summary: {:.1} s, {many}, {} paged{}; peak {} MiB in the budget of {}{each}, {at_most}{} MiB untracked; page-in {} MiB, \
         page-out {} MiB, blocks of {} KiB; threads worked {:.1} s and waited {:.1} s for memory ({share:.0}% of both): {:.1} s for {} major faults, \
         {:.1} s for {} minor faults and first touches, {:.1} s for {} requests{}{}\n",
        run.seconds,
        all.paged,
        if guard::is_on() { " without rights" } else { "" },
        mib(peak),
        run.shown_budget(),
        mib(all.untracked_peak),
        mib(all.bytes_in),
        mib(all.bytes_out),
        run.block >> 10,
        seconds(all.program_us),
        seconds(all.major_us + all.minor_us + all.request_us),
        seconds(all.major_us),
        all.major_faults,
        seconds(all.minor_us),
        all.minor_faults,
        seconds(all.request_us),
        all.requests,
        mapped(all.mapped),
        not_counted(collected, is_alive),
    )
}

/// The mapped files that were paged, in words.
fn mapped(bytes: u64) -> String {
    if bytes > 0 { format!("; {} MiB of mapped files were paged", bytes >> 20) } else { String::new() }
}

/// The processes that are not counted, in words.
fn not_counted(collected: &Collected, is_alive: impl Fn(u32) -> bool) -> String {
    let (alive, gone): (Vec<_>, Vec<_>) = collected.others.iter().partition(|(pid, _)| is_alive(*pid));
    let executed = gone.iter().filter(|(_, executed)| *executed).count();
    let mut text = String::new();
    for (count, what) in [
        (gone.len() - executed, "ended by a signal or without the C library"),
        (executed, "became a program without the library"),
        (alive.len(), "still running"),
    ] {
        if count > 0 {
            text += &format!("; {count} {what}, not counted");
        }
    }
    text
}

/// In a forked child: its waits are counted from zero, and a reader of standard error does not wait
/// for it.
pub fn in_child() {
    let kept = ERRORS.swap(-1, Relaxed);
    if kept >= 0 {
        // SAFETY: `keep_errors` kept it, and it has no user from now on. Dropping it closes it and
        // removes its note.
        drop(fd::Fd::keep(unsafe { OwnedFd::from_raw_fd(kept) }));
    }
    WINDOW.iter().for_each(|cell| cell.store(0, Relaxed));
    crate::signals::in_child();
    if is_asked() {
        append(BEGINS, "");
    }
}

/// The start of the window that is checked for thrashing: its time, ns; the waits and the work of
/// threads, us, and the bytes paged in until then.
static WINDOW: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static HINTED: AtomicBool = AtomicBool::new(false);

/// The length of that window.
const WINDOW_NS: u64 = 30_000_000_000;

/// Says once, on a terminal, that the program mostly waits.
pub fn watch(counters: &Counters) {
    let counters = counters.snapshot();
    let budget = counters.budget_bytes;
    let raise = if counters.budget_auto > 0 { "free memory" } else { "raise --memory" };
    let now = [thread::now_ns(), counters.waited_us(), counters.program_us, counters.page_in_bytes];
    let began = [0, 1, 2, 3].map(|at| WINDOW[at].load(Relaxed));
    if began[0] > 0 && now[0] - began[0] < WINDOW_NS {
        return;
    }
    WINDOW.iter().zip(now).for_each(|(cell, now)| cell.store(now, Relaxed));
    // SAFETY: no memory is touched.
    let is_terminal = || unsafe { libc::isatty(2) } == 1;
    let [_, waited_us, worked_us, bytes] = [0, 1, 2, 3].map(|at| now[at].saturating_sub(began[at]));
    if began[0] == 0
        || HINTED.load(Relaxed)
        || !thrashes(waited_us, worked_us, bytes, budget)
        || !is_terminal()
    {
        return;
    }
    let line = format!(
        "terapage: process {}: in the last 30 s its threads waited for memory {}% of the time in which they did anything, page-ins {} MiB: more \
         is in use than the budget of {} MiB holds ({raise}; terapage advise tells how far)\n",
        std::process::id(),
        waited_us * 100 / (waited_us + worked_us).max(1),
        bytes >> 20,
        budget >> 20
    );
    HINTED.store(untracked::say(&line), Relaxed);
}

/// Whether threads waited for a third of the window or more, and for nine tenths of the time in
/// which they did anything, and several times the budget was read.
fn thrashes(waited_us: u64, worked_us: u64, bytes: u64, budget: u64) -> bool {
    waited_us > WINDOW_NS / 3000 && waited_us > (waited_us + worked_us) / 10 * 9 && bytes > 3 * budget
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn numbers() -> Numbers {
        Numbers {
            paged: 1,
            resident_peak: 5 << 20,
            untracked_peak: 2 << 20,
            bytes_in: 3 << 20,
            bytes_out: 4 << 20,
            major_faults: 5,
            major_us: 1_000_000,
            minor_faults: 7,
            minor_us: 700_000,
            requests: 9,
            request_us: 300_000,
            program_us: 2_000_000,
            demand: 100,
            ahead: 90,
            ..Numbers::default()
        }
    }

    pub(super) fn run(peak_of_all: Option<u64>, block: u64) -> Run {
        Run { seconds: 4.0, budget: 64 << 20, is_auto: false, block, peak_of_all, goes_unpaged: false }
    }

    #[test]
    fn processes_add_up_and_those_without_numbers_are_counted() {
        let one = numbers();
        let text = format!(
            "b 1 \nb 10 \nb 11 \nbroken\nb 12 \nx 12 \nb 12 \ne 10 {}\nb 13 \nx 13 \nx 99 \ne 11 {}\nb 14 \n",
            one.to_text(),
            Numbers::default().to_text()
        );
        let collected = read(&text, 1);
        assert_eq!(collected.ended, [one, Numbers::default()]);
        let mut others = collected.others.clone();
        others.sort_unstable();
        assert_eq!(others, [(12, false), (13, true), (14, false)]);
        let shown = show(&collected, &run(Some(6 << 20), 16 << 10), |pid| pid == 14);
        assert!(shown.starts_with(
            "terapage: summary: 4.0 s, 2 processes, 1 paged; peak 6 MiB in the budget of 64 MiB of all together, at most 2 MiB untracked; page-in 3 MiB, \
             page-out 4 MiB, blocks of 16 KiB; threads worked 2.0 s and waited 2.0 s for memory (50% of both): 1.0 s for 5 major faults, 0.7 s for \
             7 minor faults and first touches, 0.3 s for 9 requests; 1 ended by a signal or without the C library, not counted; 1 became a program \
             without the library, not counted; 1 still running, not counted\n"
        ), "{shown}");
        let own = show(&collected, &run(None, 16 << 10), |_| true);
        assert!(own.contains("peak 5 MiB in the budget of 64 MiB each (the largest), at most"), "{own}");
    }

    #[test]
    fn a_program_that_was_not_paged_has_one_short_line() {
        let small = Numbers { resident_peak: 2 << 20, untracked_peak: 3 << 20, ..Numbers::default() };
        let shown = |all: Numbers, goes_unpaged| {
            let collected = Collected { ended: vec![all], ..Collected::default() };
            show(&collected, &Run { goes_unpaged, ..run(None, 16 << 10) }, |_| false)
        };
        let line = "terapage: summary: 4.0 s, 1 process; nothing was paged, since the data fit: peak 2 MiB in the budget of 64 MiB, 3 MiB untracked\n";
        assert_eq!(shown(small, false), line);
        for other in [shown(small, true), shown(Numbers { untracked_peak: 100 << 20, ..small }, false)] {
            assert!(other.contains("nothing was paged: peak 2 MiB") && other.lines().count() == 1, "{other}");
        }
        let collected = Collected { ended: vec![small], ..Collected::default() };
        let auto = show(&collected, &Run { is_auto: true, ..run(None, 16 << 10) }, |_| false);
        let line = "terapage: summary: 4.0 s, 1 process; nothing was paged, since the data fit into free memory; 3 MiB untracked\n";
        assert_eq!(auto, line);
    }

    #[test]
    fn thrashing_is_waiting_for_much() {
        assert!(thrashes(28_000_000, 2_000_000, 400, 100));
        assert!(!thrashes(26_000_000, 4_000_000, 400, 100));
        assert!(!thrashes(28_000_000, 2_000_000, 300, 100));
        assert!(!thrashes(2_000_000, 0, 400, 100), "it mostly sleeps");
    }
}
