//! The times at which requests arrive.

use crate::random::{Random, threshold};

/// Bursts: times between requests are hyper-exponential with two phases of balanced means, which is
/// the distribution that fitted storage traces best in "Analyzing the distribution fit for storage
/// workload and Internet traffic traces" (Wajahat, Yele, Estro, Gandhi, Zadok; Performance
/// Evaluation 142, 2020).
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// The probability of the short phase, for 32 random bits.
    short: u64,
    /// Mean times of the short and of the long phase, in nanoseconds.
    means_ns: [f64; 2],
    now_ns: f64,
}

impl Arrivals {
    /// Arrivals with a mean time between requests and its coefficient of variation, which is at
    /// least 1.
    pub(crate) fn new(mean_ns: f64, variation: f64) -> Self {
        let square = variation * variation;
        let probability = 0.5 * (1.0 + ((square - 1.0) / (square + 1.0)).sqrt());
        let means_ns = [mean_ns / (2.0 * probability), mean_ns / (2.0 * (1.0 - probability))];
        Arrivals { short: threshold(probability), means_ns, now_ns: 0.0 }
    }

    /// The time of the next request, in nanoseconds; never before the last one.
    pub(crate) fn next_ns(&mut self, random: &mut Random) -> u64 {
        let now_ns = self.now_ns as u64;
        let long = u64::from(random.next() as u32) >= self.short;
        self.now_ns += self.means_ns[usize::from(long)] * random.exponential();
        now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variation_are_met() {
        let (mut arrivals, mut random) = (Arrivals::new(1e6, 4.0), Random::new(3));
        let n = 2_000_000;
        let (mut sum, mut squares, mut last) = (0.0, 0.0, arrivals.next_ns(&mut random));
        for _ in 0..n {
            let now = arrivals.next_ns(&mut random);
            let gap = (now - last) as f64;
            (sum, squares, last) = (sum + gap, squares + gap * gap, now);
        }
        let mean = sum / f64::from(n);
        let variation = (squares / f64::from(n) - mean * mean).sqrt() / mean;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "{mean}");
        assert!((variation / 4.0 - 1.0).abs() < 0.02, "{variation}");
    }
}
