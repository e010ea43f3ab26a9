//! A lock that a fork can hold across: taken in one function, given back in another.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terapage_sys::thread::{self, Signals};

/// The word of a lock and sleeping on it: the processor's and the kernel's, or a model checker's.
pub trait Word {
    /// Changes the word from `old` to `new` if it is `old`; whether it was.
    fn change(&self, old: u32, new: u32, order: Ordering) -> bool;
    /// Sets the word; what it was.
    fn swap(&self, new: u32, order: Ordering) -> u32;
    /// Sleeps while the word holds `value`; may wake early.
    fn wait(&self, value: u32);
    /// Wakes all who sleep on it.
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

/// 0: free, 1: taken, 2: taken, and somebody sleeps.
pub struct Lock<T, W: Word = AtomicU32> {
    state: W,
    spins: u32,
    /// Whether signals wait while it is taken.
    quiet: bool,
    /// The signals to be let in again; the holder's.
    signals: UnsafeCell<Option<Signals>>,
    /// The thread that has it, as `pthread_self` gives it.
    holder: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one holder at a time.
unsafe impl<T: Send, W: Word + Sync> Sync for Lock<T, W> {}

/// The lock, taken.
pub struct Held<'a, T, W: Word = AtomicU32>(&'a Lock<T, W>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock::on(AtomicU32::new(0), 100, value)
    }

    /// A lock during which no signal comes: a handler may do what takes it, and would wait for its
    /// own thread.
    pub const fn quiet(value: T) -> Self {
        let mut lock = Lock::new(value);
        lock.quiet = true;
        lock
    }
}

impl<T, W: Word> Lock<T, W> {
    /// On a word, which is 0, that is tried `spins` times before a sleep.
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
        // The pager's threads get no signals anyhow.
        let signals = (self.quiet && !thread::is_internal(me)).then(thread::block_signals);
        self.acquire();
        self.holder.store(me, Relaxed);
        if signals.is_some() {
            // SAFETY: the holder's.
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

    /// Whether the calling thread has it: then a signal's handler runs, and who was interrupted
    /// holds it.
    pub fn is_mine(&self) -> bool {
        // A thread sees what itself has written: only that can be its own name.
        self.holder.load(Relaxed) == thread::own_name()
    }

    /// What the lock guards, for who has [`take`](Self::take)n it.
    ///
    /// # Safety
    /// The caller has taken the lock, and gives it back only when done with the value.
    #[expect(clippy::mut_from_ref, reason = "the lock sees to it that there is one holder")]
    pub unsafe fn value(&self) -> &mut T {
        // SAFETY: the caller holds the lock.
        unsafe { &mut *self.value.get() }
    }

    /// Makes the lock new, free, with another value; the old one is forgotten. For the child of a
    /// fork.
    ///
    /// # Safety
    /// No thread holds the lock or waits for it, nor will one that did go on.
    pub unsafe fn renew(&self, value: T) {
        // SAFETY: nobody else reaches the value, by the caller's promise.
        unsafe {
            self.value.get().write(value);
            *self.signals.get() = None;
        }
        self.holder.store(0, Relaxed);
        self.state.swap(0, Release);
    }

    /// Gives the lock back that [`take`](Self::take) took, in this process or, after a fork, in its
    /// child.
    pub fn give(&self) {
        // SAFETY: the holder's still.
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
        // SAFETY: held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T, W: Word> DerefMut for Held<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T, W: Word> Drop for Held<'_, T, W> {
    fn drop(&mut self) {
        self.0.give();
    }
}
