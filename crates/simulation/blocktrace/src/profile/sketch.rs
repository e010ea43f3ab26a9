//! The number of distinct blocks, estimated in four KiB of memory.

/// Registers, as a power of two.
const REGISTERS_LOG: u32 = 12;
const REGISTERS: usize = 1 << REGISTERS_LOG;
/// The standard error of an estimate: `1.04 / sqrt(registers)`.
pub(super) const ERROR: f64 = 0.01625;

/// A set whose size can be estimated, and that can be united with others. Flajolet et al.:
/// "HyperLogLog", 2007, with its correction for small sets.
#[derive(Clone)]
pub(super) struct Sketch(Box<[u8; REGISTERS]>);

impl Default for Sketch {
    fn default() -> Self {
        Sketch(Box::new([0; REGISTERS]))
    }
}

impl Sketch {
    /// Adds a hash of 64 even bits.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let register = &mut self.0[(hash >> (64 - REGISTERS_LOG)) as usize];
        let zeros = (hash << REGISTERS_LOG | 1 << (REGISTERS_LOG - 1)).leading_zeros() as u8 + 1;
        *register = (*register).max(zeros);
    }

    /// Adds the elements of another set.
    pub fn unite(&mut self, other: &Sketch) {
        for (own, other) in self.0.iter_mut().zip(&other.0[..]) {
            *own = (*own).max(*other);
        }
    }

    /// An estimate of the number of different hashes that were added.
    pub fn estimate(&self) -> f64 {
        let count = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|register| (-f64::from(*register)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let empty = self.0.iter().filter(|register| **register == 0).count();
        if estimate <= 2.5 * count && empty > 0 { count * (count / empty as f64).ln() } else { estimate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::reuse::hash;

    #[test]
    fn sizes_are_known_within_five_standard_errors() {
        let (mut even, mut odd) = (Sketch::default(), Sketch::default());
        let mut next_check = 10;
        for block in 0..1_000_000u64 {
            let sketch = if block % 2 == 0 { &mut even } else { &mut odd };
            sketch.add(hash(0, block));
            sketch.add(hash(0, block));
            if block + 1 == next_check {
                let mut both = even.clone();
                both.unite(&odd);
                let found = both.estimate();
                assert!((found / next_check as f64 - 1.0).abs() < 5.0 * ERROR, "{found} of {next_check}");
                next_check = next_check * 3 / 2;
            }
        }
        assert_eq!(Sketch::default().estimate(), 0.0);
    }
}
