//! Belady's optimum at many budgets: the same answers as [`terapage_policy::belady::belady`], with
//! the next uses found once for all budgets.

use std::collections::BinaryHeap;

/// A reference string with the next use of each reference.
pub struct Optimum {
    references: Vec<u32>,
    /// By reference: when its block is used next; after the end, if never.
    next: Vec<u32>,
    blocks: usize,
}

const NEVER: u32 = u32::MAX;

impl Optimum {
    /// Finds the next uses.
    pub fn new(references: Vec<u32>) -> Optimum {
        let blocks = references.iter().map(|&block| block as usize + 1).max().unwrap_or(0);
        let mut upcoming = vec![NEVER; blocks];
        let mut next = vec![NEVER; references.len()];
        let mut seen = 0;
        for (now, &block) in references.iter().enumerate().rev() {
            let upcoming = &mut upcoming[block as usize];
            seen += usize::from(*upcoming == NEVER);
            next[now] = std::mem::replace(upcoming, now as u32);
        }
        Optimum { references, next, blocks: seen }
    }

    /// The references.
    pub fn references(&self) -> &[u32] {
        &self.references
    }

    /// Blocks referenced: the footprint.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The fewest page-ins with `frames` frames, first touches left out.
    ///
    /// # Panics
    /// If `frames` is 0.
    pub fn page_ins(&self, frames: usize) -> u64 {
        assert!(frames > 0, "a reference needs a frame");
        let numbers = self.references.iter().map(|&block| block as usize + 1).max().unwrap_or(0);
        // By block: its next use while it is in, 0 while it is out (nothing's next use is reference
        // 0).
        let mut due = vec![0u32; numbers];
        let mut seen = vec![false; numbers];
        // Next uses of blocks that are in. Entries of blocks used since are dropped when they
        // surface.
        let mut furthest: BinaryHeap<(u32, u32)> = BinaryHeap::new();
        let (mut inside, mut page_ins) = (0, 0);
        for (&block, &next) in self.references.iter().zip(&self.next) {
            let at = block as usize;
            if due[at] == 0 {
                page_ins += u64::from(std::mem::replace(&mut seen[at], true));
                if inside == frames {
                    inside -= 1;
                    while let Some((use_at, victim)) = furthest.pop() {
                        if due[victim as usize] == use_at {
                            due[victim as usize] = 0;
                            break;
                        }
                    }
                }
                inside += 1;
            }
            due[at] = next;
            furthest.push((next, block));
        }
        page_ins
    }
}
