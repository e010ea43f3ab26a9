//! Faults that the tests of the protocol plant, to check that they are found. In other builds there
//! are none.

/// A fault of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// After a connection was cut during a write, the next one does not end the old one on the
    /// server.
    NoKill,
    /// A restarted server counts as the same.
    AnyRun,
    /// A write with an unknown outcome counts as done.
    UnknownIsDone,
    /// A read that began before its slot was lost is sent again after the loss.
    LostIsRead,
}

#[cfg(not(test))]
pub(super) fn is_planted(_: Planted) -> bool {
    false
}

#[cfg(test)]
pub(super) use super::protocol::is_planted;
