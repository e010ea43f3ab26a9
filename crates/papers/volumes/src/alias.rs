//! Drawing from a table of weights in constant time.

use crate::random::Random;

/// Walker's alias table, built by Vose's method (IEEE Transactions on Software Engineering 17(9),
/// 1991).
#[derive(Clone, Debug)]
pub(crate) struct Alias {
    /// For each slot, a bound and another slot: a random number below the bound selects the slot
    /// itself, otherwise the other one.
    slots: Vec<(u32, u32)>,
}

impl Alias {
    /// A table of at least one weight; the sum of the weights need not be 1.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut slots = vec![(u32::MAX, 0); weights.len()];
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..weights.len() as u32).partition(|&slot| scaled[slot as usize] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            slots[low as usize] = ((scaled[low as usize] * f64::from(u32::MAX)) as u32, high);
            scaled[high as usize] -= 1.0 - scaled[low as usize];
            if scaled[high as usize] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        // Slots that rounding leaves in either list have the weight 1, apart from that rounding.
        for slot in small.into_iter().chain(large) {
            slots[slot as usize] = (u32::MAX, slot);
        }
        Alias { slots }
    }

    /// Draws the number of a weight.
    pub(crate) fn draw(&self, random: &mut Random) -> u32 {
        let bits = random.next();
        let slot = (((bits >> 32) * self.slots.len() as u64) >> 32) as u32;
        let (bound, other) = self.slots[slot as usize];
        if (bits as u32) < bound { slot } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_as_often_as_their_weights_say() {
        let weights = [5.0, 0.0, 1.0, 3.0, 0.5, 0.5];
        let (alias, mut random) = (Alias::new(&weights), Random::new(7));
        let mut counts = [0u32; 6];
        for _ in 0..1_000_000 {
            counts[alias.draw(&mut random) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            assert!((f64::from(*count) / 1e6 - weight / 10.0).abs() < 2e-3, "{counts:?}");
        }
    }

    #[test]
    fn one_weight_is_always_drawn() {
        let alias = Alias::new(&[0.3]);
        assert_eq!(alias.draw(&mut Random::new(1)), 0);
    }
}
