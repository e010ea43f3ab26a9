//! A study in the terminal.

use crate::study::{Study, Table};
use textwrap::wrap;

/// How a study is shown in the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// No line is wider than this many columns of the terminal; at least 40.
    pub columns: usize,
    /// Only ASCII characters, for terminals and files that know no others.
    pub ascii: bool,
    /// Small charts of the plots.
    pub charts: bool,
    /// Parameters with their origins, the machine and the command, at the end.
    pub parameters: bool,
}

impl Default for TextOptions {
    fn default() -> TextOptions {
        TextOptions { columns: 80, ascii: false, charts: true, parameters: true }
    }
}

/// The study as text that is no wider than `columns`.
pub fn render_text(study: &Study, columns: usize) -> String {
    render_text_with(study, &TextOptions { columns, ..TextOptions::default() })
}

/// The study as text, as the options say.
pub fn render_text_with(study: &Study, options: &TextOptions) -> String {
    let mut lines = vec![study.title.clone()];
    for paragraph in &study.summary {
        lines.extend(wrap(paragraph, options.columns).into_iter().map(|line| line.into_owned()));
    }
    for table in &study.tables {
        lines.extend(rows(table));
    }
    lines.join("\n") + "\n"
}

fn rows(table: &Table) -> Vec<String> {
    table.rows.iter().map(|row| row.join("  ")).collect()
}
