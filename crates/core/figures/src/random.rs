//! Random numbers that are the same on every machine.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
/// The value is the seed.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "the numbers have no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// An index into a list of `len` items; 0 if there are none.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from 0 up to 1, without 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// 64 even bits for a number: a hash.
#[inline]
pub fn hash(number: u64) -> u64 {
    SplitMix(number).next()
}

#[cfg(test)]
mod tests {
    use super::SplitMix;

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        // From the authors' own program, seed 1234567.
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_lie_below_the_end() {
        let mut random = SplitMix(3);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.index(7)] = true;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert_eq!(seen, [true; 7]);
    }
}
