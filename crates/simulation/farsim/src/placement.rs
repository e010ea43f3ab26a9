//! Which servers have which blocks, and which block is next.

use crate::parameters::Setup;
use rand::Rng;

/// Bytes of an extent, which lies on one server.
pub const EXTENT: u64 = 2 << 20;

/// How extents spread over servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One server is filled, then the next.
    Simple,
    /// The servers are used in turns.
    RoundRobin,
}

/// The order in which a client asks for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// At random.
    Random,
    /// In the order of addresses.
    Sequential,
}

/// The extents of a client.
pub fn extents(setup: &Setup) -> u64 {
    setup.data_bytes.div_ceil(EXTENT).max(1)
}

/// The first of the servers that have an extent of a client: its other parts are on the next ones.
pub fn server_of(setup: &Setup, client: u32, extent: u64) -> u32 {
    let groups = u64::from(setup.servers / setup.parts);
    let group = match setup.placement {
        Placement::RoundRobin => extent % groups,
        // The data of all clients grow at the same time.
        Placement::Simple => {
            let before = extent * u64::from(setup.clients) + u64::from(client);
            (before / (setup.server_bytes / EXTENT * u64::from(setup.needed)).max(1)).min(groups - 1)
        }
    };
    group as u32 * setup.parts
}

/// Which of the servers that have an extent has the first of its parts: they take turns, so that
/// each has as many of those that are read.
pub fn turn_of(setup: &Setup, extent: u64) -> u32 {
    let groups = u64::from(setup.servers / setup.parts);
    if setup.needed == 1 { 0 } else { (extent / groups % u64::from(setup.parts)) as u32 }
}

/// The extent of a client's next operation, after it has begun `begun` operations.
pub fn next_extent(setup: &Setup, begun: u64, chance: &mut impl Rng) -> u64 {
    match setup.pattern {
        Pattern::Random => chance.random_range(0..extents(setup)),
        Pattern::Sequential => begun / (EXTENT / setup.block).max(1) % extents(setup),
    }
}
