//! Processors that are kept awake for threads that wait.
//!
//! A thread of the program that does little but wait for the store is woken once for each read,
//! mostly on a processor that idles until then. To leave idleness takes a microsecond or two, in a
//! virtual machine twenty: a third of a read. So where reads come one after the other, threads of
//! the lowest priority keep those processors busy: they give way to everything at once. That is
//! measured, read by read, and kept only while it pays.
//!
//! They wake the threads that wait, too, whose pages the pager has put in place: on the processor
//! where such a thread is to run that is a switch, from another it takes an interrupt, in a virtual
//! machine ten microseconds more. They may lose their processor at any moment, so the pager looks
//! whether it was done, and does it itself if not: to wake twice does no harm.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use terapage_sys::thread::{self, Processors};
use terapage_sys::userfaultfd::Waker;

/// Reads that make a measurement, and those before them that do not count.
const READS: u32 = 256;
const FIRST_READS: u32 = 32;

/// Where a read takes longer than this, in the mean, with it and without, the program works
/// meanwhile, ns. (On a virtual machine whose host is busy a read takes three times as long without
/// it.)
const MEAN_MAX_NS: u64 = 300_000;
const MEAN_OFF_MAX_NS: u64 = 1_000_000;

/// After one read this long what was measured does not count, ns: such a host may have stopped this
/// machine. After this long all begins anew.
const LONGEST_NS: u64 = 3_000_000;
const ANEW_NS: u64 = 100_000_000;

/// As many other things is such a read.
const LONG_COUNTS: u32 = OTHERS_MAX / 4;

/// Other things that happen in one measurement, after which it does not count.
const OTHERS_MAX: u32 = READS / 4;

/// It pays if a read takes no more than this part of the time, in per cent: when it is tried, and
/// later.
const PAYS_PERCENT: u64 = 96;
const STILL_PERCENT: u64 = 100;

/// It is tried again at once where reads take this part, or more, of the time that they took with
/// it, in per cent.
const AGAIN_PERCENT: u64 = 125;

/// Measurements that a try takes.
const TRY: u32 = 3;

/// The weight of a new measurement, one in this many: a store is not equally fast from one to the
/// next.
const WEIGHT: u64 = 3;

/// Measurements for which it is kept before it is tried again whether it pays.
const KEPT: u32 = 32;

/// Measurements until the next try after one that did not pay: doubled each time, up to the second.
const PAUSE: u32 = 4;
const PAUSE_MAX: u32 = 1 << 10;

/// Processors that are kept awake at most.
const MOST: usize = 4;

/// How long after a read began they are kept awake, ns.
const LINGER_NS: u64 = 300_000;

/// A thread that was taken on to be woken is woken by the pager if it was not within this time, ns.
const LATE_NS: u64 = 10_000;

/// Judges by the time that reads take.
#[derive(Default)]
struct Judge {
    on: bool,
    reads: u32,
    others: u32,
    since_ns: u64,
    last_ns: u64,
    /// What measurements took without and, since it was turned on last, with.
    off_ns: u64,
    on_ns: u64,
    /// What they took with it when it was tried last; 0 for nothing known.
    tried_ns: u64,
    /// Measurements since the last change, and until the next.
    done: u32,
    left: u32,
    pause: u32,
}

impl Judge {
    fn new() -> Judge {
        Judge { left: 1, pause: PAUSE, ..Judge::default() }
    }

    /// A read begins. Whether that ends a measurement.
    fn read(&mut self, now_ns: u64) -> bool {
        let gap_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        if gap_ns > LONGEST_NS {
            self.reads = 0;
            self.others(LONG_COUNTS);
        }
        if gap_ns > ANEW_NS {
            // What comes now may be something else altogether.
            self.turn(false);
            (self.off_ns, self.tried_ns) = (0, 0);
        }
        self.reads += 1;
        if self.reads == FIRST_READS {
            self.since_ns = now_ns;
        }
        if self.reads < FIRST_READS + READS {
            return false;
        }
        let took_ns = now_ns - self.since_ns;
        (self.reads, self.others, self.since_ns) = (FIRST_READS, 0, now_ns);
        let most_ns = if self.on { MEAN_MAX_NS } else { MEAN_OFF_MAX_NS };
        if took_ns > most_ns * u64::from(READS) {
            self.tried_ns = took_ns;
            self.give_up();
        } else {
            self.judge(took_ns);
        }
        true
    }

    fn judge(&mut self, took_ns: u64) {
        let blend = |old: u64| if old == 0 { took_ns } else { (old * (WEIGHT - 1) + took_ns) / WEIGHT };
        (self.done, self.left) = (self.done + 1, self.left.saturating_sub(1));
        if !self.on {
            self.off_ns = blend(self.off_ns);
            let again = self.tried_ns > 0 && self.off_ns * 100 > self.tried_ns * AGAIN_PERCENT;
            self.turn(self.left == 0 || again);
            return;
        }
        self.on_ns = blend(self.on_ns);
        self.tried_ns = self.on_ns;
        if self.done < TRY {
            return;
        }
        let most = if self.done == TRY { PAYS_PERCENT } else { STILL_PERCENT };
        if self.on_ns * 100 > self.off_ns * most {
            self.give_up();
        } else if self.done >= KEPT {
            // One without, to compare.
            (self.left, self.pause) = (1, PAUSE);
            self.turn(false);
        }
    }

    /// It does not pay: the next try is later than the last.
    fn give_up(&mut self) {
        if self.on {
            self.left = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        self.turn(false);
    }

    /// Something else than a read that a thread waits for: a first touch, a soft fault, a read
    /// ahead.
    fn other(&mut self) {
        self.others(1);
    }

    fn others(&mut self, count: u32) {
        self.others += count;
        if self.others > OTHERS_MAX {
            self.turn(false);
        }
    }

    fn turn(&mut self, on: bool) {
        if on != self.on || self.others > OTHERS_MAX {
            (self.on, self.reads, self.others, self.done, self.on_ns) = (on, 0, 0, 0, 0);
        }
    }
}

/// What a thread that keeps a processor awake looks at.
struct Shared {
    until_ns: AtomicU64,
    /// Counts calls; the threads sleep on it.
    bell: AtomicU32,
    asleep: AtomicU32,
    /// The processor of each, one more than its number; 0 for none.
    processors: [AtomicU32; MOST],
    /// How many they are.
    threads: u32,
    /// Where threads wait that are to be woken, its bytes, and the number of that order; the last
    /// that one of these threads has taken, and has done.
    at: AtomicUsize,
    len: AtomicUsize,
    ordered: AtomicU64,
    taken: AtomicU64,
    done: AtomicU64,
    waker: Waker,
    ended: AtomicBool,
}

impl Shared {
    fn new(waker: Waker, threads: usize) -> Shared {
        Shared {
            until_ns: AtomicU64::new(0),
            bell: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            processors: Default::default(),
            threads: threads as u32,
            at: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            ordered: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            waker,
            ended: AtomicBool::new(false),
        }
    }

    fn run(&self, index: usize, home: &Processors) {
        thread::give_way();
        let mut at = 0;
        loop {
            let bell = self.bell.load(SeqCst);
            if self.ended.load(SeqCst) {
                return;
            }
            let wanted = self.processors[index].load(SeqCst);
            if wanted == 0 || thread::now_ns() > self.until_ns.load(SeqCst) {
                self.asleep.fetch_add(1, SeqCst);
                thread::wait(&self.bell, bell);
                self.asleep.fetch_sub(1, SeqCst);
                continue;
            }
            if wanted != at {
                at = wanted;
                home.only(at as usize - 1).as_ref().unwrap_or(home).use_them();
            }
            for _ in 0..256 {
                self.wake_if_ordered();
                std::hint::spin_loop();
            }
        }
    }

    fn wake_if_ordered(&self) {
        let (taken, ordered) = (self.taken.load(SeqCst), self.ordered.load(SeqCst));
        if taken < ordered && self.taken.compare_exchange(taken, ordered, SeqCst, SeqCst).is_ok() {
            // It may be a later order's by now, whose pages are in place as well; the pager has
            // seen to this one itself then.
            self.waker.wake(self.at.load(SeqCst), self.len.load(SeqCst));
            self.done.fetch_max(ordered, SeqCst);
        }
    }

    fn ring(&self) {
        self.bell.fetch_add(1, SeqCst);
        thread::wake(&self.bell);
    }
}

/// Keeps processors awake where it pays.
pub(crate) struct Awake {
    judge: Judge,
    /// The processors that may be kept awake; none where there is no choice.
    home: Option<Processors>,
    shared: Option<&'static Shared>,
    /// When the order was given that may not be done.
    ordered_ns: Option<u64>,
    /// Threads that waited last.
    waited: [u32; MOST],
    next: usize,
}

impl Awake {
    /// Never.
    pub fn never() -> Awake {
        Awake { judge: Judge::new(), home: None, shared: None, ordered_ns: None, waited: [0; MOST], next: 0 }
    }

    /// Where it pays, if the calling thread, the pager's, has more than one processor. To be called
    /// while nothing is paged: the C library begins a thread with memory of the program's, which
    /// the pager's thread cannot wait for.
    ///
    /// `waker`: of the program's memory.
    pub fn where_it_pays(waker: Waker) -> Awake {
        let home = Processors::of_this_thread().filter(|home| home.count() > 1);
        let shared = home.as_ref().and_then(|home| start(home, MOST.min(home.count() - 1), waker));
        Awake { home: home.filter(|_| shared.is_some()), shared, ..Awake::never() }
    }

    /// A thread, or 0 for one unknown, waits for a read.
    pub fn read(&mut self, now_ns: u64, thread: u32) {
        if self.home.is_none() {
            return;
        }
        if thread != 0 && !self.waited.contains(&thread) {
            self.waited[self.next] = thread;
            self.next = (self.next + 1) % MOST;
        }
        let was = self.judge.on;
        let ended = self.judge.read(now_ns);
        if self.judge.on && (ended || !was) {
            self.place();
        }
        let Some(shared) = self.shared.filter(|_| self.judge.on) else { return };
        shared.until_ns.store(now_ns + LINGER_NS, SeqCst);
        if shared.asleep.load(SeqCst) > 0 {
            shared.ring();
        }
    }

    /// Something else happens.
    pub fn other(&mut self) {
        self.judge.other();
    }

    /// Says which processors are to be kept awake: those of the threads that waited, but for the
    /// pager's own.
    fn place(&mut self) {
        let Some(home) = &self.home else { return };
        let own = thread::processor();
        let mut wanted: Vec<usize> = self.waited.iter().filter_map(|&it| thread::processor_of(it)).collect();
        // The device may interrupt any of two.
        wanted.extend(home.numbers().take(2));
        wanted.retain(|&at| Some(at) != own && home.only(at).is_some());
        self.waited = [0; MOST];
        let mut seen = Vec::with_capacity(MOST);
        for at in wanted {
            if !seen.contains(&at) && seen.len() < MOST.min(home.count() - 1) {
                seen.push(at);
            }
        }
        let Some(shared) = self.shared else { return };
        for (index, processor) in shared.processors.iter().enumerate() {
            processor.store(seen.get(index).map_or(0, |&at| at as u32 + 1), SeqCst);
        }
        shared.ring();
    }

    /// Whether [`wake`](Self::wake) is likely to be quicker than to wake here.
    pub fn can_wake(&self) -> bool {
        self.judge.on && self.shared.is_some_and(|shared| shared.asleep.load(SeqCst) < shared.threads)
    }

    /// Has the threads woken that wait for pages at `at`, which are in place.
    pub fn wake(&mut self, at: usize, len: usize) {
        self.settle();
        let Some(shared) = self.shared else { return };
        shared.at.store(at, SeqCst);
        shared.len.store(len, SeqCst);
        shared.ordered.fetch_add(1, SeqCst);
        self.ordered_ns = Some(thread::now_ns());
    }

    /// Wakes who should have been woken by now: to be called often while an order may be open.
    pub fn settle_late(&mut self) {
        let (Some(since_ns), Some(shared)) = (self.ordered_ns, self.shared) else { return };
        let ordered = shared.ordered.load(SeqCst);
        let is_late = shared.taken.load(SeqCst) < ordered || thread::now_ns() > since_ns + LATE_NS;
        if is_late || shared.done.load(SeqCst) >= ordered {
            self.settle();
        }
    }

    /// Wakes who has not been woken yet: to be called before the pager's thread waits for anything.
    pub fn settle(&mut self) {
        let (Some(_), Some(shared)) = (self.ordered_ns.take(), self.shared) else { return };
        let ordered = shared.ordered.load(SeqCst);
        if shared.done.load(SeqCst) < ordered {
            shared.taken.fetch_max(ordered, SeqCst);
            shared.waker.wake(shared.at.load(SeqCst), shared.len.load(SeqCst));
        }
    }

    /// In the child of a fork, where the threads are not.
    pub fn forget(&mut self) {
        *self = Awake::never();
    }
}

/// Threads that keep up to `count` processors awake. They live as long as the process and mostly
/// sleep.
fn start(home: &Processors, count: usize, waker: Waker) -> Option<&'static Shared> {
    let shared: &'static Shared = Box::leak(Box::new(Shared::new(waker, count)));
    for index in 0..count {
        let home = home.clone();
        if thread::spawn_quiet(c"terapage-awake", move || shared.run(index, &home)).is_err() {
            // They only save time.
            shared.ended.store(true, SeqCst);
            shared.ring();
            return None;
        }
    }
    Some(shared)
}

#[cfg(test)]
mod tests {
    use super::{ANEW_NS, Awake, FIRST_READS, Judge, LONGEST_NS, OTHERS_MAX, READS, Shared};
    use std::sync::atomic::Ordering::SeqCst;
    use terapage_sys::userfaultfd::{Kind, Userfaultfd};
    use terapage_sys::{PAGE, memory};

    /// Reads that take what `ns` says of off and on: how many of them were made with it on.
    fn run(judge: &mut Judge, reads: u32, ns: impl Fn(bool) -> u64) -> u32 {
        let one = |_| {
            let now_ns = judge.last_ns + ns(judge.on);
            judge.read(now_ns);
            u32::from(judge.on)
        };
        (0..reads).map(one).sum()
    }

    #[test]
    fn it_is_on_while_it_pays() {
        let mut judge = Judge::new();
        let pays = |on: bool| if on { 80_000 } else { 100_000 };
        assert!(run(&mut judge, 100 * READS, pays) > 90 * READS);
        run(&mut judge, 10_000 * READS, |_| 90_000);
        assert!(run(&mut judge, 10_000 * READS, |_| 90_000) < 200 * READS, "tries become rare");
        assert!(run(&mut judge, 10_000 * READS, pays) > 8_000 * READS, "it pays again");
        // A busy host makes it much slower without, at once.
        let mut judge = Judge::new();
        run(&mut judge, 10_000 * READS, |_| 90_000);
        let busy = |on: bool| if on { 120_000 } else { 350_000 };
        assert!(run(&mut judge, 100 * READS, busy) > 90 * READS);
        // A slower store makes both slower: what it was like without is measured anew.
        assert!(run(&mut judge, 10_000 * READS, |on| 2 * pays(on)) > 9_000 * READS);
    }

    #[test]
    fn it_is_off_where_the_program_works() {
        let mut judge = Judge::new();
        let pays = |on: bool| if on { 80_000 } else { 100_000 };
        assert_eq!(run(&mut judge, 100 * READS, |on| 11 * pays(on)), 0, "long between reads");
        let mut judge = Judge::new();
        assert!(run(&mut judge, 10_000 * READS, |on| 4 * pays(on)) < 100 * READS, "between reads");
        let mut judge = Judge::new();
        for _ in 0..100 * READS {
            assert_eq!(run(&mut judge, 1, pays), 0, "beside reads");
            judge.other();
        }
        run(&mut judge, 3 * (FIRST_READS + READS), pays);
        assert!(judge.on);
        (0..=OTHERS_MAX).for_each(|_| judge.other());
        assert!(!judge.on);
        run(&mut judge, 3 * (FIRST_READS + READS), pays);
        assert!(judge.on);
        run(&mut judge, 1, |_| LONGEST_NS + 1);
        assert!(judge.on, "the machine was stopped");
        run(&mut judge, 10, |_| LONGEST_NS + 1);
        assert!(!judge.on, "again and again");
        run(&mut judge, 3 * (FIRST_READS + READS), pays);
        assert!(judge.on);
        run(&mut judge, 1, |_| ANEW_NS + 1);
        assert!(!judge.on, "a pause");
    }

    /// A thread waits for a page, which comes without waking it; `then` is called until it has gone
    /// on.
    fn waits(then: impl Fn(&mut Awake, &'static Shared)) {
        let faults = match Userfaultfd::open(Kind::Waiting) {
            Ok(faults) => faults,
            Err(error) => return eprintln!("skipped: no userfaultfd: {error}"),
        };
        let at = memory::reserve(2 * PAGE).unwrap() as usize;
        faults.register(at, PAGE, false).unwrap();
        let shared: &'static Shared = Box::leak(Box::new(Shared::new(faults.waker(), 0)));
        let mut awake = Awake { shared: Some(shared), ..Awake::never() };
        // SAFETY: it is mapped, and read only.
        let thread = std::thread::spawn(move || unsafe { std::ptr::read_volatile(at as *const u8) });
        let mut come = Vec::new();
        while come.is_empty() {
            faults.faults(&mut come).unwrap();
        }
        // SAFETY: nobody writes to the second page.
        unsafe { faults.copy(at, at + PAGE, PAGE, false) }.unwrap();
        awake.wake(at, PAGE);
        assert!(!thread.is_finished());
        while !thread.is_finished() {
            then(&mut awake, shared);
        }
        assert_eq!(thread.join().unwrap(), 0);
        // SAFETY: nobody uses it any more.
        unsafe { memory::unmap(at as *mut u8, 2 * PAGE) }.unwrap();
    }

    #[test]
    fn who_waits_is_woken_whoever_does_it() {
        waits(|_, shared| shared.wake_if_ordered());
        waits(|awake, _| awake.settle());
        waits(|awake, _| awake.settle_late());
        // Taken on by a thread that lost its processor then.
        waits(|awake, shared| {
            shared.taken.store(1, SeqCst);
            awake.settle_late();
        });
        waits(|awake, shared| {
            shared.taken.store(1, SeqCst);
            awake.settle();
        });
        // The next order settles the last.
        waits(|awake, shared| {
            shared.taken.store(1, SeqCst);
            awake.wake(0, PAGE);
        });
    }
}
