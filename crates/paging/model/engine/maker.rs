//! The pager's thread makes huge pages itself: there are too few here for the other thread.

use terapage_model::memory::{self, HUGE};
use terapage_model::{Result, page_bytes};

pub fn mark(at: usize, len: usize, value: u8) {
    // SAFETY: the pages are there, and the caller's.
    let bytes = unsafe { memory::bytes(at, len) };
    bytes.iter_mut().step_by(page_bytes()).for_each(|byte| *byte = value);
}

pub struct Maker {
    stage: usize,
}

impl Maker {
    pub fn none() -> Maker {
        Maker { stage: 0 }
    }

    pub fn start(_pages: usize, _thread: bool) -> Result<Maker> {
        Ok(Maker { stage: memory::reserve_huge(HUGE)? })
    }

    pub fn pays(&mut self) -> bool {
        self.stage != 0
    }

    pub fn was_slow(&self) -> bool {
        false
    }

    pub fn take(&mut self, pages: usize) -> Option<usize> {
        if pages == 0 {
            self.stage = 0;
        }
        if self.stage == 0 {
            return None;
        }
        // SAFETY: the stage has no other user.
        unsafe { memory::replace(self.stage as *mut u8, HUGE) }.ok()?;
        memory::populate(self.stage, HUGE).ok()?;
        mark(self.stage, HUGE, 1);
        Some(self.stage)
    }

    pub fn used(&mut self) {}

    #[allow(dead_code, reason = "a child's part needs a process of its own")]
    pub fn forget(&mut self) {}
}
