//! A lock that can be held across a fork: taken in one function, released in another.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_sys::thread::{self, Signals};

/// The word of a lock, and sleeping on it: a real atomic and the kernel's futex, or a model
/// checker's.
pub trait Word {
    /// Changes the word from `old` to `new`, if it is `old`. Returns whether it was.
    fn change(&self, old: u32, new: u32, order: Ordering) -> bool;
    /// The word.
    fn get(&self) -> u32;
    /// Sets the word, and returns its old value.
    fn swap(&self, new: u32, order: Ordering) -> u32;
    /// Sleeps while the word is `value`. It may wake early.
    fn wait(&self, value: u32);
    /// Wakes all threads that sleep on the word.
    fn wake(&self);
}

impl Word for AtomicU32 {
    #[inline]
    fn change(&self, old: u32, new: u32, order: Ordering) -> bool {
        self.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn get(&self) -> u32 {
        self.load(Relaxed)
    }

    #[inline]
    fn swap(&self, new: u32, order: Ordering) -> u32 {
        AtomicU32::swap(self, new, order)
    }

    fn wait(&self, value: u32) {
        thread::wait(self, value);
    }

    fn wake(&self) {
        thread::wake(self);
    }
}

/// In the word of a lock: a thread sleeps until the lock is released.
const SLEEPER: u32 = 1;

/// The mark of a thread in the word of a lock: not 0, and without [`SLEEPER`].
fn mark(thread: usize) -> u32 {
    // Descriptors of threads are aligned to 64 bytes.
    let bits = thread >> 6;
    ((bits ^ bits >> 31) as u32) << 1 | 2
}

/// A lock. Its word is 0 if it is free, otherwise the mark of the holder, and whether other threads
/// sleep. The holder is in the word because a signal may come right after the word has changed: its
/// handler must see that the lock is taken, and by which thread.
pub struct Lock<T, W: Word = AtomicU32> {
    state: W,
    spins: u32,
    /// Whether signals are blocked while the lock is taken.
    quiet: bool,
    /// Whether its holder need not block signals again for other locks.
    leads: bool,
    /// The signals to restore; only the holder uses this field.
    signals: UnsafeCell<Option<Signals>>,
    /// The `pthread_self` of the holder.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder uses the value, and there is one holder at a time.
unsafe impl<T: Send, W: Word + Sync> Sync for Lock<T, W> {}

/// A guard: the lock is taken while it lives.
pub struct Guard<'a, T, W: Word = AtomicU32>(&'a Lock<T, W>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock::on(AtomicU32::new(0), 100, value)
    }

    /// A lock that blocks signals while it is taken: a signal handler that also takes the lock
    /// would wait for its own thread.
    pub const fn quiet(value: T) -> Self {
        let mut lock = Lock::new(value);
        lock.quiet = true;
        lock
    }

    /// A quiet lock, of which there is one: while it is held, taking other quiet locks, or blocking
    /// signals otherwise, costs no system call. It is released after them.
    pub const fn leading(value: T) -> Self {
        let mut lock = Lock::quiet(value);
        lock.leads = true;
        lock
    }
}

impl<T, W: Word> Lock<T, W> {
    /// A lock on a word, which must be 0. It is tried `spins` times before a sleep.
    pub const fn on(state: W, spins: u32, value: T) -> Self {
        Lock {
            state,
            spins,
            quiet: false,
            leads: false,
            signals: UnsafeCell::new(None),
            holder: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) -> Guard<'_, T, W> {
        self.take();
        Guard(self)
    }

    /// Takes the lock without a guard; [`give`](Self::give) releases it.
    pub fn take(&self) {
        let me = thread::own_name();
        // The pager's threads get no signals in any case.
        let signals = (self.quiet && !thread::is_internal(me)).then(thread::block_signals);
        self.acquire(mark(me));
        self.holder.store(me, Relaxed);
        if signals.is_some() {
            // SAFETY: this thread is the holder.
            unsafe { *self.signals.get() = signals };
        }
        if self.leads {
            thread::begin_quiet(me);
        }
    }

    /// Takes the lock if it is free, and returns whether it was. For the pager's threads, which get
    /// no signals.
    pub fn try_take(&self) -> bool {
        let me = thread::own_name();
        debug_assert!(!self.quiet || thread::is_internal(me), "its signals are not blocked");
        if !self.state.change(0, mark(me), Acquire) {
            return false;
        }
        self.holder.store(me, Relaxed);
        if self.leads {
            thread::begin_quiet(me);
        }
        true
    }

    fn acquire(&self, mark: u32) {
        if self.state.change(0, mark, Acquire) {
            return;
        }
        for _ in 0..self.spins {
            std::hint::spin_loop();
            if self.state.change(0, mark, Acquire) {
                return;
            }
        }
        // Other threads may sleep, too, so the thread that leaves this loop must wake them later.
        while !self.state.change(0, mark | SLEEPER, Acquire) {
            let now = self.state.get();
            if now != 0 && (now & SLEEPER != 0 || self.state.change(now, now | SLEEPER, Relaxed)) {
                self.state.wait(now | SLEEPER);
            }
        }
    }

    /// Whether the calling thread holds the lock: then this is a signal handler, and the
    /// interrupted code holds it.
    pub fn is_mine(&self) -> bool {
        let me = thread::own_name();
        // A thread sees its own writes. The holder is not noted yet, or no longer, if the signal
        // came while the lock was being taken or released.
        let holder = self.holder.load(Relaxed);
        self.state.get() & !SLEEPER == mark(me) && (holder == me || holder == 0)
    }

    /// The guarded value, for a thread that has [`take`](Self::take)n the lock.
    ///
    /// # Safety
    /// The caller has taken the lock, and releases it only after the last use of the value.
    #[expect(clippy::mut_from_ref, reason = "the lock sees to it that there is one holder")]
    pub unsafe fn value(&self) -> &mut T {
        // SAFETY: the caller holds the lock.
        unsafe { &mut *self.value.get() }
    }

    /// Makes the lock new and free, with another value; the old value is forgotten. For the child
    /// of a fork.
    ///
    /// # Safety
    /// No thread holds the lock or waits for it, and no thread that did will continue.
    pub unsafe fn renew(&self, value: T) {
        // SAFETY: the caller promises that the lock has no other user.
        unsafe {
            self.value.get().write(value);
            *self.signals.get() = None;
        }
        self.holder.store(0, Relaxed);
        self.state.swap(0, Release);
    }

    /// Releases the lock that [`take`](Self::take) took, in this process or, after a fork, in its
    /// child.
    pub fn give(&self) {
        // SAFETY: this thread is still the holder.
        let signals = if self.quiet { unsafe { (*self.signals.get()).take() } } else { None };
        if self.leads {
            thread::end_quiet();
        }
        self.holder.store(0, Relaxed);
        if self.state.swap(0, Release) & SLEEPER != 0 {
            self.state.wake();
        }
        if let Some(signals) = signals {
            thread::restore_signals(&signals);
        }
    }
}

impl<T, W: Word> Deref for Guard<'_, T, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T, W: Word> DerefMut for Guard<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T, W: Word> Drop for Guard<'_, T, W> {
    fn drop(&mut self) {
        self.0.give();
    }
}

#[cfg(test)]
mod tests {
    use super::{AtomicU32, Lock, Ordering, SLEEPER, Word, mark};
    use std::cell::{Cell, RefCell};
    use std::ptr;

    thread_local! {
        static LOCK: Cell<*const Lock<(), Hooked>> = const { Cell::new(ptr::null()) };
        static FOUND: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }

    /// A word whose changes raise a signal: the handler asks who holds the lock.
    struct Hooked(AtomicU32);

    fn handle() {
        let lock = LOCK.get();
        // SAFETY: the test's lock lives while its address stands there.
        FOUND.with_borrow_mut(|found| found.push(unsafe { (*lock).is_mine() }));
    }

    impl Word for Hooked {
        fn change(&self, old: u32, new: u32, order: Ordering) -> bool {
            let changed = self.0.change(old, new, order);
            handle();
            changed
        }

        fn get(&self) -> u32 {
            self.0.get()
        }

        fn swap(&self, new: u32, order: Ordering) -> u32 {
            handle();
            self.0.swap(new, order)
        }

        fn wait(&self, _value: u32) {}

        fn wake(&self) {}
    }

    #[test]
    fn a_signal_while_the_lock_changes_hands_finds_its_holder() {
        let lock = Lock::on(Hooked(AtomicU32::new(0)), 0, ());
        LOCK.set(&raw const lock);
        assert!(!lock.is_mine(), "nobody has it");
        lock.take();
        lock.give();
        assert_eq!(FOUND.take(), [true, true], "taken, and not given back yet");
        assert!(!lock.is_mine(), "it was given back");
    }

    #[test]
    fn a_lock_of_another_thread_is_not_mine() {
        let other = mark(1 << 20);
        let lock = Lock::on(AtomicU32::new(other | SLEEPER), 0, ());
        assert!(!lock.is_mine());
    }
}
