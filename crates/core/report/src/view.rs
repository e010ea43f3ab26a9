//! The view of a plot, which is the same on the page and in the terminal.

use crate::number::{Unit, number};
use crate::scale::{Scale, Spread, can_be_drawn};
use crate::study::{Axis, Ends, Mark, Plot, PlotKind, Series, X};
use crate::words::{Words, filled};
use std::collections::{BTreeMap, BTreeSet};

/// A plot, ready to be drawn.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// The plot itself.
    pub plot: &'a Plot,
    /// The words around the plot.
    pub words: &'static Words,
    /// The x values if they are categories; a point's x counts them from 0.
    pub categories: Option<Vec<String>>,
    /// The horizontal axis.
    pub x: AxisView,
    /// The vertical axis.
    pub y: AxisView,
    /// The series that are drawn.
    pub series: Vec<SeriesView>,
    /// Sentences about whiskers, and about points that are not drawn; empty if there are neither.
    pub remarks: String,
}

/// An axis, ready to be drawn.
#[derive(Clone, Debug)]
pub struct AxisView {
    /// Its unit.
    pub unit: Unit,
    /// Values are divided by this before they are drawn, so that ticks are round numbers in the
    /// unit that is easiest to read.
    pub divisor: f64,
    /// Its name with the unit of its ticks: `latency (µs)`.
    pub title: String,
    /// The range of the axis, after the division.
    pub scale: Scale,
}

/// A series, ready to be drawn.
#[derive(Clone, Debug)]
pub struct SeriesView {
    /// The name of the series, with its origin unless that is obvious.
    pub label: String,
    /// The origin of the series.
    pub mark: Mark,
    /// The number of its colour and shape. Series with the same name, such as simulated and
    /// published ones, share it.
    pub slot: usize,
    /// The points, divided by the divisors of the axes. The second value is not-a-number at a gap.
    pub points: Vec<(f64, f64)>,
    /// The ends of each point's whisker, divided like the points; `None` if there is none to draw.
    pub whiskers: Vec<Option<(f64, f64)>>,
    /// Places without a value, divided like the points, and the reasons.
    pub gaps: Vec<(f64, String)>,
    /// The owner: series of one owner share a slot everywhere on a page.
    owner: String,
}

impl<'a> View<'a> {
    /// Prepares a plot, with these words around it.
    pub fn new(plot: &'a Plot, words: &'static Words) -> View<'a> {
        let categories = categories(plot);
        let named = categories.is_some();
        let bars = plot.kind == PlotKind::Bar;
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let across = points().filter_map(|(x, _)| if let X::Number(x) = x { Some(*x) } else { None });
        let x = AxisView::new(&plot.x, across, (false, !named), words);
        let ends = plot.series.iter().flat_map(|series| {
            let whiskers = (0..series.points.len()).filter_map(|at| series.whisker(at));
            whiskers.flat_map(|whisker| [whisker.low, whisker.high])
        });
        let y = AxisView::new(&plot.y, points().map(|(_, y)| *y).chain(ends), (bars, true), words);
        let mut left_out = LeftOut::default();
        let slots = slots(&plot.series, words);
        let series: Vec<SeriesView> = plot
            .series
            .iter()
            .zip(slots)
            .map(|(series, slot)| {
                let (points, whiskers) = drawn(series, categories.as_deref(), (&x, &y), &mut left_out);
                let places = series.gaps.iter();
                let gaps = places
                    .filter_map(|(at, why)| Some((place(at, categories.as_deref(), &x)?, why.clone())))
                    .collect();
                SeriesView {
                    label: label(series, plot, words),
                    mark: series.mark,
                    slot,
                    points,
                    whiskers,
                    gaps,
                    owner: owner(series, words),
                }
            })
            .collect();
        let remarks = [gaps(plot, words), whiskers(plot, words), left_out.sentence(words)];
        let remarks = remarks.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        View { plot, words, categories, x, y, series, remarks }
    }

    /// The number of points that are drawn.
    pub fn point_count(&self) -> usize {
        self.series.iter().flat_map(|series| &series.points).filter(|(_, y)| !y.is_nan()).count()
    }
}

impl AxisView {
    /// `bars` begin at the unit's origin; `divide` allows another size of the unit.
    fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        (bars, divide): (bool, bool),
        words: &Words,
    ) -> AxisView {
        let values: Vec<f64> = values.filter(|value| can_be_drawn(*value, axis.log)).collect();
        let unit = Unit::named(&axis.unit);
        let largest = values.iter().fold(0f64, |largest, value| largest.max(value.abs()));
        let step = unit.step(largest).filter(|_| divide && !axis.log && !unit.prefix && largest > 0.0);
        let (divisor, symbol) = step.unwrap_or((1.0, &unit.name));
        let in_ticks = axis.log && !unit.prefix && !unit.steps.is_empty();
        let title = match (axis.name.trim(), symbol) {
            (name, "") => name.to_owned(),
            (name, _) if in_ticks && !name.is_empty() => name.to_owned(),
            ("", symbol) => symbol.to_owned(),
            (name, symbol) if name == symbol => name.to_owned(),
            (name, symbol) => format!("{name} ({symbol})"),
        };
        let title = match axis.log && !title.is_empty() {
            true => filled(&words.log_scale, &[("title", &title)]),
            false => title,
        };
        let spread = match (axis.log, unit.binary) {
            (false, _) => Spread::Linear,
            (true, false) => Spread::Decimal,
            (true, true) => Spread::Binary,
        };
        // On a logarithmic axis bars cannot begin at zero, and the least of them needs some length.
        let least = values.iter().fold(f64::INFINITY, |least, value| least.min(*value));
        let origin = if bars { unit.origin() } else { 0.0 };
        let below = if origin > 0.0 { origin } else { least * 0.7 };
        let below = Some(below).filter(|_| bars && (axis.log || origin > 0.0) && least.is_finite());
        let all = values.iter().copied().chain(below).map(|value| value / divisor);
        let mut scale = Scale::fit(all, spread, bars && origin == 0.0);
        // A bar of the multiple 1, or a little less, has no length, because the axis begins at 1.
        if bars && origin > 0.0 {
            scale.low = origin.min(if least < origin * 0.98 { scale.low.min(least) } else { origin });
        }
        AxisView { unit, divisor, title, scale }
    }

    /// The end of a whisker, divided, or the end of the axis if it lies beyond.
    fn end(&self, value: f64) -> f64 {
        match can_be_drawn(value, self.scale.spread != Spread::Linear) {
            true => value / self.divisor,
            false => self.scale.low,
        }
    }

    /// The label of a tick.
    pub fn tick(&self, tick: f64) -> String {
        let log = self.scale.spread != Spread::Linear;
        if log || self.unit.prefix { self.unit.short(tick) } else { number(tick, 6) }
    }
}

/// The categories: all names, in order of appearance; for bars also the numbers, by size.
fn categories(plot: &Plot) -> Option<Vec<String>> {
    let of_points = || plot.series.iter().flat_map(|series| &series.points).map(|(x, _)| x);
    let of_gaps = || plot.series.iter().flat_map(|series| &series.gaps).map(|(x, _)| x);
    let across = || of_points().chain(of_gaps());
    let has_names = across().any(|x| matches!(x, X::Name(_)));
    if !has_names && plot.kind != PlotKind::Bar {
        return None;
    }
    let mut places: Vec<&X> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for x in across() {
        if known.insert(category(x, &plot.x)) {
            places.push(x);
        }
    }
    if !has_names {
        let number = |x: &X| if let X::Number(number) = x { *number } else { f64::NAN };
        places.sort_by(|one, other| number(one).total_cmp(&number(other)));
    }
    Some(places.into_iter().map(|x| category(x, &plot.x)).collect())
}

/// An x value as the name of a category.
pub fn category(x: &X, axis: &Axis) -> String {
    match x {
        X::Name(name) => name.clone(),
        X::Number(number) => Unit::named(&axis.unit).value(*number),
    }
}

/// Points that are not drawn.
#[derive(Default)]
struct LeftOut {
    /// Points whose value is not finite, or too large.
    without_value: usize,
    /// Points at or below zero on a logarithmic axis.
    below_log: usize,
}

impl LeftOut {
    fn sentence(&self, words: &Words) -> String {
        let of = |count: usize, one: &str, several: &str| match count {
            0 => None,
            1 => Some(filled(one, &[("count", "1")])),
            _ => Some(filled(several, &[("count", &count.to_string())])),
        };
        let below = of(self.below_log, &words.below_log_one, &words.below_log);
        let without = of(self.without_value, &words.without_value_one, &words.without_value);
        below.into_iter().chain(without).collect::<Vec<_>>().join(" ")
    }
}

/// Says what the whiskers of a plot are, and how many points have them if not all do; empty without
/// whiskers.
fn whiskers(plot: &Plot, words: &Words) -> String {
    let mut counts: BTreeMap<Ends, usize> = BTreeMap::new();
    for series in &plot.series {
        for whisker in (0..series.points.len()).filter_map(|at| series.whisker(at)) {
            *counts.entry(whisker.ends).or_default() += 1;
        }
    }
    let named = |(ends, count): (&Ends, &usize)| match counts.len() {
        1 => words.ends(*ends).to_owned(),
        _ => {
            filled(&words.whiskers_of, &[("ends", words.ends(*ends)), ("count", &number(*count as f64, 12))])
        }
    };
    let all: Vec<String> = counts.iter().map(named).collect();
    match all.is_empty() {
        true => String::new(),
        false => filled(&words.whiskers, &[("ends", &all.join(", "))]),
    }
}

/// Says which places have no value, and why; empty if there are none.
fn gaps(plot: &Plot, words: &Words) -> String {
    let named = plot.series.iter().flat_map(|series| {
        series.gaps.iter().map(|(x, why)| {
            let place = category(x, &plot.x);
            filled(&words.gap, &[("name", &series.name), ("place", &place), ("why", why)])
        })
    });
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => String::new(),
        false => filled(&words.gaps, &[("names", &named.join("; "))]),
    }
}

/// The place of an x value on its axis; `None` if the value cannot be drawn.
fn place(across: &X, categories: Option<&[String]>, x: &AxisView) -> Option<f64> {
    let name = match (categories, across) {
        (None, X::Number(number)) => {
            let log = x.scale.spread != Spread::Linear;
            return can_be_drawn(*number, log).then_some(number / x.divisor);
        }
        (None, X::Name(_)) => return None,
        (Some(_), X::Number(number)) => x.unit.value(*number),
        (Some(_), X::Name(name)) => name.clone(),
    };
    categories?.iter().position(|known| *known == name).map(|at| at as f64)
}

/// Points as they are drawn, and the ends of their whiskers.
type Drawn = (Vec<(f64, f64)>, Vec<Option<(f64, f64)>>);

/// The points of a series, divided. A y that cannot be drawn is a gap; a point whose x cannot be
/// drawn is left out.
fn drawn(
    series: &Series,
    categories: Option<&[String]>,
    (x, y): (&AxisView, &AxisView),
    left_out: &mut LeftOut,
) -> Drawn {
    let places: Option<BTreeMap<&str, usize>> =
        categories.map(|names| names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect());
    let mut fits = |value: f64, axis: &AxisView| {
        let log = axis.scale.spread != Spread::Linear;
        let fits = can_be_drawn(value, log);
        match log && value <= 0.0 && value.is_finite() {
            _ if fits => {}
            true => left_out.below_log += 1,
            false => left_out.without_value += 1,
        }
        fits
    };
    let (mut points, mut whiskers) = (Vec::with_capacity(series.points.len()), Vec::new());
    for (at, (across, up)) in series.points.iter().enumerate() {
        let across = match (&places, across) {
            (Some(places), X::Name(name)) => places[name.as_str()] as f64,
            (Some(places), X::Number(number)) => places[x.unit.value(*number).as_str()] as f64,
            (None, X::Number(number)) if fits(*number, x) => *number / x.divisor,
            (None, _) => continue,
        };
        let drawn = fits(*up, y);
        points.push((across, if drawn { up / y.divisor } else { f64::NAN }));
        let whisker = series.whisker(at).filter(|_| drawn);
        whiskers.push(whisker.map(|whisker| (y.end(whisker.low), y.end(whisker.high))));
    }
    (points, whiskers)
}

/// The name of a series, with its origin unless the name contains it or all series of the plot have
/// the same. Published and synthetic series always have it.
fn label(series: &Series, plot: &Plot, words: &Words) -> String {
    let alike =
        plot.series.iter().all(|other| matches!(other.mark, Mark::Published) || other.mark == series.mark);
    let plain = matches!(series.mark, Mark::Measured | Mark::Simulated) && alike;
    let word = words.mark(series.mark);
    match series.name.trim() {
        "" => word.to_owned(),
        name if plain || name.to_lowercase().contains(word) => name.to_owned(),
        name => format!("{name} ({word})"),
    }
}

/// The owner of a series, or, without an owner, its name without the words on its origin.
fn owner(series: &Series, words: &Words) -> String {
    stem(if series.owner.is_empty() { &series.name } else { &series.owner }, words)
}

/// A slot for each series: series of one owner share it; published ones come last.
fn slots(series: &[Series], words: &Words) -> Vec<usize> {
    let mut known: Vec<String> = Vec::new();
    let published = |series: &&Series| series.mark == Mark::Published;
    let in_order = series.iter().filter(|series| !published(series)).chain(series.iter().filter(published));
    for owner in in_order.map(|series| owner(series, words)) {
        if !known.contains(&owner) {
            known.push(owner);
        }
    }
    let place = |series: &Series| known.iter().position(|known| *known == owner(series, words)).unwrap_or(0);
    series.iter().map(place).collect()
}

/// Looks of a page: six colours and shapes, in six combinations with dashes.
const LOOKS: usize = 36;

/// Gives the series of one owner the same slot in all plots of a page, and no other series that
/// slot. Owners that occur in the most plots come first. Plots that share no owner with another
/// plot keep their own slots, and so does a page with more owners than looks.
pub fn share_slots(views: &mut [View]) {
    let owners = |view: &View| view.series.iter().map(|series| series.owner.clone()).collect::<Vec<_>>();
    let mut plots: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for (at, view) in views.iter().enumerate() {
        let slots: BTreeMap<usize, &String> =
            view.series.iter().map(|series| (series.slot, &series.owner)).collect();
        for owner in slots.into_values() {
            if plots.entry(owner.clone()).or_default().insert(at) && !order.contains(owner) {
                order.push(owner.clone());
            }
        }
    }
    let is_alone = |view: &View| owners(view).iter().all(|owner| plots[owner].len() == 1);
    let shared: BTreeSet<String> = views.iter().filter(|view| !is_alone(view)).flat_map(owners).collect();
    order.retain(|owner| shared.contains(owner));
    if order.len() > LOOKS {
        return;
    }
    // The sort is stable: equally frequent owners stay in the order of the page.
    order.sort_by_key(|owner| std::cmp::Reverse(plots[owner].len()));
    for series in views.iter_mut().flat_map(|view| &mut view.series) {
        series.slot = order.iter().position(|owner| *owner == series.owner).unwrap_or(series.slot);
    }
}

/// A name without the words on the origin of the series.
fn stem(name: &str, words: &Words) -> String {
    let name = name.to_lowercase();
    let parts = name.split(|letter: char| letter.is_whitespace() || "(),;:（）".contains(letter));
    let own = [&words.measured, &words.simulated, &words.synthetic, &words.published];
    let says_mark = |word: &&str| {
        matches!(*word, "" | "measured" | "simulated" | "synthetic" | "published" | "paper")
            || own.iter().any(|own| own == word)
    };
    parts.filter(|word| !says_mark(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Language, Whisker};

    fn series(name: &str, mark: Mark, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            mark,
            points: points.iter().map(|(x, y)| (X::Number(*x), *y)).collect(),
            ..Series::default()
        }
    }

    #[test]
    fn series_of_one_name_have_one_slot_on_all_of_a_page() {
        let plots = [vec!["memory", "swap", "mmap"], vec!["mmap", "zram", "swap"], vec!["fio", "mmap"]].map(
            |names| Plot {
                series: names.iter().map(|name| series(name, Mark::Measured, &[])).collect(),
                ..Plot::default()
            },
        );
        let mut views: Vec<View> =
            plots.iter().map(|plot| View::new(plot, Words::of(Language::En))).collect();
        share_slots(&mut views);
        let slots = views.iter().map(|view| view.series.iter().map(|series| series.slot).collect::<Vec<_>>());
        assert_eq!(slots.collect::<Vec<_>>(), [vec![2, 1, 0], vec![0, 3, 1], vec![4, 0]]);
    }

    #[test]
    fn more_owners_than_colours_are_never_taken_for_each_other() {
        let names: Vec<String> = (0..10).map(|at| format!("contender {at}")).collect();
        let of = |names: &[String]| Plot {
            series: names.iter().map(|name| series(name, Mark::Measured, &[])).collect(),
            ..Plot::default()
        };
        let plots = [of(&names[..6]), of(&names[4..]), of(&names[8..])];
        let words = Words::of(Language::En);
        let mut views: Vec<View> = plots.iter().map(|plot| View::new(plot, words)).collect();
        share_slots(&mut views);
        let mut known: BTreeMap<usize, String> = BTreeMap::new();
        for series in views.iter().flat_map(|view| &view.series) {
            let other = known.entry(series.slot).or_insert(series.label.clone());
            assert_eq!(*other, series.label, "slot {}", series.slot);
        }
        assert_eq!(known.len(), 10);
    }

    #[test]
    fn published_series_have_the_slot_of_their_owner() {
        let mut printed = series("swap: on a SATA SSD", Mark::Published, &[(1.0, 96.0)]);
        printed.owner = "swap".into();
        let plot = Plot {
            series: vec![series("memory", Mark::Measured, &[]), series("swap", Mark::Measured, &[]), printed],
            ..Plot::default()
        };
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!(view.series.iter().map(|series| series.slot).collect::<Vec<_>>(), [0, 1, 1]);
    }

    #[test]
    fn places_without_a_value_are_named() {
        let mut swap = Series { name: "swap".into(), mark: Mark::Measured, ..Series::default() };
        swap.gaps.push((X::Name("1/4".into()), "killed".into()));
        let mut memory = series("memory", Mark::Measured, &[]);
        memory.points.push((X::Name("1/2".into()), 2.0));
        let plot = Plot { kind: PlotKind::Bar, series: vec![memory, swap], ..Plot::default() };
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!(view.series[1].gaps, [(1.0, "killed".to_owned())]);
        assert!(view.remarks.contains("Without a value: swap at 1/4: killed."), "{}", view.remarks);
    }

    #[test]
    fn bars_of_multiples_begin_at_one_and_log_axes_say_so() {
        let with = |log: bool, values: &[f64]| {
            let points: Vec<(f64, f64)> = values.iter().map(|value| (*value, *value)).collect();
            let plot = Plot {
                kind: PlotKind::Bar,
                y: Axis { name: "time".into(), unit: "times".into(), log },
                series: vec![series("a", Mark::Measured, &points)],
                ..Plot::default()
            };
            let view = View::new(&plot, Words::of(Language::En));
            (view.y.scale.low, view.y.title.clone())
        };
        assert_eq!(with(false, &[1.3, 8.0]), (1.0, "time (times)".into()));
        assert_eq!(with(true, &[0.99, 90.0]), (1.0, "time (times), logarithmic".into()));
        assert!(with(true, &[0.5, 90.0]).0 <= 0.5, "what is below one is drawn");
    }

    #[test]
    fn published_series_share_the_slot_of_their_namesakes() {
        let plot = Plot {
            series: vec![
                series("NVMe (published)", Mark::Published, &[]),
                series("SCSI", Mark::Simulated, &[]),
                series("NVMe", Mark::Simulated, &[]),
                series("blk-mq", Mark::Synthetic, &[]),
            ],
            ..Plot::default()
        };
        let view = View::new(&plot, Words::of(Language::En));
        let slots: Vec<usize> = view.series.iter().map(|series| series.slot).collect();
        assert_eq!(slots, [1, 0, 1, 2]);
        let labels: Vec<&str> = view.series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(
            labels,
            ["NVMe (published)", "SCSI (simulated)", "NVMe (simulated)", "blk-mq (synthetic)"]
        );
    }

    #[test]
    fn axes_are_in_the_unit_that_reads_best() {
        let plot = Plot {
            x: Axis { name: "size".into(), unit: "bytes".into(), log: true },
            y: Axis { name: "latency".into(), unit: "ns".into(), log: false },
            series: vec![series("a", Mark::Measured, &[(4096.0, 100_000.0), (65536.0, 200_000.0)])],
            ..Plot::default()
        };
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!((view.x.title.as_str(), view.y.title.as_str()), ("size, logarithmic", "latency (µs)"));
        assert_eq!(view.x.tick(65536.0), "64 KiB");
        assert_eq!(view.series[0].points[1], (65536.0, 200.0));
    }

    #[test]
    fn what_cannot_be_drawn_is_said() {
        let plot = Plot {
            y: Axis { log: true, ..Axis::default() },
            series: vec![series(
                "a",
                Mark::Measured,
                &[(1.0, 0.0), (2.0, f64::NAN), (f64::INFINITY, 1.0), (3.0, 1.0)],
            )],
            ..Plot::default()
        };
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!(view.point_count(), 1);
        assert!(view.remarks.contains("1 point is not drawn: at or below zero"), "{}", view.remarks);
        assert!(view.remarks.contains("2 points are not drawn: no finite value"), "{}", view.remarks);
    }

    #[test]
    fn whiskers_have_room_and_are_explained() {
        let whisker = |low, high, ends| Some(Whisker { low, high, ends });
        let mut plot = Plot {
            series: vec![series("a", Mark::Measured, &[(1.0, 4.0), (f64::NAN, 5.0), (2.0, 5.0), (3.0, 6.0)])],
            ..Plot::default()
        };
        plot.series[0].whiskers = vec![
            whisker(3.0, 19.0, Ends::Interval),
            whisker(1.0, 2.0, Ends::Interval),
            // Nothing to draw: no spread.
            whisker(5.0, 5.0, Ends::Range),
        ];
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!(view.series[0].whiskers, [Some((3.0, 19.0)), None, None]);
        assert_eq!(view.y.scale.high, 20.0);
        assert!(view.remarks.starts_with("Whiskers: 95 % interval."), "{}", view.remarks);
        plot.series[0].whiskers.push(whisker(1.0, 7.0, Ends::Deviation));
        let view = View::new(&plot, Words::of(Language::En));
        let wanted = "95 % interval (2 points), one standard deviation to each side (1 points).";
        assert!(view.remarks.contains(wanted), "{}", view.remarks);
        // Half of it has no place on a logarithmic axis.
        plot.y.log = true;
        plot.series[0].whiskers[3] = whisker(-1.0, 7.0, Ends::Deviation);
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!(view.series[0].whiskers[2], Some((view.y.scale.low, 7.0)));
    }

    #[test]
    fn the_least_bar_of_a_logarithmic_axis_has_a_length() {
        let plot = Plot {
            kind: PlotKind::Bar,
            y: Axis { log: true, ..Axis::default() },
            series: vec![series("a", Mark::Measured, &[(1.0, 1.0), (2.0, 50.0)])],
            ..Plot::default()
        };
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!((view.y.scale.low, view.y.scale.high), (0.5, 50.0));
    }

    #[test]
    fn bars_of_numbers_are_in_order() {
        let plot = Plot {
            kind: PlotKind::Bar,
            x: Axis { unit: "bytes".into(), ..Axis::default() },
            series: vec![
                series("a", Mark::Measured, &[(65536.0, 1.0), (4096.0, 2.0)]),
                series("b", Mark::Measured, &[(16384.0, 3.0)]),
            ],
            ..Plot::default()
        };
        let view = View::new(&plot, Words::of(Language::En));
        assert_eq!(view.categories, Some(vec!["4 KiB".into(), "16 KiB".into(), "64 KiB".into()]));
        assert_eq!(view.series[1].points, [(1.0, 3.0)]);
    }
}
