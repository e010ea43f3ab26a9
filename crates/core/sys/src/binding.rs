//! A thread of the program that the pager has bound to one processor for a while, so that the
//! pager's thread can wait on the same processor.
//!
//! The program must not see the binding. Before it asks for processors or sets them, and before it
//! begins a thread or a process, which would inherit the binding, that ends: see [`freed`].
//!
//! A process has one binding at a time. The pager's thread makes it, while the thread waits for a
//! page.

use crate::thread::{self, Processors};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The thread that is bound, 0 for none, or `CHANGING`.
static BOUND: AtomicU32 = AtomicU32::new(0);
/// A thread is being bound, or given its processors back.
const CHANGING: u32 = u32::MAX;

/// The processors that the bound thread had before, and will have again.
static BEFORE: [AtomicU64; Processors::WORDS] = [const { AtomicU64::new(0) }; Processors::WORDS];

/// Threads inside [`freed`]: while there are any, no thread is bound.
static FREED: AtomicU32 = AtomicU32::new(0);

fn before() -> Processors {
    Processors::from_words(std::array::from_fn(|index| BEFORE[index].load(SeqCst)))
}

/// The thread that is bound.
pub fn bound() -> Option<u32> {
    Some(BOUND.load(SeqCst)).filter(|&thread| thread != 0 && thread != CHANGING)
}

/// Binds `thread`, which waits for a page, to the processor on which it ran last. Returns the
/// processor; `None` if the thread may not be bound now, or another one is.
pub fn bind(thread: u32) -> Option<usize> {
    BOUND.compare_exchange(0, CHANGING, SeqCst, SeqCst).ok()?;
    let bind = || {
        if FREED.load(SeqCst) != 0 {
            return None;
        }
        let had = Processors::of(thread)?;
        let processor = thread::processor_of(thread)?;
        had.words().into_iter().zip(&BEFORE).for_each(|(word, place)| place.store(word, SeqCst));
        had.only(processor)?.give_to(thread).then_some(processor)
    };
    let processor = bind();
    BOUND.store(processor.map_or(0, |_| thread), SeqCst);
    processor
}

/// Gives the bound thread, if there is one, its processors back.
pub fn unbind() {
    loop {
        match BOUND.load(SeqCst) {
            0 => return,
            // It takes a few system calls, which wait for nothing.
            CHANGING => drop(thread::pause()),
            thread => {
                if BOUND.compare_exchange(thread, CHANGING, SeqCst, SeqCst).is_ok() {
                    before().give_to(thread);
                    BOUND.store(0, SeqCst);
                }
            }
        }
    }
}

/// Calls `work` while all threads have the processors that the program gave them: work that begins
/// a thread or a process, or that asks for processors or sets them.
pub fn freed<T>(work: impl FnOnce() -> T) -> T {
    FREED.fetch_add(1, SeqCst);
    unbind();
    let done = work();
    // In the child of a fork the number begins at 0 again.
    FREED.fetch_update(SeqCst, SeqCst, |threads| Some(threads.saturating_sub(1))).ok();
    done
}

/// Gives the calling thread its processors back if it has inherited a binding: in the child of a
/// `vfork`, which shares its parent's memory, before it executes a program. Takes no lock.
pub fn disinherit() {
    if BOUND.load(SeqCst) == 0 {
        return;
    }
    let (had, now) = (before(), Processors::of(0));
    if now.is_some_and(|now| now.count() == 1 && had.count() > 1) {
        had.give_to(0);
    }
}

/// In the child of a fork, in its only thread: no thread is bound.
pub fn forget() {
    disinherit();
    FREED.store(0, SeqCst);
    BOUND.store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::{bind, bound, disinherit, freed, unbind};
    use crate::thread::{self, Processors};

    /// One test, since there is one binding in a process.
    #[test]
    fn a_binding_ends_before_anything_can_see_it() {
        let all = Processors::of(0).expect("a set");
        if all.count() < 2 {
            eprintln!("SKIPPED: there is one processor");
            return;
        }
        let count = || Processors::of(0).expect("a set").count();
        let me = thread::id();
        let processor = bind(me).expect("it may be bound");
        assert_eq!((bound(), count()), (Some(me), 1));
        assert_eq!(Processors::of(0).expect("a set").numbers().next(), Some(processor));
        assert_eq!(bind(me), None, "one binding at a time");
        unbind();
        assert_eq!((bound(), count()), (None, all.count()));

        bind(me).expect("again");
        let inside = freed(|| (bound(), count(), bind(me)));
        assert_eq!(inside, (None, all.count(), None), "free, and not to be bound");
        assert_eq!((bound(), count()), (None, all.count()), "and free afterwards");

        bind(me).expect("again");
        // A thread that begins outside of `freed` inherits the binding.
        let executing = || {
            let inherited = count();
            disinherit();
            (inherited, count())
        };
        assert_eq!(std::thread::spawn(executing).join().expect("it ends"), (1, all.count()));
        assert_eq!(count(), 1, "the bound thread stays bound");
        std::thread::spawn(|| freed(|| ())).join().expect("it ends");
        assert_eq!((bound(), count()), (None, all.count()), "any thread can end it");
    }
}
