//! `terapage paper list`: every figure, table and main claim of the papers, with its command, the
//! published value, the value here, and why the values differ.

mod once;
mod rows;

use crate::measured::EXPERIMENTS;
use once::Once;
use rows::{PAPERS, Row, THEORY, TOOLS};
use std::fmt::Write;
use terapage_lab::{Kept, Texts, number, results_place};
use terapage_report::{Language, Verdict};
use terapage_rig::tools::find;

/// The columns to which lines are wrapped.
const COLUMNS: usize = 100;

/// The list, with what this machine has measured so far.
///
/// # Errors
/// A row names an experiment that does not exist.
pub fn list() -> anyhow::Result<String> {
    let kept = results_place(None).map(|place| Kept::read(&place)).unwrap_or_default();
    text(&kept)
}

/// What was compared with other tools, by rows of tool, subject, ratio and reason: of the last run
/// on this machine, or measured once.
///
/// # Errors
/// A row names an experiment that does not exist.
pub fn tools() -> anyhow::Result<Vec<Vec<String>>> {
    let kept = results_place(None).map(|place| Kept::read(&place)).unwrap_or_default();
    let rows = TOOLS.iter().filter(|row| row.figure != THEORY);
    let row = |row: &Row| {
        let (_, here) = values(row, &kept)?;
        Ok(vec![row.figure.into(), row.what.into(), here, row.difference.into()])
    };
    rows.map(row).collect()
}

fn text(kept: &Kept) -> anyhow::Result<String> {
    let mut out = String::new();
    for (paper, rows) in PAPERS {
        let _ = writeln!(out, "{paper}\n");
        for row in rows {
            block(&mut out, row, kept)?;
        }
    }
    out += "Values under \"here\" of lab and paper commands that measure are those of the last run on this\n\
            machine (~/.local/share/terapage-lab); those of simulations are the same everywhere.\n";
    Ok(out)
}

/// One row, as lines.
fn block(out: &mut String, row: &Row, kept: &Kept) -> anyhow::Result<()> {
    let _ = writeln!(out, "  {}: {}", row.figure, row.what);
    let (published, here) = values(row, kept)?;
    for (name, value) in [
        ("command", row.command.to_owned()),
        ("runs here", can_run(row)),
        ("published", published),
        ("here", here),
        ("difference", row.difference.to_owned()),
    ] {
        wrapped(out, name, &value);
    }
    out.push('\n');
    Ok(())
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

/// Whether the command can run on this machine, and what it lacks.
fn can_run(row: &Row) -> String {
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
    match lacks.is_empty() {
        true => "yes".into(),
        false => format!("no: {}", lacks.join(", ")),
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The published values of a row, and the values here.
fn values(row: &Row, kept: &Kept) -> anyhow::Result<(String, String)> {
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
    if measures && !measured {
        here.retain(|value| value != "-");
        here.push("not measured on this machine yet".into());
        here.extend(Once::read()?.of(row.what));
    }
    Ok((published.join("; "), here.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, PAPERS, text};
    use terapage_lab::Kept;

    #[test]
    fn every_row_is_whole() {
        let rows = || PAPERS.iter().flat_map(|(_, rows)| *rows);
        for row in rows() {
            let name = format!("{}: {}", row.figure, row.what);
            assert!(!row.difference.is_empty(), "{name}: a sentence on the difference");
            assert!(row.command.starts_with("terapage "), "{name}: a command");
            let has_value = !row.published.is_empty() || !row.figures.is_empty() || !row.findings.is_empty();
            assert!(has_value, "{name}: a published value");
            let measures = [row.experiment, row.checks].iter().any(|name| !name.is_empty());
            let measures = measures || !row.findings.is_empty();
            assert!(measures || !row.here.is_empty(), "{name}: a value here");
        }
        assert!(rows().count() >= 43);
        let said = text(&Kept::default()).expect("every experiment and finding is there");
        assert!(said.lines().all(|line| line.chars().count() <= COLUMNS), "{said}");
        // Where this machine has measured nothing, the list has what was measured once.
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("lab run raw --quick, on two virtual processors, busy with other work: 203; 162"),
            "{said}"
        );
        // Each row has all five lines.
        for part in ["command", "runs here", "published", "here", "difference"] {
            let count = said.lines().filter(|line| line.trim_start().starts_with(&format!("{part:<12}")));
            assert_eq!(count.count(), rows().count(), "{part}");
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
        let said = text(&Kept::default()).expect("every experiment and finding is there");
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
