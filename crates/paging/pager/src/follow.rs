//! Following: the pager's thread runs on the processor of the threads that wait for it.
//!
//! A program that faults page by page runs in turns with the pager's thread: one waits while the
//! other works. On one processor each turn is a context switch. On two, each turn interrupts the
//! other processor, which has been idle until then. Taking a page out of the program also
//! interrupts the processors whose caches have addresses of the process. So a miss takes less time
//! on one processor, and half of the processor time (docs/results.md, "The price of a
//! miss"), and the other processors are free for other work.
//!
//! The kernel moves a waking thread to an idle processor. So the threads are bound to one
//! processor, in a way that the program [cannot see](terapage_sys::binding), while
//! - few threads have nearly all faults, and these come soon after one another;
//! - little is prefetched: a stream is faster if the pager works in parallel to the program;
//! - several threads of the program do not need more than one processor;
//! - no other work wants their processor.

use terapage_sys::binding;
use terapage_sys::processors::Processors;
use terapage_sys::thread;

/// Faults of a window, after which is decided. Chosen, not measured.
const WINDOW: u32 = 64;
/// The most faults in a window that are first touches or those of other threads, and the most
/// blocks that are prefetched meanwhile. Chosen, not measured.
const OTHERS_MAX: u32 = WINDOW / 8;
/// The same while threads are bound.
const OTHERS_MAX_BOUND: u32 = WINDOW / 4;
/// If a window takes longer than this, ns, the program mostly does something else than wait.
const WINDOW_NS_MAX: u64 = WINDOW as u64 * 500_000;
/// The time that the pager's thread needs for a fault, ns: about the measured time.
const FAULT_NS: u64 = 10_000;
/// Several threads, including the pager's, may need this share of one processor, per cent.
const LOAD_PERCENT: u64 = 75;
/// Others want the processor if for this share of a tick, per cent, one of the threads was ready
/// and none of them ran.
const CROWDED_PERCENT: u64 = 15;
/// Ticks without a fault after which the binding ends.
const IDLE_TICKS: u32 = 2;
/// Ticks without a binding after a binding that did not pay: the first pause, and the longest. Each
/// pause is twice the previous one.
const PAUSES: [u32; 2] = [4, 256];

/// The times for which threads have run, and for which they were ready and waited for a processor,
/// ns.
#[derive(Clone, Copy)]
struct Times {
    at_ns: u64,
    ran: u64,
    waited: u64,
}

impl Times {
    /// The sums of all `threads`.
    fn of(threads: impl Iterator<Item = u32>) -> Option<Times> {
        let mut times = Times { at_ns: thread::now_ns(), ran: 0, waited: 0 };
        for thread in threads {
            let (ran, waited) = thread::ran_and_waited(thread)?;
            (times.ran, times.waited) = (times.ran + ran, times.waited + waited);
        }
        Some(times)
    }

    /// Whether others have used the processor since `before`. One thread of `count` may have run
    /// while all others waited.
    fn is_crowded_since(&self, before: &Times, count: usize) -> bool {
        let took_ns = self.at_ns.saturating_sub(before.at_ns);
        let ran = self.ran.saturating_sub(before.ran);
        let own = ran * (count as u64 - 1);
        self.waited.saturating_sub(before.waited).saturating_sub(own) * 100 > took_ns * CROWDED_PERCENT
    }
}

/// The threads that fault: few, or too many to be followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Threads {
    ids: [u32; binding::MOST],
    count: usize,
}

impl Threads {
    fn get(&self) -> &[u32] {
        &self.ids[..self.count]
    }

    /// Adds a thread. Returns whether it is among them now.
    fn add(&mut self, thread: u32) -> bool {
        if self.get().contains(&thread) {
            return true;
        }
        let has_room = self.count < self.ids.len();
        if has_room {
            self.ids[self.count] = thread;
            self.count += 1;
        }
        has_room
    }
}

/// Decides from faults and their times whether to bind threads.
#[derive(Default)]
struct Judge {
    threads: Threads,
    faults: u32,
    others: u32,
    since_ns: u64,
    /// The processor time that the threads had used when the window began, ns.
    used_ns: u64,
    /// Ticks until threads may be bound again.
    pause: u32,
    /// The last pause.
    paused: u32,
}

/// What to do at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Bind(Threads),
    Unbind,
}

impl Judge {
    /// `thread` faults, while threads are `bound` or not. `used_ns`: the processor time that
    /// threads have used.
    fn fault(
        &mut self,
        thread: u32,
        bound: bool,
        now_ns: impl Fn() -> u64,
        used_ns: impl Fn(&[u32]) -> u64,
    ) -> Option<Verdict> {
        if self.faults == 0 {
            (self.others, self.since_ns) = (0, now_ns());
            if !bound {
                self.threads = Threads::default();
            }
        }
        let before = self.threads.count;
        let known = if bound { self.threads.get().contains(&thread) } else { self.threads.add(thread) };
        if self.faults == 0 || self.threads.count > before {
            // The time that a thread used before its first fault is unknown. So the thread counts
            // from its first fault.
            let used = used_ns(&self.threads.get()[if self.faults == 0 { 0 } else { before }..]);
            self.used_ns = if self.faults == 0 { used } else { self.used_ns + used };
        }
        self.faults += 1;
        self.others += u32::from(!known);
        if self.faults < WINDOW && self.others <= OTHERS_MAX_BOUND {
            return None;
        }
        let faults = std::mem::take(&mut self.faults);
        let took_ns = now_ns().saturating_sub(self.since_ns);
        let most = if bound { OTHERS_MAX_BOUND } else { OTHERS_MAX };
        let mut pays = self.others <= most && took_ns <= WINDOW_NS_MAX;
        if pays && self.threads.count > 1 {
            let used_ns = used_ns(self.threads.get()).saturating_sub(self.used_ns);
            pays = (used_ns + u64::from(faults) * FAULT_NS) * 100 <= took_ns * LOAD_PERCENT;
            if !pays && bound {
                self.does_not_pay();
            }
        }
        match bound {
            true => (!pays).then_some(Verdict::Unbind),
            false => (pays && self.pause == 0).then_some(Verdict::Bind(self.threads)),
        }
    }

    fn others(&mut self, count: u32) {
        self.others = self.others.saturating_add(count);
    }

    /// Others want the processor, or the threads want more than one.
    fn does_not_pay(&mut self) {
        self.paused = (self.paused * 2).clamp(PAUSES[0], PAUSES[1]);
        self.pause = self.paused;
    }
}

/// Binds the pager's thread and the program's faulting threads to one processor, if that pays.
pub(crate) struct Follow {
    /// The processors of the pager's thread; `None` if it must not follow any thread.
    home: Option<Processors>,
    me: u32,
    judge: Judge,
    /// Threads are bound.
    bound: bool,
    /// The times at the last tick.
    times: Option<Times>,
    /// Faults since the last tick, and ticks without any.
    faults: u32,
    idle: u32,
}

impl Follow {
    /// Follows no thread.
    pub fn nobody() -> Follow {
        Follow { home: None, me: 0, judge: Judge::default(), bound: false, times: None, faults: 0, idle: 0 }
    }

    /// Follows the program's threads if that pays. This needs two conditions: the calling thread,
    /// the pager's, has more than one processor, and the kernel counts how long threads wait for
    /// one.
    pub fn where_it_pays() -> Follow {
        let me = thread::id();
        let counts = thread::ran_and_waited(me).is_some();
        let home = Processors::of(0).filter(|home| counts && home.count() > 1);
        Follow { home, me, ..Follow::nobody() }
    }

    /// Whether the pager's thread is on the processor of the program's threads.
    pub fn is_there(&self) -> bool {
        self.bound
    }

    /// Whether to call [`tick`](Self::tick).
    pub fn wants_ticks(&self) -> bool {
        self.home.is_some()
    }

    /// `thread` (0 if not known) waits for a page.
    pub fn fault(&mut self, thread: u32) {
        if self.home.is_none() || thread == 0 {
            return;
        }
        self.faults += 1;
        if self.bound && binding::count() == 0 {
            // The program would have seen the binding, so the binding has ended.
            self.come_home();
        }
        let used_ns = |threads: &[u32]| threads.iter().filter_map(|&thread| thread::used_by(thread)).sum();
        match self.judge.fault(thread, self.bound, thread::now_ns, used_ns) {
            Some(Verdict::Bind(threads)) => self.bind(threads),
            Some(Verdict::Unbind) => self.unbind(),
            None => {}
        }
    }

    /// Events for which no thread waits, or that need work for more than a page: first touches,
    /// prefetched blocks.
    pub fn other(&mut self, count: usize) {
        self.judge.others(count as u32);
    }

    /// Binds threads, and follows them.
    fn bind(&mut self, threads: Threads) {
        let Some(home) = &self.home else { return };
        let Some(processor) = binding::bind(threads.get()) else { return };
        let is_here = home.only(processor).is_some_and(|only| only.give_to(0));
        (self.bound, self.idle) = (true, 0);
        self.times = self.times();
        if !is_here {
            self.unbind();
        }
    }

    fn times(&self) -> Option<Times> {
        Times::of(self.judge.threads.get().iter().copied().chain([self.me]))
    }

    fn unbind(&mut self) {
        binding::unbind();
        self.come_home();
    }

    fn come_home(&mut self) {
        self.bound = false;
        self.judge.faults = 0;
        self.home.as_ref().map(|home| home.give_to(0));
    }

    /// Called some times a second.
    pub fn tick(&mut self) {
        self.judge.pause = self.judge.pause.saturating_sub(1);
        let faults = std::mem::take(&mut self.faults);
        if !self.bound {
            return;
        }
        self.idle = if faults == 0 { self.idle + 1 } else { 0 };
        let now = self.times();
        let crowded = match (&now, &self.times) {
            (Some(now), Some(before)) => now.is_crowded_since(before, self.judge.threads.count + 1),
            // A thread has ended.
            _ => false,
        };
        if crowded {
            self.judge.does_not_pay();
        }
        if crowded || now.is_none() || self.idle >= IDLE_TICKS {
            self.unbind();
        }
        self.times = now;
    }

    /// In the child of a fork, whose only thread is not bound.
    pub fn forget(&mut self) {
        binding::forget();
        *self = Follow::nobody();
    }
}

#[cfg(test)]
mod tests {
    use super::{Judge, Threads, Times, Verdict, WINDOW, WINDOW_NS_MAX};
    use terapage_sys::binding;

    fn threads(ids: &[u32]) -> Threads {
        let mut threads = Threads::default();
        ids.iter().for_each(|&id| assert!(threads.add(id)));
        threads
    }

    /// Simulates faults of threads in turns, one each `each_ns`; between them the threads run for
    /// `run_ns`. Returns the last verdict.
    fn pass(
        judge: &mut Judge,
        ids: &[u32],
        faults: u32,
        bound: bool,
        [each_ns, run_ns]: [u64; 2],
    ) -> Option<Verdict> {
        let mut now_ns = 1_000_000;
        let mut said = None;
        for fault in 0..faults {
            now_ns += each_ns;
            // The threads run equally long.
            let used = |of: &[u32]| u64::from(fault) * run_ns * of.len() as u64 / ids.len() as u64;
            said = judge.fault(ids[fault as usize % ids.len()], bound, || now_ns, used).or(said);
        }
        said
    }

    #[test]
    fn a_thread_that_faults_alone_and_often_is_bound() {
        let mut judge = Judge::default();
        assert_eq!(pass(&mut judge, &[7], WINDOW - 1, false, [20_000, 0]), None);
        assert_eq!(pass(&mut judge, &[7], 1, false, [20_000, 0]), Some(Verdict::Bind(threads(&[7]))));
        assert_eq!(pass(&mut judge, &[7], 10 * WINDOW, true, [20_000, 19_000]), None, "it stays bound");
    }

    #[test]
    fn several_threads_are_bound_if_one_processor_is_enough() {
        let mut judge = Judge::default();
        let bind = Some(Verdict::Bind(threads(&[7, 8])));
        assert_eq!(pass(&mut judge, &[7, 8], WINDOW, false, [20_000, 2_000]), bind);
        assert_eq!(pass(&mut judge, &[7, 8], WINDOW * 4, true, [20_000, 2_000]), None);
        assert_eq!(pass(&mut judge, &[7, 8], WINDOW, true, [20_000, 15_000]), Some(Verdict::Unbind));
        assert!(judge.pause > 0, "and are not tried again at once");
        let mut judge = Judge::default();
        assert_eq!(pass(&mut judge, &[7, 8], WINDOW * 4, false, [20_000, 15_000]), None);
        let many: Vec<u32> = (1..=binding::MOST as u32 + 4).collect();
        assert_eq!(pass(&mut judge, &many, WINDOW * 4, false, [20_000, 0]), None, "too many threads");
    }

    #[test]
    fn another_thread_ends_the_binding() {
        let mut judge = Judge { threads: threads(&[7]), ..Judge::default() };
        assert_eq!(pass(&mut judge, &[7, 8], WINDOW, true, [20_000, 0]), Some(Verdict::Unbind));
    }

    #[test]
    fn a_stream_and_a_program_that_computes_are_not_followed() {
        let mut judge = Judge::default();
        for _ in 0..WINDOW * 4 {
            judge.others(1);
            assert_eq!(pass(&mut judge, &[7], 1, false, [20_000, 0]), None);
        }
        let mut judge = Judge::default();
        let slow = WINDOW_NS_MAX / u64::from(WINDOW) * 2;
        assert_eq!(pass(&mut judge, &[7], WINDOW * 4, false, [slow, 0]), None);
    }

    #[test]
    fn after_a_binding_that_did_not_pay_there_is_a_pause() {
        let mut judge = Judge::default();
        judge.does_not_pay();
        assert_eq!(pass(&mut judge, &[7], WINDOW * 4, false, [20_000, 0]), None);
        judge.pause = 0;
        let bind = Some(Verdict::Bind(threads(&[7])));
        assert_eq!(pass(&mut judge, &[7], WINDOW, false, [20_000, 0]), bind);
        let first = judge.paused;
        judge.does_not_pay();
        assert_eq!(judge.pause, first * 2);
    }

    #[test]
    fn a_processor_is_crowded_if_threads_are_ready_and_none_of_them_runs() {
        let before = Times { at_ns: 0, ran: 0, waited: 0 };
        let at = |ran, waited| Times { at_ns: 1000, ran, waited };
        assert!(!at(900, 900).is_crowded_since(&before, 2), "they wait for each other");
        assert!(at(500, 700).is_crowded_since(&before, 2), "somebody else runs");
        assert!(!at(900, 1700).is_crowded_since(&before, 3), "two wait while the third runs");
    }
}
