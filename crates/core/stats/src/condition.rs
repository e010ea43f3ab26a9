//! The condition: what is wrong, in words. It lies in the memory file between the counters and the
//! regions.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of the text, which ends at its first zero byte.
const WORDS: usize = 32;

/// The offset of the text in the memory file, bytes: it ends where the regions begin.
pub const CONDITION_AT: usize = crate::REGIONS_AT - size_of::<Condition>();

/// A text of one line. It has one writer (the pager's thread) and any number of readers.
#[repr(C)]
#[derive(Default)]
pub struct Condition([AtomicU64; WORDS]);

impl Condition {
    /// Sets the text, cut to the room that there is.
    pub fn set(&self, text: &str) {
        let mut bytes = [0; WORDS * 8];
        let mut end = text.len().min(bytes.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        for (word, bytes) in self.0.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// Reads the text from the memory file; `None` if there is none.
    pub fn from_bytes(file: &[u8]) -> Option<String> {
        let bytes = file.get(CONDITION_AT..CONDITION_AT + size_of::<Condition>())?;
        let text = bytes.split(|&byte| byte == 0).next().filter(|text| !text.is_empty())?;
        Some(String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FILE_BYTES, Shared};

    #[test]
    fn the_text_is_where_readers_look_for_it() {
        assert_eq!(std::mem::offset_of!(Shared, condition), CONDITION_AT);
        let shared = Shared::default();
        let read = || {
            let words = shared.condition.0.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
            let bytes: Vec<u8> = std::iter::repeat_n(7, CONDITION_AT).chain(words).collect();
            Condition::from_bytes(&bytes)
        };
        assert_eq!(read(), None);
        shared.condition.set("mirror: 1 of 2 copies");
        assert_eq!(read().as_deref(), Some("mirror: 1 of 2 copies"));
        shared.condition.set(&"ä".repeat(200));
        assert_eq!(read(), Some("ä".repeat(WORDS * 4)));
        shared.condition.set("");
        assert_eq!(read(), None);
        assert_eq!(Condition::from_bytes(&[0; FILE_BYTES]), None);
    }
}
