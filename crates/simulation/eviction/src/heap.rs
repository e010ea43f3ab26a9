//! A heap of blocks by rank, in which the rank of any block can change.

use crate::pool::slot;

/// Children of a node: a flat heap has fewer levels, and its nodes share cache lines.
const WIDTH: usize = 4;
/// Not in the heap; positions are stored plus one.
const NOWHERE: u32 = 0;

/// The rank of a block: the block with the least rank leaves first. Blocks of equal rank leave in
/// the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rank(pub f64, pub u64);

/// A heap of blocks, the least rank at the top.
#[derive(Default)]
pub struct Heap {
    nodes: Vec<(Rank, u32)>,
    /// The place of each block plus one, or 0.
    places: Vec<u32>,
}

impl Heap {
    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The block with the least rank.
    pub fn least(&self) -> Option<(Rank, u32)> {
        self.nodes.first().copied()
    }

    /// Inserts a block, or changes its rank.
    pub fn set(&mut self, block: u32, rank: Rank) {
        let place = *slot(&mut self.places, block);
        if place == NOWHERE {
            self.nodes.push((rank, block));
            self.up(self.nodes.len() - 1);
        } else {
            let at = place as usize - 1;
            let before = std::mem::replace(&mut self.nodes[at].0, rank);
            if rank < before { self.up(at) } else { self.down(at) }
        }
    }

    /// Removes a block, and returns whether it was in the heap.
    pub fn remove(&mut self, block: u32) -> bool {
        let place = std::mem::replace(slot(&mut self.places, block), NOWHERE);
        if place == NOWHERE {
            return false;
        }
        let at = place as usize - 1;
        self.nodes.swap_remove(at);
        if let Some(&(_, moved)) = self.nodes.get(at) {
            // The last node moved to this place, and may belong higher or lower.
            self.up(at);
            self.down(self.places[moved as usize] as usize - 1);
        }
        true
    }

    fn up(&mut self, mut at: usize) {
        let node = self.nodes[at];
        while at > 0 {
            let parent = (at - 1) / WIDTH;
            if self.nodes[parent].0 <= node.0 {
                break;
            }
            self.put(at, self.nodes[parent]);
            at = parent;
        }
        self.put(at, node);
    }

    fn down(&mut self, mut at: usize) {
        let node = self.nodes[at];
        loop {
            let first = at * WIDTH + 1;
            let end = (first + WIDTH).min(self.nodes.len());
            let Some(child) = (first..end)
                .reduce(|best, other| if self.nodes[other].0 < self.nodes[best].0 { other } else { best })
            else {
                break;
            };
            if node.0 <= self.nodes[child].0 {
                break;
            }
            self.put(at, self.nodes[child]);
            at = child;
        }
        self.put(at, node);
    }

    fn put(&mut self, at: usize, node: (Rank, u32)) {
        self.nodes[at] = node;
        self.places[node.1 as usize] = at as u32 + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn the_least_is_that_of_a_map(steps in prop::collection::vec((0_u32..40, 0_u32..9, any::<bool>()), 0..400)) {
            let (mut heap, mut model) = (Heap::default(), HashMap::new());
            for (at, (block, rank, remove)) in steps.into_iter().enumerate() {
                if remove {
                    prop_assert_eq!(heap.remove(block), model.remove(&block).is_some());
                } else {
                    let rank = Rank(f64::from(rank), at as u64);
                    heap.set(block, rank);
                    model.insert(block, rank);
                }
                let least = model.iter().map(|(&block, &rank)| (rank, block));
                let least = least.reduce(|a, b| if b.0 < a.0 { b } else { a });
                prop_assert_eq!(heap.least(), least);
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
