//! A lock that a fork can hold across: taken in one function, given back in another.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_sys::thread::{self, Signals};

/// The word of a lock, and sleeping on it: a real atomic and the kernel's futex, or a model
/// checker's.
pub trait Word {
    /// Changes the word from `old` to `new`, if it is `old`. Whether it was.
    fn change(&self, old: u32, new: u32, order: Ordering) -> bool;
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

/// A lock. Its word is 0 if it is free, 1 if it is taken, 2 if it is taken and a thread sleeps.
pub struct Lock<T, W: Word = AtomicU32> {
    state: W,
    spins: u32,
    /// Whether signals are blocked while it is taken.
    quiet: bool,
    /// The signals to restore; only the holder uses this.
    signals: UnsafeCell<Option<Signals>>,
    /// The `pthread_self` of the holder.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: only the holder uses the value, and there is one holder at a time.
unsafe impl<T: Send, W: Word + Sync> Sync for Lock<T, W> {}

/// A guard: the lock is taken while it lives.
pub struct Held<'a, T, W: Word = AtomicU32>(&'a Lock<T, W>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock::on(AtomicU32::new(0), 100, value)
    }

    /// A lock that blocks signals while it is taken: a signal handler that takes the lock, too,
    /// would wait for its own thread.
    pub const fn quiet(value: T) -> Self {
        let mut lock = Lock::new(value);
        lock.quiet = true;
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
            signals: UnsafeCell::new(None),
            holder: AtomicUsize::new(0),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) -> Held<'_, T, W> {
        self.take();
        Held(self)
    }

    /// Takes the lock without a guard; [`give`](Self::give) gives it back.
    pub fn take(&self) {
        let me = thread::own_name();
        // The pager's threads get no signals in any case.
        let signals = (self.quiet && !thread::is_internal(me)).then(thread::block_signals);
        self.acquire();
        self.holder.store(me, Relaxed);
        if signals.is_some() {
            // SAFETY: this thread is the holder.
            unsafe { *self.signals.get() = signals };
        }
    }

    fn acquire(&self) {
        if self.state.change(0, 1, Acquire) {
            return;
        }
        for _ in 0..self.spins {
            std::hint::spin_loop();
            if self.state.change(0, 1, Acquire) {
                return;
            }
        }
        while self.state.swap(2, Acquire) != 0 {
            self.state.wait(2);
        }
    }

    /// Whether the calling thread holds the lock: then this is a signal handler, and the
    /// interrupted code holds it.
    pub fn is_mine(&self) -> bool {
        // A thread sees its own writes, and only it writes its own name.
        self.holder.load(Relaxed) == thread::own_name()
    }

    /// The guarded value, for a thread that has [`take`](Self::take)n the lock.
    ///
    /// # Safety
    /// The caller has taken the lock, and gives it back only after the last use of the value.
    #[expect(clippy::mut_from_ref, reason = "the lock sees to it that there is one holder")]
    pub unsafe fn value(&self) -> &mut T {
        // SAFETY: the caller holds the lock.
        unsafe { &mut *self.value.get() }
    }

    /// Makes the lock new and free, with another value; the old value is forgotten. For the child
    /// of a fork.
    ///
    /// # Safety
    /// No thread holds the lock or waits for it, and none that did will continue.
    pub unsafe fn renew(&self, value: T) {
        // SAFETY: the caller promises that nobody else uses the lock.
        unsafe {
            self.value.get().write(value);
            *self.signals.get() = None;
        }
        self.holder.store(0, Relaxed);
        self.state.swap(0, Release);
    }

    /// Gives back the lock that [`take`](Self::take) took, in this process or, after a fork, in its
    /// child.
    pub fn give(&self) {
        // SAFETY: this thread is still the holder.
        let signals = if self.quiet { unsafe { (*self.signals.get()).take() } } else { None };
        self.holder.store(0, Relaxed);
        if self.state.swap(0, Release) == 2 {
            self.state.wake();
        }
        if let Some(signals) = signals {
            thread::restore_signals(&signals);
        }
    }
}

impl<T, W: Word> Deref for Held<'_, T, W> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T, W: Word> DerefMut for Held<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T, W: Word> Drop for Held<'_, T, W> {
    fn drop(&mut self) {
        self.0.give();
    }
}
