//! Spinlocks without time: the holder, the waiters, and the next holder among them.

use std::collections::VecDeque;
use std::str::FromStr;

/// The rule for a lock's next holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First come, first served; all waiters watch one cache line (Linux up to 4.1).
    Ticket,
    /// The first task that sees the free lock: a waiter, or a task that arrives.
    Unfair,
    /// First come, first served; each waiter watches a separate cache line (Linux from 4.2 on).
    Queued,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Ticket, Kind::Unfair, Kind::Queued];

    /// The kind's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ticket => "ticket",
            Kind::Unfair => "unfair",
            Kind::Queued => "queued",
        }
    }
}

/// An unknown kind of lock.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown lock '{name}'; known are {}", Kind::ALL.map(Kind::name).join(", "))]
pub struct UnknownKind {
    name: String,
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| UnknownKind { name: name.into() })
    }
}

/// A waiter: its task and its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The task.
    pub task: u32,
    /// The core that it spins on.
    pub core: u32,
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// Nobody waits.
    Free,
    /// This waiter has the lock now; this number still wait.
    Passed(Waiter, usize),
    /// This number of waiters will try for it.
    Contest(usize),
}

/// A spinlock.
#[derive(Clone, Debug)]
pub struct Lock {
    kind: Kind,
    held: bool,
    last_core: Option<u32>,
    waiters: VecDeque<Waiter>,
}

impl Lock {
    /// A free lock that had no holder yet.
    pub fn new(kind: Kind) -> Self {
        Lock { kind, held: false, last_core: None, waiters: VecDeque::new() }
    }

    /// The kind of the lock.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The core that holds the lock, or held it last.
    pub fn last_core(&self) -> Option<u32> {
        self.last_core
    }

    /// Takes the lock, or waits. It returns whether the lock was taken.
    pub fn acquire(&mut self, waiter: Waiter) -> bool {
        if self.held {
            self.waiters.push_back(waiter);
            return false;
        }
        self.held = true;
        self.last_core = Some(waiter.core);
        true
    }

    /// Releases the lock.
    pub fn release(&mut self) -> Released {
        debug_assert!(self.held, "a lock that nobody holds is released");
        match (self.kind, self.waiters.len()) {
            (_, 0) => {
                self.held = false;
                Released::Free
            }
            (Kind::Unfair, waiters) => {
                self.held = false;
                Released::Contest(waiters)
            }
            (Kind::Ticket | Kind::Queued, waiters) => {
                let next = self.waiters.pop_front().expect("one waits");
                self.last_core = Some(next.core);
                Released::Passed(next, waiters - 1)
            }
        }
    }

    /// Ends a contest: the lock goes to waiter number `pick`, modulo the number of waiters, unless
    /// the lock is taken.
    pub fn contest(&mut self, pick: usize) -> Option<Waiter> {
        if self.held || self.waiters.is_empty() {
            return None;
        }
        let winner = self.waiters.remove(pick % self.waiters.len())?;
        self.held = true;
        self.last_core = Some(winner.core);
        Some(winner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiter(task: u32) -> Waiter {
        Waiter { task, core: task }
    }

    #[test]
    fn fair_locks_serve_in_order() {
        for kind in [Kind::Ticket, Kind::Queued] {
            let mut lock = Lock::new(kind);
            assert!(lock.acquire(waiter(0)));
            assert!(!lock.acquire(waiter(1)));
            assert!(!lock.acquire(waiter(2)));
            assert_eq!(lock.release(), Released::Passed(waiter(1), 1));
            assert_eq!(lock.last_core(), Some(1));
            assert_eq!(lock.release(), Released::Passed(waiter(2), 0));
            assert_eq!(lock.release(), Released::Free);
            assert!(lock.acquire(waiter(3)));
        }
    }

    #[test]
    fn an_unfair_lock_can_be_snatched() {
        let mut lock = Lock::new(Kind::Unfair);
        assert!(lock.acquire(waiter(0)));
        assert!(!lock.acquire(waiter(1)));
        assert_eq!(lock.release(), Released::Contest(1));
        assert!(lock.acquire(waiter(2)));
        assert_eq!(lock.contest(0), None);
        assert_eq!(lock.release(), Released::Contest(1));
        assert_eq!(lock.contest(7), Some(waiter(1)));
        assert_eq!(lock.release(), Released::Free);
    }

    proptest! {
        /// In any order of events, one task has the lock at a time, and in the end every task that
        /// asked for it has had it.
        #[test]
        fn one_at_a_time_and_all_in_the_end(kind in 0..3usize, steps in prop::collection::vec(any::<bool>(), 1..200)) {
            let mut lock = Lock::new(Kind::ALL[kind]);
            let (mut holder, mut asked, mut served) = (None, 0, 0);
            let settle = |lock: &mut Lock| {
                let next = match lock.release() {
                    Released::Free => None,
                    Released::Passed(next, _) => Some(next),
                    Released::Contest(waiters) => lock.contest(waiters / 2),
                };
                next.map(|next| next.task)
            };
            for come in steps {
                if come {
                    let taken = lock.acquire(waiter(asked));
                    prop_assert_eq!(taken, holder.is_none());
                    if taken {
                        holder = Some(asked);
                        served += 1;
                    }
                    asked += 1;
                } else if holder.is_some() {
                    holder = settle(&mut lock);
                    served += u32::from(holder.is_some());
                }
            }
            while holder.is_some() {
                holder = settle(&mut lock);
                served += u32::from(holder.is_some());
            }
            prop_assert_eq!(asked, served);
        }
    }
}
