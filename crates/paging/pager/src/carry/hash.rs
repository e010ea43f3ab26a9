//! The bytes of a block: whether they are all zero, and their hash.

use terapage_sys::page_bytes;
use twox_hash::XxHash3_128;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Pages of a block that can be split into pages.
pub(crate) const PARTS: usize = 4;

/// For each page of a block that can be split, half of the page's hash.
pub(crate) type Parts = [u64; PARTS];

/// The 128-bit hash of a block's bytes (XXH3). The hash of a block of four pages is the hash of its
/// pages' hashes. So each page can be proved by itself once the block is split.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    hash_with_parts(bytes, None).0
}

/// The same, where `next` is the address of a block that is hashed after this one.
pub(crate) fn hash_before(bytes: &[u8], next: Option<usize>) -> u128 {
    hash_with_parts(bytes, next).0
}

/// Prefetches each page while the page before it is hashed. The pages lie anywhere in the machine's
/// memory, and a processor does not prefetch from one page into the next. Blocks of 16 KiB that are
/// in no cache are hashed in four fifths of the time.
fn hash_with_parts(bytes: &[u8], next: Option<usize>) -> (u128, Parts) {
    let (mut parts, page) = ([0; PARTS], page_bytes());
    if bytes.len() != PARTS * page {
        next.iter().for_each(|&next| prefetch(next, page.min(bytes.len())));
        return (XxHash3_128::oneshot(bytes), parts);
    }
    let mut hashes = [0; PARTS * size_of::<u128>()];
    for (index, bytes) in bytes.chunks(page).enumerate() {
        let following = if index + 1 < PARTS { Some(bytes.as_ptr() as usize + page) } else { next };
        following.iter().for_each(|&at| prefetch(at, page));
        let hash = XxHash3_128::oneshot(bytes);
        parts[index] = hash as u64;
        hashes[index * size_of::<u128>()..][..size_of::<u128>()].copy_from_slice(&hash.to_le_bytes());
    }
    (XxHash3_128::oneshot(&hashes), parts)
}

/// Prefetches memory into the processor's second-level cache.
fn prefetch(at: usize, len: usize) {
    for line in (at..at + len).step_by(LINE) {
        // SAFETY: a hint, which reads nothing that the program sees and fails for no address.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(line as *const i8);
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
        }
    }
}

/// The result of inspecting a block's bytes: all zero, or their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hashed {
    pub zero: bool,
    /// The hash, if the bytes are not all zero.
    pub hash: u128,
    /// The hashes of the pages, if the block can be split.
    pub parts: Parts,
}

impl Hashed {
    /// Of bytes that were not inspected.
    pub const UNKNOWN: Hashed = Hashed { zero: false, hash: 0, parts: [0; PARTS] };

    /// Inspects a block, where `next` is the address of a block that is inspected after this one.
    pub fn at(bytes: &[u8], next: Option<usize>) -> Hashed {
        if is_zero(bytes) {
            return Hashed { zero: true, hash: 0, parts: [0; PARTS] };
        }
        let (hash, parts) = hash_with_parts(bytes, next);
        Hashed { zero: false, hash, parts }
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
    use super::{Hashed, PARTS, hash};
    use terapage_sys::page_bytes;

    /// The expected hashes come from the reference implementation: they must not depend on the
    /// processor's instructions.
    #[test]
    fn the_hash_of_a_block_is_xxh3() {
        let bytes: Vec<u8> = (0..16384_u32).map(|at| (at * 7 % 251) as u8).collect();
        assert_eq!(twox_hash::XxHash3_128::oneshot(&bytes), 0xdc66_86c5_f372_f445_864d_bfe8_04f8_4fda);
        assert_eq!(hash(&bytes[..page_bytes()]), twox_hash::XxHash3_128::oneshot(&bytes[..page_bytes()]));
    }

    #[test]
    fn each_page_of_a_block_has_its_part_in_the_hash() {
        let mut bytes: Vec<u8> = (0..PARTS * page_bytes()).map(|at| (at * 7 % 251) as u8).collect();
        let before = Hashed::at(&bytes, None);
        for (page, part) in before.parts.into_iter().enumerate() {
            assert_eq!(hash(&bytes[page * page_bytes()..][..page_bytes()]) as u64, part);
            bytes[page * page_bytes() + 9] ^= 1;
            let after = Hashed::at(&bytes, None);
            assert_ne!(after.hash, before.hash, "page {page}");
            assert!((0..PARTS).all(|at| (after.parts[at] == before.parts[at]) == (at != page)));
            bytes[page * page_bytes() + 9] ^= 1;
        }
        assert_eq!(Hashed::at(&bytes, None), before);
    }

    #[test]
    fn one_bit_is_not_zero() {
        let mut bytes = vec![0u8; 4096];
        assert!(Hashed::at(&bytes, None).zero);
        for at in [0, 1, 255, 256, 2000, 4095] {
            bytes[at] = 0x80;
            let hashed = Hashed::at(&bytes, None);
            assert!(!hashed.zero && hashed.hash == hash(&bytes), "at {at}");
            bytes[at] = 0;
        }
    }
}
