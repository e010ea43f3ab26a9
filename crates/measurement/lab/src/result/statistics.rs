//! Ratios of figures that were taken in rounds.

pub use terapage_figures::{Spread, median, spread};

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
    use super::median_of_rounds;

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
