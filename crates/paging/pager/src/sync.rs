//! The primitives of all that the pager's threads share: the processor's atomics, the kernel's
//! futex, and the standard library's locks.
//!
//! Under the model checkers the same names stand for the checkers' types, for the mailbox, the
//! carriers, bells, the ring of words and the kernel's reports. The threads that make huge pages
//! and write a trace sleep at such bells, but no model has their other words. Outside this module,
//! threads share only counters, which decide nothing, and the start of the pager's thread.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU32 as Word, AtomicU64, AtomicUsize, fence};
pub(crate) use std::sync::{Mutex, MutexGuard as Guard};
pub(crate) use terapage_sys::thread::{wait, wait_ms, wake};

use std::sync::{LockResult, PoisonError};

/// The guard, even if a thread has panicked while it held the lock: the guarded value is always
/// consistent.
pub(crate) fn recover<T>(locked: LockResult<Guard<'_, T>>) -> Guard<'_, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// A value whose owner is decided by a separate atomic. A model checker sees each use.
pub(crate) struct Cell<T>(std::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    pub fn new(value: T) -> Cell<T> {
        Cell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `use_it` with the address of the value. Only one thread at a time may use the value.
    #[inline]
    pub fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}
