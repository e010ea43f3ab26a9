//! Random numbers that are the same on every machine.

use terapage_figures::SplitMix;

/// A generator for volumes.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(SplitMix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`, which is not 0; the bias is less than `bound` / 2^32.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next() as u32) * u64::from(bound)) >> 32) as u32
    }

    /// A number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// An exponentially distributed number with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Puts `items` in random order (Fisher-Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u32 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// A probability as a bound for 32 random bits.
pub(crate) fn threshold(probability: f64) -> u64 {
    (probability.clamp(0.0, 1.0) * 4_294_967_296.0) as u64
}
