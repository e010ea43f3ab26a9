//! The contents of a report, independent of its form.

use serde::{Deserialize, Serialize};

/// One study, one report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Study {
    /// The heading.
    pub title: String,
    /// Paragraphs: the question, the results, and what to be careful with.
    pub summary: Vec<String>,
    /// The command that makes this report again.
    pub command: String,
    /// The machine or model that it ran on, as pairs of name and value.
    pub machine: Vec<(String, String)>,
    /// Every parameter that the result depends on.
    pub parameters: Vec<Parameter>,
    /// Plots, in order.
    pub plots: Vec<Plot>,
    /// Tables, in order, after the plots.
    pub tables: Vec<Table>,
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
    /// What kind of value it is.
    pub origin: Origin,
    /// The source: a paper, a data sheet, a fit.
    pub source: String,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is printed somewhere.
    Published,
    /// It was measured on a machine.
    Measured,
    /// It was fitted to published results.
    Fitted,
    /// It is estimated.
    #[default]
    Estimated,
    /// The user chose it.
    Chosen,
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
    /// How the points came about: published ones are drawn faintly beside the others.
    pub mark: Mark,
    /// The points, in the order in which they are joined. A point whose y is not finite is a gap.
    #[serde(with = "crate::json::points")]
    pub points: Vec<(X, f64)>,
}

/// How a series came about. Each kind looks different, so that none is taken for another.
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
