//! The plots in the form that the page's script reads.

use crate::number::Unit;
use crate::scale::Spread;
use crate::study::{Ends, Mark, PlotKind, Whisker, X};
use crate::view::{AxisView, SeriesView, View};
use serde::Serialize;

#[derive(Serialize)]
struct PlotData<'a> {
    title: &'a str,
    kind: PlotKind,
    categories: Option<&'a [String]>,
    x: AxisData<'a>,
    y: AxisData<'a>,
    series: Vec<SeriesData<'a>>,
}

#[derive(Serialize)]
struct AxisData<'a> {
    /// The name in the study, for tables.
    name: &'a str,
    /// The name with the unit of the ticks.
    title: &'a str,
    unit: &'a Unit,
    /// The factor from a drawn value to the study's unit.
    divisor: f64,
    /// The base of the logarithm; 0 if the axis is linear.
    log_base: u32,
    low: f64,
    high: f64,
    /// Where bars begin.
    origin: f64,
    ticks: Vec<f64>,
}

#[derive(Serialize)]
struct SeriesData<'a> {
    /// The name in the study, for tables.
    name: &'a str,
    label: &'a str,
    mark: Mark,
    slot: usize,
    /// The points of the study; the script divides them, and leaves out those that cannot be drawn.
    #[serde(with = "crate::json::points")]
    points: &'a [(X, f64)],
    /// For categories: the points that are drawn instead, with `null` at a gap.
    drawn: Option<&'a [(f64, f64)]>,
    /// Whiskers as they are drawn, in the order of the drawn points; empty if there are none.
    whiskers: &'a [Option<(f64, f64)>],
    /// The places without a value, as they are drawn, and the reasons.
    gaps: &'a [(f64, String)],
    /// The whiskers of the study, in the order of its points: their ends, and what the ends are.
    ends: Vec<Option<(f64, f64, Ends)>>,
}

/// The plots as JSON.
pub fn embedded(views: &[View]) -> String {
    json(&views.iter().map(plot).collect::<Vec<PlotData>>())
}

/// JSON that can be part of a script element: no `<`, `>` or `&`.
pub fn json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("strings and numbers always serialise");
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe += &format!("\\u{:04x}", letter as u32),
            _ => safe.push(letter),
        }
    }
    safe
}

fn plot<'a>(view: &'a View) -> PlotData<'a> {
    PlotData {
        title: &view.plot.title,
        kind: view.plot.kind,
        categories: view.categories.as_deref(),
        x: axis(&view.plot.x.name, &view.x),
        y: axis(&view.plot.y.name, &view.y),
        series: view
            .series
            .iter()
            .zip(&view.plot.series)
            .map(|(drawn, own)| series(view, drawn, own))
            .collect(),
    }
}

fn axis<'a>(name: &'a str, axis: &'a AxisView) -> AxisData<'a> {
    let log_base = match axis.scale.spread {
        Spread::Linear => 0,
        Spread::Decimal => 10,
        Spread::Binary => 2,
    };
    AxisData {
        name,
        title: &axis.title,
        unit: &axis.unit,
        divisor: axis.divisor,
        log_base,
        low: axis.scale.low,
        high: axis.scale.high,
        origin: (axis.unit.origin() / axis.divisor).max(axis.scale.low),
        ticks: axis.scale.ticks(8),
    }
}

fn series<'a>(view: &View, drawn: &'a SeriesView, own: &'a crate::study::Series) -> SeriesData<'a> {
    let has_whiskers = drawn.whiskers.iter().any(Option::is_some);
    let ends = |Whisker { low, high, ends }: Whisker| (low, high, ends);
    let all = own.points.iter().enumerate().map(|(at, _)| own.whisker(at).map(ends));
    SeriesData {
        name: &own.name,
        label: &drawn.label,
        mark: drawn.mark,
        slot: drawn.slot,
        points: &own.points,
        drawn: view.categories.as_ref().map(|_| &drawn.points[..]),
        gaps: &drawn.gaps,
        whiskers: if has_whiskers { &drawn.whiskers } else { &[] },
        ends: if has_whiskers { all.collect() } else { Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Axis, Language, Plot, Series};
    use crate::words::Words;

    #[test]
    fn gaps_are_null_and_markup_is_escaped() {
        let axis = Axis { name: "<b>".into(), unit: "bytes".into(), log: false };
        let points = vec![(X::Number(1.0), f64::NAN), (X::Number(2.0), 2048.0)];
        let series =
            vec![Series { name: "</script>".into(), mark: Mark::Measured, points, ..Series::default() }];
        let plot = Plot { y: axis, series, ..Plot::default() };
        let json = embedded(&[View::new(&plot, Words::of(Language::En))]);
        assert!(json.contains("\"points\":[[1.0,null],[2.0,2048.0]]"), "{json}");
        assert!(json.contains("\"divisor\":1024.0"), "{json}");
        assert!(!json.contains(['<', '>', '&']));
        assert!(json.contains("\\u003c/script\\u003e"));
    }
}
