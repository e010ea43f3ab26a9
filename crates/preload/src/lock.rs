//! A lock that a fork can hold across: taken in one function, given back in another.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use terapage_sys::thread;

/// 0: free, 1: taken, 2: taken, and somebody sleeps.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one holder at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock, taken.
pub struct Held<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Lock { state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    pub fn lock(&self) -> Held<'_, T> {
        self.take();
        Held(self)
    }

    /// Takes the lock without a guard; [`give`](Self::give) gives it back.
    pub fn take(&self) {
        if self.state.compare_exchange(0, 1, Acquire, Acquire).is_ok() {
            return;
        }
        for _ in 0..100 {
            std::hint::spin_loop();
            if self.state.compare_exchange(0, 1, Acquire, Acquire).is_ok() {
                return;
            }
        }
        while self.state.swap(2, Acquire) != 0 {
            thread::wait(&self.state, 2);
        }
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

    /// Gives the lock back that [`take`](Self::take) took, in this process or, after a fork, in its child.
    pub fn give(&self) {
        if self.state.swap(0, Release) == 2 {
            thread::wake(&self.state);
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.0.give();
    }
}
