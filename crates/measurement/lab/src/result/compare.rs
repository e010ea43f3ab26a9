//! A comparison of two sets of results.

use crate::result::journal::{Group, Record};
use crate::result::language::Texts;
use crate::result::pairs::unpaired;
use crate::result::solve::of_cell;
use anyhow::ensure;
use std::path::Path;
use terapage_report::{Study, Table};

/// The common cells of both, with the machines' differences.
///
/// # Errors
/// They have nothing in common.
pub fn compare(
    (path, one): (&Path, &[Group]),
    (other_path, other): (&Path, &[Group]),
    texts: &Texts,
) -> anyhow::Result<Study> {
    let title = texts.text("Two sets of results");
    let mut study = Study { title, language: texts.language(), ..Study::default() };
    for group in one {
        for with in other.iter().filter(|with| with.head.name == group.head.name) {
            study.tables.extend(against(group, with, texts));
        }
    }
    ensure!(
        !study.tables.is_empty(),
        "{} and {} have no cell in common",
        path.display(),
        other_path.display()
    );
    study.summary.push(texts.say("compare", &[("first", &path.display().to_string())]));
    let (ours, theirs) = (one[0].head.machine.pairs(), other[0].head.machine.pairs());
    let others: Vec<String> = ours
        .iter()
        .filter_map(|(key, value)| {
            let with = theirs.iter().find(|(known, _)| known == key)?;
            (with.1 != *value).then(|| format!("{key}: {value} / {}", with.1))
        })
        .collect();
    study.summary.push(match others.is_empty() {
        true => texts.say("settings-same", &[]),
        false => texts.say("settings-differ", &[("settings", &others.join("; "))]),
    });
    Ok(study)
}

/// The cells, contenders and passes that both have.
fn against(one: &Group, other: &Group, texts: &Texts) -> Option<Table> {
    let unit = one.head.experiment.unit;
    let mut rows = Vec::new();
    for cell in one.head.experiment.cells() {
        let (ones, others) = (of_cell(&one.runs, &cell), of_cell(&other.runs, &cell));
        let mut keys: Vec<(String, String)> = Vec::new();
        for record in &ones {
            for pass in &record.run.passes {
                let key = (record.run.contender.clone(), pass.pass.clone());
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        for (contender, pass) in keys {
            let of = |runs: &[&Record]| -> Vec<f64> {
                let own = runs.iter().filter(|record| record.run.contender == contender);
                own.flat_map(|r| r.run.passes.iter().filter(|p| p.pass == pass).map(|p| unit.cost(p)))
                    .collect()
            };
            if let Some(ratio) = unpaired(&of(&ones), &of(&others)) {
                rows.push(vec![
                    texts.cell(&cell),
                    contender,
                    pass,
                    texts.interval(&ratio),
                    ratio.pairs.to_string(),
                ]);
            }
        }
    }
    let columns = vec![
        texts.say("cell", &[]),
        texts.say("contender", &[]),
        texts.say("pass", &[]),
        texts.say("first-over-second", &[]),
        texts.say("runs", &[]),
    ];
    (!rows.is_empty()).then(|| Table { title: one.head.name.clone(), columns, rows, note: String::new() })
}
