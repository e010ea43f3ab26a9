//! The job: the budget that this process shares with all others of the run.
//!
//! `terapage run` hands on a table (`crates/lease`). A process that stays small is not in it. One
//! that grows takes a slot: first to have some more without a pager, then for its pager, whose
//! thread tells four times a second what the process has and wants, and hears what it may have.

use crate::{exit, process};
use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use terapage_lease::{File, Handed, Needs, Slot, Table, least_of};
use terapage_pager::{Share, Use};
use terapage_stats::Counters;
use terapage_sys::thread;

/// Each process may have this many bytes of its data without a lease: they are part of the 32 MiB
/// that each may have beside the budget.
pub const FREE_BYTES: usize = 16 << 20;

/// As much of what is beside the budget is part of these, too: the program's own data, its stacks,
/// the pager's tables. What is more is taken off the frames.
const BESIDE_BYTES: u64 = 16 << 20;

/// Who lacks frames asks for so many times what it has, and for this many bytes more.
const STEP_TIMES: u64 = 4;
const STEP_BYTES: u64 = 64 << 20;

/// A process that needs no more keeps one part in this many of its frames, and `SPARE_BYTES`, in
/// reserve.
const SPARE_PART: u64 = 8;
const SPARE_BYTES: u64 = 1 << 20;

/// A process that uses less than one part in this many of a processor does nothing.
const IDLE_PART: u64 = 50;
/// Ticks after which it counts as idle.
const IDLE_TICKS: u64 = 2;
/// Ticks for which a process that lacked frames counts as one that does.
const SHORT_TICKS: u64 = 4;
/// A process grows if it has more than one part in this many more than at the last tick.
const GROWTH_PART: u64 = 64;

/// The job, once the library has begun.
struct Job {
    handed: Handed,
    /// The process that `terapage run` became, which has the table, too.
    root: Option<u32>,
    table: Table<'static>,
    budget: u64,
}

static JOB: OnceLock<Job> = OnceLock::new();
/// There is a job, but its table was lost on the way: this process has the least.
static LOST: AtomicBool = AtomicBool::new(false);

/// The table's file in a description of this process's own, or -1.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// The slot of this process, plus 1; 0 for none.
static SLOT: AtomicUsize = AtomicUsize::new(0);
/// Some thread is at the table.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Bytes beside the budget that are to be taken off the frames.
static CLAIM: AtomicU64 = AtomicU64::new(0);
/// Bytes that were in use when paging began.
static BEGAN_WITH: AtomicU64 = AtomicU64::new(0);
/// What it may have, as heard last, bytes.
static ALLOWED: AtomicU64 = AtomicU64::new(0);

/// Begins. `handed` says where the table is, and `root` which process began the run.
pub fn begin(handed: Option<OsString>, root: Option<OsString>) {
    let Some(handed) = handed else { return };
    let number = |text: OsString| text.to_str().and_then(|text| text.parse().ok());
    let root = root.and_then(number);
    let Some(handed) = handed.to_str().and_then(|text| text.parse::<Handed>().ok()) else { return };
    let table = match handed.table() {
        Ok(table) => {
            handed.keep();
            Some(table)
        }
        // Somebody on the way has closed all descriptors.
        Err(_) => handed.open(root).ok().and_then(|file| {
            FILE.store(file.number(), SeqCst);
            file.table()
        }),
    };
    match table {
        Some(table) => {
            let budget = table.budget(handed.job());
            JOB.set(Job { handed, root, table, budget }).ok();
        }
        None => LOST.store(true, SeqCst),
    }
}

/// Whether the budget is shared with other processes.
pub fn is_shared() -> bool {
    JOB.get().is_some() || LOST.load(SeqCst)
}

/// Paging starts when more bytes than this are in use.
pub fn start_bytes(budget: usize) -> usize {
    if is_shared() { FREE_BYTES.min(budget / 2) } else { budget / 2 }
}

/// The source of a pager's budget, which begins with `in_use` bytes; `None` if it is its own.
pub fn share(in_use: usize) -> Option<&'static dyn Share> {
    if !is_shared() {
        return None;
    }
    BEGAN_WITH.store(in_use as u64, Relaxed);
    if LOST.load(SeqCst) {
        thread::say(&format!(
            "terapage: process {} has lost the table of the job's memory, since its descriptor was closed: its data have {} MiB (--per-process \
             needs no table)\n",
            std::process::id(),
            least(0) >> 20
        ));
    }
    Some(&Member)
}

/// The most of so many bytes that a process of the job can have: a job around it may have less.
pub fn most(bytes: u64) -> u64 {
    JOB.get().map_or(bytes, |job| bytes.min(job.budget))
}

/// The least that this process can work with, bytes, if `fixed` bytes are not frames.
fn least(fixed: u64) -> u64 {
    let budget =
        JOB.get().map_or_else(|| process::settings().map_or(0, |all| all.memory.0), |job| job.budget);
    least_of(budget, process::block() as u64) + fixed
}

/// Calls `use_it` with the table and this process's slot there, which it takes if it has none.
/// `None` if there is no slot, or if another thread is at the table.
fn at_table<R>(use_it: impl FnOnce(&'static Job, File, Slot) -> R) -> Option<R> {
    let job = JOB.get()?;
    // A child of vfork only borrows the memory.
    if !exit::is_owner() || BUSY.swap(true, SeqCst) {
        return None;
    }
    let found = join(job).map(|(file, slot)| use_it(job, file, slot));
    BUSY.store(false, SeqCst);
    found
}

fn join(job: &Job) -> Option<(File, Slot)> {
    let file = match FILE.load(SeqCst) {
        none if none < 0 => {
            let file = job.handed.open(job.root).ok()?;
            FILE.store(file.number(), SeqCst);
            file
        }
        number => File::from_number(number),
    };
    if let Some(slot) = SLOT.load(SeqCst).checked_sub(1) {
        return Some((file, Slot::from_number(slot)));
    }
    let slot = job.table.join(&file, job.handed.job(), std::process::id(), least(0))?;
    SLOT.store(slot.number() + 1, SeqCst);
    if job.table.is_too_small(job.handed.job()) {
        let all = job.table.overview(job.handed.job());
        thread::say(&format!(
            "terapage: --memory is {} MiB, less than the least that the {} processes of the job need, {} KiB each: it does not hold (raise it, or \
             start fewer)\n",
            all.budget >> 20,
            all.processes,
            least(0) >> 10
        ));
    }
    Some((file, slot))
}

/// Whether the process may have `in_use` bytes without a pager: then how many it may have before
/// it asks again.
pub fn unpaged(in_use: usize) -> Option<usize> {
    let lease = in_use + in_use / 4 + (4 << 20);
    let granted = at_table(|job, file, slot| job.table.take_unpaged(&file, slot, lease as u64))?;
    granted.then_some(lease)
}

/// Notes how much private memory is beside the budget, and how much a store keeps in memory.
pub fn claim(private: u64, packed: u64) {
    if !is_shared() {
        return;
    }
    let claim = private.saturating_sub(BESIDE_BYTES) + packed;
    CLAIM.store(claim, Relaxed);
    let is_paged = ALLOWED.load(Relaxed) > 0;
    if !is_paged && (claim > 0 || SLOT.load(SeqCst) > 0) {
        at_table(|job, _, slot| job.table.claim_unpaged(slot, claim));
    }
}

/// In the child of a fork, which has no slot yet: it takes one once it has lived for a while.
pub fn in_child() {
    BUSY.store(false, SeqCst);
    SLOT.store(0, SeqCst);
    let file = FILE.swap(-1, SeqCst);
    if file >= 0 {
        // The description is the parent's, and would keep its locks.
        File::from_number(file).close();
    }
    SEEN.iter().for_each(|cell| cell.store(0, Relaxed));
    FORKED.store(true, Relaxed);
}

/// Bytes after which the child of a fork that has no pager is to ask: what it has of its parent is
/// in no lease.
pub fn start_of_child(start_at: usize, in_use: usize) -> usize {
    if is_shared() && in_use > FREE_BYTES { start_at.min(in_use) } else { start_at }
}

/// This process, as one that shares the budget.
#[derive(Debug)]
struct Member;

/// What was seen at the last tick: the time, the processor time, blocks that came in, soft faults,
/// the wait for hard faults, first touches, the bytes that it had; ticks since the process did
/// anything, and since it lacked frames or had begun to use them; the gain, as the bits of an
/// `f64`.
static SEEN: [AtomicU64; 10] = [const { AtomicU64::new(0) }; 10];
const IDLE_FOR: usize = 7;
const FULL_FOR: usize = 8;
const GAIN: usize = 9;
/// The process began as the child of a fork.
static FORKED: AtomicBool = AtomicBool::new(false);

impl Share for Member {
    fn update(&self, use_: &Use) -> usize {
        if use_.tick {
            look(use_);
        } else if use_.short {
            SEEN[FULL_FOR].store(0, Relaxed);
        }
        let (held, fixed) = (use_.held as u64, use_.fixed as u64);
        let is_short = SEEN[FULL_FOR].load(Relaxed) < SHORT_TICKS;
        let began_with = if held == fixed { BEGAN_WITH.load(Relaxed) } else { 0 };
        let wants = match is_short {
            true => held.max(began_with) * STEP_TIMES + STEP_BYTES,
            false => held + held / SPARE_PART + SPARE_BYTES,
        };
        let needs = Needs {
            least: least(fixed),
            held,
            wants,
            claim: CLAIM.load(Relaxed),
            gain: f64::from_bits(SEEN[GAIN].load(Relaxed)),
            idle: SEEN[IDLE_FOR].load(Relaxed) >= IDLE_TICKS,
        };
        let said = at_table(|job, file, slot| {
            if use_.tick {
                let all = job.table.overview(job.handed.job());
                use_.counters.job.store(job.handed.file(), Relaxed);
                use_.counters.job_processes.store(all.processes, Relaxed);
            }
            job.table.update(&file, slot, &needs)
        });
        // If somebody else is at the table, what was heard last holds.
        let allowed = match said {
            Some(Some(allowed)) => allowed,
            Some(None) => ALLOWED.load(Relaxed).max(needs.least),
            None if SLOT.load(SeqCst) > 0 => ALLOWED.load(Relaxed).max(needs.least),
            None => needs.least,
        };
        ALLOWED.store(allowed, Relaxed);
        allowed as usize
    }
}

/// Sees what the process has done since the last tick.
fn look(use_: &Use) {
    let counters: &Counters = use_.counters;
    let get = |counter: &AtomicU64| counter.load(Relaxed);
    let came = get(&counters.hard_faults) + get(&counters.prefetched_blocks);
    let now = [
        thread::now_ns(),
        used_ns(),
        came,
        get(&counters.soft_faults),
        get(&counters.hard_wait_us),
        get(&counters.first_touches),
        use_.held as u64,
    ];
    let mut since = [0; 7];
    for ((cell, now), since) in SEEN.iter().zip(now).zip(&mut since) {
        let before = cell.swap(now, Relaxed);
        *since = if before > 0 { now.saturating_sub(before) } else { now };
    }
    let [passed_ns, ran_ns, came, soft, waited_us, first, grew] = since;
    if now[0] == passed_ns {
        // The first look. A program is paged because it grows. A forked child has all that its
        // parent had, and does not want more before it has lacked some.
        SEEN[IDLE_FOR].store(0, Relaxed);
        SEEN[FULL_FOR].store(if FORKED.load(Relaxed) { SHORT_TICKS } else { 0 }, Relaxed);
        return;
    }
    let works = ran_ns > passed_ns / IDLE_PART || came + first > 0;
    let count = |cell: &AtomicU64, anew: bool| {
        cell.store(if anew { 0 } else { cell.load(Relaxed).saturating_add(1) }, Relaxed);
    };
    count(&SEEN[IDLE_FOR], works);
    // Who has been given frames takes a while to fill them, and lacks none meanwhile.
    let grows = grew > now[6] / GROWTH_PART;
    count(&SEEN[FULL_FOR], (use_.short || grows) && came + first > 0);
    let gain = gain_of(passed_ns, came, soft, waited_us, use_.soft);
    let old = f64::from_bits(SEEN[GAIN].load(Relaxed));
    // It rises fast. It falls slowly: a process that has what it needs has no faults that tell.
    let weight = if gain > old { 0.5 } else { 0.05 };
    SEEN[GAIN].store((old + (gain - old) * weight).to_bits(), Relaxed);
}

/// What a MiB more would save: the share of the time that threads wait for blocks, times the part
/// of these blocks that would have been there still. Soft blocks are the next to go, so touches of
/// these are what a process of so many frames less would have waited for.
fn gain_of(passed_ns: u64, came: u64, soft: u64, waited_us: u64, soft_bytes: usize) -> f64 {
    let faults = (came + soft) as f64;
    if faults == 0.0 {
        return 0.0;
    }
    let waits = (waited_us as f64 * 1000.0 / passed_ns.max(1) as f64).min(1.0);
    let soft_mib = soft_bytes.max(1 << 16) as f64 / f64::from(1 << 20);
    waits * soft as f64 / faults / soft_mib
}

/// The processor time of the process, without that of the pager's thread, which calls this.
fn used_ns() -> u64 {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `used` has room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    let all = used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64;
    all.saturating_sub(thread::used_ns())
}

/// The job's number, and how many of its processes have a lease; zeros if there is none.
pub fn numbers() -> (u64, u64) {
    let of = |job: &Job| (job.handed.file(), job.table.overview(job.handed.job()).processes);
    JOB.get().map_or((0, 0), of)
}

#[cfg(test)]
mod tests {
    use super::gain_of;

    #[test]
    fn a_scan_saves_nothing_and_random_touches_do() {
        let second = 1_000_000_000;
        assert_eq!(gain_of(second, 10_000, 0, 900_000, 16 << 20), 0.0);
        assert_eq!(gain_of(second, 0, 0, 0, 16 << 20), 0.0);
        let random = gain_of(second, 5000, 500, 900_000, 16 << 20);
        assert!(random > gain_of(second, 5000, 100, 900_000, 16 << 20));
        assert!(random > gain_of(second, 5000, 500, 100_000, 16 << 20), "who does not wait saves little");
    }
}
