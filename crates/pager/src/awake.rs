//! Processors that are kept awake for threads that wait.
//!
//! A thread of the program that does little but wait for the store is woken once for each read, mostly on a processor that idles until
//! then. To leave idleness takes a microsecond or two, in a virtual machine twenty: a third of a read. So where reads
//! come one after the other, threads of the lowest priority keep those processors busy: they give way to everything at
//! once. That is measured, read by read, and kept only while it pays.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use terapage_sys::thread::{self, Processors};

/// Reads that make a measurement, and those before them that do not count.
const READS: u32 = 256;
const FIRST_READS: u32 = 32;

/// Where a read takes longer than this, in the mean, or one this long, the program works meanwhile, ns.
const MEAN_MAX_NS: u64 = 300_000;
const LONGEST_NS: u64 = 3_000_000;

/// Other things that happen in one measurement, after which it does not count.
const OTHERS_MAX: u32 = READS / 4;

/// It pays if a read takes no more than this part of the time, in per cent: when it is tried, and later.
const PAYS_PERCENT: u64 = 96;
const STILL_PERCENT: u64 = 100;

/// Measurements that a try takes.
const TRY: u32 = 3;

/// The weight of a new measurement, one in this many: a store is not equally fast from one to the next.
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
            // What comes now may be something else altogether.
            self.turn(false);
            (self.reads, self.off_ns) = (0, 0);
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
        if took_ns > MEAN_MAX_NS * u64::from(READS) {
            self.turn(false);
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
            self.turn(self.left == 0);
            return;
        }
        self.on_ns = blend(self.on_ns);
        if self.done < TRY {
            return;
        }
        let most = if self.done == TRY { PAYS_PERCENT } else { STILL_PERCENT };
        if self.on_ns * 100 > self.off_ns * most {
            self.left = self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
            self.turn(false);
        } else if self.done >= KEPT {
            // One without, to compare.
            (self.left, self.pause) = (1, PAUSE);
            self.turn(false);
        }
    }

    /// Something else than a read that a thread waits for: a first touch, a soft fault, a read ahead.
    fn other(&mut self) {
        self.others += 1;
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
    ended: AtomicBool,
}

impl Shared {
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
            (0..256).for_each(|_| std::hint::spin_loop());
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
    /// Threads that waited last.
    waited: [u32; MOST],
    next: usize,
}

impl Awake {
    /// Never.
    pub fn never() -> Awake {
        Awake { judge: Judge::new(), home: None, shared: None, waited: [0; MOST], next: 0 }
    }

    /// Where it pays, if the calling thread, the pager's, has more than one processor. To be called while nothing is paged: the C
    /// library begins a thread with memory of the program's, which the pager's thread cannot wait for.
    pub fn where_it_pays() -> Awake {
        let home = Processors::of_this_thread().filter(|home| home.count() > 1);
        let shared = home.as_ref().and_then(|home| start(home, MOST.min(home.count() - 1)));
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

    /// Says which processors are to be kept awake: those of the threads that waited, but for the pager's own.
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

    /// In the child of a fork, where the threads are not.
    pub fn forget(&mut self) {
        *self = Awake::never();
    }
}

/// Threads that keep up to `count` processors awake. They live as long as the process and mostly sleep.
fn start(home: &Processors, count: usize) -> Option<&'static Shared> {
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        until_ns: AtomicU64::new(0),
        bell: AtomicU32::new(0),
        asleep: AtomicU32::new(0),
        processors: Default::default(),
        ended: AtomicBool::new(false),
    }));
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
    use super::{FIRST_READS, Judge, OTHERS_MAX, READS};

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
        // A slower store makes both slower: what it was like without is measured anew.
        assert!(run(&mut judge, 10_000 * READS, |on| 2 * pays(on)) > 9_000 * READS);
    }

    #[test]
    fn it_is_off_where_the_program_works() {
        let mut judge = Judge::new();
        let pays = |on: bool| if on { 80_000 } else { 100_000 };
        assert_eq!(run(&mut judge, 100 * READS, |on| 5 * pays(on)), 0, "between reads");
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
        run(&mut judge, 1, |_| 1 << 30);
        assert!(!judge.on, "a pause");
    }
}
