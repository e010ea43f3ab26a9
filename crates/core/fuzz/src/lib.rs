//! Fuzzers, as tests: each makes cases from random numbers for `TERAPAGE_FUZZ_S` seconds, or for a
//! fifth of one. Each case has a seed of its own; `TERAPAGE_SEED` names that of the first.
//!
//! Names of such tests begin with `fuzzed`: `make fuzz` runs them all.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant, UNIX_EPOCH};

/// The random numbers of a case (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.number() % count as u64) as usize
    }

    /// One of `things`, of which there is one at least.
    pub fn one<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }
}

/// Damages bytes in some places: bits flip, and parts are cut off, removed, repeated elsewhere, or
/// replaced by any byte or by one of `extremes`, of which there is one at least.
pub fn damage(random: &mut Random, bytes: &mut Vec<u8>, extremes: &[&[u8]]) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = at + random.below(bytes.len() - at + 1).min(random.below(64));
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.number() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let part = bytes[at..end].repeat(1 + random.below(4));
                let to = random.below(bytes.len() + 1);
                drop(bytes.splice(to..to, part));
            }
            _ => drop(bytes.splice(at..end, random.one(extremes).iter().copied())),
        }
    }
}

/// Prints the failing case when a test panics.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("TERAPAGE_SEED={} begins with this case", self.0);
        }
    }
}

/// Tries cases, `least` of them or more, until the time is over.
///
/// # Panics
/// A case panics, or a variable is no number.
pub fn fuzz(name: &str, least: u64, mut case: impl FnMut(&mut Random)) {
    let seconds = given("TERAPAGE_FUZZ_S").unwrap_or(0.2);
    let fresh = || UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let first: u64 = given("TERAPAGE_SEED").unwrap_or_else(fresh);
    println!("{name}: TERAPAGE_SEED={first}");
    let begun = Instant::now();
    let mut cases = 0;
    while cases < least || begun.elapsed() < Duration::from_secs_f64(seconds) {
        let seed = first.wrapping_add(cases);
        let _case = Case(seed);
        case(&mut Random(seed));
        cases += 1;
    }
    println!("{name}: {cases} cases in {:.0} s", begun.elapsed().as_secs_f64());
}

/// The number that a variable has, if it is set.
fn given<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: '{text}' is not a number")))
}
