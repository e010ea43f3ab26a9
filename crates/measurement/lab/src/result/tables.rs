//! The tables of an experiment: figures, targets, published values.

use crate::experiment::Cell;
use crate::result::language::Texts;
use crate::result::number::number;
use crate::result::pairs::PAIRS_LEAST;
use crate::result::solve::{Solved, SolvedFigure};
use crate::result::target::{Target, Undecided};
use terapage_config::Size;
use terapage_report::Table;

/// The columns of the table of figures.
struct Columns {
    cell: bool,
    pass: bool,
    device: bool,
}

impl Columns {
    fn of(solved: &Solved) -> Option<Columns> {
        let figures = || solved.cells.iter().flat_map(|cell| &cell.figures);
        let first = figures().next().map(|figure| &figure.pass);
        // Contenders that failed in all cells state the reason in this table.
        if first.is_none() && solved.cells.iter().all(|cell| cell.ends.is_empty()) {
            return None;
        }
        Some(Columns {
            cell: solved.cells.iter().any(|cell| !cell.cell.is_empty()),
            pass: figures().any(|figure| Some(&figure.pass) != first),
            device: figures().any(|figure| figure.device_share.is_some()),
        })
    }

    fn heads(&self, solved: &Solved, texts: &Texts) -> Vec<String> {
        let mut heads = vec![texts.say("contender", &[])];
        if self.cell {
            heads.insert(0, texts.say("cell", &[]));
        }
        if self.pass {
            heads.push(texts.say("pass", &[]));
        }
        let times = texts.say("time-over", &[("baseline", &solved.baseline)]);
        heads.extend([solved.unit.name().to_owned(), times]);
        if self.device {
            heads.push(texts.say("of-device", &[]));
        }
        heads.extend([texts.say("cpu", &[]), texts.say("resident", &[])]);
        heads
    }

    fn row(&self, cell: &Cell, figure: &SolvedFigure, texts: &Texts) -> Vec<String> {
        let percent =
            |share: Option<f64>| share.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0));
        let mut row = vec![figure.contender.clone()];
        if self.cell {
            row.insert(0, texts.cell(cell));
        }
        if self.pass {
            row.push(figure.pass.clone());
        }
        let spread = &figure.spread;
        row.push(texts.range(spread.median, spread.min, spread.max));
        row.push(figure.times.as_ref().map_or_else(|| "-".into(), |times| texts.interval(times)));
        if self.device {
            row.push(percent(figure.device_share));
        }
        row.extend([percent(figure.cpu_share), Size(figure.resident_peak_bytes >> 20 << 20).to_string()]);
        row
    }
}

/// Every figure, with its spread.
pub fn figures(solved: &Solved, texts: &Texts) -> Option<Table> {
    let with = Columns::of(solved)?;
    let columns = with.heads(solved, texts);
    let mut rows = Vec::new();
    for cell in &solved.cells {
        rows.extend(cell.figures.iter().map(|figure| with.row(&cell.cell, figure, texts)));
        // A contender without figures has the reason in their place.
        let name = usize::from(with.cell);
        for (contender, end) in &cell.ends {
            let mut row = vec![String::from("-"); columns.len()];
            row[0] = texts.cell(&cell.cell);
            row[name].clone_from(contender);
            row[name + 1 + usize::from(with.pass)] = texts.text(end);
            rows.push(row);
        }
    }
    let mut note = texts.say("figures-note", &[("pairs", &PAIRS_LEAST.to_string())]);
    if with.device {
        note += &texts.say("device-note", &[]);
    }
    Some(Table { title: texts.say("figures", &[]), columns, rows, note })
}

/// The targets and their values.
pub fn targets(solved: &Solved, texts: &Texts) -> Option<Table> {
    let met = |target: &Target| match (target.met, target.undecided) {
        (Some(true), _) => texts.say("met", &[]),
        (Some(false), _) => texts.say("missed", &[]),
        (None, Some(Undecided::Disturbed)) => texts.say("undecided-disturbed", &[]),
        (None, Some(Undecided::Noise)) => texts.say("undecided-noise", &[]),
        (None, None) => texts.say("not-measured", &[]),
    };
    let with_cell = solved.targets.iter().any(|(cell, _)| !cell.is_empty());
    let rows: Vec<Vec<String>> = solved
        .targets
        .iter()
        .map(|(cell, target)| {
            let what = if with_cell { format!("{} ({cell})", target.what) } else { target.what.clone() };
            vec![
                what,
                target.value.map_or_else(|| "-".into(), number),
                format!("{} {}", target.side.sign(), number(target.target)),
                met(target),
            ]
        })
        .collect();
    let columns =
        vec![texts.say("target", &[]), texts.say("value", &[]), texts.say("wanted", &[]), String::new()];
    (!rows.is_empty()).then(|| Table { title: texts.say("targets", &[]), columns, rows, note: String::new() })
}

/// Published values, beside those measured here.
pub fn published(solved: &Solved, texts: &Texts) -> Option<Table> {
    let rows: Vec<Vec<String>> = solved
        .published
        .iter()
        .map(|beside| {
            vec![
                beside.figure.clone(),
                texts.text(&beside.what),
                format!("{} {}", number(beside.published), texts.text(&beside.unit)),
                beside.measured.map_or_else(|| texts.say("not-measured", &[]), number),
                texts.text(&beside.note),
            ]
        })
        .collect();
    let columns = vec![
        texts.say("figure", &[]),
        texts.say("what", &[]),
        texts.say("published", &[]),
        texts.say("here", &[]),
        texts.say("since", &[]),
    ];
    (!rows.is_empty()).then(|| Table {
        title: texts.say("published-title", &[]),
        columns,
        rows,
        note: texts.say("published-note", &[]),
    })
}
