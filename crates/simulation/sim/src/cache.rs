//! `terapage sim cache`: a trace against caches, by policies and sizes. Recorded programs are
//! replayed by `policy.rs`, all other traces here.

mod show;
mod trace;

use crate::policy::Replay;
use crate::progress::Progress;
use crate::show::Show;
use anyhow::{bail, ensure};
use serde::Serialize;
use std::path::PathBuf;
use terapage_advise::is_recording;
use terapage_blocktrace::objects::{Columns, Listing};
use terapage_blocktrace::{BlockColumns, Format};
use terapage_config::Size;
use terapage_eviction::{FOR_PAGERS, all, known, least};
use terapage_figures::{temporary_directory, try_map};
use terapage_policy::replacement::NAMES;

use trace::Trace;

/// The smallest block, bytes: a sector.
const BLOCK_MIN: u64 = 512;
/// Bytes of a block, unless another size is asked for.
const BLOCK: u64 = 4 << 10;
/// The sizes that are used if none are given: shares of the distinct bytes that a trace asks for,
/// and of the most data that a recorded program had in use at once.
const SIZES: [&str; 6] = ["0.1%", "0.3%", "1%", "3%", "10%", "30%"];
const BUDGETS: [&str; 8] = ["20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%"];

/// What the requests of a trace refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum As {
    /// Blocks of one size, by address
    Blocks,
    /// Objects with individual sizes, by key
    Objects,
}

/// Columns of CSV.
#[derive(Clone, Debug)]
enum Named {
    /// Of objects.
    Objects(Columns),
    /// Of blocks.
    Blocks(BlockColumns),
}

impl std::str::FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let blocks = text.split(',').any(|part| part.trim_start().starts_with("offset="));
        if blocks { text.parse().map(Named::Blocks) } else { text.parse().map(Named::Objects) }
    }
}

/// Options of `cache`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  terapage sim cache --policy lru --size 100M requests.csv
  terapage sim cache --policy lru,arc,s3fifo --size 1%,5%,10%,20% --html curves.html trace.vscsi
  terapage sim cache --columns key=2,size=4,op=6 --size 1G cluster52.csv
  terapage sim cache --columns offset=lba:512,size=bytes,volume=disk --size 1% disks.csv
  terapage sim cache --format u64 --size 10000 keys.bin
  terapage sim cache --policy auto,lru --size 25%,1G --html app.html app.trace

Block traces are read as blocks, traces of keys as objects: CSV, a key per line, u32 and u64
(little-endian numbers), oraclegeneral. Objects without sizes are counted: --size 1000 is 1000
objects. Policies: lru, fifo, clock, s3fifo, 2q, arc, sieve, slru, lirs, wtinylfu, lfu, lfuda, gdsf,
hyperbolic, lhd, random, mru. The least possible figure is shown beside each one. An object keeps
the size with which it was inserted. The policy learns of each request, as in its paper, and every
object that misses is inserted.

A program that terapage run --trace recorded is replayed as the pager sees it, and compared with
Belady's optimum. Sizes are then budgets, or percentages of the most data in use at once.")]
pub struct Cache {
    /// The trace, compressed or not; - is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: PathBuf,
    /// Policies [default: all; auto, which is made for a pager and blocks with neighbours, only for
    /// recorded programs]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<String>,
    /// Sizes of the cache: bytes (100M), or percentages of the distinct bytes that the trace asks
    /// for [default: 0.1% to 30%; of recorded programs 20% to 90%]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    size: Vec<String>,
    /// The format: csv, keys, u32, u64, oraclegeneral, or a block trace's format; by default
    /// detected from the first bytes
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Columns of CSV by name or number: time=.., key=.., size=.., op=..; by default guessed from
    /// the first line. With offset=.. instead of key=.. lines are blocks, and columns have units,
    /// as in sim ssd
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<Named>,
    /// Read requests as blocks, or each request as an object named by its address and size
    #[arg(long = "as", value_name = "WHAT")]
    taken_as: Option<As>,
    /// Bytes of a block [default: 4K; for recorded programs as recorded, and several sizes can be
    /// given: the recorded one times powers of two]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    block: Vec<String>,
    /// Only for recorded programs: frames that are kept soft, per cent [default: as many as the
    /// pager keeps]
    #[arg(long, value_name = "PERCENT")]
    soft: Option<f64>,
    /// Only for recorded programs: the share of the blocks that is simulated, 0.001 to 1 [default:
    /// all, unless the trace is long]
    #[arg(long, value_name = "SHARE")]
    sample: Option<String>,
    /// Read only this volume of a block trace; can be given several times
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,
    /// Bytes of one address in arc and oraclegeneral traces that are read as blocks [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    unit: Option<u32>,
    #[command(flatten)]
    show: Show,
    /// Says what is read or simulated differently from the request.
    #[arg(skip)]
    notes: Vec<String>,
}

/// One cache.
#[derive(Serialize)]
struct Row {
    policy: String,
    cache_bytes: u64,
    /// Of the footprint.
    share: f64,
    requests: u64,
    misses: u64,
    bytes: u64,
    missed_bytes: u64,
    too_large: u64,
    byte_miss_ratio: f64,
    object_miss_ratio: f64,
    /// The misses that no policy can be below.
    least_misses: u64,
    /// Whether a policy that knows the future can reach these misses; otherwise they are only a
    /// bound.
    least_is_reached: bool,
    least_object_miss_ratio: f64,
}

/// All results.
#[derive(Serialize)]
struct Results {
    read_as: String,
    requests: u64,
    objects: u64,
    /// Distinct bytes: each object counts with its first size; or distinct objects, if they have no
    /// sizes.
    footprint_bytes: u64,
    block_bytes: Option<u64>,
    /// Says what was read or simulated differently from what was asked for.
    notes: Vec<String>,
    rows: Vec<Row>,
}

impl Cache {
    /// Runs the command.
    ///
    /// # Errors
    /// An error of the trace, or an unknown policy or size.
    pub fn run(self) -> anyhow::Result<()> {
        if is_recording(&self.trace) {
            return self.replay()?.run();
        }
        let recorded = self.soft.is_some() || self.sample.is_some();
        ensure!(!recorded, "--soft and --sample are for programs that terapage run --trace recorded");
        let names: Vec<&str> = all().filter(|known| known.sized).map(|known| known.name).collect();
        self.with_defaults(&names, &SIZES)?.simulated()
    }

    /// The replay of a recorded program.
    fn replay(self) -> anyhow::Result<Replay> {
        let others = self.format.is_some() || self.columns.is_some() || self.unit.is_some();
        let others = others || self.taken_as.is_some() || !self.volumes.is_empty();
        ensure!(
            !others,
            "--format, --columns, --as, --volume and --unit are for other traces: this one is a recorded program"
        );
        let policies: Vec<&str> = NAMES.iter().copied().chain(FOR_PAGERS).collect();
        let Cache { trace, policy, size, block, soft, sample, show, notes, .. } =
            self.with_defaults(&policies, &BUDGETS)?;
        let sample = sample.unwrap_or_else(|| "auto".to_owned());
        Ok(Replay { trace, size, policy, block, soft, sample, show, notes })
    }

    /// Adds policies and sizes if none were given. Given policies and sizes are checked.
    fn with_defaults(mut self, policies: &[&str], sizes: &[&str]) -> anyhow::Result<Cache> {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        if self.policy.is_empty() {
            self.policy = texts(policies);
        }
        if self.size.is_empty() {
            self.size = texts(sizes);
        }
        let names = all().map(|known| known.name).collect::<Vec<_>>().join(", ");
        for name in &mut self.policy {
            let Some(found) = known(name) else { bail!("--policy: '{name}' is unknown (one of {names})") };
            if found.name != *name {
                self.notes.push(format!("{name} is {}.", found.name));
            }
            found.name.clone_into(name);
        }
        Ok(self)
    }

    /// Bytes of a block.
    fn block_bytes(&self) -> anyhow::Result<u64> {
        let block = match &self.block[..] {
            [] => BLOCK,
            [text] => text.parse::<Size>().map_err(|error| anyhow::anyhow!("--block: {error}"))?.0,
            _ => bail!("--block: several sizes are only for recorded programs"),
        };
        ensure!(block >= BLOCK_MIN, "--block {}: a block has at least {BLOCK_MIN} bytes", Size(block));
        Ok(block)
    }

    /// Simulates a trace that is not a recorded program.
    fn simulated(mut self) -> anyhow::Result<()> {
        let block = self.block_bytes()?;
        self.show.check([self.trace.as_path()])?;
        let progress = Progress::endless("reading");
        let trace = self.read(block)?;
        let sized = |name: &String| known(name).is_some_and(|known| known.sized);
        if trace.block.is_none()
            && let Some(name) = self.policy.iter().find(|name| !sized(name))
        {
            bail!("--policy {name}: it is for blocks, not for objects");
        }
        self.check_used(&trace)?;
        let (objects, footprint) = trace.footprint();
        let sizes = self.sizes(&trace, footprint)?;
        progress.phase("simulating");
        progress.steps((sizes.len() * (self.policy.len() + 1)) as u64);
        let next = trace.requests.next_uses()?;
        let bounds = try_map(sizes.len(), |at| {
            let bound = least(&trace.requests, &next, (sizes[at] / trace.block.unwrap_or(1)) as usize);
            progress.add(1);
            bound
        })?;
        let kept = trace.requests.file_bytes() + next.file_bytes();
        drop(next);
        let rows = try_map(sizes.len() * self.policy.len(), |job| {
            let (policy, at) = (&self.policy[job / sizes.len()], job % sizes.len());
            let row = trace.row(policy, sizes[at], footprint, bounds[at]);
            progress.add(1);
            row
        })?;
        drop(progress);
        if kept > 0 {
            let place = temporary_directory();
            let note = format!("Temporary files used {} in {} (TMPDIR).", Size(kept), place.display());
            self.notes.push(note);
        }
        let requests = rows.first().map_or(0, |row| row.requests);
        let results = Results {
            read_as: trace.read_as.clone(),
            requests,
            objects,
            footprint_bytes: footprint,
            block_bytes: trace.block,
            notes: self.notes.clone(),
            rows,
        };
        let study = self.study(&trace, &results);
        self.show.results(&study, &results, || self.show.text(&study, false))
    }

    /// Refuses options that the trace has no use for.
    fn check_used(&self, trace: &Trace) -> anyhow::Result<()> {
        let read_as = trace.read_as.split(';').next().unwrap_or_default();
        ensure!(
            self.block.is_empty() || trace.block.is_some(),
            "--block: it is for blocks, and this trace was read as {read_as} (--as blocks reads \
             addresses)"
        );
        ensure!(
            self.volumes.is_empty() || trace.addressed,
            "--volume: it is for block traces, and this one was read as {read_as}"
        );
        let unit = trace.addressed && ["arc", Format::OracleGeneral.name()].contains(&read_as);
        ensure!(
            self.unit.is_none() || unit,
            "--unit: it is for arc and oraclegeneral traces as blocks, and this one was read as \
             {read_as}"
        );
        ensure!(
            self.columns.is_none() || read_as.starts_with(Listing::Csv.name()),
            "--columns: it is for CSV, and this trace was read as {read_as}"
        );
        Ok(())
    }

    /// Cache sizes, in bytes, ascending.
    fn sizes(&mut self, trace: &Trace, footprint: u64) -> anyhow::Result<Vec<u64>> {
        let unit = trace.block.unwrap_or(1);
        let of = |text: &String| -> anyhow::Result<u64> {
            let wrong = || anyhow::anyhow!("--size: '{text}' is not a size (write 100M, or 5%)");
            let bytes = match text.trim().strip_suffix('%') {
                None => text.parse::<Size>().map_err(|error| anyhow::anyhow!("--size: {error}"))?.0,
                Some(percent) => {
                    let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
                    ensure!(percent > 0.0 && percent <= 1000.0, wrong());
                    (footprint as f64 * percent / 100.0).round() as u64
                }
            };
            ensure!(bytes > 0 || text.contains('%'), wrong());
            Ok(bytes)
        };
        let mut sizes = Vec::new();
        for text in &self.size {
            let asked = of(text)?;
            let whole = (asked - asked % unit).max(unit);
            // A percentage is seldom a whole number, so rounding is mentioned only if it changes
            // the size by much.
            if whole != asked && (!text.contains('%') || whole.abs_diff(asked) > asked / 20) {
                let amount = |bytes| if trace.sized { Size(bytes).to_string() } else { format!("{bytes}") };
                let what = if trace.block.is_some() { "whole blocks" } else { "at least 1" };
                self.notes.push(format!("--size {text} is {} here: {what}.", amount(whole)));
            }
            sizes.push(whole);
        }
        sizes.sort_unstable();
        let asked = sizes.len();
        sizes.dedup();
        if sizes.len() < asked {
            self.notes.push(format!("{} sizes of {asked} are the same as others.", asked - sizes.len()));
        }
        Ok(sizes)
    }
}
