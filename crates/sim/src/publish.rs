//! Where results go: the terminal, a page, a JSON file; and progress on the way.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use terapage_report::{Study, render_html};

/// Columns of the terminal: what `COLUMNS` says, or the terminal, from 40 to 100; 100 where there is none.
pub fn columns() -> usize {
    const MOST: usize = 100;
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || usize::from(console::Term::stdout().size().1);
    let found = named.unwrap_or_else(|| if std::io::stdout().is_terminal() { terminal() } else { MOST });
    found.clamp(40, MOST)
}

/// Writes the page.
pub fn html(path: &Path, study: &Study) -> anyhow::Result<()> {
    fs::write(path, render_html(study)).with_context(|| format!("--html {}", path.display()))
}

/// A study with the data that it shows: `terapage sim report` reads the one, scripts read the other.
#[derive(Serialize)]
struct Document<'a, T> {
    #[serde(flatten)]
    study: &'a Study,
    results: &'a T,
}

/// Writes the data, as JSON of a study with `results` beside; `-` is standard output. Whether it was that.
pub fn json(path: &Path, study: &Study, results: &impl Serialize) -> anyhow::Result<bool> {
    document(path, &Document { study, results })
}

/// Writes a study as JSON; `-` is standard output. Whether it was that.
pub fn json_study(path: &Path, study: &Study) -> anyhow::Result<bool> {
    document(path, study)
}

fn document(path: &Path, document: &impl Serialize) -> anyhow::Result<bool> {
    let text = serde_json::to_string_pretty(document)? + "\n";
    if path == Path::new("-") {
        print(&text)?;
        return Ok(true);
    }
    fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
    Ok(false)
}

/// Writes to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Progress on standard error, if that is a terminal.
pub fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = "{spinner} {msg} {wide_bar} {pos}/{len} {elapsed}";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,%=:+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command line that gave these results, as a shell takes it.
pub fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    std::iter::once("terapage".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Options that say where results go.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Outputs {
    /// Write the data as JSON to this file; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write a page with tables and plots to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}
