//! Figures of latencies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A distribution of latencies, in nanoseconds; percentiles are exact to 0.1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// The number of latencies. If it is 0, all other values are 0.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// 90 in 100 are at most this.
    pub p90_ns: u64,
    /// 99 in 100 are at most this.
    pub p99_ns: u64,
    /// 999 in 1000 are at most this.
    pub p999_ns: u64,
    /// 9999 in 10,000 are at most this.
    pub p9999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latencies {
    /// The figures of `histogram`.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Latencies::default();
        }
        Latencies {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            p9999_ns: histogram.value_at_quantile(0.9999),
            max_ns: histogram.max(),
        }
    }
}

/// Points of the distribution function, for plots: each a share of requests, and the latency that
/// they do not exceed.
pub(crate) fn distribution(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    const SHARES: [f64; 17] =
        [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];
    if histogram.is_empty() {
        return Vec::new();
    }
    SHARES.iter().map(|&share| (share, histogram.value_at_quantile(share))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_a_thousandth() {
        let mut histogram = Histogram::<u64>::new(3).expect("3 digits");
        for value in 1..=100_000_u64 {
            histogram.record(value * 100).expect("it resizes");
        }
        let latencies = Latencies::of(&histogram);
        assert_eq!(latencies.count, 100_000);
        for (found, exact) in [
            (latencies.p50_ns, 5_000_000),
            (latencies.p90_ns, 9_000_000),
            (latencies.p99_ns, 9_900_000),
            (latencies.p999_ns, 9_990_000),
            (latencies.p9999_ns, 9_999_000),
            (latencies.max_ns, 10_000_000),
        ] {
            assert!(found.abs_diff(exact) * 1000 <= exact, "{found} for {exact}");
        }
        assert!((latencies.mean_ns / 5_000_050.0 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn nothing_has_no_latency() {
        let histogram = Histogram::<u64>::new(3).expect("3 digits");
        assert_eq!(Latencies::of(&histogram), Latencies::default());
        assert!(distribution(&histogram).is_empty());
    }
}
