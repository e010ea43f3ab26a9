//! The results of a simulation.

use serde::Serialize;
use terapage_event::Nanos;

/// A kind of part that operations wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The pager's thread.
    Pager,
    /// A client's card, to the network.
    ClientOut,
    /// A client's card, from the network.
    ClientIn,
    /// A server host's card, from the network.
    ServerIn,
    /// A server host's card, to the network.
    ServerOut,
    /// A server's processor.
    Server,
}

impl Part {
    /// All kinds of parts.
    pub const ALL: [Part; 6] =
        [Part::Pager, Part::ClientOut, Part::ClientIn, Part::ServerIn, Part::ServerOut, Part::Server];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Pager => "pager's thread",
            Part::ClientOut => "client's network, out",
            Part::ClientIn => "client's network, in",
            Part::ServerIn => "servers' network, in",
            Part::ServerOut => "servers' network, out",
            Part::Server => "server's processor",
        }
    }
}

/// The load of the parts of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The kind of part.
    pub part: Part,
    /// The mean share of the time that parts of this kind were busy.
    pub mean: f64,
    /// The share of time in which the busiest of them was busy.
    pub most: f64,
}

/// The results of a simulation for the measured time, after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The measured time.
    pub time_ns: Nanos,
    /// The number of operations that ended.
    pub operations: u64,
    /// The number of page-ins among the operations.
    pub reads: u64,
    /// The bytes of blocks that the operations moved.
    pub bytes: u64,
    /// The mean number of operations under way, counted over time.
    pub under_way: f64,
    /// The mean time that an operation took.
    pub mean_ns: f64,
    /// The median time of a page-in.
    pub median_ns: Nanos,
    /// The 99th percentile of the times of page-ins.
    pub p99_ns: Nanos,
    /// The longest time that an operation took, warm-up included.
    pub longest_ns: Nanos,
    /// The load of each kind of part.
    pub loads: Vec<Load>,
    /// Bytes that were moved in each fiftieth of the simulated time, with the warm-up.
    pub timeline: Vec<u64>,
    /// Clients that wait for a block that no server has any more.
    pub stopped: u32,
    /// Operations that another server did, or that left one copy or part less, because a server was
    /// lost.
    pub detours: u64,
    /// Bytes that were written to a server that came back.
    pub resynced: u64,
    /// Bytes that were read from other servers for the rebuild.
    pub read_for_resync: u64,
    /// The time at which all blocks had both copies again; 0 if that did not happen.
    pub whole_again_ns: Nanos,
    /// Events that were handled.
    pub events: u64,
}

impl Outcome {
    /// Bytes of blocks per second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// Operations per second.
    pub fn operations_per_s(&self) -> f64 {
        self.operations as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// The kind of part that is busiest.
    pub fn busiest(&self) -> Option<Load> {
        self.loads.iter().copied().max_by(|a, b| a.most.total_cmp(&b.most))
    }

    /// The kind of part that limits the rate, if one is busy for at least 95 % of the time.
    pub fn saturated(&self) -> Option<Part> {
        self.busiest().filter(|load| load.most >= 0.95).map(|load| load.part)
    }
}
