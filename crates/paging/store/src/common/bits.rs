//! A set of slots.

use std::ops::Range;

/// A bit for each slot, and the number of set bits.
#[derive(Clone, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Slots in the set.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the set has the slot.
    pub fn has(&self, slot: u32) -> bool {
        self.words.get(slot as usize / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
    }

    /// Whether the set has any of the slots.
    pub fn has_any(&self, mut slots: Range<u32>) -> bool {
        self.count > 0 && slots.any(|slot| self.has(slot))
    }

    /// The first slot of the set from `from` on.
    pub fn next(&self, from: u32) -> Option<u32> {
        let first = from as usize / 64;
        let words = self.words.get(first..).unwrap_or_default();
        let cut = |index: usize, word: u64| if index == 0 { word & (!0 << (from % 64)) } else { word };
        let words = words.iter().enumerate().map(|(index, &word)| (index, cut(index, word)));
        let (index, word) = words.into_iter().find(|&(_, word)| word != 0)?;
        Some((first + index) as u32 * 64 + word.trailing_zeros())
    }

    /// Puts the slots into the set.
    pub fn insert(&mut self, slots: Range<u32>) {
        let words = (slots.end as usize).div_ceil(64);
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
        for slot in slots {
            self.count += usize::from(!self.has(slot));
            self.words[slot as usize / 64] |= 1 << (slot % 64);
        }
    }

    /// Each slot becomes `more` slots, which are in the set if it was.
    pub fn split(&mut self, more: u32) {
        let (before, mut from) = (std::mem::take(self), 0);
        while let Some(slot) = before.next(from) {
            self.insert(slot * more..(slot + 1) * more);
            from = slot + 1;
        }
    }

    /// Takes the slots out of the set.
    pub fn remove(&mut self, slots: Range<u32>) {
        if self.count == 0 {
            return;
        }
        for slot in slots {
            if self.has(slot) {
                self.count -= 1;
                self.words[slot as usize / 64] &= !(1 << (slot % 64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_not_taken_out() {
        let mut set = Bits::default();
        set.insert(60..70);
        set.insert(65..66);
        set.remove(69..1000);
        assert_eq!(set.count(), 9);
        assert!(set.has(60) && set.has(68) && !set.has(69) && !set.has(1 << 30));
        assert!(set.has_any(0..61) && !set.has_any(0..60) && !set.has_any(69..200));
        set.insert(300..301);
        assert_eq!(
            [0, 60, 61, 68, 69, 300, 301, 9999].map(|from| set.next(from)).map(|slot| slot.unwrap_or(0)),
            [60, 60, 61, 68, 300, 300, 0, 0]
        );
        set.split(4);
        assert_eq!(
            (set.count(), set.next(0), set.next(272), set.next(276)),
            (40, Some(240), Some(272), Some(1200))
        );
    }
}
