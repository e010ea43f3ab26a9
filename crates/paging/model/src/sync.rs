//! The primitives of the pager's shared structures, made of shuttle's types.

pub use shuttle::hint::spin_loop;
use shuttle::sync::Condvar;
pub use shuttle::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};
pub use shuttle::sync::{Mutex, MutexGuard as Guard};
use std::sync::LockResult;
use std::sync::atomic::Ordering;

/// A word on which threads can sleep.
pub struct Word {
    word: shuttle::sync::atomic::AtomicU32,
    bell: Bell,
}

impl Word {
    /// A word.
    pub fn new(value: u32) -> Word {
        Word { word: shuttle::sync::atomic::AtomicU32::new(value), bell: Bell::default() }
    }

    /// Its value.
    pub fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    /// Sets it.
    pub fn store(&self, value: u32, order: Ordering) {
        self.word.store(value, order);
    }

    /// Adds to it. Returns the old value.
    pub fn fetch_add(&self, more: u32, order: Ordering) -> u32 {
        self.word.fetch_add(more, order)
    }

    /// Subtracts from it. Returns the old value.
    pub fn fetch_sub(&self, less: u32, order: Ordering) -> u32 {
        self.word.fetch_sub(less, order)
    }
}

/// Sleeps while the word is `value`.
pub fn wait(word: &Word, value: u32) {
    word.bell.wait_until(|| word.word.load(Ordering::SeqCst) != value);
}

/// Like [`wait`]: the time never ends, so that no code relies on it.
pub fn wait_ms(word: &Word, value: u32, _ms: u64) {
    wait(word, value);
}

/// Wakes all threads that sleep on the word.
pub fn wake(word: &Word) {
    word.bell.ring();
}

/// The guard; a panic always ends the run.
pub fn recover<T>(locked: LockResult<Guard<'_, T>>) -> Guard<'_, T> {
    locked.expect("no thread has panicked")
}

/// A value whose owner is decided by a separate atomic.
pub struct Cell<T>(std::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    /// A cell.
    pub fn new(value: T) -> Cell<T> {
        Cell(std::cell::UnsafeCell::new(value))
    }

    /// Calls `use_it` with the address of the value.
    pub fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}

/// A bell, at which threads wait for a condition of the machine.
#[derive(Default)]
pub struct Bell {
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    /// Waits until `so` is true; the thread that makes it true rings afterwards.
    pub fn wait_until(&self, so: impl Fn() -> bool) {
        let mut held = recover(self.lock.lock());
        while !so() {
            held = recover(self.rung.wait(held));
        }
    }

    /// Lets all waiters check their conditions again.
    pub fn ring(&self) {
        let _held = recover(self.lock.lock());
        self.rung.notify_all();
    }
}
