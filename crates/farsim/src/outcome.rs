//! What a simulation found.

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
    /// All of them.
    pub const ALL: [Part; 6] =
        [Part::Pager, Part::ClientOut, Part::ClientIn, Part::ServerIn, Part::ServerOut, Part::Server];

    /// As people call it.
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

/// How busy the parts of a kind were.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// The kind.
    pub part: Part,
    /// The share of time of all of them together.
    pub mean: f64,
    /// The share of time of the busiest.
    pub most: f64,
}

/// What a simulation found, of the time that counts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// That time.
    pub time_ns: Nanos,
    /// Operations that ended.
    pub operations: u64,
    /// Page-ins among them.
    pub reads: u64,
    /// Bytes of blocks that they moved.
    pub bytes: u64,
    /// Operations under way on average, counted as time goes by.
    pub under_way: f64,
    /// The mean time that an operation took.
    pub mean_ns: f64,
    /// Half of the page-ins took no longer.
    pub median_ns: Nanos,
    /// All but a hundredth of the page-ins took no longer.
    pub p99_ns: Nanos,
    /// The longest that an operation took, of all of the time.
    pub longest_ns: Nanos,
    /// How busy each kind of part was.
    pub loads: Vec<Load>,
    /// Bytes that were moved in each fiftieth of all of the time.
    pub timeline: Vec<u64>,
    /// Clients that wait for a block which no server has any more.
    pub stopped: u32,
    /// Operations that were done elsewhere, or with one copy, as a server was lost.
    pub detours: u64,
    /// Bytes that were copied to a server that came back.
    pub resynced: u64,
    /// When all blocks had their copies again; 0: they do not.
    pub whole_again_ns: Nanos,
    /// Events that were handled.
    pub events: u64,
}

impl Outcome {
    /// Bytes of blocks in a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// Operations in a second.
    pub fn operations_per_s(&self) -> f64 {
        self.operations as f64 * 1e9 / self.time_ns.max(1) as f64
    }

    /// The kind of part that is busiest.
    pub fn busiest(&self) -> Option<Load> {
        self.loads.iter().copied().max_by(|a, b| a.most.total_cmp(&b.most))
    }

    /// The kind of part that lets no more through.
    pub fn saturated(&self) -> Option<Part> {
        self.busiest().filter(|load| load.most >= 0.95).map(|load| load.part)
    }
}
