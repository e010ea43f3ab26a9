//! Bars in the terminal: horizontal, each with its value.

use super::paragraph::{Page, padded, width};
use crate::study::Mark;
use crate::view::{SeriesView, View};
use crate::words::filled;

/// If there are more bars, they are not drawn one by one.
const MOST: usize = 60;
/// The most columns of a value with its whisker.
const VALUE_MOST: usize = 28;
/// Eighths of a character, filled from the left.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// One bar.
struct Bar {
    label: String,
    value: f64,
    /// The ends of its whisker.
    whisker: Option<(f64, f64)>,
    mark: Mark,
    /// Why there is no value.
    why: Option<String>,
}

impl Bar {
    /// Its value with its whisker, in the unit of the axis.
    fn text(&self, view: &View) -> String {
        let of = |value: f64| view.y.unit.value(value * view.y.divisor);
        match self.whisker {
            _ if self.value.is_nan() => self.why.clone().unwrap_or_else(|| "n/a".into()),
            Some((low, high)) => view.words.with_ends(&of(self.value), &of(low), &of(high)),
            None => of(self.value),
        }
    }
}

/// Draws bars in groups, one for each category; without groups if there is one series.
pub fn draw(page: &mut Page, view: &View) {
    let names = view.categories.as_deref().unwrap_or_default();
    let alone = view.series.len() == 1;
    let all = groups(view, names, alone);
    let labels =
        all.iter().flat_map(|(_, bars)| bars).map(|bar| width(&page.clean(&bar.label))).max().unwrap_or(0);
    let values = all.iter().flat_map(|(_, bars)| bars).map(|bar| width(&page.clean(&bar.text(view)))).max();
    // Bars keep a fifth of a line.
    let most = VALUE_MOST.min(page.columns() * 45 / 100);
    let widths = (labels.min(page.columns() / 3), values.unwrap_or(0).min(most));
    let room = Room::new(page.columns(), widths, view);
    let title = [&view.y.title, &view.x.title].into_iter().filter(|title| !title.is_empty());
    page.paragraph(&title.cloned().collect::<Vec<_>>().join(&view.words.by), "");
    if let [series] = &view.series[..] {
        page.paragraph(&series.label, "");
    }
    let mut drawn = 0;
    let total: usize = all.iter().map(|(_, bars)| bars.len()).sum();
    for (name, bars) in all {
        if drawn >= MOST {
            break;
        }
        if let Some(name) = name {
            page.paragraph(name, "");
        }
        drawn += bars.len();
        bars.iter().for_each(|bar| room.draw(page, bar, view));
    }
    if drawn < total {
        let count = (total - drawn).to_string();
        page.paragraph(&filled(&view.words.more_bars, &[("count", &count)]), "");
    }
}

/// The bars of each category, under its name unless the bars themselves have it.
fn groups<'a>(view: &View, names: &'a [String], alone: bool) -> Vec<(Option<&'a str>, Vec<Bar>)> {
    let bar = |at: usize, series: &SeriesView| {
        let label = if alone { names[at].clone() } else { format!("  {}", series.label) };
        let found = series.points.iter().rposition(|(x, _)| *x == at as f64);
        let why = series.gaps.iter().find(|(x, _)| *x == at as f64).map(|(_, why)| why.clone());
        let (value, whisker) = match found {
            Some(place) => (series.points[place].1, series.whiskers[place]),
            None => (f64::NAN, None),
        };
        (found.is_some() || why.is_some()).then_some(Bar { label, value, whisker, mark: series.mark, why })
    };
    let group = |(at, name): (usize, &'a String)| {
        let bars = view.series.iter().filter_map(|series| bar(at, series)).collect();
        (if alone { None } else { Some(name.as_str()) }, bars)
    };
    names.iter().enumerate().map(group).collect()
}

/// The widths of the parts of a line.
struct Room {
    labels: usize,
    bars: usize,
    values: usize,
    /// The least value that fits.
    low: f64,
    /// The greatest value that fits.
    high: f64,
    log: bool,
}

impl Room {
    fn new(columns: usize, (labels, values): (usize, usize), view: &View) -> Room {
        let drawn = || view.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
        let scale = view.y.scale;
        let log = scale.spread != crate::scale::Spread::Linear;
        let finite = drawn().filter(|y| y.is_finite());
        let (low, high) = finite.fold((0f64, 0f64), |(low, high), y| (low.min(y), high.max(y)));
        let own = log || view.y.unit.origin() > 0.0;
        let (low, high) = if own { (scale.low, scale.high) } else { (low, high) };
        // A line for zero among the bars takes one column.
        let bars = columns - labels - values - if low < 0.0 { 4 } else { 3 };
        Room { labels, bars, values, low, high, log }
    }

    /// The place of a value, in columns from the left.
    fn place(&self, value: f64) -> f64 {
        let span = self.high - self.low;
        let place = match self.log {
            true => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
            false if span > 0.0 => (value - self.low) / span,
            false => 0.0,
        };
        place.clamp(0.0, 1.0) * self.bars as f64
    }

    fn draw(&self, page: &mut Page, bar: &Bar, view: &View) {
        let indented = bar.label.starts_with("  ");
        let indent = if indented { "  " } else { "" };
        let label = indent.to_owned() + &page.cut(&bar.label, self.labels - indent.len());
        let drawn = if bar.value.is_nan() { String::new() } else { self.bar(bar) };
        let value = page.cut(&bar.text(view), self.values);
        page.line(&format!("{} │{drawn} {value}", padded(&label, self.labels, false)));
    }

    /// The bar itself. If there are negative values, zero is a line among the bars.
    fn bar(&self, bar: &Bar) -> String {
        let full = match bar.mark {
            Mark::Published => '░',
            Mark::Synthetic => '▒',
            _ => '█',
        };
        let zero = if self.log { 0.0 } else { self.place(0.0) };
        let end = self.place(bar.value);
        if self.low < 0.0 && !self.log {
            return across_zero(zero.round() as usize, end.round() as usize, full);
        }
        let whole = end as usize;
        let mut drawn: String = std::iter::repeat_n(full, whole).collect();
        let eighth = ((end - whole as f64) * 8.0) as usize;
        if full == '█' && eighth > 0 {
            drawn.push(EIGHTHS[eighth]);
        } else if whole == 0 && bar.value > 0.0 {
            drawn.push(if full == '█' { EIGHTHS[1] } else { full });
        }
        drawn
    }
}

fn across_zero(zero: usize, end: usize, full: char) -> String {
    let filled = |count: usize| std::iter::repeat_n(full, count);
    let spaces = |count: usize| std::iter::repeat_n(' ', count);
    if end < zero {
        return spaces(end).chain(filled(zero - end)).chain(['┆']).collect();
    }
    spaces(zero).chain(['┆']).chain(filled((end - zero).saturating_sub(1))).collect()
}
