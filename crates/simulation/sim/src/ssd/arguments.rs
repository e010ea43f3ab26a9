//! The flags, and the setup that they describe.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::{ArgAction, Args, ValueEnum};
use terapage_config::Size;
use terapage_hybrid::{CacheKind, CacheOptions, Layout, Load, MemoryTiming, Setup, Storage};
use terapage_policy::replacement::NAMES;
use terapage_ssd::{
    Config, Front, GcPolicy, IdleCollection, Precondition, Profile, Provision, capacity_within,
};

use super::source::Source;
use crate::given::Given;
use crate::quantity::{CacheSize, Share, Time};
use crate::set::{Set, yes};
use crate::show::Show;
use crate::trace::ReadArgs;

/// The profiles that `--nand all` compares: the four of the paper, and TLC and QLC of today. All
/// are compared with the first.
pub const ALL: [&str; 6] =
    ["2d-fg-mlc", "2d-fg-tlc", "3d-fg-tlc", "3d-ct-tlc", "samsung-96l", "intel-144l-qlc"];

/// The least capacity of an SSD that takes its capacity from the trace. Chosen, not measured.
const CAPACITY_MIN: u64 = 1 << 30;
/// The least super-blocks of a die of such an SSD: with very few, write amplification differs from
/// that of any real drive. Chosen, not measured.
pub const BLOCKS_MIN: u64 = 50;
/// The spare flash of such an SSD differs by at most this share from the one that was asked for.
const NEAR: f64 = 0.02;
/// An SSD is refused if its spare flash differs by more than this share from what was asked for.
const TOLERANCE: f64 = 0.1;

/// The time of an access to the cache, and that of 512 bytes more: of SCM, and of memory behind
/// CXL.
const SCM: (Time, Time) = (Time { ns: 0 }, Time { ns: 100 });
const CXL: (Time, Time) = (Time { ns: 275 }, Time { ns: 23 });

/// The cache between the host and the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheArgument {
    /// SCM that takes writes, and copies of reads
    NvWb,
    /// SCM that takes only writes
    WriteOnly,
    /// SCM that takes writes, and copies of reads while much is free (copy-above)
    Space,
    /// As nv-wb, in DRAM: dirty lines are flushed after a while, and lost if the power fails first
    Dram,
    /// As dram, in memory that is attached by CXL
    Cxl,
    /// No flash: SCM holds everything
    ScmOnly,
    /// No cache: all is flash
    None,
}

/// Where the volumes of a trace lie on the SSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutArgument {
    /// The pieces of 1 MiB that the trace touches, in the order of addresses
    Packed,
    /// As in the trace
    AsIs,
}

/// How the host is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FrontArgument {
    /// One queue of 32, 550 MB/s, 20 us a command
    Sata,
    /// 8 queues, 3.2 GB/s each way, 8 us a command
    Nvme,
}

/// The data that share a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementArgument {
    /// All data, in order of arrival
    Mixed,
    /// Those of one volume of the trace, as if each volume wrote by its own handle (FDP)
    Volumes,
}

/// The block that garbage collection chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GcArgument {
    /// The block with the fewest valid pages
    Greedy,
    /// By space gained, pages moved and age
    CostBenefit,
}

/// The contents of the flash before the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreconditionArgument {
    /// Full, in the steady state of random writes
    Steady,
    /// Full, written once in order
    Sequential,
    /// Nothing
    Fresh,
}

/// Replay block traces on SSDs of NAND flash with a cache of SCM or DRAM: IOPS, latencies, hits,
/// traffic to the flash.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  terapage sim ssd --nand all hm_0.csv.gz
  terapage sim ssd --nand 3d-ct-tlc --scm 5%nand --set scm-latency=1us --depth 1 hm_0.csv.gz
  terapage sim ssd --cache none --set open=yes --set speed=2 --set front=sata trace.csv
  terapage sim ssd --cache none --nand intel-144l-qlc --set slc=4G --set precondition=sequential swap.csv
  terapage sim ssd --nand all --requests 2000000 --html report.html prxy_0.csv hm_0.csv

docs/sim-ssd.md says what is simulated, and gives the origin of each default.")]
pub struct Ssd {
    #[command(flatten)]
    pub(super) given: Given,
    /// Block traces, compressed or not; - is standard input, which is kept (24 bytes per request),
    /// in a temporary file if it is long
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// The chips: a profile's name, a .toml file, several with commas, or all for the four of the
    /// paper and two of today
    #[arg(long, value_name = "NAME", default_value = "3d-ct-tlc", value_delimiter = ',')]
    pub nand: Vec<String>,
    /// The cache between host and flash
    #[arg(long, value_enum, default_value = "nv-wb")]
    pub cache: CacheArgument,
    /// Size of the cache: 5% of the bytes that the trace touches, 5%nand of the capacity, or bytes
    /// (64M); 0 for none
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    pub scm: CacheSize,
    /// The policy that chooses the lines to evict. auto is made for a pager, and often worse than
    /// lru here
    #[arg(long, value_name = "NAME", default_value = "lru", value_parser = NAMES.to_vec())]
    pub policy: String,
    /// Keep this many requests under way
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub depth: u32,
    /// Bytes of the SSD [default: as the layout needs, at least 1G and 50 super-blocks per die]
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<Size>,
    /// Requests of each trace, at most
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Seed of the flash's random state at the start
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Prices and rated erases of chips, for what the money buys: [[price]] tables with nand,
    /// price, capacity and erases
    #[arg(long, value_name = "FILE.toml", value_hint = clap::ValueHint::FilePath)]
    pub prices: Option<PathBuf>,
    #[command(flatten)]
    pub(super) set: Set<Model>,
    #[command(flatten)]
    pub(super) read: ReadArgs,
    #[command(flatten)]
    pub(super) show: Show,
}

/// The parameters of the model that have no flags.
#[derive(Args, Clone, Debug)]
pub struct Model {
    /// Time of the cache for 512 bytes [default: 100ns; of --cache cxl 23ns]
    #[arg(long, value_name = "TIME")]
    pub scm_latency: Option<Time>,
    /// Time of an access to the cache before its first byte [default: 0ns; of --cache cxl 275ns]
    #[arg(long, value_name = "TIME")]
    pub scm_access: Option<Time>,
    /// Banks of the cache that work side by side
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub scm_banks: u32,
    /// Bytes per second to and from the cache; 0 for no limit
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub scm_bandwidth: Size,
    /// Bytes of a line of the cache, 512 to 16K
    #[arg(long, value_name = "BYTES", default_value = "4K")]
    pub line: Size,
    /// Bytes of an aligned unit whose dirty lines are evicted together [default: the flash's page]
    #[arg(long, value_name = "BYTES")]
    pub evict: Option<Size>,
    /// Whether clean neighbours in the cache are written together with dirty sectors
    #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "yes")]
    pub pad: bool,
    /// Whether whole lines are read if sectors are missing
    #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "no")]
    pub whole_lines: bool,
    /// Evict when this share of the cache, or less, is free
    #[arg(long, value_name = "SHARE", default_value = "20%")]
    pub low_water: Share,
    /// Evict until this share is free [default: the low-water mark]
    #[arg(long, value_name = "SHARE")]
    pub high_water: Option<Share>,
    /// With --cache space: copy reads while more than this share is free
    #[arg(long, value_name = "SHARE", default_value = "30%")]
    pub copy_above: Share,
    /// With --cache dram or cxl: flush lines that have been dirty for this long
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub flush_after: Time,
    /// Whether requests are sent at their time stamps, instead of keeping --depth of them under way
    #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "no")]
    pub open: bool,
    /// With open: time stamps are divided by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// Where the volumes of a trace lie on the SSD
    #[arg(long, value_enum, default_value = "packed")]
    pub layout: LayoutArgument,
    /// Whether addresses beyond the capacity wrap around to its beginning
    #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "no")]
    pub wrap: bool,
    /// Buses to the flash
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub channels: u32,
    /// Dies on each bus
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub dies: u32,
    /// Flash beyond the capacity, as a share of the capacity
    #[arg(long, value_name = "SHARE", default_value = "7%")]
    pub over_provisioning: Share,
    /// Garbage collection
    #[arg(long, value_enum, default_value = "greedy")]
    pub gc: GcArgument,
    /// Collect blocks of a die that has been idle for this time
    #[arg(long, value_name = "TIME")]
    pub idle_gc: Option<Time>,
    /// With idle-gc: until each die has this many free blocks
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub idle_blocks: u32,
    /// Collect a block with little wear if others were erased more than N times more often
    #[arg(long, value_name = "N")]
    pub wear_gap: Option<u32>,
    /// Share of the blocks that are bad from the start; they are part of the over-provisioning
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub bad_blocks: Share,
    /// Share of the erases that fail; the block is then retired if other blocks are free
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub erase_failures: Share,
    /// Flash that is written as SLC first, while there is room, and emptied when idle
    #[arg(long, value_name = "BYTES", default_value = "0")]
    pub slc: Size,
    /// Which data share blocks of the flash
    #[arg(long, value_enum, default_value = "mixed")]
    pub placement: PlacementArgument,
    /// Contents of the flash at the start
    #[arg(long, value_enum, default_value = "steady")]
    pub precondition: PreconditionArgument,
    /// How the host is connected
    #[arg(long, value_enum, default_value = "nvme")]
    pub front: FrontArgument,
    /// Share of the requests that is not measured
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    pub warm_up: Share,
}

impl Ssd {
    /// Whether flash is all there is.
    pub(super) fn has_no_cache(&self) -> bool {
        self.cache == CacheArgument::None || self.scm == CacheSize::Bytes(0)
    }

    pub(super) fn front(&self) -> Front {
        match self.set.front {
            FrontArgument::Sata => Front::sata(),
            FrontArgument::Nvme => Front::nvme(),
        }
    }

    pub(super) fn profiles(&self) -> anyhow::Result<Vec<Profile>> {
        let mut profiles: Vec<Profile> = Vec::new();
        for name in &self.nand {
            let names: &[&str] = if name == "all" { &ALL } else { &[name] };
            for name in names {
                let profile = Profile::find(name)?;
                if !profiles.iter().any(|known| known.name == profile.name) {
                    profiles.push(profile);
                }
            }
        }
        Ok(profiles)
    }

    pub(super) fn layout(&self) -> Layout {
        match self.set.layout {
            LayoutArgument::Packed => Layout::Packed,
            LayoutArgument::AsIs => Layout::AsIs,
        }
    }

    pub(super) fn line_bytes(&self) -> anyhow::Result<u32> {
        let Size(bytes) = self.set.line;
        match u32::try_from(bytes) {
            Ok(bytes) if bytes.is_power_of_two() && (512..=16384).contains(&bytes) => Ok(bytes),
            _ => bail!("line={}: a line must be a power of two from 512 to 16K", self.set.line),
        }
    }

    /// Refuses parameters that would have no effect.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.set.open || self.set.speed == 1.0,
            "speed: it is for requests by time stamps \
                                                         (open=yes)"
        );
        let idle = self.set.idle_gc.is_some() || !self.given.has("--set idle-blocks");
        ensure!(idle, "idle-blocks: it is for collection by idle dies (idle-gc=TIME)");
        Ok(())
    }

    /// The capacity of SSDs with each of `nands` for the trace of `source`. All of them have the
    /// same capacity, so that they can be compared.
    pub(super) fn capacity(&self, nands: &[Profile], source: &Source) -> anyhow::Result<u64> {
        let least = source.device_bytes().max(CAPACITY_MIN);
        if self.cache == CacheArgument::ScmOnly {
            return Ok(self.capacity.map_or(least, |Size(bytes)| bytes));
        }
        let Some(Size(bytes)) = self.capacity else {
            let drives: Vec<Config> = nands.iter().map(|nand| self.ssd(nand, least)).collect();
            let blocks = drives.iter().map(|drive| drive.stripe_bytes().saturating_mul(BLOCKS_MIN)).max();
            let least = least.max(blocks.unwrap_or(0));
            return Ok(capacity_within(&drives, least, NEAR).unwrap_or(least));
        };
        let drives: Vec<Config> = nands.iter().map(|nand| self.ssd(nand, bytes)).collect();
        for drive in &drives {
            let built = drive.provision()?;
            if !built.is_within(TOLERANCE) {
                bail!("{}", refusal(drive, &built, capacity_within(&drives, bytes, TOLERANCE)));
            }
        }
        Ok(bytes)
    }

    /// The SSD with `nand` and this capacity for the trace of `source`.
    pub(super) fn setup(&self, nand: &Profile, source: &Source, capacity: u64) -> anyhow::Result<Setup> {
        let requests = source.survey.requests;
        let mut ssd = self.ssd(nand, capacity);
        if self.set.placement == PlacementArgument::Volumes {
            ssd.placements = source.volumes();
        }
        Ok(Setup {
            storage: self.storage(&ssd, source)?,
            ssd,
            load: match self.set.open {
                true => Load::Open { speed: self.set.speed },
                false => Load::Closed { depth: self.depth },
            },
            warm_up: (requests as f64 * self.set.warm_up.0).floor() as u64,
            wrap: self.set.wrap,
        })
    }

    fn ssd(&self, nand: &Profile, capacity: u64) -> Config {
        Config {
            channels: self.set.channels,
            dies_per_channel: self.set.dies,
            over_provisioning: self.set.over_provisioning.0,
            gc: match self.set.gc {
                GcArgument::Greedy => GcPolicy::Greedy,
                GcArgument::CostBenefit => GcPolicy::CostBenefit,
            },
            idle_collection: self
                .set
                .idle_gc
                .map(|time| IdleCollection { after_ns: time.ns, free_blocks: self.set.idle_blocks }),
            wear_gap: self.set.wear_gap,
            bad_blocks: self.set.bad_blocks.0,
            erase_failures: self.set.erase_failures.0,
            slc_cache_bytes: self.set.slc.0,
            front: self.front(),
            preconditioning: match self.set.precondition {
                PreconditionArgument::Steady => Precondition::Steady { filled: 1.0 },
                PreconditionArgument::Sequential => Precondition::Sequential { filled: 1.0 },
                PreconditionArgument::Fresh => Precondition::None,
            },
            seed: self.seed,
            ..Config::new(nand.clone(), capacity)
        }
    }

    /// Whether the cache loses its contents with the power.
    pub(super) fn is_volatile(&self) -> bool {
        matches!(self.cache, CacheArgument::Dram | CacheArgument::Cxl)
    }

    /// The times of the cache.
    pub(super) fn memory(&self) -> MemoryTiming {
        let (access, latency) = if self.cache == CacheArgument::Cxl { CXL } else { SCM };
        MemoryTiming {
            access_ns: self.set.scm_access.unwrap_or(access).ns,
            latency_ns: self.set.scm_latency.unwrap_or(latency).ns,
            banks: self.set.scm_banks,
            bandwidth: self.set.scm_bandwidth.0,
        }
    }

    fn storage(&self, ssd: &Config, source: &Source) -> anyhow::Result<Storage> {
        let memory = self.memory();
        let kind = match self.cache {
            CacheArgument::NvWb => CacheKind::NvWb,
            CacheArgument::WriteOnly => CacheKind::WriteOnly,
            CacheArgument::Space => CacheKind::Space,
            CacheArgument::Dram | CacheArgument::Cxl => CacheKind::Dram,
            CacheArgument::ScmOnly => return Ok(Storage::Scm(memory)),
            CacheArgument::None => return Ok(Storage::Nand),
        };
        let bytes = self.scm.bytes(source.survey.footprint_bytes, ssd.capacity_bytes);
        let line_bytes = self.line_bytes()?;
        if bytes == 0 && self.scm == CacheSize::Bytes(0) {
            return Ok(Storage::Nand);
        }
        // Whole lines, as in reports. A share of a small trace can be less than a line, but a cache
        // has at least one line.
        let line = u64::from(line_bytes);
        let bytes = match self.scm {
            CacheSize::Bytes(bytes) if bytes < line => bytes,
            _ => (bytes - bytes % line).max(line),
        };
        let evict =
            self.set.evict.map_or(u64::from(ssd.nand.page_bytes.max(line_bytes)), |Size(bytes)| bytes);
        Ok(Storage::Cached(CacheOptions {
            kind,
            bytes,
            line_bytes,
            evict_bytes: u32::try_from(evict).context("evict: the unit is too large")?,
            pad: self.set.pad,
            whole_lines: self.set.whole_lines,
            low_water: self.set.low_water.0,
            high_water: self.set.high_water.unwrap_or(self.set.low_water).0,
            copy_above: self.set.copy_above.0,
            policy: self.policy.clone(),
            memory,
            flush_after_ns: self.set.flush_after.ns,
        }))
    }
}

/// Says why a drive is refused: its spare flash is too far from what was asked for.
fn refusal(drive: &Config, built: &Provision, other: Option<u64>) -> String {
    let percent = |share: f64| (share * 1e3).round() / 10.0;
    let remedy = match other {
        Some(bytes) => format!("--capacity {}M would do", bytes >> 20),
        None => "give it more over-provisioning".to_owned(),
    };
    format!(
        "--capacity {}: with {} it would have {} % of spare flash, not {} %: a die has whole super-blocks, {} of {}; {remedy}",
        Size(drive.capacity_bytes),
        drive.nand.name,
        percent(built.spare),
        percent(built.spare_asked),
        built.blocks_per_die,
        Size(built.super_block_bytes),
    )
}
