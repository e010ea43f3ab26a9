//! Replacement on paper: the cost of a policy for a list of references, and of the best policy
//! possible.
//!
//! Source of the optimum: Belady, "A Study of Replacement Algorithms for a
//! Virtual-Storage Computer", IBM Systems Journal, 1966.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::list::Lists;
use crate::replacement::Replacement;
use crate::soft::SoftFrames;

/// The cost of a run over references, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Blocks read again after they had left memory: major faults that need the store.
    pub page_ins: u64,
    /// Blocks touched for the first time. Every policy has the same number.
    pub first_touches: u64,
    /// Touches of a block that had left the address space, but not memory: soft or watched.
    pub minor_faults: u64,
}

/// A use of a block by a program, for a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// The program touches the block.
    Touch(u32),
    /// The program frees the block: its frame is free, and the next touch reads nothing.
    Free(u32),
}

impl Use {
    /// The block.
    pub fn block(self) -> u32 {
        match self {
            Use::Touch(block) | Use::Free(block) => block,
        }
    }
}

impl From<u32> for Use {
    fn from(block: u32) -> Use {
        Use::Touch(block)
    }
}

impl From<&u32> for Use {
    fn from(block: &u32) -> Use {
        Use::Touch(*block)
    }
}

impl From<&Use> for Use {
    fn from(of: &Use) -> Use {
        *of
    }
}

/// The fewest page-ins with which `refs` can be served from `frames` frames.
///
/// First touches are not counted. Takes O(n log n) time for n references.
///
/// # Panics
///
/// If `frames` is 0.
pub fn belady(refs: &[u32], frames: usize) -> u64 {
    assert!(frames > 0, "a reference needs a frame");
    let next = next_uses(refs);
    let mut seen = HashSet::new();
    // The blocks in memory, by their next use: the last one in the map is the victim.
    let mut by_use: BTreeMap<usize, u32> = BTreeMap::new();
    let mut page_ins = 0;
    for (now, &block) in refs.iter().enumerate() {
        if by_use.remove(&now).is_none() {
            if !seen.insert(block) {
                page_ins += 1;
            }
            if by_use.len() == frames {
                by_use.pop_last();
            }
        }
        by_use.insert(next[now], block);
    }
    page_ins
}

/// For each reference, the index of the next reference to the same block. The last reference to a
/// block gets an index behind the end, which no other reference has.
fn next_uses(refs: &[u32]) -> Vec<usize> {
    let mut next = vec![0; refs.len()];
    let mut upcoming: HashMap<u32, usize> = HashMap::new();
    for (now, &block) in refs.iter().enumerate().rev() {
        next[now] = upcoming.insert(block, now).unwrap_or(refs.len() + now);
    }
    next
}

/// Runs `policy` over `uses` with `frames` frames, and reports every touch to the policy, as the
/// papers assume. A pager cannot see every touch: see [`simulate_soft`].
///
/// # Panics
///
/// `frames` is 0, or the policy chooses no victim or one that is not in memory.
pub fn simulate(
    policy: &mut dyn Replacement,
    uses: impl IntoIterator<Item: Into<Use>>,
    frames: usize,
) -> Cost {
    assert!(frames > 0, "a reference needs a frame");
    let mut cost = Cost::default();
    let mut seen = HashSet::new();
    let mut present = HashSet::new();
    for one in uses {
        let block = match one.into() {
            Use::Touch(block) => block,
            Use::Free(block) => {
                policy.remove(block);
                present.remove(&block);
                seen.remove(&block);
                continue;
            }
        };
        if present.contains(&block) {
            policy.touched(block);
            continue;
        }
        count_miss(&mut cost, &mut seen, block);
        if present.len() == frames {
            let victim = policy.victim_for(block).expect("a full memory has a victim");
            assert!(present.remove(&victim), "victim {victim} is not in");
            policy.gone(victim);
        }
        present.insert(block);
        policy.insert(block);
    }
    cost
}

/// In the program's address space.
const HERE: u8 = 1;
/// Out of the address space, still in memory.
const SOFT: u8 = 2;
/// The block is out of the address space only to see whether it is touched; it is still in memory.
const WATCHED: u8 = 3;

/// Runs `policy` over `uses` as the pager does: of `frames` frames, `soft` hold victims that have
/// left the address space and can come back. The policy learns of references only by page-ins and
/// rescues.
///
/// Victims leave memory in the order in which they were chosen. Without soft frames a policy sees
/// only page-ins.
///
/// # Panics
///
/// `frames` is 0, or the policy chooses no victim or one that is not in memory.
pub fn simulate_soft(
    policy: &mut dyn Replacement,
    uses: impl IntoIterator<Item: Into<Use>>,
    frames: usize,
    mut soft: SoftFrames,
) -> Cost {
    assert!(frames > 0, "a reference needs a frame");
    let mut cost = Cost::default();
    let mut seen = HashSet::new();
    let mut places: Lists<3> = Lists::default();
    for one in uses {
        let block = match one.into() {
            Use::Touch(block) => block,
            Use::Free(block) => {
                policy.remove(block);
                places.remove(block);
                seen.remove(&block);
                continue;
            }
        };
        match places.of(block) {
            HERE => continue,
            SOFT => {
                cost.minor_faults += 1;
                soft.touched();
                soften(policy, &mut places);
                places.push(HERE, block);
                policy.rescue(block);
                for other in policy.neighbours(block) {
                    if places.of(other) == SOFT {
                        places.push(HERE, other);
                        policy.back(other);
                    }
                }
            }
            WATCHED => {
                cost.minor_faults += 1;
                places.push(HERE, block);
                policy.seen(block);
            }
            _ => {
                count_miss(&mut cost, &mut seen, block);
                if places.len(HERE) + places.len(WATCHED) + places.len(SOFT) == frames {
                    while places.len(SOFT) <= soft.now() && places.len(HERE) + places.len(WATCHED) > 0 {
                        soften(policy, &mut places);
                    }
                    let leaving = places.pop(SOFT).expect("a full memory has a soft block");
                    policy.gone(leaving);
                    soft.gone();
                }
                places.push(HERE, block);
                policy.insert(block);
            }
        }
        while let Some(block) = policy.watch() {
            assert_eq!(places.of(block), HERE, "block {block}, to be watched, is not in");
            places.push(WATCHED, block);
        }
    }
    cost
}

/// Takes a victim out of the address space.
fn soften(policy: &mut dyn Replacement, places: &mut Lists<3>) {
    let victim = policy.victim().expect("blocks that are in have a victim");
    assert!(matches!(places.of(victim), HERE | WATCHED), "victim {victim} is not in");
    places.push(SOFT, victim);
}

fn count_miss(cost: &mut Cost, seen: &mut HashSet<u32>, block: u32) {
    if seen.insert(block) {
        cost.first_touches += 1;
    } else {
        cost.page_ins += 1;
    }
}
