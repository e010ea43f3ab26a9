//! The options for reading a trace.

use crate::format::{BlockColumns, Format};

/// The options for reading a trace. By default the format is detected and no bad record is
/// accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None` detects it from the first bytes.
    pub format: Option<Format>,
    /// The columns of a trace in CSV; the trace is then read as CSV.
    pub columns: Option<BlockColumns>,
    /// The number of bad records that may be skipped, and are counted in [`Counts`](crate::Counts);
    /// one more is an error.
    pub skip_bad: u64,
    /// Names of the volumes that are read; empty for all of them.
    pub volumes: Vec<String>,
    /// Bytes of a volume: a request that ends beyond is bad.
    pub capacity: Option<u64>,
    /// A time that goes back by at most this, in nanoseconds, counts as the last one. A longer step
    /// back is an error. More is bad.
    pub disorder_ns: u64,
    /// The action of `blkparse` output that is read; `None` is `Q`, the requests as they are
    /// queued.
    pub action: Option<char>,
    /// Bytes of one address, for `arc` and `oraclegeneral`, whose files do not state it; `None` is
    /// 512.
    pub unit_bytes: Option<u32>,
}
