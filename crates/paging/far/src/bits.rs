//! A bit for each slot.

/// Bits; a bit that was never set is off.
#[derive(Clone, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// Whether the bit is on.
    pub fn get(&self, bit: u32) -> bool {
        self.0.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }

    /// Turns the bit on or off.
    pub fn set(&mut self, bit: u32, on: bool) {
        let word = bit as usize / 64;
        if word >= self.0.len() {
            if !on {
                return;
            }
            self.0.resize(word + 1, 0);
        }
        let mask = 1 << (bit % 64);
        if on { self.0[word] |= mask } else { self.0[word] &= !mask }
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
        assert!(!bits.get(69) && bits.get(200) && !bits.get(500));
    }
}
