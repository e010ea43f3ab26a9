//! The raw results: lines of JSON, appended and on disk before the next run begins. Everything
//! computed or drawn comes from these lines, on this machine or another.

use crate::contender::run::Run;
use crate::experiment::{Cell, Experiment};
use crate::ground::system::{Machine, Watched};
use anyhow::{Context, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use twox_hash::xxhash3_128::Hasher;

/// The form of the lines.
const VERSION: u32 = 1;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// The machine of the following runs, and the quantity that they measure.
    Head(Box<Head>),
    /// A run.
    Run(Box<Record>),
}

/// A group of runs that belong together: of one experiment on one machine with its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The form of the lines.
    pub version: u32,
    /// Tells groups apart.
    pub group: String,
    /// The experiment's name.
    pub name: String,
    /// The experiment as it ran.
    pub experiment: Experiment,
    /// The command that started it.
    pub command: String,
    /// Terapage's version.
    pub terapage: String,
    /// When, seconds since 1970.
    pub started_s: u64,
    /// The machine and its settings.
    pub machine: Machine,
    /// Settings of Terapage in the environment.
    #[serde(default)]
    pub variables: Vec<(String, String)>,
    /// Contenders that could not take part, and why.
    pub left_out: Vec<(String, String)>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its group.
    pub group: String,
    /// Its cell.
    pub cell: Cell,
    /// The number of the attempt at this run, from 1: disturbed runs are repeated.
    pub attempt: u32,
    /// The start, seconds since 1970.
    pub started_s: u64,
    /// A hash of its output, if all outputs must be the same.
    pub output: Option<String>,
    /// Other events meanwhile.
    pub watched: Watched,
    /// What it did.
    #[serde(flatten)]
    pub run: Run,
}

/// A hash that identifies a group by everything on which it depends.
fn group(name: &str, experiment: &Experiment, machine: &Machine, others: &str) -> String {
    let mut hasher = Hasher::new();
    for part in [
        serde_json::to_string(experiment).unwrap_or_default(),
        serde_json::to_string(&machine.identity()).unwrap_or_default(),
        others.to_owned(),
        name.to_owned(),
    ] {
        hasher.write(part.as_bytes());
        hasher.write(&[0]);
    }
    format!("{:032x}", hasher.finish_128())
}

/// A group and its runs.
#[derive(Clone, Debug)]
pub struct Group {
    /// The head: what was measured, and where.
    pub head: Head,
    /// The runs, in order.
    pub runs: Vec<Record>,
}

/// A file of lines that grows.
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens or makes a journal. A torn line is cut off.
    ///
    /// # Errors
    /// The file cannot be written, or does not belong to the lab.
    pub fn open(path: &Path) -> anyhow::Result<(Journal, Vec<Group>)> {
        let opened = fs::OpenOptions::new().create(true).read(true).append(true).open(path);
        let mut file = opened.with_context(|| path.display().to_string())?;
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| path.display().to_string())?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let groups = groups(&text[..whole], path)?;
        // A last line without an end that is not the lab's may be somebody's text.
        ensure!(
            whole > 0 || text.is_empty() || text.starts_with("{\"line\":"),
            "{}: not the lab's",
            path.display()
        );
        if whole < text.len() {
            file.set_len(whole as u64)?;
            file.seek(SeekFrom::End(0))?;
        }
        Ok((Journal { path: path.to_owned(), file }, groups))
    }

    /// Appends a line, which is on disk then.
    ///
    /// # Errors
    /// The line cannot be written; nothing of it remains.
    pub fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        let before = self.file.metadata()?.len();
        let text = serde_json::to_string(line)? + "\n";
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| {
            // A full disk may accept half a line.
            let _ = self.file.set_len(before);
            self.path.display().to_string()
        })
    }
}

/// Reads files of lines; a run that is there several times counts once.
///
/// # Errors
/// A file cannot be read, or has other contents.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Group>> {
    let mut all: Vec<Group> = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        for group in groups(&text, path)? {
            match all.iter_mut().find(|known| known.head.group == group.head.group) {
                Some(known) => known.runs.extend(group.runs),
                None => all.push(group),
            }
        }
    }
    ensure!(!all.is_empty(), "no results in {}", names(paths));
    // Files may have the same runs.
    for group in &mut all {
        let mut known = HashSet::new();
        let lines: Result<Vec<_>, _> = group.runs.iter().map(serde_json::to_string).collect();
        let mut lines = lines?.into_iter();
        group.runs.retain(|_| lines.next().is_some_and(|line| known.insert(line)));
    }
    Ok(all)
}

fn names(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn groups(text: &str, path: &Path) -> anyhow::Result<Vec<Group>> {
    let mut all: Vec<Group> = Vec::new();
    let count = text.lines().count();
    for (i, line) in text.lines().enumerate() {
        let place = || format!("{}: line {}", path.display(), i + 1);
        let line = match serde_json::from_str(line) {
            Ok(line) => line,
            // The line was being written when the lab ended.
            Err(_) if i + 1 == count && !text.ends_with('\n') && count > 1 => break,
            Err(error) => bail!("{}: not a line that the lab wrote: {error}", place()),
        };
        match line {
            Line::Head(head) => {
                ensure!(head.version == VERSION, "{}: of another version of the lab", place());
                if !all.iter().any(|known| known.head.group == head.group) {
                    all.push(Group { head: *head, runs: Vec::new() });
                }
            }
            Line::Run(run) => {
                let group = all.iter_mut().find(|known| known.head.group == run.group);
                let Some(group) = group else { bail!("{}: a run without a head", place()) };
                group.runs.push(*run);
            }
        }
    }
    Ok(all)
}

impl Head {
    /// Of runs that begin now.
    pub fn new(
        name: &str,
        experiment: &Experiment,
        machine: Machine,
        left_out: Vec<(String, String)>,
    ) -> Head {
        let terapage = env!("CARGO_PKG_VERSION").to_owned();
        let variables = crate::contender::terapage::variables();
        Head {
            version: VERSION,
            group: group(name, experiment, &machine, &format!("{terapage}{variables:?}")),
            name: name.into(),
            experiment: experiment.clone(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            terapage,
            started_s: crate::ground::system::now_s(),
            machine,
            variables,
            left_out,
        }
    }
}

/// Where results lie: `--results`, or the user's own place.
///
/// # Errors
/// There is none.
pub fn results_place(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || {
        let data = of("XDG_DATA_HOME").or_else(|| Some(of("HOME")?.join(".local/share")));
        data.map(|data| data.join("terapage-lab"))
    };
    let place = named.map(Path::to_owned).or_else(usual);
    place.ok_or_else(|| anyhow!("no directory for results (name one with --results)"))
}

/// [`results_place`], made if it does not exist.
///
/// # Errors
/// The directory does not exist, and cannot be made.
pub fn results_directory(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let place = results_place(named)?;
    fs::create_dir_all(&place).with_context(|| format!("--results {}", place.display()))?;
    Ok(place)
}

#[cfg(test)]
pub mod tests {
    use super::{Group, Head, Journal, Line, Record, read};
    use crate::contender::run::Run;
    use crate::experiment::{Cell, Experiment};
    use crate::ground::runner::End;
    use crate::ground::system::{Machine, Watched};
    use crate::workload::Pass;
    use std::fs;
    use std::path::Path;

    /// A run of `seconds` that ended well.
    pub fn record(head: &Head, cell: &Cell, round: u32, contender: &str, seconds: f64) -> Record {
        let pass = Pass { pass: "time".into(), seconds, bytes: 1 << 20, threads: 1, ..Pass::default() };
        Record {
            group: head.group.clone(),
            cell: cell.clone(),
            attempt: 1,
            started_s: 1,
            output: None,
            watched: Watched::default(),
            run: Run {
                round,
                contender: contender.into(),
                end: End::Done,
                passes: vec![pass],
                ..Run::default()
            },
        }
    }

    /// A group without runs.
    pub fn group(text: &str) -> Group {
        let experiment = Experiment::parse(text, "a.toml").expect("it is right");
        let machine = Machine::here(Path::new("/"));
        Group { head: Head::new("a", &experiment, machine, Vec::new()), runs: Vec::new() }
    }

    const TEXT: &str =
        "title = \"A\"\nunit = \"s\"\ncontenders = [\"memory\"]\n[program]\nrun = [\"true\"]\n";

    #[test]
    fn lines_come_back_and_a_torn_one_does_not_matter() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a.jsonl");
        let group = group(TEXT);
        let (mut journal, known) = Journal::open(&path).expect("a new one");
        assert!(known.is_empty());
        let run = record(&group.head, &Cell::new(), 1, "memory", 2.0);
        journal.append(&Line::Head(Box::new(group.head.clone()))).expect("a head");
        journal.append(&Line::Run(Box::new(run.clone()))).expect("a run");
        let whole = fs::read_to_string(&path).expect("text");
        // The lab was killed in the middle of a line.
        fs::write(&path, format!("{whole}{}", &whole[..40])).expect("text");
        assert_eq!(read(std::slice::from_ref(&path)).expect("lines")[0].runs.len(), 1);
        let (mut journal, known) = Journal::open(&path).expect("the same");
        assert_eq!((known.len(), known[0].runs.len()), (1, 1));
        assert_eq!(known[0].runs[0].run.passes[0].seconds, 2.0);
        let other = record(&group.head, &Cell::new(), 2, "memory", 2.0);
        journal.append(&Line::Run(Box::new(other))).expect("another run");
        assert_eq!(read(&[path]).expect("lines")[0].runs.len(), 2);
    }

    #[test]
    fn what_is_not_the_labs_is_left_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("a.jsonl");
        for text in ["my letters\n", "my letters", "{\"line\":\"run\"}\n"] {
            fs::write(&path, text).expect("text");
            let error = Journal::open(&path).err().expect(text);
            assert!(format!("{error:#}").contains("a.jsonl"), "{error:#}");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        assert!(read(&[place.path().join("absent")]).is_err());
    }

    #[test]
    fn another_machine_or_experiment_is_another_group() {
        let one = group(TEXT);
        assert_eq!(one.head.group, group(TEXT).head.group);
        assert_ne!(one.head.group, group(&TEXT.replace("true", "false")).head.group);
        let mut machine = one.head.machine.clone();
        machine.kernel += "-other";
        let other = Head::new("a", &one.head.experiment, machine, Vec::new());
        assert_ne!(one.head.group, other.group);
    }
}
