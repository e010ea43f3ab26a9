//! What `terapage release` and a paged process tell each other. It lies in the memory file, before
//! the condition.

use crate::CONDITION_AT;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Words of the text.
const WORDS: usize = 28;

/// The offset of the control words in the memory file, bytes.
pub const CONTROL_AT: usize = CONDITION_AT - size_of::<Control>();

/// How far a release is. The process waits in the first three states for another one.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nobody waits for a release: memory is still being taken over, or the program has a pager of
    /// its own.
    Unserved,
    /// A thread waits for a release.
    Waits,
    /// The last release was refused, or undone; the text says why.
    Refused,
    /// A release was asked for, and goes on.
    Asked,
    /// The release is to be undone.
    Cancelled,
    /// The release ends: it can no longer be undone.
    Ends,
    /// The process is released.
    Released,
}

impl Stage {
    const ALL: [Stage; 7] = [
        Stage::Unserved,
        Stage::Waits,
        Stage::Refused,
        Stage::Asked,
        Stage::Cancelled,
        Stage::Ends,
        Stage::Released,
    ];

    /// Whether the process waits for a release.
    pub fn waits(self) -> bool {
        matches!(self, Stage::Waits | Stage::Refused)
    }
}

/// The words that both sides use.
#[repr(C)]
#[derive(Default)]
pub struct Control {
    /// The [`Stage`]; threads sleep on this word.
    pub stage: AtomicU32,
    unused: AtomicU32,
    /// Bytes that come back into memory, or are there.
    pub all_bytes: AtomicU64,
    /// Bytes of them that are no longer paged.
    pub done_bytes: AtomicU64,
    text: [AtomicU64; WORDS],
}

impl Control {
    /// The stage now.
    pub fn stage(&self) -> Stage {
        let number = self.stage.load(SeqCst);
        Stage::ALL.into_iter().find(|&stage| stage as u32 == number).unwrap_or(Stage::Unserved)
    }

    /// Whether a release was asked for, and has not ended.
    pub fn goes_on(&self) -> bool {
        matches!(self.stage(), Stage::Asked | Stage::Cancelled)
    }

    /// Changes the stage, if it is `from`. Returns whether it was.
    pub fn change(&self, from: Stage, to: Stage) -> bool {
        self.stage.compare_exchange(from as u32, to as u32, SeqCst, SeqCst).is_ok()
    }

    /// Sets the stage.
    pub fn set(&self, stage: Stage) {
        self.stage.store(stage as u32, SeqCst);
    }

    /// Says why the release is refused or undone, cut to the room that there is.
    pub fn say(&self, why: &str) {
        let mut bytes = [0; WORDS * 8];
        let mut end = why.len().min(bytes.len());
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        bytes[..end].copy_from_slice(&why.as_bytes()[..end]);
        for (word, bytes) in self.text.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// Why the release was refused or undone.
    pub fn why(&self) -> String {
        let bytes: Vec<u8> = self.text.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BYTES, Shared};

    #[test]
    fn the_words_lie_between_the_counters_and_the_condition() {
        assert_eq!(std::mem::offset_of!(Shared, control), CONTROL_AT);
        const { assert!(CONTROL_AT >= BYTES) };
    }

    #[test]
    fn a_stage_changes_only_from_the_expected_one() {
        let control = Control::default();
        assert_eq!(control.stage(), Stage::Unserved);
        assert!(!control.change(Stage::Waits, Stage::Asked));
        control.set(Stage::Refused);
        assert!(control.stage().waits() && control.change(Stage::Refused, Stage::Asked));
        control.say(&"ä".repeat(200));
        assert_eq!(control.why(), "ä".repeat(WORDS * 4));
        control.say("");
        assert_eq!(control.why(), "");
    }
}
