//! Faults that the tests of the protocol plant, to see that they are found. In other builds there
//! are none.

/// What the store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// After a connection was cut in a write, the next one does not have it ended at the server.
    NoKill,
    /// A server that was started again is taken for the same.
    AnyRun,
    /// A write whose outcome is unknown counts as done.
    UnknownIsDone,
    /// A read that was begun before its slot was lost is asked for again after that.
    LostIsRead,
}

#[cfg(not(test))]
pub(super) fn is_planted(_: Planted) -> bool {
    false
}

#[cfg(test)]
pub(super) use super::protocol::is_planted;
