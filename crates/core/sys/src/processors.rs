//! Sets of processors.

/// A set of the machine's processors.
#[derive(Clone)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// The words of a set, 64 processors each.
    pub const WORDS: usize = size_of::<libc::cpu_set_t>() / size_of::<u64>();

    /// The processors that a thread may use (0 is the calling thread); `None` if their numbers are
    /// too high for the set, or there is no such thread.
    pub fn of(thread: u32) -> Option<Processors> {
        // SAFETY: zeros are a valid set, which has room for the result. The bare system call
        // bypasses the hook of the preload library.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let answer = libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&set), &raw mut set);
            (answer > 0).then_some(Processors(set))
        }
    }

    /// The set as words: bit `n % 64` of word `n / 64` stands for processor `n`.
    pub fn words(&self) -> [u64; Self::WORDS] {
        // SAFETY: the set is an array of words of this size in all, and any bits are valid.
        unsafe { std::mem::transmute(self.0) }
    }

    /// The set with these [words](Self::words).
    pub fn from_words(words: [u64; Self::WORDS]) -> Processors {
        // SAFETY: the set is an array of words of this size in all, and any bits are valid.
        Processors(unsafe { std::mem::transmute::<[u64; Self::WORDS], libc::cpu_set_t>(words) })
    }

    /// The numbers of the processors, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        // SAFETY: each number has a bit in the set.
        (0..8 * size_of_val(&self.0)).filter(|&number| unsafe { libc::CPU_ISSET(number, &self.0) })
    }

    /// The number of processors in the set.
    pub fn count(&self) -> usize {
        // SAFETY: the set is valid.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// The set of only this processor, if it is in the set.
    pub fn only(&self, number: usize) -> Option<Processors> {
        if number >= 8 * size_of_val(&self.0) {
            return None;
        }
        // SAFETY: the number has a bit in the set; zeros are a valid set.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(number, &mut set);
            libc::CPU_ISSET(number, &self.0).then_some(Processors(set))
        }
    }

    /// Lets a thread (0 is the calling thread) run on these processors only. Returns whether the
    /// kernel allows it.
    pub fn give_to(&self, thread: u32) -> bool {
        // SAFETY: the set is valid. The bare system call bypasses the hook of the preload library.
        let answer = unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, thread, size_of_val(&self.0), &raw const self.0)
        };
        answer == 0
    }
}
