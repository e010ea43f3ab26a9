//! A study as plain text: its summary and its tables.

use std::fmt::Write;
use terapage_report::{Study, Table};

/// The most columns of a line.
const COLUMNS: usize = 100;

/// The title, the summary, the tables. Plots are for pages.
pub fn text(study: &Study) -> String {
    let mut out = format!("{}\n", study.title);
    for paragraph in &study.summary {
        wrapped(paragraph, &mut out);
    }
    for table in &study.tables {
        out.push('\n');
        add_table(table, &mut out);
    }
    out
}

fn add_table(table: &Table, out: &mut String) {
    let _ = writeln!(out, "{}", table.title);
    let rows = || std::iter::once(&table.columns).chain(&table.rows);
    let width =
        |column: usize| rows().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..table.columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows() {
        let mut line = String::from(" ");
        for (number, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Names to the left, numbers to the right.
            let _ =
                if number == 0 { write!(line, " {cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if !table.note.is_empty() {
        wrapped(&table.note, out);
    }
}

/// A paragraph, two columns in.
fn wrapped(text: &str, out: &mut String) {
    let mut line = String::from(" ");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS && line.len() > 1 {
            let _ = writeln!(out, "{line}");
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_are_short() {
        let table = Table {
            title: "T".into(),
            columns: vec!["kind".into(), "n".into()],
            rows: vec![vec!["a".into(), "100".into()], vec!["bcdef".into(), "7".into()]],
            note: "word ".repeat(40),
        };
        let study = Study { title: "S".into(), tables: vec![table], ..Study::default() };
        let text = text(&study);
        assert!(text.starts_with("S\n\nT\n  kind     n\n  a      100\n  bcdef    7\n  word word"), "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS));
    }
}
