//! Showing a study, and how far it has come.

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use terapage_report::{Study, Table};

/// The widest line of text, in columns.
const COLUMNS: usize = 100;

/// Where the study goes.
#[derive(Args, Clone)]
pub struct Output {
    /// Print the study as JSON.
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Shows the study.
    pub fn show(&self, study: &Study) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string(study)? + "\n" } else { text(study) };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// A bar for `runs` runs, on a terminal.
pub fn progress(runs: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn text(study: &Study) -> String {
    let title = format!("{}\n\n", study.title);
    let summary = study.summary.iter().map(|paragraph| wrapped(paragraph) + "\n");
    let tables = study.tables.iter().map(table);
    std::iter::once(title).chain(summary).chain(tables).collect()
}

/// A paragraph in lines.
fn wrapped(paragraph: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

/// A table, columns aligned: the first to the left, the others to the right.
fn table(table: &Table) -> String {
    let rows = || std::iter::once(&table.columns).chain(&table.rows);
    let width = |column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        cells.collect::<String>().trim_end().to_string() + "\n"
    };
    let note = if table.note.is_empty() { String::new() } else { wrapped(&table.note) };
    format!("{}\n{}{note}\n", table.title, rows().map(line).collect::<String>())
}
