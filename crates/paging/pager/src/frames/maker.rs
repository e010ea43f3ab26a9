//! Makes huge pages, from which frames are cut, as long as that pays.
//!
//! Clearing memory takes time, so a thread makes huge pages ahead of need. It ends when all frames
//! exist.
//!
//! The host of a virtual machine may reclaim free memory (free page reporting, in huge pages) and
//! return it only at a touch. Then a huge page takes 4.6 ms here instead of 0.2, and the same
//! memory in recently used single pages 0.8 ms. So the first few huge pages are timed.

use crate::event_count::EventCount;
use crate::sync::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use terapage_sys::memory::{self, HUGE};
use terapage_sys::thread;

/// Stages: places in which the thread prepares huge pages, one each. Chosen, not measured.
const STAGES: u32 = 4;

/// If fewer huge pages than this are needed, no thread is started. Chosen, not measured.
const LEAST: usize = 16;

/// A huge page that takes more processor time than this, ns, is slow: single pages would be faster.
/// Measured: docs/results.md, "Frames".
const SLOW_NS: u64 = 1_000_000;

/// After this many slow huge pages, no more are made. Chosen, not measured.
const SLOW_MAX: u32 = 2;

/// Makes a huge page at `stage`, which is aligned and has no other user: 1 in the first byte of
/// each page, and zeros elsewhere. If the kernel has no huge page, small pages are made. Returns
/// whether it was slow.
fn prepare(stage: usize) -> terapage_sys::Result<bool> {
    let began = thread::used_ns();
    // The range is mapped again each time: the kernel makes a huge page only if no page table is
    // left. SAFETY: this memory has no other user.
    unsafe { memory::replace(stage as *mut u8, HUGE)? };
    memory::advise(stage, HUGE, memory::MADV_HUGEPAGE);
    // The memory is touched, not populated: a touch does not hold the lock of the address space.
    crate::carry::mark(stage, HUGE, 1);
    Ok(thread::used_ns() - began > SLOW_NS)
}

struct Shared {
    /// The address of the stages.
    area: usize,
    /// The number of huge pages that were ever made.
    made: AtomicU32,
    /// The number of huge pages that were ever used.
    used: AtomicU32,
    /// The total number of huge pages that may be made.
    allowed: AtomicU32,
    /// Notified after a huge page was used, but not of a change of `allowed` alone: then the
    /// pager's thread makes its own huge pages.
    work: EventCount,
    /// The number of huge pages that took long.
    slow: AtomicU32,
}

impl Shared {
    fn stage(&self, number: u32) -> usize {
        self.area + (number % STAGES) as usize * HUGE
    }

    fn run(&self) {
        while let Some(seen) = self.work.read() {
            let made = self.made.load(SeqCst);
            let ahead = made.wrapping_sub(self.used.load(SeqCst));
            if ahead == STAGES || made >= self.allowed.load(SeqCst) {
                self.work.wait(seen);
                continue;
            }
            let Ok(slow) = prepare(self.stage(made)) else {
                // The pager's thread then makes its own huge pages.
                self.work.wait(seen);
                continue;
            };
            if slow && self.slow.fetch_add(1, SeqCst) + 1 >= SLOW_MAX {
                self.work.wait(seen);
                continue;
            }
            self.made.store(made + 1, SeqCst);
        }
        // SAFETY: the pager's thread takes no stage after it has ended the count.
        unsafe { memory::unmap(self.area as *mut u8, STAGES as usize * HUGE) }.ok();
    }
}

/// The source of huge pages.
pub(crate) struct Maker {
    thread: Option<&'static Shared>,
    /// The address at which the pager's thread makes a huge page itself if the other thread has
    /// none ready; 0 if none is wanted.
    stage: usize,
    slow: u32,
    /// Whether the last huge page that was taken came from the thread.
    stage_is_threads: bool,
    /// Whether huge pages were given up because they were too slow.
    was_slow: bool,
}

impl Maker {
    /// A maker that makes no huge pages.
    pub fn none() -> Maker {
        Maker { thread: None, stage: 0, slow: 0, stage_is_threads: false, was_slow: false }
    }

    /// A maker of up to `pages` huge pages; with a thread, if `thread` is set and the number of
    /// pages is worth one.
    pub fn start(pages: usize, thread: bool) -> terapage_sys::Result<Maker> {
        let mut maker = Maker::none();
        if pages == 0 {
            return Ok(maker);
        }
        maker.stage = memory::reserve_huge(HUGE)?;
        if !thread || pages < LEAST {
            return Ok(maker);
        }
        let shared: &'static Shared = Box::leak(Box::new(Shared {
            area: memory::reserve_huge(STAGES as usize * HUGE)?,
            made: AtomicU32::new(0),
            used: AtomicU32::new(0),
            allowed: AtomicU32::new(u32::try_from(pages).unwrap_or(u32::MAX)),
            work: EventCount::new(),
            slow: AtomicU32::new(0),
        }));
        // The thread only saves time.
        let began = thread::spawn_quiet(c"terapage-make", move || shared.run());
        maker.thread = began.is_ok().then_some(shared);
        Ok(maker)
    }

    /// Whether to cut frames from huge pages. If huge pages are slow, those made ahead are
    /// returned.
    pub fn pays(&mut self) -> bool {
        let others = self.thread.map_or(0, |shared| shared.slow.load(SeqCst));
        if self.stage != 0 && self.slow + others >= SLOW_MAX {
            self.was_slow = true;
            self.end();
        }
        self.stage != 0
    }

    /// Whether frames are single pages because huge pages were too slow.
    pub fn was_slow(&self) -> bool {
        self.was_slow
    }

    /// Takes a huge page, if one can be made: zeros, apart from the first byte of each page, which
    /// is 1. `pages` is the number that may still be made, including this one. Return it by
    /// [`used`](Self::used).
    pub fn take(&mut self, pages: usize) -> Option<usize> {
        if pages == 0 || !self.pays() {
            self.end();
            return None;
        }
        if let Some(shared) = self.thread {
            let used = shared.used.load(SeqCst);
            let allowed = used.saturating_add(u32::try_from(pages).unwrap_or(u32::MAX));
            shared.allowed.store(allowed, SeqCst);
            if shared.made.load(SeqCst) != used {
                self.stage_is_threads = true;
                return Some(shared.stage(used));
            }
        }
        self.slow += u32::from(prepare(self.stage).ok()?);
        Some(self.stage)
    }

    /// Returns the huge page that was taken, whose frames have been moved away.
    pub fn used(&mut self) {
        if let Some(shared) = self.thread.filter(|_| std::mem::take(&mut self.stage_is_threads)) {
            shared.used.fetch_add(1, SeqCst);
            shared.work.notify();
        }
    }

    /// Stops making huge pages.
    fn end(&mut self) {
        let stage = std::mem::take(&mut self.stage);
        if stage != 0 {
            // SAFETY: the page taken from the stage was returned.
            unsafe { memory::unmap(stage as *mut u8, HUGE) }.ok();
        }
        if let Some(shared) = self.thread.take() {
            shared.work.end();
        }
    }

    /// In the child of a fork, which does not have the thread.
    pub fn forget(&mut self) {
        if let Some(shared) = self.thread.take() {
            // SAFETY: the stages have no user in the child.
            unsafe { memory::unmap(shared.area as *mut u8, STAGES as usize * HUGE) }.ok();
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{LEAST, Maker, SLOW_MAX};
    use terapage_sys::memory::{self, HUGE};

    #[test]
    fn pages_come_in_turn_and_no_more_than_allowed() {
        let mut maker = Maker::start(20, true).unwrap();
        for left in (1..=20).rev() {
            // On a busy machine huge pages may be slow.
            let Some(page) = maker.take(left) else { break };
            // SAFETY: only this test uses the page until it returns it.
            let bytes = unsafe { memory::bytes(page, HUGE) };
            assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == u8::from(at % 4096 == 0)));
            bytes.fill(7);
            maker.used();
        }
        assert!(maker.take(0).is_none());
        assert!(!maker.pays() && maker.take(1).is_none());
    }

    #[test]
    fn slow_ones_are_the_last() {
        let mut maker = Maker::start(20, false).unwrap();
        assert!(maker.pays() && maker.stage != 0);
        maker.slow = SLOW_MAX;
        assert!(!maker.pays() && maker.take(20).is_none());
        assert!(maker.stage == 0 && maker.thread.is_none() && maker.was_slow());
    }

    #[test]
    fn few_pages_need_no_thread() {
        assert!(Maker::start(LEAST - 1, true).unwrap().thread.is_none());
        let mut none = Maker::start(0, true).unwrap();
        assert!(!none.pays() && !none.was_slow());
    }
}
