//! The runs as a study.

mod parameters;
mod prices;

pub use prices::Prices;

use terapage_config::Size;
use terapage_hybrid::{CacheKind, Latencies, Load, Storage};
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};

use super::arguments::BLOCKS_MIN;
use super::{Run, Ssd, unused};
use crate::publish::command_line;
use crate::quantity::signed;

/// Distributions of more runs than this cannot be distinguished in one plot.
const CURVES: usize = 8;

/// Chips whose results are this close may change places with the seed of the flash's first state:
/// three seeds and capacities differed by up to 5 % for a trace of 100,000 writes (DiskSim's
/// "iozone").
const NOISE: f64 = 0.05;

/// The study of `runs`, which are ordered by trace, then by profile.
pub fn of(arguments: &Ssd, runs: &[Run], prices: Option<&Prices>) -> Study {
    let several = runs.iter().any(|run| run.nand != runs[0].nand);
    let mut plots = Vec::new();
    if several {
        plots.push(normalised(runs));
    }
    if runs.len() <= CURVES {
        plots.push(distributions(runs));
    }
    Study {
        title: title(runs),
        summary: summary(runs, prices).into_iter().chain(unused::of(arguments)).collect(),
        command: command_line(),
        parameters: parameters::of(arguments, runs),
        plots,
        tables: [throughput(runs, several), latencies(runs)]
            .into_iter()
            .chain(flash(runs))
            .chain(prices.map(|prices| prices.table(runs)))
            .collect(),
        ..Study::default()
    }
}

fn title(runs: &[Run]) -> String {
    let mut traces: Vec<&str> = runs.iter().map(|run| run.trace.as_str()).collect();
    traces.dedup();
    let what = match &runs[0].setup.storage {
        Storage::Nand => "SSD of NAND flash",
        Storage::Scm(_) => "SSD of SCM",
        Storage::Cached(cache) if cache.kind == CacheKind::Dram => "SSD of NAND flash with a DRAM cache",
        Storage::Cached(_) => "Hybrid SSD of SCM and NAND flash",
    };
    format!("{what}: {}", traces.join(", "))
}

/// The first run of each trace.
fn first_runs(runs: &[Run]) -> impl Iterator<Item = (&Run, &[Run])> {
    runs.chunk_by(|one, other| one.trace == other.trace && one.survey == other.survey)
        .map(|group| (&group[0], group))
}

fn summary(runs: &[Run], prices: Option<&Prices>) -> Vec<String> {
    let mut summary: Vec<String> = first_runs(runs).map(|(run, _)| of_trace(run)).collect();
    for (first, group) in first_runs(runs) {
        let best = group.iter().max_by(|one, other| one.outcome.iops.total_cmp(&other.outcome.iops));
        if let Some(best) = best.filter(|_| group.len() > 1) {
            summary.push(of_best(best, first, group));
        }
    }
    summary.extend(match prices {
        Some(prices) => Some(prices.sentence(runs)),
        None => several_chips(runs),
    });
    summary.extend(runs.iter().find_map(cached_as_slc));
    summary.extend(runs.iter().find_map(kept_together));
    summary.extend(lost(runs));
    summary.extend(few_blocks(runs));
    summary
}

/// What a choice between chips needs, but no simulation of a trace can say.
fn several_chips(runs: &[Run]) -> Option<String> {
    let several = runs.iter().any(|run| run.nand != runs[0].nand && run.flash.is_some());
    several.then(|| {
        "Speed is not all: chips with more bits in a cell hold more for the same price, and endure fewer erases (the \
         table of the flash has those of this trace). --prices FILE sets both against the seller's prices and ratings."
            .to_owned()
    })
}

/// The erases of a block, on average.
fn erases(run: &Run) -> Option<f64> {
    let (flash, nand) = (run.flash?, run.outcome.nand.as_ref()?);
    let ssd = &run.setup.ssd;
    let planes = u64::from(ssd.channels) * u64::from(ssd.dies_per_channel) * u64::from(ssd.nand.planes);
    let blocks = planes * u64::from(flash.blocks_per_die + flash.reserve_per_die);
    Some(nand.nand_erases as f64 / blocks as f64)
}

/// A sentence on what the cache of SLC took.
fn cached_as_slc(run: &Run) -> Option<String> {
    let flash = run.flash.filter(|flash| flash.slc_bytes > 0)?;
    let nand = run.outcome.nand.as_ref()?;
    let share = nand.slc_units as f64 / nand.host_units_programmed.max(1) as f64 * 100.0;
    let moved = nand.folded_units as f64 / nand.slc_units.max(1) as f64 * 100.0;
    Some(format!(
        "{}: {share:.1} % of what was written to the flash went to its {} of SLC, and {moved:.1} % of that was \
         moved on in idle time.",
        run.nand,
        Size(flash.slc_bytes)
    ))
}

/// A sentence on data that cannot be kept apart.
fn kept_together(run: &Run) -> Option<String> {
    let one = run.flash.is_some() && run.asks_placement && run.setup.ssd.placements.is_empty();
    one.then(|| format!("Without effect: --set placement ({} has only one volume).", run.trace))
}

/// A sentence on chips of which a die has few super-blocks.
fn few_blocks(runs: &[Run]) -> Option<String> {
    let flashes = runs.iter().filter_map(|run| Some((run, run.flash?)));
    let (run, least) = flashes.min_by_key(|(_, flash)| flash.blocks_per_die)?;
    let wanted = run.setup.ssd.stripe_bytes() * BLOCKS_MIN;
    (least.capacity_bytes < wanted).then(|| {
        format!(
            "A die of {} has only {} super-blocks. Real drives have hundreds; figures for so few depend on the \
             capacity. {BLOCKS_MIN} are in {}.",
            run.nand,
            least.blocks_per_die,
            Size(wanted)
        )
    })
}

/// A sentence on the chips with the most IOPS, and on those that are equally good.
fn of_best(best: &Run, first: &Run, group: &[Run]) -> String {
    let against = match best.nand == first.nand {
        true => String::new(),
        false => format!(", {} % against {}", signed(gain(best, first) * 100.0), first.nand),
    };
    let near: Vec<&str> = (group.iter())
        .filter(|run| run.nand != best.nand && gain(run, best) > -NOISE)
        .map(|run| run.nand.as_str())
        .collect();
    let near = match near.is_empty() {
        true => String::new(),
        false => format!(
            " Within {} % of it, which another --seed or capacity can turn: {}.",
            NOISE * 100.0,
            near.join(", ")
        ),
    };
    format!("{}: {} has the most IOPS{against}.{near}", first.trace, best.nand)
}

fn of_trace(run: &Run) -> String {
    let survey = &run.survey;
    let written = survey.writes as f64 / survey.requests as f64 * 100.0;
    let mut text = format!(
        "{}{}: {} requests, {written:.1} % of them writes, touch {}, in pieces of 1 MiB {}.",
        run.trace,
        if run.synthetic { " (synthetic)" } else { "" },
        survey.requests,
        Size(survey.footprint_bytes),
        Size(survey.pieces_bytes),
    );
    text += &match &run.setup.storage {
        Storage::Cached(cache) => {
            let share = cache.bytes as f64 / survey.footprint_bytes.max(1) as f64 * 100.0;
            let of = Size(run.setup.ssd.capacity_bytes);
            format!(" An SSD of {of} has a cache of {}, {share:.1} % of what is touched.", Size(cache.bytes))
        }
        _ => format!(" The SSD has {}.", Size(run.setup.ssd.capacity_bytes)),
    };
    text += &match run.setup.load {
        Load::Closed { depth } => format!(" {depth} requests are kept under way."),
        Load::Open { speed: 1.0 } => " Requests come at their time stamps.".to_owned(),
        Load::Open { speed } => format!(" Requests come at their time stamps, {speed} times as fast."),
    };
    if run.skipped > 0 {
        text += &format!(" {} bad records were skipped.", run.skipped);
    }
    if run.temporary_bytes > 0 {
        let place = terapage_figures::temporary_directory();
        let bytes = Size(run.temporary_bytes);
        text += &format!(" It was kept in {} (TMPDIR) meanwhile, in {bytes}.", place.display());
    }
    text
}

/// A sentence on the bytes that a volatile cache would have lost.
fn lost(runs: &[Run]) -> Option<String> {
    let volatile =
        |run: &&Run| matches!(&run.setup.storage, Storage::Cached(cache) if cache.kind == CacheKind::Dram);
    let most = runs.iter().filter(volatile).filter_map(|run| run.outcome.cache);
    let sectors = most.map(|cache| cache.unsafe_sectors_max).max()?;
    let bytes = Size(sectors * 512);
    Some(format!(
        "Up to {bytes} were acknowledged but only in DRAM: a power failure would have lost that much."
    ))
}

fn gain(run: &Run, first: &Run) -> f64 {
    run.outcome.iops / first.outcome.iops - 1.0
}

fn mark(run: &Run) -> Mark {
    if run.synthetic { Mark::Synthetic } else { Mark::Simulated }
}

fn normalised(runs: &[Run]) -> Plot {
    let mut series: Vec<Series> = Vec::new();
    for (first, group) in first_runs(runs) {
        for run in group {
            let point = (X::Name(run.trace.clone()), run.outcome.iops / first.outcome.iops);
            match series.iter_mut().find(|known| known.name == run.nand && known.mark == mark(run)) {
                Some(known) => known.points.push(point),
                None => series.push(Series {
                    name: run.nand.clone(),
                    mark: mark(run),
                    points: vec![point],
                    ..Series::default()
                }),
            }
        }
    }
    Plot {
        title: format!("IOPS, with {} as 1", runs[0].nand),
        kind: PlotKind::Bar,
        x: Axis { name: "trace".to_owned(), ..Axis::default() },
        y: Axis { name: "normalised IOPS".to_owned(), ..Axis::default() },
        series,
        note: String::new(),
    }
}

fn distributions(runs: &[Run]) -> Plot {
    let one_trace = runs.iter().all(|run| run.trace == runs[0].trace);
    let series = runs.iter().map(|run| Series {
        name: if one_trace { run.nand.clone() } else { format!("{}, {}", run.trace, run.nand) },
        mark: mark(run),
        points: (run.outcome.distribution.iter())
            .map(|&(share, ns)| (X::Number(ns as f64 / 1000.0), share * 100.0))
            .collect(),
        ..Series::default()
    });
    Plot {
        title: "Latency".to_owned(),
        kind: PlotKind::Line,
        x: Axis { name: "latency".to_owned(), unit: "us".to_owned(), log: true },
        y: Axis { name: "requests within it".to_owned(), unit: "%".to_owned(), log: false },
        series: series.collect(),
        note: String::new(),
    }
}

/// The names of a row.
fn names(run: &Run, runs: &[Run]) -> Vec<String> {
    match runs.iter().all(|other| other.trace == runs[0].trace) {
        true => vec![run.nand.clone()],
        false => vec![run.trace.clone(), run.nand.clone()],
    }
}

fn columns(runs: &[Run], rest: &[&str]) -> Vec<String> {
    let names: &[&str] = if names(&runs[0], runs).len() == 1 { &["NAND"] } else { &["trace", "NAND"] };
    names.iter().chain(rest).map(|&column| column.to_owned()).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn throughput(runs: &[Run], several: bool) -> Table {
    let mut rows = Vec::new();
    for (first, group) in first_runs(runs) {
        for run in group {
            let out = &run.outcome;
            let mut row = names(run, runs);
            row.push(format!("{:.0}", out.iops));
            if several {
                row.push(signed(gain(run, first) * 100.0));
            }
            row.push(format!("{:.1}", out.mib_per_s));
            row.extend([out.read_hit_ratio(), out.write_hit_ratio()].map(percent));
            row.extend([out.nand_read_share(), out.nand_write_share()].map(percent));
            row.push(format!("{:.2}", out.write_amplification()));
            rows.push(row);
        }
    }
    let mut heads =
        vec!["IOPS", "MiB/s", "read hits %", "write hits %", "NAND reads %", "NAND writes %", "WA"];
    if several {
        heads.insert(1, "gain %");
    }
    Table {
        title: "Throughput".to_owned(),
        columns: columns(runs, &heads),
        rows,
        note: "Hits: of the lines that requests touch, those in the cache. NAND reads, writes: bytes from and to \
               flash for each byte of the host. WA: mapping units programmed for each one written to flash."
            .to_owned(),
    }
}

fn latencies(runs: &[Run]) -> Table {
    let us = |ns: f64| format!("{:.1}", ns / 1000.0);
    let mut rows = Vec::new();
    for run in runs {
        for (what, latency) in [("read", &run.outcome.read_latency), ("write", &run.outcome.write_latency)] {
            let &Latencies { count, mean_ns, p50_ns, p99_ns, p999_ns, p9999_ns, max_ns, .. } = latency;
            if count == 0 {
                continue;
            }
            let mut row = names(run, runs);
            row.extend([what.to_owned(), us(mean_ns)]);
            row.extend([p50_ns, p99_ns, p999_ns, p9999_ns, max_ns].map(|ns| us(ns as f64)));
            rows.push(row);
        }
    }
    let under_way = runs.iter().map(|run| run.outcome.queue_mean).fold(0.0, f64::max);
    let most = runs.iter().map(|run| run.outcome.queue_max).max().unwrap_or(0);
    Table {
        title: "Latency in us".to_owned(),
        columns: columns(runs, &["of a", "mean", "50 %", "99 %", "99.9 %", "99.99 %", "max"]),
        rows,
        note: format!("Up to {under_way:.1} requests were under way on average, {most} at most."),
    }
}

/// The flash as it was simulated, which differs from the request because blocks are whole.
fn flash(runs: &[Run]) -> Option<Table> {
    let bad = runs.iter().any(|run| run.flash.is_some_and(|flash| flash.bad_per_die > 0));
    let slc = runs.iter().any(|run| run.flash.is_some_and(|flash| flash.slc_bytes > 0));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for run in runs {
        let Some(flash) = run.flash else { continue };
        let mut row = names(run, runs);
        row.push(Size(flash.capacity_bytes).to_string());
        row.extend([flash.spare_asked, flash.spare].map(percent));
        row.push(flash.blocks_per_die.to_string());
        row.push(Size(flash.super_block_bytes).to_string());
        row.push(erases(run).map_or_else(String::new, |erases| format!("{erases:.3}")));
        if slc {
            row.push(Size(flash.slc_bytes).to_string());
        }
        if bad {
            row.extend([flash.bad_per_die.to_string(), percent(flash.spare_good)]);
        }
        rows.push(row);
    }
    let mut heads =
        vec!["capacity", "spare asked %", "spare simulated %", "super-blocks a die", "of", "erases"];
    if slc {
        heads.push("SLC");
    }
    if bad {
        heads.extend(["bad", "spare left %"]);
    }
    (!rows.is_empty()).then(|| Table {
        title: "Flash as simulated".to_owned(),
        columns: columns(runs, &heads),
        rows,
        note: "A super-block is the blocks of one number in all planes of a die. Spare: of the capacity, \
               without two super-blocks of each die in reserve. Erases: of a block, by this trace."
            .to_owned(),
    })
}
