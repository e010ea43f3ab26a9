//! Simulated devices: they accept commands and complete them later.
//!
//! A device is a state machine that owns its pending events. Its user asks for the time of the next
//! event, and lets it happen if nothing else happens earlier. So devices can be stacked: a cache is
//! a device over a device.

use terapage_event::Nanos;

/// The effect of a command on its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Returns the bytes of the sectors.
    Read,
    /// Writes bytes to the sectors.
    Write,
    /// Drops the bytes of the sectors.
    Trim,
}

/// A command to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The sender's tag, which [`Done`] contains.
    pub tag: u64,
    /// The operation.
    pub operation: Operation,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// The number of sectors; not 0.
    pub sectors: u32,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The command's tag.
    pub tag: u64,
    /// When it ended.
    pub time: Nanos,
}

/// A simulated device.
pub trait Device {
    /// The device's sectors, of 512 bytes.
    fn sectors(&self) -> u64;

    /// Submits `command` at time `now`, which must not be before any earlier time. A device has
    /// room for any number of commands: the sender limits them (queue depth).
    ///
    /// # Panics
    ///
    /// The command extends beyond the device: senders check that first, and report their own error.
    fn submit(&mut self, now: Nanos, command: Command, done: &mut Vec<Done>);

    /// Announces commands. A device may look up their data together, so that these are in the
    /// processor's caches when the commands arrive. Results do not change.
    fn foresee(&self, _commands: &[Command]) {}

    /// The time of the next event; `None` if the device is idle.
    fn next_time(&self) -> Option<Nanos>;

    /// Lets the next event happen. Commands that complete are appended to `done`.
    fn step(&mut self, done: &mut Vec<Done>);
}
