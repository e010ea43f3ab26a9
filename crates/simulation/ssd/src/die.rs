//! A die: its present work, and the work that waits for it.

use terapage_event::Nanos;

use crate::buffer::{List, NONE};

/// The phase of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    /// Transfers pages from the array into its registers, for reads.
    Sensing,
    /// Sends the first of the pages read over the channel.
    Sending,
    /// Receives the data of a program and programs it.
    Programming,
    Erasing,
    /// Transfers pages from the array into its registers, for the garbage collection.
    GcSensing,
    GcSending,
    /// Stops a program or an erase so that reads can go first.
    Suspending,
}

/// A page to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// A slot of the page.
    pub slot: u32,
    /// Bytes that go over the channel.
    pub channel_bytes: u32,
    /// Bytes for the host.
    pub host_bytes: u32,
    /// The reader of the page.
    pub reader: Reader,
    pub next: u32,
}

/// The reader of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Command(u32),
    /// An entry of the buffer, which is filled up.
    Entry(u32),
}

/// A list of reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    pub head: u32,
    pub tail: u32,
}

/// A block that is being written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub block: u32,
    /// The next slot of the block.
    pub used: u32,
}

/// A program under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Program {
    pub first_slot: u32,
    pub slots: u32,
    pub entries: List,
    pub collected: bool,
    /// The part of the capacity whose data these are, if they are the host's.
    pub part: u32,
}

/// The collection of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collection {
    pub victim: u32,
    /// The next page to examine, the same in all planes.
    pub page: u32,
    /// The first slot of the page that was read last.
    pub slot: u32,
    /// Units of that page that were valid when it was read.
    pub units: u32,
    /// The valid slots of the block when its collection began.
    pub valid: u32,
    /// Units moved so far.
    pub moved: u32,
    /// Slots of this die that the host has used meanwhile.
    pub host_slots: u32,
}

/// A program or an erase that stopped for reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    pub phase: Phase,
    pub remaining_ns: Nanos,
}

/// One die.
#[derive(Clone, Debug)]
pub(crate) struct Die {
    pub phase: Phase,
    /// Events with an earlier number are void: their operation was suspended.
    pub generation: u16,
    pub busy_since: Nanos,
    pub busy_ns: Nanos,
    /// The times at which the array begins to program or erase, and at which it ends.
    pub array: (Nanos, Nanos),
    /// The number of times that the present operation, running or suspended, was suspended.
    pub suspensions: u32,
    pub suspended: Option<Suspended>,
    pub waiting: Reads,
    pub current: Reads,
    pub reads_in_a_row: u32,
    pub program: Program,
    pub host: Option<Open>,
    /// The same of the further parts of the capacity whose data are kept apart.
    pub parts: Vec<Option<Open>>,
    /// The open block of SLC.
    pub slc: Option<Open>,
    pub collected: Option<Open>,
    pub collection: Option<Collection>,
    /// Units that were moved out of victims and are not yet programmed.
    pub moving: List,
    /// Valid units in the die's slots.
    pub valid: u32,
    /// The most valid units that the die may have.
    pub units_max: u32,
    /// Whether the block that was collected last was chosen for its wear.
    pub levelled: bool,
    /// The time since which the die is idle, if it is.
    pub idle_since: Nanos,
    /// Whether an event is pending that checks how long the die has been idle.
    pub idle_armed: bool,
    /// Whether it collects because it has been idle.
    pub idle_collects: bool,
}

impl Die {
    pub(crate) fn new(units_max: u32, parts: usize) -> Die {
        let none = Reads { head: NONE, tail: NONE };
        Die {
            phase: Phase::Idle,
            generation: 0,
            busy_since: 0,
            busy_ns: 0,
            array: (0, 0),
            suspensions: 0,
            suspended: None,
            waiting: none,
            current: none,
            reads_in_a_row: 0,
            program: Program::default(),
            host: None,
            parts: vec![None; parts],
            slc: None,
            collected: None,
            collection: None,
            moving: List::default(),
            valid: 0,
            units_max,
            levelled: false,
            idle_since: 0,
            idle_armed: false,
            idle_collects: false,
        }
    }

    /// The open block for the data of a part of the capacity.
    pub(crate) fn open_of(&mut self, part: u32) -> &mut Option<Open> {
        match part {
            0 => &mut self.host,
            part => &mut self.parts[part as usize - 1],
        }
    }
}
