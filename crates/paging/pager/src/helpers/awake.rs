//! Processors that are kept awake for threads that wait.
//!
//! A thread of the program that does little but wait for the store is woken once for each read,
//! mostly on a processor that idles until then. To leave idleness takes 1 or 2 us, and 20 us in a
//! virtual machine: a third of a read. So if reads come one after the other, threads of the lowest
//! priority keep those processors busy. They yield to everything at once. `Judge` measures, read by
//! read, whether that pays, and it goes on only while it does.
//!
//! These threads also wake the program's threads once the pager has installed their pages. From the
//! processor where the waiting thread is to run, a wake-up is a switch; from another processor it
//! takes an interrupt, 10 us more in a virtual machine. A thread of the lowest priority may lose
//! its processor at any moment. So the pager checks whether the wake-up was done, and else does it
//! itself: to wake twice does no harm.
//!
//! The constants are chosen, not measured; what keeping processors awake gains is in
//! docs/measurements.md, "The pager's thread".

use crate::bell::Bell;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, spin_loop};
use std::sync::atomic::Ordering::SeqCst;
use terapage_sys::thread::{self, Processors};
use terapage_sys::userfaultfd::Waker;

/// Reads of one measurement.
const READS: u32 = 256;
/// Reads before a measurement, which do not count.
const FIRST_READS: u32 = 32;

/// If a read takes longer than this in the mean, ns, the program works meanwhile: with awake
/// processors, and (next) without. On a virtual machine whose host is busy, a read takes three
/// times as long without.
const MEAN_MAX_NS: u64 = 300_000;
const MEAN_OFF_MAX_NS: u64 = 1_000_000;

/// After one read longer than this, ns, the measurement does not count: the host may have stopped
/// this machine. After a gap longer than `ANEW_NS` everything is measured anew.
const LONGEST_NS: u64 = 3_000_000;
const ANEW_NS: u64 = 100_000_000;

/// Such a long read counts as this many other events.
const LONG_COUNTS: u32 = OTHERS_MAX / 4;

/// After this many other events (first touches, soft faults, prefetch) a measurement does not
/// count.
const OTHERS_MAX: u32 = READS / 4;

/// Awake processors pay if a read takes no more than this share of the time, per cent: at the end
/// of a try, and (next) later.
const PAYS_PERCENT: u64 = 96;
const STILL_PERCENT: u64 = 100;

/// They are tried again at once if reads take at least this share of the time that they took with
/// them, per cent.
const AGAIN_PERCENT: u64 = 125;

/// Measurements of one try.
const TRY: u32 = 3;

/// A new measurement has the weight of one in this many in the mean: the speed of a store varies
/// from one measurement to the next.
const WEIGHT: u64 = 3;

/// After this many measurements with awake processors, one without is made, to compare.
const KEPT: u32 = 32;

/// Measurements until the next try after one that did not pay; doubled each time, up to
/// `PAUSE_MAX`.
const PAUSE: u32 = 4;
const PAUSE_MAX: u32 = 1 << 10;

/// The most processors that are kept awake.
const MOST: usize = 4;

/// Processors are kept awake for this long after a read began, ns.
const LINGER_NS: u64 = 300_000;

/// Looks for an order between two looks at the time.
const LOOKS: u32 = 256;

/// If a wake-up that was ordered is not done after this time, ns, the pager does it itself.
const LATE_NS: u64 = 10_000;

/// Decides by the time that reads take whether processors are kept awake.
#[derive(Default)]
struct Judge {
    on: bool,
    reads: u32,
    others: u32,
    since_ns: u64,
    last_ns: u64,
    /// The mean time of a measurement without awake processors, ns.
    off_ns: u64,
    /// The same with them, since they were turned on last, ns.
    on_ns: u64,
    /// The time of a measurement with them at the last try, ns; 0 if not known.
    tried_ns: u64,
    /// Measurements since they were turned on or off.
    done: u32,
    /// Measurements until they are tried again.
    left: u32,
    /// Measurements until the try after the next, if that does not pay.
    pause: u32,
}

impl Judge {
    fn new() -> Judge {
        Judge { left: 1, pause: PAUSE, ..Judge::default() }
    }

    /// A read begins at `now_ns`. Whether that ends a measurement.
    fn read(&mut self, now_ns: u64) -> bool {
        let gap_ns = now_ns.saturating_sub(std::mem::replace(&mut self.last_ns, now_ns));
        if gap_ns > LONGEST_NS {
            self.reads = 0;
            self.others(LONG_COUNTS);
        }
        if gap_ns > ANEW_NS {
            // After the gap the program may do something else.
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
            // One measurement without them, to compare.
            (self.left, self.pause) = (1, PAUSE);
            self.turn(false);
        }
    }

    /// Notes that a try did not pay: the pause before the next one is longer.
    fn give_up(&mut self) {
        if self.on {
            self.left = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
        self.turn(false);
    }

    /// An event that is no read that a thread waits for: a first touch, a soft fault, a prefetch.
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

/// What the pager's thread and the threads that keep processors awake share.
struct Shared {
    /// Until when processors are kept awake, ns.
    until_ns: AtomicU64,
    bell: Bell,
    /// The processor of each, one more than its number; 0 for none.
    processors: [AtomicU32; MOST],
    /// The number of these threads.
    threads: u32,
    /// The range whose waiters are to be woken: its address.
    at: AtomicUsize,
    /// Its bytes.
    len: AtomicUsize,
    /// The number of the last wake-up that was ordered.
    ordered: AtomicU64,
    /// The number of the last that one of these threads has taken on.
    taken: AtomicU64,
    /// The number of the last that is done.
    done: AtomicU64,
    waker: Waker,
}

impl Shared {
    fn new(waker: Waker, threads: usize) -> Shared {
        Shared {
            until_ns: AtomicU64::new(0),
            bell: Bell::new(),
            processors: std::array::from_fn(|_| AtomicU32::new(0)),
            threads: threads as u32,
            at: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            ordered: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            done: AtomicU64::new(0),
            waker,
        }
    }

    fn run(&self, index: usize, home: &Processors) {
        thread::give_way();
        let mut at = 0;
        while let Some(heard) = self.bell.listen() {
            let wanted = self.processors[index].load(SeqCst);
            if wanted == 0 || thread::now_ns() > self.until_ns.load(SeqCst) {
                self.bell.wait(heard);
                continue;
            }
            if wanted != at {
                at = wanted;
                home.only(at as usize - 1).as_ref().unwrap_or(home).give_to(0);
            }
            for _ in 0..LOOKS {
                self.wake_if_ordered();
                spin_loop();
            }
        }
    }

    fn wake_if_ordered(&self) {
        let (taken, ordered) = (self.taken.load(SeqCst), self.ordered.load(SeqCst));
        if taken < ordered && self.taken.compare_exchange(taken, ordered, SeqCst, SeqCst).is_ok() {
            // The range may be that of a later order by now, whose pages are in place as well. Then
            // the pager has done this wake-up itself.
            self.waker.wake(self.at.load(SeqCst), self.len.load(SeqCst));
            self.done.fetch_max(ordered, SeqCst);
        }
    }
}

/// Keeps processors awake while that pays.
pub(crate) struct Awake {
    judge: Judge,
    /// The processors that may be kept awake; `None` if there is only one.
    home: Option<Processors>,
    shared: Option<&'static Shared>,
    /// When the last wake-up was ordered, if it may not be done yet, ns.
    ordered_ns: Option<u64>,
    /// The threads that waited last.
    waited: [u32; MOST],
    next: usize,
}

impl Awake {
    /// Keeps no processor awake.
    pub fn never() -> Awake {
        Awake { judge: Judge::new(), home: None, shared: None, ordered_ns: None, waited: [0; MOST], next: 0 }
    }

    /// Keeps processors awake while that pays, if the calling thread, the pager's, has more than
    /// one processor. `waker` wakes the threads that wait for the program's memory.
    ///
    /// Call it while nothing is paged: to start a thread, the C library uses the program's memory,
    /// for which the pager's thread cannot wait.
    pub fn where_it_pays(waker: Waker) -> Awake {
        let home = Processors::of(0).filter(|home| home.count() > 1);
        let shared = home.as_ref().and_then(|home| start(home, MOST.min(home.count() - 1), waker));
        Awake { home: home.filter(|_| shared.is_some()), shared, ..Awake::never() }
    }

    /// `thread` (0 if not known) waits for a read.
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
        if shared.bell.asleep() > 0 {
            shared.bell.ring();
        }
    }

    /// Another event than a read: see [`Judge::other`].
    pub fn other(&mut self) {
        self.judge.other();
    }

    /// Chooses the processors that are kept awake: those of the threads that waited, without the
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
        shared.bell.ring();
    }

    /// Whether [`wake`](Self::wake) is likely to be faster than a wake-up by this thread.
    pub fn can_wake(&self) -> bool {
        self.judge.on && self.shared.is_some_and(|shared| shared.bell.asleep() < shared.threads)
    }

    /// Orders a wake-up of the threads that wait for `len` bytes at `at`, whose pages are
    /// installed.
    pub fn wake(&mut self, at: usize, len: usize) {
        self.settle();
        let Some(shared) = self.shared else { return };
        shared.at.store(at, SeqCst);
        shared.len.store(len, SeqCst);
        shared.ordered.fetch_add(1, SeqCst);
        self.ordered_ns = Some(thread::now_ns());
    }

    /// Does a wake-up that is late. Call it often while an order may be open.
    pub fn settle_late(&mut self) {
        let (Some(since_ns), Some(shared)) = (self.ordered_ns, self.shared) else { return };
        let ordered = shared.ordered.load(SeqCst);
        let is_late = shared.taken.load(SeqCst) < ordered || thread::now_ns() > since_ns + LATE_NS;
        if is_late || shared.done.load(SeqCst) >= ordered {
            self.settle();
        }
    }

    /// Does a wake-up that is not done yet. Call it before the pager's thread waits for anything.
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
            // The threads only save time: without them nothing else changes.
            shared.bell.end();
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
            faults.read(16, &mut come, &mut Vec::new()).unwrap();
        }
        // SAFETY: nobody writes to the second page.
        unsafe { faults.copy(at, at + PAGE, PAGE, false, 100) }.unwrap();
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
