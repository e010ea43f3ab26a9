//! Futexes. The kernel reads the word of a shared one in each operation, and changes words that
//! hold a thread's number.

use crate::step::{Step, Visit};

/// `futex`
pub fn futex(visit: &mut Visit) -> Step {
    let (word, timeout, second) = (visit.long(0), visit.long(3), visit.long(4));
    // Without the bits PRIVATE and CLOCK_REALTIME.
    let operation = visit.int(1) & 0x7f;
    match operation {
        // LOCK_PI, UNLOCK_PI, TRYLOCK_PI, LOCK_PI2
        6..=8 | 13 => visit.changes(word, 4)?,
        _ => visit.reads(word, 4)?,
    }
    match operation {
        // WAIT, LOCK_PI, WAIT_BITSET, LOCK_PI2
        0 | 6 | 9 | 13 => visit.reads(timeout, 16),
        // REQUEUE, CMP_REQUEUE: the fourth argument is a number.
        3 | 4 => visit.reads(second, 4),
        // WAKE_OP, CMP_REQUEUE_PI
        5 | 12 => visit.changes(second, 4),
        // WAIT_REQUEUE_PI
        11 => {
            visit.reads(timeout, 16)?;
            visit.changes(second, 4)
        }
        _ => Ok(()),
    }
}

/// The bytes of a word by its flags: with a node of memory, a second word follows.
fn word_bytes(flags: u32) -> usize {
    let word = 1 << (flags & 3);
    if flags & 4 != 0 { word * 2 } else { word }
}

/// `futex_wake`
pub fn wake(visit: &mut Visit) -> Step {
    visit.reads(visit.long(0), word_bytes(visit.int(3)))
}

/// `futex_wait`
pub fn wait(visit: &mut Visit) -> Step {
    visit.reads(visit.long(0), word_bytes(visit.int(3)))
}

/// An array of `struct futex_waitv`: the value, the address, the flags.
fn waiters(visit: &mut Visit, array: usize, count: usize) -> Step {
    visit.reads(array, count * 24)?;
    for i in 0..count {
        let (word, flags) = (visit.word(array, i * 24 + 8)?, visit.u32(array, i * 24 + 16)?);
        visit.reads(word, word_bytes(flags))?;
    }
    Ok(())
}

/// `futex_waitv`, of 128 futexes at most.
pub fn wait_vector(visit: &mut Visit) -> Step {
    let count = visit.int(1) as usize;
    if count <= 128 { waiters(visit, visit.long(0), count) } else { Ok(()) }
}

/// `futex_requeue`
pub fn requeue(visit: &mut Visit) -> Step {
    waiters(visit, visit.long(0), 2)
}
