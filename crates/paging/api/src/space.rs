//! The used parts of the reserved address space: ranges of whole blocks. The lowest range that fits
//! is taken.

use std::collections::BTreeMap;

/// Free ranges, by address.
#[derive(Debug)]
pub(crate) struct Space {
    free: BTreeMap<usize, usize>,
    block: usize,
}

impl Space {
    /// An address space of `len` bytes at `start`, whole blocks, all free.
    pub fn new(start: usize, len: usize, block: usize) -> Space {
        Space { free: BTreeMap::from([(start, len)]), block }
    }

    /// Takes a range of `len` bytes, whole blocks, that begins at a multiple of `align`.
    pub fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        let (start, size, at) = self.free.iter().find_map(|(&start, &size)| {
            let at = start.checked_next_multiple_of(align.max(self.block))?;
            (at - start <= size && len <= size - (at - start)).then_some((start, size, at))
        })?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + len < start + size {
            self.free.insert(at + len, start + size - at - len);
        }
        Some(at)
    }

    /// Whether nothing of the `len` bytes at `start` is free.
    pub fn is_taken(&self, start: usize, len: usize) -> bool {
        let before = self.free.range(..start + len).next_back();
        before.is_none_or(|(&free, &size)| free + size <= start)
    }

    /// Gives a range back.
    pub fn put(&mut self, mut start: usize, mut len: usize) {
        if let Some((&before, &size)) = self.free.range(..start).next_back()
            && before + size == start
        {
            self.free.remove(&before);
            (start, len) = (before, size + len);
        }
        if let Some(size) = self.free.remove(&(start + len)) {
            len += size;
        }
        self.free.insert(start, len);
    }

    /// Lengthens a range of `len` bytes at `start` by `more` bytes in place, if the bytes that
    /// follow are free.
    pub fn extend(&mut self, start: usize, len: usize, more: usize) -> bool {
        let end = start + len;
        match self.free.get(&end) {
            Some(&size) if size >= more => {
                self.free.remove(&end);
                if size > more {
                    self.free.insert(end + more, size - more);
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Space;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn ranges_never_overlap_and_all_comes_back() {
        let seed: u64 = rand::rng().random();
        eprintln!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let mut space = Space::new(4096, 4096 * 200, 4096);
        let mut used = [false; 201];
        let mut taken = Vec::new();
        for _ in 0..5000 {
            if random.random_range(0..5) < 3 {
                let len = random.random_range(1..10) * 4096;
                let align = 4096 << random.random_range(0..3);
                if let Some(at) = space.take(len, align) {
                    assert!(at.is_multiple_of(align));
                    let blocks = &mut used[at / 4096..(at + len) / 4096];
                    assert!(blocks.iter().all(|used| !used));
                    blocks.fill(true);
                    assert!(space.is_taken(at, len));
                    taken.push((at, len));
                }
            } else if !taken.is_empty() {
                let index = random.random_range(0..taken.len());
                let (at, len) = taken[index];
                if random.random() && space.extend(at, len, 4096) {
                    assert!(!std::mem::replace(&mut used[(at + len) / 4096], true));
                    taken[index].1 += 4096;
                    continue;
                }
                taken.swap_remove(index);
                used[at / 4096..(at + len) / 4096].fill(false);
                space.put(at, len);
                assert!(!space.is_taken(at, len) && !space.is_taken(at + len - 1, 1));
            }
        }
        for (at, len) in taken {
            space.put(at, len);
        }
        assert_eq!(space.take(4096 * 200, 4096), Some(4096));
    }
}
