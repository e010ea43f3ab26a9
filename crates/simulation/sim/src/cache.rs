//! `terapage sim cache`: a trace against caches, by policies and sizes. Recorded programs are
//! replayed by `policy.rs`, all other traces here.

use crate::policy::Replay;
use crate::progress::Progress;
use crate::publish::command_line;
use crate::show::Show;
use anyhow::{bail, ensure};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use terapage_advise::is_recording;
use terapage_blocktrace::objects::{self, Columns, DELETED, Listing, ObjectOptions};
use terapage_blocktrace::{BlockColumns, Error, Format, Kind, Options, Problem};
use terapage_config::Size;
use terapage_eviction::{all, by_name, known, least};
use terapage_figures::map;
use terapage_policy::objects::{Outcome, Request, simulate};
use terapage_policy::replacement::NAMES;
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

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
    /// Says what is read or simulated differently from what was asked for.
    #[arg(skip)]
    notes: Vec<String>,
}

/// A trace, ready for a cache.
struct Trace {
    /// How the trace was read, in words.
    read_as: String,
    requests: Vec<Request>,
    /// Bytes of each block, or `None` if objects have individual sizes.
    block: Option<u64>,
    /// Whether it is a block trace.
    addressed: bool,
    /// Whether objects have sizes. Objects without sizes are counted.
    sized: bool,
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
    /// Runs it.
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
        let Cache { trace, policy, size, block, soft, sample, show, .. } =
            self.with_defaults(NAMES, &BUDGETS)?;
        if let Some(name) = policy.iter().find(|name| !NAMES.contains(&name.as_str())) {
            bail!(
                "--policy {name}: it is not a policy of the pager, and recorded programs need one \
                 (one of {})",
                NAMES.join(", ")
            );
        }
        let sample = sample.unwrap_or_else(|| "auto".to_owned());
        Ok(Replay { trace, size, policy, block, soft, sample, show })
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
        let bounds = map(sizes.len(), |at| {
            let bound = least(&trace.requests, (sizes[at] / trace.block.unwrap_or(1)) as usize);
            progress.add(1);
            bound
        });
        let rows = map(sizes.len() * self.policy.len(), |job| {
            let (policy, at) = (&self.policy[job / sizes.len()], job % sizes.len());
            let row = trace.row(policy, sizes[at], footprint, bounds[at]);
            progress.add(1);
            row
        });
        drop(progress);
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

    fn read(&self, block: u64) -> anyhow::Result<Trace> {
        let listing = self.format.as_deref().and_then(|name| name.parse::<Listing>().ok());
        let format = match &self.format {
            Some(name) if listing.is_none() || name == Listing::OracleGeneral.name() => {
                let known = Listing::ALL.iter().map(|listing| listing.name());
                let blocks = Format::ALL.map(Format::name).into_iter().filter(|name| *name != "csv");
                let known = known.chain(blocks).collect::<Vec<_>>().join(", ");
                let format = name.parse::<Format>();
                Some(format.map_err(|_| anyhow::anyhow!("--format: '{name}' is unknown (one of {known})"))?)
            }
            _ => None,
        };
        let as_objects = self.taken_as != Some(As::Blocks);
        if matches!(self.columns, Some(Named::Blocks(_))) {
            let format = format.or(listing.and_then(|listing| listing.name().parse().ok()));
            let named = format.is_none_or(|format| format == Format::Csv);
            ensure!(named, "--columns offset=..: it is for CSV, and --format names another format");
            let trace = self.read_requests(None, block)?;
            return trace.ok_or_else(|| anyhow::anyhow!("--columns: the trace is not CSV"));
        }
        let keys = listing.is_some_and(|listing| listing != Listing::OracleGeneral) || self.columns.is_some();
        ensure!(
            !keys || as_objects,
            "--as blocks: keys have no addresses; leave it out, or convert to a format of block traces"
        );
        if as_objects && (keys || listing.is_some() || objects::has_header(&self.trace)) {
            return self.read_keys(listing.or(self.columns.as_ref().map(|_| Listing::Csv)));
        }
        match self.read_requests(format, block) {
            Ok(Some(trace)) => Ok(trace),
            Ok(None) => self.read_keys(Some(Listing::OracleGeneral)),
            Err(error) if as_objects && format.is_none() && is_unknown(&error) => self.read_keys(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_keys(&self, listing: Option<Listing>) -> anyhow::Result<Trace> {
        let columns = match &self.columns {
            Some(Named::Objects(columns)) => columns.clone(),
            _ => Columns::default(),
        };
        let options = ObjectOptions { listing, columns };
        let found = objects::read_objects(&self.trace, &options)?;
        let request = |asked: &objects::Asked| match asked.bytes {
            DELETED => Request::Delete(asked.object),
            bytes => Request::Get(asked.object, bytes),
        };
        let columns = if found.columns.is_empty() { String::new() } else { format!(", {}", found.columns) };
        let sizes = if found.sized { "with their own sizes" } else { "without sizes, so they are counted" };
        Ok(Trace {
            read_as: format!("{}{columns}; objects {sizes}", found.listing.name()),
            requests: found.asked.iter().map(request).collect(),
            block: None,
            addressed: false,
            sized: found.sized,
        })
    }

    /// Reads a block trace. It returns `None` for a trace of libCacheSim that was not asked for as
    /// blocks, since its objects need not be addresses.
    fn read_requests(&self, format: Option<Format>, block: u64) -> Result<Option<Trace>, Error> {
        let columns = match &self.columns {
            Some(Named::Blocks(columns)) => Some(columns.clone()),
            _ => None,
        };
        let (volumes, unit_bytes) = (self.volumes.clone(), self.unit);
        let options = Options { format, volumes, unit_bytes, columns, ..Options::default() };
        let mut reader = terapage_blocktrace::open(&self.trace, &options)?;
        let format = reader.meta().format;
        if format == Format::OracleGeneral && self.taken_as != Some(As::Blocks) {
            return Ok(None);
        }
        let blocks = self.taken_as != Some(As::Objects);
        // A number for each block in the order of addresses: neighbours stay neighbours.
        let mut asked: Vec<((u16, u64), u32)> = Vec::new();
        for request in reader.by_ref() {
            let request = request?;
            let deleted = request.kind == Kind::Trim;
            if blocks {
                let range = request.offset / block..request.end().div_ceil(block);
                asked.extend(range.map(|at| ((request.volume, at), if deleted { DELETED } else { 1 })));
            } else {
                let bytes = request.bytes.min(DELETED - 1);
                asked.push(((request.volume, request.offset), if deleted { DELETED } else { bytes }));
            }
        }
        let mut keys: Vec<(u16, u64)> = asked.iter().map(|asked| asked.0).collect();
        keys.sort_unstable();
        keys.dedup();
        let numbers: HashMap<(u16, u64), u32> = keys.iter().copied().zip(0..).collect();
        let request = |(key, bytes): &((u16, u64), u32)| match *bytes {
            DELETED => Request::Delete(numbers[key]),
            bytes => Request::Get(numbers[key], bytes),
        };
        let taken = if blocks {
            format!("blocks of {}", Size(block))
        } else {
            "each request an object, by its address".to_owned()
        };
        Ok(Some(Trace {
            read_as: format!("{}; {taken}", format.name()),
            requests: asked.iter().map(request).collect(),
            block: blocks.then_some(block),
            addressed: true,
            sized: true,
        }))
    }

    fn study(&self, trace: &Trace, results: &Results) -> Study {
        let amount = |bytes: u64| if trace.sized { Size(bytes).to_string() } else { bytes.to_string() };
        let what = if trace.block.is_some() { "blocks" } else { "objects" };
        let footprint =
            if trace.sized { format!(", {}", amount(results.footprint_bytes)) } else { String::new() };
        let mut summary = vec![format!(
            "{}: read as {}. {} requests for {} {what}{footprint}.",
            self.trace.display(),
            results.read_as,
            results.requests,
            results.objects,
        )];
        if let Some(row) = results.rows.iter().max_by_key(|row| row.too_large).filter(|row| row.too_large > 0)
        {
            summary.push(format!(
                "{} requests are for objects larger than a cache of {}: they are misses, and the objects are not kept.",
                row.too_large,
                amount(row.cache_bytes)
            ));
        }
        if self.policy.iter().any(|name| name == "auto") {
            summary.push(AUTO.to_owned());
        }
        summary.extend(best(results, amount));
        summary.extend(results.notes.iter().cloned());
        let row = |row: &Row| {
            vec![
                row.policy.clone(),
                amount(row.cache_bytes),
                format!("{:.2} %", row.share * 100.0),
                row.misses.to_string(),
                format!("{:.4}", row.byte_miss_ratio),
                format!("{:.4}", row.least_object_miss_ratio),
                format!("{:.4}", row.object_miss_ratio),
            ]
        };
        let columns = [
            "policy",
            "cache",
            "of what is asked for",
            "misses",
            "byte miss ratio",
            "least",
            "object miss ratio",
        ];
        let reached = results.rows.iter().all(|row| row.least_is_reached);
        let table = Table {
            title: "Miss ratios".into(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: results.rows.iter().map(row).collect(),
            note: if reached { LEAST_REACHED } else { LEAST_BOUND }.to_owned(),
        };
        Study {
            title: format!("A cache for {}", self.trace.display()),
            summary,
            command: command_line(),
            parameters: self.parameters(trace),
            plots: self.plots(results),
            tables: vec![table],
            ..Study::default()
        }
    }

    fn plots(&self, results: &Results) -> Vec<Plot> {
        let plot = |title: &str, of: fn(&Row) -> f64| {
            let series = |policy: &String| {
                let rows = results.rows.iter().filter(|row| row.policy == *policy);
                let points = rows.map(|row| (X::Number(row.share * 100.0), of(row))).collect();
                Series { name: policy.clone(), mark: Mark::Simulated, points, ..Series::default() }
            };
            Plot {
                title: title.into(),
                kind: PlotKind::Line,
                x: Axis { name: "cache".into(), unit: "% of what is asked for".into(), log: true },
                y: Axis { name: title.to_lowercase(), unit: String::new(), log: false },
                series: self.policy.iter().map(series).collect(),
                ..Plot::default()
            }
        };
        let mut objects = plot("Object miss ratio", |row| row.object_miss_ratio);
        let rows = results.rows.iter().filter(|row| row.policy == results.rows[0].policy);
        let points = rows.map(|row| (X::Number(row.share * 100.0), row.least_object_miss_ratio)).collect();
        objects.series.push(Series {
            name: "least possible".into(),
            mark: Mark::Simulated,
            points,
            ..Series::default()
        });
        vec![objects, plot("Byte miss ratio", |row| row.byte_miss_ratio)]
    }

    fn parameters(&self, trace: &Trace) -> Vec<Parameter> {
        let chosen = |name: &str, value: String, unit: &str, source: &str| Parameter {
            name: name.into(),
            value,
            unit: unit.into(),
            origin: Origin::Chosen,
            source: source.into(),
        };
        let mut parameters = vec![chosen(
            "policies",
            self.policy.join(", "),
            "",
            "--policy; docs/policies.md and docs/sim-cache.md say how each differs from its paper",
        )];
        if let Some(block) = trace.block {
            parameters.push(chosen("block", block.to_string(), "bytes", "--block"));
        }
        parameters
    }
}

/// Explains the column of the least misses.
const LEAST_REACHED: &str = "least: the object miss ratio of Belady's optimum, which knows the future.";
const LEAST_BOUND: &str =
    "least: an object miss ratio that no policy can be below (PFOO-L); none need reach it.";

/// A sentence on the best policy at the middle size.
fn best(results: &Results, amount: impl Fn(u64) -> String) -> Option<String> {
    let mut sizes: Vec<u64> = results.rows.iter().map(|row| row.cache_bytes).collect();
    sizes.sort_unstable();
    let middle = *sizes.get(sizes.len() / 2)?;
    let rows = results.rows.iter().filter(|row| row.cache_bytes == middle);
    let best = rows.clone().min_by_key(|row| row.misses)?;
    (rows.count() > 1).then(|| {
        format!(
            "With {} {} has the fewest misses: {:.4} of the requests, and the least possible are {:.4}.",
            amount(middle),
            best.policy,
            best.object_miss_ratio,
            best.least_object_miss_ratio
        )
    })
}

/// The note on `auto` if it is offered for traces.
pub const AUTO: &str = "auto is made for a pager: it judges neighbouring blocks together and learns of few touches. On block \
    traces it is often worse than LRU, and on some worse than FIFO.";

fn is_unknown(error: &Error) -> bool {
    matches!(error.problem(), Problem::Unknown { .. })
}

impl Trace {
    /// The number of distinct objects, and the bytes of their first sizes.
    fn footprint(&self) -> (u64, u64) {
        let mut seen: Vec<bool> = Vec::new();
        let (mut objects, mut bytes) = (0, 0);
        for request in &self.requests {
            let Request::Get(object, size) = *request else { continue };
            let at = object as usize;
            if at >= seen.len() {
                seen.resize((at + 1).next_power_of_two(), false);
            }
            if !std::mem::replace(&mut seen[at], true) {
                objects += 1;
                bytes += u64::from(size) * self.block.unwrap_or(1);
            }
        }
        (objects, bytes)
    }

    fn row(&self, name: &str, cache_bytes: u64, footprint: u64, (least, is_reached): (u64, bool)) -> Row {
        let unit = self.block.unwrap_or(1);
        let capacity = (cache_bytes / unit) as usize;
        let mut policy = by_name(name, capacity).expect("names were checked");
        let outcome: Outcome = simulate(&mut *policy, self.requests.iter().copied(), capacity);
        Row {
            policy: name.to_owned(),
            cache_bytes,
            share: cache_bytes as f64 / footprint.max(1) as f64,
            requests: outcome.requests,
            misses: outcome.misses,
            bytes: outcome.bytes * unit,
            missed_bytes: outcome.missed_bytes * unit,
            too_large: outcome.too_large,
            byte_miss_ratio: outcome.byte_miss_ratio(),
            object_miss_ratio: outcome.object_miss_ratio(),
            least_misses: least,
            least_is_reached: is_reached,
            least_object_miss_ratio: least as f64 / outcome.requests.max(1) as f64,
        }
    }
}
