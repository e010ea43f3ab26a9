//! zstd, in separate memory.
//!
//! Traces are written and read inside programs whose `malloc` may be paged. Compression must not
//! wait for the pager, because the pager may wait for compression. So zstd gets its memory once,
//! from Rust's allocator.

use crate::FRAME_BYTES;
use std::io;
use zstd_safe::zstd_sys;

/// The fastest of zstd's usual levels: the program runs on the same cores.
const LEVEL: i32 = 1;

/// Compresses frames of up to [`FRAME_BYTES`].
pub(crate) struct Compressor {
    // zstd's state, at the beginning of `_memory`.
    context: *mut zstd_sys::ZSTD_CCtx,
    _memory: Vec<u128>,
    packed: Vec<u8>,
}

// SAFETY: the context lies in the compressor's memory, and nothing else points there.
unsafe impl Send for Compressor {}

impl Compressor {
    pub fn new() -> io::Result<Compressor> {
        // SAFETY: this is a pure function.
        let bytes = unsafe { zstd_sys::ZSTD_estimateCCtxSize(LEVEL) };
        let mut memory = vec![0u128; bytes.div_ceil(size_of::<u128>())];
        // SAFETY: the memory is aligned to 16 bytes, has the given length, and lives as long as the
        // context; moving the vector does not move its bytes.
        let context = unsafe {
            zstd_sys::ZSTD_initStaticCCtx(memory.as_mut_ptr().cast(), memory.len() * size_of::<u128>())
        };
        if context.is_null() {
            return Err(io::Error::other("zstd refuses its memory"));
        }
        let packed = vec![0; zstd_safe::compress_bound(FRAME_BYTES)];
        Ok(Compressor { context, _memory: memory, packed })
    }

    /// The compressed bytes of `raw`.
    pub fn compress(&mut self, raw: &[u8]) -> io::Result<&[u8]> {
        // SAFETY: the context is valid and has no other user; both ranges have the given lengths.
        let code = unsafe {
            zstd_sys::ZSTD_compressCCtx(
                self.context,
                self.packed.as_mut_ptr().cast(),
                self.packed.len(),
                raw.as_ptr().cast(),
                raw.len(),
                LEVEL,
            )
        };
        // SAFETY: this is a pure function of the code.
        if unsafe { zstd_sys::ZSTD_isError(code) } != 0 {
            return Err(io::Error::other(zstd_safe::get_error_name(code)));
        }
        Ok(&self.packed[..code])
    }
}

/// Decompresses frames.
pub(crate) struct Decompressor {
    // zstd's state, at the beginning of `_memory`.
    context: *mut zstd_sys::ZSTD_DCtx,
    _memory: Vec<u128>,
}

// SAFETY: the context lies in the decompressor's memory, and nothing else points there.
unsafe impl Send for Decompressor {}

impl Decompressor {
    pub fn new() -> io::Result<Decompressor> {
        // SAFETY: this is a pure function.
        let bytes = unsafe { zstd_sys::ZSTD_estimateDCtxSize() };
        let mut memory = vec![0u128; bytes.div_ceil(size_of::<u128>())];
        // SAFETY: the memory is aligned to 16 bytes, has the given length, and lives as long as the
        // context; moving the vector does not move its bytes.
        let context = unsafe {
            zstd_sys::ZSTD_initStaticDCtx(memory.as_mut_ptr().cast(), memory.len() * size_of::<u128>())
        };
        if context.is_null() {
            return Err(io::Error::other("zstd refuses its memory"));
        }
        Ok(Decompressor { context, _memory: memory })
    }

    /// Fills `raw` with the bytes that `packed` holds, and returns their number.
    pub fn decompress(&mut self, packed: &[u8], raw: &mut [u8]) -> Result<usize, &'static str> {
        // SAFETY: the context is valid and has no other user; both ranges have the given lengths.
        let code = unsafe {
            zstd_sys::ZSTD_decompressDCtx(
                self.context,
                raw.as_mut_ptr().cast(),
                raw.len(),
                packed.as_ptr().cast(),
                packed.len(),
            )
        };
        // SAFETY: this is a pure function of the code.
        let failed = unsafe { zstd_sys::ZSTD_isError(code) } != 0;
        if failed { Err(zstd_safe::get_error_name(code)) } else { Ok(code) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_enough_for_the_largest_frame_of_any_bytes_and_is_small() {
        let mut compressor = Compressor::new().unwrap();
        let memory = compressor._memory.len() * size_of::<u128>() + compressor.packed.len();
        println!("{memory} bytes");
        assert!(memory < 4 << 20, "{memory}");
        let noise =
            (0..FRAME_BYTES as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        for raw in [vec![7; FRAME_BYTES], noise.collect(), vec![1]] {
            let packed = compressor.compress(&raw).unwrap().to_vec();
            let mut back = vec![0; raw.len()];
            assert_eq!(Decompressor::new().unwrap().decompress(&packed, &mut back), Ok(raw.len()));
            assert!(back == raw);
        }
    }
}
