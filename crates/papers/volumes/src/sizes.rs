//! The sizes of requests: a shape, tilted to the known mean.

/// A distribution of request sizes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sizes {
    /// Bytes, and the probability that a size is at most that; both ascending.
    cumulative: Vec<(u32, f64)>,
}

impl Sizes {
    /// The distribution closest to `shape` (bytes and weights) whose mean is `mean_bytes`: each
    /// weight is multiplied by exp(l x bytes) for one l, which is the change of least relative
    /// entropy. `None` if the mean is outside the shape's sizes.
    pub(crate) fn tilted(shape: &[(u32, f64)], mean_bytes: f64) -> Option<Sizes> {
        let largest = f64::from(shape.iter().map(|&(bytes, _)| bytes).max()?);
        let smallest = f64::from(shape.iter().map(|&(bytes, _)| bytes).min()?);
        if !(mean_bytes > smallest && mean_bytes < largest) {
            return None;
        }
        let (mut low, mut high) = (-700.0, 700.0);
        for _ in 0..200 {
            let middle = 0.5 * (low + high);
            if mean(&weights(shape, middle / largest)) < mean_bytes { low = middle } else { high = middle }
        }
        let mut weighted = weights(shape, low / largest);
        weighted.sort_by_key(|&(bytes, _)| bytes);
        let total: f64 = weighted.iter().map(|(_, weight)| weight).sum();
        let mut sum = 0.0;
        let cumulative = weighted.iter().map(|&(bytes, weight)| {
            sum += weight / total;
            (bytes, sum)
        });
        Some(Sizes { cumulative: cumulative.collect() })
    }

    /// The size that a share `quantile` (0..1) of all sizes does not exceed.
    pub(crate) fn at(&self, quantile: f64) -> u32 {
        let index = self.cumulative.partition_point(|&(_, sum)| sum <= quantile);
        self.cumulative[index.min(self.cumulative.len() - 1)].0
    }
}

fn weights(shape: &[(u32, f64)], tilt: f64) -> Vec<(u32, f64)> {
    // Exponents count from the favoured end, so that none overflows.
    let anchor = if tilt > 0.0 { shape.iter().map(|s| s.0).max() } else { shape.iter().map(|s| s.0).min() };
    let anchor = f64::from(anchor.unwrap_or(0));
    shape
        .iter()
        .map(|&(bytes, weight)| (bytes, weight * (tilt * (f64::from(bytes) - anchor)).exp()))
        .collect()
}

fn mean(weighted: &[(u32, f64)]) -> f64 {
    let total: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    weighted.iter().map(|&(bytes, weight)| f64::from(bytes) * weight).sum::<f64>() / total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_mean_is_met(mean_bytes in 1100.0..60_000.0f64) {
            let shape = [(512, 0.1), (4096, 0.6), (8192, 0.1), (65536, 0.2)];
            let sizes = Sizes::tilted(&shape, mean_bytes).unwrap();
            let n = 100_000;
            let sum: f64 = (0..n).map(|i| f64::from(sizes.at((f64::from(i) + 0.5) / f64::from(n)))).sum();
            prop_assert!((sum / f64::from(n) / mean_bytes - 1.0).abs() < 2e-3);
        }
    }

    #[test]
    fn a_mean_outside_the_sizes_is_refused() {
        assert!(Sizes::tilted(&[(512, 1.0), (4096, 1.0)], 4096.0).is_none());
        assert!(Sizes::tilted(&[], 4096.0).is_none());
    }
}
