//! Histograms with buckets that grow with the values.

/// Counts of values. Up to 16 each value has its own bucket; above that, each power of two has 16
/// buckets of equal width, so that a value is known within a sixteenth.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
#[serde(into = "Vec<(u64, u64)>")]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: f64,
    squares: f64,
}

/// Buckets of a power of two, as a power of two.
const FINE: u32 = 4;

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let bucket = bucket_of(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += value as f64;
        self.squares += value as f64 * value as f64;
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Their standard deviation divided by their mean: 1 for gaps between requests at random times,
    /// more for requests in bursts.
    pub fn variation(&self) -> f64 {
        let mean = self.mean();
        if mean == 0.0 {
            0.0
        } else {
            (self.squares / self.count as f64 / (mean * mean) - 1.0).max(0.0).sqrt()
        }
    }

    /// The lower end of the bucket below which a `share` of the values lies; 0 if there are none.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut left = (share * self.count as f64).ceil().max(1.0) as u64;
        for (bucket, count) in self.buckets.iter().enumerate() {
            if *count >= left {
                return low_of(bucket);
            }
            left -= count;
        }
        0
    }

    /// The lower ends of the buckets that are not empty, and their counts.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (low_of(bucket), *count))
    }

    /// The powers of two, up to the greatest that is needed, and the counts of the values in the
    /// upper half of each: 4096 represents 2049 to 4096.
    pub fn powers(&self) -> Vec<(u64, u64)> {
        let mut powers: Vec<(u64, u64)> = Vec::new();
        for (low, count) in self.buckets() {
            let power = low.checked_next_power_of_two().unwrap_or(1 << 63);
            match powers.last_mut() {
                Some((last, sum)) if *last == power => *sum += count,
                _ => powers.push((power, count)),
            }
        }
        powers
    }
}

impl From<Histogram> for Vec<(u64, u64)> {
    fn from(histogram: Histogram) -> Self {
        histogram.buckets().collect()
    }
}

/// The bucket of a value.
#[inline]
pub(super) fn bucket_of(value: u64) -> usize {
    let shift = (63 - (value | 1).leading_zeros()).saturating_sub(FINE);
    ((u64::from(shift) << FINE) + (value >> shift)) as usize
}

/// The least value of a bucket.
pub(super) fn low_of(bucket: usize) -> u64 {
    let shift = (bucket >> FINE).saturating_sub(1);
    ((bucket - (shift << FINE)) as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_in_its_bucket(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let bucket = bucket_of(value);
            prop_assert!(low_of(bucket) <= value);
            prop_assert!(value - low_of(bucket) <= value / 16);
            prop_assert!(bucket == bucket_of(u64::MAX) || value < low_of(bucket + 1));
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(0u64..1 << 40, 1..200)) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            for (share, index) in [(0.0, 0), (0.5, values.len().div_ceil(2) - 1), (1.0, values.len() - 1)] {
                prop_assert_eq!(histogram.quantile(share), low_of(bucket_of(values[index])));
            }
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            prop_assert!((histogram.mean() - mean).abs() <= 1e-9 * mean);
            prop_assert_eq!(histogram.powers().iter().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
        }
    }

    #[test]
    fn powers_of_two_are_upper_ends() {
        let mut histogram = Histogram::default();
        [512, 4096, 4096, 4097, 8192].iter().for_each(|value| histogram.add(*value));
        // 4097 shares a bucket with 4096, since they differ by less than a sixteenth.
        assert_eq!(histogram.powers(), [(512, 1), (4096, 3), (8192, 1)]);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
