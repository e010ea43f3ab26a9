//! The page map: which pages are present, as the kernel knows.

use crate::machine::{Canary, has, with};
use crate::{Result, page_bytes};
use std::ops::Range;

/// The page map.
#[derive(Debug)]
pub struct Pagemap(());

impl Pagemap {
    /// Opens the page map.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn open() -> Result<Pagemap> {
        Ok(Pagemap(()))
    }

    /// Calls `each` with every present page of a range. Whether the kernel can tell.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn each_present(&self, range: Range<usize>, mut each: impl FnMut(Range<usize>)) -> Result<bool> {
        for at in range.step_by(page_bytes()) {
            if with(|machine| machine.page(at).is_some_and(|page| page.present)) {
                each(at..at + page_bytes());
            }
        }
        Ok(true)
    }

    /// For each page from `at` on, whether it is present.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn present(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        let trusting = has(Canary::TrustsTheCount);
        with(|machine| {
            for (index, out) in pages.iter_mut().enumerate() {
                let page = machine.page(at + index * page_bytes());
                *out = page.is_none_or(|page| page.present != (trusting && page.uncounted));
            }
        });
        Ok(())
    }

    /// For each page from `at` on, whether it is present and shared with a child.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn shared(&self, at: usize, pages: &mut [bool]) -> Result<()> {
        with(|machine| {
            for (index, out) in pages.iter_mut().enumerate() {
                *out =
                    machine.page(at + index * page_bytes()).is_some_and(|page| page.present && page.shared);
            }
        });
        Ok(())
    }
}
