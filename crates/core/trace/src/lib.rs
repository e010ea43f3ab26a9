//! Traces: which blocks a program touched, when, and what the pager did. `--trace` records all of
//! these events, `--learn` only the misses ([`Misses`]).
//!
//! A [`Writer`] writes [`Record`]s in frames that are compressed one by one, so a truncated file
//! still has all earlier frames. A [`Reader`] reads the records; it checks every byte and never
//! panics. [`references`] turns the records into the reference string for simulators.
//! `docs/design/formats.md` has the layout, with an example in bytes.

#[cfg(test)]
mod fuzzed;
mod header;
mod misses;
mod reader;
mod record;
mod references;
mod writer;
mod zstd;

pub use header::Header;
pub use misses::Misses;
pub use reader::Reader;
pub use record::{Event, PageOut, Record};
pub use references::references;
pub use writer::Writer;

/// The first bytes of a trace. The last one is the version.
pub const MAGIC: [u8; 8] = *b"TERATRC\x02";

/// The most bytes of records in a frame, before compression.
pub const FRAME_BYTES: usize = 1 << 20;

/// Bytes in front of each frame's compressed bytes.
const FRAME_HEADER: usize = 16;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("at byte {offset}: {cause}")]
    Io {
        /// Bytes from the beginning of the trace.
        offset: u64,
        /// The error that the operation returned.
        cause: std::io::Error,
    },
    /// The trace ends too early. All frames before `offset` have been read.
    #[error("the trace is cut short at byte {offset}: expected {expected}")]
    CutShort {
        /// The offset of the incomplete part, bytes from the beginning.
        offset: u64,
        /// What was expected there.
        expected: &'static str,
    },
    /// The bytes are not those that were written.
    #[error("at byte {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// The offset of the wrong part, bytes from the beginning.
        offset: u64,
        /// What was expected there.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// There are more blocks than 32-bit numbers.
    #[error("the trace names more than 2^32 blocks")]
    Blocks,
}

/// The hash of a frame: of its two lengths and its compressed bytes.
fn frame_hash(lengths: &[u8], packed: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hash = twox_hash::XxHash3_64::new();
    hash.write(lengths);
    hash.write(packed);
    hash.finish()
}
