//! Traces for a cache: how they are read, and how their requests are kept.

use super::{As, Cache, Named, Row};
use anyhow::{Context, ensure};
use hashbrown::HashMap;
use std::io;
use terapage_blocktrace::objects::{Columns, DELETED, Listing, ObjectOptions};
use terapage_blocktrace::{Format, Kind, Opened, Options};
use terapage_config::Size;
use terapage_eviction::{Log, by_name};
use terapage_policy::objects::{Outcome, Request, simulate};

/// Formats of block traces whose files may begin with names of columns.
const WITH_HEADERS: [Format; 3] = [Format::Msr, Format::Alibaba, Format::Systor17];

/// A trace, ready for a cache.
pub struct Trace {
    /// How the trace was read, in words.
    pub read_as: String,
    pub requests: Log,
    /// Bytes of each block, or `None` if objects have individual sizes.
    pub block: Option<u64>,
    /// Whether it is a block trace.
    pub addressed: bool,
    /// Whether objects have sizes. Objects without sizes are counted.
    pub sized: bool,
}

impl Cache {
    /// Reads the trace.
    ///
    /// # Errors
    /// The trace is wrong, or has no requests.
    pub(super) fn read(&self, block: u64) -> anyhow::Result<Trace> {
        let trace = self.read_any(block)?;
        // Without requests there is no miss ratio.
        ensure!(trace.requests.objects() > 0, "{}: there is no request in it", self.trace.display());
        Ok(trace)
    }

    fn read_any(&self, block: u64) -> anyhow::Result<Trace> {
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
            return self.read_requests(Opened::open(&self.trace)?, None, block);
        }
        let keys = listing.is_some_and(|listing| listing != Listing::OracleGeneral) || self.columns.is_some();
        ensure!(
            !keys || as_objects,
            "--as blocks: keys have no addresses; leave it out, or convert to a format of block traces"
        );
        let opened = Opened::open(&self.trace)?;
        let format =
            format.or_else(|| opened.format(&Options { unit_bytes: self.unit, ..Options::default() }));
        let named = opened.has_header() && !format.is_some_and(|format| WITH_HEADERS.contains(&format));
        if as_objects && (keys || listing.is_some() || named) {
            return self.read_keys(opened, listing.or(self.columns.as_ref().map(|_| Listing::Csv)));
        }
        match format {
            // The objects of libCacheSim's traces need not be addresses.
            Some(Format::OracleGeneral) if as_objects => self.read_keys(opened, Some(Listing::OracleGeneral)),
            None if as_objects => self.read_keys(opened, None),
            format => self.read_requests(opened, format, block),
        }
    }

    fn read_keys(&self, opened: Opened, listing: Option<Listing>) -> anyhow::Result<Trace> {
        let columns = match &self.columns {
            Some(Named::Objects(columns)) => columns.clone(),
            _ => Columns::default(),
        };
        let options = ObjectOptions { listing, columns };
        let mut requests = Log::default();
        let found = opened.objects(&options, |asked| {
            requests.push(match asked.bytes {
                DELETED => Request::Delete(asked.object),
                bytes => Request::Get(asked.object, bytes),
            })
        })?;
        let columns = if found.columns.is_empty() { String::new() } else { format!(", {}", found.columns) };
        let sizes = if found.sized { "with their own sizes" } else { "without sizes, so they are counted" };
        Ok(Trace {
            read_as: format!("{}{columns}; objects {sizes}", found.listing.name()),
            requests,
            block: None,
            addressed: false,
            sized: found.sized,
        })
    }

    fn read_requests(&self, opened: Opened, format: Option<Format>, block: u64) -> anyhow::Result<Trace> {
        let columns = match &self.columns {
            Some(Named::Blocks(columns)) => Some(columns.clone()),
            _ => None,
        };
        let (volumes, unit_bytes) = (self.volumes.clone(), self.unit);
        let options = Options { format, volumes, unit_bytes, columns, ..Options::default() };
        let mut reader = opened.reader(&options)?;
        let format = reader.meta().format;
        let blocks = self.taken_as != Some(As::Objects);
        let mut numbered = Numbered::default();
        for request in reader.by_ref() {
            let request = request?;
            let (volume, deleted) = (request.volume, request.kind == Kind::Trim);
            let asked = if blocks {
                let mut range = request.offset / block..request.end().div_ceil(block);
                range.try_for_each(|at| numbered.push((volume, at), 1, deleted))
            } else {
                numbered.push((volume, request.offset), request.bytes, deleted)
            };
            asked.with_context(|| self.trace.display().to_string())?;
        }
        let taken = if blocks {
            format!("blocks of {}", Size(block))
        } else {
            "each request an object, by its address".to_owned()
        };
        Ok(Trace {
            read_as: format!("{}; {taken}", format.name()),
            requests: numbered.in_order(),
            block: blocks.then_some(block),
            addressed: true,
            sized: true,
        })
    }
}

/// Requests for places, which become numbers.
#[derive(Default)]
struct Numbered {
    requests: Log,
    numbers: HashMap<(u16, u64), u32>,
}

impl Numbered {
    fn push(&mut self, key: (u16, u64), bytes: u32, deleted: bool) -> io::Result<()> {
        let next = u32::try_from(self.numbers.len());
        let next = next.map_err(|_| io::Error::other("it has more than 4 Gi different places"))?;
        let number = *self.numbers.entry(key).or_insert(next);
        self.requests.push(if deleted { Request::Delete(number) } else { Request::Get(number, bytes) })
    }

    /// With a number for each place in the order of addresses: neighbours stay neighbours.
    fn in_order(self) -> Log {
        let mut places: Vec<((u16, u64), u32)> = self.numbers.into_iter().collect();
        places.sort_unstable();
        let mut numbers = vec![0; places.len()];
        for ((_, number), place) in places.iter().zip(0..) {
            numbers[*number as usize] = place;
        }
        let mut requests = self.requests;
        requests.renumber(numbers);
        requests
    }
}

impl Trace {
    /// The number of distinct objects, and the bytes of their first sizes.
    pub fn footprint(&self) -> (u64, u64) {
        (self.requests.objects(), self.requests.footprint() * self.block.unwrap_or(1))
    }

    pub fn row(
        &self,
        name: &str,
        cache_bytes: u64,
        footprint: u64,
        (least, is_reached): (u64, bool),
    ) -> io::Result<Row> {
        let unit = self.block.unwrap_or(1);
        let capacity = (cache_bytes / unit) as usize;
        let mut policy = by_name(name, capacity).expect("names were checked");
        let outcome: Outcome = self.requests.replay(|requests| simulate(&mut *policy, requests, capacity))?;
        Ok(Row {
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
        })
    }
}
