//! Contenders in turns, ratios within a pair, and when they are known well enough.
//!
//! A round runs each contender once; every second round runs them in reverse order (ABBA), so that
//! a drift of the machine favours no contender. A contender's figure is divided by the baseline's
//! figure of the same round; the two make a pair. The centre of the pairs' ratios is the
//! Hodges-Lehmann estimate of their logarithms (Hodges, Lehmann: Estimates of Location Based on
//! Rank Tests, 1963); its interval comes from a bootstrap (Efron, Tibshirani: An Introduction to
//! the Bootstrap, 1993).

use serde::{Deserialize, Serialize};
use terapage_figures::SplitMix;
use terapage_figures::median;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// The probability that the interval contains the true value.
const CONFIDENCE: f64 = 0.95;

/// Fewer pairs than these have no 95 % interval: by chance all of `n` lie on one side of the true
/// median in `2 / 2^n` of all cases, which for 5 pairs is 6 %.
pub const PAIRS_LEAST: usize = 6;

/// Both ends of a settled interval are within this of its centre, as a share.
pub const SETTLED: f64 = 0.05;

/// The order in which `count` contenders run in a round, counted from 1: forwards in odd rounds,
/// backwards in even ones.
pub fn order(round: u32, count: usize) -> Vec<usize> {
    match round % 2 {
        1 => (0..count).collect(),
        _ => (0..count).rev().collect(),
    }
}

/// A ratio and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Its centre.
    pub center: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The number of pairs behind it.
    pub pairs: usize,
    /// Whether disturbed runs are among them.
    #[serde(default)]
    pub disturbed: bool,
}

impl Ratio {
    /// The ratio of pairs of figures that are greater than zero, the first divided by the second;
    /// `None` if there are no pairs. With fewer than [`PAIRS_LEAST`] pairs, the interval goes from
    /// the smallest to the largest ratio.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let logs: Vec<f64> =
            pairs.iter().map(|(one, other)| (one / other).ln()).filter(|log| log.is_finite()).collect();
        let center = hodges_lehmann(&logs)?;
        let (low, high) = match logs.len() < PAIRS_LEAST {
            true => ends(&logs),
            false => bootstrap(&logs, hodges_lehmann),
        };
        Some(Ratio {
            center: center.exp(),
            low: low.exp(),
            high: high.exp(),
            pairs: logs.len(),
            disturbed: false,
        })
    }

    /// Whether its interval is a 95 % interval, and narrow enough.
    pub fn is_settled(&self) -> bool {
        self.pairs >= PAIRS_LEAST && self.distance() <= SETTLED
    }

    /// The larger distance of its ends from its centre, as a share.
    pub fn distance(&self) -> f64 {
        (self.high / self.center).max(self.center / self.low) - 1.0
    }
}

/// The median of the means of all pairs of values, including each value with itself; `None` if
/// there are no values.
fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    let means =
        values.iter().enumerate().flat_map(|(i, one)| values[i..].iter().map(move |b| (one + b) / 2.0));
    median(&means.collect::<Vec<_>>())
}

fn ends(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// The percentile interval of `estimate` over resamples of `values`. The same values always give
/// the same interval.
fn bootstrap(values: &[f64], estimate: impl Fn(&[f64]) -> Option<f64>) -> (f64, f64) {
    let mut numbers = SplitMix(0x7465_7261_7061_6765);
    let mut drawn = vec![0.0; values.len()];
    let mut found: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            drawn.fill_with(|| values[numbers.below(values.len() as u64) as usize]);
            estimate(&drawn)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    let at = |share: f64| found[(share * (found.len() - 1) as f64).round() as usize];
    let tail = (1.0 - CONFIDENCE) / 2.0;
    (at(tail), at(1.0 - tail))
}

/// The ratio of two sets of figures that were not taken in pairs, such as those of two machines:
/// the ratio of their medians, with each set resampled separately; `None` if one is empty.
pub fn unpaired(ones: &[f64], others: &[f64]) -> Option<Ratio> {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let (ones, others) = (logs(ones), logs(others));
    let center = median(&ones)? - median(&others)?;
    let interval = |values: &[f64]| match values.len() < PAIRS_LEAST {
        true => ends(values),
        false => bootstrap(values, median),
    };
    // Combining opposite ends gives an interval at least as wide as that of the difference.
    let (one, other) = (interval(&ones), interval(&others));
    let (low, high) = ((one.0 - other.1).exp(), (one.1 - other.0).exp());
    let pairs = ones.len().min(others.len());
    Some(Ratio { center: center.exp(), low, high, pairs, disturbed: false })
}

#[cfg(test)]
mod tests {
    use super::{PAIRS_LEAST, Ratio, hodges_lehmann, order, unpaired};
    use terapage_figures::SplitMix;

    #[test]
    fn rounds_go_forwards_and_backwards() {
        assert_eq!(order(1, 2), [0, 1]);
        assert_eq!(order(2, 2), [1, 0]);
        assert_eq!(
            (1..=4).flat_map(|round| order(round, 3)).collect::<Vec<_>>(),
            [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]
        );
    }

    #[test]
    fn the_center_is_that_of_hodges_and_lehmann() {
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[3.0]), Some(3.0));
        // Means: 1, 1.5, 5.5, 2, 6, 10; the middle two are 2 and 5.5.
        assert_eq!(hodges_lehmann(&[1.0, 2.0, 10.0]), Some(3.75));
    }

    #[test]
    fn a_drift_that_both_share_does_not_show() {
        let pairs: Vec<(f64, f64)> = (1..=8).map(|i| (3.0 * f64::from(i), 2.0 * f64::from(i))).collect();
        let ratio = Ratio::of(&pairs).expect("pairs");
        for end in [ratio.center, ratio.low, ratio.high] {
            assert!((end - 1.5).abs() < 1e-12, "{ratio:?}");
        }
        assert!(ratio.is_settled());
    }

    #[test]
    fn few_pairs_are_never_settled_and_wide_ones_neither() {
        let same = [(1.0, 1.0); PAIRS_LEAST];
        assert!(Ratio::of(&same).is_some_and(|ratio| ratio.is_settled()));
        let few = Ratio::of(&same[1..]).expect("pairs");
        assert!(!few.is_settled() && few.pairs == PAIRS_LEAST - 1);
        let two = Ratio::of(&[(1.0, 1.0), (4.0, 1.0)]).expect("pairs");
        assert!((two.low - 1.0).abs() < 1e-12 && (two.high - 4.0).abs() < 1e-9, "{two:?}");
        assert!((two.center - 2.0).abs() < 1e-9 && (two.distance() - 1.0).abs() < 1e-9);
        let wide: Vec<(f64, f64)> = (0..20).map(|i| (if i % 2 == 0 { 1.0 } else { 2.0 }, 1.0)).collect();
        assert!(!Ratio::of(&wide).expect("pairs").is_settled());
        assert_eq!(Ratio::of(&[(0.0, 1.0), (1.0, 0.0)]), None);
    }

    /// Noise of a tenth up and down around a ratio of 2.
    fn noisy(numbers: &mut SplitMix, count: usize) -> Vec<(f64, f64)> {
        let mut noise = || ((numbers.below(2001) as f64 - 1000.0) / 10_000.0).exp();
        (0..count).map(|_| (2.0 * noise(), noise())).collect()
    }

    #[test]
    fn the_interval_holds_the_true_ratio_as_often_as_it_says() {
        let mut numbers = SplitMix(7);
        let count = 200;
        let held = (0..count).filter(|_| {
            let ratio = Ratio::of(&noisy(&mut numbers, 12)).expect("pairs");
            ratio.low <= 2.0 && 2.0 <= ratio.high
        });
        // Of 95 % a bootstrap of 12 pairs reaches some 91 to 93.
        let held = held.count();
        assert!((count * 86 / 100..=count * 99 / 100).contains(&held), "{held} of {count}");
    }

    #[test]
    fn more_pairs_narrow_the_interval_until_it_is_settled() {
        let mut numbers = SplitMix(3);
        let few = Ratio::of(&noisy(&mut numbers, 8)).expect("pairs");
        let many = Ratio::of(&noisy(&mut numbers, 100)).expect("pairs");
        assert!(many.distance() < few.distance(), "{few:?} {many:?}");
        assert!(many.is_settled() && (many.center / 2.0 - 1.0).abs() < 0.03, "{many:?}");
    }

    #[test]
    fn sets_without_pairs_are_compared_by_their_medians() {
        let ratio = unpaired(&[2.0; 9], &[1.0; 7]).expect("figures");
        assert!((ratio.center - 2.0).abs() < 1e-12 && ratio.pairs == 7 && ratio.is_settled());
        let wide = unpaired(&[1.0, 2.0, 3.0], &[1.0]).expect("figures");
        assert!((wide.low - 1.0).abs() < 1e-9 && (wide.high - 3.0).abs() < 1e-9);
        assert_eq!(unpaired(&[], &[1.0]), None);
    }
}
