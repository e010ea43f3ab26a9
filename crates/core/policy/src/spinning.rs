//! Whether spinning before a sleep pays.
//!
//! Waking up costs as much as a read, but a spinning thread takes a processor from the program. So
//! the thread spins while that mostly finds work, and now and then to see whether that has changed.

/// The most that the score counts (chosen, not measured).
const MOST: u32 = 16;

/// One sleep in this many is tried whatever the score is (chosen, not measured).
const TRIES: u32 = 32;

/// How often spinning has paid lately: each spin that found work adds 1, each other subtracts 2.
#[derive(Clone, Debug)]
pub struct Spinning {
    score: u32,
    sleeps: u32,
}

impl Default for Spinning {
    fn default() -> Self {
        Spinning { score: MOST, sleeps: 0 }
    }
}

impl Spinning {
    /// Whether to spin before the next sleep.
    pub fn tries(&self) -> bool {
        self.score > MOST / 2 || self.sleeps.is_multiple_of(TRIES)
    }

    /// Counts a sleep, or work that was found instead.
    pub fn sleeps(&mut self) {
        self.sleeps = self.sleeps.wrapping_add(1);
    }

    /// Notes whether a spin has found work.
    pub fn looked(&mut self, found: bool) {
        self.score = if found { (self.score + 1).min(MOST) } else { self.score.saturating_sub(2) };
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Spinning, TRIES};

    #[test]
    fn it_looks_while_that_pays_and_now_and_then() {
        let mut spinning = Spinning::default();
        let mut looks = |found: bool| -> bool {
            let tries = spinning.tries();
            spinning.sleeps();
            if tries {
                spinning.looked(found);
            }
            tries
        };
        assert!((0..100).all(|_| looks(true)));
        let vain = (0..100).filter(|_| looks(false)).count();
        assert!(vain <= (MOST / 4 + 100 / TRIES + 1) as usize, "{vain} of 100");
        for _ in 0..MOST * TRIES {
            looks(true);
        }
        assert!((0..100).all(|_| looks(true)), "spinning pays again");
    }
}
