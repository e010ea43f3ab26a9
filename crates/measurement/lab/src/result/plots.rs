//! The plots of an experiment.

use crate::experiment::unit::Unit;
use crate::experiment::{Cell, Experiment, PlotForm, Published, atom, is_in};
use crate::result::language::Texts;
use crate::result::pairs::{PAIRS_LEAST, Ratio};
use crate::result::solve::{AGAIN, Solved, SolvedFigure};
use terapage_report::{Axis, Ends, Mark, Plot, PlotKind, Series, Whisker, X};

/// If values of one plot are further apart than this ratio, the axis is logarithmic.
const FAR_APART: f64 = 30.0;

/// The name of a series: contender, pass, and the keys that are not on the x axis.
fn series_name(contender: &str, pass: Option<&str>, cell: &Cell, form: &PlotForm, texts: &Texts) -> String {
    let mut name = contender.to_owned();
    if let Some(pass) = pass.filter(|pass| !pass.is_empty()) {
        name += &format!(" {pass}");
    }
    for (key, value) in cell {
        let fixed = form.only.get(key).is_some_and(|values| values.len() == 1);
        if *key != form.x && !fixed {
            name += &format!(", {} {value}", texts.text(key));
        }
    }
    name
}

/// A figure's whisker.
fn whisker(figure: &SolvedFigure, relative: bool) -> Option<Whisker> {
    match (relative, figure.times) {
        (true, Some(Ratio { low, high, pairs, .. })) => {
            let ends = if pairs < PAIRS_LEAST { Ends::Range } else { Ends::Interval };
            Some(Whisker { low, high, ends })
        }
        (true, None) => None,
        (false, _) => Some(Whisker { low: figure.spread.min, high: figure.spread.max, ends: Ends::Range }),
    }
}

/// Adds a point to the series of this name and mark, which is made if it does not exist.
fn add(series: &mut Vec<Series>, name: String, mark: Mark, point: (X, f64), whisker: Option<Whisker>) {
    match series.iter_mut().find(|known| known.name == name && known.mark == mark) {
        Some(known) => {
            known.points.push(point);
            known.whiskers.push(whisker);
        }
        None => series.push(Series { name, mark, points: vec![point], whiskers: vec![whisker] }),
    }
}

/// Whether values are so far apart that a linear axis would show only the largest.
pub fn far_apart(series: &[Series]) -> bool {
    let values = || series.iter().flat_map(|series| &series.points).map(|(_, y)| *y).filter(|y| *y > 0.0);
    values().fold(0f64, f64::max) > FAR_APART * values().fold(f64::MAX, f64::min)
}

/// A plot; `None` if nothing was measured that it could show.
pub fn plot(experiment: &Experiment, solved: &Solved, form: &PlotForm, texts: &Texts) -> Option<Plot> {
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
    let mut short = 0;
    for cell in solved.cells.iter().filter(|cell| is_in(&form.only, &cell.cell)) {
        for figure in cell.figures.iter().filter(|figure| shown(&figure.pass)) {
            if figure.contender.ends_with(AGAIN) {
                continue;
            }
            if !form.relative && figure.is_short() {
                short += 1;
                continue;
            }
            let value = match form.relative {
                true => figure.times.as_ref().map(|times| times.center),
                false => Some(figure.spread.median),
            };
            let across = if across_passes { &figure.pass } else { cell.cell.get(&form.x)? };
            if let Some(value) = value {
                let pass = with_pass.then_some(figure.pass.as_str());
                let name = series_name(&figure.contender, pass, &cell.cell, form, texts);
                let whisker = whisker(figure, form.relative);
                add(&mut series, name, Mark::Measured, (place(across), value), whisker);
            }
        }
    }
    if series.is_empty() {
        return None;
    }
    for (name, across, value) in printed_points(experiment, form, with_pass, texts) {
        add(&mut series, name, Mark::Published, (place(&across), value), None);
    }
    let left_out = match short {
        0 => String::new(),
        short => texts.say("short-not-drawn", &[("short", &short.to_string())]),
    };
    let log = form.log || far_apart(&series);
    let unit = match experiment.unit {
        _ if form.relative => texts.say("times", &[]),
        Unit::Speed => experiment.unit.name_of(form.passes.iter().map(String::as_str)).to_owned(),
        other => axis_unit(other).to_owned(),
    };
    Some(Plot {
        title: texts.text(&form.title),
        kind: if sized { PlotKind::Line } else { PlotKind::Bar },
        x: Axis {
            name: texts.text(&form.x),
            unit: if sized { "bytes".into() } else { String::new() },
            log: sized,
        },
        y: Axis {
            name: match form.relative {
                true => texts.say("time-against", &[("baseline", &solved.baseline)]),
                false => texts.text(quantity(experiment.unit)),
            },
            unit,
            log,
        },
        series,
        note: [texts.text(&form.note), left_out]
            .into_iter()
            .filter(|note| !note.is_empty())
            .collect::<Vec<_>>()
            .join(" "),
    })
}

/// The published figures of a plot: the contender, the place on the x axis, and the value. If one
/// contender has several at one place, their names include what they measure.
pub fn printed_points(
    experiment: &Experiment,
    form: &PlotForm,
    with_pass: bool,
    texts: &Texts,
) -> Vec<(String, String, f64)> {
    let of_form = experiment.published.iter();
    let of_form = of_form.filter(|printed| printed.relative == form.relative && printed.over.is_none());
    let points: Vec<(&Published, String, String)> = of_form
        .filter_map(|printed| {
            let cell: Cell = printed.at.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
            let fits = form.only.iter().all(|(key, values)| {
                cell.get(key).is_none_or(|found| values.iter().any(|value| value.to_string() == *found))
            });
            let shown =
                form.passes.is_empty() || printed.pass.is_empty() || form.passes.contains(&printed.pass);
            let across = if form.x == "pass" { printed.pass.clone() } else { cell.get(&form.x)?.clone() };
            let pass = with_pass.then_some(printed.pass.as_str());
            let name = series_name(&printed.contender, pass, &cell, form, texts);
            (fits && shown).then_some((printed, name, across))
        })
        .collect();
    let alone = |name: &str, across: &str| {
        points.iter().filter(|(_, other, place)| other == name && place == across).count() == 1
    };
    let named = |(printed, name, across): &(&Published, String, String)| {
        let name = match alone(name, across) {
            true => name.clone(),
            false => format!("{name}: {}", texts.text(&printed.what)),
        };
        (name, across.clone(), printed.value)
    };
    points.iter().map(named).collect()
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
        Unit::Mflops | Unit::Speed => "speed",
        Unit::PerIo => "time",
    }
}
