//! Medians, quantiles, means and spreads.

use serde::{Deserialize, Serialize};

/// The value below which a share of `values` lies, from 0 to 1, interpolated between two values.
/// `None` if there are no values. `None` of none.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = sorted.len().saturating_sub(1) as f64 * share;
    let (below, part) = (*sorted.get(place as usize)?, place.fract());
    match sorted.get(place as usize + 1) {
        Some(above) if part > 0.0 => Some(below * (1.0 - part) + above * part),
        _ => Some(below),
    }
}

/// The middle value, or the mean of the two in the middle; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// A figure that was taken several times: its median and its extremes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// Median, minimum and maximum of `values`; `None` if there are none.
pub fn spread(values: &[f64]) -> Option<Spread> {
    Some(Spread {
        median: median(values)?,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

/// A figure that was taken with several seeds: its mean, and the spread of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean; NaN if there are no values.
    pub mean: f64,
    /// The standard deviation of the values; 0 for one value.
    pub deviation: f64,
    /// Half the width of the 95 % interval of the mean (Student's t); `None` for one value.
    pub margin: Option<f64>,
}

/// The mean of `values`.
pub fn mean(values: &[f64]) -> Mean {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    match values.len() {
        0 | 1 => Mean { mean, deviation: 0.0, margin: None },
        values => {
            let variance = squares / (count - 1.0);
            let margin = student(values - 1) * (variance / count).sqrt();
            Mean { mean, deviation: variance.sqrt(), margin: Some(margin) }
        }
    }
}

/// The 97.5 % point of Student's t for this number of degrees of freedom (1 or more), from its
/// table; above 10, that of the normal distribution.
pub fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    freedom.checked_sub(1).and_then(|row| TABLE.get(row)).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_the_values() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.25), Some(1.25));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
        assert_eq!(quantile(&[1.0, f64::INFINITY], 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

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
    fn a_margin_takes_two_values() {
        assert_eq!(mean(&[2.0]), Mean { mean: 2.0, deviation: 0.0, margin: None });
        let two = mean(&[1.0, 3.0]);
        assert_eq!((two.mean, two.deviation, two.margin), (2.0, 2.0_f64.sqrt(), Some(12.706)));
        assert_eq!(student(2), 4.303);
        assert_eq!(student(11), 1.96);
    }
}
