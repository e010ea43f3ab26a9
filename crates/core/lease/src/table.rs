//! The table.
//!
//! Every number is a separate word, and each word has one writer at a time: a slot's owner, or the
//! holder of the table's lock.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use terapage_policy::elastic::{self, Held, Level};
use terapage_policy::shares::{Bound, Claimant, is_within, next_lease, shares};

/// "TERAJOB" and the layout's version.
const MAGIC: u64 = u64::from_le_bytes(*b"TERAJOB\x06");

/// The number of processes that can have a slot at the same time.
pub const SLOTS: usize = 1000;
/// The number of jobs, including those inside others.
pub const JOBS: usize = 32;

/// Words at the start: the magic number, whether a process has reported that the budget is too
/// small, and those of a budget that follows the machine.
const HEAD: usize = 9;
const HEAD_SAID: usize = 1;
/// The most that the first job's budget can be, if the budget follows the machine; else 0.
const HEAD_CEILING: usize = 2;
/// When a process last looked at the machine, ns.
const HEAD_LOOKED: usize = 3;
/// Bits: whether memory was nearly short then, and whether there was memory for more.
const HEAD_FOUND: usize = 4;
const NEAR: u64 = 1;
const GROWS: u64 = 2;
/// The caution (see [`elastic`]), when it was judged last, ns, the time that tasks had waited for
/// memory until then, us, and the number of the level that this was about.
const HEAD_CAUTION: usize = 5;
const HEAD_JUDGED: usize = 6;
const HEAD_STALLED: usize = 7;
const HEAD_LEVEL: usize = 8;
/// The least time between two judgements: in a shorter one a single wait would seem long.
const JUDGE_NS: u64 = 20_000_000;
/// Words of a job: its budget, 0 if there is no job; the number of the outer job, plus 1; the peak
/// of the memory of all its processes together.
const JOB: usize = 3;
/// Words of a slot.
const SLOT: usize = 12;

const WORDS: usize = HEAD + JOBS * JOB + SLOTS * SLOT;
/// Bytes of the table.
pub const TABLE_BYTES: usize = (WORDS * 8).next_multiple_of(4096);

/// The words of a slot, in order.
#[derive(Clone, Copy)]
enum Word {
    /// The process, by the number that it has for itself; 0: no process.
    Pid,
    Job,
    /// The bytes that the process may have, apart from `Claim`.
    Lease,
    /// Bytes that the process has beside the lease, and cannot return.
    Claim,
    Least,
    Resident,
    Wants,
    /// The bits of an `f64`.
    Gain,
    /// Bits: [`IDLE`], [`UNPAGED`].
    Flags,
    /// The least that the process would need for what waits for it, and since when, ns.
    Wished,
    WishedNs,
    /// When the process last reported, ns.
    ReportedNs,
}

const IDLE: u64 = 1;
/// The process has no pager, and returns nothing before its end.
const UNPAGED: u64 = 2;

/// A process that has not reported for this time is stopped (SIGSTOP), or finds no processor: the
/// others do not wait with it for what it wishes, and it returns nothing. (A process reports four
/// times a second.)
const STOPPED_NS: u64 = 5_000_000_000;

/// The byte of the file whose lock protects the table.
const TABLE_BYTE: u64 = 1 << 20;
/// The byte of the first job; those of slots begin at 0.
const JOB_BYTE: u64 = 1 << 16;

/// Processes without a pager have together the budget divided by this, since they cannot be made to
/// return it.
const UNPAGED_PART: u64 = 8;

/// The least of a process, bytes, if the budget is large.
const LEAST: u64 = 4 << 20;
/// The minimum in a small budget is the budget divided by this.
const LEAST_PART: u64 = 8;
/// But the minimum is at least this number of blocks.
const LEAST_BLOCKS: u64 = 8;

/// The least that a process can work with, in bytes: in a job with this budget, in blocks of this
/// size.
pub fn least_of(budget: u64, block: u64) -> u64 {
    LEAST.min(budget / LEAST_PART).max(LEAST_BLOCKS * block)
}

/// Locks on bytes of the table's file, which end with the process that holds them.
pub trait Locks {
    /// Locks a byte, if no other process holds its lock.
    fn take(&self, byte: u64) -> bool;
    /// Gives a lock back.
    fn give(&self, byte: u64);
    /// Whether no other process holds the lock.
    fn is_free(&self, byte: u64) -> bool;
}

/// What a process reports about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Needs {
    /// The minimum that the process needs.
    pub least: u64,
    /// The part of its lease that is in memory.
    pub resident: u64,
    /// The memory that it would use.
    pub wants: u64,
    /// The memory that it has beside its lease.
    pub claim: u64,
    /// What it needs besides for a while, as it cannot return that.
    pub held: u64,
    /// The minimum that the process would need for something that waits for it; 0 for nothing.
    pub wished: u64,
    /// Since when that has waited, ns.
    pub wished_ns: u64,
    /// The time of the report, ns.
    pub now_ns: u64,
    /// What more memory would save: see [`Claimant::gain`].
    pub gain: f64,
    /// It does nothing.
    pub idle: bool,
}

/// A process's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

impl Slot {
    /// The number of the slot.
    pub fn number(self) -> usize {
        self.0
    }

    /// The slot with this number, which the calling process has taken.
    ///
    /// # Panics
    /// There is none.
    pub fn from_number(number: usize) -> Slot {
        assert!(number < SLOTS);
        Slot(number)
    }
}

/// Totals of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Its budget, bytes; that of the outer job, if that is less.
    pub budget: u64,
    /// Processes that have a slot.
    pub processes: u64,
    /// Bytes of its processes' leases.
    pub leased: u64,
    /// Bytes that its processes have beside their leases.
    pub claimed: u64,
}

/// A slot that is in use.
struct Used {
    slot: usize,
    lease: u64,
    claim: u64,
    unpaged: bool,
    /// The least that the process would need, and since when, ns.
    wished: (u64, u64),
    reported_ns: u64,
    claimant: Claimant,
}

/// The table of a job, and this process's access to its locks.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Table<'a> {
    /// A new table, in words that are zero, for a job with this budget, bytes.
    ///
    /// # Panics
    /// There are too few words.
    pub fn begin(words: &'a [AtomicU64], budget: u64) -> Table<'a> {
        assert!(words.len() >= WORDS, "a table takes more");
        let table = Table { words };
        table.job(0)[0].store(budget, SeqCst);
        words[0].store(MAGIC, SeqCst);
        table
    }

    /// From now on the first job's budget follows the machine. The budget until now is the most
    /// that it can be.
    pub fn follow_machine(&self) {
        self.words[HEAD_CEILING].store(self.job(0)[0].load(SeqCst), SeqCst);
    }

    /// Whether the first job's budget follows the machine.
    pub fn is_auto(&self) -> bool {
        self.words[HEAD_CEILING].load(SeqCst) > 0
    }

    /// Whether this job has the budget that follows the machine; an inner job has one of its own.
    pub fn is_auto_for(&self, job: usize) -> bool {
        job == 0 && self.is_auto()
    }

    /// Whether memory was nearly short when a process last looked.
    pub fn is_near(&self) -> bool {
        self.words[HEAD_FOUND].load(SeqCst) & NEAR != 0
    }

    /// Whether there was memory for more then, so that nothing needs to be paged out.
    pub fn grows(&self) -> bool {
        self.is_auto() && self.words[HEAD_FOUND].load(SeqCst) & GROWS != 0
    }

    /// Whether the budget follows the machine, and nobody has looked at that for `pause_ns`: then
    /// the caller looks, and [reports](Self::look). `now_ns` is the time.
    pub fn is_due(&self, now_ns: u64, pause_ns: u64) -> bool {
        let looked = self.words[HEAD_LOOKED].load(SeqCst);
        self.is_auto() && !(looked..looked.saturating_add(pause_ns)).contains(&now_ns)
    }

    /// Sets the budget by what the machine has now. If two processes look at once, the budget of
    /// one of them remains.
    ///
    /// Without levels, which means that nothing could be read, the budget stays as it is.
    pub fn look(&self, levels: &[Level], now_ns: u64) {
        let looked = self.words[HEAD_LOOKED].swap(now_ns, SeqCst) > 0;
        if levels.is_empty() && looked {
            return self.words[HEAD_FOUND].store(NEAR, SeqCst);
        }
        let mut held = Held { ceiling: self.words[HEAD_CEILING].load(SeqCst), ..Held::default() };
        for used in self.used() {
            held.frames += used.claimant.resident;
            held.fixed += used.claim;
        }
        let before = self.caution();
        if let Some(tightest) = elastic::tightest(levels, &held, before) {
            self.judge(tightest, levels[tightest].stalled_us, now_ns);
        }
        let verdict = elastic::decide(levels, &held, self.caution());
        let bit = |is: bool, bit| if is { bit } else { 0 };
        self.words[HEAD_FOUND].store(bit(verdict.near, NEAR) | bit(verdict.grows, GROWS), SeqCst);
        self.job(0)[0].store(verdict.budget.max(1), SeqCst);
    }

    fn caution(&self) -> u64 {
        self.words[HEAD_CAUTION].load(SeqCst).max(elastic::CALM)
    }

    /// Adjusts the caution by how long tasks of the tightest level have waited for memory.
    fn judge(&self, level: usize, stalled_us: u64, now_ns: u64) {
        let [judged, stalled, about] = [HEAD_JUDGED, HEAD_STALLED, HEAD_LEVEL].map(|word| &self.words[word]);
        let passed_ns = now_ns.saturating_sub(judged.load(SeqCst));
        if passed_ns >= JUDGE_NS {
            let waited_ns = stalled_us.saturating_sub(stalled.swap(stalled_us, SeqCst)) * 1000;
            let is_first = judged.swap(now_ns, SeqCst) == 0;
            let is_other = about.swap(level as u64, SeqCst) != level as u64;
            let share = if is_first || is_other { 0.0 } else { waited_ns as f64 / passed_ns as f64 };
            self.words[HEAD_CAUTION].store(elastic::caution(self.caution(), share), SeqCst);
        }
    }

    /// The table in these words; `None` if there is none, or if it has another version.
    pub fn of(words: &'a [AtomicU64]) -> Option<Table<'a>> {
        (words.len() >= WORDS && words[0].load(SeqCst) == MAGIC).then_some(Table { words })
    }

    fn job(&self, job: usize) -> &'a [AtomicU64] {
        &self.words[HEAD + job * JOB..][..JOB]
    }

    fn word(&self, slot: usize, word: Word) -> &'a AtomicU64 {
        &self.words[HEAD + JOBS * JOB + slot * SLOT + word as usize]
    }

    fn get(&self, slot: usize, word: Word) -> u64 {
        self.word(slot, word).load(SeqCst)
    }

    fn set(&self, slot: usize, word: Word, value: u64) {
        self.word(slot, word).store(value, SeqCst);
    }

    /// The budgets of the jobs.
    fn bounds(&self) -> Vec<Bound> {
        let bound = |job: usize| {
            let [bytes, around] = [0, 1].map(|at| self.job(job)[at].load(SeqCst));
            let parent = (around as usize).checked_sub(1).filter(|&parent| parent < job);
            Bound { bytes, parent: if job == 0 { None } else { parent.or(Some(0)) } }
        };
        let last = (1..JOBS).rev().find(|&job| self.job(job)[0].load(SeqCst) > 0).unwrap_or(0);
        (0..=last).map(bound).collect()
    }

    /// The budget of a job, bytes: the minimum of its own and those of outer jobs. 0 if there is no
    /// such job.
    pub fn budget(&self, job: usize) -> u64 {
        Self::least_bound(&self.bounds(), job)
    }

    /// The most that the budget of a job can be, bytes.
    pub fn ceiling(&self, job: usize) -> u64 {
        let mut bounds = self.bounds();
        if self.is_auto() {
            bounds[0].bytes = self.words[HEAD_CEILING].load(SeqCst);
        }
        Self::least_bound(&bounds, job)
    }

    fn least_bound(bounds: &[Bound], job: usize) -> u64 {
        let around = |&other: &usize| is_within(bounds, job, other);
        (0..bounds.len()).filter(around).map(|job| bounds[job].bytes).min().unwrap_or(0)
    }

    fn used(&self) -> Vec<Used> {
        let used = |slot: usize| {
            let get = |word| self.get(slot, word);
            let flags = get(Word::Flags);
            let (idle, unpaged) = (flags & IDLE != 0, flags & UNPAGED != 0);
            let (lease, resident) = (get(Word::Lease), get(Word::Resident));
            // A process without a pager keeps what it has.
            let (least, wants) = if unpaged { (lease, lease) } else { (get(Word::Least), get(Word::Wants)) };
            let gain = Some(f64::from_bits(get(Word::Gain))).filter(|gain| *gain >= 0.0 && gain.is_finite());
            let job = get(Word::Job) as usize % JOBS;
            let claimant = Claimant { job, least, resident, wants, gain: gain.unwrap_or(0.0), idle };
            let wished = if unpaged { (0, 0) } else { (get(Word::Wished), get(Word::WishedNs)) };
            let (claim, reported_ns) = (get(Word::Claim), get(Word::ReportedNs));
            Used { slot, lease, claim, unpaged, wished, reported_ns, claimant }
        };
        (0..SLOTS).filter(|&slot| self.get(slot, Word::Pid) != 0).map(used).collect()
    }

    /// Takes a slot for the calling process, in a job; `None` if all are in use. The lock of the
    /// slot proves that the process lives.
    pub fn join(&self, locks: &impl Locks, job: usize, pid: u32, least: u64) -> Option<Slot> {
        let take = |&slot: &usize| locks.is_free(slot as u64) && locks.take(slot as u64);
        let slot = (0..SLOTS).find(take)?;
        self.clear(slot);
        self.set(slot, Word::Job, job as u64);
        for word in [Word::Least, Word::Lease, Word::Wants] {
            self.set(slot, word, least);
        }
        self.set(slot, Word::Pid, pid.max(1).into());
        Some(Slot(slot))
    }

    /// Gives a process's slot back, while the process goes on: what it leased is free from now on.
    pub fn leave(&self, locks: &impl Locks, own: Slot) {
        self.clear(own.0);
        locks.give(own.0 as u64);
    }

    fn clear(&self, slot: usize) {
        (0..SLOT).for_each(|word| self.words[HEAD + JOBS * JOB + slot * SLOT + word].store(0, SeqCst));
    }

    /// The bytes that a process may have, as last computed.
    pub fn lease(&self, own: Slot) -> u64 {
        self.get(own.0, Word::Lease)
    }

    /// Clears the slots of processes that have ended.
    fn reap(&self, locks: &impl Locks, own: Slot) {
        for slot in (0..SLOTS).filter(|&slot| slot != own.0 && self.get(slot, Word::Pid) != 0) {
            let byte = slot as u64;
            if locks.is_free(byte) && locks.take(byte) {
                self.clear(slot);
                locks.give(byte);
            }
        }
    }

    /// Notes what a process needs.
    pub fn report(&self, own: Slot, needs: &Needs) {
        let set = |word, value| self.set(own.0, word, value);
        set(Word::Claim, needs.claim);
        set(Word::Least, needs.least);
        set(Word::Resident, needs.resident);
        set(Word::Wants, needs.wants);
        set(Word::ReportedNs, needs.now_ns);
        set(Word::WishedNs, needs.wished_ns);
        set(Word::Wished, needs.wished);
        set(Word::Gain, needs.gain.to_bits());
        set(Word::Flags, if needs.idle { IDLE } else { 0 });
        if needs.resident > self.get(own.0, Word::Lease) {
            // The slot had the value of a fork's parent, or the value from before the process had a
            // pager.
            set(Word::Lease, needs.resident);
        }
    }

    /// Computes the share of a process that has [reported](Self::report) its needs. Returns the
    /// bytes that it may have: from now on it takes no more, and returns any excess. `None` if
    /// another process is computing: the previous result remains valid.
    pub fn share(&self, locks: &impl Locks, own: Slot, needs: &Needs) -> Option<u64> {
        if !locks.take(TABLE_BYTE) {
            return None;
        }
        self.reap(locks, own);
        self.note_peaks(self.get(own.0, Word::Job) as usize);
        let allowed = self.share_without_lock(own, needs);
        // Memory that the process still has is not free, until it reports less.
        self.set(own.0, Word::Lease, allowed.max(needs.resident));
        locks.give(TABLE_BYTE);
        Some(allowed)
    }

    /// Computes the share of a process without the lock, if whoever holds the lock is stopped. The
    /// table does not change, so the process may use the share only to return memory.
    pub fn share_without_lock(&self, own: Slot, needs: &Needs) -> u64 {
        self.reckon(own, needs).max(needs.least + needs.held)
    }

    /// Notes how much memory the processes of a job, and of its outer jobs, have together.
    fn note_peaks(&self, job: usize) {
        let (bounds, used) = (self.bounds(), self.used());
        for outer in (0..bounds.len()).filter(|&outer| is_within(&bounds, job, outer)) {
            let members = used.iter().filter(|used| is_within(&bounds, used.claimant.job, outer));
            self.job(outer)[2].fetch_max(members.map(|used| used.claimant.resident).sum(), SeqCst);
        }
    }

    /// The peak of the memory of the processes of a job and of its inner jobs together, by their
    /// reports.
    pub fn peak(&self, job: usize) -> u64 {
        self.job(job)[2].load(SeqCst)
    }

    fn reckon(&self, own: Slot, needs: &Needs) -> u64 {
        let mut used = self.used();
        let is_stopped =
            |one: &&mut Used| one.slot != own.0 && needs.now_ns.saturating_sub(one.reported_ns) > STOPPED_NS;
        for one in used.iter_mut().filter(is_stopped) {
            (one.claimant.least, one.claimant.wants, one.wished) = (one.lease, one.lease, (0, 0));
        }
        let mut bounds = self.bounds();
        let Some(mine) = used.iter().position(|used| used.slot == own.0) else { return needs.least };
        let grows = self.grows();
        // While there is memory for more, nobody makes room for others, and each may take the step
        // of the run: the law allows for sixteen that take one at the same time.
        // Since the look, others may have taken what it found, but there was enough for a step.
        let all: u64 = used.iter().map(|one| one.claimant.resident + one.claim).sum();
        let step = bounds[0].bytes.saturating_sub(all).max(elastic::STEP_LEAST);
        if grows {
            // Forked processes count memory twice, so all together may have more than the ceiling.
            bounds[0].bytes = self.words[HEAD_CEILING].load(SeqCst).max(all + step);
        }
        let free = free(&bounds, &used, used[mine].claimant.job);
        // Memory that cannot be returned is not shared.
        for (job, bytes) in claims(&bounds, &used).into_iter().enumerate() {
            bounds[job].bytes = bounds[job].bytes.saturating_sub(bytes);
        }
        let kept = |one: &Claimant| if grows { one.least.max(one.resident) } else { one.least };
        let mut claimants: Vec<Claimant> =
            used.iter().map(|used| Claimant { least: kept(&used.claimant), ..used.claimant }).collect();
        let own_least = claimants[mine].least;
        let granted = grant(&bounds, &used, &mut claimants);
        let share = shares(&bounds, &claimants)[mine];
        // For a process that waits, the others make room at once, not step by step.
        let is_waited_for = granted.iter().any(|&at| at != mine && used[at].lease < claimants[at].least);
        let gives_way = is_waited_for && share < used[mine].lease;
        let free = if gives_way { free.min(-1) } else { free };
        claimants[mine].least = own_least;
        let next = next_lease(&claimants[mine], share, used[mine].lease, free);
        if grows { next.min(needs.resident + step).max(claimants[mine].least) } else { next }
    }

    /// Takes bytes for a process that has no pager: `lease` in all, which the process keeps until
    /// its end or until it [reports](Self::report) as one that has a pager. Returns whether the
    /// bytes now belong to the process.
    pub fn take_unpaged(&self, locks: &impl Locks, own: Slot, lease: u64) -> bool {
        if !locks.take(TABLE_BYTE) {
            return false;
        }
        self.reap(locks, own);
        let used = self.used();
        let bounds = self.bounds();
        let job = self.get(own.0, Word::Job) as usize;
        let had = self.get(own.0, Word::Lease);
        let more = lease.saturating_sub(had);
        let others: u64 =
            used.iter().filter(|used| used.unpaged && used.slot != own.0).map(|used| used.lease).sum();
        let fits = free(&bounds, &used, job) >= more as i64
            && others.saturating_add(lease) <= self.ceiling(job) / UNPAGED_PART;
        if fits {
            self.set(own.0, Word::Flags, UNPAGED);
            self.set(own.0, Word::Resident, lease);
            self.set(own.0, Word::Lease, lease.max(had));
        }
        locks.give(TABLE_BYTE);
        fits
    }

    /// Notes the bytes that a process without a pager has beside its lease.
    pub fn claim_unpaged(&self, own: Slot, claim: u64) {
        self.set(own.0, Word::Flags, UNPAGED);
        self.set(own.0, Word::Claim, claim);
    }

    /// Makes a job inside another one. Returns its number; `None` if there are too many jobs. The
    /// caller keeps the lock of the job's byte in a file description that all of the job's
    /// processes inherit.
    pub fn add_job(&self, locks: &impl Locks, parent: usize, budget: u64) -> Option<usize> {
        let used = self.used();
        let is_unused = |&job: &usize| {
            used.iter().all(|used| used.claimant.job != job)
                && (0..JOBS).all(|other| {
                    self.job(other)[0].load(SeqCst) == 0 || self.job(other)[1].load(SeqCst) != job as u64 + 1
                })
                && locks.is_free(JOB_BYTE + job as u64)
                && locks.take(JOB_BYTE + job as u64)
        };
        // Jobs that have ended are removed, the inner ones first.
        for job in (1..JOBS).rev().filter(|&job| self.job(job)[0].load(SeqCst) > 0) {
            if is_unused(&job) {
                self.job(job)[0].store(0, SeqCst);
                locks.give(JOB_BYTE + job as u64);
            }
        }
        let is_new = |job: &usize| self.job(*job)[0].load(SeqCst) == 0 && is_unused(job);
        let job = (parent + 1..JOBS).find(is_new)?;
        self.job(job)[1].store(parent as u64 + 1, SeqCst);
        self.job(job)[2].store(0, SeqCst);
        self.job(job)[0].store(budget, SeqCst);
        Some(job)
    }

    /// The totals of a job and of its inner jobs.
    pub fn overview(&self, job: usize) -> Overview {
        let bounds = self.bounds();
        let used = self.used();
        let members = used.iter().filter(|used| is_within(&bounds, used.claimant.job, job));
        let mut all = Overview { budget: self.budget(job), ..Overview::default() };
        for used in members {
            all.processes += 1;
            all.leased += used.lease;
            all.claimed += used.claim;
        }
        all
    }

    /// Whether the minimums of all processes of a job exceed its budget, and no process has
    /// reported it yet: the caller reports it.
    pub fn is_too_small(&self, job: usize) -> bool {
        let bounds = self.bounds();
        let least: u64 = self
            .used()
            .iter()
            .filter(|used| !used.unpaged && is_within(&bounds, used.claimant.job, job))
            .map(|used| used.claimant.least)
            .sum();
        least > self.ceiling(job) && self.words[HEAD_SAID].swap(1, SeqCst) == 0
    }
}

/// Raises the least of claimants to what they wish, as far as the budgets hold what all then have
/// at least: for those first that have waited longest. Returns their indices.
fn grant(bounds: &[Bound], used: &[Used], claimants: &mut [Claimant]) -> Vec<usize> {
    let mut waiting: Vec<usize> =
        (0..used.len()).filter(|&at| used[at].wished.0 > claimants[at].least).collect();
    waiting.sort_by_key(|&at| used[at].wished.1);
    waiting.retain(|&at| {
        let (job, more) = (claimants[at].job, used[at].wished.0 - claimants[at].least);
        let fits = (0..bounds.len()).filter(|&outer| is_within(bounds, job, outer)).all(|outer| {
            let inside = claimants.iter().filter(|one| is_within(bounds, one.job, outer));
            inside.map(|one| one.least).sum::<u64>().saturating_add(more) <= bounds[outer].bytes
        });
        claimants[at].least += if fits { more } else { 0 };
        fits
    });
    waiting
}

/// For each job, with its inner jobs, the bytes that its processes have beside their leases.
fn claims(bounds: &[Bound], used: &[Used]) -> Vec<u64> {
    let of = |job| {
        used.iter().filter(|used| is_within(bounds, used.claimant.job, job)).map(|used| used.claim).sum()
    };
    (0..bounds.len()).map(of).collect()
}

/// Bytes that a process of a job could take without exceeding a budget; negative if one is already
/// exceeded.
fn free(bounds: &[Bound], used: &[Used], job: usize) -> i64 {
    let left = |outer: usize| {
        let of = used.iter().filter(|used| is_within(bounds, used.claimant.job, outer));
        let has: u64 = of.map(|used| used.lease + used.claim).sum();
        bounds[outer].bytes as i64 - has as i64
    };
    (0..bounds.len()).filter(|&outer| is_within(bounds, job, outer)).map(left).min().unwrap_or(0)
}
