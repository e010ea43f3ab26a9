//! A profile as a report.

use super::sketch;
use super::{ALIGNMENTS, Histogram, Mix, Profile};
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

/// The number of volumes that are named.
const VOLUMES_SHOWN: usize = 10;

impl Profile {
    /// The profile as a report; `command` produces it again.
    pub fn study(&self, command: &str) -> Study {
        let name = if self.meta.name.is_empty() { &self.meta.file } else { &self.meta.name };
        Study {
            title: format!("Block trace {name}"),
            summary: self.summary(),
            command: command.to_string(),
            parameters: self.parameters(),
            plots: self.plots(),
            tables: self.tables(),
            ..Study::default()
        }
    }

    fn summary(&self) -> Vec<String> {
        let mut summary = vec![self.what(), self.where_and_when()];
        if self.meta.synthetic {
            summary.push("The trace is synthetic: it was made up, not recorded.".to_string());
        }
        if !self.meta.comment.is_empty() {
            summary.push(self.meta.comment.clone());
        }
        if !self.meta.format.has_kinds() {
            let format = self.meta.format;
            summary.push(format!(
                "The format {format} does not tell reads from writes: all are taken for reads."
            ));
        }
        if self.sample_rate < 1.0 {
            let (one_in, error) = (1.0 / self.sample_rate, 100.0 * self.sample_error());
            summary.push(format!(
                "Footprint and reuse are estimates (SHARDS): one block in {one_in} was followed, {} blocks in all, \
                 a standard error of {error:.2}% in the number of blocks.",
                self.sampled_blocks
            ));
        }
        summary.extend(self.warnings());
        summary
    }

    fn what(&self) -> String {
        let packed = self.meta.compression.map_or(String::new(), |by| format!(", {by:?}").to_lowercase());
        let volumes = self.volumes.len();
        let plural = if volumes == 1 { "" } else { "s" };
        let (format, requests) = (self.meta.format, self.requests());
        format!("Format {format}{packed}; {requests} requests to {volumes} volume{plural}.")
    }

    fn where_and_when(&self) -> String {
        let footprint = bytes(self.footprint_blocks * f64::from(self.block_bytes));
        let touched = format!("They touch {footprint} of the first {}", bytes(self.end_bytes as f64));
        if self.duration_ns == 0 {
            return format!(
                "{touched}. {}",
                if self.has_times() { "All came at once." } else { "There are no times." }
            );
        }
        let seconds = self.duration_ns as f64 / 1e9;
        let rate = self.requests() as f64 / seconds;
        format!("{touched}, in {} ({rate:.1} requests/s).", duration(self.duration_ns))
    }

    /// The records that the reader skipped or changed.
    fn warnings(&self) -> Vec<String> {
        let counts = &self.counts;
        let mut warnings = Vec::new();
        if counts.skipped > 0 {
            warnings.push(format!("Bad records that were skipped: {}.", counts.skipped));
        }
        if counts.late > 0 {
            let most = duration(counts.late_ns_max);
            warnings.push(format!(
                "Times that went back and count as simultaneous: {}, by {most} at most.",
                counts.late
            ));
        }
        if counts.unwanted > 0 {
            warnings.push(format!("Requests to other volumes that were left out: {}.", counts.unwanted));
        }
        if counts.other > 0 {
            warnings.push(format!("Records that are no requests for data: {}.", counts.other));
        }
        warnings
    }

    fn parameters(&self) -> Vec<Parameter> {
        let parameter = |name: &str, value: String, unit: &str| Parameter {
            name: name.to_string(),
            value,
            unit: unit.to_string(),
            origin: Origin::Chosen,
            source: String::new(),
        };
        vec![
            parameter("block", self.block_bytes.to_string(), "B"),
            parameter("share of blocks followed", self.sample_rate.to_string(), ""),
        ]
    }

    fn mixes(&self) -> Vec<(&'static str, &Mix)> {
        let all = [("read", &self.reads), ("write", &self.writes), ("trim", &self.trims)];
        all.into_iter().filter(|(_, mix)| mix.requests > 0).collect()
    }

    fn mark(&self) -> Mark {
        if self.meta.synthetic { Mark::Synthetic } else { Mark::Simulated }
    }

    fn tables(&self) -> Vec<Table> {
        let mut tables =
            vec![self.mix_table(), self.alignment_table(), self.size_table(), self.block_table()];
        if self.duration_ns > 0 {
            tables.push(self.gap_table());
        }
        if self.references > 0 {
            tables.push(self.lru_table());
        }
        if self.volumes.len() > 1 {
            tables.push(self.volume_table());
        }
        tables
    }

    fn mix_table(&self) -> Table {
        let total = self.requests();
        let row = |(name, mix): (&str, &Mix)| {
            vec![
                name.to_string(),
                mix.requests.to_string(),
                percent(mix.requests, total),
                bytes(mix.bytes as f64),
                bytes(mix.sizes.mean()),
                bytes(mix.sizes.quantile(0.5) as f64),
                percent(mix.sequential, mix.requests),
                percent(mix.nearly_sequential, mix.requests),
            ]
        };
        Table {
            title: "Requests".into(),
            columns: columns(&["kind", "requests", "share", "data", "mean", "median", "sequential", "nearly"]),
            rows: self.mixes().into_iter().map(row).collect(),
            note: "Sequential: begins where the request before on its volume ended; nearly: where one of the 32 before \
                   did. The median is within a sixteenth."
                .into(),
        }
    }

    fn alignment_table(&self) -> Table {
        let row = |(name, mix): (&str, &Mix)| {
            let shares = mix.aligned.iter().map(|count| percent(*count, mix.requests));
            std::iter::once(name.to_string()).chain(shares).collect()
        };
        let names = ALIGNMENTS.iter().map(|alignment| bytes(*alignment as f64));
        Table {
            title: "Alignment".into(),
            columns: std::iter::once("kind".to_string()).chain(names).collect(),
            rows: self.mixes().into_iter().map(row).collect(),
            note: "Requests whose offset and length are both multiples.".into(),
        }
    }

    fn size_table(&self) -> Table {
        let mut powers: Vec<u64> =
            self.mixes().iter().flat_map(|(_, mix)| mix.sizes.powers()).map(|(power, _)| power).collect();
        powers.sort_unstable();
        powers.dedup();
        let row = |power: u64| {
            let count =
                |mix: &Mix| mix.sizes.powers().iter().find(|(at, _)| *at == power).map_or(0, |(_, c)| *c);
            let counts = self.mixes().into_iter().map(|(_, mix)| percent(count(mix), mix.requests));
            std::iter::once(bytes(power as f64)).chain(counts).collect()
        };
        Table {
            title: "Sizes".into(),
            columns: std::iter::once("up to")
                .chain(self.mixes().iter().map(|(name, _)| *name))
                .map(String::from)
                .collect(),
            rows: powers.into_iter().map(row).collect(),
            note: "Each line has the requests longer than the line before says; ends are within a sixteenth."
                .into(),
        }
    }

    fn block_table(&self) -> Table {
        let row = |name: &str, blocks: f64| {
            vec![name.to_string(), format!("{blocks:.0}"), bytes(blocks * f64::from(self.block_bytes))]
        };
        let exact = if self.sample_rate == 1.0 { "Exact" } else { "Estimated" };
        Table {
            title: "Footprint".into(),
            columns: columns(&["blocks", "number", "data"]),
            rows: vec![
                row("read", self.read_blocks),
                row("written", self.written_blocks),
                row("read or written", self.footprint_blocks),
            ],
            note: format!("{exact}, in blocks of {}.", bytes(f64::from(self.block_bytes))),
        }
    }

    fn gap_table(&self) -> Table {
        let quantile = |share| duration(self.gaps_ns.quantile(share));
        Table {
            title: "Time between requests".into(),
            columns: columns(&["mean", "variation", "median", "90%", "99%", "99.9%", "most"]),
            rows: vec![vec![
                duration(self.gaps_ns.mean() as u64),
                format!("{:.2}", self.gaps_ns.variation()),
                quantile(0.5),
                quantile(0.9),
                quantile(0.99),
                quantile(0.999),
                quantile(1.0),
            ]],
            note: "Variation: standard deviation over mean; 1 where requests come at random, more in bursts. Shares are \
                   within a sixteenth."
                .into(),
        }
    }

    fn lru_table(&self) -> Table {
        let exact = self.sample_rate == 1.0;
        let row = |&(share, blocks, ratio): &(f64, f64, f64)| {
            let size = bytes(blocks * f64::from(self.block_bytes));
            let about = if exact { "" } else { "~" };
            vec![format!("{}%", share * 100.0), size, format!("{about}{:.2}%", 100.0 * ratio)]
        };
        Table {
            title: "What an LRU cache misses".into(),
            columns: columns(&["of footprint", "size", "misses"]),
            rows: self.lru_at_shares.iter().map(row).collect(),
            note: format!(
                "Of {} references to blocks, by reads and writes alike; first touches miss. {}",
                self.references,
                if exact { "Exact." } else { "~: estimated from a sample, for a size within a sixteenth." }
            ),
        }
    }

    fn volume_table(&self) -> Table {
        let mut volumes: Vec<&(String, u64)> = self.volumes.iter().collect();
        volumes.sort_by_key(|(_, requests)| std::cmp::Reverse(*requests));
        let total = self.requests();
        let row = |(name, requests): &(String, u64)| {
            vec![name.clone(), requests.to_string(), percent(*requests, total)]
        };
        let hidden = volumes.len().saturating_sub(VOLUMES_SHOWN);
        Table {
            title: "Volumes".into(),
            columns: columns(&["volume", "requests", "share"]),
            rows: volumes.into_iter().take(VOLUMES_SHOWN).map(row).collect(),
            note: if hidden > 0 { format!("And {hidden} more.") } else { String::new() },
        }
    }

    /// The misses of an LRU cache of this number of blocks, as a share of the references; the size
    /// is exact within a sixteenth.
    pub fn miss_ratio(&self, blocks: f64) -> f64 {
        super::miss_ratio(&self.lru_miss_ratios, blocks)
    }

    fn plots(&self) -> Vec<Plot> {
        let mut plots = vec![self.size_plot()];
        if self.references > 0 {
            plots.push(self.lru_plot());
            plots.push(self.reuse_plot());
        }
        if self.duration_ns > 0 {
            plots.push(self.gap_plot());
            plots.push(self.rate_plot());
        }
        plots.push(self.working_set_plot());
        plots
    }

    fn plot(
        &self,
        title: &str,
        kind: PlotKind,
        x: Axis,
        y: Axis,
        series: Vec<(&str, Vec<(f64, f64)>)>,
    ) -> Plot {
        let mark = self.mark();
        let number = |(x, y): (f64, f64)| (X::Number(x), y);
        let series = series.into_iter().map(|(name, points)| Series {
            name: name.to_string(),
            mark,
            points: points.into_iter().map(number).collect(),
            ..Series::default()
        });
        Plot { title: title.into(), kind, x, y, series: series.collect(), note: String::new() }
    }

    fn size_plot(&self) -> Plot {
        let series =
            self.mixes().into_iter().map(|(name, mix)| (name, cumulative(&mix.sizes, 1.0))).collect();
        let x = axis("size", "B", true);
        self.plot("Sizes of requests", PlotKind::Step, x, axis("share at most as long", "%", false), series)
    }

    fn lru_plot(&self) -> Plot {
        let block = f64::from(self.block_bytes);
        let points = self.lru_miss_ratios.iter().filter(|(size, _)| *size > 0.0);
        let points = points.map(|(size, ratio)| (size * block, ratio * 100.0)).collect();
        let title = "What an LRU cache misses";
        let (x, y) = (axis("cache", "B", true), axis("references that miss", "%", false));
        self.plot(title, PlotKind::Line, x, y, vec![("LRU", points)])
    }

    fn reuse_plot(&self) -> Plot {
        let (block, total) = (f64::from(self.block_bytes), self.references as f64);
        let mut sum = 0.0;
        let points = self.reuse_blocks.iter().map(|(size, count)| {
            sum += 100.0 * count / total;
            (size.max(1.0) * block, sum)
        });
        let points = points.collect();
        let (x, y) =
            (axis("other data since", "B", true), axis("references that came back by then", "%", false));
        self.plot("Reuse distances", PlotKind::Step, x, y, vec![("reuse", points)])
    }

    fn gap_plot(&self) -> Plot {
        let points = cumulative(&self.gaps_ns, 1e-9);
        let (x, y) = (axis("time", "s", true), axis("share of gaps at most as long", "%", false));
        self.plot("Time between requests", PlotKind::Step, x, y, vec![("gaps", points)])
    }

    fn rate_plot(&self) -> Plot {
        let seconds = self.window_length as f64 / 1e9;
        let rate = |data: fn(&super::Window) -> u64| {
            let points = self.windows.iter().enumerate();
            points.map(|(number, window)| (number as f64 * seconds, data(window) as f64 / seconds)).collect()
        };
        let series =
            vec![("read", rate(|window| window.read_bytes)), ("write", rate(|window| window.written_bytes))];
        self.plot(
            "Data over time",
            PlotKind::Step,
            axis("time", "s", false),
            axis("data", "B/s", false),
            series,
        )
    }

    fn working_set_plot(&self) -> Plot {
        let (unit, length) = match self.has_times() {
            true => ("s", self.window_length as f64 / 1e9),
            false => ("requests", self.window_length as f64),
        };
        let block = f64::from(self.block_bytes);
        let points = self.windows.iter().enumerate();
        let points =
            points.map(|(number, window)| (number as f64 * length, window.distinct_blocks * block)).collect();
        let (x, y) = (axis("time", unit, false), axis("distinct data", "B", false));
        let mut plot =
            self.plot("Working set over time", PlotKind::Step, x, y, vec![("working set", points)]);
        let error = 100.0 * sketch::ERROR;
        plot.note = format!("Windows of {length} {unit}; estimates with a standard error of {error:.1}%.");
        plot
    }
}

/// The share of values at most as large as each, in percent; no point at 0, which a logarithmic
/// axis lacks.
fn cumulative(histogram: &Histogram, unit: f64) -> Vec<(f64, f64)> {
    let mut sum = 0;
    let points = histogram.buckets().map(|(low, count)| {
        sum += count;
        (low as f64 * unit, 100.0 * sum as f64 / histogram.count() as f64)
    });
    points.filter(|(value, _)| *value > 0.0).collect()
}

fn axis(name: &str, unit: &str, log: bool) -> Axis {
    Axis { name: name.into(), unit: unit.into(), log }
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole.max(1) as f64)
}

/// With a binary unit.
fn bytes(count: f64) -> String {
    let (mut value, mut unit) = (count, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    let digits = if value.fract() == 0.0 || unit == "B" { 0 } else { 1 };
    format!("{value:.digits$} {unit}")
}

/// With a unit that fits.
fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 600.0 => format!("{seconds:.1} s"),
        _ if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}
