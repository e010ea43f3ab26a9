//! The range of an axis, and the places of its ticks.

/// Larger values are not drawn, so that no sum of values overflows.
const LARGEST: f64 = 1e300;

/// Whether a value has a place on an axis.
pub fn can_be_drawn(value: f64, log: bool) -> bool {
    value.is_finite() && value.abs() <= LARGEST && (!log || value >= 1.0 / LARGEST)
}

/// A range from `low` to `high`, which is larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The value at the beginning of the axis.
    pub low: f64,
    /// The value at the end of the axis.
    pub high: f64,
    /// The spread of values between the ends.
    pub spread: Spread,
}

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Linearly.
    Linear,
    /// By logarithm, with ticks at powers of ten.
    Decimal,
    /// By logarithm, with ticks at powers of two.
    Binary,
}

impl Scale {
    /// A range that contains the values and ends on round numbers. Values that cannot be drawn are
    /// ignored. A linear range begins at zero if `from_zero` is set, or if the values reach more
    /// than half of the way down to zero.
    pub fn fit(values: impl IntoIterator<Item = f64>, spread: Spread, from_zero: bool) -> Scale {
        let log = spread != Spread::Linear;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|value| can_be_drawn(*value, log)) {
            // Tiny values count as zero: steps between them could not be represented.
            let value = if value.abs() < 1.0 / LARGEST { 0.0 } else { value };
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log { around_log(low, high, spread) } else { around_linear(low, high, from_zero) }
    }

    /// The place of a value, from 0 at the beginning to 1 at the end; `None` if it cannot be drawn.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = match self.spread {
            _ if !value.is_finite() => return None,
            Spread::Decimal | Spread::Binary if value <= 0.0 => return None,
            Spread::Linear => (value - self.low) / (self.high - self.low),
            _ => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        Some(place.clamp(0.0, 1.0))
    }

    /// Round values in the range, about `count` of them.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        match self.spread {
            Spread::Linear => linear_ticks(self.low, self.high, count),
            Spread::Decimal => decimal_ticks(self.low, self.high, count),
            Spread::Binary => powers(2.0, self.low, self.high, count),
        }
    }
}

fn around_linear(mut low: f64, mut high: f64, from_zero: bool) -> Scale {
    if low >= 0.0 && (from_zero || low < high / 2.0) {
        low = 0.0;
    }
    if high <= 0.0 && (from_zero || high > low / 2.0) {
        high = 0.0;
    }
    if low == high {
        let more = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
        (low, high) = if low == 0.0 { (0.0, more) } else { (low - more, high + more) };
    }
    let step = round_step((high - low) / 5.0);
    // Without a little tolerance, 0.6 / 0.2 would add a step.
    let low = (low / step + 1e-9).floor() * step;
    let high = (high / step - 1e-9).ceil() * step;
    Scale { low, high, spread: Spread::Linear }
}

fn around_log(low: f64, high: f64, spread: Spread) -> Scale {
    let (mut low, mut high) = match spread {
        Spread::Binary => (low.log2().floor().exp2(), high.log2().ceil().exp2()),
        _ => (round_down(low), round_up(high)),
    };
    if low == high {
        (low, high) = (low / 2.0, high * 2.0);
    }
    Scale { low, high, spread }
}

/// The smallest of 1, 2, 5, 10 ... that is at least `value`.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    power * factors.into_iter().find(|factor| power * factor >= value * 0.999_999_9).unwrap_or(10.0)
}

/// The largest of 1, 2, 5, 10 ... that is at most `value`.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factors = [5.0, 2.0, 1.0];
    power * factors.into_iter().find(|factor| power * factor <= value * 1.000_000_1).unwrap_or(1.0)
}

fn round_step(step: f64) -> f64 {
    round_up(step.max(1.0 / LARGEST))
}

fn linear_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let step = round_step((high - low) / count.max(1) as f64);
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    let number = ((last - first).clamp(0.0, 100.0)) as usize;
    (0..=number).map(|at| (first + at as f64) * step).collect()
}

fn decimal_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let decades = (high / low).log10();
    if decades > 2.5 {
        return powers(10.0, low, high, count);
    }
    let within = |value: &f64| *value >= low * 0.999_999 && *value <= high * 1.000_001;
    let first = low.log10().floor() as i32;
    let decade = |power: i32| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power));
    let ticks: Vec<f64> = (first..=first + 4).flat_map(decade).filter(within).collect();
    if ticks.len() >= 3 { ticks } else { linear_ticks(low, high, count) }
}

/// Powers of a base: each, or every second, third and so on, so that there are at most `count + 1`.
fn powers(base: f64, low: f64, high: f64, count: usize) -> Vec<f64> {
    let first = (low.ln() / base.ln() - 1e-9).ceil() as i32;
    let last = (high.ln() / base.ln() + 1e-9).floor() as i32;
    let step = ((last - first) as f64 / count.max(1) as f64).ceil().max(1.0) as usize;
    (first..=last).step_by(step).map(|power| base.powi(power)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_end_on_round_numbers() {
        let linear = Scale::fit([3.0, 97.0], Spread::Linear, false);
        assert_eq!((linear.low, linear.high), (0.0, 100.0));
        assert_eq!(linear.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let narrow = Scale::fit([0.952, 0.99], Spread::Linear, false);
        assert!((narrow.low - 0.95).abs() < 1e-12 && (narrow.high - 0.99).abs() < 1e-12);
        let bytes = Scale::fit([4096.0, 2_000_000.0], Spread::Binary, false);
        assert_eq!((bytes.low, bytes.high), (4096.0, 2_097_152.0));
        assert_eq!(bytes.ticks(5), [4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0]);
        let rate = Scale::fit([879.0, 1300.0], Spread::Decimal, false);
        assert_eq!((rate.low, rate.high), (500.0, 2000.0));
        assert_eq!(rate.ticks(5), [500.0, 1000.0, 2000.0]);
    }

    #[test]
    fn no_values_still_have_a_range() {
        assert_eq!(Scale::fit([], Spread::Linear, true).high, 1.0);
        assert_eq!(Scale::fit([f64::NAN, -1.0], Spread::Decimal, false).low, 1.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_range_holds_its_values(values in prop::collection::vec(any::<f64>(), 1..20), kind in 0..3usize, zero: bool) {
            let spread = [Spread::Linear, Spread::Decimal, Spread::Binary][kind];
            let scale = Scale::fit(values.iter().copied(), spread, zero);
            prop_assert!(scale.low < scale.high && scale.low.is_finite() && scale.high.is_finite());
            let hair = (scale.high - scale.low) * 1e-6;
            for value in values.into_iter().filter(|value| can_be_drawn(*value, kind > 0)) {
                prop_assert!(value >= scale.low - hair);
                prop_assert!(value <= scale.high + hair);
                let place = scale.place(value).expect("it can be drawn");
                prop_assert!((0.0..=1.0).contains(&place));
            }
            let ticks = scale.ticks(5);
            prop_assert!(ticks.len() <= 12, "{ticks:?}");
            prop_assert!(ticks.iter().all(|tick| scale.place(*tick).is_some() || *tick == 0.0));
        }
    }
}
