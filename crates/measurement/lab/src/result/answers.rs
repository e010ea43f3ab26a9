//! The first page: a table of the lab's own work relative to memory, sentences, and doubts.

use crate::experiment::unit::Unit;
use crate::experiment::{Only, SHIPPED, is_in};
use crate::result::checks::cross_checks;
use crate::result::findings::{Part, all};
use crate::result::language::Texts;
use crate::result::number::number;
use crate::result::pairs::Ratio;
use crate::result::solve::{Solved, SolvedCell, SolvedFigure};
use serde::Deserialize;
use terapage_config::Size;
use terapage_report::{Answer, Table};

/// An answer of the first page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerForm {
    /// Names its text.
    pub id: String,
    experiment: String,
    pass: String,
    #[serde(default)]
    at: Only,
    show: Show,
    /// Whether each pass goes over all of the data, so that the device bounds the time.
    #[serde(default)]
    streams: bool,
}

/// What an answer says about each contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Show {
    /// Its time as a multiple of the baseline's: a row of the table.
    Times,
    /// Its figure: a sentence.
    Figures,
}

/// The first page's answers about the lab's own experiments.
pub fn answers(parts: &[Part<'_>], texts: &Texts) -> Vec<Answer> {
    let answer = |form: &AnswerForm| {
        let part = part_of(form, parts)?;
        let cell = part.solved.cells.iter().find(|cell| is_in(&form.at, &cell.cell))?;
        let told = told_figures(part.solved, cell, &form.pass, texts);
        let values = [("begin", texts.answer(&form.id)), ("parts", &texts.list(&told))];
        let mut text = texts.say("answer", &values);
        if let Some(note) = reads_ahead(part, cell, &form.pass, texts) {
            text = format!("{text} {note}");
        }
        (!told.is_empty()).then(|| Answer { text, ..Answer::default() })
    };
    let shown = all().answer.iter().filter(|form| form.show == Show::Figures).filter_map(answer);
    when_to_use_what(parts, texts).into_iter().chain(shown).collect()
}

/// The part with an answer's experiment.
fn part_of<'a>(form: &AnswerForm, parts: &'a [Part<'a>]) -> Option<&'a Part<'a>> {
    parts.iter().find(|part| part.group.head.name == form.experiment)
}

/// A device that reads more bytes ahead than this makes mapped files slow at random places. Chosen;
/// Linux's own default is 128 KiB.
const READS_FAR_AHEAD: u64 = 1 << 20;

/// A note if the device reads far ahead and a mapped file was measured at random places.
fn reads_ahead(part: &Part<'_>, cell: &SolvedCell, pass: &str, texts: &Texts) -> Option<String> {
    let settings = &part.group.head.machine.device_settings;
    let kib = settings.get("read_ahead_kb")?;
    let bytes = kib.parse::<u64>().ok()? << 10;
    let is_random = part.solved.unit == Unit::Latency && figure(cell, "mmap", pass).is_some();
    (is_random && bytes > READS_FAR_AHEAD)
        .then(|| texts.say("reads-ahead", &[("size", &Size(bytes).to_string())]))
}

/// Times within this factor of the shortest count as equal. Chosen, not measured.
const ALIKE: f64 = 1.05;

/// The contenders with the shortest time in a cell; times that count as equal share the place. None
/// if the cell cannot decide which is fastest: its passes are short, or its runs were disturbed. A
/// contender that did not end well is never among them.
fn fastest(part: &Part<'_>, cell: &SolvedCell, pass: &str) -> Vec<&'static str> {
    if is_short(part, cell, pass) {
        return Vec::new();
    }
    let ended = |name: &str| cell.ends.iter().all(|(who, _)| who != name);
    let all = SHOWN.into_iter().filter(|name| ended(name));
    let times: Vec<(&str, Ratio)> =
        all.filter_map(|name| Some((name, figure(cell, name, pass)?.times?))).collect();
    let rivals = times.len() + SHOWN.iter().filter(|name| !ended(name)).count();
    if rivals < 2 || times.iter().any(|(_, times)| times.disturbed) {
        return Vec::new();
    }
    let least = times.iter().map(|(_, times)| times.center).fold(f64::INFINITY, f64::min);
    let alike = ALIKE.max(part.solved.floor());
    times.into_iter().filter(|(_, times)| times.center <= least * alike).map(|(name, _)| name).collect()
}

/// Whether passes of a cell are too short to judge by, of the contenders that are shown or of the
/// baseline.
fn is_short(part: &Part<'_>, cell: &SolvedCell, pass: &str) -> bool {
    let baseline = part.solved.baseline.as_str();
    let own = SHOWN.into_iter().chain([baseline]).filter_map(|name| figure(cell, name, pass));
    own.into_iter().any(SolvedFigure::is_short)
}

/// The cell that stands for a work: the cell that the form names, or, if its passes are too short
/// to judge, the first cell whose passes are long enough.
fn usual<'a>(form: &AnswerForm, part: &Part<'a>) -> Option<&'a SolvedCell> {
    let cells = || part.solved.cells.iter();
    let has_any = |cell: &&SolvedCell| SHOWN.iter().any(|name| figure(cell, name, &form.pass).is_some());
    let named = cells().find(|cell| is_in(&form.at, &cell.cell));
    let is_long = |cell: &&SolvedCell| !is_short(part, cell, &form.pass);
    named.filter(is_long).or_else(|| cells().filter(has_any).find(is_long)).or(named)
}

/// Which contender is the fastest for which work, by the row that stands for each work.
fn when_to_use_what(parts: &[Part<'_>], texts: &Texts) -> Option<Answer> {
    let mut works: Vec<(&str, Vec<String>)> = SHOWN.map(|name| (name, Vec::new())).into();
    let mut asked = false;
    for form in all().answer.iter().filter(|form| form.show == Show::Times) {
        let Some(part) = part_of(form, parts) else { continue };
        let Some(cell) = usual(form, part) else { continue };
        asked = true;
        let first = fastest(part, cell, &form.pass);
        works
            .iter_mut()
            .filter(|(name, _)| first.contains(name))
            .for_each(|(_, works)| works.push(texts.answer(&form.id).to_owned()));
    }
    works.retain(|(_, works)| !works.is_empty());
    let part = |(name, works): &(&str, Vec<String>)| {
        let name = texts.contender(name);
        texts.say("fastest-for", &[("name", name.trim_end()), ("works", &texts.list(works))])
    };
    let told = works.iter().map(part).collect::<Vec<_>>().join("; ");
    let text = match works.is_empty() {
        true => texts.say("fastest-unknown", &[]),
        false => texts.say("when-to-use", &[("parts", &told)]),
    };
    asked.then(|| Answer { text, ..Answer::default() })
}

/// How far the figures of a page can be trusted: the noise floor, and the disturbed runs. None if
/// there is nothing to say.
pub fn noise(parts: &[Part<'_>], texts: &Texts) -> Option<Answer> {
    let sum = |of: fn(&Solved) -> usize| parts.iter().map(|part| of(part.solved)).sum::<usize>();
    let (disturbed, runs) = (sum(|solved| solved.disturbed), sum(|solved| solved.runs));
    let worst = parts.iter().max_by(|a, b| a.solved.floor().total_cmp(&b.solved.floor()))?;
    let floor = worst.solved.floor();
    if disturbed == 0 && floor < ALIKE {
        return None;
    }
    let [disturbed, runs] = [disturbed, runs].map(|count| count.to_string());
    let floor = number(floor);
    let values = [
        ("disturbed", disturbed.as_str()),
        ("runs", &runs),
        ("floor", &floor),
        ("experiment", &worst.group.head.name),
        ("baseline", &worst.solved.baseline),
    ];
    let known = parts.iter().any(|part| part.solved.noise.is_some());
    let text = match known {
        true => texts.say("noise-first", &values),
        false => texts.say("noise-unknown", &values),
    };
    Some(Answer { text, ..Answer::default() })
}

/// The experiments that were left out for lack of time, and the command that runs them.
pub fn left_out(names: &[String], command: String, texts: &Texts) -> Answer {
    Answer { text: texts.say("quick-left-out", &[("names", &texts.list(names))]), command }
}

/// Whose times the table has.
const SHOWN: [&str; 4] = ["terapage", "far", "mmap", "swap"];

/// The first page's table: the time of the work as a multiple of its time in memory, in the
/// representative cell, and in Terapage's worst one.
pub fn overview(parts: &[Part<'_>], texts: &Texts) -> Option<Table> {
    let mut rows = Vec::new();
    for form in all().answer.iter().filter(|form| form.show == Show::Times) {
        let Some(part) = part_of(form, parts) else { continue };
        let bound = |cell: &SolvedCell| bound(form, part, cell, device_rate(parts)?);
        let cells = || part.solved.cells.iter();
        // A cell that is too short to judge is not the worst one, unless all cells are too short.
        let long = |cell: &&SolvedCell| !is_short(part, cell, &form.pass);
        let only_short = !cells().any(|cell| long(&cell));
        let worst = cells().filter(|cell| only_short || long(cell));
        let worst = worst.filter_map(|cell| Some((cell, loss(cell, &form.pass)?)));
        let worst = worst.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(cell, _)| cell);
        let usual = usual(form, part);
        let same = usual.zip(worst).is_some_and(|(usual, worst)| std::ptr::eq(usual, worst));
        for cell in usual.into_iter().chain(worst.filter(|_| !same)) {
            let is_worst = worst.is_some_and(|worst| std::ptr::eq(worst, cell));
            rows.extend(row(form, part, cell, (is_worst, bound(cell)), texts));
        }
    }
    // A contender that took no part has no column.
    let has = |at: usize| rows.iter().any(|row: &Vec<String>| row[at] != NONE);
    let shown: Vec<bool> = (0..SHOWN.len() + 1).map(|i| has(2 + i)).collect();
    let mut columns = vec![texts.say("work", &[]), texts.say("its-memory", &[])];
    columns.extend(SHOWN.map(|name| texts.contender(name).trim_end().to_owned()));
    columns.extend([texts.say("bound", &[]), texts.say("fastest", &[])]);
    let kept = |row: Vec<String>| -> Vec<String> {
        let keep = |at: usize| at < 2 || at > 2 + SHOWN.len() || shown[at - 2];
        row.into_iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, text)| text).collect()
    };
    (!rows.is_empty()).then(|| Table {
        title: texts.say("overview", &[]),
        columns: kept(columns),
        rows: rows.into_iter().map(kept).collect(),
        note: texts.say("overview-note", &[]),
    })
}

/// The sequential read rate of the device, in MiB/s, if fio has measured it.
fn device_rate(parts: &[Part<'_>]) -> Option<f64> {
    let part = parts.iter().find(|part| part.group.head.name == "scan")?;
    let rate = |cell: &SolvedCell| Some(figure(cell, "fio", "read")?.spread.median);
    part.solved.cells.iter().find_map(rate)
}

/// The least time of a pass over all of the data, as a multiple of the time in memory, whatever
/// pages the data: the part that has no room is read in each pass, at the device's rate.
fn bound(form: &AnswerForm, part: &Part<'_>, cell: &SolvedCell, device_mib_s: f64) -> Option<f64> {
    let in_memory = figure(cell, &part.solved.baseline, &form.pass).filter(|_| form.streams)?;
    let sizes = part.group.head.experiment.sizes_of(&cell.cell).ok()?;
    let missing = 1.0 - *sizes.get("memory")? as f64 / *sizes.get("data")? as f64;
    let memory_mib_s = in_memory.bytes / in_memory.seconds / f64::from(1 << 20);
    Some((missing.max(0.0) * memory_mib_s / device_mib_s).max(1.0))
}

/// Terapage's time as a multiple; a run that does not end is the worst.
fn loss(cell: &SolvedCell, pass: &str) -> Option<f64> {
    match cell.ends.iter().any(|(who, _)| who == "terapage") {
        true => Some(f64::INFINITY),
        false => Some(figure(cell, "terapage", pass)?.times?.center),
    }
}

/// The entry of a contender that was not measured.
const NONE: &str = "-";

/// A row of the table; none if nothing was measured.
fn row(
    form: &AnswerForm,
    part: &Part<'_>,
    cell: &SolvedCell,
    (is_worst, bound): (bool, Option<f64>),
    texts: &Texts,
) -> Option<Vec<String>> {
    let place = texts.cell(&cell.cell);
    let work = texts.answer(&form.id).to_owned();
    let work = if place.is_empty() { work } else { format!("{work}, {place}") };
    let sizes = part.group.head.experiment.sizes_of(&cell.cell).unwrap_or_default();
    let size = |name: &str| sizes.get(name).map_or_else(|| NONE.to_owned(), |bytes| Size(*bytes).to_string());
    let memory = texts.say("of-data", &[("memory", &size("memory")), ("data", &size("data"))]);
    let told = SHOWN.map(|name| told(cell, (name, &part.solved.baseline), &form.pass, texts));
    let measured = told.iter().any(|text| text != NONE);
    let bound = bound.map_or(NONE.to_owned(), |times| texts.say("times-of", &[("times", &number(times))]));
    let first =
        fastest(part, cell, &form.pass).into_iter().map(|name| texts.contender(name).trim_end().to_owned());
    let first = first.collect::<Vec<_>>().join(&texts.say("and", &[]));
    let mark = if first.is_empty() { texts.say("not-decided", &[]) } else { first };
    let work = if is_worst { texts.say("worst", &[("work", &work)]) } else { work };
    measured.then(|| [vec![work, memory], told.to_vec(), vec![bound, mark]].concat())
}

/// The entry of a contender in a row.
fn told(cell: &SolvedCell, (name, baseline): (&str, &str), pass: &str, texts: &Texts) -> String {
    if let Some((_, end)) = cell.ends.iter().find(|(who, _)| who == name) {
        return texts.text(end);
    }
    let of = |name: &str| figure(cell, name, pass);
    if let Some(struck) = of(name).and_then(|figure| figure.struck) {
        return texts.say("struck", &[("times", &number(struck.center))]);
    }
    let Some((figure, times)) = of(name).and_then(|figure| Some((figure, figure.times?))) else {
        return NONE.into();
    };
    let times = number(times.center);
    // Of a ratio either side may be too short.
    match figure.is_short() || of(baseline).is_some_and(SolvedFigure::is_short) {
        true => texts.say("short", &[("times", &times)]),
        false => texts.say("times-of", &[("times", &times)]),
    }
}

fn figure<'a>(cell: &'a SolvedCell, name: &str, pass: &str) -> Option<&'a SolvedFigure> {
    cell.figures.iter().find(|figure| figure.contender == name && figure.pass == pass)
}

/// How many figures of an experiment are of passes that are too short, if any are.
pub fn short_passes(solved: &Solved, texts: &Texts) -> Option<String> {
    let figures = || solved.cells.iter().flat_map(|cell| &cell.figures).filter(|figure| figure.timed);
    let (short, all) = (figures().filter(|figure| figure.is_short()).count(), figures().count());
    let [short_text, all] = [short, all].map(|count| count.to_string());
    (short > 0).then(|| texts.say("short-passes", &[("short", &short_text), ("all", &all)]))
}

/// Another tool and the lab differ in most cells: one warning for the first page.
pub fn doubts(parts: &[Part<'_>], texts: &Texts) -> Option<Answer> {
    let (mut names, mut told): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for part in parts {
        let checks = cross_checks(&part.group.head.experiment, part.solved);
        // Cells that are left open say nothing about the other tool.
        for check in checks.into_iter().filter(|check| 2 * check.met < check.all - check.open) {
            let name = part.group.head.name.as_str();
            if !names.contains(&name) {
                names.push(name);
            }
            let values = check.values();
            let mut values: Vec<(&str, &str)> =
                values.iter().map(|(name, value)| (*name, value.as_str())).collect();
            values.push(("experiment", name));
            told.push(texts.say("check-fails", &values));
        }
    }
    let shipped = names.iter().all(|name| SHIPPED.iter().any(|(known, _)| known == name));
    let command = format!("terapage {} run {}", if shipped { "lab" } else { "paper" }, names.join(" "));
    let text = texts.say("cross-check-fails", &[("checks", &told.join("; "))]);
    (!told.is_empty()).then_some(Answer { text, command })
}

/// How a contender ended in a cell, in words, if it did not end well.
fn told_end(cell: &SolvedCell, name: &str, texts: &Texts) -> Option<String> {
    let (_, end) = cell.ends.iter().find(|(who, _)| who == name)?;
    Some(texts.say("told-end", &[("name", &texts.contender(name)), ("end", &texts.text(end))]))
}

/// The contenders' times as multiples of the baseline's, or how they ended.
pub fn told_times(cell: &SolvedCell, pass: &str, texts: &Texts) -> Vec<String> {
    let of = |name: &str| {
        let figure = cell.figures.iter().find(|figure| figure.contender == name && figure.pass == pass);
        let times = || {
            let times = texts.interval(&figure?.times?);
            Some(texts.say("told-times", &[("name", &texts.contender(name)), ("times", &times)]))
        };
        told_end(cell, name, texts).or_else(times)
    };
    ["terapage", "far", "mmap", "swap"].into_iter().filter_map(of).collect()
}

/// The contenders' figures, or how they ended.
fn told_figures(solved: &Solved, cell: &SolvedCell, pass: &str, texts: &Texts) -> Vec<String> {
    let of = |name: &str| {
        let figure = cell.figures.iter().find(|figure| figure.contender == name && figure.pass == pass);
        let reached = || {
            let spread = &figure?.spread;
            let value = texts.range(spread.median, spread.min, spread.max);
            let (name, unit) = (texts.contender(name), texts.text(solved.unit.name()));
            let values = [("name", name.trim_end()), ("value", &value), ("unit", &unit)];
            Some(texts.say("told-figure", &values))
        };
        told_end(cell, name, texts).or_else(reached)
    };
    ["terapage", "far", "fio", "mmap", "swap"].into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::{doubts, overview, short_passes};
    use crate::experiment::Cell;
    use crate::ground::runner::End;
    use crate::result::findings::Part;
    use crate::result::findings::tests::measured;
    use crate::result::journal::tests::record;
    use crate::result::language::Texts;
    use crate::result::solve::solve;
    use terapage_report::Language;

    #[test]
    fn the_table_has_who_was_measured_and_the_worst_cell() {
        let group = measured("arrays", 6, "triad", |cell, contender| match contender {
            "swap" => 8.0,
            "terapage" if cell["ratio"] == "1" && cell["threads"] == "all" => 0.02,
            "terapage" if cell["ratio"] == "1/8" && cell["threads"] == "1" => 31.0,
            "terapage" => 1.3,
            _ => 1.0,
        });
        let solved = solve(&group);
        let parts = [Part { group: &group, solved: &solved, plots: Vec::new() }];
        let table = overview(&parts, Texts::of(Language::En)).expect("a table");
        assert_eq!(table.columns.len(), 6, "far memory and fio took no part: {:?}", table.columns);
        assert_eq!(table.rows.len(), 2, "{:?}", table.rows);
        let first = ["512 MiB of 1 GiB", "1.30 x", "1.00 x", "8.00 x", "a mapped file"];
        assert_eq!(table.rows[0][1..], first);
        assert!(table.rows[0][0].contains("ratio 1/2"), "{:?}", table.rows);
        assert_eq!(table.rows[1][1..3], ["128 MiB of 1 GiB", "31.0 x"]);
        assert!(
            table.rows[1][0].contains("worst") && !table.rows[0][0].contains("worst"),
            "{:?}",
            table.rows
        );
        let japanese = overview(&parts, Texts::of(Language::Ja)).expect("a table");
        assert!(japanese.rows[0][2].contains("1.30 倍"), "{:?}", japanese.rows);
        // One cell is of passes of 20 ms.
        let short = short_passes(&solved, Texts::of(Language::En)).expect("a sentence");
        assert!(short.starts_with("1 of "), "{short}");
    }

    #[test]
    fn the_device_bounds_what_goes_over_all_of_its_data() {
        // 100 MiB in 1 s by memory and by the device: half of the data is read again in each pass.
        let arrays = measured("arrays", 6, "triad", |_, contender| match contender {
            "memory" => 0.1,
            "mmap" => 0.9,
            "swap" => 8.0,
            _ => 0.88,
        });
        let mut scan = measured("scan", 6, "read", |_, _| 1.0);
        let cell = Cell::new();
        for round in 1..=6 {
            let mut run = record(&scan.head, &cell, round, "fio", 1.0);
            run.run.passes[0].pass = "read".into();
            scan.runs.push(run);
        }
        let solved = [solve(&arrays), solve(&scan)];
        let part = |group, solved| Part { group, solved, plots: Vec::new() };
        let parts = [part(&arrays, &solved[0]), part(&scan, &solved[1])];
        let table = overview(&parts, Texts::of(Language::En)).expect("a table");
        assert_eq!(table.columns[5], "the device's bound", "{:?}", table.columns);
        assert_eq!(table.rows[0][5..], ["5.00 x", "Terapage, a mapped file"]);
        let said = super::when_to_use_what(&parts, Texts::of(Language::En)).expect("a sentence").text;
        assert!(said.contains("Terapage (Three arrays (triad)); a mapped file (Three"), "{said}");
        assert!(!said.contains("swap ("), "{said}");
    }

    #[test]
    fn a_run_that_was_killed_is_the_worst() {
        let mut group = measured("arrays", 6, "triad", |_, contender| match contender {
            "terapage" => 3.0,
            _ => 1.0,
        });
        let is_it = |cell: &Cell| cell["ratio"] == "1/4" && cell["threads"] == "1";
        for record in group.runs.iter_mut().filter(|record| record.run.contender == "terapage") {
            if is_it(&record.cell) {
                record.run.end = End::Killed;
                record.run.passes.clear();
            }
        }
        let solved = solve(&group);
        let parts = [Part { group: &group, solved: &solved, plots: Vec::new() }];
        let table = overview(&parts, Texts::of(Language::En)).expect("a table");
        assert!(table.rows[1][0].contains("ratio 1/4") && table.rows[1][2] == "killed", "{:?}", table.rows);
    }

    #[test]
    fn what_is_too_short_is_said_in_its_place() {
        let group =
            measured("arrays", 6, "triad", |_, contender| if contender == "swap" { 0.08 } else { 0.01 });
        let solved = solve(&group);
        let parts = [Part { group: &group, solved: &solved, plots: Vec::new() }];
        let table = overview(&parts, Texts::of(Language::En)).expect("a table");
        assert_eq!(table.rows[0][4], "8.00 x (short)");
    }

    #[test]
    fn a_cross_check_that_fails_is_on_the_first_page() {
        let with = |other: f64| {
            let mut group = measured("arrays", 6, "triad", |_, _| 1.0);
            let cells = group.head.experiment.cells();
            for cell in cells.iter().filter(|cell| cell["ratio"] == "1") {
                for (name, seconds) in [("memory-pinned", 1.0), ("likwid", other)] {
                    let mut run = record(&group.head, cell, 1, name, seconds);
                    run.run.passes[0].pass = "triad".into();
                    group.runs.push(run);
                }
            }
            let solved = solve(&group);
            doubts(&[Part { group: &group, solved: &solved, plots: Vec::new() }], Texts::of(Language::En))
        };
        assert!(with(1.01).is_none());
        let said = with(2.0).expect("a warning");
        assert!(said.text.contains("0 of 2") && said.text.contains("arrays"), "{said:?}");
    }

    #[test]
    fn several_cross_checks_that_fail_are_one_warning() {
        let failed = |name: &str, pass: &str, contenders: [&str; 2]| {
            let mut group = measured(name, 6, "none", |_, _| 1.0);
            for cell in group.head.experiment.cells() {
                for (contender, seconds) in contenders.into_iter().zip([1.0, 2.0]) {
                    let mut run = record(&group.head, &cell, 1, contender, seconds);
                    run.run.passes[0].pass = pass.into();
                    group.runs.push(run);
                }
            }
            group
        };
        let groups = [
            failed("arrays", "triad", ["memory-pinned", "likwid"]),
            failed("raw", "io", ["io-uring", "fio-io-uring"]),
        ];
        let solved = [solve(&groups[0]), solve(&groups[1])];
        let parts: Vec<Part> = groups
            .iter()
            .zip(&solved)
            .map(|(group, solved)| Part { group, solved, plots: Vec::new() })
            .collect();
        let said = doubts(&parts, Texts::of(Language::En)).expect("a warning");
        assert!(said.text.contains("arrays") && said.text.contains("raw"), "{said:?}");
        assert_eq!(said.command, "terapage lab run arrays raw");
    }

    #[test]
    fn who_was_killed_is_not_the_fastest() {
        // Swap is the quickest, until it is killed in its second round.
        let mut group = measured("sort", 2, "time", |_, contender| match contender {
            "swap" => 1.1,
            "mmap" => 3.0,
            "terapage" => 2.0,
            _ => 1.0,
        });
        let last = group.runs.iter_mut().filter(|run| run.run.contender == "swap" && run.run.round == 2);
        for record in last {
            record.run.end = End::Killed;
            record.run.passes.clear();
        }
        let solved = solve(&group);
        let parts = [Part { group: &group, solved: &solved, plots: Vec::new() }];
        let texts = Texts::of(Language::En);
        let said = super::when_to_use_what(&parts, texts).expect("a sentence").text;
        assert!(said.contains("Terapage (") && !said.contains("swap ("), "{said}");
        let table = overview(&parts, texts).expect("a table");
        let row = &table.rows[0];
        assert!(row.contains(&"killed".to_owned()) && row.last().unwrap().starts_with("Terapage"), "{row:?}");
    }

    #[test]
    fn disturbed_runs_and_short_passes_name_nobody() {
        let mut group = measured("arrays", 6, "triad", |cell, contender| match contender {
            // Half the memory is too short to judge.
            "memory" if cell["ratio"] == "1/2" => 0.02,
            "swap" => 8.0,
            _ => 1.0,
        });
        let texts = Texts::of(Language::En);
        let told = |group: &crate::result::journal::Group| {
            let solved = solve(group);
            let parts = [Part { group, solved: &solved, plots: Vec::new() }];
            let first = super::noise(&parts, texts).map(|answer| answer.text);
            let said = super::when_to_use_what(&parts, texts).expect("a sentence").text;
            (overview(&parts, texts).expect("a table").rows[0][0].clone(), said, first)
        };
        let (row, said, first) = told(&group);
        assert!(!row.contains("ratio 1/2"), "another row stands for the work: {row}");
        assert!(said.contains("Terapage"), "{said}");
        assert_eq!(first, None, "a quiet page needs no warning");
        group.runs.iter_mut().for_each(|run| run.watched.marks.push("load of 9".into()));
        let (_, said, first) = told(&group);
        assert!(said.starts_with("Which is the fastest is not decided"), "{said}");
        let (first, count) = (first.expect("a warning"), group.runs.len());
        assert!(first.starts_with(&format!("Disturbed: {count} of {count} runs")), "{first}");
    }

    #[test]
    fn an_impossible_value_is_struck() {
        let group = measured("arrays", 6, "triad", |_, contender| match contender {
            "terapage" => 0.64,
            "swap" => 8.0,
            _ => 1.0,
        });
        let solved = solve(&group);
        let parts = [Part { group: &group, solved: &solved, plots: Vec::new() }];
        let table = overview(&parts, Texts::of(Language::En)).expect("a table");
        assert_eq!(table.rows[0][2], "struck (0.64 x)");
        assert_eq!(table.rows[0][5], "a mapped file");
    }
}
