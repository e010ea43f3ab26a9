//! Threads of the program that the pager has temporarily bound to one processor, so that the
//! pager's thread can wait on the same processor.
//!
//! The program must not see the binding. So the binding ends before the program asks for processors
//! or sets them, and before it begins a thread or a process, which would inherit the binding: see
//! [`freed`].

use crate::processors::Processors;
use crate::thread;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The most threads that are bound at the same time.
pub const MOST: usize = 4;

/// The number of threads that are bound, or `CHANGING`.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Threads are being bound, or are getting their processors back.
const CHANGING: u32 = u32::MAX;

/// Each bound thread, and the processors that it had before and will have again.
static BOUND: [Bound; MOST] = [const { Bound::new() }; MOST];

/// Threads inside [`freed`]: while there are any, no thread is bound. [`bind`] changes [`COUNT`]
/// and then reads this number; [`freed`] changes this number and then reads [`COUNT`]. All four
/// steps are in the one order of `SeqCst`, so that at least one of the two threads sees the other.
/// A weaker order would let both miss the other, on any processor.
static FREED: AtomicU32 = AtomicU32::new(0);

struct Bound {
    thread: AtomicU32,
    before: [AtomicU64; Processors::WORDS],
}

impl Bound {
    const fn new() -> Bound {
        Bound { thread: AtomicU32::new(0), before: [const { AtomicU64::new(0) }; Processors::WORDS] }
    }

    fn before(&self) -> Processors {
        Processors::from_words(std::array::from_fn(|index| self.before[index].load(SeqCst)))
    }

    /// Binds a thread to a processor. Returns whether the thread may run there, and the kernel
    /// allows it.
    fn bind(&self, thread: u32, processor: usize) -> bool {
        let Some(had) = Processors::of(thread) else { return false };
        had.words().into_iter().zip(&self.before).for_each(|(word, place)| place.store(word, SeqCst));
        self.thread.store(thread, SeqCst);
        had.only(processor).is_some_and(|only| only.give_to(thread))
    }

    fn unbind(&self) {
        let thread = self.thread.load(SeqCst);
        // A thread that has ended may have left its number to another process.
        if thread::processor_of(thread).is_some() {
            self.before().give_to(thread);
        }
    }
}

/// The number of bound threads.
pub fn count() -> usize {
    match COUNT.load(SeqCst) {
        CHANGING => 0,
        count => count as usize,
    }
}

/// Binds `threads`, at most [`MOST`], to one processor: the one on which the first of them last
/// ran. Returns the processor; `None` if these threads may not be bound now, or others are bound.
pub fn bind(threads: &[u32]) -> Option<usize> {
    COUNT.compare_exchange(0, CHANGING, SeqCst, SeqCst).ok()?;
    let processor = if FREED.load(SeqCst) == 0 { thread::processor_of(*threads.first()?) } else { None };
    let mut count = 0;
    for (&thread, bound) in threads.iter().zip(&BOUND) {
        if !processor.is_some_and(|processor| bound.bind(thread, processor)) {
            break;
        }
        count += 1;
    }
    let all = count == threads.len();
    if !all {
        BOUND[..count].iter().for_each(Bound::unbind);
    }
    COUNT.store(if all { count as u32 } else { 0 }, SeqCst);
    processor.filter(|_| all)
}

/// Gives the bound threads their processors back.
pub fn unbind() {
    loop {
        match COUNT.load(SeqCst) {
            0 => return,
            // The change takes a few system calls, which do not wait.
            CHANGING => drop(thread::pause()),
            count => {
                if COUNT.compare_exchange(count, CHANGING, SeqCst, SeqCst).is_ok() {
                    BOUND[..count as usize].iter().for_each(Bound::unbind);
                    COUNT.store(0, SeqCst);
                }
            }
        }
    }
}

/// Calls `work` while all threads have the processors that the program gave them. `work` begins a
/// thread or a process, or asks for processors or sets them.
pub fn freed<T>(work: impl FnOnce() -> T) -> T {
    FREED.fetch_add(1, SeqCst);
    unbind();
    let done = work();
    // In the child of a fork the number begins at 0 again.
    FREED.fetch_update(SeqCst, SeqCst, |threads| Some(threads.saturating_sub(1))).ok();
    done
}

/// Gives the calling thread its processors back if it has inherited a binding. Call it in the child
/// of a `vfork`, which shares its parent's memory, before the child executes a program. Takes no
/// lock.
pub fn disinherit() {
    if COUNT.load(SeqCst) == 0 {
        return;
    }
    let (had, now) = (BOUND[0].before(), Processors::of(0));
    if now.is_some_and(|now| now.count() == 1 && had.count() > 1) {
        had.give_to(0);
    }
}

/// In the child of a fork, in its only thread: marks no thread as bound.
pub fn forget() {
    disinherit();
    FREED.store(0, SeqCst);
    COUNT.store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::{bind, count as bound, disinherit, freed, unbind};
    use crate::processors::Processors;
    use crate::thread;

    /// There is one test, since a process has one binding.
    #[test]
    fn a_binding_ends_before_anything_can_see_it() {
        let all = Processors::of(0).expect("a set");
        if all.count() < 2 {
            eprintln!("SKIPPED: there is one processor");
            return;
        }
        let count = || Processors::of(0).expect("a set").count();
        let me = thread::id();
        let processor = bind(&[me]).expect("it may be bound");
        assert_eq!((bound(), count()), (1, 1));
        assert_eq!(Processors::of(0).expect("a set").numbers().next(), Some(processor));
        assert_eq!(bind(&[me]), None, "one binding at a time");
        unbind();
        assert_eq!((bound(), count()), (0, all.count()));

        bind(&[me]).expect("again");
        let inside = freed(|| (bound(), count(), bind(&[me])));
        assert_eq!(inside, (0, all.count(), None), "free, and not to be bound");
        assert_eq!((bound(), count()), (0, all.count()), "and free afterwards");

        bind(&[me]).expect("again");
        // A thread that begins outside of `freed` inherits the binding.
        let executing = move || {
            let inherited = count();
            disinherit();
            (inherited, count())
        };
        assert_eq!(std::thread::spawn(executing).join().expect("it ends"), (1, all.count()));
        assert_eq!(count(), 1, "the bound thread stays bound");
        std::thread::spawn(|| freed(|| ())).join().expect("it ends");
        assert_eq!((bound(), count()), (0, all.count()), "any thread can end it");

        assert_eq!(bind(&[me, u32::MAX >> 1]), None, "there is no such thread");
        assert_eq!((bound(), count()), (0, all.count()), "so none is bound");
    }
}
