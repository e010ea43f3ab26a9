//! The structures that the pager's thread shares with others, under loom: the mailbox, the trace's
//! ring of words, and the lock that is held across a fork. The files are the real ones, compiled
//! with loom's atomics.
//!
//! Loom tries every order of steps up to a number of preemptions, and every value that a relaxed
//! load may see. Canaries with bugs of their own show that each kind of error is found.

extern crate self as terapage_sys;

#[path = "../../preload/src/host/lock.rs"]
#[allow(dead_code, reason = "the preload uses all of it")]
mod lock;
#[path = "../../pager/src/mailbox.rs"]
#[allow(dead_code, reason = "the pager uses all of it")]
mod mailbox;
#[path = "../../pager/src/words.rs"]
#[allow(dead_code, reason = "the recorder uses all of it")]
mod words;

use lock::Lock;
use loom::sync::atomic::AtomicU32;
use loom::thread as threads;
use mailbox::{Mailbox, Request};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use words::{Put, Take, Words};

/// The answer to a request here: its own first address.
#[derive(Debug, PartialEq, Eq)]
struct Error(usize);

/// A part of requests that no test here uses.
mod files {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Part;
}

/// The primitives of the shared files, made of loom's types.
mod sync {
    use loom::sync::Condvar;
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize};
    pub(crate) use loom::sync::{Mutex, MutexGuard as Guard};
    use std::sync::LockResult;
    use std::sync::atomic::Ordering;

    /// A word that can be slept on.
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
        if word.word.load(Ordering::SeqCst) == value {
            drop(word.woken.wait(sleepers).unwrap());
        }
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

    pub fn block_signals() -> Signals {
        Signals
    }

    pub fn restore_signals(_old: &Signals) {}

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

fn discard(start: usize) -> Request {
    Request::Discard { start, len: 0 }
}

/// The state of the pager's thread, which the forking thread uses while that is parked.
struct Engine(loom::cell::UnsafeCell<u32>);

// SAFETY: it is not safe by itself; loom fails the test if two threads use it at the same time.
unsafe impl Sync for Engine {}

impl Engine {
    fn new() -> Arc<Engine> {
        Arc::new(Engine(loom::cell::UnsafeCell::new(0)))
    }

    fn touch(&self) -> u32 {
        // SAFETY: loom checks that no other thread uses it now.
        self.0.with_mut(|touches| unsafe {
            *touches += 1;
            *touches
        })
    }
}

/// The pager's thread: serves this many requests, and touches its own state each time.
fn serve(mailbox: &Mailbox, engine: &Engine, requests: usize) {
    let mut served = 0;
    while served < requests {
        mailbox.event.wait_and_clear();
        let Some(request) = mailbox.take() else { continue };
        served += 1;
        engine.touch();
        match request {
            Request::Park { .. } => {
                mailbox.park();
                while mailbox.is_parked() {
                    mailbox.event.wait();
                }
                engine.touch();
            }
            Request::Discard { start, .. } => mailbox.answer(Err(Error(start))),
            _ => unreachable!("not asked here"),
        }
    }
}

#[test]
fn each_asker_gets_its_own_answer() {
    explore(3, || {
        let mailbox = Mailbox::new().unwrap();
        let ask = |start| threads::spawn(move || assert_eq!(mailbox.ask(discard(start)), Err(Error(start))));
        let askers = [ask(1), ask(2)];
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
        let asker = threads::spawn(move || assert_eq!(mailbox.ask(discard(7)), Err(Error(7))));
        serve(mailbox, &engine, 2);
        forker.join().unwrap();
        asker.join().unwrap();
        assert_eq!(engine.touch(), 5);
    });
}

/// Puts 1 to `count` through a ring, as the recorder and its writing thread do.
/// `greedy` is a fault: the taker gives a word's place back before it takes the word.
fn through_a_ring(count: u64, greedy: bool) {
    const RUNNING: u32 = 0;
    const FINISHING: u32 = 1;
    let ring = Arc::new((Words::<2>::new(), AtomicU32::new(RUNNING)));
    let putter = threads::spawn({
        let ring = ring.clone();
        move || {
            let (words, state) = &*ring;
            let mut at = Put::default();
            for word in 1..=count {
                while !at.has_room(words, 1) {
                    threads::yield_now();
                }
                at.put(words, word);
                at.publish(words);
            }
            state.compare_exchange(RUNNING, FINISHING, Release, Relaxed).unwrap();
        }
    });
    let (words, state) = &*ring;
    let mut at = Take::default();
    let mut next = 1;
    loop {
        // The state is read before the ring: if it is final, the ring has all words that there will
        // be.
        let finishing = state.load(Acquire) == FINISHING;
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
        if finishing {
            break;
        }
        threads::yield_now();
    }
    assert_eq!(next, count + 1, "words were lost");
    putter.join().unwrap();
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
        // SAFETY: held; loom checks it.
        lock.lock().with_mut(|value| unsafe { *value += 1 });
    };
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let lock = lock.clone();
            threads::spawn(move || with_guard(&lock))
        })
        .collect();
    lock.take();
    // SAFETY: taken; loom checks it.
    unsafe { lock.value().with_mut(|value| *value += 1) };
    lock.give();
    others.into_iter().for_each(|other| other.join().unwrap());
    // SAFETY: the others have ended.
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
