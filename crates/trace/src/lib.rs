//! The trace: which blocks a program touched, when, and what the pager did about it.
//!
//! A [`Writer`] takes [`Record`]s and writes them in frames that are compressed one by one, so
//! that a file cut short holds all frames that were written before. A [`Reader`] gives the records
//! back; it checks every byte and never panics. [`references`] makes of them the reference string
//! that simulators want. `docs/trace-format.md` has the layout, with an example in bytes.

mod compressor;
mod header;
mod reader;
mod record;
mod references;
mod writer;

pub use header::Header;
pub use reader::Reader;
pub use record::{Event, PageOut, Record};
pub use references::references;
pub use writer::Writer;

/// The first bytes of a trace. The last one is the version.
pub const MAGIC: [u8; 8] = *b"TERATRC\x01";

/// Bytes of records in a frame, before compression, at most.
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
        /// What it answered.
        cause: std::io::Error,
    },
    /// The trace ends too early. All frames before `offset` have been read.
    #[error("the trace is cut short at byte {offset}: expected {expected}")]
    CutShort {
        /// Where the part begins that is not all there, in bytes from the beginning.
        offset: u64,
        /// What should be there.
        expected: &'static str,
    },
    /// The bytes are not those that were written.
    #[error("at byte {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// Where the part begins that is wrong, in bytes from the beginning.
        offset: u64,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// More blocks than numbers of 32 bits.
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
