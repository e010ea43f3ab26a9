//! LHD, least hit density: ranks blocks by their expected hits per unit of space and time.
//!
//! Source: Beckmann, Chen, Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI
//! 2018: ages in classes by the last two ages at hits, the least of 32 random blocks. The
//! distributions are renewed more often than in the paper, since traces may be short, and there are
//! no explorers.

use crate::pool::{Pool, slot};
use terapage_policy::replacement::Replacement;

/// The number of distinct ages.
const AGES: usize = 4096;
/// The ages that pass while a full cache receives as many requests as it has blocks.
const AGES_OF_A_TURN: usize = 64;
/// Classes of blocks, by the sum of their last two ages at hits.
const CLASSES: usize = 16;
/// The number of blocks that are compared for a victim.
const SAMPLE: u32 = 32;
/// The number of requests after which the densities are computed again.
const RENEWED_AFTER: u64 = 1 << 14;
/// The factor by which the counts are then multiplied.
const KEPT: f32 = 0.9;

#[derive(Clone, Copy, Default)]
struct Life {
    asked: u64,
    last_age: u32,
    age_before: u32,
    size: u32,
}

/// Hits and evictions by age, and the values that are computed from them.
#[derive(Clone)]
struct Class {
    hits: Vec<f32>,
    evictions: Vec<f32>,
    densities: Vec<f32>,
}

/// Blocks with their ages, and the classes.
pub struct Lhd {
    pool: Pool,
    lives: Vec<Life>,
    classes: Vec<Class>,
    now: u64,
    /// Requests per age, as a power of two. It is set when the cache is full for the first time.
    shift: Option<u32>,
}

impl Default for Lhd {
    fn default() -> Self {
        let densities = (0..AGES).map(|age| 1.0 / (age + 1) as f32).collect();
        let class = Class { hits: vec![0.0; AGES], evictions: vec![0.0; AGES], densities };
        Lhd { pool: Pool::default(), lives: Vec::new(), classes: vec![class; CLASSES], now: 0, shift: None }
    }
}

impl Lhd {
    fn age(&self, life: &Life) -> usize {
        (((self.now - life.asked) >> self.shift.unwrap_or(0)) as usize).min(AGES - 1)
    }

    /// The class, by powers of two of the last two ages. Newcomers count as asked for long ago.
    fn class(life: &Life) -> usize {
        let sum = life.last_age + life.age_before;
        let log = (AGES as u32).ilog2() as usize;
        if sum == 0 { 0 } else { 1 + log.saturating_sub(sum.ilog2() as usize).min(CLASSES - 2) }
    }

    fn density(&self, block: u32) -> f32 {
        let life = &self.lives[block as usize];
        let age = self.age(life);
        if age == AGES - 1 {
            return -1.0;
        }
        self.classes[Self::class(life)].densities[age] / life.size.max(1) as f32
    }

    fn tick(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(RENEWED_AFTER) {
            self.classes.iter_mut().for_each(Class::renew);
        }
    }
}

impl Class {
    /// The density at an age: the hits from this age on, divided by the time that blocks live from
    /// this age on.
    fn renew(&mut self) {
        let (mut hits, mut events, mut lived) = (0.0, 0.0, 0.0);
        for age in (0..AGES).rev() {
            self.hits[age] *= KEPT;
            self.evictions[age] *= KEPT;
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lived += events;
            self.densities[age] = if events > 1e-5 { hits / lived } else { 0.0 };
        }
    }
}

impl Replacement for Lhd {
    fn insert(&mut self, block: u32) {
        let now = self.now;
        let life = slot(&mut self.lives, block);
        (life.asked, life.last_age, life.age_before) = (now, 0, AGES as u32);
        self.pool.insert(block);
        self.tick();
    }

    fn rescue(&mut self, block: u32) {
        self.pool.insert(block);
        self.touched(block);
    }

    fn touched(&mut self, block: u32) {
        let life = self.lives[block as usize];
        let age = self.age(&life);
        self.classes[Self::class(&life)].hits[age] += 1.0;
        self.lives[block as usize] =
            Life { asked: self.now, last_age: age as u32, age_before: life.last_age, size: life.size };
        self.tick();
    }

    fn victim(&mut self) -> Option<u32> {
        if self.shift.is_none() {
            self.shift = Some((self.pool.len() / AGES_OF_A_TURN).max(1).ilog2());
        }
        let mut least: Option<(f32, u32)> = None;
        for _ in 0..SAMPLE {
            let block = self.pool.draw()?;
            let density = self.density(block);
            if least.is_none_or(|(best, _)| density < best) {
                least = Some((density, block));
            }
        }
        let (_, block) = least?;
        let life = self.lives[block as usize];
        let age = self.age(&life);
        self.classes[Self::class(&life)].evictions[age] += 1.0;
        self.pool.remove(block);
        Some(block)
    }

    fn weigh(&mut self, block: u32, size: u32) {
        slot(&mut self.lives, block).size = size;
    }

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

    /// What the paper defines, computed from a list of all that happened.
    #[derive(Default)]
    struct Model {
        now: u64,
        shift: u32,
        /// The time of the last request, and the two ages before.
        blocks: HashMap<u32, (u64, u32, u32)>,
        /// Hits (1) and evictions (0) by class and age, with the weight that is left of them.
        events: Vec<(usize, usize, f64, f64)>,
        /// The same as of the last renewal.
        known: Vec<(usize, usize, f64, f64)>,
    }

    impl Model {
        fn place(&self, block: u32) -> (usize, usize) {
            let (asked, last, before) = self.blocks[&block];
            let age = ((self.now - asked) >> self.shift).min(AGES as u64 - 1);
            (Lhd::class(&Life { last_age: last, age_before: before, ..Life::default() }), age as usize)
        }

        fn end(&mut self, block: u32, hit: f64) {
            let (class, age) = self.place(block);
            self.events.push((class, age, hit, 1.0));
            let last = self.blocks[&block].1;
            self.blocks.insert(block, (self.now, age as u32, last));
        }

        fn tick(&mut self) {
            self.now += 1;
            if self.now.is_multiple_of(RENEWED_AFTER) {
                self.events.iter_mut().for_each(|event| event.3 *= f64::from(KEPT));
                self.known.clone_from(&self.events);
            }
        }

        /// The hits that are expected from this age on, for the time that is expected.
        fn density(&self, block: u32) -> f64 {
            let (class, age) = self.place(block);
            if age == AGES - 1 {
                return -1.0;
            }
            if self.known.is_empty() {
                return 1.0 / (age + 1) as f64;
            }
            let (mut hits, mut time) = (0.0, 0.0);
            for (_, end, hit, weight) in self.known.iter().filter(|one| one.0 == class && one.1 >= age) {
                hits += hit * weight;
                time += (end - age + 1) as f64 * weight;
            }
            if time > 0.0 { hits / time } else { 0.0 }
        }
    }

    /// Each victim has the least hit density, by the paper's definition, of the blocks drawn.
    /// (libCacheSim computes its densities after 2^20 requests for the first time: in a shorter
    /// trace it learns nothing.)
    #[test]
    fn victims_have_the_least_hit_density_of_the_paper() {
        const FRAMES: usize = 1000;
        let (mut policy, mut model, mut random) = (Lhd::default(), Model::default(), SplitMix(3));
        let mut compared = 0;
        for at in 0..3 * RENEWED_AFTER {
            // A few blocks are requested often, others in turns, others at random.
            let block = match random.next() % 4 {
                0 => (random.next() % 50) as u32,
                1 => 100 + (at % 900) as u32,
                _ => 1000 + (random.next() % 3000) as u32,
            };
            if model.blocks.contains_key(&block) {
                policy.touched(block);
                model.end(block, 1.0);
                model.tick();
                continue;
            }
            if policy.len() == FRAMES {
                model.shift = (FRAMES / AGES_OF_A_TURN).max(1).ilog2();
                let mut drawn = policy.pool.clone();
                let drawn: Vec<u32> = (0..SAMPLE).filter_map(|_| drawn.draw()).collect();
                // All that is compared is looked at seldom: each density is a sum over all events.
                let all = at % 64 == 0;
                let least = all.then(|| drawn.iter().map(|one| model.density(*one)).fold(f64::MAX, f64::min));
                let densities: HashMap<u32, f64> =
                    drawn.iter().filter(|_| all).map(|one| (*one, model.density(*one))).collect();
                let victim = policy.victim().expect("it is full");
                assert!(drawn.contains(&victim));
                if let Some(least) = least {
                    let found = densities[&victim];
                    assert!(found <= least + 1e-4 * least.abs().max(1e-3), "{found}, not {least}, at {at}");
                    compared += 1;
                }
                model.end(victim, 0.0);
                model.blocks.remove(&victim);
            }
            policy.insert(block);
            model.blocks.insert(block, (model.now, 0, AGES as u32));
            model.tick();
        }
        assert!(compared > 300, "{compared}");
    }
}
