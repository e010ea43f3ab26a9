//! How results are shown: in the terminal, as a page, as files.

use crate::commands::quick;
use crate::result::answers::left_out;
use crate::result::journal::Group;
use crate::result::language::Texts;
use crate::result::prices::prices;
use crate::result::solve::{Solved, solve};
use crate::result::study::study;
use anyhow::{Context, anyhow, ensure};
use serde::Serialize;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use terapage_config::can_be_written;
use terapage_report::{
    Language, Study, TextOptions, render_csv, render_html, render_markdown, render_text_with,
};

/// How results are shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    /// Write a page with plots and tables to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the study, with the computed results, as JSON to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A TOML file of prices, for a table of what the same money buys: [[price]] tables with
    /// contender, price and capacity
    #[arg(long, value_name = "FILE.toml")]
    pub prices: Option<PathBuf>,
    /// Write the report as Markdown to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write every plotted point, with its spread, as CSV to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// The report's language
    #[arg(long, value_name = "LANGUAGE", default_value = "en")]
    pub lang: Lang,
    /// Print the parameters and the machine as well
    #[arg(long)]
    pub parameters: bool,
    /// Whether to say where the page is, because its file was not named.
    #[arg(skip)]
    pub says_where: bool,
    /// The experiments that were left out for lack of time.
    #[arg(skip)]
    pub left_out: Vec<String>,
}

/// A report's language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Lang {
    /// English
    #[default]
    En,
    /// Japanese
    Ja,
}

impl Lang {
    /// Its texts.
    pub fn texts(self) -> &'static Texts {
        Texts::of(match self {
            Lang::En => Language::En,
            Lang::Ja => Language::Ja,
        })
    }
}

/// A study with the results that it shows.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    study: &'a Study,
    results: &'a [Solved],
}

impl Show {
    /// Whether the files can be written, before the work begins.
    ///
    /// # Errors
    /// When one cannot.
    pub fn check(&self) -> anyhow::Result<()> {
        let all = self.outputs();
        for (at, (option, path, _)) in all.iter().enumerate() {
            can_be_written(path).map_err(|why| anyhow!("{option}: {} {why}", path.display()))?;
            let other = all[..at].iter().find(|(_, other, _)| other == path);
            ensure!(
                other.is_none(),
                "{} and {option} name the same file",
                other.map_or("", |(name, ..)| name)
            );
        }
        // An option without its file takes the next word as its file, which may be a file of
        // results.
        for (option, path, begins) in all.iter().filter(|(_, path, _)| path.is_file()) {
            let mut head = Vec::new();
            fs::File::open(path)?.take(16).read_to_end(&mut head)?;
            let head = String::from_utf8_lossy(&head).into_owned();
            let same = head.is_empty() || head.starts_with(begins) && !head.starts_with("{\"line\"");
            ensure!(
                same,
                "{option}: {} exists, and holds something else; name another file, or remove it",
                path.display()
            );
        }
        Ok(())
    }

    /// The files to write: the option of each, and the first bytes of such a file.
    fn outputs(&self) -> Vec<(&'static str, &Path, &'static str)> {
        let all = [
            ("--html", &self.html, "<!DOCTYPE html"),
            ("--json", &self.json, "{"),
            ("--markdown", &self.markdown, "# "),
            ("--csv", &self.csv, "part,plot,"),
        ];
        all.into_iter()
            .filter_map(|(option, path, begins)| Some((option, path.as_deref()?, begins)))
            .collect()
    }

    /// Shows the results.
    ///
    /// # Errors
    /// An output cannot be written.
    pub fn groups(&self, title: &str, groups: &[Group]) -> anyhow::Result<()> {
        let solved: Vec<Solved> = groups.iter().map(solve).collect();
        let title = self.lang.texts().text(title);
        let mut study = study(&title, groups, &solved, self.lang.texts());
        if !self.left_out.is_empty() {
            // The noise comes first.
            let at = study.answers.len().min(1);
            let command = quick::command(&self.left_out);
            study.answers.insert(at, left_out(&self.left_out, command, self.lang.texts()));
        }
        if let Some(path) = &self.prices {
            study.tables.push(prices(path, groups, &solved)?);
        }
        self.study(&study, &solved)
    }

    /// Shows the results so far after a run was ended. Errors of this output are ignored, so that
    /// the error that ended the run is the one reported.
    pub fn so_far(&self, groups: &[Group]) {
        if !groups.is_empty() {
            let _ = self.groups("The lab, so far", groups);
        }
    }

    /// Shows a study.
    ///
    /// # Errors
    /// An output cannot be written.
    pub fn study(&self, study: &Study, results: &[Solved]) -> anyhow::Result<()> {
        let mut printed = false;
        for (option, path, _) in self.outputs() {
            let text = match option {
                "--html" => render_html(study),
                "--markdown" => render_markdown(study),
                "--csv" => render_csv(study),
                _ => serde_json::to_string_pretty(&Document { study, results })? + "\n",
            };
            match path == Path::new("-") {
                true => io::stdout().lock().write_all(text.as_bytes())?,
                false => fs::write(path, text).with_context(|| format!("{option} {}", path.display()))?,
            }
            printed |= path == Path::new("-");
        }
        if let Some(page) = self.html.as_ref().filter(|_| self.says_where) {
            let _ = writeln!(io::stderr(), "the report is in {}", page.display());
        }
        if printed {
            return Ok(());
        }
        let options =
            TextOptions { columns: columns(), parameters: self.parameters, ..TextOptions::default() };
        Ok(io::stdout().lock().write_all(render_text_with(study, &options).as_bytes())?)
    }
}

/// Characters of a line: `$COLUMNS`, or the terminal's, 100 at most.
pub fn columns() -> usize {
    terapage_report::columns(io::stdout()).unwrap_or(usize::MAX).min(100)
}
