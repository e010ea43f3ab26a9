//! `terapage paper list`: every figure, table and main claim of the papers, with its command, the
//! published value, the value here, and why the values differ.

mod once;
mod rows;

use crate::measured::EXPERIMENTS;
use once::Once;
use rows::{PAPERS, Row, THEORY, TOOLS};
use serde::Serialize;
use std::fmt::Write;
use terapage_lab::{Kept, Texts, number, results_place};
use terapage_report::{Language, Study, Table, Verdict};
use terapage_rig::tools::find;
use terapage_sim::publish::command_line;
use terapage_sim::show::Show;

/// The columns to which lines are wrapped.
const COLUMNS: usize = 100;

/// What is below the list.
const NOTE: &str =
    "Values under \"here\" of lab and paper commands that measure are those of the last run on this
machine (~/.local/share/terapage-lab); those of simulations are the same everywhere.";

/// Options of `paper list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  terapage paper list
  terapage paper list --json - | jq '.results[] | select(.runs_here) | .command'")]
pub struct List {
    #[command(flatten)]
    show: Show,
}

impl List {
    /// Shows the list, with what this machine has measured so far.
    ///
    /// # Errors
    /// A row names an experiment that does not exist, or a file cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(None)?;
        let lines = lines(&kept())?;
        self.show.results(&study(&lines), &lines, || text(&lines))
    }
}

/// What this machine has measured.
fn kept() -> Kept {
    results_place(None).map(|place| Kept::read(&place)).unwrap_or_default()
}

/// A row with its values, as the JSON has it.
#[derive(Serialize)]
struct Line {
    paper: &'static str,
    figure: &'static str,
    what: &'static str,
    command: &'static str,
    runs_here: bool,
    /// What the command lacks on this machine.
    lacks: Vec<String>,
    /// The published values, and the values here.
    published: Vec<String>,
    here: Vec<String>,
    difference: &'static str,
}

impl Line {
    fn of(paper: &'static str, row: &Row, kept: &Kept) -> anyhow::Result<Line> {
        let (published, here) = values(row, kept)?;
        let lacks = lacks(row);
        Ok(Line {
            paper,
            figure: row.figure,
            what: row.what,
            command: row.command,
            runs_here: lacks.is_empty(),
            lacks,
            published,
            here,
            difference: row.difference,
        })
    }

    /// The names and values of its parts.
    fn parts(&self) -> [(&'static str, String); 5] {
        let can_run = match self.runs_here {
            true => "yes".to_owned(),
            false => format!("no: {}", self.lacks.join(", ")),
        };
        [
            ("command", self.command.to_owned()),
            ("runs here", can_run),
            ("published", self.published.join("; ")),
            ("here", self.here.join("; ")),
            ("difference", self.difference.to_owned()),
        ]
    }
}

fn lines(kept: &Kept) -> anyhow::Result<Vec<Line>> {
    let rows = PAPERS.iter().flat_map(|(paper, rows)| rows.iter().map(move |row| (*paper, row)));
    rows.map(|(paper, row)| Line::of(paper, row, kept)).collect()
}

/// What was compared with other tools, by rows of tool, subject, ratio and reason: of the last run
/// on this machine, or measured once.
///
/// # Errors
/// A row names an experiment that does not exist.
pub fn tools() -> anyhow::Result<Vec<Vec<String>>> {
    let kept = kept();
    let rows = TOOLS.iter().filter(|row| row.figure != THEORY);
    let row = |row: &Row| {
        let (_, here) = values(row, &kept)?;
        Ok(vec![row.figure.into(), row.what.into(), here.join("; "), row.difference.into()])
    };
    rows.map(row).collect()
}

/// The list for the terminal.
fn text(lines: &[Line]) -> String {
    let (mut out, mut paper) = (String::new(), "");
    for line in lines {
        if line.paper != paper {
            paper = line.paper;
            let _ = writeln!(out, "{paper}\n");
        }
        let _ = writeln!(out, "  {}: {}", line.figure, line.what);
        line.parts().iter().for_each(|(name, value)| wrapped(&mut out, name, value));
        out.push('\n');
    }
    out + NOTE + "\n"
}

/// The list as a page: a table for each paper.
fn study(lines: &[Line]) -> Study {
    let table = |(paper, _): &(&str, &[Row])| {
        let own = lines.iter().filter(|line| line.paper == *paper);
        let row = |line: &Line| {
            let head = [line.figure, line.what].map(str::to_owned);
            head.into_iter().chain(line.parts().map(|(_, value)| value)).collect()
        };
        let columns = ["figure", "what", "command", "runs here", "published", "here", "difference"];
        Table {
            title: (*paper).into(),
            columns: columns.map(String::from).into(),
            rows: own.map(row).collect(),
            note: String::new(),
        }
    };
    Study {
        title: "Figures of papers, and their commands".into(),
        summary: vec![NOTE.replace('\n', " ")],
        command: command_line(),
        tables: PAPERS.iter().map(table).collect(),
        ..Study::default()
    }
}

/// A value of a row under its name, wrapped to the columns of the terminal.
fn wrapped(out: &mut String, name: &str, value: &str) {
    let (indent, mut line) = (" ".repeat(16), format!("    {name:<12}"));
    for word in value.split_whitespace() {
        if line.len() + 1 + word.len() > COLUMNS && line.trim_end().len() > indent.len() {
            let _ = writeln!(out, "{}", line.trim_end());
            line.clone_from(&indent);
        }
        line += word;
        line.push(' ');
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// What the command lacks on this machine.
fn lacks(row: &Row) -> Vec<String> {
    let programs = row.needs.iter().filter(|name| **name != "root");
    let lacks = programs.filter_map(|names| {
        let mut tried = names.split(" or ").map(find);
        let first = tried.next()?.err()?;
        tried.all(|other| other.is_err()).then_some(first)
    });
    let mut lacks: Vec<String> = lacks.collect();
    if row.needs.contains(&"root") && !is_root() {
        lacks.push("it needs root".into());
    }
    lacks
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The published values of a row, and the values here.
fn values(row: &Row, kept: &Kept) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let (mut published, mut here): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut measured = false;
    if !row.published.is_empty() {
        published.push(row.published.into());
    }
    if !row.here.is_empty() {
        here.push(row.here.into());
    }
    if !row.experiment.is_empty() && !row.figures.is_empty() {
        let text = EXPERIMENTS.iter().find(|(name, _)| *name == row.experiment).map(|(_, text)| *text);
        let printed = kept.printed(row.experiment, text)?;
        let own = printed.iter().filter(|value| row.figures.contains(&value.figure.as_str()));
        for value in own {
            published.push(format!("{} ({})", number(value.published), value.what));
            measured |= value.measured.is_some();
            here.push(value.measured.map_or_else(|| "-".to_owned(), number));
        }
    }
    if !row.checks.is_empty() {
        let checks = kept.checks(row.checks, Texts::of(Language::En));
        measured |= !checks.is_empty();
        here.extend(checks);
    }
    for id in row.findings {
        let finding = kept.finding(id, Texts::of(Language::En));
        let finding = finding.ok_or_else(|| anyhow::anyhow!("no finding is called {id}"))?;
        published.push(finding.claim.trim_end_matches('.').to_owned());
        measured |= matches!(finding.verdict, Verdict::Holds | Verdict::Differs | Verdict::NotDecided);
        here.push(match finding.verdict {
            Verdict::Holds => format!("holds ({})", finding.here),
            Verdict::Differs => format!("differs ({})", finding.here),
            Verdict::NotDecided | Verdict::NoLonger => finding.here,
            Verdict::NotMeasured => "-".into(),
        });
    }
    let measures = !row.experiment.is_empty() || !row.checks.is_empty();
    if !measures || !measured {
        here.retain(|value| value != "-");
    }
    if measures && !measured {
        here.push("not measured on this machine yet".into());
    }
    if measures && (!measured || here.iter().any(|value| value == "-")) {
        here.extend(Once::read()?.of(row.what));
    }
    Ok((published, here))
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Line, PAPERS, lines, study, text};
    use terapage_lab::Kept;

    /// The list of a machine that has measured nothing.
    fn unmeasured() -> Vec<Line> {
        lines(&Kept::default()).expect("every experiment and finding is there")
    }

    #[test]
    fn every_row_is_whole() {
        let lines = unmeasured();
        assert!(lines.len() >= 43);
        for line in &lines {
            let name = format!("{}: {}", line.figure, line.what);
            assert!(!line.difference.is_empty(), "{name}: a sentence on the difference");
            assert!(line.command.starts_with("terapage "), "{name}: a command");
            assert!(!line.published.is_empty(), "{name}: a published value");
            // Where this machine has measured nothing, the list has what was measured once.
            let here: Vec<_> = line.here.iter().filter(|value| !value.starts_with("not measured")).collect();
            assert!(!here.is_empty(), "{name}: a value here");
            assert!(here.iter().all(|value| !value.is_empty() && *value != "-"), "{name}: {here:?}");
            assert_eq!(line.runs_here, line.lacks.is_empty(), "{name}");
        }
        let said = text(&lines);
        assert!(said.lines().all(|line| line.chars().count() <= COLUMNS), "{said}");
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("lab run raw --quick, on two virtual processors, quiet: 375; 163"), "{said}");
        // Each row has all five lines.
        for part in ["command", "runs here", "published", "here", "difference"] {
            let count = said.lines().filter(|line| line.trim_start().starts_with(&format!("{part:<12}")));
            assert_eq!(count.count(), lines.len(), "{part}");
        }
    }

    #[test]
    fn the_page_and_the_json_have_every_row() {
        let lines = unmeasured();
        let study = study(&lines);
        assert_eq!(study.tables.iter().map(|table| table.rows.len()).sum::<usize>(), lines.len());
        assert!(
            study.tables.iter().all(|table| table.rows.iter().all(|row| row.len() == table.columns.len()))
        );
        let json = serde_json::to_value(&lines).expect("it is text");
        let rows = json.as_array().expect("a list");
        assert_eq!(rows.len(), lines.len());
        for key in ["paper", "figure", "what", "command", "difference"] {
            assert!(rows.iter().all(|row| row[key].as_str().is_some_and(|text| !text.is_empty())), "{key}");
        }
        for key in ["published", "here"] {
            assert!(rows.iter().all(|row| row[key].as_array().is_some_and(|all| !all.is_empty())), "{key}");
        }
    }

    /// The article's prices: 32 GB of SSD for 500 USD, disks of 750 GB for 130 USD.
    #[test]
    fn the_capacities_for_the_same_money_are_those_of_the_prices() {
        let times = |disks: f64, parity: f64| (disks - parity) * 750.0 / (disks * 130.0) / (32.0 / 500.0);
        let computed = format!(
            "one disk {:.0} times, RAID-5 of four {:.0}, RAID-6 of six {:.0}",
            times(1.0, 0.0),
            times(4.0, 1.0),
            times(6.0, 2.0)
        );
        let said = text(&unmeasured());
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&computed), "{computed}");
    }

    /// Each published value of an experiment is in some row.
    #[test]
    fn no_published_value_is_left_out() {
        let kept = Kept::default();
        for name in [
            "raw",
            "devices",
            "arrays",
            "stream",
            "stencil",
            "temporal",
            "transfer",
            "scan",
            "latency",
            "stride",
            "sort",
            "sort-blocks",
            "raid",
        ] {
            let rows: Vec<_> =
                PAPERS.iter().flat_map(|(_, rows)| *rows).filter(|row| row.experiment == name).collect();
            for value in kept.printed(name, None).expect("it is shipped") {
                let shown = rows.iter().any(|row| row.figures.contains(&value.figure.as_str()));
                assert!(shown, "{name}: {}", value.figure);
            }
        }
    }
}
