//! Freed objects that one thread keeps for itself, so that most calls take no lock (Bonwick's
//! magazines, USENIX 2001). The objects are not touched: their addresses are kept here. The heap
//! counts them as in use.

use crate::sizes::{BYTES, SIZES};

/// The most objects of a size.
pub const MOST: usize = 16;

/// A thread keeps about this many bytes of each size, but at least 4 and at most [`MOST`] objects.
const KEPT: usize = 4 << 10;

/// For each size, the number of objects that are kept.
const ROOM: [u8; SIZES] = {
    let mut room = [0; SIZES];
    let mut at = 0;
    while at < SIZES {
        let count = KEPT / BYTES[at] as usize;
        room[at] = if count > MOST { MOST as u8 } else { count as u8 };
        at += 1;
    }
    room
};

/// The result of keeping an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Put {
    /// It is kept.
    Done,
    /// There is no room.
    Full,
    /// The object is already kept: it was freed twice.
    There,
}

/// Objects of one size, in order of arrival.
struct Magazine {
    count: usize,
    /// The lower bits of each object's address, which are compared at once. Zero behind the first
    /// `count`.
    tags: [u32; MOST],
    objects: [usize; MOST],
}

/// Addresses are multiples of 16, so within 64 GiB each address has a different tag.
#[inline]
fn tag(object: usize) -> u32 {
    (object >> 4) as u32
}

/// Objects of all sizes.
pub struct Magazines([Magazine; SIZES]);

impl Magazines {
    /// Without objects.
    pub const fn new() -> Self {
        Magazines([const { Magazine { count: 0, tags: [0; MOST], objects: [0; MOST] } }; SIZES])
    }

    /// The number of objects of a size to take from a heap, or to give back, at once.
    pub fn step(size: usize) -> usize {
        usize::from(ROOM[size]) / 2
    }

    /// Takes the object of a size that arrived last.
    #[inline]
    pub fn take(&mut self, size: usize) -> Option<usize> {
        let magazine = &mut self.0[size];
        let last = magazine.count.checked_sub(1)?;
        magazine.count = last;
        magazine.tags[last % MOST] = 0;
        Some(magazine.objects[last % MOST])
    }

    /// Keeps an object of a size.
    #[inline]
    pub fn put(&mut self, size: usize, object: usize) -> Put {
        match self.has(size, object) {
            true => Put::There,
            false if self.add(size, object) => Put::Done,
            false => Put::Full,
        }
    }

    /// Keeps an object of a size that a heap has just given, so that it is not kept already.
    /// Returns whether there was room.
    #[inline]
    pub fn add(&mut self, size: usize, object: usize) -> bool {
        let magazine = &mut self.0[size];
        if magazine.count >= usize::from(ROOM[size]) {
            return false;
        }
        magazine.objects[magazine.count % MOST] = object;
        magazine.tags[magazine.count % MOST] = tag(object);
        magazine.count += 1;
        true
    }

    /// Whether an object of a size is kept.
    #[inline]
    pub fn has(&self, size: usize, object: usize) -> bool {
        // The search reads all tags, which takes less time than stopping at the right one.
        let magazine = &self.0[size];
        magazine.tags.iter().fold(false, |found, &kept| found | (kept == tag(object)))
            && magazine.objects[..magazine.count].contains(&object)
    }

    /// Takes the objects of a size that arrived first, up to the length of `to`. Returns their
    /// number. Returns how many.
    pub fn take_oldest(&mut self, size: usize, to: &mut [usize]) -> usize {
        let magazine = &mut self.0[size];
        let count = to.len().min(magazine.count);
        to[..count].copy_from_slice(&magazine.objects[..count]);
        magazine.objects.copy_within(count..magazine.count, 0);
        magazine.tags.copy_within(count..magazine.count, 0);
        magazine.tags[magazine.count - count..magazine.count].fill(0);
        magazine.count -= count;
        count
    }
}

impl Default for Magazines {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_last_is_taken_first() {
        let mut kept = Magazines::new();
        assert_eq!(kept.take(0), None);
        for object in 1..=MOST {
            assert_eq!(kept.put(0, object * 16), Put::Done);
        }
        assert_eq!(kept.put(0, 4096), Put::Full);
        assert_eq!(kept.put(0, 32), Put::There);
        assert!(kept.has(0, 32) && !kept.has(1, 32) && !kept.has(0, 4096));
        let mut oldest = [0; MOST / 2];
        assert_eq!(kept.take_oldest(0, &mut oldest), MOST / 2);
        assert_eq!(oldest, std::array::from_fn(|index| (index + 1) * 16));
        for object in (MOST / 2 + 1..=MOST).rev() {
            assert_eq!(kept.take(0), Some(object * 16));
            assert!(!kept.has(0, object * 16), "what was taken may come again");
        }
        assert_eq!(kept.take(0), None);
        assert_eq!(kept.put(0, 16), Put::Done);
        assert_eq!(kept.put(0, 16 + (1 << 36)), Put::Done, "another one with the same tag");
    }

    #[test]
    fn few_large_objects_are_kept() {
        let mut kept = Magazines::new();
        let room = (1..).take_while(|object| kept.put(SIZES - 1, object * 1024) == Put::Done).count();
        assert_eq!(room, 4);
        assert_eq!(kept.take_oldest(SIZES - 1, &mut [0; MOST]), 4);
    }
}
