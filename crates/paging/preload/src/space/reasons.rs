//! Why pages are not paged: one map from ranges to sets of reasons. This file makes no system
//! calls, so it can be tested alone.
//!
//! A block is *loose*, that is, it belongs to the kernel and is not paged, if any page of it has a
//! reason. A page is *special* if it has a reason other than being unused: it is not plain readable
//! and writable memory. All changes:
//!
//! ```text
//!   +-------+  close                             +--------+
//!   | plain | ---------------------------------> | CLOSED | <-+
//!   +-------+ <--------------------------------- +--------+   |
//!     |   ^      plain_again, free                  |  |        |
//!     |   |                                    keep |  | keep_mapped
//!     |   |                                         v  v        | forget
//!     |   |  free                         +----------------------------+
//!     |   +------------------------------ | CLOSED with KEPT,          |
//!     |                                   | or with KEPT and MAPPED    |
//!     |                                   +----------------------------+
//!     |  set_unused (wide part only)   +--------+
//!     +------------------------------> | UNUSED | -- close, keep, ... --> CLOSED
//!                                      +--------+ -- plain_again ------> plain
//! ```
//!
//! `unkeep` removes only KEPT: the page stays CLOSED until `plain_again`, which skips pages that
//! are KEPT.
//!
//! HELD is beside these, too, and makes no page special. It stays until `let_go`, `free` or
//! `set_unused`.
//!
//! WIPED and LOCKED are beside these: `wipe` and `lock` add them to any page, `unwipe` and `unlock`
//! remove them, and leave what the page was before. `plain_again` leaves them; after `forget`,
//! which removes them, the page is CLOSED.

use std::collections::BTreeMap;
use std::ops::BitOr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often reasons have changed: what was learnt under the lock holds while this stays the same.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// How often the reasons of any page have changed.
pub fn changes() -> usize {
    CHANGES.load(Ordering::Acquire)
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why(u8);

impl Why {
    const NONE: Why = Why(0);
    /// The program has changed the rights of the page, or may have.
    const CLOSED: Why = Why(1);
    /// The child of a fork must find the page empty.
    pub const WIPED: Why = Why(2);
    /// The page is shared, a file's, or has a protection key.
    pub const KEPT: Why = Why(4);
    /// The program has mapped something over the page: the arena's own memory is not there.
    pub const MAPPED: Why = Why(8);
    /// The page is of the wide part, and not in use.
    const UNUSED: Why = Why(16);
    /// The program has locked the page into memory.
    pub const LOCKED: Why = Why(32);

    /// `terapage release` has taken the page back.
    pub const HELD: Why = Why(64);

    /// Any of these makes a page special.
    pub const SPECIAL: Why = Why(1 | 2 | 4 | 8 | 32);
    /// The program takes these back by calls of their own.
    const BESIDE: Why = Why(2 | 32);

    fn has(self, any: Why) -> bool {
        self.0 & any.0 != 0
    }

    fn without(self, others: Why) -> Why {
        Why(self.0 & !others.0)
    }

    fn only(self, these: Why) -> Why {
        Why(self.0 & these.0)
    }
}

impl BitOr for Why {
    type Output = Why;

    fn bitor(self, other: Why) -> Why {
        Why(self.0 | other.0)
    }
}

/// The reasons of all pages that have some.
pub struct Reasons {
    /// The end and the reasons of each range, by its start. Ranges do not overlap, each has a
    /// reason, and neighbours differ.
    ranges: BTreeMap<usize, (usize, Why)>,
    /// Bytes of special pages.
    special_bytes: usize,
    /// Bytes of locked pages.
    locked_bytes: usize,
    /// Bytes of a block.
    block: usize,
}

impl Reasons {
    /// No reasons for any page, in blocks of `block` bytes.
    pub const fn new(block: usize) -> Self {
        Reasons { ranges: BTreeMap::new(), special_bytes: 0, locked_bytes: 0, block }
    }

    /// Bytes of special pages.
    pub fn special_bytes(&self) -> usize {
        self.special_bytes
    }

    /// Bytes of locked pages.
    pub fn locked_bytes(&self) -> usize {
        self.locked_bytes
    }

    /// The ranges that meet `from` to `to`, whole; `from` is less than `to`.
    fn met(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize, Why)> {
        let before = self.ranges.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let ranges = self.ranges.range(before..to);
        ranges.map(|(&start, &(end, why))| (start, end, why)).filter(move |&(_, end, _)| end > from)
    }

    /// Whether any range meets `from` to `to`.
    fn is_met(&self, from: usize, to: usize) -> bool {
        self.ranges.range(..to).next_back().is_some_and(|(_, &(end, _))| end > from)
    }

    /// The parts of `from` to `to` whose pages have any of these reasons: ascending and disjoint.
    pub fn within(&self, from: usize, to: usize, any: Why) -> Vec<(usize, usize)> {
        if from >= to || !self.is_met(from, to) {
            return Vec::new();
        }
        let found = self.met(from, to).filter(|(.., why)| why.has(any));
        merged(found.map(|(start, end, _)| (start.max(from), end.min(to))))
    }

    /// The other parts of `from` to `to`.
    pub fn without(&self, from: usize, to: usize, any: Why) -> Vec<(usize, usize)> {
        gaps(from, to, self.within(from, to, any))
    }

    /// The parts of `from` to `to` that are in loose blocks.
    pub fn loose_within(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let (first, last) = self.blocks(from, to);
        if from >= to || !self.is_met(first, last) {
            return Vec::new();
        }
        let found = self.met(first, last).map(|(start, end, _)| self.blocks(start, end));
        merged(found.map(|(start, end)| (start.max(from), end.min(to))).filter(|(start, end)| start < end))
    }

    /// The parts of `from` to `to` in blocks that are paged.
    pub fn paged_within(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        gaps(from, to, self.loose_within(from, to))
    }

    /// The largest range without loose blocks around an address, within `from` to `to`.
    pub fn paged_around(&self, at: usize, from: usize, to: usize) -> Option<(usize, usize)> {
        let before = self.ranges.range(..=at).next_back().map(|(&start, &(end, _))| self.blocks(start, end));
        let after = self.ranges.range(at + 1..).next().map(|(&start, &(end, _))| self.blocks(start, end));
        let from = before.map_or(from, |(_, end)| end.max(from));
        let to = after.map_or(to, |(start, _)| start.min(to));
        (from <= at && at < to).then_some((from, to))
    }

    /// Whether any block of `from` to `to` is loose.
    pub fn any_loose(&self, from: usize, to: usize) -> bool {
        let (first, last) = self.blocks(from, to);
        from < to && self.is_met(first, last)
    }

    /// The blocks of `from` to `to`: their start and end.
    fn blocks(&self, from: usize, to: usize) -> (usize, usize) {
        (from / self.block * self.block, to.next_multiple_of(self.block))
    }

    /// The rights of the pages change.
    pub fn close(&mut self, from: usize, to: usize) {
        self.add(from, to, Why::CLOSED);
    }

    /// The pages become shared, a file's, or get a protection key.
    pub fn keep(&mut self, from: usize, to: usize) {
        self.add(from, to, Why::CLOSED | Why::KEPT);
    }

    /// The program maps something over the pages.
    pub fn keep_mapped(&mut self, from: usize, to: usize) {
        self.add(from, to, Why::CLOSED | Why::KEPT | Why::MAPPED);
    }

    /// A fork's child must find the pages empty.
    pub fn wipe(&mut self, from: usize, to: usize) {
        self.add(from, to, Why::WIPED);
    }

    /// The program locks the pages into memory.
    pub fn lock(&mut self, from: usize, to: usize) {
        self.add(from, to, Why::LOCKED);
    }

    /// The pages stay with the kernel from now on, as they are.
    pub fn hold(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| old | Why::HELD);
    }

    /// The pages may be paged again.
    pub fn let_go(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| old.without(Why::HELD));
    }

    fn add(&mut self, from: usize, to: usize, why: Why) {
        self.change(from, to, |old| old.without(Why::UNUSED) | why);
    }

    /// A fork's child may find the pages unchanged.
    pub fn unwipe(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| old.without(Why::WIPED));
    }

    /// The pages may leave memory again.
    pub fn unlock(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| old.without(Why::LOCKED));
    }

    /// The pages are not kept after all, if nothing is mapped over them.
    pub fn unkeep(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| if old.has(Why::MAPPED) { old } else { old.without(Why::KEPT) });
    }

    /// The pages are replaced by other memory, whose rights are unknown here.
    pub fn forget(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| {
            let rest = old.without(Why::BESIDE | Why::KEPT | Why::MAPPED);
            if old.has(Why::BESIDE) { rest | Why::CLOSED } else { rest }
        });
    }

    /// The pages are readable and writable again. Pages that are kept, wiped, locked or held stay
    /// loose.
    pub fn plain_again(&mut self, from: usize, to: usize) {
        self.change(from, to, |old| if old.has(Why::KEPT) { old } else { old.only(Why::BESIDE | Why::HELD) });
    }

    /// The pages are not in use any more, and plain.
    pub fn free(&mut self, from: usize, to: usize) {
        self.change(from, to, |_| Why::NONE);
    }

    /// The pages are of the wide part, and not in use.
    pub fn set_unused(&mut self, from: usize, to: usize) {
        self.change(from, to, |_| Why::UNUSED);
    }

    /// Gives each page of a range other reasons.
    fn change(&mut self, from: usize, to: usize, new: impl Fn(Why) -> Why) {
        if from >= to || new(Why::NONE) == Why::NONE && !self.is_met(from, to) {
            return;
        }
        let mut at = from;
        while at < to {
            let around = self.ranges.range(..=at).next_back().map(|(&start, &(end, why))| (start, end, why));
            let next = match around.filter(|&(_, end, _)| end > at) {
                Some((start, end, why)) => {
                    let next = end.min(to);
                    self.cut(start, end, why, (at, next));
                    self.insert(at, next, new(why));
                    next
                }
                None => {
                    let next = self.ranges.range(at..to).next().map_or(to, |(&start, _)| start);
                    self.insert(at, next, new(Why::NONE));
                    next
                }
            };
            self.join(at);
            at = next;
        }
        self.join(to);
        CHANGES.fetch_add(1, Ordering::Release);
    }

    /// Takes a part out of the range from `start` to `end`.
    fn cut(&mut self, start: usize, end: usize, why: Why, (from, to): (usize, usize)) {
        self.special_bytes -= bytes_with(from, to, why, Why::SPECIAL);
        self.locked_bytes -= bytes_with(from, to, why, Why::LOCKED);
        if start < from {
            self.ranges.insert(start, (from, why));
        } else {
            self.ranges.remove(&start);
        }
        if to < end {
            self.ranges.insert(to, (end, why));
        }
    }

    /// Puts a range into a gap.
    fn insert(&mut self, from: usize, to: usize, why: Why) {
        if why != Why::NONE {
            self.special_bytes += bytes_with(from, to, why, Why::SPECIAL);
            self.locked_bytes += bytes_with(from, to, why, Why::LOCKED);
            self.ranges.insert(from, (to, why));
        }
    }

    /// Joins two ranges that touch at an address and have the same reasons.
    fn join(&mut self, at: usize) {
        let Some(&(end, why)) = self.ranges.get(&at) else { return };
        if let Some((_, before)) = self.ranges.range_mut(..at).next_back()
            && *before == (at, why)
        {
            *before = (end, why);
            self.ranges.remove(&at);
        }
    }
}

fn bytes_with(from: usize, to: usize, why: Why, any: Why) -> usize {
    if why.has(any) { to - from } else { 0 }
}

/// Ascending ranges; ranges that touch or overlap are joined.
fn merged(ranges: impl Iterator<Item = (usize, usize)>) -> Vec<(usize, usize)> {
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (from, to) in ranges {
        match all.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// The gaps in `from` to `to` between ascending ranges that lie in it.
fn gaps(from: usize, to: usize, ranges: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut next = from;
    let mut gaps = Vec::new();
    for (start, end) in ranges.into_iter().chain([(to, to)]) {
        if next < start {
            gaps.push((next, start));
        }
        next = end;
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::{Reasons, Why};
    use proptest::prelude::*;

    const PAGE: usize = 4096;
    /// Pages of a block.
    const BLOCK: usize = 4;
    const PAGES: usize = 64;
    /// The wide part begins at this page.
    const WIDE: usize = 40;

    /// The same, page by page, in sets that do not know of each other.
    #[derive(Clone, Copy, Default, Debug)]
    struct Page {
        closed: bool,
        kept: bool,
        wiped: bool,
        locked: bool,
        mapped: bool,
        unused: bool,
        held: bool,
    }

    impl Page {
        fn is_special(self) -> bool {
            self.closed || self.wiped || self.locked
        }
    }

    fn apply(reasons: &mut Reasons, pages: &mut [Page], call: usize, first: usize, last: usize) {
        let (from, to) = (first * PAGE, last * PAGE);
        let pages = pages[first..last].iter_mut();
        match call {
            0 => {
                reasons.close(from, to);
                pages.for_each(|page| *page = Page { closed: true, unused: false, ..*page });
            }
            1 => {
                reasons.keep(from, to);
                pages.for_each(|page| *page = Page { closed: true, kept: true, unused: false, ..*page });
            }
            2 => {
                reasons.keep_mapped(from, to);
                pages.for_each(|page| {
                    *page = Page { closed: true, kept: true, mapped: true, unused: false, ..*page };
                });
            }
            3 => {
                reasons.wipe(from, to);
                pages.for_each(|page| *page = Page { wiped: true, unused: false, ..*page });
            }
            4 => {
                reasons.unwipe(from, to);
                pages.for_each(|page| page.wiped = false);
            }
            5 => {
                reasons.forget(from, to);
                pages.for_each(|page| {
                    let closed = page.closed || page.wiped || page.locked;
                    *page = Page { closed, unused: page.unused, held: page.held, ..Page::default() };
                });
            }
            6 => {
                reasons.plain_again(from, to);
                let again =
                    |page: Page| Page { closed: false, kept: false, mapped: false, unused: false, ..page };
                pages.filter(|page| !page.kept).for_each(|page| *page = again(*page));
            }
            7 => {
                reasons.free(from, to);
                pages.for_each(|page| *page = Page::default());
            }
            8 => {
                reasons.lock(from, to);
                pages.for_each(|page| *page = Page { locked: true, unused: false, ..*page });
            }
            9 => {
                reasons.unlock(from, to);
                pages.for_each(|page| page.locked = false);
            }
            11 => {
                reasons.hold(from, to);
                pages.for_each(|page| page.held = true);
            }
            12 => {
                reasons.let_go(from, to);
                pages.for_each(|page| page.held = false);
            }
            _ if first >= WIDE => {
                reasons.set_unused(from, to);
                pages.for_each(|page| *page = Page { unused: true, ..Page::default() });
            }
            _ => {
                reasons.unkeep(from, to);
                pages.filter(|page| !page.mapped).for_each(|page| page.kept = false);
            }
        }
    }

    /// The pages in parts of the whole range.
    fn marked(parts: &[(usize, usize)]) -> Vec<bool> {
        assert!(parts.iter().all(|(from, to)| from < to));
        assert!(parts.windows(2).all(|two| two[0].1 < two[1].0), "{parts:?}");
        (0..PAGES).map(|page| parts.iter().any(|&(from, to)| (from..to).contains(&(page * PAGE)))).collect()
    }

    fn compare(reasons: &Reasons, pages: &[Page], low: usize, high: usize) {
        let (from, to) = (low * PAGE, high * PAGE);
        let among = |is: &dyn Fn(usize) -> bool| -> Vec<bool> {
            (0..PAGES).map(|page| (low..high).contains(&page) && is(page)).collect()
        };
        let loose = |page: usize| {
            pages[page / BLOCK * BLOCK..][..BLOCK]
                .iter()
                .any(|page| page.is_special() || page.unused || page.held)
        };
        let within = |any| marked(&reasons.within(from, to, any));
        assert_eq!(within(Why::SPECIAL), among(&|page| pages[page].is_special()));
        assert_eq!(within(Why::KEPT), among(&|page| pages[page].kept));
        assert_eq!(within(Why::MAPPED), among(&|page| pages[page].mapped));
        assert_eq!(within(Why::WIPED | Why::KEPT), among(&|page| pages[page].wiped || pages[page].kept));
        assert_eq!(marked(&reasons.without(from, to, Why::KEPT)), among(&|page| !pages[page].kept));
        assert_eq!(marked(&reasons.loose_within(from, to)), among(&loose));
        assert_eq!(marked(&reasons.paged_within(from, to)), among(&|page| !loose(page)));
        assert_eq!(reasons.any_loose(from, to), (low..high).any(loose));
        assert_eq!(within(Why::HELD), among(&|page| pages[page].held));
        assert_eq!(within(Why::LOCKED), among(&|page| pages[page].locked));
        assert_eq!(reasons.locked_bytes(), pages.iter().filter(|page| page.locked).count() * PAGE);
        assert_eq!(reasons.special_bytes(), pages.iter().filter(|page| page.is_special()).count() * PAGE);
        let all: Vec<_> = reasons.ranges.iter().collect();
        assert!(all.iter().all(|(from, (to, why))| *from < to && *why != Why::NONE));
        assert!(all.windows(2).all(|two| {
            let (end, why) = *two[0].1;
            end < *two[1].0 || end == *two[1].0 && why != two[1].1.1
        }));
    }

    proptest! {
        #[test]
        fn they_are_as_page_by_page(
            calls in prop::collection::vec((0usize..13, 0..PAGES, 0usize..20, 0..PAGES, 0usize..PAGES), 1..100),
        ) {
            let mut reasons = Reasons::new(BLOCK * PAGE);
            let mut pages = [Page::default(); PAGES];
            for (call, first, count, low, len) in calls {
                apply(&mut reasons, &mut pages, call, first, (first + count).min(PAGES));
                compare(&reasons, &pages, low, (low + len).min(PAGES));
                compare(&reasons, &pages, 0, PAGES);
            }
        }
    }
}
