//! Whether it pays to look for more work before a sleep.
//!
//! To wake up costs as much as a read, but a thread that looks for work takes a processor from the
//! program. So it looks as long as that mostly finds work, and now and then to see whether that has
//! changed.

/// The most that luck counts (chosen, not measured).
const MOST: u32 = 16;

/// One sleep in this many is tried without luck (chosen, not measured).
const TRIES: u32 = 32;

/// How often looking for work has paid lately: each look that found work adds 1, each other
/// subtracts 2.
#[derive(Clone, Debug)]
pub struct Luck {
    luck: u32,
    sleeps: u32,
}

impl Default for Luck {
    fn default() -> Self {
        Luck { luck: MOST, sleeps: 0 }
    }
}

impl Luck {
    /// Whether to look for work before the next sleep.
    pub fn tries(&self) -> bool {
        self.luck > MOST / 2 || self.sleeps.is_multiple_of(TRIES)
    }

    /// Counts a sleep, or what was found instead.
    pub fn sleeps(&mut self) {
        self.sleeps = self.sleeps.wrapping_add(1);
    }

    /// Notes whether a look has found work.
    pub fn looked(&mut self, found: bool) {
        self.luck = if found { (self.luck + 1).min(MOST) } else { self.luck.saturating_sub(2) };
    }
}

#[cfg(test)]
mod tests {
    use super::{Luck, MOST, TRIES};

    #[test]
    fn it_looks_while_that_pays_and_now_and_then() {
        let mut luck = Luck::default();
        let mut looks = |found: bool| -> bool {
            let tries = luck.tries();
            luck.sleeps();
            if tries {
                luck.looked(found);
            }
            tries
        };
        assert!((0..100).all(|_| looks(true)));
        let vain = (0..100).filter(|_| looks(false)).count();
        assert!(vain <= (MOST / 4 + 100 / TRIES + 1) as usize, "{vain} of 100");
        for _ in 0..MOST * TRIES {
            looks(true);
        }
        assert!((0..100).all(|_| looks(true)), "luck has come back");
    }
}
