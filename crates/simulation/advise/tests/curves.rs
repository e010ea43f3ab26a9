//! Curves against naive models: stack distances against a list, the optimum against the policy
//! crate's, samples against all.

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use terapage_advise::distances::Distances;
use terapage_advise::optimum::Optimum;
use terapage_policy::belady::{Use, belady, simulate};
use terapage_policy::replacement::Lru;

/// Page-ins of LRU with a list, at each number of frames from 1.
fn naive(references: &[u32], frames_max: usize) -> Vec<u64> {
    let mut stack: Vec<u32> = Vec::new();
    let mut page_ins = vec![0; frames_max];
    for &block in references {
        if let Some(depth) = stack.iter().position(|&other| other == block) {
            page_ins.iter_mut().take(depth).for_each(|count| *count += 1);
            stack.remove(depth);
        }
        stack.insert(0, block);
    }
    page_ins
}

/// Touches of 40 blocks, and now and then a block is freed.
fn uses() -> impl Strategy<Value = Vec<Use>> {
    let one = prop_oneof![4 => (0u32..40).prop_map(Use::Touch), 1 => (0u32..40).prop_map(Use::Free)];
    proptest::collection::vec(one, 0..2500)
}

/// Page-ins of an LRU memory of `frames` frames, in which frees leave frames free.
fn lru_with_frees(uses: &[Use], frames: usize) -> u64 {
    let (mut inside, mut seen, mut page_ins): (Vec<u32>, HashSet<u32>, u64) = Default::default();
    for one in uses {
        let block = one.block();
        let at = inside.iter().position(|&other| other == block);
        if let Some(at) = at {
            inside.remove(at);
        }
        if matches!(one, Use::Free(_)) {
            seen.remove(&block);
            continue;
        }
        page_ins += u64::from(!seen.insert(block) && at.is_none());
        inside.insert(0, block);
        inside.truncate(frames);
    }
    page_ins
}

/// Page-ins of a memory that evicts the block whose next touch is last, found by looking ahead.
fn optimum_with_frees(uses: &[Use], frames: usize) -> u64 {
    let (mut inside, mut seen, mut page_ins): (HashSet<u32>, HashSet<u32>, u64) = Default::default();
    for (now, one) in uses.iter().enumerate() {
        let block = one.block();
        if matches!(one, Use::Free(_)) {
            inside.remove(&block);
            seen.remove(&block);
            continue;
        }
        if !inside.contains(&block) {
            page_ins += u64::from(!seen.insert(block));
            if inside.len() == frames {
                let due = |block: &u32| {
                    let later = uses[now..].iter().position(|later| later.block() == *block);
                    later.filter(|later| uses[now + later] == Use::Touch(*block)).unwrap_or(usize::MAX)
                };
                let victim = *inside.iter().max_by_key(|&block| (due(block), *block)).unwrap();
                inside.remove(&victim);
            }
            inside.insert(block);
        }
    }
    page_ins
}

proptest! {
    #[test]
    fn distances_know_of_freed_blocks(uses in uses()) {
        let distances = Distances::exact(&uses);
        for frames in 1..=42 {
            let expected = lru_with_frees(&uses, frames) as f64;
            prop_assert_eq!(distances.page_ins(frames), expected, "{} frames", frames);
        }
    }

    #[test]
    fn the_optimum_knows_of_freed_blocks(uses in uses(), frames in 1usize..42) {
        let uses = &uses[..uses.len().min(600)];
        prop_assert_eq!(Optimum::new(uses).page_ins(frames), optimum_with_frees(uses, frames));
    }

    #[test]
    fn distances_are_those_of_a_list(references in proptest::collection::vec(0u32..40, 0..3000)) {
        let distances = Distances::exact(&references);
        for (at, expected) in naive(&references, 45).into_iter().enumerate() {
            prop_assert_eq!(distances.page_ins(at + 1), expected as f64, "{} frames", at + 1);
        }
        let mut blocks = references.clone();
        blocks.sort_unstable();
        blocks.dedup();
        prop_assert_eq!(distances.blocks(), blocks.len() as f64);
    }

    #[test]
    fn the_optimum_is_belady_s(references in proptest::collection::vec(0u32..30, 1..600), frames in 1usize..35) {
        let optimum = Optimum::new(references.clone());
        prop_assert_eq!(optimum.page_ins(frames), belady(&references, frames));
    }

    /// The optimum of all touches lies between two optima of the recorded touches, since the others
    /// were of blocks in place.
    #[test]
    fn the_optimum_of_all_lies_between_two_of_what_was_seen(
        references in proptest::collection::vec(0u32..30, 1..600),
        window in 1usize..12,
        more in 1usize..12,
    ) {
        // A recording pager: a FIFO of `window` blocks in place; only touches of other blocks are
        // recorded.
        let mut place = std::collections::VecDeque::new();
        let mut seen = Vec::new();
        for &block in &references {
            if place.contains(&block) {
                continue;
            }
            seen.push(block);
            if place.len() == window {
                place.pop_front();
            }
            place.push_back(block);
        }
        let frames = window + more;
        let all = Optimum::new(references).page_ins(frames);
        let seen = Optimum::new(seen);
        prop_assert!(seen.page_ins(frames) <= all);
        prop_assert!(all <= seen.page_ins(more));
    }
}

/// Blocks by a power law in random order, with loops over all of them in between; this is hard for
/// a sample.
fn skewed(blocks: u32, count: usize) -> Vec<u32> {
    let mut rng = SmallRng::seed_from_u64(3);
    let mut references: Vec<u32> = Vec::new();
    while references.len() < count {
        for _ in 0..blocks * 4 {
            let u: f64 = rng.random_range(0.0001..1.0);
            // Mixed up, so that neighbours in number are not neighbours in use.
            let rank = (f64::from(blocks) * u.powf(2.5)) as u32;
            references.push(rank.wrapping_mul(2_654_435_761) % blocks);
        }
        references.extend(0..blocks);
    }
    references
}

#[test]
fn packing_times_anew_changes_nothing() {
    let references = skewed(700, 60_000);
    let distances = Distances::exact(&references);
    for frames in [1, 10, 100, 350, 699, 700] {
        let mut lru = Lru::default();
        let cost = simulate(&mut lru, &references, frames);
        assert_eq!(distances.page_ins(frames), cost.page_ins as f64, "{frames} frames");
    }
}

#[test]
fn samples_are_near_the_whole() {
    let blocks = 20_000;
    let references = skewed(blocks, 600_000);
    let exact = Distances::exact(&references);
    let error_of = |rate: f64, seed: u64| {
        let sampled = Distances::sampled(&references, rate, seed);
        let errors = (1..=20).map(|part| {
            let frames = blocks as usize * part / 20;
            (sampled.page_ins(frames) - exact.page_ins(frames)).abs() / references.len() as f64
        });
        errors.sum::<f64>() / 20.0
    };
    // The mean error of the share of page-ins over all budgets, as in the SHARDS paper.
    let tenth: Vec<f64> = (0..8).map(|seed| error_of(0.1, seed)).collect();
    let hundredth: Vec<f64> = (0..8).map(|seed| error_of(0.01, seed)).collect();
    let worst = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    println!(
        "mean absolute error of 8 samples, worst: a tenth {:.4}, a hundredth {:.4}",
        worst(&tenth),
        worst(&hundredth)
    );
    // Errors go down with the root of the number of blocks in the sample: here 2000 and 200.
    assert!(worst(&tenth) < 1.5 / 2000f64.sqrt(), "{tenth:?}");
    assert!(worst(&hundredth) < 1.5 / 200f64.sqrt(), "{hundredth:?}");
}
