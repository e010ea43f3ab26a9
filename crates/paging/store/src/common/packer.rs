//! Compression of one block at a time, in memory that is allocated once.
//!
//! Zstandard is written in C, and by default takes its memory from the program's `malloc`, which
//! may be paged, and wait for the pager. So it gets its memory here.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use terapage_config::Codec;
use zstd_safe::zstd_sys;

/// After this number of successive blocks that do not compress, only one block in this number is
/// tried.
const MISSES: u32 = 16;

/// Compresses and decompresses.
pub(crate) struct Packer {
    with: With,
    /// Room for the longest result of a block.
    packed: Vec<u8>,
    misses: u32,
}

enum With {
    Lz4(Box<CompressTable>),
    Zstd(Box<Zstd>),
}

/// Zstandard's state, at the beginnings of two pieces of memory.
struct Zstd {
    compresses: *mut zstd_sys::ZSTD_CCtx,
    unpacks: *mut zstd_sys::ZSTD_DCtx,
    level: i32,
    _memory: [Vec<u128>; 2],
}

// SAFETY: the pointers' targets lie in the memory beside them, which belongs to this value.
unsafe impl Send for Zstd {}

impl Packer {
    /// For blocks of `block` bytes; `None` if there is no memory.
    pub fn new(codec: Codec, block: usize) -> Option<Packer> {
        let (with, most) = match codec {
            Codec::Lz4 => (With::Lz4(Box::default()), get_maximum_output_size(block)),
            Codec::Zstd(level) => {
                (With::Zstd(Box::new(Zstd::new(level.into(), block)?)), zstd_safe::compress_bound(block))
            }
        };
        Some(Packer { with, packed: vec![0; most], misses: 0 })
    }

    /// The compressed form of a block, if it has at most `most` bytes.
    pub fn pack(&mut self, block: &[u8], most: usize) -> Option<&[u8]> {
        if self.misses >= MISSES && !self.misses.is_multiple_of(MISSES) {
            self.misses += 1;
            return None;
        }
        let len = match &mut self.with {
            With::Lz4(table) => compress_into_with_table(block, &mut self.packed, table).ok(),
            With::Zstd(zstd) => zstd.pack(block, &mut self.packed),
        };
        let len = len.filter(|&len| len <= most);
        self.misses = if len.is_some() { 0 } else { (self.misses + 1) % (1 << 30) };
        Some(&self.packed[..len?])
    }

    /// Fills a block with its original bytes; `false` if the packed bytes are not a block.
    pub fn unpack(&mut self, packed: &[u8], block: &mut [u8]) -> bool {
        match &mut self.with {
            With::Lz4(_) => decompress_into(packed, block).is_ok_and(|len| len == block.len()),
            With::Zstd(zstd) => zstd.unpack(packed, block),
        }
    }
}

impl Zstd {
    fn new(level: i32, block: usize) -> Option<Zstd> {
        // SAFETY: these are pure functions.
        let sizes = unsafe {
            let parameters = zstd_sys::ZSTD_getCParams(level, block as u64, 0);
            [zstd_sys::ZSTD_estimateCCtxSize_usingCParams(parameters), zstd_sys::ZSTD_estimateDCtxSize()]
        };
        let mut memory = sizes.map(|bytes| vec![0_u128; bytes.div_ceil(size_of::<u128>())]);
        let len = |memory: &[u128]| size_of_val(memory);
        let [for_packing, for_unpacking] = &mut memory;
        // SAFETY: the memory is aligned to 16 bytes, has the given lengths, and lives as long as
        // the states; moving a vector does not move its contents.
        let (compresses, unpacks) = unsafe {
            (
                zstd_sys::ZSTD_initStaticCCtx(for_packing.as_mut_ptr().cast(), len(for_packing)),
                zstd_sys::ZSTD_initStaticDCtx(for_unpacking.as_mut_ptr().cast(), len(for_unpacking)),
            )
        };
        let is_there = !compresses.is_null() && !unpacks.is_null();
        is_there.then_some(Zstd { compresses, unpacks, level, _memory: memory })
    }

    fn pack(&mut self, block: &[u8], packed: &mut [u8]) -> Option<usize> {
        // SAFETY: the state is valid and belongs to this value; both ranges have the given lengths.
        let code = unsafe {
            zstd_sys::ZSTD_compressCCtx(
                self.compresses,
                packed.as_mut_ptr().cast(),
                packed.len(),
                block.as_ptr().cast(),
                block.len(),
                self.level,
            )
        };
        is_good(code).then_some(code)
    }

    fn unpack(&mut self, packed: &[u8], block: &mut [u8]) -> bool {
        // SAFETY: the state is valid, and this value's; both ranges have the lengths given. What
        // was not made by `pack` is refused.
        let code = unsafe {
            zstd_sys::ZSTD_decompressDCtx(
                self.unpacks,
                block.as_mut_ptr().cast(),
                block.len(),
                packed.as_ptr().cast(),
                packed.len(),
            )
        };
        is_good(code) && code == block.len()
    }
}

fn is_good(code: usize) -> bool {
    // SAFETY: a pure function of the code.
    unsafe { zstd_sys::ZSTD_isError(code) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let words =
            (0..len as u64 / 8).map(|at| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
        words.flat_map(|word| word.wrapping_mul(word | 1).to_le_bytes()).collect()
    }

    fn codecs() -> Vec<Codec> {
        [Codec::Lz4].into_iter().chain((1..=Codec::LEVEL_MAX).map(Codec::Zstd)).collect()
    }

    #[test]
    fn blocks_come_back_by_each_codec() {
        for codec in codecs() {
            for block in [4096, 16 << 10, 2 << 20] {
                let mut packer = Packer::new(codec, block).unwrap();
                let text: Vec<u8> = (0..block).map(|at| (at / 7 % 50) as u8).collect();
                let packed = packer.pack(&text, block - 512).unwrap().to_vec();
                assert!(packed.len() < block / 2, "{codec:?}: {} of {block}", packed.len());
                let mut back = vec![0; block];
                assert!(packer.unpack(&packed, &mut back) && back == text, "{codec:?} {block}");
                assert_eq!(packer.pack(&noise(block), block - 512), None, "{codec:?} {block}");
                assert!(packer.pack(&text, block - 512).is_some());
            }
        }
    }

    #[test]
    fn blocks_shorter_than_the_longest_come_back_too() {
        for codec in codecs() {
            let mut packer = Packer::new(codec, 16 << 10).unwrap();
            let text: Vec<u8> = (0..16 << 10).map(|at| (at * at / 700) as u8).collect();
            for from in (0..text.len()).step_by(4096) {
                let page = &text[from..from + 4096];
                let packed = packer.pack(page, 4096).unwrap().to_vec();
                let mut back = vec![0; 4096];
                assert!(packer.unpack(&packed, &mut back) && back == page, "{codec:?} {from}");
            }
        }
    }

    #[test]
    fn what_is_no_block_is_refused_or_has_wrong_bytes_and_does_no_harm() {
        for codec in codecs() {
            let mut packer = Packer::new(codec, 4096).unwrap();
            let text: Vec<u8> = (0..4096).map(|at| (at / 3 % 97) as u8).collect();
            let packed = packer.pack(&text, 4096).unwrap().to_vec();
            let mut back = vec![0; 4096];
            for at in 0..packed.len() {
                let mut bad = packed.clone();
                bad[at] ^= 1 << (at % 8);
                packer.unpack(&bad, &mut back);
                assert!(!packer.unpack(&packed[..at], &mut back), "{codec:?}: {at} bytes");
            }
            assert!(!packer.unpack(&noise(1000), &mut back));
            assert!(packer.unpack(&packed, &mut back) && back == text);
        }
    }

    #[test]
    fn what_never_compresses_is_not_always_tried() {
        let mut packer = Packer::new(Codec::Lz4, 4096).unwrap();
        let (text, noise) = (vec![7; 4096], noise(4096));
        assert!((0..20).all(|_| packer.pack(&noise, 3072).is_none()));
        let tried = (0..40).position(|_| packer.pack(&text, 3072).is_some());
        assert!(tried.is_some_and(|tries| tries > 0), "{tried:?}");
        assert!(packer.pack(&text, 3072).is_some());
    }
}
