//! Doubly linked lists of blocks, all in one array: no allocation for a single block.

use crate::sparse::Sparse;

/// No block.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
    list: u8,
    mark: u8,
}

const LOOSE: Link = Link { older: NONE, newer: NONE, list: 0, mark: 0 };

impl Default for Link {
    fn default() -> Self {
        LOOSE
    }
}

/// Several lists over the same blocks; a block is in at most one of them.
///
/// Lists are numbered from 1 to `N`. Every operation takes constant time. A block in a list carries
/// a small number, its *mark*: 0 when the block is put there. A block may stand for an object of
/// any size: see [`weigh`](Lists::weigh).
pub struct Lists<const N: usize> {
    links: Sparse<Link>,
    /// The weight of each block; absent while all weights are 1.
    weights: Option<Sparse<u32>>,
    /// The weight of each list.
    size: [usize; N],
    oldest: [u32; N],
    newest: [u32; N],
    len: [usize; N],
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Self {
        Lists {
            links: Sparse::default(),
            weights: None,
            size: [0; N],
            oldest: [NONE; N],
            newest: [NONE; N],
            len: [0; N],
        }
    }
}

impl<const N: usize> Lists<N> {
    /// The list that `block` is in, 1 to `N`, or 0.
    pub fn of(&self, block: u32) -> u8 {
        self.links[block].list
    }

    /// The number of blocks in `list`.
    pub fn len(&self, list: u8) -> usize {
        self.len[usize::from(list) - 1]
    }

    /// The weight of all blocks in `list`: their number, unless some have another weight than 1.
    pub fn size(&self, list: u8) -> usize {
        self.size[usize::from(list) - 1]
    }

    /// The weight of `block`: 1 unless another weight was set.
    pub fn weight(&self, block: u32) -> usize {
        self.weights.as_ref().map_or(1, |weights| weights[block].max(1) as usize)
    }

    /// Gives `block` a weight, in whichever list it is. All blocks whose weight is not 1 must be
    /// given one; 0 counts as 1.
    pub fn weigh(&mut self, block: u32, weight: u32) {
        let before = self.weight(block);
        self.weights.get_or_insert_default()[block] = weight;
        if let list @ 1.. = self.of(block) {
            let size = &mut self.size[usize::from(list) - 1];
            *size = *size - before + weight.max(1) as usize;
        }
    }

    /// The block that has been in `list` longest.
    pub fn oldest(&self, list: u8) -> Option<u32> {
        Some(self.oldest[usize::from(list) - 1]).filter(|&block| block != NONE)
    }

    /// The block that came into `list` last.
    pub fn newest(&self, list: u8) -> Option<u32> {
        Some(self.newest[usize::from(list) - 1]).filter(|&block| block != NONE)
    }

    /// The block that came into the list of `block` after it.
    pub fn newer(&self, block: u32) -> Option<u32> {
        Some(self.links[block].newer).filter(|&block| block != NONE)
    }

    /// The mark of `block`, 0 when it is in no list.
    pub fn mark(&self, block: u32) -> u8 {
        self.links[block].mark
    }

    /// Sets the mark of `block`, which is in a list.
    pub fn set_mark(&mut self, block: u32, mark: u8) {
        debug_assert_ne!(self.of(block), 0, "block {block} is in no list");
        self.links[block].mark = mark;
    }

    /// Puts `block` at the new end of `list`, from whichever list it was in.
    pub fn push(&mut self, list: u8, block: u32) {
        self.remove(block);
        let at = usize::from(list) - 1;
        let newest = self.newest[at];
        self.links[block] = Link { older: newest, newer: NONE, list, mark: 0 };
        match newest {
            NONE => self.oldest[at] = block,
            _ => self.links[newest].newer = block,
        }
        self.newest[at] = block;
        self.len[at] += 1;
        self.size[at] += self.weight(block);
    }

    /// Takes `block` out of its list, if it is in one. Returns the number of that list, or 0.
    pub fn remove(&mut self, block: u32) -> u8 {
        let Link { older, newer, list, .. } = self.links[block];
        if list == 0 {
            return 0;
        }
        let at = usize::from(list) - 1;
        match older {
            NONE => self.oldest[at] = newer,
            _ => self.links[older].newer = newer,
        }
        match newer {
            NONE => self.newest[at] = older,
            _ => self.links[newer].older = older,
        }
        self.links[block] = LOOSE;
        self.len[at] -= 1;
        self.size[at] -= self.weight(block);
        list
    }

    /// Takes the oldest block of `list`.
    pub fn pop(&mut self, list: u8) -> Option<u32> {
        let block = self.oldest(list)?;
        self.remove(block);
        Some(block)
    }

    /// Drops the oldest blocks of `list` until they weigh no more than `most`.
    pub fn trim(&mut self, list: u8, most: usize) {
        while self.size(list) > most {
            self.pop(list);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::Lists;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Weigh(u32, u32),
        Push(u8, u32),
        Mark(u32, u8),
        Remove(u32),
        Pop(u8),
        Trim(u8, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1_u8..4, 0_u32..20).prop_map(|(list, block)| Step::Push(list, block)),
            (0_u32..20, 1_u32..9).prop_map(|(block, weight)| Step::Weigh(block, weight)),
            (0_u32..20, 0_u8..4).prop_map(|(block, mark)| Step::Mark(block, mark)),
            (0_u32..20).prop_map(Step::Remove),
            (1_u8..4).prop_map(Step::Pop),
            (1_u8..4, 0_usize..8).prop_map(|(list, most)| Step::Trim(list, most)),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Each list as a queue of blocks with their marks, the oldest in front.
        #[test]
        fn behaves_as_queues(steps in steps()) {
            let mut lists: Lists<3> = Lists::default();
            let mut model: [VecDeque<(u32, u8)>; 3] = Default::default();
            let mut weights = [1; 20];
            let size = |queue: &VecDeque<(u32, u8)>, weights: &[u32]| -> usize {
                queue.iter().map(|&(block, _)| weights[block as usize] as usize).sum()
            };
            for step in steps {
                let mut forget = |block| {
                    for queue in &mut model {
                        queue.retain(|&(other, _)| other != block);
                    }
                };
                match step {
                    Step::Weigh(block, weight) => {
                        lists.weigh(block, weight);
                        weights[block as usize] = weight;
                    }
                    Step::Push(list, block) => {
                        lists.push(list, block);
                        forget(block);
                        model[usize::from(list) - 1].push_back((block, 0));
                    }
                    Step::Mark(block, mark) => {
                        if lists.of(block) != 0 {
                            lists.set_mark(block, mark);
                        }
                        let entries = model.iter_mut().flatten();
                        entries.filter(|entry| entry.0 == block).for_each(|entry| entry.1 = mark);
                    }
                    Step::Remove(block) => {
                        let list = lists.of(block);
                        prop_assert_eq!(lists.remove(block), list);
                        forget(block);
                    }
                    Step::Pop(list) => {
                        let block = model[usize::from(list) - 1].pop_front();
                        prop_assert_eq!(lists.pop(list), block.map(|(block, _)| block));
                    }
                    Step::Trim(list, most) => {
                        lists.trim(list, most);
                        let queue = &mut model[usize::from(list) - 1];
                        while size(queue, &weights) > most {
                            queue.pop_front();
                        }
                    }
                }
                for (list, queue) in (1..).zip(&model) {
                    prop_assert_eq!(lists.len(list), queue.len());
                    prop_assert_eq!(lists.size(list), size(queue, &weights));
                    prop_assert_eq!(lists.oldest(list), queue.front().map(|&(block, _)| block));
                    prop_assert_eq!(lists.newest(list), queue.back().map(|&(block, _)| block));
                    for (one, next) in queue.iter().zip(queue.iter().skip(1)) {
                        prop_assert_eq!(lists.newer(one.0), Some(next.0));
                    }
                    for &(block, mark) in queue {
                        prop_assert_eq!((lists.of(block), lists.mark(block)), (list, mark));
                    }
                }
                let total: usize = model.iter().map(VecDeque::len).sum();
                let placed = (0..20).filter(|&block| lists.of(block) != 0).count();
                prop_assert_eq!(total, placed);
            }
        }
    }
}
