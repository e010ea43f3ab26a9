//! `terapage sim report`: shows a study again that was saved as JSON.

use crate::publish::{columns, print};
use crate::show::{check_page, put_page};
use anyhow::Context;
use clap::Args;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use terapage_report::{Study, TextOptions, from_json, render_text_with};

/// The arguments of `terapage sim report`.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage sim report study.json
  terapage sim report study.json -o study.html
  terapage paper run fukuchi fig3 --json - | terapage sim report - -o fig3.html")]
pub struct Report {
    /// A study that a command wrote with --json, or - for standard input
    study: PathBuf,
    /// Write one self-contained HTML page to this file; - is standard output
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Columns of the text [default: the terminal's, at most 100]
    #[arg(long, value_parser = clap::value_parser!(u16).range(40..=1000))]
    columns: Option<u16>,
}

impl Report {
    /// Runs the command.
    ///
    /// # Errors
    /// The study cannot be read, the file has none, or the page cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        if let Some(path) = &self.output {
            check_page(path, &[&self.study]).context("--output")?;
        }
        let study = read(&self.study)?;
        match &self.output {
            Some(path) => put_page(path, &study).map(drop),
            None => {
                let columns = self.columns.map_or_else(columns, usize::from);
                let options = TextOptions { columns, ..TextOptions::default() };
                print(&render_text_with(&study, &options))
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Study> {
    let shown = path.display();
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
    } else {
        text = fs::read_to_string(path).with_context(|| format!("{shown}"))?;
    }
    from_json(&text).with_context(|| format!("{shown}"))
}
