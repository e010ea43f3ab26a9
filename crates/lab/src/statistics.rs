//! Medians, spreads and ratios of figures that were taken in rounds.

use serde::{Deserialize, Serialize};

/// A figure taken several times: its median and its ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// The median of `values`; `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Median, least and greatest of `values`; `None` of none.
pub fn spread(values: &[f64]) -> Option<Spread> {
    Some(Spread {
        median: median(values)?,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// The median of what `combine` makes of both figures of a round. A round that lacks
/// one of them does not count; `None` where none is left.
pub fn median_of_rounds(
    one: &[Option<f64>],
    other: &[Option<f64>],
    combine: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    let both = one.iter().zip(other).filter_map(|(a, b)| Some(combine((*a)?, (*b)?)));
    median(&both.filter(|value| value.is_finite()).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{Spread, median, median_of_rounds, spread};

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 100.0]), Some(3.5));
    }

    #[test]
    fn the_spread_has_both_ends() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The ratio of the medians would be 1; in each round it is another.
        let a = [Some(1.0), Some(2.0), Some(3.0)];
        let b = [Some(2.0), Some(1.0), Some(3.0)];
        assert_eq!(median_of_rounds(&a, &b, |a, b| a / b), Some(1.0));
        let c = [Some(2.0), Some(8.0), None];
        assert_eq!(median_of_rounds(&c, &b, |a, b| a / b), Some(4.5));
        assert_eq!(median_of_rounds(&[None], &[Some(1.0)], |a, b| a / b), None);
        assert_eq!(median_of_rounds(&[Some(1.0)], &[Some(0.0)], |a, b| a / b), None);
    }
}
