//! The meaning of the runs: figures, ratios within pairs, targets. Everything is computed from the
//! lines, not from the machine.

use crate::contender::run::Run;
use crate::experiment::unit::{Side, Unit};
use crate::experiment::{Cell, Experiment, Kind, TargetForm, Value, When, atom, is_in, words};
use crate::ground::runner::End;
use crate::result::journal::{Group, Record};
use crate::result::pairs::{PAIRS_LEAST, Ratio, SETTLED};
use crate::result::target::{Held, Target, in_order};
use crate::workload::Pass;
use serde::Serialize;
use std::collections::BTreeMap;
use terapage_figures::{Spread, median, spread};

/// The suffix of the baseline's name for its second run in a round.
pub const AGAIN: &str = " again";

/// An experiment's results.
#[derive(Debug, Serialize)]
pub struct Solved {
    /// Its name.
    pub name: String,
    /// The quantity that its figures count.
    pub unit: Unit,
    /// The contender by whose figures ratios divide.
    pub baseline: String,
    /// Cells, in order.
    pub cells: Vec<SolvedCell>,
    /// The baseline compared with itself, for the pass that differs most.
    pub noise: Option<Ratio>,
    /// Targets by cell.
    pub targets: Vec<(String, Target)>,
    /// Published figures, and the values measured here.
    pub published: Vec<Beside>,
    /// Runs that counted.
    pub runs: usize,
    /// The number of disturbed runs among these.
    pub disturbed: usize,
    /// Why runs were disturbed, and the number for each reason.
    pub marks: BTreeMap<String, usize>,
}

impl Solved {
    /// The noise floor, 1 or more: the factor by which the baseline differs from itself. A smaller
    /// difference means nothing.
    pub fn floor(&self) -> f64 {
        self.noise.map_or(1.0, |noise| noise.high.max(1.0 / noise.low).max(1.0))
    }

    /// Strikes impossible values: a run with part of the memory that is faster than a run with all
    /// of it, by more than the noise.
    fn strike(&mut self, experiment: &Experiment) {
        if self.baseline != "memory" {
            return;
        }
        let most = 1.0 / self.floor().max(1.0 + SETTLED);
        for cell in &mut self.cells {
            let sizes = experiment.sizes_of(&cell.cell).unwrap_or_default();
            let has_part = sizes.get("memory").zip(sizes.get("data")).is_some_and(|(part, all)| part < all);
            let figures =
                cell.figures.iter_mut().filter(|figure| has_part && !figure.contender.ends_with(AGAIN));
            for figure in figures {
                let is_less = |times: &Ratio| times.center < most;
                figure.struck = figure.times.take_if(|times| is_less(times));
            }
        }
    }
}

/// A cell's results.
#[derive(Debug, Serialize)]
pub struct SolvedCell {
    /// The values of its keys.
    pub cell: Cell,
    /// Figures by contender and pass.
    pub figures: Vec<SolvedFigure>,
    /// Whether all ratios are known to 5 %.
    pub settled: bool,
    /// The contenders that did not end well, and how they ended.
    pub ends: Vec<(String, String)>,
}

/// A figure.
#[derive(Debug, Serialize)]
pub struct SolvedFigure {
    /// Whose.
    pub contender: String,
    /// Of which pass.
    pub pass: String,
    /// In the experiment's unit.
    pub spread: Spread,
    /// Its time as a multiple of the baseline's; `None` for the baseline.
    pub times: Option<Ratio>,
    /// The multiple if it is impossible, because the runs were disturbed.
    pub struck: Option<Ratio>,
    /// Bytes that the device moved for each byte asked for.
    pub device_share: Option<f64>,
    /// Processor time over run time.
    pub cpu_share: Option<f64>,
    /// The most anonymous memory, bytes.
    pub resident_peak_bytes: u64,
    /// The median duration of its pass, seconds.
    pub seconds: f64,
    /// The median of the bytes that a pass goes over.
    pub bytes: f64,
    /// Whether `seconds` is the measured duration, and not a time computed from it.
    #[serde(skip)]
    pub timed: bool,
    /// Runs.
    pub runs: usize,
}

/// The figure of a pass that is shorter than this, in seconds, means little: the start is much of
/// such a pass. Chosen, not measured.
pub const SHORT_S: f64 = 0.1;

impl SolvedFigure {
    /// Whether the passes are too short for the figure to mean much.
    pub fn is_short(&self) -> bool {
        self.timed && self.seconds < SHORT_S
    }
}

/// A published figure beside the lab's.
#[derive(Debug, Serialize)]
pub struct Beside {
    /// The source of the publication.
    pub figure: String,
    /// What it measures.
    pub what: String,
    /// The printed value.
    pub published: f64,
    /// The lab's value, if it was measured.
    pub measured: Option<f64>,
    /// The unit of both; `times` for multiples of the baseline's time.
    pub unit: String,
    /// What has changed since its publication.
    pub note: String,
}

/// The last try of each run of a cell.
pub fn of_cell<'a>(runs: &'a [Record], cell: &Cell) -> Vec<&'a Record> {
    let mut last: BTreeMap<(u32, &str), &Record> = BTreeMap::new();
    for record in runs.iter().filter(|record| record.cell == *cell) {
        last.insert((record.run.round, &record.run.contender), record);
    }
    last.into_values().collect()
}

fn pass_of<'a>(record: &'a Record, pass: &str) -> Option<&'a Pass> {
    record.run.passes.iter().find(|known| known.pass == pass)
}

/// A contender's time as a multiple of the baseline's. Pairs with disturbed runs do not count if
/// enough pairs are undisturbed, or most of them.
pub fn times(runs: &[&Record], unit: Unit, contender: &str, baseline: &str, pass: &str) -> Option<Ratio> {
    let find = |round: u32, name: &str| {
        runs.iter().find(|record| record.run.round == round && record.run.contender == name).copied()
    };
    let mut pairs: Vec<(bool, (f64, f64))> = Vec::new();
    for record in runs.iter().filter(|record| record.run.contender == contender) {
        let Some(other) = find(record.run.round, baseline) else { continue };
        if let (Some(one), Some(two)) = (pass_of(record, pass), pass_of(other, pass)) {
            let quiet = record.watched.marks.is_empty() && other.watched.marks.is_empty();
            pairs.push((quiet, (unit.cost(one), unit.cost(two))));
        }
    }
    let quiet: Vec<(f64, f64)> = pairs.iter().filter(|(quiet, _)| *quiet).map(|(_, pair)| *pair).collect();
    if quiet.len() >= PAIRS_LEAST || 2 * quiet.len() > pairs.len() {
        return Ratio::of(&quiet);
    }
    let all: Vec<(f64, f64)> = pairs.into_iter().map(|(_, pair)| pair).collect();
    Some(Ratio { disturbed: true, ..Ratio::of(&all)? })
}

/// Whether half of a contender's runs or more were disturbed.
pub fn is_disturbed(runs: &[&Record], contender: &str) -> bool {
    let own: Vec<_> = runs.iter().filter(|record| record.run.contender == contender).collect();
    let disturbed = own.iter().filter(|record| !record.watched.marks.is_empty()).count();
    disturbed > 0 && 2 * disturbed >= own.len()
}

/// Whether the device moved bytes of others during a run, or just before it.
fn has_foreign_bytes(record: &Record) -> bool {
    let is_foreign = |mark: &String| mark.starts_with("foreign I/O") || mark.starts_with("others read");
    record.watched.marks.iter().any(is_foreign)
}

fn passes(runs: &[&Record], contender: &str) -> Vec<String> {
    let of = runs.iter().filter(|record| record.run.contender == contender);
    in_order(of.flat_map(|record| record.run.passes.iter().map(|pass| &pass.pass)))
}

/// Whether every ratio of a cell is known well enough, of contenders that end well.
pub fn is_settled(experiment: &Experiment, runs: &[&Record]) -> bool {
    let baseline = experiment.baseline_name();
    let names = in_order(runs.iter().map(|record| &record.run.contender));
    let ended = |name: &&String| runs.iter().any(|r| r.run.contender == **name && r.run.end == End::Done);
    names.iter().filter(|name| **name != baseline).filter(ended).all(|name| {
        passes(runs, name).iter().all(|pass| {
            // A pass that the baseline lacks has no ratio.
            times(runs, experiment.unit, name, &baseline, pass).is_none_or(|ratio| ratio.is_settled())
        })
    })
}

/// Computes all there is to a group.
pub fn solve(group: &Group) -> Solved {
    let experiment = &group.head.experiment;
    let baseline = experiment.baseline_name();
    let mut solved = Solved {
        name: group.head.name.clone(),
        unit: experiment.unit,
        baseline: baseline.clone(),
        cells: Vec::new(),
        noise: None,
        targets: Vec::new(),
        published: Vec::new(),
        runs: 0,
        disturbed: 0,
        marks: BTreeMap::new(),
    };
    for cell in experiment.cells() {
        let runs = of_cell(&group.runs, &cell);
        if runs.is_empty() {
            continue;
        }
        solved.runs += runs.len();
        for record in runs.iter().filter(|record| !record.watched.marks.is_empty()) {
            solved.disturbed += 1;
            for mark in &record.watched.marks {
                let kind = mark.split(|letter: char| letter.is_ascii_digit()).next().unwrap_or(mark);
                let kind = kind.trim_end().trim_end_matches(" of").to_owned();
                *solved.marks.entry(kind).or_default() += 1;
            }
        }
        let again = format!("{baseline}{AGAIN}");
        for pass in passes(&runs, &again) {
            let ratio = times(&runs, experiment.unit, &again, &baseline, &pass);
            solved.noise = [solved.noise, ratio].into_iter().flatten().max_by(|a, b| {
                let far = |ratio: &Ratio| ratio.high.ln().abs().max(ratio.low.ln().abs());
                far(a).total_cmp(&far(b))
            });
        }
        solved.cells.push(solve_cell(experiment, &cell, &runs));
        solved
            .targets
            .extend(targets(experiment, &cell, &runs).into_iter().map(|target| (words(&cell), target)));
    }
    solved.strike(experiment);
    let floor = solved.floor();
    for (_, target) in &mut solved.targets {
        if let Some(disturbed) = target.disturbed {
            target.judge(disturbed, floor);
        }
    }
    solved.published = beside(experiment, &solved.cells);
    solved
}

fn solve_cell(experiment: &Experiment, cell: &Cell, runs: &[&Record]) -> SolvedCell {
    let baseline = experiment.baseline_name();
    let mut figures = Vec::new();
    let mut ends = Vec::new();
    for contender in in_order(runs.iter().map(|record| &record.run.contender)) {
        let own: Vec<&Record> =
            runs.iter().filter(|record| record.run.contender == contender).copied().collect();
        if let Some(record) = own.iter().find(|record| record.run.end != End::Done) {
            ends.push((contender.clone(), record.run.end.text()));
        }
        for pass in passes(runs, &contender) {
            let found: Vec<_> = own.iter().filter_map(|record| pass_of(record, &pass)).collect();
            let values: Vec<f64> = found.iter().map(|pass| experiment.unit.of(pass)).collect();
            let Some(spread) = spread(&values) else { continue };
            let mean = |values: Vec<f64>| {
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            };
            let own_device = own.iter().filter(|record| !has_foreign_bytes(record));
            let shares = own_device
                .filter_map(|record| pass_of(record, &pass))
                .filter_map(|pass| Some(pass.device_bytes? as f64 / pass.bytes as f64));
            let cpu = own.iter().filter(|record| record.run.seconds > 0.0);
            figures.push(SolvedFigure {
                spread,
                times: (contender != baseline)
                    .then(|| times(runs, experiment.unit, &contender, &baseline, &pass))
                    .flatten(),
                struck: None,
                device_share: mean(shares.collect()),
                cpu_share: mean(cpu.map(|record| record.run.cpu_seconds / record.run.seconds).collect()),
                resident_peak_bytes: own.iter().map(|r| r.run.resident_peak_bytes).max().unwrap_or(0),
                seconds: median(&found.iter().map(|pass| pass.seconds).collect::<Vec<_>>()).unwrap_or(0.0),
                bytes: median(&found.iter().map(|pass| pass.bytes as f64).collect::<Vec<_>>()).unwrap_or(0.0),
                timed: found.iter().all(|pass| is_timed(experiment.unit, pass)),
                runs: found.len(),
                contender: contender.clone(),
                pass,
            });
        }
    }
    // Without a ratio there is nothing to be settled.
    let settled = figures.iter().any(|figure| figure.times.is_some()) && is_settled(experiment, runs);
    SolvedCell { cell: cell.clone(), figures, settled, ends }
}

/// Whether the time of a pass is its measured duration, and not a time computed from it.
fn is_timed(unit: Unit, pass: &Pass) -> bool {
    unit != Unit::PerIo && pass.bytes != 8
}

/// The targets of a cell. Two that must agree are compared in passes that are long enough.
fn targets(experiment: &Experiment, cell: &Cell, runs: &[&Record]) -> Vec<Target> {
    let plain: Vec<Run> = runs.iter().map(|record| record.run.clone()).collect();
    let mut long = plain.clone();
    let is_long = |pass: &Pass| !is_timed(experiment.unit, pass) || pass.seconds >= SHORT_S;
    long.iter_mut().for_each(|run| run.passes.retain(is_long));
    let mut held = Held::new(experiment.unit, &plain);
    let mut alike = Held::new(experiment.unit, &long);
    let fits = experiment.sizes_of(cell).is_ok_and(|sizes| {
        let of = |name: &str| sizes.get(name).copied();
        of("data").zip(of("memory")).is_some_and(|(data, memory)| data <= memory / 10 * 9)
    });
    for target in &experiment.target {
        let holds = target.when.is_none_or(|when| (when == When::Fits) == fits);
        if holds && is_in(&target.only, cell) {
            let among = if target.side == Side::Within { &mut alike } else { &mut held };
            let before = among.targets.len();
            hold(among, target, cell, runs);
            // Memory and the number of bytes and runs do not depend on what else runs.
            let is_time = matches!(target.kind, Kind::Ratio | Kind::Difference | Kind::Scaling | Kind::Bound);
            let names = [target.of.as_str(), &target.to, &target.device];
            let disturbed = is_time.then(|| names.iter().any(|name| is_disturbed(runs, name)));
            among.targets[before..].iter_mut().for_each(|held| held.disturbed = disturbed);
        }
    }
    held.targets.extend(alike.targets);
    held.targets
}

fn hold(held: &mut Held<'_>, target: &TargetForm, cell: &Cell, runs: &[&Record]) {
    let (of, to) = ((target.of.as_str(), target.pass.as_str()), target.to.as_str());
    let other = (to, target.to_pass.as_deref().unwrap_or(&target.pass));
    match target.kind {
        Kind::Ratio => held.ratio(of, other, target.side, target.value),
        Kind::Difference => held.difference(of, other, target.side, target.value),
        Kind::Scaling => held.scaling(of.0, to, target.threads, target.value),
        Kind::WrittenShare => held.written_share(of.0, of.1, target.value),
        Kind::Bound => {
            let depth = cell.get("depth").and_then(|depth| depth.parse().ok()).unwrap_or(1.0);
            held.bound(of, to, &target.device, depth, target.value);
        }
        Kind::Resident => held.residents(),
        Kind::Completes => {
            let own: Vec<_> = runs.iter().filter(|record| record.run.contender == of.0).collect();
            let done = own.iter().filter(|record| record.run.end == End::Done).count();
            let share = (!own.is_empty()).then(|| done as f64 / own.len() as f64);
            held.target(format!("{} completes, share of runs", of.0), target.side, target.value, share);
        }
    }
}

/// Published figures beside the lab's, in cells that were measured.
pub fn beside(experiment: &Experiment, cells: &[SolvedCell]) -> Vec<Beside> {
    experiment
        .published
        .iter()
        .map(|printed| {
            // A value may be written in several ways: 1/4 and 0.25.
            let same = |wanted: &Value, found: &String| {
                let wanted = wanted.to_string();
                *found == wanted || atom(found).is_some() && atom(found) == atom(&wanted)
            };
            let in_cell = |contender: &str, at: &BTreeMap<String, Value>| {
                let is_its = |cell: &&SolvedCell| {
                    at.iter().all(|(key, value)| cell.cell.get(key).is_some_and(|found| same(value, found)))
                };
                cells.iter().filter(is_its).find_map(|cell| {
                    cell.figures.iter().find(|figure| {
                        figure.contender == contender
                            && (printed.pass.is_empty() || figure.pass == printed.pass)
                    })
                })
            };
            let figure = in_cell(&printed.contender, &printed.at);
            let measured = figure.and_then(|figure| match printed.relative {
                _ if printed.processor => figure.cpu_share.map(|share| share * 100.0),
                _ if printed.is_over() => {
                    let whose = printed.over_contender.as_ref().unwrap_or(&printed.contender);
                    let other = in_cell(whose, printed.over.as_ref().unwrap_or(&printed.at))?;
                    Some(figure.spread.median / other.spread.median)
                }
                true => figure.times.map(|times| times.center),
                false => Some(figure.spread.median),
            });
            Beside {
                figure: printed.figure.clone(),
                what: printed.what.clone(),
                published: printed.value,
                measured,
                unit: if printed.processor {
                    "%".into()
                } else if printed.relative || printed.is_over() {
                    "times".into()
                } else {
                    experiment.unit.name_of([printed.pass.as_str()].into_iter()).into()
                },
                note: printed.note.clone(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{is_settled, of_cell, solve};
    use crate::experiment::Cell;
    use crate::ground::runner::End;
    use crate::result::journal::tests::{group, record};

    const TEXT: &str = r#"
title = "A"
unit = "s"
contenders = ["memory", "swap", "terapage"]
[program]
run = ["true"]
[[target]]
of = "terapage"
pass = "time"
to = "swap"
side = "at-most"
value = 0.5
[[published]]
figure = "Fig 5"
what = "swap"
contender = "swap"
pass = "time"
value = 52.0
relative = true
[[published]]
figure = "Fig 7"
what = "processor use"
contender = "memory"
pass = "time"
value = 255
processor = true
"#;

    #[test]
    fn ratios_are_taken_within_rounds_and_targets_held() {
        let mut group = group(TEXT);
        for round in 1..=6 {
            // The machine slows down; each round is slower than the previous one.
            let slow = f64::from(round);
            for (contender, seconds) in
                [("memory", 1.0), ("memory again", 1.02), ("swap", 8.0), ("terapage", 2.0)]
            {
                let mut one = record(&group.head, &Cell::new(), round, contender, seconds * slow);
                (one.run.seconds, one.run.cpu_seconds) = (2.0 * slow, 3.0 * slow);
                group.runs.push(one);
            }
        }
        let solved = solve(&group);
        let of = |name: &str| solved.cells[0].figures.iter().find(|f| f.contender == name).expect("a figure");
        let times = of("swap").times.expect("a ratio");
        assert!((times.center - 8.0).abs() < 1e-9 && times.is_settled(), "{times:?}");
        assert!(of("memory").times.is_none() && solved.cells[0].settled);
        assert!(solved.noise.is_some_and(|noise| (noise.center - 1.02).abs() < 1e-9));
        assert_eq!(solved.targets[0].1.value, Some(0.25));
        assert_eq!(solved.targets[0].1.met, Some(true));
        assert!(solved.published[0].measured.is_some_and(|times| (times - 8.0).abs() < 1e-9));
        // Processor time is shown, and is no multiple of anything.
        let used = &solved.published[1];
        assert!(used.unit == "%" && used.measured.is_some_and(|of| (of - 150.0).abs() < 1e-6), "{used:?}");
    }

    #[test]
    fn a_repeated_run_replaces_the_disturbed_one() {
        let mut group = group(TEXT);
        let mut disturbed = record(&group.head, &Cell::new(), 1, "memory", 9.0);
        disturbed.watched.marks = vec!["steal 9 %".into()];
        group.runs.push(disturbed.clone());
        let mut again = record(&group.head, &Cell::new(), 1, "memory", 1.0);
        again.attempt = 2;
        group.runs.push(again);
        let solved = solve(&group);
        assert_eq!((solved.runs, solved.disturbed), (1, 0));
        assert_eq!(solved.cells[0].figures[0].spread.median, 1.0);
        disturbed.attempt = 3;
        group.runs.push(disturbed);
        let solved = solve(&group);
        assert_eq!((solved.disturbed, solved.marks["steal"]), (1, 1));
    }

    #[test]
    fn less_time_with_less_memory_is_struck() {
        let text = TEXT.to_owned()
            + "[sizes]\nmemory = \"data * ratio\"\ndata = \"1G\"\n[matrix]\nratio = [\"1\", \"1/2\"]\n";
        let with = |again: f64| {
            let mut group = group(&text);
            for cell in group.head.experiment.cells() {
                for (name, seconds) in [("memory", 1.0), ("memory again", again), ("terapage", 0.64)] {
                    group.runs.push(record(&group.head, &cell, 1, name, seconds));
                }
            }
            let solved = solve(&group);
            let of = |cell: usize| {
                let figures = &solved.cells[cell].figures;
                let figure = figures.iter().find(|figure| figure.contender == "terapage").expect("a figure");
                (figure.times.is_some(), figure.struck.is_some())
            };
            // With all of the memory, a paged program may be faster than the baseline.
            (of(0), of(1), solved.floor())
        };
        assert_eq!(with(1.02), ((true, false), (false, true), 1.02));
        // A difference within the noise decides nothing, whether it is faster or slower.
        let (_, half, floor) = with(0.5);
        assert_eq!((half, floor), ((true, false), 2.0));
    }

    #[test]
    fn bytes_of_others_are_not_the_contenders() {
        let mut group = group(TEXT);
        let mut foreign = record(&group.head, &Cell::new(), 1, "swap", 1.0);
        foreign.run.passes[0].device_bytes = Some(700 << 20);
        foreign.watched.marks.push("others read 699 MiB meanwhile".into());
        group.runs.push(foreign.clone());
        assert_eq!(solve(&group).cells[0].figures[0].device_share, None);
        foreign.run.round = 2;
        foreign.watched.marks.clear();
        foreign.run.passes[0].device_bytes = Some(1 << 20);
        group.runs.push(foreign);
        assert_eq!(solve(&group).cells[0].figures[0].device_share, Some(1.0));
    }

    #[test]
    fn a_ratio_of_disturbed_runs_says_so() {
        let mut group = group(TEXT);
        for round in 1..=3 {
            let mut swap = record(&group.head, &Cell::new(), round, "swap", 2.0);
            if round < 3 {
                swap.watched.marks.push("steal 9 %".into());
            }
            group.runs.extend([record(&group.head, &Cell::new(), round, "memory", 1.0), swap]);
        }
        let times = |group: &crate::result::journal::Group| {
            let solved = solve(group);
            let figure = solved.cells[0].figures.iter().find(|figure| figure.contender == "swap");
            figure.and_then(|figure| figure.times).expect("a ratio")
        };
        assert!(times(&group).disturbed);
        group.runs.iter_mut().filter(|run| run.run.round == 2).for_each(|run| run.watched.marks.clear());
        let quiet = times(&group);
        assert!(!quiet.disturbed && quiet.pairs == 2, "most are quiet, so those alone count");
    }

    #[test]
    fn a_baseline_alone_is_not_called_settled() {
        let mut group = group(TEXT);
        group.runs.extend((1..=6).map(|round| record(&group.head, &Cell::new(), round, "memory", 1.0)));
        assert!(!solve(&group).cells[0].settled);
    }

    #[test]
    fn who_is_killed_is_named_and_does_not_unsettle() {
        let mut group = group(TEXT);
        for round in 1..=6 {
            group.runs.push(record(&group.head, &Cell::new(), round, "memory", 1.0));
            group.runs.push(record(&group.head, &Cell::new(), round, "terapage", 1.0));
        }
        let mut killed = record(&group.head, &Cell::new(), 1, "swap", 1.0);
        killed.run.end = End::Killed;
        killed.run.passes.clear();
        group.runs.push(killed);
        let runs = of_cell(&group.runs, &Cell::new());
        assert!(is_settled(&group.head.experiment, &runs));
        let solved = solve(&group);
        assert!(solved.cells[0].settled);
        assert_eq!(solved.cells[0].ends, [("swap".to_owned(), "killed".to_owned())]);
        assert!(solved.targets[0].1.met.is_none());
    }
}
