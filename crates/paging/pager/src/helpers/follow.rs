//! The pager's thread on the processor of the thread that waits for it.
//!
//! A program that faults page by page, in one thread, runs in turns with the pager's thread: one
//! waits while the other works. On one processor each turn is a switch. On two, each is an interrupt
//! of the other processor, which has idled until then, and to take a page out of the program also
//! interrupts the processor that the program runs on, since that has addresses of the process in its
//! cache. So a miss costs two thirds or less of the time on one processor (docs/measurements.md, "The
//! price of a miss"), and leaves the other processors to others.
//!
//! The kernel moves a thread that wakes to an idle processor. So both threads are bound to one,
//! [for the program's](terapage_sys::binding) in a way that nothing in it can see, and only as long as
//! - one thread has nearly all faults, and they come one soon after the other;
//! - little is prefetched: a stream is faster if the pager works beside the program;
//! - no other work wants their processor.

use terapage_sys::binding;
use terapage_sys::thread::{self, Processors};

/// Faults of a window, after which is decided. Chosen, not measured.
const WINDOW: u32 = 64;
/// The most faults in a window that other threads have, or that are first touches, and the most
/// blocks that are prefetched meanwhile. Chosen, not measured.
const OTHERS_MAX: u32 = WINDOW / 8;
/// The same for a binding that exists.
const OTHERS_MAX_BOUND: u32 = WINDOW / 4;
/// In a window that takes longer, ns, the program mostly does something else than to wait.
const WINDOW_NS_MAX: u64 = WINDOW as u64 * 500_000;
/// Others want the processor if for this share of a tick, per cent, one of the two threads was ready
/// and neither ran.
const CROWDED_PERCENT: u64 = 15;
/// Ticks without a fault after which the binding ends.
const IDLE_TICKS: u32 = 2;
/// Ticks without a binding after one that ended because others wanted the processor: the first
/// pause, and the longest. Each is twice the one before.
const PAUSES: [u32; 2] = [4, 256];

/// What the two threads have run and waited, ns.
#[derive(Clone, Copy)]
struct Times {
    at_ns: u64,
    program: (u64, u64),
    pager: (u64, u64),
}

impl Times {
    fn of(program: u32, pager: u32) -> Option<Times> {
        Some(Times {
            at_ns: thread::now_ns(),
            program: thread::ran_and_waited(program)?,
            pager: thread::ran_and_waited(pager)?,
        })
    }

    /// Whether others have used the processor since `before`. What one of the two threads waits
    /// while the other runs does not count.
    fn is_crowded_since(&self, before: &Times) -> bool {
        let took_ns = self.at_ns.saturating_sub(before.at_ns);
        let since = |now: (u64, u64), then: (u64, u64)| (now.0 - then.0.min(now.0), now.1 - then.1.min(now.1));
        let (program, pager) = (since(self.program, before.program), since(self.pager, before.pager));
        let others = program.1.saturating_sub(pager.0).max(pager.1.saturating_sub(program.0));
        others * 100 > took_ns * CROWDED_PERCENT
    }
}

/// Decides from what faults, and when, whether a thread is to be bound.
#[derive(Default)]
struct Judge {
    /// The thread that the window is about.
    thread: u32,
    faults: u32,
    others: u32,
    since_ns: u64,
    /// Ticks until a thread may be bound again.
    pause: u32,
    /// The last pause.
    paused: u32,
}

/// What to do at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Bind(u32),
    Unbind,
}

impl Judge {
    /// `thread` faults, while `bound` is bound.
    fn fault(&mut self, thread: u32, bound: Option<u32>, now_ns: impl Fn() -> u64) -> Option<Verdict> {
        if self.faults == 0 {
            (self.thread, self.others, self.since_ns) = (bound.unwrap_or(thread), 0, now_ns());
        }
        self.faults += 1;
        self.others += u32::from(thread != self.thread);
        let ends = self.faults >= WINDOW || self.others > OTHERS_MAX_BOUND;
        if !ends {
            return None;
        }
        let most = if bound.is_some() { OTHERS_MAX_BOUND } else { OTHERS_MAX };
        let is_dense = self.others <= most && now_ns().saturating_sub(self.since_ns) <= WINDOW_NS_MAX;
        self.faults = 0;
        match bound {
            Some(_) => (!is_dense).then_some(Verdict::Unbind),
            None => (is_dense && self.pause == 0).then_some(Verdict::Bind(self.thread)),
        }
    }

    fn others(&mut self, count: u32) {
        self.others = self.others.saturating_add(count);
    }

    /// Others want the processor.
    fn crowded(&mut self) {
        self.paused = (self.paused * 2).clamp(PAUSES[0], PAUSES[1]);
        self.pause = self.paused;
    }
}

/// Binds the pager's thread and one of the program's to one processor, where that pays.
pub(crate) struct Follow {
    /// The processors of the pager's thread; `None` if it is not to follow anybody.
    home: Option<Processors>,
    me: u32,
    judge: Judge,
    /// The thread that this pager has bound.
    bound: Option<u32>,
    /// The times at the last tick.
    times: Option<Times>,
    /// Faults since the last tick, and ticks without any.
    faults: u32,
    idle: u32,
}

impl Follow {
    /// Follows no thread.
    pub fn nobody() -> Follow {
        Follow { home: None, me: 0, judge: Judge::default(), bound: None, times: None, faults: 0, idle: 0 }
    }

    /// Follows the program's threads where that pays, if the calling thread, the pager's, has more
    /// than one processor, and the kernel counts for how long threads wait for one.
    pub fn where_it_pays() -> Follow {
        let me = thread::id();
        let counts = thread::ran_and_waited(me).is_some();
        let home = Processors::of(0).filter(|home| counts && home.count() > 1);
        Follow { home, me, ..Follow::nobody() }
    }

    /// Whether the pager's thread is where the program's is. Then it must not spin.
    pub fn is_there(&self) -> bool {
        self.bound.is_some()
    }

    /// Whether [`tick`](Self::tick) is to be called.
    pub fn wants_ticks(&self) -> bool {
        self.home.is_some()
    }

    /// `thread` (0 if not known) waits for a page.
    pub fn fault(&mut self, thread: u32) {
        if self.home.is_none() || thread == 0 {
            return;
        }
        self.faults += 1;
        if self.bound.is_some() && binding::bound() != self.bound {
            // The program is about to see the binding, so it has ended.
            self.come_home();
        }
        match self.judge.fault(thread, self.bound, thread::now_ns) {
            Some(Verdict::Bind(wanted)) if wanted == thread => self.bind(thread),
            Some(Verdict::Unbind) => self.unbind(),
            _ => {}
        }
    }

    /// Events for which nobody waits, or whose work is more than a page's: first touches,
    /// prefetched blocks.
    pub fn other(&mut self, count: usize) {
        self.judge.others(count as u32);
    }

    /// Binds `thread`, which waits for a page, and follows it.
    fn bind(&mut self, thread: u32) {
        let Some(home) = &self.home else { return };
        let Some(processor) = binding::bind(thread) else { return };
        let is_here = home.only(processor).is_some_and(|only| only.give_to(0));
        (self.bound, self.times, self.idle) = (Some(thread), Times::of(thread, self.me), 0);
        if !is_here {
            self.unbind();
        }
    }

    fn unbind(&mut self) {
        binding::unbind();
        self.come_home();
    }

    fn come_home(&mut self) {
        self.bound = None;
        self.judge.faults = 0;
        self.home.as_ref().map(|home| home.give_to(0));
    }

    /// Called some times a second.
    pub fn tick(&mut self) {
        self.judge.pause = self.judge.pause.saturating_sub(1);
        let faults = std::mem::take(&mut self.faults);
        let Some(thread) = self.bound else { return };
        self.idle = if faults == 0 { self.idle + 1 } else { 0 };
        let now = Times::of(thread, self.me);
        let crowded = match (&now, &self.times) {
            (Some(now), Some(before)) => now.is_crowded_since(before),
            _ => true,
        };
        self.times = now;
        if crowded {
            self.judge.crowded();
        }
        if crowded || self.idle >= IDLE_TICKS {
            self.unbind();
        }
    }

    /// In the child of a fork, whose only thread is free.
    pub fn forget(&mut self) {
        binding::forget();
        *self = Follow::nobody();
    }
}

#[cfg(test)]
mod tests {
    use super::{Judge, OTHERS_MAX, Times, Verdict, WINDOW, WINDOW_NS_MAX};

    /// Lets `faults` of a thread pass, each `each_ns` after the other. What was said last.
    fn pass(judge: &mut Judge, thread: u32, faults: u32, bound: Option<u32>, each_ns: u64) -> Option<Verdict> {
        let mut now_ns = 1_000_000;
        let mut said = None;
        for _ in 0..faults {
            now_ns += each_ns;
            said = judge.fault(thread, bound, || now_ns).or(said);
        }
        said
    }

    #[test]
    fn a_thread_that_faults_alone_and_often_is_bound() {
        let mut judge = Judge::default();
        assert_eq!(pass(&mut judge, 7, WINDOW - 1, None, 20_000), None);
        assert_eq!(pass(&mut judge, 7, 1, None, 20_000), Some(Verdict::Bind(7)));
        assert_eq!(pass(&mut judge, 7, 10 * WINDOW, Some(7), 20_000), None, "it stays bound");
    }

    #[test]
    fn two_threads_that_fault_are_not_bound() {
        let mut judge = Judge::default();
        for _ in 0..100 {
            assert_eq!(pass(&mut judge, 7, 1, None, 20_000), None);
            assert_eq!(pass(&mut judge, 8, 1, None, 20_000), None);
        }
        let ends = (0..WINDOW).find_map(|_| pass(&mut judge, 8, 1, Some(7), 20_000));
        assert_eq!(ends, Some(Verdict::Unbind), "a second thread ends the binding");
    }

    #[test]
    fn a_stream_and_a_program_that_computes_are_not_followed() {
        let mut judge = Judge::default();
        for _ in 0..WINDOW * 4 {
            judge.others(1);
            assert_eq!(pass(&mut judge, 7, 1, None, 20_000), None);
        }
        let mut judge = Judge::default();
        let slow = WINDOW_NS_MAX / u64::from(WINDOW) + 1_000;
        assert_eq!(pass(&mut judge, 7, WINDOW * 4, None, slow * 2), None);
        assert!(OTHERS_MAX < WINDOW);
    }

    #[test]
    fn after_others_wanted_the_processor_there_is_a_pause() {
        let mut judge = Judge::default();
        judge.crowded();
        assert_eq!(pass(&mut judge, 7, WINDOW * 4, None, 20_000), None);
        judge.pause = 0;
        assert_eq!(pass(&mut judge, 7, WINDOW, None, 20_000), Some(Verdict::Bind(7)));
        let first = judge.paused;
        judge.crowded();
        assert_eq!(judge.pause, first * 2);
    }

    #[test]
    fn a_processor_is_crowded_if_neither_thread_runs_while_one_is_ready() {
        let before = Times { at_ns: 0, program: (0, 0), pager: (0, 0) };
        let at = |program, pager| Times { at_ns: 1000, program, pager };
        assert!(!at((500, 400), (500, 100)).is_crowded_since(&before), "they wait for each other");
        assert!(at((200, 700), (300, 0)).is_crowded_since(&before), "somebody else runs");
        assert!(at((100, 0), (0, 500)).is_crowded_since(&before), "the pager waits for somebody else");
    }
}
