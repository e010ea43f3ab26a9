//! The bytes of a block: whether they are all zero, and their hash.

use terapage_sys::PAGE;
use twox_hash::XxHash3_128;

/// Cache lines of a page that are prefetched into the cache before the page is hashed.
/// Measured: docs/measurements.md, "Hashes".
const HEAD: usize = 2;

/// The 128-bit hash of a block's bytes (XXH3).
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// Prefetches the beginnings of a block's pages into the processor's cache. The pages lie anywhere
/// in the machine's memory, and a processor does not look ahead from one page into the next. If
/// each block is asked for one block ahead, to hash blocks that are in no cache takes three
/// quarters of the time.
pub(crate) fn ask_for(at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (at..at + len).step_by(PAGE).flat_map(|page| (0..HEAD).map(move |line| page + line * 64)) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing that the program sees and fails for no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line as *const i8) };
    }
}

/// The result of a look at a block's bytes: all zero, or their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub zero: bool,
    /// The hash, if they are not all zero.
    pub hash: u128,
}

impl Look {
    pub fn at(bytes: &[u8]) -> Look {
        if is_zero(bytes) { Look { zero: true, hash: 0 } } else { Look { zero: false, hash: hash(bytes) } }
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
    use super::{Look, hash};

    /// The expected hashes come from the reference implementation: they must not depend on the
    /// processor's instructions.
    #[test]
    fn the_hash_of_a_block_is_xxh3() {
        let bytes: Vec<u8> = (0..16384_u32).map(|at| (at * 7 % 251) as u8).collect();
        assert_eq!(hash(&bytes), 0xdc66_86c5_f372_f445_864d_bfe8_04f8_4fda);
    }

    #[test]
    fn one_bit_is_not_zero() {
        let mut bytes = vec![0u8; 4096];
        assert!(Look::at(&bytes).zero);
        for at in [0, 1, 255, 256, 2000, 4095] {
            bytes[at] = 0x80;
            let look = Look::at(&bytes);
            assert!(!look.zero && look.hash == hash(&bytes), "at {at}");
            bytes[at] = 0;
        }
    }
}
