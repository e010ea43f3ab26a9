//! The result of one run of a contender.

use crate::ground::runner::End;
use crate::workload::Pass;
use serde::{Deserialize, Serialize};

/// One run of one contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The round, from 1.
    pub round: u32,
    /// Who ran.
    pub contender: String,
    /// How it ended.
    pub end: End,
    /// The passes that it finished.
    pub passes: Vec<Pass>,
    /// The peak of its anonymous memory, as sampled, bytes.
    pub resident_peak_bytes: u64,
    /// The limit of its anonymous memory, if it has a budget, bytes.
    pub resident_limit_bytes: Option<u64>,
    /// The pager's counters at the end.
    pub stats: Option<serde_json::Value>,
    /// The time that the program ran, seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Seconds of processor time that the run used.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Bytes that the program read from devices, without a pager's reads.
    #[serde(default)]
    pub own_read_bytes: u64,
    /// Its exit status.
    #[serde(default)]
    pub code: Option<i32>,
    /// Remarks of the program about itself, and about the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The output of another program from which the figures come, unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<String>,
}
