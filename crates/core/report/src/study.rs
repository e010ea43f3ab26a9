//! The contents of a report, independent of its form.

use serde::{Deserialize, Serialize};
use terapage_figures::{Origin, Sourced};

/// One study, one report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Study {
    /// The heading.
    pub title: String,
    /// The language of its own words, and of the words around them.
    #[serde(skip_serializing_if = "Language::is_english")]
    pub language: Language,
    /// What the reader wants to know first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<Answer>,
    /// The results in a table or two, below the answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overview: Vec<Table>,
    /// Paragraphs: the question, the results, and cautions.
    pub summary: Vec<String>,
    /// The findings of papers, and the results here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// The command that makes this report again.
    pub command: String,
    /// The machine or model of the run, as pairs of name and value.
    pub machine: Vec<(String, String)>,
    /// Every parameter that the result depends on.
    pub parameters: Vec<Parameter>,
    /// Plots, in order.
    pub plots: Vec<Plot>,
    /// Tables, in order, after the plots.
    pub tables: Vec<Table>,
    /// The studies of which this one consists, in order; shown after its own tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Study>,
}

impl Study {
    /// All plots, with those of the parts after its own, in the order of a page's numbers.
    pub fn all_plots(&self) -> Vec<&Plot> {
        self.plots.iter().chain(self.parts.iter().flat_map(Study::all_plots)).collect()
    }
}

/// The language of a study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Japanese.
    Ja,
}

impl Language {
    fn is_english(&self) -> bool {
        *self == Language::En
    }

    /// Its code, as in HTML.
    pub fn code(self) -> &'static str {
        match self {
            Language::En => "en",
            Language::Ja => "ja",
        }
    }
}

/// An answer in plain words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// A sentence or two.
    pub text: String,
    /// The command for this case; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
}

/// A finding of a paper, and the result here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Finding {
    /// Where the finding is printed: paper and figure.
    pub printed: String,
    /// The finding, in a sentence.
    pub claim: String,
    /// Whether the finding holds here.
    pub verdict: Verdict,
    /// The values found here, or the reason why there are none.
    pub here: String,
    /// The figures that show it, by their places in [`Study::all_plots`].
    pub figures: Vec<usize>,
}

/// The verdict on a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The finding holds here.
    Holds,
    /// The result here is different.
    Differs,
    /// The finding can no longer be measured.
    NoLonger,
    /// The finding was measured, but the runs cannot decide it.
    NotDecided,
    /// It was not measured.
    #[default]
    NotMeasured,
}

/// A parameter and the origin of its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its value, without the unit.
    pub value: String,
    /// The unit; empty for numbers without one.
    pub unit: String,
    /// The kind of the value.
    pub origin: Origin,
    /// The source: a paper, a data sheet, a fit.
    pub source: String,
}

impl Parameter {
    /// A parameter from a data file; `value` is the text that is shown.
    pub fn sourced<T>(name: impl Into<String>, value: String, known: &Sourced<T>) -> Parameter {
        let (unit, source) = (known.unit.clone(), known.source.clone());
        Parameter { name: name.into(), value, unit, origin: known.origin, source }
    }
}

/// One plot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The kind of plot.
    pub kind: PlotKind,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series that are drawn.
    pub series: Vec<Series>,
    /// A sentence below it; may be empty.
    pub note: String,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// Points joined by lines.
    #[default]
    Line,
    /// Groups of bars: one group for each x value, one bar for each series.
    Bar,
    /// Points.
    Scatter,
    /// Steps, for histograms and distribution functions.
    Step,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Axis {
    /// What it measures.
    pub name: String,
    /// The unit; empty if none.
    pub unit: String,
    /// Whether it is logarithmic.
    pub log: bool,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// The name of the series.
    pub name: String,
    /// The owner of the series. Series of one owner have the same colour everywhere on a page. If
    /// this is empty, the owner is the name without the words on its origin.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The origin of the points: published ones are drawn hollow beside the others.
    pub mark: Mark,
    /// The points, in the order in which they are joined. A point whose y is not finite is a gap.
    #[serde(with = "crate::json::points")]
    pub points: Vec<(X, f64)>,
    /// The spread of the values behind each point, in the order of the points; points beyond the
    /// end of the list, and those with `None`, have no whisker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub whiskers: Vec<Option<Whisker>>,
    /// Places that have no value, and the reasons in a word or two, such as `killed`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<(X, String)>,
}

impl Series {
    /// The whisker of a point, if there is something to draw.
    pub fn whisker(&self, at: usize) -> Option<Whisker> {
        let whisker = (*self.whiskers.get(at)?)?;
        (whisker.low.is_finite() && whisker.high.is_finite() && whisker.low < whisker.high).then_some(whisker)
    }
}

/// How far the values behind a point are spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Whisker {
    /// Its lower end, in the unit of the axis.
    #[serde(with = "crate::json::number")]
    pub low: f64,
    /// Its upper end.
    #[serde(with = "crate::json::number")]
    pub high: f64,
    /// The meaning of the ends.
    pub ends: Ends,
}

impl Whisker {
    /// One that reaches `margin` below and above a value.
    pub fn around(value: f64, margin: f64, ends: Ends) -> Whisker {
        Whisker { low: value - margin, high: value + margin, ends }
    }
}

/// The meaning of the ends of a whisker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ends {
    /// The ends of a 95 % interval of the drawn value.
    Interval,
    /// The least and the greatest of the values behind the point.
    #[default]
    Range,
    /// One standard deviation below and above the point.
    Deviation,
}

/// The origin of a series. Each kind looks different, so that kinds cannot be confused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// Measured on a machine.
    Measured,
    /// Simulated from a real trace, or from a model alone.
    #[default]
    Simulated,
    /// Simulated from a synthetic trace.
    Synthetic,
    /// Printed in a paper.
    Published,
}

/// A place on the horizontal axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum X {
    /// A number.
    Number(f64),
    /// A category.
    Name(String),
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The headings of the columns.
    pub columns: Vec<String>,
    /// The rows, each as long as `columns`. Numbers are aligned to the right.
    pub rows: Vec<Vec<String>>,
    /// A sentence below it; may be empty.
    pub note: String,
}
