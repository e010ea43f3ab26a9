//! An experiment as a file: the program, the contenders, the cells, and the targets for its
//! figures. TOML; docs/lab.md has the keys.

pub mod class;
pub mod disk;
mod form;
mod matrix;
pub mod unit;

pub use form::{
    Cell, Contender, Cost, Experiment, Kind, Only, Passes, PlotForm, Program, Published, Repetitions,
    TargetForm, Under, Value, When,
};
pub use matrix::{atom, is_in, words};

use anyhow::{Context, anyhow, ensure};
use class::{Class, Profile};
use disk::DiskForm;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use terapage_config::nearest;

// Experiments that come with the lab, one for each file in `experiments`: SHIPPED, names and texts
// (`build.rs`).
include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Names with a fixed meaning: no size or key of the matrix may have them.
const RESERVED: [&str; 6] = ["lab", "dir", "file", "text", "contender", "disk"];

/// Contenders that need no separate table.
const STANDARD: [(&str, Under); 9] = [
    ("memory", Under::Memory),
    ("swap", Under::Swap),
    ("zram", Under::Zram),
    ("zswap", Under::Zswap),
    ("mglru", Under::Mglru),
    ("mmap", Under::Mmap),
    ("terapage", Under::Terapage),
    ("files", Under::Files),
    ("far", Under::Far),
];

impl Experiment {
    /// The shipped experiment of this name, or that of a file, with its name.
    ///
    /// # Errors
    /// There is none, or it is wrong: one line, with line and column if they are known.
    pub fn find(name: &str) -> anyhow::Result<(String, Experiment)> {
        if let Some((name, text)) = SHIPPED.iter().find(|(known, _)| *known == name) {
            return Ok(((*name).into(), Experiment::parse(text, name)?));
        }
        let names: Vec<_> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let near = nearest(name, names.iter().copied());
        let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
        ensure!(
            name.ends_with(".toml"),
            "no experiment is called {name} ({near}there are {}, and files that end in .toml)",
            names.join(", ")
        );
        let text = fs::read_to_string(name).with_context(|| name.to_owned())?;
        let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((stem, Experiment::parse(&text, name)?))
    }

    /// Reads an experiment; errors call it `file`.
    ///
    /// # Errors
    /// One line, with line and column if the text itself is wrong.
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

    /// Checks the conditions that involve several keys.
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
            ensure!(!RESERVED.contains(&key.as_str()), "{key}: this name has another meaning");
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
                ensure!(name.is_empty() || known(name), "target: there is no contender {name}");
            }
        }
        self.check_disks()?;
        for contender in &self.contender {
            let paged = matches!(contender.under, Under::Terapage | Under::Files | Under::Far);
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

    /// Checks the contenders' own disks.
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
    /// A name is unknown.
    pub fn scheduler(&self, form: &DiskForm, cell: &Cell) -> anyhow::Result<Option<String>> {
        let text = form.scheduler.as_ref();
        text.map(|text| self.filled(text, cell, &BTreeMap::new(), &[])).transpose()
    }

    /// The limits of a throttled device in a cell.
    pub fn profile(&self, cell: &Cell) -> Profile {
        match self.random.as_ref().is_some_and(|random| is_in(random, cell)) {
            true => Profile::Random,
            false => Profile::Sequential,
        }
    }

    /// Whether all contenders have separate disks.
    pub fn has_own_disks(&self) -> bool {
        self.contenders.is_empty() && self.contender.iter().all(|contender| contender.disk.is_some())
    }

    /// The experiment with the replacements for `--quick`.
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

    /// The largest number of servers that its far contenders want.
    pub fn servers(&self) -> usize {
        let of = |contender: &Contender| contender.servers.unwrap_or(1);
        self.contender.iter().filter(|contender| contender.under == Under::Far).map(of).max().unwrap_or(1)
    }

    /// All contenders, in order.
    ///
    /// # Errors
    /// A name does not stand for a contender.
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

    /// The contender with which the others are compared.
    pub fn baseline_name(&self) -> String {
        let first = || self.contenders.first().or(self.contender.first().map(|contender| &contender.name));
        self.baseline.as_ref().or_else(first).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
pub mod tests {
    use super::{Experiment, SHIPPED, words};
    use std::path::Path;

    /// The experiments that come with the lab, and those of `terapage paper run`, whose texts and
    /// findings the lab's reports have.
    pub fn every() -> Vec<(String, Experiment)> {
        let read = |(name, text): (&str, &str)| {
            let parsed = Experiment::parse(text, name);
            (name.to_owned(), parsed.unwrap_or_else(|error| panic!("{error:#}")))
        };
        let mut all: Vec<_> = SHIPPED.into_iter().map(read).collect();
        let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/paper/experiments");
        for name in ["bonnie", "stack-measure"] {
            let text = std::fs::read_to_string(papers.join(format!("{name}.toml"))).expect(name);
            all.push(read((name, &text)));
        }
        all
    }

    pub const TEXT: &str = r#"
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
        for (name, experiment) in every() {
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
            ("block = [", "file = [", "file: this name has another meaning"),
            ("block = [\"4K\"]", "block = []", "matrix.block has no values"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Experiment::parse(&TEXT.replace(from, to), "a.toml").expect_err(to);
            let text = format!("{error:#}");
            assert!(text.contains(place) && !text.contains('\n'), "{to}: {text}");
            assert!(text.starts_with("a.toml: "), "{text}");
        }
        let error = Experiment::find("nonsense").expect_err("there is none").to_string();
        assert!(error.contains("scan, random, sort") && !error.contains("did you mean"), "{error}");
        let error = Experiment::find("poison").expect_err("there is none").to_string();
        assert!(error.contains("(did you mean poisson? there are raw, arrays, "), "{error}");
    }
}
