//! An unordered set of blocks, from which one can be drawn at random.

/// Not in the pool.
const NOWHERE: u32 = u32::MAX;

/// A set of blocks from which random ones are drawn, the same ones in each run.
#[derive(Clone)]
pub struct Pool {
    blocks: Vec<u32>,
    /// The position of each block in `blocks`.
    places: Vec<u32>,
    state: u64,
}

impl Default for Pool {
    fn default() -> Self {
        Pool { blocks: Vec::new(), places: Vec::new(), state: 0x9E37_79B9_7F4A_7C15 }
    }
}

impl Pool {
    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Adds a block if it is not in the set.
    pub fn insert(&mut self, block: u32) {
        let at = block as usize;
        if at >= self.places.len() {
            self.places.resize((at + 1).next_power_of_two(), NOWHERE);
        }
        if self.places[at] == NOWHERE {
            self.places[at] = self.blocks.len() as u32;
            self.blocks.push(block);
        }
    }

    /// Removes a block, and returns whether it was in the set.
    pub fn remove(&mut self, block: u32) -> bool {
        let Some(place) = self.places.get_mut(block as usize) else { return false };
        let at = std::mem::replace(place, NOWHERE);
        if at == NOWHERE {
            return false;
        }
        self.blocks.swap_remove(at as usize);
        if let Some(&moved) = self.blocks.get(at as usize) {
            self.places[moved as usize] = at;
        }
        true
    }

    /// A random block (xorshift; Marsaglia 2003), or `None` if there is none.
    pub fn draw(&mut self) -> Option<u32> {
        if self.blocks.is_empty() {
            return None;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let at = (u128::from(self.state) * self.blocks.len() as u128) >> 64;
        Some(self.blocks[at as usize])
    }
}

/// Element `at` of `list`, which grows as needed.
pub fn slot<T: Clone + Default>(list: &mut Vec<T>, at: u32) -> &mut T {
    let at = at as usize;
    if at >= list.len() {
        list.resize((at + 1).next_power_of_two(), T::default());
    }
    &mut list[at]
}

#[cfg(test)]
mod tests {
    use super::Pool;

    /// Also of a set that has grown and shrunk, each block is drawn equally often. (libCacheSim
    /// draws a chain of its hash table, and takes the newest object of that.)
    #[test]
    fn every_block_is_drawn_equally_often() {
        let mut pool = Pool::default();
        (0..400).for_each(|block| pool.insert(block));
        (0..400).filter(|block| block % 4 != 1).for_each(|block| assert!(pool.remove(block)));
        let mut draws = vec![0_u32; 400];
        for _ in 0..100_000 {
            draws[pool.draw().expect("a block") as usize] += 1;
        }
        for (block, draws) in draws.iter().enumerate() {
            // 1000 each, with a deviation of 32.
            let wanted = if block % 4 == 1 { 850..=1150 } else { 0..=0 };
            assert!(wanted.contains(draws), "{block}: {draws}");
        }
    }
}
