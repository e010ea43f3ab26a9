//! The keys of an experiment's file.

use crate::experiment::disk::DiskForm;
use crate::experiment::unit::{Side, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Which cells something is for: for each key the values that it may have.
pub type Only = BTreeMap<String, Vec<Value>>;

/// One combination of the matrix's values.
pub type Cell = BTreeMap<String, String>;

/// An experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// A heading.
    pub title: String,
    /// What it asks, and who asked before.
    #[serde(default)]
    pub about: String,
    /// What its figures count.
    pub unit: Unit,
    /// What runs.
    pub program: Program,
    /// Contenders by their names.
    #[serde(default)]
    pub contenders: Vec<String>,
    /// Contenders that are described here.
    #[serde(default)]
    pub contender: Vec<Contender>,
    /// Whom the others are held against; by default the first.
    #[serde(default)]
    pub baseline: Option<String>,
    /// Sizes in bytes, as terms of sizes and of the matrix's keys; `memory` is the limit.
    #[serde(default)]
    pub sizes: BTreeMap<String, String>,
    /// The values that are combined into cells.
    #[serde(default)]
    pub matrix: BTreeMap<String, Vec<Value>>,
    /// Cells that are left out: those that fit all that one of these names.
    #[serde(default)]
    pub skip: Vec<Only>,
    /// Cells with I/O at random places: a throttled device then limits requests, else bytes.
    #[serde(default)]
    pub random: Option<Only>,
    /// How often.
    #[serde(default)]
    pub repetitions: Repetitions,
    /// Whether the first cell has the baseline twice, so that the noise floor is known.
    #[serde(default = "yes")]
    pub control: bool,
    /// Settings of the device (`scheduler`, `wbt_lat_usec` and others of its queue) while it runs;
    /// they are restored.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What a run is expected to cost.
    #[serde(default)]
    pub cost: Cost,
    /// What `--quick` has instead.
    #[serde(default)]
    pub quick: Quick,
    /// What figures are held against.
    #[serde(default)]
    pub target: Vec<TargetForm>,
    /// What is drawn.
    #[serde(default)]
    pub plot: Vec<PlotForm>,
    /// What others have printed.
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
    /// `dir`, `file` (a path that the experiment owns) or `text` (a file of random lines).
    /// `{lab}` is the lab itself, `{disk}` where a contender's own disk is.
    pub run: Vec<String>,
    /// Other programs that it needs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Where the figures come from.
    #[serde(default)]
    pub passes: Passes,
    /// Bytes of the file that `{text}` names.
    #[serde(default)]
    pub text: Option<String>,
    /// The exit status that it ends with.
    #[serde(default)]
    pub status: i32,
    /// Files that it writes, whose content must be the same for all.
    #[serde(default)]
    pub writes: Vec<PathBuf>,
    /// Whether braces in `run` mean nothing.
    #[serde(default)]
    pub verbatim: bool,
}

/// Where a run's figures come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passes {
    /// Lines of JSON on its standard output.
    #[default]
    Lines,
    /// Its run time is the one pass; its output must be the same for all.
    Time,
}

/// What a contender runs in.
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
    /// As swap, with zswap before it.
    Zswap,
    /// As swap, with the multi-generational LRU.
    Mglru,
    /// The same limit, and a file to map.
    Mmap,
    /// Terapage, with a store on the disk.
    Terapage,
    /// Terapage, with the store that `--far` names.
    Far,
}

/// A contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// What it runs in.
    pub under: Under,
    /// What it runs, where that is not the experiment's program.
    #[serde(default)]
    pub run: Option<Vec<String>>,
    /// What it runs works on other data than the experiment's program: its output is compared with
    /// that of its other runs alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_data: bool,
    /// A disk of its own, which is set up for each run.
    #[serde(default)]
    pub disk: Option<DiskForm>,
    /// The cells that it takes part in; by default all.
    #[serde(default)]
    pub only: Only,
    /// Further options of `terapage run`, with their names filled in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Of a far one, its servers; 1 where it does not say. Each takes its part of the data.
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
    /// At most: what is not settled by then is called so.
    pub most: u32,
}

impl Default for Repetitions {
    fn default() -> Repetitions {
        Repetitions { least: 6, most: 12 }
    }
}

/// What one run is expected to cost.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// Seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Bytes of disk that are taken at once, a term.
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

/// What `--quick` has instead.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Quick {
    /// These sizes.
    #[serde(default)]
    pub sizes: BTreeMap<String, String>,
    /// These values.
    #[serde(default)]
    pub matrix: BTreeMap<String, Vec<Value>>,
    /// These contenders alone, where any are named.
    #[serde(default)]
    pub contenders: Vec<String>,
    /// So many rounds.
    #[serde(default)]
    pub repetitions: Option<Repetitions>,
    /// Seconds of a run.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// These cells alone, by contender.
    #[serde(default)]
    pub only: BTreeMap<String, Only>,
    /// Whether this is in force.
    #[serde(default, skip_serializing_if = "is_no")]
    pub applied: bool,
}

/// How a value is made that is held against a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The figure of one over that of another.
    #[default]
    Ratio,
    /// The difference of both.
    Difference,
    /// What `threads` threads do in a time, as a multiple of one's, or of the device's if less.
    Scaling,
    /// Bytes written over bytes read from the store in a pass.
    WrittenShare,
    /// The most memory of each that has a budget.
    Resident,
    /// The share of runs that did their work.
    Completes,
    /// The speed of one over that of another, of a program that goes over its data once in `depth`
    /// steps (a key of the matrix); or 95 % of what `device` allows, if that is less.
    Bound,
}

/// When a target holds.
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
    /// How its value is made.
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
    /// Of which pass; by default of the same.
    #[serde(default)]
    pub to_pass: Option<String>,
    /// Whose pass `rmw` is what the device gives, of `bound`.
    #[serde(default)]
    pub device: String,
    /// Threads of `scaling`.
    #[serde(default)]
    pub threads: u32,
    /// On which side of the value it must be.
    #[serde(default)]
    pub side: Side,
    /// The target.
    #[serde(default)]
    pub value: f64,
    /// When it holds; by default always.
    #[serde(default)]
    pub when: Option<When>,
    /// In which cells; by default in all.
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
    /// The key across; by default `pass`.
    #[serde(default = "pass")]
    pub x: String,
    /// The cells that it shows; by default all.
    #[serde(default)]
    pub only: Only,
    /// The passes that it shows; by default all.
    #[serde(default)]
    pub passes: Vec<String>,
    /// Whether figures are shown as multiples of the baseline's time.
    #[serde(default)]
    pub relative: bool,
    /// Whether the axis upwards is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// A sentence below it.
    #[serde(default)]
    pub note: String,
}

fn pass() -> String {
    "pass".into()
}

/// A figure that others have printed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Where it is printed.
    pub figure: String,
    /// What it is of, in words.
    pub what: String,
    /// The contender that is its like.
    pub contender: String,
    /// The pass.
    #[serde(default)]
    pub pass: String,
    /// The cell.
    #[serde(default)]
    pub at: BTreeMap<String, Value>,
    /// The value, in the experiment's unit, or a multiple of the baseline's time where `relative`.
    pub value: f64,
    /// Whether it is such a multiple.
    #[serde(default)]
    pub relative: bool,
    /// What has changed since.
    #[serde(default)]
    pub note: String,
}
