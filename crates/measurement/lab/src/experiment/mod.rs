//! An experiment as a file: what runs, under which contenders, over which cells, and what its
//! figures are held against. TOML; docs/lab.md has the keys.

pub mod unit;

use crate::experiment::unit::{Side, Unit};
use crate::ground::disk::{self, DiskForm};
use crate::ground::throttle::{Class, Profile};
use anyhow::{Context, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use terapage_config::Size;

/// Experiments that come with the lab: name and text.
pub const SHIPPED: [(&str, &str); 14] = [
    ("raw", include_str!("../../experiments/raw.toml")),
    ("arrays", include_str!("../../experiments/arrays.toml")),
    ("stencil", include_str!("../../experiments/stencil.toml")),
    ("poisson", include_str!("../../experiments/poisson.toml")),
    ("temporal", include_str!("../../experiments/temporal.toml")),
    ("scan", include_str!("../../experiments/scan.toml")),
    ("random", include_str!("../../experiments/random.toml")),
    ("sort", include_str!("../../experiments/sort.toml")),
    ("stride", include_str!("../../experiments/stride.toml")),
    ("transfer", include_str!("../../experiments/transfer.toml")),
    ("latency", include_str!("../../experiments/latency.toml")),
    ("sort-blocks", include_str!("../../experiments/sort-blocks.toml")),
    ("bonnie", include_str!("../../experiments/bonnie.toml")),
    ("stack", include_str!("../../experiments/stack.toml")),
];

/// Names that files use for themselves: no size or key of the matrix may have them.
const RESERVED: [&str; 6] = ["lab", "dir", "file", "text", "contender", "disk"];

/// Contenders that need no table of their own.
const STANDARD: [(&str, Under); 8] = [
    ("memory", Under::Memory),
    ("swap", Under::Swap),
    ("zram", Under::Zram),
    ("zswap", Under::Zswap),
    ("mglru", Under::Mglru),
    ("mmap", Under::Mmap),
    ("terapage", Under::Terapage),
    ("far", Under::Far),
];

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

impl Experiment {
    /// The shipped experiment of this name, or that of a file, with its name.
    ///
    /// # Errors
    /// When there is none, or it is wrong: one line, with line and column where it has them.
    pub fn find(name: &str) -> anyhow::Result<(String, Experiment)> {
        if let Some((name, text)) = SHIPPED.iter().find(|(known, _)| *known == name) {
            return Ok(((*name).into(), Experiment::parse(text, name)?));
        }
        let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
        ensure!(
            name.ends_with(".toml"),
            "no experiment is called {name}: there are {}, and files that end in .toml",
            names.join(", ")
        );
        let text = fs::read_to_string(name).with_context(|| name.to_owned())?;
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((stem, Experiment::parse(&text, name)?))
    }

    /// Reads an experiment; `file` is what errors call it.
    ///
    /// # Errors
    /// One line, with line and column where the text itself is wrong.
    pub fn parse(text: &str, file: &str) -> anyhow::Result<Experiment> {
        let experiment: Experiment = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            anyhow!("{file}: line {line}, column {column}: {message}")
        })?;
        experiment.check().with_context(|| file.to_owned())?;
        Ok(experiment)
    }

    /// What cannot be seen in one key alone.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.program.run.is_empty(), "program.run is empty; it names the program to run");
        let names: Vec<String> = self.all_contenders()?.into_iter().map(|contender| contender.name).collect();
        ensure!(!names.is_empty(), "no contenders; contenders = [\"memory\", \"terapage\"] names some");
        for (i, name) in names.iter().enumerate() {
            ensure!(!names[..i].contains(name), "contender {name} is there twice");
        }
        let known = |name: &String| names.contains(name);
        ensure!(self.baseline.as_ref().is_none_or(known), "baseline: no contender is called so");
        let Repetitions { least, most } = self.repetitions;
        ensure!(1 <= least && least <= most, "repetitions: 1 <= least <= most must hold");
        for key in self.matrix.keys().chain(self.sizes.keys()) {
            ensure!(!RESERVED.contains(&key.as_str()), "{key}: this name has a meaning of its own");
        }
        for name in self.settings.keys() {
            ensure!(!name.contains(['/', '.']), "settings: {name} is no file of the device's queue");
        }
        for (key, values) in &self.matrix {
            ensure!(!values.is_empty(), "matrix.{key} has no values");
        }
        let of_targets = self.target.iter().map(|target| ("target", &target.only));
        let of_plots = self.plot.iter().map(|plot| ("plot", &plot.only));
        let of_contenders = self.contender.iter().map(|contender| ("contender", &contender.only));
        let of_skip = self.skip.iter().map(|skip| ("skip", skip));
        let of_random = self.random.iter().map(|random| ("random", random));
        let of_quick = self.quick.only.values().map(|only| ("quick.only", only));
        for (what, only) in
            of_targets.chain(of_plots).chain(of_contenders).chain(of_skip).chain(of_random).chain(of_quick)
        {
            for key in only.keys() {
                ensure!(self.matrix.contains_key(key), "{what}: the matrix has no key {key}");
            }
        }
        ensure!(!self.cells().is_empty(), "skip leaves no cell");
        for target in &self.target {
            for name in [&target.of, &target.to, &target.device] {
                ensure!(name.is_empty() || known(name), "target: no contender is called {name}");
            }
        }
        self.check_disks()?;
        for contender in &self.contender {
            let paged = matches!(contender.under, Under::Terapage | Under::Far);
            ensure!(paged || contender.options.is_empty(), "{}: options are terapage's", contender.name);
            let right = contender.servers.is_none_or(|count| (1..=4).contains(&count));
            ensure!(right, "{}: servers: 1 to 4", contender.name);
        }
        for cell in self.cells() {
            let sizes = self.sizes_of(&cell)?;
            let of_contenders = self.contender.iter().flat_map(|c| c.run.iter().flatten().chain(&c.options));
            for text in self.program.run.iter().chain(of_contenders) {
                self.filled(text, &cell, &sizes, &RESERVED.map(|name| (name, "")))?;
            }
            self.term("cost.disk", &self.cost.disk, &cell, &sizes)?;
            self.term("cost.written", &self.cost.written, &cell, &sizes)?;
        }
        Ok(())
    }

    /// What is wrong with contenders' own disks.
    fn check_disks(&self) -> anyhow::Result<()> {
        for contender in &self.contender {
            let Some(form) = &contender.disk else { continue };
            ensure!((1..=16).contains(&form.disks), "{}: disk.disks: 1 to 16", contender.name);
            let can = form.disks >= 4 && form.kind != disk::Kind::None;
            ensure!(
                form.array.is_none() || can,
                "{}: disk.array: RAID-6 needs four disks or more, and a file system on them",
                contender.name
            );
            if let Some(class) = &form.class {
                Class::find(class).map_err(|why| anyhow!("{}: disk.class: {why}", contender.name))?;
            }
            for cell in self.cells() {
                let sizes = self.sizes_of(&cell)?;
                self.term("disk.size", &form.size, &cell, &sizes)?;
                self.scheduler(form, &cell)?;
            }
        }
        Ok(())
    }

    /// The scheduler of a contender's own disk in a cell.
    ///
    /// # Errors
    /// A name that stands for nothing.
    pub fn scheduler(&self, form: &DiskForm, cell: &Cell) -> anyhow::Result<Option<String>> {
        let text = form.scheduler.as_ref();
        text.map(|text| self.filled(text, cell, &BTreeMap::new(), &[])).transpose()
    }

    /// Which limits of a throttled device hold in a cell.
    pub fn profile(&self, cell: &Cell) -> Profile {
        match self.random.as_ref().is_some_and(|random| is_in(random, cell)) {
            true => Profile::Random,
            false => Profile::Sequential,
        }
    }

    /// Whether all contenders have disks of their own.
    pub fn has_own_disks(&self) -> bool {
        self.contenders.is_empty() && self.contender.iter().all(|contender| contender.disk.is_some())
    }

    /// The same with what `--quick` has instead.
    pub fn quick(mut self) -> Experiment {
        let quick = self.quick.clone();
        self.quick.applied = true;
        self.sizes.extend(quick.sizes);
        self.matrix.extend(quick.matrix);
        self.repetitions = quick.repetitions.unwrap_or(Repetitions { least: 2, most: 2 });
        self.cost.seconds = quick.seconds.unwrap_or(self.cost.seconds);
        for (name, only) in quick.only {
            if let Some(contender) = self.contender.iter_mut().find(|contender| contender.name == name) {
                contender.only = only;
            }
        }
        if !quick.contenders.is_empty() {
            self.keep(&quick.contenders);
        }
        self
    }

    /// Keeps these contenders alone, and the baseline.
    pub fn keep(&mut self, names: &[String]) {
        let baseline = self.baseline_name();
        let kept = |name: &String| names.contains(name) || *name == baseline;
        self.contenders.retain(kept);
        self.contender.retain(|contender| kept(&contender.name));
        self.target.retain(|target| {
            [&target.of, &target.to, &target.device].into_iter().all(|name| name.is_empty() || kept(name))
        });
    }

    /// Leaves the far contenders out, unless there are no others.
    pub fn leave_far(&mut self) {
        let Ok(all) = self.all_contenders() else { return };
        let mut kept = all.iter().filter(|contender| contender.under != Under::Far);
        let names: Vec<String> = kept.by_ref().map(|contender| contender.name.clone()).collect();
        if names.contains(&self.baseline_name()) {
            self.keep(&names);
        }
    }

    /// The servers that its far contenders want, at most.
    pub fn servers(&self) -> usize {
        let of = |contender: &Contender| contender.servers.unwrap_or(1);
        self.contender.iter().filter(|contender| contender.under == Under::Far).map(of).max().unwrap_or(1)
    }

    /// All contenders, in order.
    ///
    /// # Errors
    /// A name that stands for none.
    pub fn all_contenders(&self) -> anyhow::Result<Vec<Contender>> {
        let standard = self.contenders.iter().map(|name| {
            let found = STANDARD.iter().find(|(known, _)| known == name);
            let names: Vec<_> = STANDARD.iter().map(|(name, _)| *name).collect();
            let (_, under) = found.ok_or_else(|| {
                anyhow!("contenders: {name} is none of {}; others need a [[contender]]", names.join(", "))
            })?;
            Ok(Contender {
                name: name.clone(),
                under: *under,
                run: None,
                disk: None,
                only: Only::new(),
                options: Vec::new(),
                servers: None,
                own_data: false,
            })
        });
        standard.chain(self.contender.iter().cloned().map(Ok)).collect()
    }

    /// Whom the others are held against.
    pub fn baseline_name(&self) -> String {
        let first = || self.contenders.first().or(self.contender.first().map(|contender| &contender.name));
        self.baseline.as_ref().or_else(first).cloned().unwrap_or_default()
    }

    /// All combinations of the matrix's values.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::new()];
        for (key, values) in &self.matrix {
            cells = cells
                .into_iter()
                .flat_map(|cell| {
                    values.iter().map(move |value| {
                        let mut cell = cell.clone();
                        cell.insert(key.clone(), value.to_string());
                        cell
                    })
                })
                .collect();
        }
        cells.retain(|cell| !self.skip.iter().any(|skip| is_in(skip, cell)));
        cells
    }

    /// The sizes of a cell, bytes.
    ///
    /// # Errors
    /// A term that cannot be calculated.
    pub fn sizes_of(&self, cell: &Cell) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut sizes = BTreeMap::new();
        // Each may stand on others, in any order.
        for _ in 0..self.sizes.len() {
            for (name, term) in &self.sizes {
                if let Ok(bytes) = self.term(name, term, cell, &sizes) {
                    sizes.insert(name.clone(), bytes);
                }
            }
        }
        for (name, term) in &self.sizes {
            self.term(&format!("sizes.{name}"), term, cell, &sizes)?;
        }
        Ok(sizes)
    }

    /// The value of a term such as `data * ratio / 2`: sizes, numbers, fractions, names, with
    /// spaces around each sign; from left to right.
    ///
    /// # Errors
    /// When it is none; `what` is what it is of.
    pub fn term(
        &self,
        what: &str,
        term: &str,
        cell: &Cell,
        sizes: &BTreeMap<String, u64>,
    ) -> anyhow::Result<u64> {
        let value = |word: &str| -> Option<f64> {
            if let Some(bytes) = sizes.get(word) {
                return Some(*bytes as f64);
            }
            atom(cell.get(word).map_or(word, String::as_str))
        };
        let mut words = term.split_whitespace();
        let wrong = |word: &str| anyhow!("{what} = \"{term}\": {word} is no size, number, name or sign");
        let first = words.next().unwrap_or("0");
        let mut total = value(first).ok_or_else(|| wrong(first))?;
        while let Some(sign) = words.next() {
            let word = words.next().unwrap_or("");
            let next = value(word).ok_or_else(|| wrong(if word.is_empty() { sign } else { word }))?;
            match sign {
                "*" => total *= next,
                "/" => total /= next,
                "+" => total += next,
                "-" => total -= next,
                _ => bail!(wrong(sign)),
            }
        }
        ensure!(total.is_finite() && total >= 0.0, "{what} = \"{term}\": {total} is no size");
        Ok(total as u64)
    }

    /// A text with its `{names}` filled in.
    ///
    /// # Errors
    /// A name that is none.
    pub fn filled(
        &self,
        text: &str,
        cell: &Cell,
        sizes: &BTreeMap<String, u64>,
        others: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            out += before;
            let (name, after) =
                after.split_once('}').ok_or_else(|| anyhow!("program.run: \"{text}\" lacks a }}"))?;
            let size = sizes.get(name).map(u64::to_string);
            let other =
                || others.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let value = size.or_else(|| cell.get(name).cloned()).or_else(other);
            out += &value
                .ok_or_else(|| anyhow!("program.run: {{{name}}} is no size and no key of the matrix"))?;
            rest = after;
        }
        Ok(out + rest)
    }
}

/// A number, a fraction or a size.
pub fn atom(word: &str) -> Option<f64> {
    let fraction = || {
        let (above, below) = word.split_once('/')?;
        Some(above.parse::<f64>().ok()? / below.parse::<f64>().ok()?)
    };
    let size = || word.parse::<Size>().ok().map(|Size(bytes)| bytes as f64);
    word.parse().ok().or_else(fraction).or_else(size)
}

/// Whether a cell is one of those that `only` names.
pub fn is_in(only: &Only, cell: &Cell) -> bool {
    only.iter().all(|(key, values)| {
        cell.get(key).is_some_and(|found| values.iter().any(|value| value.to_string() == *found))
    })
}

/// A cell in words: `block 4K, ratio 1/8`; empty where there is one alone.
pub fn words(cell: &Cell) -> String {
    cell.iter().map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{Cell, Experiment, SHIPPED, atom, is_in, words};

    const TEXT: &str = r#"
title = "A test"
unit = "s"
contenders = ["memory", "terapage"]
[program]
run = ["{lab}", "x", "--bytes", "{data}", "at-{block}"]
[sizes]
memory = "data * ratio"
data = "64M"
[matrix]
ratio = ["1/2", 0.25]
block = ["4K"]
[quick.sizes]
data = "32M"
"#;

    #[test]
    fn what_is_shipped_is_right_and_can_be_quick() {
        for (name, _) in SHIPPED {
            let (_, experiment) = Experiment::find(name).unwrap_or_else(|error| panic!("{error:#}"));
            let quick = experiment.quick();
            quick.check().unwrap_or_else(|error| panic!("{name}: {error:#}"));
        }
    }

    #[test]
    fn sizes_stand_on_each_other_and_on_the_cell() {
        let experiment = Experiment::parse(TEXT, "a.toml").expect("it is right");
        let cells = experiment.cells();
        assert_eq!(
            cells.iter().map(words).collect::<Vec<_>>(),
            ["block 4K, ratio 1/2", "block 4K, ratio 0.25"]
        );
        let sizes = experiment.sizes_of(&cells[0]).expect("sizes");
        assert_eq!((sizes["memory"], sizes["data"]), (32 << 20, 64 << 20));
        assert_eq!(experiment.sizes_of(&cells[1]).expect("sizes")["memory"], 16 << 20);
        let filled = experiment.filled("at-{block}/{data}{file}", &cells[0], &sizes, &[("file", "f")]);
        assert_eq!(filled.expect("names"), "at-4K/67108864f");
        let quick = experiment.quick();
        assert_eq!(quick.sizes_of(&cells[0]).expect("sizes")["data"], 32 << 20);
        assert_eq!(quick.repetitions.most, 2);
    }

    #[test]
    fn what_is_wrong_is_one_line_with_its_place() {
        for (from, to, place) in [
            ("unit = \"s\"", "unit = \"s\"\ntypo = 1", "a.toml: line 4, column 1: unknown field `typo`"),
            ("unit = \"s\"", "unit = \"parsec\"", "line 3, column 8: unknown variant"),
            ("run = [", "rum = [", "line 6, column 1: unknown field `rum`"),
            ("title = \"A test\"", "title = ", "line 2, column "),
            ("[\"memory\", \"terapage\"]", "[\"memory\", \"tape\"]", "tape is none of memory, swap"),
            ("[\"memory\", \"terapage\"]", "[\"memory\", \"memory\"]", "memory is there twice"),
            ("{data}", "{date}", "{date} is no size"),
            ("data * ratio", "data * rate", "rate is no size"),
            ("data * ratio", "data ratio", "no size"),
            ("block = [", "file = [", "file: this name has a meaning"),
            ("block = [\"4K\"]", "block = []", "matrix.block has no values"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Experiment::parse(&TEXT.replace(from, to), "a.toml").expect_err(to);
            let text = format!("{error:#}");
            assert!(text.contains(place) && !text.contains('\n'), "{to}: {text}");
            assert!(text.starts_with("a.toml: "), "{text}");
        }
        let error = Experiment::find("nonsense").expect_err("there is none").to_string();
        assert!(error.contains("scan, random, sort"), "{error}");
    }

    #[test]
    fn numbers_fractions_and_sizes_are_values() {
        assert_eq!(atom("1.5"), Some(1.5));
        assert_eq!(atom("1/8"), Some(0.125));
        assert_eq!(atom("4K"), Some(4096.0));
        assert_eq!(atom("x"), None);
    }

    #[test]
    fn cells_are_chosen_by_their_values() {
        let experiment = Experiment::parse(TEXT, "a.toml").expect("it is right");
        let only = [("ratio".to_owned(), vec![super::Value::Number(0.25)])].into();
        let chosen: Vec<bool> = experiment.cells().iter().map(|cell| is_in(&only, cell)).collect();
        assert_eq!(chosen, [false, true]);
        assert!(!is_in(&only, &Cell::new()));
    }
}
