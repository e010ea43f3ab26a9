//! What `terapage adopt` and the host in an adopted process tell each other: a mapping that begins
//! with a [`Report`], behind which [`Orders`] lie.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// In place of the name of a hosted program, followed by the address of the report in hexadecimal
/// digits: a program that was adopted, and one that is guarded.
pub const USUAL: &str = "adopt:";
/// See [`USUAL`].
pub const GUARDED: &str = "g-adopt:";

/// Bytes of the text in a report.
pub const TEXT_MOST: usize = 480;
/// Bytes of the report; the orders follow.
pub const REPORT: usize = 512;

/// How far the host is.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The host begins.
    Begins,
    /// The host has failed; the text says why. Nothing of the program has changed.
    Failed,
    /// The filter is set: there is no way back, and the program's threads may run.
    Holds,
    /// All memory is paged.
    Done,
}

/// What the host tells `terapage adopt`.
#[repr(C)]
pub struct Report {
    /// A [`State`].
    pub state: AtomicU32,
    /// Bytes of the text.
    pub text_len: AtomicU32,
    /// Bytes that will be paged.
    pub all_bytes: AtomicU64,
    /// Bytes of them that were taken over.
    pub done_bytes: AtomicU64,
    /// Why the host has failed.
    pub text: [u8; TEXT_MOST],
}

const _: () = assert!(size_of::<Report>() <= REPORT);

/// Ranges of addresses: from, to.
pub type Ranges = Vec<(u64, u64)>;

/// What `terapage adopt` tells the host.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Where the program's code lies, whose calls are trapped.
    pub code: Ranges,
    /// The memory that is to be paged.
    pub data: Ranges,
    /// In guarded mode: where calls' pointers may lie that name such memory.
    pub near: Ranges,
    /// Whether the program is paged in guarded mode: there is no right to page.
    pub is_guarded: bool,
    /// Whether it is a Go program.
    pub is_go: bool,
    /// Whether the host must fail before it sets the filter (for tests).
    pub fails: bool,
}

impl Orders {
    /// The orders as words.
    pub fn to_words(&self) -> Vec<u64> {
        let lists = [&self.code, &self.data, &self.near];
        let flags = [self.is_guarded, self.is_go, self.fails];
        let mut words: Vec<u64> = lists.iter().map(|list| list.len() as u64).collect();
        words.extend(flags.map(u64::from));
        words.extend(lists.into_iter().flatten().flat_map(|&(from, to)| [from, to]));
        words
    }

    /// The orders that begin at `at`.
    ///
    /// # Safety
    /// The words of [`to_words`](Self::to_words) lie there.
    pub unsafe fn read(at: *const u64) -> Orders {
        // SAFETY: the caller has the words there.
        let word = |index: usize| unsafe { at.add(index).read() };
        let mut next = 6;
        let [code, data, near] = [0, 1, 2].map(|list| {
            let first = next;
            next += 2 * word(list) as usize;
            (first..next).step_by(2).map(|index| (word(index), word(index + 1))).collect()
        });
        let [is_guarded, is_go, fails] = [3, 4, 5].map(|index| word(index) != 0);
        Orders { code, data, near, is_guarded, is_go, fails }
    }
}

#[cfg(test)]
mod tests {
    use super::Orders;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let orders = Orders {
            code: vec![(1, 2), (3, 4)],
            data: vec![(5, 6)],
            near: vec![(4, 8)],
            is_guarded: true,
            is_go: false,
            fails: true,
        };
        let words = orders.to_words();
        // SAFETY: the words were made just now.
        assert_eq!(unsafe { Orders::read(words.as_ptr()) }, orders);
    }
}
