//! The table of data behind a plot.

use crate::number::number;
use crate::study::{Axis, Plot, Series, X};
use crate::view::{View, category};
use crate::words::{Words, filled};
use maud::{Markup, html};

/// A longer table is cut. The CSV has all data.
const MOST_ROWS: usize = 400;

/// A plot's data in the study's units: a column for each series if all have the same x values, else
/// a row for each point.
pub fn table(view: &View) -> Markup {
    let (plot, words) = (view.plot, view.words);
    let label = filled(&words.data_of, &[("title", &plot.title)]);
    let (heads, rows) = if places_are_shared(&plot.series) { beside(view) } else { below(view) };
    let total = rows.len();
    let cut = [("shown", MOST_ROWS.to_string()), ("all", number(total as f64, 12))];
    let cut = cut.each_ref().map(|(name, value)| (*name, value.as_str()));
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for head in &heads { th scope="col" { (head) } } } }
                tbody {
                    @for row in rows.iter().take(MOST_ROWS) {
                        tr { @for cell in row { td.number { (cell) } } }
                    }
                }
            }
        }
        @if total > MOST_ROWS { p.note { (filled(&words.rows_cut, &cut)) } }
    }
}

fn with_unit(axis: &Axis, otherwise: &str) -> String {
    let name = if axis.name.trim().is_empty() { otherwise } else { &axis.name };
    if axis.unit.is_empty() { name.to_owned() } else { format!("{name} ({})", axis.unit) }
}

fn across(x: &X, plot: &Plot) -> String {
    match x {
        X::Number(value) => number(*value, 6),
        X::Name(_) => category(x, &plot.x),
    }
}

/// Whether all series have the same x values in the same order.
fn places_are_shared(series: &[Series]) -> bool {
    let [first, rest @ ..] = series else { return true };
    if series.iter().any(|series| !series.gaps.is_empty()) {
        return false;
    }
    rest.iter().all(|other| {
        other.points.len() == first.points.len()
            && other.points.iter().zip(&first.points).all(|((one, _), (another, _))| one == another)
    })
}

/// A value with the ends of its whisker.
fn value(series: &Series, at: usize, words: &Words) -> String {
    let value = number(series.points[at].1, 6);
    match series.whisker(at) {
        Some(whisker) => words.with_ends(&value, &number(whisker.low, 6), &number(whisker.high, 6)),
        None => value,
    }
}

type Cells = (Vec<String>, Vec<Vec<String>>);

fn beside(view: &View) -> Cells {
    let plot = view.plot;
    let mut heads = vec![with_unit(&plot.x, "x")];
    let unit = if plot.y.unit.is_empty() { String::new() } else { format!(" ({})", plot.y.unit) };
    heads.extend(view.series.iter().map(|series| format!("{}{unit}", series.label)));
    let places = plot.series.first().map_or(&[][..], |series| &series.points);
    let row = |(at, (x, _)): (usize, &(X, f64))| {
        let values = plot.series.iter().map(|series| value(series, at, view.words));
        std::iter::once(across(x, plot)).chain(values).collect()
    };
    (heads, places.iter().enumerate().map(row).collect())
}

fn below(view: &View) -> Cells {
    let (plot, words) = (view.plot, view.words);
    let heads =
        vec![words.series.clone(), words.mark.clone(), with_unit(&plot.x, "x"), with_unit(&plot.y, "y")];
    let rows = plot.series.iter().flat_map(|series| {
        let row = move |x: &X, value: String| {
            vec![series.name.clone(), words.mark(series.mark).to_owned(), across(x, plot), value]
        };
        let points = series.points.iter().enumerate();
        let points = points.map(move |(at, (x, _))| row(x, value(series, at, words)));
        points.chain(series.gaps.iter().map(move |(x, why)| row(x, why.clone())))
    });
    (heads, rows.collect())
}
