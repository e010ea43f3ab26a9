//! The structures that the pager's thread shares with others, under loom: the mailbox, event
//! counts, the trace's ring of words, and the lock that is held across a fork. The files are the
//! real ones, compiled with loom's atomics.
//!
//! Loom tries every order of steps up to a number of preemptions, and every value that a relaxed
//! load may see. Canaries with planted bugs show that each kind of error is found.

extern crate self as terapage_sys;

#[path = "../../pager/src/event_count.rs"]
#[allow(dead_code, reason = "the pager's threads use all of it")]
mod event_count;
#[path = "../../preload/src/process/lock.rs"]
#[allow(dead_code, reason = "the preload uses all of it")]
mod lock;
#[path = "../../pager/src/mailbox.rs"]
#[allow(dead_code, reason = "the pager uses all of it")]
mod mailbox;
#[path = "../../pager/src/pins.rs"]
#[allow(dead_code, reason = "the pager and the preload use all of it")]
mod pins;
#[path = "../../pager/src/trace/words.rs"]
#[allow(dead_code, reason = "the recorder uses all of it")]
mod words;

use engine::Engine;
use error::Error;
use event_count::EventCount;
use lock::Lock;
use loom::sync::atomic::AtomicU32;
use loom::thread as threads;
use mailbox::Mailbox;
use pins::{Caller, Pins};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use words::{Put, Take, Words};

/// Bytes of a page.
pub const fn page_bytes() -> usize {
    4096
}

/// The answers of requests.
mod error {
    /// A number of the request's own.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Error(pub u32);
}

/// The state of the pager's thread.
mod engine {
    use loom::sync::Arc;

    /// All clones share one engine. The forking thread uses it, too, while the pager's thread is
    /// parked.
    #[derive(Clone)]
    pub struct Engine(Arc<loom::cell::UnsafeCell<u32>>);

    // SAFETY: it is not safe by itself; loom fails the test if two threads use it at the same time.
    unsafe impl Send for Engine {}

    impl Engine {
        pub fn new() -> Engine {
            Engine(Arc::new(loom::cell::UnsafeCell::new(0)))
        }

        pub fn touch(&self) {
            // SAFETY: loom checks that no other thread uses it now.
            self.0.with_mut(|touches| unsafe { *touches += 1 });
        }

        pub fn touches(&self) -> u32 {
            // SAFETY: as above.
            self.0.with_mut(|touches| unsafe { *touches })
        }

        pub fn blocks_of(&self, start: usize, len: usize) -> Result<(u32, u32), crate::Error> {
            Ok((start as u32, (start + len) as u32))
        }
    }
}

/// The primitives of the shared files, made of loom's types.
mod sync {
    use loom::sync::Condvar;
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard as Guard};
    use std::sync::LockResult;
    use std::sync::atomic::Ordering;

    /// A word on which threads can sleep.
    pub(crate) struct Word {
        word: loom::sync::atomic::AtomicU32,
        sleepers: Mutex<()>,
        woken: Condvar,
    }

    impl Word {
        pub fn new(value: u32) -> Word {
            Word {
                word: loom::sync::atomic::AtomicU32::new(value),
                sleepers: Mutex::new(()),
                woken: Condvar::new(),
            }
        }

        pub fn load(&self, order: Ordering) -> u32 {
            self.word.load(order)
        }

        pub fn fetch_add(&self, more: u32, order: Ordering) -> u32 {
            self.word.fetch_add(more, order)
        }

        pub fn store(&self, value: u32, order: Ordering) {
            self.word.store(value, order);
        }

        pub fn swap(&self, value: u32, order: Ordering) -> u32 {
            self.word.swap(value, order)
        }

        pub fn change(&self, old: u32, new: u32, order: Ordering) -> bool {
            self.word.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
        }
    }

    /// The kernel compares the word and begins the sleep in one step.
    pub(crate) fn wait(word: &Word, value: u32) {
        let sleepers = word.sleepers.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            drop(word.woken.wait(sleepers).unwrap());
        }
    }

    /// No code relies on the end of the time.
    pub(crate) fn wait_ms(word: &Word, value: u32, _ms: u64) {
        wait(word, value);
    }

    pub(crate) fn wake(word: &Word) {
        let _sleepers = word.sleepers.lock().unwrap();
        word.woken.notify_all();
    }

    pub(crate) fn recover<T>(locked: LockResult<Guard<'_, T>>) -> Guard<'_, T> {
        locked.unwrap()
    }

    /// A value whose every use loom sees.
    pub(crate) struct Cell<T>(loom::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub fn new(value: T) -> Cell<T> {
            Cell(loom::cell::UnsafeCell::new(value))
        }

        pub fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
            self.0.with_mut(use_it)
        }
    }
}

/// The event that wakes the pager's thread.
mod fd {
    use loom::sync::{Condvar, Mutex};

    #[derive(Default)]
    pub struct Fd {
        set: Mutex<bool>,
        changed: Condvar,
    }

    impl Fd {
        pub(crate) fn event() -> Result<Fd, crate::Error> {
            Ok(Fd::default())
        }

        pub fn signal(&self) {
            *self.set.lock().unwrap() = true;
            self.changed.notify_one();
        }

        /// Waits until the event is set, as the pager does while it is parked.
        pub fn wait(&self) {
            let mut set = self.set.lock().unwrap();
            while !*set {
                set = self.changed.wait(set).unwrap();
            }
        }

        /// Waits until the event is set, and clears it, as the pager does.
        pub fn wait_and_clear(&self) {
            let mut set = self.set.lock().unwrap();
            while !*set {
                set = self.changed.wait(set).unwrap();
            }
            *set = false;
        }
    }
}

mod thread {
    use std::sync::atomic::AtomicU32;

    /// No signals here.
    pub struct Signals;

    pub fn begin_quiet(_me: usize) {}

    pub fn end_quiet() {}

    pub fn block_signals() -> Signals {
        Signals
    }

    pub fn restore_signals(_old: &Signals) {}

    /// No time passes here.
    pub fn now_ns() -> u64 {
        0
    }

    pub fn own_name() -> usize {
        1
    }

    pub fn is_internal(_thread: usize) -> bool {
        false
    }

    pub fn id() -> u32 {
        1
    }

    /// The processor's own word is not used here.
    pub fn wait(_: &AtomicU32, _: u32) {}

    pub fn wake(_: &AtomicU32) {}
}

/// Runs `test` in every order with up to `preemptions` preemptions.
fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// Asks for a touch of the engine, and for an answer. Checks that the answer was its own.
fn ask(mailbox: &Mailbox, number: u32) {
    let answer = mailbox.ask_for(number as usize, 1, move |engine, first, end| {
        engine.touch();
        if first == 1 { Ok(end) } else { Err(Error(end)) }
    });
    assert_eq!(answer, if number == 1 { Ok(2) } else { Err(Error(number + 1)) });
}

/// The pager's thread: serves requests until its state was touched this often, by any thread.
fn serve(mailbox: &Mailbox, engine: &Engine, touches: u32) {
    let mut own = engine.clone();
    while engine.touches() < touches {
        mailbox.event.wait_and_clear();
        if let Some(forker) = mailbox.serve(&mut own) {
            assert_eq!(forker, thread::id());
            mailbox.park();
            while mailbox.is_parked() {
                mailbox.event.wait();
            }
        }
    }
}

#[test]
fn each_asker_gets_its_own_answer() {
    explore(3, || {
        let mailbox = Mailbox::new().unwrap();
        let askers = [1, 2].map(|number| threads::spawn(move || ask(mailbox, number)));
        serve(mailbox, &Engine::new(), 2);
        askers.into_iter().for_each(|asker| asker.join().unwrap());
    });
}

#[test]
fn a_fork_has_the_engine_for_itself() {
    explore(3, || {
        let mailbox = Mailbox::new().unwrap();
        let engine = Engine::new();
        let forker = threads::spawn({
            let engine = engine.clone();
            move || {
                let asking = mailbox.lock();
                mailbox.stop_pager(&asking);
                engine.touch();
                mailbox.unpark();
                drop(asking);
            }
        });
        let asker = threads::spawn(move || ask(mailbox, 7));
        serve(mailbox, &engine, 2);
        forker.join().unwrap();
        asker.join().unwrap();
        assert_eq!(engine.touches(), 2);
    });
}

/// Puts 1 to `count` through a ring, as the recorder and its writing thread do. `greedy` is a
/// fault: the taker frees a word's place before it takes the word.
fn through_a_ring(count: u64, greedy: bool) {
    let ring = Arc::new((Words::<2>::new(), EventCount::new()));
    let putter = threads::spawn({
        let ring = ring.clone();
        move || {
            let (words, events) = &*ring;
            let mut at = Put::default();
            for word in 1..=count {
                while !at.has_room(words, 1) {
                    threads::yield_now();
                }
                at.put(words, word);
                at.publish(words);
                events.notify();
            }
            events.end();
        }
    });
    let (words, events) = &*ring;
    let mut at = Take::default();
    let mut next = 1;
    loop {
        // The thread reads the count before it reads the ring: if the count has ended, the ring
        // has all remaining words.
        let seen = events.read();
        let head = words.head();
        while at.tail() < head {
            if greedy {
                let mut ahead = Take::default();
                for _ in 0..next {
                    ahead.take(words);
                }
                ahead.give_back(words);
            }
            assert_eq!(at.take(words), next, "a word that was not put in there");
            next += 1;
        }
        at.give_back(words);
        let Some(seen) = seen else { break };
        if words.head() == at.tail() {
            events.wait(seen);
        }
    }
    assert_eq!(next, count + 1, "words were lost");
    putter.join().unwrap();
}

/// A thread sleeps until there is work, another until the count ends. `late`: false is a fault, the
/// event is counted before there is work.
fn sleep_until_an_event(late: bool) {
    let shared = Arc::new((AtomicU32::new(0), EventCount::new()));
    let worker = threads::spawn({
        let shared = shared.clone();
        move || {
            let (work, events) = &*shared;
            loop {
                let seen = events.read();
                if work.load(SeqCst) == 1 {
                    return;
                }
                events.wait(seen.expect("the end comes after the work"));
            }
        }
    });
    let sleeper = threads::spawn({
        let shared = shared.clone();
        move || {
            while let Some(seen) = shared.1.read() {
                shared.1.wait(seen);
            }
        }
    });
    let (work, events) = &*shared;
    if late {
        work.store(1, SeqCst);
        events.notify();
    } else {
        events.notify();
        work.store(1, SeqCst);
    }
    worker.join().unwrap();
    events.end();
    sleeper.join().unwrap();
}

/// How a call deals with its pins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pinning {
    Right,
    /// A fault: the call does not wait for the end of what was announced.
    WaitsForNothing,
    /// The call ends its pins by their words, as code of a host does.
    ByWords(Ordering),
}

/// A page that the pager may take away.
struct Page {
    present: loom::sync::atomic::AtomicUsize,
    /// What the kernel and the pager do with the bytes.
    bytes: loom::cell::UnsafeCell<u32>,
}

// SAFETY: it is not safe by itself; loom fails the test if two threads use it at the same time.
unsafe impl Sync for Page {}

const PAGE: usize = page_bytes();

impl Page {
    fn new() -> Page {
        Page { present: loom::sync::atomic::AtomicUsize::new(1), bytes: loom::cell::UnsafeCell::new(0) }
    }

    /// The pager takes the page away, unless a call has pinned it.
    fn leave(&self, pins: &Pins) {
        if pins.take(PAGE, PAGE) {
            self.present.store(0, Relaxed);
            // SAFETY: loom checks that nobody uses the bytes now.
            self.bytes.with_mut(|bytes| unsafe { *bytes += 1 });
            pins.taken();
        }
    }

    /// A call of a thread pins a part of the page, which the kernel then uses.
    fn call(&self, pins: &Pins, thread: usize, how: Pinning) {
        let mut call = pins.begin(Caller { owner: thread, thread, depth: 1, hint: 0 });
        while !pins.add(&mut call, PAGE + 8, PAGE + 16) {
            threads::yield_now();
        }
        if how != Pinning::WaitsForNothing {
            pins.settle(&call, threads::yield_now);
        }
        // A touch brings the page in.
        if self.present.load(Relaxed) == 0 {
            self.present.store(1, Relaxed);
        }
        if how != Pinning::WaitsForNothing {
            // SAFETY: loom checks that nobody writes the bytes now.
            self.bytes.with(|bytes| unsafe { *bytes });
        }
        assert_eq!(self.present.load(Relaxed), 1, "a call has met an absent page");
        let Pinning::ByWords(order) = how else { return pins.end(call) };
        for word in pins.words(&call).expect("one slot is enough") {
            // SAFETY: the words are those of a slot, which stays.
            unsafe { (*(word as *const sync::AtomicUsize)).store(0, order) };
        }
    }
}

/// Calls pin a page and use it, while the pager takes pages away and puts them back.
fn pin_and_take(calls: usize, times: usize, how: Pinning) {
    let shared = Arc::new((Pins::new(1), Page::new()));
    let begin = |thread: usize| {
        let shared = shared.clone();
        threads::spawn(move || shared.1.call(&shared.0, thread, how))
    };
    let others: Vec<_> = (2..=calls).map(begin).collect();
    let pager = threads::spawn({
        let shared = shared.clone();
        move || (0..times).for_each(|_| shared.1.leave(&shared.0))
    });
    shared.1.call(&shared.0, 1, how);
    others.into_iter().chain([pager]).for_each(|thread| thread.join().unwrap());
}

#[test]
fn what_is_pinned_stays() {
    explore(3, || pin_and_take(1, 1, Pinning::Right));
    explore(3, || pin_and_take(1, 2, Pinning::Right));
    explore(2, || pin_and_take(2, 1, Pinning::Right));
    explore(3, || pin_and_take(1, 2, Pinning::ByWords(Ordering::Release)));
}

#[test]
#[should_panic(expected = "a call has met an absent page")]
fn canary_a_call_that_does_not_wait() {
    explore(3, || pin_and_take(1, 1, Pinning::WaitsForNothing));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_pins_that_end_before_the_call() {
    explore(3, || pin_and_take(1, 1, Pinning::ByWords(Relaxed)));
}

/// A thread ends its call and then itself; another takes its slot, while a third one drops the pins
/// of threads that have ended.
#[test]
fn pins_outlive_the_end_of_a_thread_that_had_the_slot_before() {
    const ENDED: usize = 1;
    explore(3, || {
        let shared = Arc::new((Pins::new(1), loom::sync::atomic::AtomicUsize::new(0)));
        let add = |pins: &Pins, thread: usize| {
            let mut call = pins.begin(Caller { owner: 7, thread, depth: 1, hint: 0 });
            assert!(pins.add(&mut call, PAGE, 2 * PAGE));
            call
        };
        let call = add(&shared.0, ENDED);
        let program = threads::spawn({
            let shared = shared.clone();
            move || {
                let (pins, ended) = &*shared;
                pins.end(call);
                ended.store(1, Ordering::Release);
                let next = add(pins, ENDED + 1);
                let mut pinned = 0;
                pins.each_within(0, usize::MAX, |from, to| pinned += to - from);
                assert_eq!(pinned, PAGE, "a call has lost its pins");
                pins.end(next);
            }
        });
        let (pins, ended) = &*shared;
        pins.forget_ended(|thread| thread == ENDED && ended.load(Relaxed) == 1);
        program.join().unwrap();
        // Pins that a thread has left behind are dropped.
        add(pins, ENDED);
        pins.forget_ended(|thread| thread == ENDED);
        assert_eq!(pins.all_bytes(), 0);
    });
}

/// Of two calls that pin at the same time, at least one sees the pins of both; and the pager sees
/// the pins, or the call sees the room that the pager has left.
#[test]
fn calls_see_what_others_have_pinned_and_the_room() {
    explore(3, || {
        let pins = Arc::new(Pins::new(2));
        let pin = |pins: &Pins, thread: usize| {
            let mut call = pins.begin(Caller { owner: thread, thread, depth: 1, hint: thread - 1 });
            assert!(pins.add(&mut call, thread * PAGE, (thread + 1) * PAGE));
            (pins.all_bytes(), pins.room())
        };
        let other = threads::spawn({
            let pins = pins.clone();
            move || pin(&pins, 2)
        });
        let (own, _) = pin(&pins, 1);
        let (others, _) = other.join().unwrap();
        assert!(own == 2 * PAGE || others == 2 * PAGE, "neither call sees the other");
    });
    explore(3, || {
        let pins = Arc::new(Pins::new(1));
        let caller = threads::spawn({
            let pins = pins.clone();
            move || {
                let mut call = pins.begin(Caller { owner: 1, thread: 1, depth: 1, hint: 0 });
                assert!(pins.add(&mut call, PAGE, 2 * PAGE));
                pins.all_bytes();
                pins.room()
            }
        });
        pins.set_room(3 * PAGE, PAGE);
        let mut pinned = 0;
        pins.each_within(0, usize::MAX, |from, to| pinned += to - from);
        let room = caller.join().unwrap();
        assert!(room == 3 * PAGE || pinned == PAGE, "the pager does not see the pins, nor the call the room");
    });
}

#[test]
fn an_event_wakes_all_who_sleep() {
    explore(2, || sleep_until_an_event(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_an_event_before_the_work() {
    explore(2, || sleep_until_an_event(false));
}

#[test]
fn every_word_comes_out_of_the_ring_once_in_order() {
    explore(2, || through_a_ring(4, false));
}

#[test]
#[should_panic(expected = "a word that was not put in there")]
fn canary_a_place_given_back_too_early() {
    explore(2, || through_a_ring(4, true));
}

/// A lock's word under loom. `order`: false is a fault, orders are ignored. `wakes`: false is a
/// fault.
struct Futex {
    word: sync::Word,
    orders: bool,
    wakes: bool,
}

impl Futex {
    fn order(&self, order: Ordering) -> Ordering {
        if self.orders { order } else { Relaxed }
    }
}

impl lock::Word for Futex {
    fn change(&self, old: u32, new: u32, order: Ordering) -> bool {
        self.word.change(old, new, self.order(order))
    }

    fn get(&self) -> u32 {
        self.word.load(Relaxed)
    }

    fn swap(&self, new: u32, order: Ordering) -> u32 {
        self.word.swap(new, self.order(order))
    }

    fn wait(&self, value: u32) {
        sync::wait(&self.word, value);
    }

    fn wake(&self) {
        if self.wakes {
            sync::wake(&self.word);
        }
    }
}

/// Several threads take the lock, one of them as in a fork, and change the guarded value.
fn take_turns(threads: u32, orders: bool, wakes: bool) {
    let futex = Futex { word: sync::Word::new(0), orders, wakes };
    let lock = Arc::new(Lock::on(futex, 1, loom::cell::UnsafeCell::new(0)));
    let with_guard = |lock: &Lock<loom::cell::UnsafeCell<u32>, Futex>| {
        // SAFETY: the lock is held; loom checks it.
        lock.lock().with_mut(|value| unsafe { *value += 1 });
    };
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let lock = lock.clone();
            threads::spawn(move || with_guard(&lock))
        })
        .collect();
    lock.take();
    // SAFETY: the lock is taken; loom checks it.
    unsafe { lock.value().with_mut(|value| *value += 1) };
    lock.give();
    others.into_iter().for_each(|other| other.join().unwrap());
    // SAFETY: the other threads have ended.
    assert_eq!(lock.lock().with(|value| unsafe { *value }), threads);
}

#[test]
fn a_lock_has_one_holder_and_wakes_the_next() {
    explore(3, || take_turns(2, true, true));
    explore(2, || take_turns(3, true, true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn canary_a_lock_that_does_not_wake() {
    explore(3, || take_turns(2, true, false));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_lock_without_orders() {
    explore(3, || take_turns(2, false, true));
}
