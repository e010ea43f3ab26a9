//! An action for a signal that is only noted, as the kernel would keep it: all of it changes at
//! once, and whoever sets it gets the one before.
//!
//! There is no lock: signal handlers set it, too, a process forks meanwhile, and children of
//! `vfork`, which can be killed at any moment, read it. Each action has a place of its own, and one
//! word says which is in force.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence};

/// An action in the kernel's form (`struct kernel_sigaction`): handler, flags, restorer, blocked
/// signals. (Some architectures have no restorer.)
pub type Words = [u64; 4];

const PLACES: usize = 64;
/// The low bits of the word have the place, the others count the changes.
const PLACE_BITS: u32 = 8;
const ALL: u64 = u64::MAX;

/// A noted action, at first the default one.
pub struct Noted {
    now: AtomicU64,
    /// A bit for each place that nobody uses.
    free: AtomicU64,
    places: [[AtomicU64; 4]; PLACES],
}

/// Which action was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

impl Default for Noted {
    fn default() -> Noted {
        Noted::new()
    }
}

impl Noted {
    /// The default action.
    pub const fn new() -> Noted {
        let places = [const { [const { AtomicU64::new(0) }; 4] }; PLACES];
        Noted { now: AtomicU64::new(0), free: AtomicU64::new(ALL << 1), places }
    }

    fn read(&self, seen: Seen) -> Words {
        std::array::from_fn(|word| self.places[seen.place()][word].load(Relaxed))
    }

    /// The action in force.
    pub fn get(&self) -> (Words, Seen) {
        loop {
            let seen = Seen(self.now.load(SeqCst));
            let action = self.read(seen);
            fence(SeqCst);
            // The place is used again only after another action is in force.
            if self.now.load(SeqCst) == seen.0 {
                return (action, seen);
            }
        }
    }

    /// Sets the action. Returns the one before.
    pub fn swap(&self, action: Words) -> Words {
        loop {
            if let Some(before) = self.change(Seen(self.now.load(SeqCst)), action) {
                return before;
            }
        }
    }

    /// Sets the action, if the one that was `seen` is still in force; it is returned then.
    pub fn change(&self, seen: Seen, action: Words) -> Option<Words> {
        let place = self.claim();
        // A reader that sees one of these words sees, after its own fence, that the place was freed
        // before: another action was in force.
        fence(Release);
        for (word, value) in self.places[place].iter().zip(action) {
            word.store(value, Relaxed);
        }
        let next = ((seen.0 >> PLACE_BITS) + 1) << PLACE_BITS | place as u64;
        if self.now.compare_exchange(seen.0, next, SeqCst, SeqCst).is_err() {
            self.free.fetch_or(1 << place, SeqCst);
            return None;
        }
        let before = self.read(seen);
        self.free.fetch_or(1 << seen.place(), SeqCst);
        Some(before)
    }

    fn claim(&self) -> usize {
        loop {
            let place = self.free.load(SeqCst).trailing_zeros();
            if place < u64::BITS && self.free.fetch_and(!(1 << place), SeqCst) >> place & 1 == 1 {
                return place as usize;
            }
            std::hint::spin_loop();
        }
    }

    /// In the child of a fork: what its parent's other threads have claimed is free.
    pub fn in_child(&self) {
        let (_, seen) = self.get();
        self.free.store(!(1 << seen.place()), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn each_action_is_somebodys_old_one_once_and_none_is_a_mixture() {
        let (noted, over) = (Noted::new(), AtomicBool::new(false));
        assert_eq!(noted.get().0, [0; 4]);
        let old: Vec<u64> = std::thread::scope(|scope| {
            let set = |from: u64| {
                let noted = &noted;
                move || (0..20_000).map(|at| noted.swap([from + at; 4])).map(whole).collect::<Vec<_>>()
            };
            let setters = [1, 100_001, 200_001].map(|from| scope.spawn(set(from)));
            let reader = scope.spawn(|| {
                while !over.load(SeqCst) {
                    whole(noted.get().0);
                }
            });
            let old = setters.into_iter().flat_map(|setter| setter.join().unwrap()).collect();
            over.store(true, SeqCst);
            reader.join().unwrap();
            old
        });
        let mut all = [old, vec![whole(noted.get().0)]].concat();
        all.sort_unstable();
        let set = [1, 100_001, 200_001].into_iter().flat_map(|from| from..from + 20_000);
        assert!(all.into_iter().eq(std::iter::once(0).chain(set)));
        let (_, seen) = noted.get();
        noted.swap([5; 4]);
        assert_eq!(noted.change(seen, [6; 4]), None);
        // In a child, whose parent's threads were just setting it.
        noted.free.store(0, SeqCst);
        noted.in_child();
        assert_eq!(noted.swap([7; 4]), [5; 4]);
    }

    fn whole(action: Words) -> u64 {
        assert!(action.iter().all(|&word| word == action[0]), "a mixture: {action:?}");
        action[0]
    }
}
