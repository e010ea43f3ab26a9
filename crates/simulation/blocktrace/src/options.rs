//! How a trace is to be read.

use crate::format::{BlockColumns, Format};

/// How a trace is to be read. The default looks for the format itself and takes nothing bad.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None` looks at the first bytes.
    pub format: Option<Format>,
    /// The columns of a trace in CSV: the trace is read as such.
    pub columns: Option<BlockColumns>,
    /// Bad records that are passed over, and counted in [`Counts`](crate::Counts); one more is an
    /// error.
    pub skip_bad: u64,
    /// Names of the volumes that are read; empty for all of them.
    pub volumes: Vec<String>,
    /// Bytes of a volume: a request that ends beyond is bad.
    pub capacity: Option<u64>,
    /// A time that goes back by at most this, in nanoseconds, is taken as the last one. More is
    /// bad.
    pub disorder_ns: u64,
    /// The action of `blkparse` output that is read; `None` is `Q`, the requests as they are
    /// queued.
    pub action: Option<char>,
    /// Bytes of one address, for `arc` and `oraclegeneral`, whose files do not say; `None` is 512.
    pub unit_bytes: Option<u32>,
}
