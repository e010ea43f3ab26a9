//! The SSD as a device: it receives and completes commands, with events in between.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use slab::Slab;
use terapage_event::{Nanos, Queue};

use crate::blocks::Blocks;
use crate::buffer::{Buffer, List};
use crate::config::{Acknowledge, Config, ConfigError};
use crate::counters::Counters;
use crate::device::{Command, Device, Done, Operation};
use crate::die::{Die, Read};
use crate::front::{Bus, Entrance, TransferTimes};
use crate::geometry::Geometry;
use crate::map::Map;
use crate::precondition;

pub(crate) const SECTOR_BYTES: u64 = 512;

/// The random choice of bad blocks does not depend on that of the preconditioning.
const SEED_OF_BLOCKS: u64 = 0x6261_6462_6c6f_636b;

/// Lanes of events that seldom overtake one another: the beginnings and the ends of commands.
const BEGINS: usize = 0;
const ENDS: usize = 1;

/// An event. It has 8 bytes, since the event queue is a large part of the work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The controller begins to work on a command.
    Begin(u32),
    /// A command ends.
    End(u32),
    /// A die finishes its phase, if its generation is still this one.
    Die { die: u16, generation: u16 },
    /// A die may have been idle long enough to collect.
    Idle { die: u16 },
    /// An entry may have waited long enough in the buffer.
    Flush,
}

const _: () = assert!(size_of::<Event>() == 8);

/// A command inside the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub tag: u64,
    pub operation: Operation,
    /// The first byte and the end of the command.
    pub bytes: (u64, u64),
    /// The next unit of a write that is not yet in the buffer.
    pub unit: u32,
    /// Parts of the command that have not ended.
    pub remaining: u32,
    /// The time at which the parts that have completed so far have reached the host.
    pub delivered: Nanos,
}

/// A simulated flash SSD. [`Config`] describes its parts.
#[derive(Clone, Debug)]
pub struct Ssd {
    pub(crate) config: Config,
    pub(crate) geometry: Geometry,
    pub(crate) events: Queue<Event>,
    pub(crate) entrance: Entrance,
    pub(crate) active: Slab<Active>,
    pub(crate) reads: Slab<Read>,
    pub(crate) map: Map,
    pub(crate) blocks: Blocks,
    pub(crate) dies: Vec<Die>,
    pub(crate) channels: Vec<Bus>,
    pub(crate) bus_times: TransferTimes,
    pub(crate) buffer: Buffer,
    /// The host's entries that can be programmed, for each part of the capacity whose data are kept
    /// apart.
    pub(crate) waiting: Vec<List>,
    /// The first units of these parts, but of the first one.
    pub(crate) parts: Vec<u32>,
    /// The part that was programmed last.
    pub(crate) last_part: u32,
    /// The number of units for which the buffer still has room.
    pub(crate) buffer_room: u32,
    /// Writes that wait for room in the buffer.
    pub(crate) stalled: VecDeque<u32>,
    pub(crate) flush_armed: bool,
    /// Whether a die that has been idle for a while has something to do.
    pub(crate) rests: bool,
    pub(crate) idle_dies: u32,
    pub(crate) next_die: u32,
    pub(crate) counters: Counters,
    /// The random numbers for failures of blocks.
    pub(crate) random: SmallRng,
    #[cfg(test)]
    pub(crate) ledger: crate::tests::Ledger,
}

impl Ssd {
    /// Builds an SSD and preconditions it.
    pub fn new(config: &Config) -> Result<Ssd, ConfigError> {
        config.check()?;
        let geometry = Geometry::new(config)?;
        let first_unit = |byte: &u64| byte.div_ceil(u64::from(geometry.unit_bytes)) as u32;
        let parts: Vec<u32> = config.placements.iter().map(first_unit).collect();
        let mut random = SmallRng::seed_from_u64(config.seed ^ SEED_OF_BLOCKS);
        let mut ssd = Ssd {
            geometry,
            events: Queue::with_capacity(1024),
            entrance: Entrance::new(&config.front),
            active: Slab::with_capacity(256),
            reads: Slab::with_capacity(256),
            map: Map::new(geometry.units, geometry.slots()),
            blocks: Blocks::new(&geometry, &mut random),
            dies: vec![Die::new(geometry.die_units_max, parts.len()); geometry.dies as usize],
            channels: vec![Bus::default(); geometry.channels as usize],
            bus_times: TransferTimes::new(
                config.nand.bus_bytes_per_second,
                u64::from(geometry.row_slots) * u64::from(geometry.unit_bytes),
            ),
            buffer: Buffer::default(),
            waiting: vec![List::default(); parts.len() + 1],
            parts,
            last_part: 0,
            buffer_room: buffer_units(config, &geometry)?,
            stalled: VecDeque::new(),
            flush_armed: false,
            rests: config.idle_ns().is_some(),
            idle_dies: geometry.dies,
            next_die: 0,
            counters: Counters::default(),
            random,
            #[cfg(test)]
            ledger: crate::tests::Ledger::new(&geometry),
            config: config.clone(),
        };
        precondition::fill(&mut ssd);
        Ok(ssd)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters. Looks at each block, for the wear.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        let (mut least, mut most, mut sum, mut good) = (u32::MAX, 0, 0u64, 0u32);
        for erases in self.blocks.wear() {
            (least, most, sum) = (least.min(erases), most.max(erases), sum + u64::from(erases));
            good += 1;
        }
        let slc = self.geometry.slc_per_die * self.geometry.dies;
        counters.bad_blocks = (self.geometry.blocks() - slc - good) * self.geometry.planes;
        counters.wear_min = least;
        counters.wear_max = most;
        counters.wear_mean = sum as f64 / f64::from(good);
        counters.channel_busy_ns = self.channels.iter().map(|channel| channel.busy_ns()).collect();
        counters.die_busy_ns = self.dies.iter().map(|die| die.busy_ns).collect();
        counters
    }

    /// Flash beyond the capacity, as a share of the capacity, after rounding to whole blocks and
    /// without the additional blocks of each die.
    pub fn over_provisioning(&self) -> f64 {
        let slots: f64 = self.dies.iter().map(|die| f64::from(die.units_max)).sum();
        slots / f64::from(self.geometry.units) - 1.0
    }

    fn admit(&mut self, now: Nanos) {
        while let Some(command) = self.entrance.admit() {
            let active = &self.active[command as usize];
            let bytes = match active.operation {
                Operation::Write => active.bytes.1 - active.bytes.0,
                Operation::Read | Operation::Trim => 0,
            };
            let begin = self.entrance.begin(now, bytes);
            self.events.in_order(BEGINS, begin, Event::Begin(command));
        }
    }

    fn begin(&mut self, now: Nanos, command: u32) {
        match self.active[command as usize].operation {
            Operation::Read => self.begin_read(now, command),
            Operation::Write => self.begin_write(now, command),
            Operation::Trim => self.trim(now, command),
        }
    }

    /// A part of a command has ended.
    pub(crate) fn piece_ended(&mut self, now: Nanos, command: u32) {
        let active = &mut self.active[command as usize];
        active.remaining -= 1;
        if active.remaining == 0 {
            let end = active.delivered.max(now);
            self.events.in_order(ENDS, end, Event::End(command));
        }
    }

    fn end(&mut self, now: Nanos, command: u32, done: &mut Vec<Done>) {
        let active = self.active.remove(command as usize);
        let bytes = active.bytes.1 - active.bytes.0;
        match active.operation {
            Operation::Read => {
                self.counters.host_reads += 1;
                self.counters.host_read_bytes += bytes;
            }
            Operation::Write => {
                self.counters.host_writes += 1;
                self.counters.host_write_bytes += bytes;
            }
            Operation::Trim => self.counters.host_trims += 1,
        }
        done.push(Done { tag: active.tag, time: now });
        self.entrance.leave();
        self.admit(now);
    }

    pub(crate) fn acknowledges_early(&self) -> bool {
        self.config.acknowledge == Acknowledge::Buffered
    }
}

fn buffer_units(config: &Config, geometry: &Geometry) -> Result<u32, ConfigError> {
    // A write unit of each part whose data are kept apart: else all could wait for more.
    let least = u64::from(geometry.program_slots) * (config.placements.len() as u64 + 1);
    let units = match config.buffer_bytes {
        None => least.max(2 * u64::from(geometry.row_slots) * u64::from(geometry.dies)),
        Some(bytes) => bytes / u64::from(geometry.unit_bytes),
    };
    if units < least {
        let problem = format!(
            "{} bytes: must hold a write unit of each part of the data, {} bytes",
            config.buffer_bytes.unwrap_or(0),
            least * u64::from(geometry.unit_bytes)
        );
        return Err(ConfigError::Field { field: "buffer_bytes", problem });
    }
    Ok(units.min(1 << 30) as u32)
}

impl Device for Ssd {
    fn sectors(&self) -> u64 {
        u64::from(self.geometry.units) * u64::from(self.geometry.unit_bytes) / SECTOR_BYTES
    }

    fn submit(&mut self, now: Nanos, command: Command, _done: &mut Vec<Done>) {
        let end = command.sector.saturating_add(u64::from(command.sectors));
        assert!(command.sectors > 0 && end <= self.sectors(), "{command:?} goes beyond the device");
        let bytes = (command.sector * SECTOR_BYTES, end * SECTOR_BYTES);
        let active = self.active.insert(Active {
            tag: command.tag,
            operation: command.operation,
            bytes,
            unit: (bytes.0 / u64::from(self.geometry.unit_bytes)) as u32,
            remaining: 1,
            delivered: 0,
        });
        self.entrance.enqueue(command.tag, active as u32);
        self.admit(now);
    }

    fn foresee(&self, commands: &[Command]) {
        self.look_ahead(commands);
    }

    fn next_time(&self) -> Option<Nanos> {
        self.events.next_time()
    }

    fn step(&mut self, done: &mut Vec<Done>) {
        match self.events.pop() {
            Some((now, Event::Begin(command))) => self.begin(now, command),
            Some((now, Event::End(command))) => self.end(now, command, done),
            Some((now, Event::Die { die, generation })) => self.die_event(now, u32::from(die), generation),
            Some((now, Event::Idle { die })) => self.idle_event(now, u32::from(die)),
            Some((now, Event::Flush)) => self.flush(now),
            None => {}
        }
    }
}
