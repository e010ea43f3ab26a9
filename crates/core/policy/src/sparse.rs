//! Sparse arrays: a program may reserve terabytes and touch little of them.

use std::ops::{Index, IndexMut};

/// Elements of a part: memory is allocated for a whole part.
const PART: usize = 64;
/// Parts of a group, which has one word for each part.
const GROUP: usize = 1024;

type Group<T> = [Option<Box<[T; PART]>>; GROUP];

/// An unbounded array, whose elements are all `T::default()` at first. It takes memory for each
/// changed part, a word for each other part of the same group, and a word for each group up to the
/// last one in use.
#[derive(Debug)]
pub struct Sparse<T> {
    groups: Vec<Option<Box<Group<T>>>>,
    unset: T,
}

impl<T: Default> Default for Sparse<T> {
    fn default() -> Self {
        Sparse { groups: Vec::new(), unset: T::default() }
    }
}

impl<T> Index<u32> for Sparse<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        let at = at as usize;
        let group = self.groups.get(at / (PART * GROUP)).and_then(Option::as_ref);
        let part = group.and_then(|group| group[at / PART % GROUP].as_ref());
        part.map_or(&self.unset, |part| &part[at % PART])
    }
}

impl<T: Copy + Default> IndexMut<u32> for Sparse<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        let at = at as usize;
        let index = at / (PART * GROUP);
        if index >= self.groups.len() {
            self.groups.resize_with((index + 1).next_power_of_two(), || None);
        }
        let group = self.groups[index].get_or_insert_with(|| Box::new([const { None }; GROUP]));
        &mut group[at / PART % GROUP].get_or_insert_with(|| Box::new([T::default(); PART]))[at % PART]
    }
}

#[cfg(test)]
mod tests {
    use super::Sparse;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn holds_what_was_set(steps in prop::collection::vec((0_u32..1 << 20, 0_u8..4), 0..200)) {
            let mut sparse = Sparse::default();
            let mut model = HashMap::new();
            for &(at, value) in &steps {
                sparse[at] = value;
                model.insert(at, value);
            }
            for at in steps.iter().flat_map(|&(at, _)| [at.saturating_sub(1), at, at + 1]) {
                prop_assert_eq!(sparse[at], model.get(&at).copied().unwrap_or(0));
            }
            prop_assert_eq!(sparse[u32::MAX], 0);
        }
    }

    /// To set the first and the last of all blocks does not cost a table of all blocks in between.
    #[test]
    fn what_lies_between_costs_a_word_for_each_group() {
        let mut sparse: Sparse<[u64; 8]> = Sparse::default();
        sparse[0] = [1; 8];
        sparse[u32::MAX] = [2; 8];
        assert!(sparse.groups.len() <= 1 << 16);
        assert_eq!(sparse.groups.iter().flatten().count(), 2);
        assert_eq!(sparse.groups.iter().flatten().flat_map(|group| group.iter().flatten()).count(), 2);
    }
}
