//! A thread that makes huge pages ahead of the pager's: to clear memory takes time, most of all where a virtual
//! machine's host gives it only when it is touched (2 s for 1 GiB, against 0.1 s). It ends when all frames exist.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use terapage_sys::memory::{self, HUGE};
use terapage_sys::{PAGE, thread};

const MADV_HUGEPAGE: i32 = 14;

/// Stages that may wait ready.
const STAGES: u32 = 4;

/// Fresh huge pages that fewer of need no thread.
const LEAST: usize = 16;

/// Makes a huge page at `stage`, aligned and nobody else's: 1 in the first byte of each page, else zero. Where the kernel has no
/// huge page it is small ones.
pub(crate) fn prepare(stage: usize) -> terapage_sys::Result<()> {
    // Mapped anew each time: only where no page table is left does the kernel put a huge page.
    // SAFETY: nobody else has this memory.
    unsafe { memory::replace(stage as *mut u8, HUGE)? };
    memory::advise(stage, HUGE, MADV_HUGEPAGE);
    // Touched, not populated: a touch does not hold the lock of the address space.
    mark(stage, HUGE, 1);
    Ok(())
}

/// Writes `value` to the first byte of each page: when the kernel splits a huge page it gives zero pages back,
/// unless they are not quite zero.
pub(crate) fn mark(at: usize, len: usize, value: u8) {
    // SAFETY: the pages are this thread's alone.
    let bytes = unsafe { memory::bytes(at, len) };
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = value);
}

struct Shared {
    /// Where the stages lie.
    area: usize,
    /// Stages ever made, and ever used.
    made: AtomicU32,
    used: AtomicU32,
    /// Stages that may be made in all.
    allowed: AtomicU32,
    /// Counts changes of the two above; the thread sleeps on it.
    bell: AtomicU32,
    ended: AtomicBool,
}

impl Shared {
    fn stage(&self, number: u32) -> usize {
        self.area + (number % STAGES) as usize * HUGE
    }

    fn run(&self) {
        loop {
            let bell = self.bell.load(SeqCst);
            if self.ended.load(SeqCst) {
                // SAFETY: who has said that it is the end takes none any more.
                unsafe { memory::unmap(self.area as *mut u8, STAGES as usize * HUGE) }.ok();
                return;
            }
            let made = self.made.load(SeqCst);
            let ahead = made.wrapping_sub(self.used.load(SeqCst));
            if ahead == STAGES || made >= self.allowed.load(SeqCst) {
                thread::wait(&self.bell, bell);
                continue;
            }
            if prepare(self.stage(made)).is_err() {
                // The pager's thread makes its own.
                thread::wait(&self.bell, bell);
                continue;
            }
            self.made.store(made + 1, SeqCst);
        }
    }
}

/// The thread, or none.
pub(crate) struct Maker(Option<&'static Shared>);

impl Maker {
    /// No thread.
    pub fn none() -> Maker {
        Maker(None)
    }

    /// A thread that makes up to `pages` huge pages, if they are worth one.
    pub fn start(pages: usize) -> terapage_sys::Result<Maker> {
        if pages < LEAST {
            return Ok(Maker(None));
        }
        let area = (memory::reserve((STAGES as usize + 1) * HUGE)? as usize).next_multiple_of(HUGE);
        let shared: &'static Shared = Box::leak(Box::new(Shared {
            area,
            made: AtomicU32::new(0),
            used: AtomicU32::new(0),
            allowed: AtomicU32::new(u32::try_from(pages).unwrap_or(u32::MAX)),
            bell: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        }));
        thread::spawn_quiet(c"terapage-make", move || shared.run())?;
        Ok(Maker(Some(shared)))
    }

    /// A stage that is ready, while `pages` may still be made, that one included.
    pub fn take(&mut self, pages: usize) -> Option<usize> {
        let shared = self.0?;
        let used = shared.used.load(SeqCst);
        shared.allowed.store(used.saturating_add(u32::try_from(pages).unwrap_or(u32::MAX)), SeqCst);
        (shared.made.load(SeqCst) != used).then(|| shared.stage(used))
    }

    /// The stage taken is used up.
    pub fn used(&mut self) {
        let Some(shared) = self.0 else { return };
        shared.used.fetch_add(1, SeqCst);
        shared.ring();
    }

    /// No more are wanted.
    pub fn end(&mut self) {
        let Some(shared) = self.0.take() else { return };
        shared.ended.store(true, SeqCst);
        shared.ring();
    }

    /// In the child of a fork, where the thread is not.
    pub fn forget(&mut self) {
        let Some(shared) = self.0.take() else { return };
        // SAFETY: nobody uses it here.
        unsafe { memory::unmap(shared.area as *mut u8, STAGES as usize * HUGE) }.ok();
    }
}

impl Shared {
    fn ring(&self) {
        self.bell.fetch_add(1, SeqCst);
        thread::wake(&self.bell);
    }
}

#[cfg(test)]
mod tests {
    use super::{Maker, STAGES};
    use terapage_sys::memory::{self, HUGE};

    #[test]
    fn stages_come_in_turn_and_no_more_than_allowed() {
        let mut maker = Maker::start(20).unwrap();
        let mut seen = 0;
        while seen < 20 {
            let Some(stage) = maker.take(20 - seen) else {
                std::thread::yield_now();
                continue;
            };
            // SAFETY: the stage is ours until it is used.
            let bytes = unsafe { memory::bytes(stage, HUGE) };
            assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == u8::from(at % 4096 == 0)));
            bytes.fill(7);
            maker.used();
            seen += 1;
        }
        assert!(maker.take(0).is_none());
        maker.end();
        assert!(maker.take(1).is_none());
    }

    #[test]
    fn few_pages_need_no_thread() {
        assert!(Maker::start(STAGES as usize).unwrap().take(1).is_none());
    }
}
