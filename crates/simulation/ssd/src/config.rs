//! The configuration of an SSD.

use serde::{Deserialize, Serialize};
use terapage_event::{MICROSECOND, MILLISECOND, Nanos};

use crate::profile::{Profile, ProfileError};

/// How the next block to collect is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcPolicy {
    /// The block with the fewest valid pages.
    Greedy,
    /// The block with the most free space gained for each page moved, times the age of its data: (1
    /// - u) / 2u * age, after Kawaguchi, Nishioka, Motoda (1995).
    CostBenefit,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acknowledge {
    /// When it is in the write buffer: the buffer survives a loss of power.
    Buffered,
    /// When it is programmed: the buffer does not survive a loss of power.
    Programmed,
}

/// How commands come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// One queue, and a link that carries one direction at a time.
    Sata {
        /// The most commands in the device.
        depth: u32,
        /// The bandwidth of the link for data.
        bytes_per_second: u64,
        /// Time of the controller for a command.
        latency_ns: Nanos,
    },
    /// Several queues that are served in turn, and a link with both directions.
    Nvme {
        /// Queues; a command goes to queue `tag % queues`.
        queues: u32,
        /// The most commands in the device, from all queues.
        depth: u32,
        /// Bandwidth of the link, each direction.
        bytes_per_second: u64,
        /// Time of the controller for a command.
        latency_ns: Nanos,
    },
}

impl Front {
    /// SATA at 6 Gbit/s: 32 commands, 550 MB/s of data, 20 us for a command (estimated).
    pub fn sata() -> Front {
        Front::Sata { depth: 32, bytes_per_second: 550_000_000, latency_ns: 20 * MICROSECOND }
    }

    /// NVMe on four lanes of PCIe 3: 8 queues, 256 commands, 3.2 GB/s, 8 us for a command
    /// (estimated).
    pub fn nvme() -> Front {
        let (bytes_per_second, latency_ns) = (3_200_000_000, 8 * MICROSECOND);
        Front::Nvme { queues: 8, depth: 256, bytes_per_second, latency_ns }
    }

    /// A front that costs no time and has no limits: only the flash remains.
    pub fn instant() -> Front {
        Front::Nvme { queues: 1, depth: u32::MAX, bytes_per_second: u64::MAX, latency_ns: 0 }
    }
}

/// The contents of the SSD before the first command.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precondition {
    /// Nothing: all blocks are erased. To read a page that was never written gives zeros, without
    /// use of the flash.
    None,
    /// The first share of the pages, written once in order.
    Sequential {
        /// Of the capacity, 0 to 1.
        filled: f64,
    },
    /// The first share of the pages, in the steady state of uniform random writes.
    Steady {
        /// Of the capacity, 0 to 1.
        filled: f64,
    },
}

/// Collection in idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleCollection {
    /// A die begins after it has done nothing for this long.
    pub after_ns: Nanos,
    /// A die collects until it has this many free blocks (at least 2), or nothing is gained.
    pub free_blocks: u32,
}

/// The configuration of an SSD.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// The chips, and the bus to them.
    pub nand: Profile,
    /// Buses.
    pub channels: u32,
    /// Dies on each bus.
    pub dies_per_channel: u32,
    /// The bytes that the host sees, rounded up to whole mapping units.
    pub capacity_bytes: u64,
    /// Flash beyond the capacity, as a share of the capacity. Each die has two blocks more: one in
    /// reserve, and one for the parts of the two open blocks that are not yet written.
    pub over_provisioning: f64,
    /// The bytes of a mapping unit: a divisor of the page. `None` is the page.
    pub mapping_bytes: Option<u32>,
    /// The bytes of a codeword of the error correction: reads of less than a page move whole
    /// codewords over the bus.
    pub codeword_bytes: u32,
    /// How the next block to collect is chosen.
    pub gc: GcPolicy,
    /// Data bytes of the write buffer. `None`: two programs of all planes for each die.
    pub buffer_bytes: Option<u64>,
    /// When a write is acknowledged.
    pub acknowledge: Acknowledge,
    /// How long a page waits in the buffer for others of its write unit before it is programmed
    /// with padding. `None`: for ever, which needs [`Acknowledge::Buffered`].
    pub flush_after_ns: Option<Nanos>,
    /// Whether reads suspend a program or an erase.
    pub suspend: bool,
    /// Reads come before programs and erases. After this many reads in a row, a program or erase
    /// gets its turn.
    pub read_burst: u32,
    /// Collection in idle time. `None`: blocks are collected only because of writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_collection: Option<IdleCollection>,
    /// Static wear levelling: if the most worn block of a die was erased over this many times more
    /// often than the least worn one, the least worn one is collected, however full it is. `None`:
    /// wear is levelled only by the choice of free blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear_gap: Option<u32>,
    /// Share of the blocks of each die that are bad from the beginning. They come out of the
    /// over-provisioning.
    #[serde(skip_serializing_if = "is_zero")]
    pub bad_blocks: f64,
    /// The probability that an erase fails. The block is then retired, which also comes out of the
    /// over-provisioning, unless the die cannot do without it.
    #[serde(skip_serializing_if = "is_zero")]
    pub erase_failures: f64,
    /// Bytes of a cache of blocks that are written as SLC, beside all other flash; whole blocks of
    /// each die. What the host writes goes there while there is room, and is moved when a die is
    /// idle. 0: there is none.
    #[serde(skip_serializing_if = "is_none")]
    pub slc_cache_bytes: u64,
    /// The first byte of each part of the capacity but the first whose data the drive keeps in
    /// blocks of their own, ascending, as drives do that place data by hints (FDP). Collection
    /// mixes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<u64>,
    /// How commands come in.
    pub front: Front,
    /// The contents in the beginning.
    pub preconditioning: Precondition,
    /// The seed of the preconditioning.
    pub seed: u64,
}

impl Config {
    /// A drive of `capacity_bytes` with these chips: 4 channels of 2 dies, 7 % over-provisioning,
    /// greedy collection, a buffer that survives a loss of power, NVMe, in the steady state.
    pub fn new(nand: Profile, capacity_bytes: u64) -> Config {
        Config {
            nand,
            channels: 4,
            dies_per_channel: 2,
            capacity_bytes,
            over_provisioning: 0.07,
            mapping_bytes: None,
            codeword_bytes: 4096,
            gc: GcPolicy::Greedy,
            buffer_bytes: None,
            acknowledge: Acknowledge::Buffered,
            flush_after_ns: Some(MILLISECOND),
            suspend: false,
            read_burst: 64,
            idle_collection: None,
            wear_gap: None,
            bad_blocks: 0.0,
            erase_failures: 0.0,
            slc_cache_bytes: 0,
            placements: Vec::new(),
            front: Front::nvme(),
            preconditioning: Precondition::Steady { filled: 1.0 },
            seed: 1,
        }
    }

    /// The number of dies.
    pub fn dies(&self) -> u32 {
        self.channels.saturating_mul(self.dies_per_channel)
    }

    /// The bytes of a mapping unit.
    pub fn unit_bytes(&self) -> u32 {
        self.mapping_bytes.unwrap_or(self.nand.page_bytes)
    }

    /// Checks that such an SSD can be built.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.nand.check()?;
        let wrong = |field, problem: String| Err(ConfigError::Field { field, problem });
        if !(1..=1 << 16).contains(&self.dies()) {
            let problem = format!("{} x {}: must be 1 to 65536", self.channels, self.dies_per_channel);
            return wrong("channels x dies", problem);
        }
        if !self.over_provisioning.is_finite() || !(0.01..=100.0).contains(&self.over_provisioning) {
            let problem =
                format!("{} %: must be 1 to 10000 % of the capacity", self.over_provisioning * 100.0);
            return wrong("over-provisioning", problem);
        }
        let unit = self.unit_bytes();
        if !unit.is_power_of_two() || !(512..=self.nand.page_bytes).contains(&unit) {
            let problem = format!(
                "{unit} bytes: must be a power of two from 512 to the page's {}",
                self.nand.page_bytes
            );
            return wrong("mapping_bytes", problem);
        }
        if !self.codeword_bytes.is_power_of_two() || self.codeword_bytes < 512 {
            let problem = format!("{} bytes: must be a power of two from 512", self.codeword_bytes);
            return wrong("codeword_bytes", problem);
        }
        if self.capacity_bytes == 0 {
            return wrong("capacity", "0: an SSD holds something".to_owned());
        }
        if self.read_burst == 0 {
            return wrong("read_burst", "0: must be 1 or more".to_owned());
        }
        if self.acknowledge == Acknowledge::Programmed && self.flush_after_ns.is_none() {
            let problem = "none: writes that are acknowledged when programmed would wait for ever".to_owned();
            return wrong("flush_after_ns", problem);
        }
        if let Some(IdleCollection { free_blocks: blocks @ 0..2, .. }) = self.idle_collection {
            return wrong("idle-blocks", format!("{blocks} free blocks: must be 2 or more"));
        }
        if self.wear_gap == Some(0) {
            return wrong("wear-gap", "0 erases: must be 1 or more".to_owned());
        }
        for (field, share) in [("bad-blocks", self.bad_blocks), ("erase-failures", self.erase_failures)] {
            if !(0.0..1.0).contains(&share) {
                return wrong(field, format!("{} %: must be from 0 % to less than 100 %", share * 100.0));
            }
        }
        if self.slc_cache_bytes > 0 && self.nand.slc.is_none() {
            let problem =
                format!("{} has no times of SLC blocks (slc_read, slc_program, bits)", self.nand.name);
            return wrong("slc", problem);
        }
        let ascend = self.placements.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascend || self.placements.len() >= PLACEMENTS_MAX || self.placements.first() == Some(&0) {
            let problem =
                format!("{} parts: must ascend, and be at most {PLACEMENTS_MAX}", self.placements.len() + 1);
            return wrong("placements", problem);
        }
        if self.slc_cache_bytes > 0 && !self.placements.is_empty() {
            return wrong("placements", "a cache of SLC mixes the data: take one of the two".to_owned());
        }
        self.check_front()?;
        match self.preconditioning {
            Precondition::Steady { filled } | Precondition::Sequential { filled }
                if !(0.0..=1.0).contains(&filled) =>
            {
                wrong("preconditioning", format!("a share of {filled}: must be from 0 to 1"))
            }
            _ => Ok(()),
        }
    }

    fn check_front(&self) -> Result<(), ConfigError> {
        let (queues, depth, bytes_per_second) = match self.front {
            Front::Sata { depth, bytes_per_second, .. } => (1, depth, bytes_per_second),
            Front::Nvme { queues, depth, bytes_per_second, .. } => (queues, depth, bytes_per_second),
        };
        if !(1..=65536).contains(&queues) || depth == 0 || bytes_per_second < 1_000_000 {
            let problem = format!(
                "{queues} queues, {depth} commands, {bytes_per_second} bytes/s: 1 to 65536, 1 or more, 1 MB/s or more"
            );
            return Err(ConfigError::Field { field: "front", problem });
        }
        Ok(())
    }
}

/// The most parts whose data are kept apart: what drives offer today.
pub const PLACEMENTS_MAX: usize = 128;

fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

/// Why an SSD cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The chips are impossible.
    #[error(transparent)]
    Nand(#[from] ProfileError),
    /// A value is impossible.
    #[error("SSD: {field}: {problem}")]
    Field {
        /// The name of the value, for those that `terapage sim ssd` takes the name there.
        field: &'static str,
        /// The problem, and the allowed values.
        problem: String,
    },
}
