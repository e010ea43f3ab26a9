//! Hyperbolic caching: ranks blocks by their requests per unit of time since they were inserted.
//!
//! Source: Blankstein, Sen, Freedman, "Hyperbolic Caching: Flexible Caching for Web Applications",
//! USENIX ATC 2017: the least of 64 random blocks leaves. Time is counted in requests; the costs
//! and sizes of the paper are left out.

use crate::pool::{Pool, slot};
use terapage_policy::replacement::Replacement;

/// The number of blocks that are compared for a victim.
const SAMPLE: u32 = 64;

#[derive(Clone, Copy, Default)]
struct Life {
    came: u64,
    uses: u32,
}

/// Blocks with the time of their insertion, and their requests since then.
#[derive(Default)]
pub struct Hyperbolic {
    pool: Pool,
    lives: Vec<Life>,
    now: u64,
}

impl Replacement for Hyperbolic {
    fn insert(&mut self, block: u32) {
        self.now += 1;
        *slot(&mut self.lives, block) = Life { came: self.now, uses: 1 };
        self.pool.insert(block);
    }

    fn rescue(&mut self, block: u32) {
        self.touched(block);
        self.pool.insert(block);
    }

    fn touched(&mut self, block: u32) {
        self.now += 1;
        slot(&mut self.lives, block).uses += 1;
    }

    fn victim(&mut self) -> Option<u32> {
        let mut least: Option<(f64, u32)> = None;
        for _ in 0..SAMPLE {
            let block = self.pool.draw()?;
            let Life { came, uses } = self.lives[block as usize];
            let rate = f64::from(uses) / (self.now + 1 - came) as f64;
            if least.is_none_or(|(best, _)| rate < best) {
                least = Some((rate, block));
            }
        }
        let (_, block) = least?;
        self.pool.remove(block);
        Some(block)
    }

    fn weigh(&mut self, _block: u32, _size: u32) {}

    fn remove(&mut self, block: u32) {
        self.pool.remove(block);
    }

    fn len(&self) -> usize {
        self.pool.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use terapage_figures::SplitMix;

    /// Each victim has, of 64 blocks that are drawn uniformly, the fewest requests for its time in
    /// the cache. (libCacheSim draws a bucket of its hash table by the low bits of a congruential
    /// generator, which go round in a fixed order.)
    #[test]
    fn victims_have_the_fewest_requests_for_their_time() {
        let (mut policy, mut random) = (Hyperbolic::default(), SplitMix(5));
        // The number of the request that brought it in, and its requests.
        let mut inside: HashMap<u32, (u64, u64)> = HashMap::new();
        for now in 1..100_000_u64 {
            let block = (random.next() % 30 * (random.next() % 40)) as u32;
            if let Some((_, uses)) = inside.get_mut(&block) {
                *uses += 1;
                policy.touched(block);
                continue;
            }
            if inside.len() == 200 {
                let mut drawn = policy.pool.clone();
                let drawn: Vec<u32> = (0..SAMPLE).filter_map(|_| drawn.draw()).collect();
                let victim = policy.victim().expect("it is full");
                assert!(drawn.contains(&victim));
                // Fractions are compared without rounding.
                let rate = |block: &u32| (inside[block].1, now - inside[block].0);
                let (uses, time) = rate(&victim);
                for (others, other_time) in drawn.iter().map(rate) {
                    assert!(uses * other_time <= others * time, "{victim} at {now}");
                }
                inside.remove(&victim);
            }
            policy.insert(block);
            inside.insert(block, (now, 1));
        }
    }
}
