//! The job: the budget that this process shares with all others of the run.
//!
//! `terapage run` passes on a table (`crates/core/lease`). A process that stays small is not in the
//! table. A process that grows takes a slot: first to have more memory without a pager, then for
//! its pager. Four times a second the pager's thread reports what the process has and wants, and
//! receives what it may have.

use crate::machine::{self, Known};
use crate::{exit, setup};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use terapage_lease::{File, Inherited, Needs, STEP_LEAST, Slot, Table, least_of};
use terapage_pager::{Share, Use};
use terapage_policy::frame_need::FrameNeed;
use terapage_sys::thread;

/// Each process may have this many bytes of its data without a lease: they are part of the 32 MiB
/// of untracked memory that each may have.
pub const FREE_BYTES: usize = 16 << 20;

/// The same amount of untracked memory is also part of these 32 MiB: the program's own data, its
/// stacks, the pager's tables. Any excess is subtracted from the frames.
const UNTRACKED_BYTES: u64 = 16 << 20;

/// The job, once the library has begun.
struct Job {
    inherited: Inherited,
    /// The process that `terapage run` became, which has the table, too.
    root: Option<u32>,
    table: Table<'static>,
    /// The most that the budget can be.
    ceiling: u64,
}

static JOB: OnceLock<Job> = OnceLock::new();
/// There is a job, but its table was lost on the way: this process has the minimum.
static LOST: AtomicBool = AtomicBool::new(false);

/// The table's file in a description of this process's own, or -1.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// The slot of this process, plus 1; 0 for none.
static SLOT: AtomicUsize = AtomicUsize::new(0);
/// This process was released, and belongs to the job no longer.
static LEFT: AtomicBool = AtomicBool::new(false);
/// Some thread is at the table.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Untracked bytes that are subtracted from the frames.
static CLAIM: AtomicU64 = AtomicU64::new(0);
/// Bytes that were in use when paging began.
static BEGAN_WITH: AtomicU64 = AtomicU64::new(0);
/// The part of them that was leased, if the budget follows the machine, and when paging began. It
/// counts as resident until the pager has adopted what is there.
static BEGAN_LEASED: AtomicU64 = AtomicU64::new(0);
static BEGAN_NS: AtomicU64 = AtomicU64::new(0);
/// Adopting takes less time than this.
const ADOPTING_NS: u64 = 1_000_000_000;

/// The bytes that the process may have, as last read.
static ALLOWED: AtomicU64 = AtomicU64::new(0);

/// Begins. `inherited` says where the table is, and `root` which process began the run.
pub fn begin(inherited: Option<OsString>, root: Option<OsString>) {
    let Some(inherited) = inherited else { return };
    let number = |text: OsString| text.to_str().and_then(|text| text.parse().ok());
    let root = root.and_then(number);
    let Some(inherited) = inherited.to_str().and_then(|text| text.parse::<Inherited>().ok()) else { return };
    let table = match inherited.table() {
        Ok(table) => {
            inherited.keep();
            Some(table)
        }
        // Somebody on the way has closed all descriptors.
        Err(_) => inherited.open(root).ok().and_then(|file| {
            FILE.store(file.number(), SeqCst);
            file.table()
        }),
    };
    match table {
        Some(table) => {
            let ceiling = table.ceiling(inherited.job());
            JOB.set(Job { inherited, root, table, ceiling }).ok();
        }
        None => LOST.store(true, SeqCst),
    }
}

/// The job that this process belongs to.
fn job() -> Option<&'static Job> {
    JOB.get().filter(|_| !LEFT.load(SeqCst))
}

/// Whether the budget is shared with other processes.
pub fn is_shared() -> bool {
    job().is_some() || LOST.load(SeqCst)
}

/// Gives this process's slot and its lease back for good: the process was released, and so was its
/// memory. Children that it forks later are in no job either. The table stays open, since earlier
/// children may need it.
pub fn leave() {
    let Some(job) = job() else { return };
    // Another thread may be at the table, for a moment.
    while BUSY.swap(true, SeqCst) {
        std::thread::yield_now();
    }
    LEFT.store(true, SeqCst);
    job.inherited.withhold();
    let (file, slot) = (FILE.swap(-1, SeqCst), SLOT.swap(0, SeqCst));
    if file >= 0 {
        let file = File::from_number(file);
        if let Some(slot) = slot.checked_sub(1) {
            job.table.leave(&file, Slot::from_number(slot));
        }
        file.close();
    }
    BUSY.store(false, SeqCst);
}

/// Paging starts when more bytes than this are in use.
pub fn start_bytes(budget: usize) -> usize {
    if is_shared() { FREE_BYTES.min(budget / 2) } else { budget / 2 }
}

/// The source of a pager's budget, which begins with `in_use` bytes; `None` if the budget is not
/// shared.
pub fn share(in_use: usize) -> Option<&'static dyn Share> {
    if !is_shared() {
        return None;
    }
    BEGAN_WITH.store(in_use as u64, Relaxed);
    BEGAN_NS.store(thread::now_ns(), Relaxed);
    if job().is_some_and(|job| job.table.is_auto()) {
        // As much of it as the process had a lease for was counted until now.
        let leased = at_table(|job, _, slot| job.table.lease(slot)).unwrap_or(0);
        BEGAN_LEASED.store(leased.min(in_use as u64), Relaxed);
    }
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

/// The part of `bytes` that a process of the job can have: an outer job may have less.
pub fn most(bytes: u64) -> u64 {
    job().map_or(bytes, |job| bytes.min(job.ceiling))
}

/// The budget that is in force, if it follows the machine, and has been computed.
pub fn in_force() -> Option<u64> {
    Some(IN_FORCE.load(Relaxed)).filter(|&bytes| bytes > 0)
}

/// The least that this process can work with, bytes, if `fixed` bytes are not frames.
fn least(fixed: u64) -> u64 {
    let budget =
        job().map_or_else(|| setup::settings().map_or(0, |all| all.memory.size.0), |job| job.ceiling);
    least_of(budget, setup::block() as u64) + fixed
}

/// Calls `use_it` with the table and this process's slot there, which it takes if it has none.
/// `None` if there is no slot, or if another thread uses the table.
fn at_table<R>(use_it: impl FnOnce(&'static Job, File, Slot) -> R) -> Option<R> {
    JOB.get()?;
    // A child of vfork only borrows the memory.
    if !exit::is_owner() || BUSY.swap(true, SeqCst) {
        return None;
    }
    // Asked only now: the process may have left the job meanwhile.
    let joined = job().and_then(|job| Some((job, join(job)?)));
    let found = joined.map(|(job, (file, slot))| use_it(job, file, slot));
    BUSY.store(false, SeqCst);
    found
}

fn join(job: &Job) -> Option<(File, Slot)> {
    let file = match FILE.load(SeqCst) {
        none if none < 0 => {
            let file = job.inherited.open(job.root).ok()?;
            FILE.store(file.number(), SeqCst);
            file
        }
        number => File::from_number(number),
    };
    if let Some(slot) = SLOT.load(SeqCst).checked_sub(1) {
        return Some((file, Slot::from_number(slot)));
    }
    let slot = job.table.join(&file, job.inherited.job(), std::process::id(), least(0))?;
    SLOT.store(slot.number() + 1, SeqCst);
    if job.table.is_too_small(job.inherited.job()) {
        let all = job.table.overview(job.inherited.job());
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

/// Whether the process may have `in_use` bytes without a pager: if so, returns the number of bytes
/// at which it must ask again.
pub fn unpaged(in_use: usize) -> Option<usize> {
    let lease = in_use + in_use / 4 + (4 << 20);
    let granted = at_table(|job, file, slot| {
        machine::look(&job.table, None, 0);
        job.table.take_unpaged(&file, slot, lease as u64)
    })?;
    granted.then_some(lease)
}

/// Notes the amount of untracked private memory, and the memory of a store.
pub fn claim(private: u64, packed: u64) {
    if !is_shared() {
        return;
    }
    let claim = private.saturating_sub(UNTRACKED_BYTES) + packed;
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
    SHARED_NS.store(0, Relaxed);
    let file = FILE.swap(-1, SeqCst);
    if file >= 0 {
        // The file description is the parent's, and would keep its locks.
        File::from_number(file).close();
    }
    *frame_need() = FrameNeed::of_child();
}

/// Bytes after which a forked child without a pager must ask: the memory from its parent is in no
/// lease.
pub fn start_of_child(start_at: usize, in_use: usize) -> usize {
    if is_shared() && in_use > FREE_BYTES { start_at.min(in_use) } else { start_at }
}

/// This process as a member of the job.
#[derive(Debug)]
struct Member;

/// What the process wants. Only the pager's thread uses it.
static FRAME_NEED: Mutex<FrameNeed> = Mutex::new(FrameNeed::new());

/// If another process holds the table's lock, a process that is about to page out tries again so
/// many times, after a millisecond: the holder needs the lock for microseconds, unless it is
/// stopped.
const LOCK_TRIES: u32 = 3;

/// When this process had the table's lock last, ns; 0 for never.
static SHARED_NS: AtomicU64 = AtomicU64::new(0);
/// If that was longer ago than this, whoever holds the lock is stopped, and this process gives
/// memory back without it.
const STUCK_NS: u64 = 500_000_000;

fn is_stuck(now_ns: u64) -> bool {
    let shared_ns = SHARED_NS.load(Relaxed);
    shared_ns > 0 && now_ns.saturating_sub(shared_ns) > STUCK_NS
}

/// The budget of the job at the last tick, if it follows the machine; 0 before.
static IN_FORCE: AtomicU64 = AtomicU64::new(0);

/// What is known of the machine. Only the pager's thread uses it.
static KNOWN: Mutex<Known> = Mutex::new(Known::new());

fn frame_need() -> MutexGuard<'static, FrameNeed> {
    FRAME_NEED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Share for Member {
    fn update(&self, use_: &Use) -> usize {
        let mut frame_need = frame_need();
        if use_.tick {
            frame_need.look(use_.done(used_ns()), use_.short, use_.soft);
        } else if use_.short {
            frame_need.lacks();
        }
        let (resident, fixed) = (use_.resident as u64, use_.fixed as u64);
        let began_with = if resident == fixed { BEGAN_WITH.load(Relaxed) } else { 0 };
        let wants = if frame_need.is_short() { resident.max(began_with) } else { resident };
        let needs = Needs {
            least: least(fixed),
            held: use_.pinned as u64,
            wished: use_.wished as u64,
            wished_ns: use_.wished_ns,
            now_ns: thread::now_ns(),
            resident: resident.max(being_adopted()),
            wants: frame_need.wants(wants),
            claim: CLAIM.load(Relaxed),
            gain: frame_need.gain(),
            idle: frame_need.is_idle(),
        };
        // What the process may have until it is at the table again.
        let before = || ALLOWED.load(Relaxed).max(step_without_table(needs.resident));
        let said = at_table(|job, file, slot| {
            // The look is judged by what this process has now.
            job.table.report(slot, &needs);
            let pause_ns = if use_.at_once { 0 } else { machine::PAUSE_NS };
            machine::look(&job.table, KNOWN.try_lock().ok().as_deref_mut(), pause_ns);
            if use_.tick {
                let all = job.table.overview(job.inherited.job());
                if job.table.is_auto() {
                    IN_FORCE.store(all.budget, Relaxed);
                    use_.counters.budget_bytes.store(all.budget, Relaxed);
                    let is_auto = job.table.is_auto_for(job.inherited.job());
                    use_.counters.budget_auto.store(is_auto.into(), Relaxed);
                }
                use_.counters.job.store(job.inherited.file(), Relaxed);
                use_.counters.job_processes.store(all.processes, Relaxed);
            }
            let share = || job.table.share(&file, slot, &needs);
            // The pager would page out now, although there may be memory.
            let tries = if use_.at_once && job.table.is_auto() { LOCK_TRIES } else { 0 };
            let again = |_| {
                thread::sleep_ms(1);
                share()
            };
            let shared = share().or_else(|| (0..tries).find_map(again));
            if shared.is_some() {
                SHARED_NS.store(needs.now_ns, Relaxed);
            }
            let without_lock = || before().min(job.table.share_without_lock(slot, &needs));
            shared.or_else(|| is_stuck(needs.now_ns).then(without_lock))
        });
        // If another process uses the table, the value read last remains valid.
        let allowed = match said {
            Some(Some(allowed)) => allowed,
            None if SLOT.load(SeqCst) == 0 => needs.least + needs.held,
            _ => before().max(needs.least + needs.held),
        };
        ALLOWED.store(allowed, Relaxed);
        allowed as usize
    }

    fn is_auto(&self) -> bool {
        job().is_some_and(|job| job.table.is_auto())
    }

    fn grows(&self) -> bool {
        job().is_some_and(|job| job.table.grows())
    }

    fn is_near(&self) -> bool {
        job().is_some_and(|job| job.table.is_auto() && job.table.is_near())
    }
}

/// The bytes that a process with these resident ones may have while another uses the table. If
/// there was memory for more at the last look, that is a step more, so that nothing is paged
/// out only because the table is in use.
fn step_without_table(resident: u64) -> u64 {
    match job().filter(|job| job.table.grows()) {
        Some(job) => (resident + STEP_LEAST).min(job.ceiling),
        None => 0,
    }
}

/// Bytes that the pager is about to adopt.
fn being_adopted() -> u64 {
    match BEGAN_LEASED.load(Relaxed) {
        0 => 0,
        _ if thread::now_ns().saturating_sub(BEGAN_NS.load(Relaxed)) > ADOPTING_NS => {
            BEGAN_LEASED.store(0, Relaxed);
            0
        }
        bytes => bytes,
    }
}

/// The processor time of the process, without that of the pager's thread, which calls this.
fn used_ns() -> u64 {
    thread::used_by_all_ns().saturating_sub(thread::used_ns())
}

/// The peak of the memory of all processes of the job together; `None` if there is no job.
pub fn peak() -> Option<u64> {
    job().map(|job| job.table.peak(job.inherited.job()))
}

/// The budget of the job now, if it follows the machine.
pub fn auto_budget() -> Option<u64> {
    let job = job().filter(|job| job.table.is_auto_for(job.inherited.job()))?;
    Some(job.table.budget(job.inherited.job()))
}

/// The job's number, and the number of its processes that have a lease; zeros if there is none.
pub fn numbers() -> (u64, u64) {
    let of = |job: &Job| (job.inherited.file(), job.table.overview(job.inherited.job()).processes);
    job().map_or((0, 0), of)
}
