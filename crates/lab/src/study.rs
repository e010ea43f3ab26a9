//! Results as a study: the first page in plain words, plots, tables; drawn by `terapage_report`.

use crate::experiment::{Cell, Experiment, PlotForm, atom, is_in, words};
use crate::journal::Group;
use crate::pairs::{PAIRS_LEAST, Ratio};
use crate::report::{Unit, number};
use crate::solve::{AGAIN, Solved, SolvedCell, SolvedFigure};
use crate::statistics::Spread;
use terapage_config::Size;
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

/// The study of a group of runs and what was computed of them.
pub fn study(group: &Group, solved: &Solved) -> Study {
    let head = &group.head;
    let experiment = &head.experiment;
    let mut study = Study {
        title: format!("{}: {}", head.name, experiment.title),
        summary: summary(group, solved),
        command: head.command.clone(),
        machine: head.machine.pairs().into_iter().chain(head.variables.clone()).collect(),
        parameters: parameters(experiment),
        plots: experiment.plot.iter().filter_map(|form| plot(experiment, solved, form)).collect(),
        tables: Vec::new(),
    };
    if study.plots.is_empty() {
        study.plots.extend(plot(experiment, solved, &usual_plot(experiment)));
    }
    study.tables.extend(figures(solved));
    study.tables.extend(targets(solved));
    study.tables.extend(published(solved));
    study
}

/// Several studies on one page; each part's name stands before its headings.
pub fn together(title: &str, studies: Vec<(String, Study)>) -> Study {
    let mut all = Study { title: title.into(), ..Study::default() };
    for (name, mut study) in studies {
        all.summary.push(format!("{}. {}", study.title, study.summary.join(" ")));
        study.plots.iter_mut().for_each(|plot| plot.title = format!("{name}: {}", plot.title));
        study.tables.iter_mut().for_each(|table| table.title = format!("{name}: {}", table.title));
        study.parameters.iter_mut().for_each(|value| value.name = format!("{name}: {}", value.name));
        all.plots.extend(study.plots);
        all.tables.extend(study.tables);
        all.parameters.extend(study.parameters);
        if all.machine.is_empty() {
            (all.machine, all.command) = (study.machine, study.command);
        }
    }
    all
}

fn usual_plot(experiment: &Experiment) -> PlotForm {
    PlotForm {
        title: format!("{}, in {}", experiment.title, experiment.unit.name()),
        x: experiment.matrix.keys().next().cloned().unwrap_or_else(|| "pass".into()),
        only: Default::default(),
        passes: Vec::new(),
        relative: false,
        log: false,
        note: String::new(),
    }
}

/// `1.30 (1.20 to 1.40)`.
fn interval(ratio: &Ratio) -> String {
    format!("{} ({} to {})", number(ratio.center), number(ratio.low), number(ratio.high))
}

fn spread(spread: &Spread) -> String {
    match spread.min == spread.max {
        true => number(spread.median),
        false => format!("{} ({} to {})", number(spread.median), number(spread.min), number(spread.max)),
    }
}

fn summary(group: &Group, solved: &Solved) -> Vec<String> {
    let experiment = &group.head.experiment;
    let mut all = Vec::new();
    if !experiment.about.is_empty() {
        all.push(experiment.about.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    all.extend(answers(solved));
    all.extend(command(experiment, solved));
    if let Some(noise) = &solved.noise {
        all.push(format!(
            "Noise floor: {} against itself takes {} times as long; no smaller difference means anything.",
            solved.baseline,
            interval(noise)
        ));
    }
    let open: Vec<String> =
        solved.cells.iter().filter(|cell| !cell.settled).map(|c| words(&c.cell)).collect();
    let named = |names: &[String]| match names.iter().all(String::is_empty) {
        true => String::new(),
        false if names.len() > 4 => format!(": {} and {} more", names[..4].join("; "), names.len() - 4),
        false => format!(": {}", names.join("; ")),
    };
    match open.len() {
        0 => all.push(format!("Settled: every ratio's 95 % interval is within 5 % ({} runs).", solved.runs)),
        _ => all.push(format!(
            "Not settled: of {} cells {} have a ratio whose interval is wider than 5 %, or fewer than \
             {PAIRS_LEAST} pairs{}.",
            solved.cells.len(),
            open.len(),
            named(&open)
        )),
    }
    if solved.disturbed > 0 {
        let marks: Vec<String> =
            solved.marks.iter().map(|(mark, count)| format!("{mark} ({count})")).collect();
        all.push(format!(
            "Disturbed: {} of {} runs, after what repeats were allowed: {}. Measure on a quiet machine.",
            solved.disturbed,
            solved.runs,
            marks.join(", ")
        ));
    }
    if group.head.machine.device.is_none() {
        all.push(format!(
            "The directory lies on {}, which has no device of its own: what a device would do is not \
             measured.",
            group.head.machine.mount.kind
        ));
    }
    for (name, why) in &group.head.left_out {
        all.push(format!("Left out: {name}: {why}."));
    }
    all
}

/// How a user's program is run with less memory: with half of what it wants, or the part that is
/// nearest to it of those that were measured and that completes.
fn command(experiment: &Experiment, solved: &Solved) -> Option<String> {
    if !experiment.program.verbatim {
        return None;
    }
    let completes = |cell: &&SolvedCell| cell.figures.iter().any(|figure| figure.contender == "terapage");
    let far = |cell: &SolvedCell| {
        let part = cell.cell.get("ratio").and_then(|ratio| atom(ratio)).unwrap_or(f64::MAX);
        (part.ln() - 0.5f64.ln()).abs()
    };
    let cell = solved.cells.iter().filter(completes).min_by(|a, b| far(a).total_cmp(&far(b)))?;
    let bytes = experiment.sizes_of(&cell.cell).ok()?.get("memory").copied()?;
    let program = experiment.program.run.join(" ");
    Some(format!(
        "With {} of it: terapage run --memory {}M -- {program}",
        cell.cell.get("ratio")?,
        bytes >> 20
    ))
}

/// How long Terapage and swap take, cell by cell, in words; for experiments that have them.
fn answers(solved: &Solved) -> Vec<String> {
    let of = |cell: &SolvedCell, name: &str| {
        let times: Vec<&Ratio> =
            cell.figures.iter().filter(|f| f.contender == name).filter_map(|f| f.times.as_ref()).collect();
        let first = times.first()?;
        Some(match times.len() {
            1 => format!("{} times as long by {name}", interval(first)),
            _ => {
                let ends = times
                    .iter()
                    .map(|ratio| ratio.center)
                    .fold((f64::MAX, 0f64), |(low, high), value| (low.min(value), high.max(value)));
                format!("{} to {} times as long by {name}", number(ends.0), number(ends.1))
            }
        })
    };
    let mut all = Vec::new();
    for cell in &solved.cells {
        let parts: Vec<String> = ["terapage", "far", "swap", "mmap"]
            .iter()
            .filter_map(|name| {
                let end = cell.ends.iter().find(|(who, _)| who == name);
                end.map(|(_, end)| format!("{name}: {end}")).or_else(|| of(cell, name))
            })
            .collect();
        if !parts.is_empty() && all.len() < 8 {
            let place = match cell.cell.get("ratio") {
                Some(ratio) if cell.cell.len() == 1 => format!("With {ratio} of the memory that it wants"),
                _ if cell.cell.is_empty() => "With the memory given".into(),
                _ => format!("At {}", words(&cell.cell)),
            };
            all.push(format!(
                "{place} the same work takes, against {}: {}.",
                solved.baseline,
                parts.join("; ")
            ));
        }
    }
    all
}

fn parameters(experiment: &Experiment) -> Vec<Parameter> {
    let parameter = |name: &str, value: String, source: &str| Parameter {
        name: name.into(),
        value,
        origin: Origin::Chosen,
        source: source.into(),
        ..Parameter::default()
    };
    let mut all = vec![parameter("program", experiment.program.run.join(" "), "")];
    for (name, term) in &experiment.sizes {
        let sizes = experiment.cells().first().and_then(|cell| experiment.sizes_of(cell).ok());
        let bytes = sizes.and_then(|sizes| sizes.get(name).copied()).unwrap_or(0);
        all.push(parameter(name, term.clone(), &format!("{} in the first cell", Size(bytes))));
    }
    for (key, values) in &experiment.matrix {
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        all.push(parameter(key, values.join(", "), "matrix"));
    }
    let rounds = experiment.repetitions;
    all.push(parameter("rounds", format!("{} to {}", rounds.least, rounds.most), ""));
    all
}

/// What one figure of a plot is called: contender, pass, and the keys that are not across.
fn series_name(figure: &SolvedFigure, cell: &Cell, form: &PlotForm, with_pass: bool) -> String {
    let mut name = figure.contender.clone();
    if with_pass {
        name += &format!(" {}", figure.pass);
    }
    for (key, value) in cell {
        let fixed = form.only.get(key).is_some_and(|values| values.len() == 1);
        if *key != form.x && !fixed {
            name += &format!(", {key} {value}");
        }
    }
    name
}

fn plot(experiment: &Experiment, solved: &Solved, form: &PlotForm) -> Option<Plot> {
    let across_passes = form.x == "pass";
    let shown = |pass: &String| form.passes.is_empty() || form.passes.contains(pass);
    let passes: Vec<&String> =
        solved.cells.iter().flat_map(|c| c.figures.iter().map(|f| &f.pass)).filter(|p| shown(p)).collect();
    let with_pass = !across_passes && passes.iter().any(|pass| *pass != passes[0]);
    // Sizes are places on a logarithmic axis, other values names.
    let sized = experiment
        .matrix
        .get(&form.x)
        .is_some_and(|values| values.iter().all(|value| value.to_string().ends_with(['K', 'M', 'G'])));
    let place = |text: &str| match atom(text).filter(|_| sized) {
        Some(bytes) => X::Number(bytes),
        None => X::Name(text.into()),
    };
    let mut series: Vec<Series> = Vec::new();
    let mut add = |name: String, mark: Mark, point: (X, f64)| match series
        .iter_mut()
        .find(|known| known.name == name && known.mark == mark)
    {
        Some(known) => known.points.push(point),
        None => series.push(Series { name, mark, points: vec![point] }),
    };
    for cell in solved.cells.iter().filter(|cell| is_in(&form.only, &cell.cell)) {
        for figure in cell.figures.iter().filter(|figure| shown(&figure.pass)) {
            if figure.contender.ends_with(AGAIN) {
                continue;
            }
            let value = match form.relative {
                true => figure.times.as_ref().map(|times| times.center),
                false => Some(figure.spread.median),
            };
            let across = if across_passes { &figure.pass } else { cell.cell.get(&form.x)? };
            if let Some(value) = value {
                add(series_name(figure, &cell.cell, form, with_pass), Mark::Measured, (place(across), value));
            }
        }
    }
    for (name, across, value) in printed_points(experiment, form) {
        add(name, Mark::Published, (place(&across), value));
    }
    if series.iter().all(|series| series.mark == Mark::Published) {
        return None;
    }
    let unit = if form.relative { "times".to_owned() } else { axis_unit(experiment.unit).to_owned() };
    Some(Plot {
        title: form.title.clone(),
        kind: if sized { PlotKind::Line } else { PlotKind::Bar },
        x: Axis {
            name: form.x.clone(),
            unit: if sized { "bytes".into() } else { String::new() },
            log: sized,
        },
        y: Axis {
            name: if form.relative {
                "time against the baseline".into()
            } else {
                quantity(experiment.unit).into()
            },
            unit,
            log: form.log && sized,
        },
        series,
        note: form.note.clone(),
    })
}

/// The printed figures that belong to a plot: whose, where across, and the value.
fn printed_points(experiment: &Experiment, form: &PlotForm) -> Vec<(String, String, f64)> {
    let of_form = experiment.published.iter().filter(|printed| printed.relative == form.relative);
    let points = of_form.filter_map(|printed| {
        let cell: Cell = printed.at.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
        let fits = form.only.iter().all(|(key, values)| {
            cell.get(key).is_none_or(|found| values.iter().any(|value| value.to_string() == *found))
        });
        let shown = form.passes.is_empty() || printed.pass.is_empty() || form.passes.contains(&printed.pass);
        let across = if form.x == "pass" { printed.pass.clone() } else { cell.get(&form.x)?.clone() };
        (fits && shown).then(|| (printed.contender.clone(), across, printed.value))
    });
    points.collect()
}

fn axis_unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Latency => "us",
        other => other.name(),
    }
}

fn quantity(unit: Unit) -> &'static str {
    match unit {
        Unit::Rate => "bandwidth",
        Unit::Latency => "latency",
        Unit::Seconds => "time",
        Unit::Mflops => "speed",
    }
}

/// Which columns the table of figures has.
struct Columns {
    cell: bool,
    pass: bool,
    device: bool,
}

impl Columns {
    fn of(solved: &Solved) -> Option<Columns> {
        let figures = || solved.cells.iter().flat_map(|cell| &cell.figures);
        let first = &figures().next()?.pass;
        Some(Columns {
            cell: solved.cells.iter().any(|cell| !cell.cell.is_empty()),
            pass: figures().any(|figure| figure.pass != *first),
            device: figures().any(|figure| figure.device_share.is_some()),
        })
    }

    fn heads(&self, solved: &Solved) -> Vec<String> {
        let mut heads = vec!["contender".to_owned()];
        if self.cell {
            heads.insert(0, "cell".into());
        }
        if self.pass {
            heads.push("pass".into());
        }
        heads.extend([solved.unit.name().to_owned(), format!("time / {}", solved.baseline)]);
        if self.device {
            heads.push("of device".into());
        }
        heads.extend(["cpu".to_owned(), "resident".into()]);
        heads
    }

    fn row(&self, cell: &Cell, figure: &SolvedFigure) -> Vec<String> {
        let percent =
            |share: Option<f64>| share.map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0));
        let mut row = vec![figure.contender.clone()];
        if self.cell {
            row.insert(0, words(cell));
        }
        if self.pass {
            row.push(figure.pass.clone());
        }
        row.push(spread(&figure.spread));
        row.push(figure.times.as_ref().map_or_else(|| "-".into(), interval));
        if self.device {
            row.push(percent(figure.device_share));
        }
        row.extend([percent(figure.cpu_share), Size(figure.resident_peak_bytes >> 20 << 20).to_string()]);
        row
    }
}

fn figures(solved: &Solved) -> Option<Table> {
    let with = Columns::of(solved)?;
    let columns = with.heads(solved);
    let mut rows = Vec::new();
    for cell in &solved.cells {
        rows.extend(cell.figures.iter().map(|figure| with.row(&cell.cell, figure)));
        // Who has no figures says why where they would be.
        let name = usize::from(with.cell);
        for (contender, end) in &cell.ends {
            let mut row = vec![String::from("-"); columns.len()];
            row[0] = words(&cell.cell);
            row[name].clone_from(contender);
            row[name + 1 + usize::from(with.pass)].clone_from(end);
            rows.push(row);
        }
    }
    let mut note = String::from(
        "Medians with least and greatest; times within pairs with their 95 % interval (of fewer than \
         6 pairs: least and greatest).",
    );
    if with.device {
        note += " Of device: bytes that the device moved for each byte asked for; the rest came from, \
                 or stayed in, the page cache.";
    }
    Some(Table { title: "Figures".into(), columns, rows, note })
}

fn targets(solved: &Solved) -> Option<Table> {
    let met = |met: Option<bool>| match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "not measured",
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
                met(target.met).to_owned(),
            ]
        })
        .collect();
    let columns = ["target", "value", "wanted", ""].map(str::to_owned).to_vec();
    (!rows.is_empty()).then(|| Table {
        title: "Against the targets".into(),
        columns,
        rows,
        note: String::new(),
    })
}

fn published(solved: &Solved) -> Option<Table> {
    let rows: Vec<Vec<String>> = solved
        .published
        .iter()
        .map(|beside| {
            vec![
                beside.figure.clone(),
                beside.what.clone(),
                format!("{} {}", number(beside.published), beside.unit),
                beside.measured.map_or_else(|| "not measured".into(), number),
                beside.note.clone(),
            ]
        })
        .collect();
    let columns = ["figure", "what", "published", "here", "since then"].map(str::to_owned).to_vec();
    let note =
        "Another machine, another kernel: the order of the contenders is to be compared, not the values.";
    (!rows.is_empty()).then(|| Table {
        title: "Published values beside ours".into(),
        columns,
        rows,
        note: note.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::{study, together};
    use crate::experiment::Cell;
    use crate::journal::tests::{group, record};
    use crate::solve::solve;
    use terapage_report::{Mark, render_html, render_text};

    const TEXT: &str = r#"
title = "A test"
about = "What is asked."
unit = "s"
contenders = ["memory", "swap", "terapage"]
[program]
run = ["true"]
[matrix]
ratio = ["1/2", "1/4"]
[[plot]]
title = "By ratio"
x = "ratio"
relative = true
[[target]]
of = "terapage"
pass = "time"
to = "swap"
side = "below"
value = 1
[[published]]
figure = "Fig 5"
what = "swap at half"
contender = "swap"
at = { ratio = "1/2" }
value = 52
relative = true
note = "faster SSDs"
"#;

    #[test]
    fn the_first_page_answers_in_plain_words() {
        let mut group = group(TEXT);
        for cell in group.head.experiment.cells() {
            for round in 1..=6 {
                for (contender, seconds) in [("memory", 1.0), ("swap", 8.0), ("terapage", 1.3)] {
                    group.runs.push(record(&group.head, &cell, round, contender, seconds));
                }
            }
        }
        let solved = solve(&group);
        let study = study(&group, &solved);
        let text = render_text(&study, 80);
        for part in
            ["With 1/2 of the memory that it wants", "1.30 times as long by terapage", "Settled", "met"]
        {
            let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let wanted = part.replace("1.30 times", "1.30 (1.30 to 1.30) times");
            assert!(plain.contains(&wanted), "{wanted} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let plot = &study.plots[0];
        assert!(plot.series.iter().any(
            |s| s.mark == Mark::Published && s.points == [(terapage_report::X::Name("1/2".into()), 52.0)]
        ));
        assert!(
            study.tables.iter().any(|table| table.title.contains("Published") && table.rows[0][3] == "8.00")
        );
        assert!(render_html(&study).contains("By ratio"));
        let both = together("All", vec![("a".into(), study.clone()), ("b".into(), study)]);
        assert_eq!((both.plots.len(), both.tables.len()), (2, 6));
    }

    #[test]
    fn what_is_open_disturbed_or_left_out_is_said() {
        let mut group = group(TEXT);
        let cell: Cell = group.head.experiment.cells().remove(0);
        let mut disturbed = record(&group.head, &cell, 1, "memory", 1.0);
        disturbed.watched.marks = vec!["steal 9 %".into()];
        group.runs.extend([disturbed, record(&group.head, &cell, 1, "terapage", 2.0)]);
        group.head.left_out.push(("swap".into(), "no root".into()));
        let solved = solve(&group);
        let summary = study(&group, &solved).summary.join("\n");
        for part in ["Not settled", "Disturbed: 1 of 2 runs", "steal (1)", "Left out: swap: no root."] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }
}
