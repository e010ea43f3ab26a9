//! The keys of an experiment's file.

use crate::experiment::disk::DiskForm;
use crate::experiment::unit::{Side, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The cells to which something applies: for each key the possible values.
pub type Only = BTreeMap<String, Vec<Value>>;

/// One combination of the matrix's values.
pub type Cell = BTreeMap<String, String>;

/// An experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// A heading.
    pub title: String,
    /// The question of the experiment, and who asked it before.
    #[serde(default)]
    pub about: String,
    /// The quantity that its figures count.
    pub unit: Unit,
    /// What runs.
    pub program: Program,
    /// Contenders by their names.
    #[serde(default)]
    pub contenders: Vec<String>,
    /// Contenders that this file describes.
    #[serde(default)]
    pub contender: Vec<Contender>,
    /// The contender with which the others are compared; by default the first.
    #[serde(default)]
    pub baseline: Option<String>,
    /// Sizes in bytes, as terms of sizes and of the matrix's keys; `memory` is the limit.
    #[serde(default)]
    pub sizes: BTreeMap<String, String>,
    /// The values that are combined into cells.
    #[serde(default)]
    pub matrix: BTreeMap<String, Vec<Value>>,
    /// Cells to skip: a cell is skipped if it matches every key of one entry.
    #[serde(default)]
    pub skip: Vec<Only>,
    /// Cells with I/O at random places: in these a throttled device limits requests, in others
    /// bytes.
    #[serde(default)]
    pub random: Option<Only>,
    /// How often.
    #[serde(default)]
    pub repetitions: Repetitions,
    /// Whether the first cell has the baseline twice, so that the noise floor is known.
    #[serde(default = "yes")]
    pub control: bool,
    /// Device settings (`scheduler`, `wbt_lat_usec` and others of its queue) during the experiment;
    /// they are restored.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The expected cost of a run.
    #[serde(default)]
    pub cost: Cost,
    /// The replacements for `--quick`.
    #[serde(default)]
    pub quick: Quick,
    /// The targets for the figures.
    #[serde(default)]
    pub target: Vec<TargetForm>,
    /// What is drawn.
    #[serde(default)]
    pub plot: Vec<PlotForm>,
    /// Published figures.
    #[serde(default)]
    pub published: Vec<Published>,
}

fn is_no(value: &bool) -> bool {
    !value
}

fn yes() -> bool {
    true
}

/// What runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Program {
    /// The program and its arguments; `{name}` stands for a size, a key of the matrix, `contender`,
    /// `dir`, `file` (a path that the experiment owns) or `text` (a file of random lines). `{lab}`
    /// is the lab itself, `{disk}` the place of the contender's own disk.
    pub run: Vec<String>,
    /// Other programs that the experiment needs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The source of the figures.
    #[serde(default)]
    pub passes: Passes,
    /// Bytes of the file that `{text}` names.
    #[serde(default)]
    pub text: Option<String>,
    /// The exit status of a successful run.
    #[serde(default)]
    pub status: i32,
    /// Files that the program writes, whose content must be the same for all contenders.
    #[serde(default)]
    pub writes: Vec<PathBuf>,
    /// Whether braces in `run` mean nothing.
    #[serde(default)]
    pub verbatim: bool,
}

/// The source of a run's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passes {
    /// Lines of JSON on its standard output.
    #[default]
    Lines,
    /// The run time is the only pass; the output must be the same for all contenders.
    Time,
}

/// What a contender runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Under {
    /// No limit.
    Memory,
    /// A memory cgroup, whose limit counts the page cache too.
    Limit,
    /// The same, and a swap file.
    Swap,
    /// The same limit, and swap to compressed memory.
    Zram,
    /// As swap, with zswap in front of the file.
    Zswap,
    /// As swap, with the multi-generational LRU.
    Mglru,
    /// The same limit, and a file to map.
    Mmap,
    /// Terapage, with a store on the disk.
    Terapage,
    /// Terapage with `--files`, with the same limit.
    Files,
    /// Terapage, with the store that `--far` names.
    Far,
}

/// A contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// What it runs on.
    pub under: Under,
    /// Its program, if that is not the experiment's program.
    #[serde(default)]
    pub run: Option<Vec<String>>,
    /// Whether its program works on other data than the experiment's program: then its output is
    /// compared only with that of its other runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_data: bool,
    /// A separate disk, which is set up for each run.
    #[serde(default)]
    pub disk: Option<DiskForm>,
    /// The cells in which it takes part; by default all.
    #[serde(default)]
    pub only: Only,
    /// Further options of `terapage run`, with their names filled in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The number of servers of a far contender; 1 by default. Each server has its part of the
    /// data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<usize>,
}

/// A value of the matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A text, such as a size.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

/// How many rounds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Repetitions {
    /// At least.
    pub least: u32,
    /// The maximum: a ratio that is not settled by then is reported as such.
    pub most: u32,
}

impl Default for Repetitions {
    fn default() -> Repetitions {
        Repetitions { least: 6, most: 12 }
    }
}

/// The expected cost of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// Seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Bytes of disk that are used at once, a term.
    #[serde(default)]
    pub disk: String,
    /// Bytes written to the disk, a term.
    #[serde(default)]
    pub written: String,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost { seconds: 5.0, disk: "0".into(), written: "0".into() }
    }
}

/// The replacements for `--quick`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// These sizes.
    #[serde(default)]
    pub sizes: BTreeMap<String, String>,
    /// These values.
    #[serde(default)]
    pub matrix: BTreeMap<String, Vec<Value>>,
    /// Only these contenders, if any are named.
    #[serde(default)]
    pub contenders: Vec<String>,
    /// The number of rounds.
    #[serde(default)]
    pub repetitions: Option<Repetitions>,
    /// Seconds of a run.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Only these cells, by contender.
    #[serde(default)]
    pub only: BTreeMap<String, Only>,
    /// Whether these replacements are in force.
    #[serde(default, skip_serializing_if = "is_no")]
    pub applied: bool,
}

/// How the value of a target is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The figure of one contender divided by that of another.
    #[default]
    Ratio,
    /// The difference of both.
    Difference,
    /// The work of `threads` threads in a time, as a multiple of one thread's work, or of the
    /// device's if that is less.
    Scaling,
    /// Bytes written over bytes read from the store in a pass.
    WrittenShare,
    /// The peak memory of each contender that has a budget.
    Resident,
    /// The share of runs that completed their work.
    Completes,
    /// The speed of one contender divided by that of another, for a program that passes over its
    /// data once in `depth` steps (a key of the matrix); or 95 % of what `device` allows, if that
    /// is less.
    Bound,
}

/// The condition under which a target applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// The data is well within the memory.
    Fits,
    /// It is not.
    Paged,
}

/// A target.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TargetForm {
    /// How its value is computed.
    #[serde(default)]
    pub kind: Kind,
    /// Whose figure.
    #[serde(default)]
    pub of: String,
    /// Of which pass.
    #[serde(default)]
    pub pass: String,
    /// Against whose.
    #[serde(default)]
    pub to: String,
    /// The other contender's pass; by default the same one.
    #[serde(default)]
    pub to_pass: Option<String>,
    /// For `bound`: the contender whose pass `rmw` gives the device's speed.
    #[serde(default)]
    pub device: String,
    /// Threads of `scaling`.
    #[serde(default)]
    pub threads: u32,
    /// The side of the target on which the value must be.
    #[serde(default)]
    pub side: Side,
    /// The target.
    #[serde(default)]
    pub value: f64,
    /// The condition under which the target applies; by default always.
    #[serde(default)]
    pub when: Option<When>,
    /// The cells to which it applies; by default all.
    #[serde(default)]
    pub only: Only,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// A plot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlotForm {
    /// Its heading.
    pub title: String,
    /// The key on the x axis; by default `pass`.
    #[serde(default = "pass")]
    pub x: String,
    /// The cells in the plot; by default all.
    #[serde(default)]
    pub only: Only,
    /// The passes in the plot; by default all.
    #[serde(default)]
    pub passes: Vec<String>,
    /// Whether figures are shown as multiples of the baseline's time.
    #[serde(default)]
    pub relative: bool,
    /// Whether the axis upwards is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// A sentence below the plot.
    #[serde(default)]
    pub note: String,
}

fn pass() -> String {
    "pass".into()
}

impl Published {
    /// Whether the value is a multiple of a figure other than the baseline's.
    pub fn is_over(&self) -> bool {
        self.over.is_some() || self.over_contender.is_some()
    }

    /// Whether a plot can show the value: other values are in the table alone.
    pub fn is_drawn(&self) -> bool {
        !self.is_over() && !self.processor
    }
}

/// A published figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// The source of the publication.
    pub figure: String,
    /// What it measures, in words.
    pub what: String,
    /// The corresponding contender.
    pub contender: String,
    /// The pass.
    #[serde(default)]
    pub pass: String,
    /// The cell.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    /// The value, in the experiment's unit, or, if `relative`, a multiple of the baseline's time.
    pub value: f64,
    /// Whether the value is such a multiple.
    #[serde(default)]
    pub relative: bool,
    /// A cell of the same contender and pass. The value is a multiple of the figure in that cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<BTreeMap<String, Value>>,
    /// A contender. The value is a multiple of that contender's figure in the same cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_contender: Option<String>,
    /// Whether the value is the processor time, as a percentage of the run time of one processor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub processor: bool,
    /// What has changed since its publication.
    #[serde(default)]
    pub note: String,
}
