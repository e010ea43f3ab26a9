//! What the mailbox, the carriers and the ring of words stand on: the processor's atomics and the
//! kernel's futex.
//!
//! The model checkers' tests compile those files against this module's names with their own
//! types behind them; nothing else in the pager is shared between threads.

pub(crate) use std::sync::atomic::{AtomicU32 as Word, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard as Guard, RwLock};
pub(crate) use terapage_sys::thread::{wait, wake};

use std::sync::{LockResult, PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// The guard, also when a thread has panicked with it: what it guards is always whole.
pub(crate) fn recover<T>(locked: LockResult<Guard<'_, T>>) -> Guard<'_, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// Locks for those that do not change what is guarded.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for one that does.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// A value that changes hands by an atomic beside it; a model checker sees each use.
pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    pub fn new(value: T) -> Cell<T> {
        Cell(std::cell::UnsafeCell::new(value))
    }

    /// Gives `use_it` the value's address. It may be used by one thread at a time.
    #[inline]
    pub fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}
