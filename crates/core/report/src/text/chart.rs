//! Lines, steps and points in the terminal.

use super::canvas::Canvas;
use super::paragraph::{Page, padded, width};
use crate::scale::{Scale, Spread};
use crate::study::{Mark, PlotKind};
use crate::view::{SeriesView, View};

const ROWS: usize = 14;
/// Signs of measured, simulated and synthetic series, by slot; then letters.
const FILLED: [char; 6] = ['●', '■', '▲', '◆', '▼', '★'];
/// Signs of published series.
const HOLLOW: [char; 6] = ['○', '□', '△', '◇', '▽', '☆'];

/// Draws a plot with numbers or categories as x values, with axes and a legend.
pub fn draw(page: &mut Page, view: &View) {
    let across = match &view.categories {
        Some(names) => Scale { low: -0.5, high: names.len() as f64 - 0.5, spread: Spread::Linear },
        None => view.x.scale,
    };
    let up = view.y.scale;
    let ticks: Vec<(f64, String)> = up.ticks(5).into_iter().map(|tick| (tick, view.y.tick(tick))).collect();
    let gutter = ticks.iter().map(|(_, text)| width(text)).max().unwrap_or(0).min(16);
    let columns = page.columns() - gutter - 2;
    let mut canvas = Canvas::new(columns, ROWS);
    view.series.iter().for_each(|series| line(&mut canvas, view.plot.kind, series, (&across, &up)));
    view.series.iter().for_each(|series| whiskers(&mut canvas, series, (&across, &up)));
    let count = view.series.len();
    for (at, series) in view.series.iter().enumerate().rev() {
        let sign = sign(series);
        signs(&mut canvas, view.plot.kind, series, (&across, &up), sign, (at, count));
    }
    page.paragraph(&view.y.title, "");
    let mut labels = vec![String::new(); ROWS];
    for (tick, text) in ticks {
        if let Some(place) = up.place(tick) {
            labels[canvas.row(place)] = page.cut(&text, gutter);
        }
    }
    for (label, drawn) in labels.iter().zip(canvas.lines()) {
        let side = if label.is_empty() { "│" } else { "┤" };
        page.line(&format!("{} {side}{drawn}", padded(label, gutter, true)));
    }
    foot(page, view, &across, &canvas, gutter + 2);
    legend(page, view);
}

fn line(canvas: &mut Canvas, kind: PlotKind, series: &SeriesView, (across, up): (&Scale, &Scale)) {
    let every = match series.mark {
        Mark::Measured | Mark::Simulated => 1,
        Mark::Synthetic => 2,
        Mark::Published => 3,
    };
    let places = |(x, y): &(f64, f64)| Some((across.place(*x)?, up.place(*y)?));
    for pair in series.points.windows(2) {
        let (Some(from), Some(to)) = (places(&pair[0]), places(&pair[1])) else { continue };
        match kind {
            PlotKind::Line => canvas.line(from, to, every),
            PlotKind::Step => {
                canvas.line(from, (to.0, from.1), every);
                canvas.line((to.0, from.1), to, every);
            }
            PlotKind::Scatter | PlotKind::Bar => {}
        }
    }
}

/// Draws a line from end to end of each whisker.
fn whiskers(canvas: &mut Canvas, series: &SeriesView, (across, up): (&Scale, &Scale)) {
    for ((x, _), whisker) in series.points.iter().zip(&series.whiskers) {
        let Some((low, high)) = whisker else { continue };
        if let (Some(x), Some(low), Some(high)) = (across.place(*x), up.place(*low), up.place(*high)) {
            canvas.line((x, low), (x, high), 1);
        }
    }
}

/// Puts signs on the points of a series: on all if there are few, else on some.
fn signs(
    canvas: &mut Canvas,
    kind: PlotKind,
    series: &SeriesView,
    (across, up): (&Scale, &Scale),
    sign: char,
    (at, count): (usize, usize),
) {
    let columns = canvas.column(1.0) + 1;
    let dense = kind != PlotKind::Scatter && series.points.len() * 4 > columns;
    let gap = columns / 5;
    let mut next = if dense { gap * (2 * at + 1) / (2 * count) } else { 0 };
    for (x, y) in &series.points {
        let (Some(x), Some(y)) = (across.place(*x), up.place(*y)) else { continue };
        let column = canvas.column(x);
        if !dense || column >= next {
            canvas.sign((x, y), sign);
            next = column + gap;
        }
    }
}

fn sign(series: &SeriesView) -> char {
    let published = series.mark == Mark::Published;
    let signs = if published { HOLLOW } else { FILLED };
    match signs.get(series.slot) {
        Some(sign) => *sign,
        _ => {
            let letter = (series.slot % 26) as u8;
            char::from(if published { b'a' + letter } else { b'A' + letter })
        }
    }
}

/// The horizontal axis: a line with ticks, labels that do not touch, and the title.
fn foot(page: &mut Page, view: &View, across: &Scale, canvas: &Canvas, indent: usize) {
    let columns = canvas.column(1.0) + 1;
    let ticks: Vec<(f64, String)> = match &view.categories {
        Some(names) => names.iter().enumerate().map(|(at, name)| (at as f64, page.cut(name, 16))).collect(),
        None => across
            .ticks(columns / 12)
            .into_iter()
            .map(|tick| (tick, page.clean(&view.x.tick(tick))))
            .collect(),
    };
    let (rule, mark, corner) = ('─', '┬', '└');
    let mut rules = vec![rule; columns];
    let mut labels = String::new();
    for (tick, text) in ticks {
        let Some(place) = across.place(tick) else { continue };
        let column = indent + canvas.column(place);
        let begin =
            column.saturating_sub(width(&text) / 2).min((indent + columns).saturating_sub(width(&text)));
        if labels.is_empty() || width(&labels) + 2 <= begin {
            labels = padded(&labels, begin, false) + &text;
            rules[column - indent] = mark;
        }
    }
    page.line(&format!("{}{corner}{}", " ".repeat(indent - 1), rules.into_iter().collect::<String>()));
    page.line(&labels);
    let title = page.cut(&view.x.title, columns);
    page.line(&padded(&title, indent + columns, true));
}

fn legend(page: &mut Page, view: &View) {
    let name = |series: &SeriesView| format!("{} {}", sign(series), page.cut(&series.label, 36));
    let names: Vec<String> = view.series.iter().map(name).collect();
    let mut line = String::new();
    for name in names {
        if !line.is_empty() && width(&line) + 3 + width(&name) > page.columns() {
            page.line(&line);
            line.clear();
        }
        line = if line.is_empty() { name } else { format!("{line}   {name}") };
    }
    page.line(&line);
}
