//! `terapage sim cache` of a recorded program: policies as the pager would run them, against
//! Belady's optimum.

use crate::progress::Progress;
use crate::publish;
use crate::show::Show;
use anyhow::{bail, ensure};
use serde::Serialize;
use std::path::PathBuf;
use terapage_advise::Recording;
use terapage_advise::distances::Distances;
use terapage_advise::knee::knee;
use terapage_advise::policies::{Compared, Comparison, Row};
use terapage_advise::recording::{Did, Uses};
use terapage_config::Size;
use terapage_eviction::by_name;
use terapage_figures::map;
use terapage_policy::replacement::NAMES;
use terapage_policy::soft::PER_MILLE;
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

/// From this number of references on, only a sample of the blocks is simulated, unless `--sample`
/// says otherwise. Chosen, not measured.
const LONG: usize = 20_000_000;
/// The sample has about this many references. Chosen, not measured.
const SAMPLE: f64 = 5_000_000.0;
/// The number of samples that are compared with one another. Chosen, not measured.
const SAMPLES: u64 = 4;

/// A recorded program, against policies.
#[derive(Debug)]
pub struct Replay {
    /// A trace, recorded by terapage run --trace.
    pub trace: PathBuf,
    /// Sizes, or percentages of the footprint.
    pub size: Vec<String>,
    pub policy: Vec<String>,
    /// Block sizes, each the recorded one times a power of two; if empty, the recorded one.
    pub block: Vec<String>,
    /// Frames that are kept soft, per cent, or `None` for as many as the pager keeps.
    pub soft: Option<f64>,
    /// The share of the blocks that is simulated, or auto.
    pub sample: String,
    pub show: Show,
    /// What was read in another way than it was asked for.
    pub notes: Vec<String>,
}

/// All results.
#[derive(Serialize)]
struct Results {
    program: String,
    trace: PathBuf,
    recorded: Recorded,
    /// What was simulated in another way than it was asked for.
    notes: Vec<String>,
    /// One for each block size.
    blocks: Vec<Block>,
}

/// The recorded run.
#[derive(Serialize)]
struct Recorded {
    block_bytes: u64,
    budget_bytes: u64,
    seconds: f64,
    /// The greatest number of blocks whose touches left no record.
    window_blocks: usize,
    major_faults: u64,
    minor_faults: u64,
    prefetched: u64,
    first_touches: u64,
    dirty_page_outs: u64,
    /// The optimum for its own references with its own budget, in blocks, for the first block size.
    optimum: u64,
    cut_short: Option<String>,
}

/// One block size.
#[derive(Serialize)]
struct Block {
    sample: f64,
    /// The greatest difference between samples, as a share of the footprint; 0 if all blocks were
    /// simulated.
    sample_error: f64,
    knee_bytes: Option<u64>,
    /// LRU's curve: the budget in bytes, and page-ins divided by the footprint, without first
    /// touches.
    lru_curve: Vec<(f64, f64)>,
    compared: Compared,
}

impl Replay {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        let soft_per_mille = self.soft.map(|percent| {
            ensure!((0.0..100.0).contains(&percent), "--soft {percent}: it must be a percentage below 100");
            let per_mille = (percent * 10.0).round();
            let near = (per_mille - percent * 10.0).abs() < 1e-6;
            ensure!(near && per_mille < 1000.0, "--soft {percent}: it has one decimal at most");
            Ok(per_mille as usize)
        });
        let soft_per_mille = soft_per_mille.transpose()?;
        self.show.check([self.trace.as_path()])?;
        let recording = Recording::open(&self.trace)?;
        let sizes = self.blocks(&recording)?;
        let steps = sizes.len() * self.size.len() * (self.policy.len() + 2);
        let progress = Progress::new("replaying", steps as u64);
        let mut blocks = Vec::new();
        let mut optimum = 0;
        for (at, &size) in sizes.iter().enumerate() {
            let uses = recording.uses(recording.shift(size)?);
            let base = (at * steps / sizes.len()) as u64;
            let told = |done: usize, _: usize| progress.set(base + done as u64);
            if at == 0 {
                let own = terapage_advise::optimum::Optimum::new(&uses.list);
                optimum = own.page_ins(((recording.budget_bytes / size) as usize).max(1));
            }
            blocks.push(self.block(&recording, size, &uses, soft_per_mille, told)?);
        }
        drop(progress);
        let results = Results {
            program: recording.program.clone(),
            trace: self.trace.clone(),
            recorded: recorded(&recording, optimum),
            notes: self.notes(&blocks),
            blocks,
        };
        self.publish(&results, &sizes, soft_per_mille)
    }

    fn blocks(&self, recording: &Recording) -> anyhow::Result<Vec<u64>> {
        if self.block.is_empty() {
            return Ok(vec![recording.block_bytes]);
        }
        self.block
            .iter()
            .map(|text| {
                let size: Size = text.parse().map_err(|error| anyhow::anyhow!("--block: {error}"))?;
                recording.shift(size.0).map_err(|error| anyhow::anyhow!("--block: {error}"))?;
                Ok(size.0)
            })
            .collect()
    }

    fn block(
        &self,
        recording: &Recording,
        size: u64,
        uses: &Uses,
        soft_per_mille: Option<usize>,
        told: impl Fn(usize, usize) + Sync,
    ) -> anyhow::Result<Block> {
        let rate = self.rate(uses.references)?;
        let footprint = uses.live_blocks as u64;
        let frames = self
            .size
            .iter()
            .map(|text| {
                budget("--size", text, footprint * size).map(|bytes| ((bytes / size) as usize).max(2))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        // The window in blocks of this size: each of its recorded blocks may lie in a different
        // block.
        let window = recording.window.min(footprint as usize);
        let comparison = Comparison {
            frames,
            policies: self.policy.clone(),
            make: by_name,
            block_bytes: size,
            soft_per_mille,
            rate,
            seed: 0,
        };
        let compared = comparison.run(uses, window, told)?;
        let points: Vec<usize> = (1..=50).map(|part| (footprint as usize * part / 50).max(1)).collect();
        let curves: Vec<Vec<f64>> = map(if rate < 1.0 { SAMPLES as usize } else { 1 }, |seed| {
            let lru = if rate < 1.0 {
                Distances::sampled(&uses.list, rate, seed as u64)
            } else {
                Distances::exact(&uses.list)
            };
            points.iter().map(|frames| lru.page_ins(*frames) / footprint as f64).collect()
        });
        let spread = |at: usize| {
            let values = curves.iter().map(|curve| curve[at]);
            values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
        };
        let sample_error = (0..points.len()).map(spread).fold(0.0, f64::max);
        let lru_curve: Vec<(f64, f64)> = points
            .iter()
            .zip(&curves[0])
            .map(|(frames, page_ins)| ((*frames as u64 * size) as f64, *page_ins))
            .collect();
        let knee_bytes = knee(&lru_curve).map(|at| lru_curve[at].0 as u64);
        Ok(Block { sample: rate, sample_error, knee_bytes, lru_curve, compared })
    }

    fn rate(&self, references: usize) -> anyhow::Result<f64> {
        if self.sample == "auto" {
            return Ok(if references > LONG { SAMPLE / references as f64 } else { 1.0 });
        }
        match self.sample.parse::<f64>() {
            Ok(rate) if (0.001..=1.0).contains(&rate) => Ok(rate),
            _ => bail!("--sample: '{}' is not a share (write 0.001 to 1, or auto)", self.sample),
        }
    }

    /// What was simulated in another way than it was asked for.
    fn notes(&self, blocks: &[Block]) -> Vec<String> {
        let mut notes = self.notes.clone();
        for compared in blocks.iter().map(|block| &block.compared) {
            let (size, footprint) = (compared.block_bytes, compared.footprint as u64 * compared.block_bytes);
            let rows = self.size.iter().zip(&compared.rows);
            notes.extend(rows.filter_map(|(text, row)| {
                let (asked, taken) = (budget("--size", text, footprint).ok()?, row.frames as u64 * size);
                (asked.abs_diff(taken) > asked / 20)
                    .then(|| format!("--size {text} is {} here: whole blocks, 2 at least.", Size(taken)))
            }));
        }
        notes
    }

    fn publish(&self, results: &Results, sizes: &[u64], soft: Option<usize>) -> anyhow::Result<()> {
        let study = study(results, sizes, soft);
        self.show.results(&study, results, || self.show.text(&study, false))
    }
}

/// The bytes of a size, or of a percentage of `whole`; `flag` is named in errors.
pub fn budget(flag: &str, text: &str, whole: u64) -> anyhow::Result<u64> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        let size: Size = text.parse().map_err(|error| anyhow::anyhow!("{flag}: {error}"))?;
        ensure!(size.0 > 0, "{flag}: '{text}' is not a size (write 40% or 1.5G)");
        return Ok(size.0);
    };
    match percent.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 1000.0 => Ok((whole as f64 * percent / 100.0) as u64),
        _ => bail!("{flag}: '{text}' is not a size (write 40% or 1.5G)"),
    }
}

fn recorded(recording: &Recording, optimum: u64) -> Recorded {
    let Did { first_touches, major_faults, minor_faults, prefetched, dirty_page_outs } = recording.did;
    Recorded {
        block_bytes: recording.block_bytes,
        budget_bytes: recording.budget_bytes,
        seconds: recording.duration_us as f64 / 1e6,
        window_blocks: recording.window,
        major_faults,
        minor_faults,
        prefetched,
        first_touches,
        dirty_page_outs,
        optimum,
        cut_short: recording.cut_short.clone(),
    }
}

fn study(results: &Results, sizes: &[u64], soft: Option<usize>) -> Study {
    let recorded = &results.recorded;
    let page_ins = recorded.major_faults + recorded.prefetched;
    let mut summary = vec![format!(
        "{} was recorded behind {} in blocks of {}: {} page-ins, {} minor faults, {} first touches in {:.1} s. With \
         that budget, the recorded references need at least {} page-ins (a lower bound: a touch of a mapped block leaves no record).",
        results.program,
        Size(recorded.budget_bytes),
        Size(recorded.block_bytes),
        page_ins,
        recorded.minor_faults,
        recorded.first_touches,
        recorded.seconds,
        recorded.optimum,
    )];
    summary.push(format!(
        "At most {} were mapped at a time, and touches of mapped blocks are not recorded. Figures for smaller budgets cover only \
         recorded touches (marked *); for larger ones the optimum lies between the rows 'opt' and 'opt <='.",
        Size(recorded.window_blocks as u64 * recorded.block_bytes),
    ));
    summary.extend(results.notes.iter().cloned());
    if let Some(why) = &recorded.cut_short {
        summary.push(format!("The trace covers only a part of the run: {why}."));
    }
    let mut study = Study {
        title: format!("Replacement policies and the optimum: {}", results.program),
        command: publish::command_line(),
        ..Study::default()
    };
    for (block, size) in results.blocks.iter().zip(sizes) {
        let knee = match block.knee_bytes {
            Some(knee) => format!("the knee of LRU's curve is at {}", Size(knee)),
            None => "LRU's curve has no knee".to_owned(),
        };
        let error = if block.sample < 1.0 {
            format!(
                " A sample of {:.1} % of the blocks was simulated; samples differ by at most {:.3} footprints.",
                block.sample * 100.0,
                block.sample_error
            )
        } else {
            String::new()
        };
        summary.push(format!(
            "Blocks of {}: the footprint, the most data in use at once, is {}; {} were touched in all, where memory \
             that was freed and used again counts twice; {} references; {knee}.{error}",
            Size(*size),
            Size((block.compared.footprint * *size as f64) as u64),
            Size((block.compared.touched * *size as f64) as u64),
            block.compared.references,
        ));
        study.tables.extend(tables(block, *size, recorded));
        study.plots.push(plot(block, *size));
    }
    study.summary = summary;
    study.parameters = vec![Parameter {
        name: "frames kept soft".into(),
        value: soft.map_or_else(|| "as the pager".into(), |per_mille| (per_mille as f64 / 10.0).to_string()),
        unit: if soft.is_some() { "%".into() } else { String::new() },
        origin: Origin::Chosen,
        source: format!(
            "--soft; the pager has {} %, and in small budgets up to 16 MiB",
            PER_MILLE as f64 / 10.0
        ),
    }];
    study
}

fn tables(block: &Block, size: u64, recorded: &Recorded) -> Vec<Table> {
    let footprint = block.compared.footprint.max(1.0);
    let rows = &block.compared.rows;
    let budget = |row: &Row| {
        let bytes = row.frames as u64 * size;
        let unseen = if bytes < recorded.window_blocks as u64 * recorded.block_bytes { "*" } else { "" };
        format!("{:.0} % {}{unseen}", row.frames as f64 / footprint * 100.0, Size(bytes))
    };
    let columns: Vec<String> = std::iter::once("policy".to_owned()).chain(rows.iter().map(budget)).collect();
    let line = |name: &str, cell: &dyn Fn(&Row) -> String| {
        std::iter::once(name.to_owned()).chain(rows.iter().map(cell)).collect::<Vec<_>>()
    };
    let of = |count: f64| format!("{:.2}", count / footprint);
    let policies = rows.first().map_or(&[][..], |row| &row.policies);
    let mut note =
        "0.00: nothing is read back. 'lru seen' is told of each recorded reference; those below it see \
                    page-ins and minor faults alone, as in the pager."
            .to_owned();
    let simulated: Vec<&str> =
        policies.iter().map(|one| one.policy.as_str()).filter(|name| !NAMES.contains(name)).collect();
    if !simulated.is_empty() {
        note += &format!(" Only simulated, not in the pager: {}.", simulated.join(", "));
    }
    let mut page_ins = vec![
        line("opt", &|row| of(row.optimum)),
        line("opt <=", &|row| row.optimum_at_most.map_or_else(|| "?".into(), of)),
        line("lru seen", &|row| of(row.lru)),
    ];
    let mut soft = vec![line("soft frames", &soft_frames)];
    for (at, one) in policies.iter().enumerate() {
        page_ins.push(line(&one.policy, &|row| of(row.policies[at].page_ins)));
        soft.push(line(&one.policy, &|row| of(row.policies[at].minor_faults)));
    }
    let table = |what: &str, rows, note| Table {
        title: format!("{what}, in footprints, blocks of {}", Size(size)),
        columns: columns.clone(),
        rows,
        note,
    };
    vec![table("Page-ins", page_ins, note), table("Minor faults", soft, String::new())]
}

/// The number of frames of a budget that are kept soft.
fn soft_frames(row: &Row) -> String {
    match row.soft_frames {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    }
}

fn plot(block: &Block, size: u64) -> Plot {
    let footprint = block.compared.footprint.max(1.0);
    let mib = |frames: usize| X::Number((frames as u64 * size) as f64 / f64::from(1 << 20));
    let line = |name: &str, points: Vec<(X, f64)>| Series {
        name: name.into(),
        mark: Mark::Simulated,
        points,
        ..Series::default()
    };
    let rows = &block.compared.rows;
    let mut series = vec![
        line(
            "LRU, told of each reference",
            block.lru_curve.iter().map(|&(bytes, y)| (X::Number(bytes / f64::from(1 << 20)), y)).collect(),
        ),
        line("optimum", rows.iter().map(|row| (mib(row.frames), row.optimum / footprint)).collect()),
    ];
    for at in 0..rows.first().map_or(0, |row| row.policies.len()) {
        let points =
            rows.iter().map(|row| (mib(row.frames), row.policies[at].page_ins / footprint)).collect();
        series.push(line(&rows[0].policies[at].policy, points));
    }
    let soft = rows.first().map_or_else(|| "no".into(), soft_frames);
    Plot {
        title: format!("Page-ins by budget, blocks of {}", Size(size)),
        kind: PlotKind::Line,
        x: Axis { name: "budget".into(), unit: "MiB".into(), log: false },
        y: Axis { name: "page-ins".into(), unit: "footprints".into(), log: false },
        series,
        note: format!("At the least budget the pager keeps {soft} frames soft."),
    }
}
