//! What every simulated device does: it takes commands and finishes them later.
//!
//! A device is a state machine that owns its pending events. Its user asks for the time of the next
//! one, and lets it happen when nothing else comes earlier. So devices stack: a cache is a device
//! over a device.

use terapage_event::Nanos;

/// What a command does with its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Gives their bytes.
    Read,
    /// Takes bytes for them.
    Write,
    /// Forgets them.
    Trim,
}

/// A command to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What the sender calls it; comes back in [`Done`].
    pub tag: u64,
    /// What it does.
    pub operation: Operation,
    /// The first sector of 512 bytes.
    pub sector: u64,
    /// How many sectors; not 0.
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
    /// Sectors of 512 bytes that it offers.
    fn sectors(&self) -> u64;

    /// Gives it `command` at time `now`, which is not before any time given or taken so far. A
    /// device has room for any number of commands: to limit them is the sender's part (queue
    /// depth).
    ///
    /// # Panics
    ///
    /// If the command goes beyond the device: senders check that first, with an error of their own.
    fn submit(&mut self, now: Nanos, command: Command, done: &mut Vec<Done>);

    /// These commands will come soon. A device may look up what they will need, all at once, so
    /// that it is in the processor's caches by then; nothing that can be seen changes.
    fn foresee(&self, _commands: &[Command]) {}

    /// When its next event is due; `None` when it is idle.
    fn next_time(&self) -> Option<Nanos>;

    /// Lets the next event happen. Commands that end with it are appended to `done`.
    fn step(&mut self, done: &mut Vec<Done>);
}
