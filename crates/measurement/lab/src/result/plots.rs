//! The plots of an experiment.

use crate::experiment::unit::Unit;
use crate::experiment::{Cell, Experiment, PlotForm, Published, atom, is_in};
use crate::result::language::Texts;
use crate::result::pairs::{PAIRS_LEAST, Ratio};
use crate::result::solve::{AGAIN, Solved, SolvedCell, SolvedFigure};
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

/// The series of a plot while they are collected.
struct Drawn<'a> {
    form: &'a PlotForm,
    texts: &'a Texts,
    /// Whether places are sizes, on a logarithmic axis; otherwise they are names.
    sized: bool,
    /// Whether the names of series include the pass.
    with_pass: bool,
    series: Vec<Series>,
    /// Figures that are not drawn, since their passes are too short.
    short: usize,
}

impl Drawn<'_> {
    fn shows(&self, pass: &String) -> bool {
        self.form.passes.is_empty() || self.form.passes.contains(pass)
    }

    fn place(&self, text: &str) -> X {
        match atom(text).filter(|_| self.sized) {
            Some(bytes) => X::Number(bytes),
            None => X::Name(text.into()),
        }
    }

    /// The series of this name and mark, which is made if it does not exist.
    fn of(&mut self, contender: &str, name: String, mark: Mark) -> &mut Series {
        let known = self.series.iter().position(|known| known.name == name && known.mark == mark);
        let at = known.unwrap_or_else(|| {
            self.series.push(Series { name, owner: contender.to_owned(), mark, ..Series::default() });
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    /// The figures of a cell.
    fn figures(&mut self, cell: &SolvedCell) -> Option<()> {
        let relative = self.form.relative;
        for figure in &cell.figures {
            if figure.contender.ends_with(AGAIN) || !self.shows(&figure.pass) {
                continue;
            }
            if !relative && figure.is_short() {
                self.short += 1;
                continue;
            }
            let across = if self.form.x == "pass" { &figure.pass } else { cell.cell.get(&self.form.x)? };
            let (place, struck) = (self.place(across), self.texts.say("struck-gap", &[]));
            let pass = self.with_pass.then_some(figure.pass.as_str());
            let name = series_name(&figure.contender, pass, &cell.cell, self.form, self.texts);
            let value = match relative {
                true => figure.times.as_ref().map(|times| times.center),
                false => Some(figure.spread.median),
            };
            if value.is_none() && figure.struck.is_none() {
                continue;
            }
            let series = self.of(&figure.contender, name, Mark::Measured);
            match value {
                Some(value) => {
                    series.points.push((place, value));
                    series.whiskers.push(whisker(figure, relative));
                }
                None => series.gaps.push((place, struck)),
            }
        }
        Some(())
    }

    /// A contender that did not end well in a cell has a place in the plot, with the reason.
    fn ends(&mut self, cell: &SolvedCell, passes: &[&String]) -> Option<()> {
        for (contender, end) in &cell.ends {
            let own = |figure: &SolvedFigure| figure.contender == *contender && self.shows(&figure.pass);
            if cell.figures.iter().any(own) {
                continue;
            }
            let places: Vec<&String> = match self.form.x == "pass" {
                true => in_order(passes.iter().copied()),
                false => vec![cell.cell.get(&self.form.x)?],
            };
            let name = series_name(contender, None, &cell.cell, self.form, self.texts);
            // The table of figures has the whole reason.
            let why = self.texts.text(end.split(':').next().unwrap_or(end));
            let gaps: Vec<(X, String)> =
                places.into_iter().map(|across| (self.place(across), why.clone())).collect();
            self.of(contender, name, Mark::Measured).gaps.extend(gaps);
        }
        Some(())
    }

    /// The series in the order of the experiment's contenders, which is the same in all plots;
    /// published series follow the series of their contender.
    fn in_order(mut self, experiment: &Experiment) -> Vec<Series> {
        let names = experiment.all_contenders().unwrap_or_default();
        let place = |series: &Series| names.iter().position(|known| known.name == series.owner);
        self.series
            .sort_by_key(|series| (place(series).unwrap_or(usize::MAX), series.mark == Mark::Published));
        self.series
    }
}

/// Whether values are so far apart that a linear axis would show only the largest.
pub fn far_apart(series: &[Series]) -> bool {
    let values = || series.iter().flat_map(|series| &series.points).map(|(_, y)| *y).filter(|y| *y > 0.0);
    values().fold(0f64, f64::max) > FAR_APART * values().fold(f64::MAX, f64::min)
}

/// A plot; `None` if nothing was measured that it could show.
pub fn plot(experiment: &Experiment, solved: &Solved, form: &PlotForm, texts: &Texts) -> Option<Plot> {
    let shown = |pass: &&String| form.passes.is_empty() || form.passes.contains(pass);
    let figures = || solved.cells.iter().flat_map(|cell| &cell.figures);
    let passes: Vec<&String> = figures().map(|figure| &figure.pass).filter(shown).collect();
    let with_pass = form.x != "pass" && passes.iter().any(|pass| *pass != passes[0]);
    // Sizes are places on a logarithmic axis, other values names.
    let sized = experiment
        .matrix
        .get(&form.x)
        .is_some_and(|values| values.iter().all(|value| value.to_string().ends_with(['K', 'M', 'G'])));
    let mut drawn = Drawn { form, texts, sized, with_pass, series: Vec::new(), short: 0 };
    for cell in solved.cells.iter().filter(|cell| is_in(&form.only, &cell.cell)) {
        drawn.figures(cell)?;
        drawn.ends(cell, &passes)?;
    }
    if drawn.series.iter().all(|series| series.points.is_empty()) {
        return None;
    }
    for printed in printed_points(experiment, form, with_pass, texts) {
        let place = drawn.place(&printed.across);
        let series = drawn.of(&printed.contender, printed.name, Mark::Published);
        series.points.push((place, printed.value));
        series.whiskers.push(None);
    }
    let short = drawn.short;
    let series = drawn.in_order(experiment);
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

/// A published figure of a plot.
pub struct Printed {
    contender: String,
    /// The name of its series.
    name: String,
    /// The place on the x axis.
    across: String,
    /// The value.
    pub value: f64,
}

/// The names, each once, in order of appearance.
fn in_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut known: Vec<&String> = Vec::new();
    names.for_each(|name| {
        if !known.contains(&name) {
            known.push(name)
        }
    });
    known
}

/// The published figures of a plot. If one contender has several at one place, their names include
/// what they measure.
pub fn printed_points(
    experiment: &Experiment,
    form: &PlotForm,
    with_pass: bool,
    texts: &Texts,
) -> Vec<Printed> {
    let of_form = experiment.published.iter();
    let of_form = of_form.filter(|printed| printed.relative == form.relative && printed.is_drawn());
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
        Printed { contender: printed.contender.clone(), name, across: across.clone(), value: printed.value }
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
