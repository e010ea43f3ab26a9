//! The runs' remarks about themselves and about the machine, on the page; and the remark that a
//! device is throttled, wherever its figures are drawn.

use crate::experiment::{Cell, Only, is_in, words};
use crate::ground::runner::End;
use crate::result::journal::{Group, Record};
use crate::result::language::Texts;
use std::collections::BTreeSet;
use terapage_report::{Study, Table};

/// A remark: its contender, its cells, its text.
struct Remark {
    contenders: Vec<String>,
    cells: Vec<Cell>,
    text: String,
}

/// A contender's first run in these cells that did not end well.
pub fn not_ended(runs: &[Record], contender: &str, at: &Only, texts: &Texts) -> Option<String> {
    let own = runs.iter().filter(|record| record.run.contender == contender && is_in(at, &record.cell));
    let record = own.into_iter().find(|record| record.run.end != End::Done)?;
    let (end, place) = (texts.text(&record.run.end.text()), texts.cell(&record.cell));
    let who = texts.text(&record.run.contender);
    // An experiment without a matrix has one cell, which has no name.
    if place.is_empty() {
        return Some(texts.say("not-ended-anywhere", &[("who", &who), ("end", &end)]));
    }
    Some(texts.say("not-ended", &[("who", &who), ("end", &end), ("place", &place)]))
}

/// Adds the remarks of a group's runs to the group's study.
pub fn add(mut study: Study, group: &Group) -> Study {
    let all = remarks(group);
    let contenders = count(group.runs.iter().map(|record| record.run.contender.clone()));
    let cells = count(group.runs.iter().map(|record| words(&record.cell)));
    let mut rows = Vec::new();
    for remark in &all {
        if remark.contenders.len() == contenders {
            study.summary.push(format!("{}.", capital(&remark.text)));
            continue;
        }
        if remark.text.contains("no longer selectable") || remark.text.contains("not throttled") {
            study.summary.push(format!("{}: {}.", remark.contenders.join(", "), remark.text));
        }
        let cells = match remark.cells.len() == cells {
            true => "all".to_owned(),
            false => remark.cells.iter().map(words).collect::<Vec<_>>().join("; "),
        };
        rows.push(vec![remark.contenders.join(", "), cells, remark.text.clone()]);
    }
    if !rows.is_empty() {
        let columns = ["contender", "cells", "remark"].map(str::to_owned).to_vec();
        study.tables.push(Table { title: "Remarks".into(), columns, rows, note: String::new() });
    }
    // Without a figure there is no table that would show it.
    if group.runs.iter().all(|record| record.run.end != End::Done) {
        let ends =
            group.runs.iter().map(|record| format!("{}: {}.", record.run.contender, record.run.end.text()));
        study.summary.extend(ends.collect::<BTreeSet<_>>());
    }
    let machine = &group.head.machine;
    if let Some(name) = &machine.device_name {
        study.title = format!("{} on {name}", study.title);
    }
    if let Some(class) = &machine.class {
        let name = machine.device_name.as_deref().unwrap_or("device");
        study.summary.push(format!("{name} is not a real device, but {class}."));
        for plot in &mut study.plots {
            plot.title = format!("{} [{name}: throttled loop]", plot.title);
        }
    }
    study
}

/// The remarks of all runs, each once.
fn remarks(group: &Group) -> Vec<Remark> {
    let mut all: Vec<Remark> = Vec::new();
    for record in &group.runs {
        for text in &record.run.notes {
            let (contender, cell) = (&record.run.contender, &record.cell);
            let Some(known) = all.iter_mut().find(|remark| remark.text == *text) else {
                let (contenders, cells) = (vec![contender.clone()], vec![cell.clone()]);
                all.push(Remark { contenders, cells, text: text.clone() });
                continue;
            };
            if !known.contenders.contains(contender) {
                known.contenders.push(contender.clone());
            }
            if !known.cells.contains(cell) {
                known.cells.push(cell.clone());
            }
        }
    }
    all
}

/// The number of different names.
fn count(names: impl Iterator<Item = String>) -> usize {
    names.collect::<BTreeSet<_>>().len()
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{add, not_ended};
    use crate::experiment::{Only, Value};
    use crate::ground::runner::End;
    use crate::result::journal::tests::{group, record};
    use crate::result::language::Texts;
    use terapage_report::{Language, Plot, Study};

    const TEXT: &str = "title = \"A\"\nunit = \"s\"\ncontenders = [\"memory\", \"swap\"]\n[program]\nrun = [\"true\"]\n\
        [matrix]\nsize = [1, 2]\n";

    #[test]
    fn that_nobody_came_to_an_end_is_said() {
        let mut group = group(TEXT);
        let cell = group.head.experiment.cells().remove(0);
        let mut failed = record(&group.head, &cell, 1, "memory", 1.0);
        failed.run.end = End::Failed("Input/output error".into());
        group.runs.push(failed);
        assert_eq!(add(Study::default(), &group).summary, ["memory: failed: Input/output error."]);
    }

    #[test]
    fn a_finding_without_values_names_the_run_that_did_not_end() {
        let mut group = group(TEXT);
        let cells = group.head.experiment.cells();
        for contender in ["memory", "swap"] {
            let mut run = record(&group.head, &cells[1], 1, contender, 1.0);
            run.run.end = if contender == "swap" { End::Killed } else { End::Done };
            group.runs.push(run);
        }
        let texts = Texts::of(Language::En);
        let said = |contender: &str, at: &Only| not_ended(&group.runs, contender, at, texts);
        let here = Some("swap: killed at size 2, so there is nothing to compare.".to_owned());
        assert_eq!(said("swap", &Only::default()), here);
        assert_eq!(said("memory", &Only::default()), None);
        let other = [("size".to_owned(), vec![Value::Text(cells[0]["size"].clone())])];
        assert_eq!(said("swap", &other.into_iter().collect()), None);
    }

    #[test]
    fn a_run_of_an_experiment_without_a_matrix_is_at_no_place() {
        let mut group = group(TEXT.split("[matrix]").next().unwrap());
        let cell = group.head.experiment.cells().remove(0);
        let mut run = record(&group.head, &cell, 1, "swap", 1.0);
        run.run.end = End::TimedOut;
        group.runs.push(run);
        let said = not_ended(&group.runs, "swap", &Only::default(), Texts::of(Language::En));
        assert_eq!(said, Some("swap: timed out, so there is nothing to compare.".to_owned()));
    }

    #[test]
    fn remarks_are_said_once_with_whose_they_are() {
        let mut group = group(TEXT);
        for cell in group.head.experiment.cells() {
            for contender in ["memory", "swap"] {
                let mut record = record(&group.head, &cell, 1, contender, 1.0);
                record.run.notes.push("2 cores: contention not visible".into());
                if contender == "swap" {
                    record.run.notes.push("not throttled: swap-out".into());
                }
                group.runs.push(record);
            }
        }
        group.runs[0].run.notes.push("too fast to measure: read".into());
        group.head.machine.device_name = Some("hdd".into());
        group.head.machine.class = Some("a loop throttled like hdd".into());
        let plot = Plot { title: "Seeks".into(), ..Plot::default() };
        let study = add(Study { title: "a".into(), plots: vec![plot], ..Study::default() }, &group);
        assert_eq!(study.title, "a on hdd");
        assert_eq!(study.plots[0].title, "Seeks [hdd: throttled loop]");
        assert_eq!(
            study.summary,
            [
                "2 cores: contention not visible.",
                "swap: not throttled: swap-out.",
                "hdd is not a real device, but a loop throttled like hdd."
            ]
        );
        let rows: Vec<String> = study.tables[0].rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(rows, ["memory|size 1|too fast to measure: read", "swap|all|not throttled: swap-out"]);
    }
}
