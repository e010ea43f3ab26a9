//! Belady's optimum at many budgets: the same results as [`terapage_policy::belady::belady`], with
//! the next uses found once for all budgets.

use std::collections::{BinaryHeap, HashMap};
use terapage_policy::belady::Use;

/// The program's use of its blocks, with the next use after each touch.
pub struct Optimum {
    /// Blocks are numbered from 0 in the order of their first use, since there are arrays indexed
    /// by number.
    uses: Vec<Use>,
    /// By use: the next touch of its block, or a number past the end if there is none before the
    /// block is freed.
    next: Vec<u32>,
    blocks: usize,
}

const NEVER: u32 = u32::MAX;

impl Optimum {
    /// Finds the next uses.
    pub fn new(uses: impl IntoIterator<Item: Into<Use>>) -> Optimum {
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut number = |block: u32| {
            let next = numbers.len() as u32;
            *numbers.entry(block).or_insert(next)
        };
        let numbered = uses.into_iter().map(|one| match one.into() {
            Use::Touch(block) => Use::Touch(number(block)),
            Use::Free(block) => Use::Free(number(block)),
        });
        let uses: Vec<Use> = numbered.collect();
        let blocks = numbers.len();
        let mut upcoming = vec![NEVER; blocks];
        let mut next = vec![NEVER; uses.len()];
        for (now, one) in uses.iter().enumerate().rev() {
            match *one {
                Use::Touch(block) => {
                    next[now] = std::mem::replace(&mut upcoming[block as usize], now as u32);
                }
                Use::Free(block) => upcoming[block as usize] = NEVER,
            }
        }
        Optimum { uses, next, blocks }
    }

    /// The fewest page-ins with `frames` frames, without first touches.
    ///
    /// # Panics
    /// If `frames` is 0.
    pub fn page_ins(&self, frames: usize) -> u64 {
        assert!(frames > 0, "a reference needs a frame");
        // By block: its next use while it is in, 0 while it is out (use 0 is never a next use).
        let mut due = vec![0u32; self.blocks];
        let mut seen = vec![false; self.blocks];
        // Next uses of blocks that are in. Entries of blocks that were used since then are dropped
        // when they come to the top.
        let mut furthest: BinaryHeap<(u32, u32)> = BinaryHeap::new();
        let (mut inside, mut page_ins) = (0, 0);
        for (one, &next) in self.uses.iter().zip(&self.next) {
            let (Use::Touch(block) | Use::Free(block)) = *one;
            let at = block as usize;
            if *one == Use::Free(block) {
                inside -= usize::from(std::mem::take(&mut due[at]) != 0);
                seen[at] = false;
                continue;
            }
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
