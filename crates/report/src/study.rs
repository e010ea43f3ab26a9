//! What a report holds, apart from how it looks.

use serde::{Deserialize, Serialize};

/// One study, one report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Study {
    /// Its name, as a heading.
    pub title: String,
    /// What was asked, what came out, what to be careful with; paragraphs.
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

/// A parameter and where its value is from.
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
    /// Who says so: a paper, a data sheet, a fit.
    pub source: String,
}

/// Where a value is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It is printed somewhere.
    Published,
    /// It was measured on a machine.
    Measured,
    /// It was fitted to published results.
    Fitted,
    /// Somebody's judgement.
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
    /// How.
    pub kind: PlotKind,
    /// The axis across.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// What is drawn.
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
    /// Groups of bars, one group an x value, one bar a series.
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
    /// What they are.
    pub name: String,
    /// Where they are from: published ones are drawn as ghosts beside the others.
    pub mark: Mark,
    /// The points, in the order in which they are joined. One whose y is not finite is a gap.
    #[serde(with = "crate::json::points")]
    pub points: Vec<(X, f64)>,
}

/// How a series came about; each looks different, so that they are never taken for one another.
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

/// A place on the axis across.
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
    /// The heads of its columns.
    pub columns: Vec<String>,
    /// Its rows, each as long as `columns`. Cells that are numbers are set to the right.
    pub rows: Vec<Vec<String>>,
    /// A sentence below it; may be empty.
    pub note: String,
}
