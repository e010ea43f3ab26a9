//! A bit for each slot.

/// Bits; a bit that was never set is off.
#[derive(Clone, Default)]
pub struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Whether the bit is on.
    pub fn get(&self, bit: u32) -> bool {
        self.words.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }

    /// How many are on.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Turns the bit on or off.
    pub fn set(&mut self, bit: u32, on: bool) {
        if self.get(bit) == on {
            return;
        }
        let word = bit as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] ^= 1 << (bit % 64);
        if on { self.count += 1 } else { self.count -= 1 }
    }

    /// Each bit becomes `more` bits.
    pub fn split(&mut self, more: u32) {
        let before = std::mem::take(self);
        let bits = (0..before.words.len() as u32 * 64).filter(|&bit| before.get(bit));
        bits.flat_map(|bit| bit * more..(bit + 1) * more).for_each(|bit| self.set(bit, true));
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn bits_are_what_they_were_set_to() {
        let mut bits = Bits::default();
        bits.set(69, true);
        assert!(bits.get(69) && !bits.get(70));
        bits.set(69, false);
        bits.set(500, false);
        bits.set(200, true);
        bits.set(200, true);
        assert_eq!(bits.count(), 1);
        let mut split = bits.clone();
        split.split(4);
        assert!(!split.get(799) && (800..804).all(|bit| split.get(bit)) && split.count() == 4);
        assert!(!bits.get(69) && bits.get(200) && !bits.get(500));
    }
}
