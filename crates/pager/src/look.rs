//! Helpers of the pager's thread: they look at the bytes of many blocks at once (all zero? which hash?), which is
//! what takes its time where the store is fast. One job at a time, of which the pager's thread does its share.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use terapage_sys::{memory, thread};
use xxhash_rust::xxh3::xxh3_128;

/// Less than this in all is looked at by one thread.
const LEAST_BYTES: usize = 256 << 10;

/// What the bytes of a block are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub zero: bool,
    /// The hash, if they are not all zero.
    pub hash: u128,
}

impl Look {
    pub fn at(bytes: &[u8]) -> Look {
        if is_zero(bytes) {
            Look { zero: true, hash: 0 }
        } else {
            Look { zero: false, hash: xxh3_128(bytes) }
        }
    }
}

#[derive(Clone, Copy)]
struct Job {
    addresses: *const usize,
    looks: *mut Look,
    count: usize,
    len: usize,
}

struct Shared {
    /// Counts jobs; helpers sleep on it.
    jobs: AtomicU32,
    /// Whether `job` may be read: while it is, and while a helper is `inside`, the job stays.
    open: AtomicBool,
    inside: AtomicUsize,
    next: AtomicUsize,
    done: AtomicUsize,
    job: UnsafeCell<Job>,
}

// SAFETY: `job` is written while it is not open and nobody is inside, and read while it is open by who is inside.
unsafe impl Sync for Shared {}

impl Shared {
    fn work(&self, job: Job) {
        loop {
            let index = self.next.fetch_add(1, SeqCst);
            if index >= job.count {
                return;
            }
            // SAFETY: the owner waits until all are done; each index is one thread's.
            unsafe {
                let bytes = memory::bytes(*job.addresses.add(index), job.len);
                *job.looks.add(index) = Look::at(bytes);
            }
            self.done.fetch_add(1, SeqCst);
        }
    }

    fn help(&self) {
        let mut seen = 0;
        loop {
            thread::wait(&self.jobs, seen);
            seen = self.jobs.load(SeqCst);
            self.inside.fetch_add(1, SeqCst);
            if self.open.load(SeqCst) {
                // SAFETY: open, and inside.
                self.work(unsafe { *self.job.get() });
            }
            self.inside.fetch_sub(1, SeqCst);
        }
    }
}

/// The helpers, or none.
pub(crate) struct Crew(Option<&'static Shared>);

impl Crew {
    /// No helper.
    pub fn alone() -> Crew {
        Crew(None)
    }

    /// So many helpers.
    pub fn start(helpers: usize) -> terapage_sys::Result<Crew> {
        if helpers == 0 {
            return Ok(Crew(None));
        }
        let job = Job { addresses: std::ptr::null(), looks: std::ptr::null_mut(), count: 0, len: 0 };
        let shared: &'static Shared = Box::leak(Box::new(Shared {
            jobs: AtomicU32::new(0),
            open: AtomicBool::new(false),
            inside: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            job: UnsafeCell::new(job),
        }));
        for _ in 0..helpers {
            thread::spawn_quiet(c"terapage-look", move || shared.help())?;
        }
        Ok(Crew(Some(shared)))
    }

    /// Looks at `len` bytes at each address.
    ///
    /// # Safety
    /// They are there, and nobody writes to them meanwhile.
    pub unsafe fn look(&self, addresses: &[usize], len: usize) -> Vec<Look> {
        let mut looks = vec![Look::default(); addresses.len()];
        match self.0 {
            Some(shared) if addresses.len() * len >= LEAST_BYTES => {
                let job = Job {
                    addresses: addresses.as_ptr(),
                    looks: looks.as_mut_ptr(),
                    count: addresses.len(),
                    len,
                };
                shared.next.store(0, SeqCst);
                shared.done.store(0, SeqCst);
                // SAFETY: not open, and nobody inside: the last job ended so.
                unsafe { *shared.job.get() = job };
                shared.open.store(true, SeqCst);
                shared.jobs.fetch_add(1, SeqCst);
                thread::wake(&shared.jobs);
                shared.work(job);
                while shared.done.load(SeqCst) < job.count {
                    std::hint::spin_loop();
                }
                shared.open.store(false, SeqCst);
                while shared.inside.load(SeqCst) > 0 {
                    std::hint::spin_loop();
                }
            }
            _ => {
                for (look, &address) in looks.iter_mut().zip(addresses) {
                    // SAFETY: the caller's promise.
                    *look = Look::at(unsafe { memory::bytes(address, len) });
                }
            }
        }
        looks
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // SAFETY: any sixteen bytes are a u128.
    let (head, words, tail) = unsafe { bytes.align_to::<u128>() };
    head.iter().chain(tail).all(|&byte| byte == 0)
        && words.chunks(16).all(|chunk| chunk.iter().fold(0, |all, word| all | word) == 0)
}

#[cfg(test)]
mod tests {
    use super::{Crew, Look};

    #[test]
    fn many_see_what_one_sees() {
        let crew = Crew::start(3).unwrap();
        let mut blocks = vec![vec![0u8; 16 << 10]; 200];
        for round in 0..50 {
            for (at, block) in blocks.iter_mut().enumerate().skip(round % 3).step_by(3) {
                block[(at * 37 + round) % (16 << 10)] = (at + round) as u8;
            }
            let addresses: Vec<usize> = blocks.iter().map(|block| block.as_ptr() as usize).collect();
            // SAFETY: the blocks are there, and still.
            let looks = unsafe { crew.look(&addresses, 16 << 10) };
            assert!(looks.iter().zip(&blocks).all(|(&look, block)| look == Look::at(block)));
        }
    }
}
