//! The first page: a table of the lab's own work relative to memory, sentences, and doubts.

use crate::experiment::{Only, is_in};
use crate::result::checks::cross_checks;
use crate::result::findings::{Part, all};
use crate::result::language::Texts;
use crate::result::number::number;
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
        let part = parts.iter().find(|part| part.group.head.name == form.experiment)?;
        let cell = part.solved.cells.iter().find(|cell| is_in(&form.at, &cell.cell))?;
        let told = told_figures(part.solved, cell, &form.pass, texts);
        let values = [("begin", texts.answer(&form.id)), ("parts", &texts.list(&told))];
        (!told.is_empty()).then(|| Answer { text: texts.say("answer", &values), ..Answer::default() })
    };
    all().answer.iter().filter(|form| form.show == Show::Figures).filter_map(answer).collect()
}

/// Whose times the table has.
const SHOWN: [&str; 4] = ["terapage", "far", "mmap", "swap"];

/// The first page's table: the time of the work as a multiple of its time in memory, in the
/// representative cell, and in Terapage's worst one.
pub fn overview(parts: &[Part<'_>], texts: &Texts) -> Option<Table> {
    let mut rows = Vec::new();
    for form in all().answer.iter().filter(|form| form.show == Show::Times) {
        let Some(part) = parts.iter().find(|part| part.group.head.name == form.experiment) else { continue };
        let cells = || part.solved.cells.iter();
        let worst = cells().filter_map(|cell| Some((cell, loss(cell, &form.pass)?)));
        let worst = worst.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(cell, _)| cell);
        let usual = cells().find(|cell| is_in(&form.at, &cell.cell));
        let same = usual.zip(worst).is_some_and(|(usual, worst)| std::ptr::eq(usual, worst));
        for cell in usual.into_iter().chain(worst.filter(|_| !same)) {
            let is_worst = worst.is_some_and(|worst| std::ptr::eq(worst, cell));
            rows.extend(row(form, part, cell, is_worst, texts));
        }
    }
    // Who took no part has no column.
    let has = |at: usize| rows.iter().any(|row: &Vec<String>| row[at] != NONE);
    let shown: Vec<bool> = (0..SHOWN.len()).map(|i| has(2 + i)).collect();
    let mut columns = vec![texts.say("work", &[]), texts.say("its-memory", &[])];
    columns.extend(SHOWN.map(|name| texts.contender(name)));
    columns.push(String::new());
    let kept = |row: Vec<String>| -> Vec<String> {
        let keep = |at: usize| at < 2 || at >= 2 + SHOWN.len() || shown[at - 2];
        row.into_iter().enumerate().filter(|(at, _)| keep(*at)).map(|(_, text)| text).collect()
    };
    (!rows.is_empty()).then(|| Table {
        title: texts.say("overview", &[]),
        columns: kept(columns),
        rows: rows.into_iter().map(kept).collect(),
        note: texts.say("overview-note", &[]),
    })
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
    is_worst: bool,
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
    let mark = if is_worst { texts.say("worst", &[]) } else { String::new() };
    measured.then(|| [vec![work, memory], told.to_vec(), vec![mark]].concat())
}

/// The entry of a contender in a row.
fn told(cell: &SolvedCell, (name, baseline): (&str, &str), pass: &str, texts: &Texts) -> String {
    if let Some((_, end)) = cell.ends.iter().find(|(who, _)| who == name) {
        return texts.text(end);
    }
    let of = |name: &str| figure(cell, name, pass);
    let Some((figure, times)) = of(name).and_then(|figure| Some((figure, figure.times?))) else {
        return NONE.into();
    };
    let times = number(times.center);
    // Of a ratio either side may be too short.
    match is_short(figure) || of(baseline).is_some_and(is_short) {
        true => texts.say("short", &[("times", &times)]),
        false => texts.say("times-of", &[("times", &times)]),
    }
}

fn figure<'a>(cell: &'a SolvedCell, name: &str, pass: &str) -> Option<&'a SolvedFigure> {
    cell.figures.iter().find(|figure| figure.contender == name && figure.pass == pass)
}

/// Passes shorter than this, seconds, say little: their start is a large part of them. Chosen, not
/// measured.
const SHORT_S: f64 = 0.1;

/// Whether a figure comes from passes that are too short.
fn is_short(figure: &SolvedFigure) -> bool {
    figure.seconds < SHORT_S
}

/// The number of figures of an experiment from passes that are too short, if there are any.
pub fn short_passes(solved: &Solved, texts: &Texts) -> Option<String> {
    let figures = || solved.cells.iter().flat_map(|cell| &cell.figures).filter(|figure| figure.timed);
    let (short, all) = (figures().filter(|figure| is_short(figure)).count(), figures().count());
    let [short_text, all] = [short, all].map(|count| count.to_string());
    (short > 0).then(|| texts.say("short-passes", &[("short", &short_text), ("all", &all)]))
}

/// Where another tool and the lab differ in most cells: a warning for the first page.
pub fn doubts(parts: &[Part<'_>], texts: &Texts) -> Vec<Answer> {
    let of_part = |part: &Part<'_>| {
        let name = part.group.head.name.clone();
        let checks = cross_checks(&part.group.head.experiment, part.solved);
        let failed = checks.into_iter().filter(|check| 2 * check.met < check.all);
        failed
            .map(|check| {
                let values = check.values();
                let mut values: Vec<(&str, &str)> =
                    values.iter().map(|(name, value)| (*name, value.as_str())).collect();
                values.push(("experiment", &name));
                let command = format!("terapage lab run {name}");
                Answer { text: texts.say("cross-check-fails", &values), command }
            })
            .collect::<Vec<_>>()
    };
    parts.iter().flat_map(of_part).collect()
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
        assert_eq!(table.columns.len(), 6, "far memory took no part: {:?}", table.columns);
        assert_eq!(table.rows.len(), 2, "{:?}", table.rows);
        assert_eq!(table.rows[0][1..], ["512 MiB of 1 GiB", "1.30 x", "1.00 x", "8.00 x", ""]);
        assert!(table.rows[0][0].contains("ratio 1/2"), "{:?}", table.rows);
        assert_eq!(table.rows[1][1..3], ["128 MiB of 1 GiB", "31.0 x"]);
        assert!(table.rows[1][5].contains("worst"), "{:?}", table.rows);
        let japanese = overview(&parts, Texts::of(Language::Ja)).expect("a table");
        assert!(japanese.rows[0][2].contains("1.30 倍"), "{:?}", japanese.rows);
        // One cell is of passes of 20 ms.
        let short = short_passes(&solved, Texts::of(Language::En)).expect("a sentence");
        assert!(short.starts_with("1 of "), "{short}");
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
        assert!(with(1.01).is_empty());
        let said = with(2.0);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].text.contains("0 of 2") && said[0].text.contains("arrays"), "{said:?}");
    }
}
