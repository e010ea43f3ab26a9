//! Shows a study: in the terminal, as a page, as JSON. All commands that produce a study take the
//! same options.

use crate::publish::{self, columns, print};
use anyhow::{Context, ensure};
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use terapage_report::{Study, TextOptions, render_html, render_text_with};

/// Standard output, as a file's name.
const STDOUT: &str = "-";
/// The first bytes of a page.
const PAGE: &str = "<!DOCTYPE html";

/// Options for showing a study.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    /// Write JSON to this file; - is standard output, which then has nothing else
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write a page with tables and plots to this file; - is standard output, which then has
    /// nothing else
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Print the parameters and their origins
    #[arg(long)]
    parameters: bool,
}

/// A study and its data: `terapage sim report` reads the study, scripts read the data.
#[derive(Serialize)]
struct Document<'a, T> {
    #[serde(flatten)]
    study: &'a Study,
    results: &'a T,
}

impl Show {
    /// Checks before the work begins that the files can be written, and are none of `inputs`, which
    /// are read.
    ///
    /// # Errors
    /// A file cannot be written, or is an input.
    pub fn check<'a>(&self, inputs: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
        let inputs: Vec<&Path> = inputs.into_iter().collect();
        if let Some(path) = &self.json {
            check(path, &inputs, "{").context("--json")?;
        }
        if let Some(path) = &self.html {
            check_page(path, &inputs).context("--html")?;
        }
        ensure!(
            self.json.is_none() || self.json != self.html,
            "--json and --html name the same file; name two files"
        );
        Ok(())
    }

    /// Writes the files that were asked for, and shows the study on standard output, unless one of
    /// the files is standard output.
    pub fn study(&self, study: &Study) -> anyhow::Result<()> {
        self.publish(study, study, || self.text(study, true))
    }

    /// Like `study`, but with `text` in the terminal, and with `results` beside the study in the
    /// JSON.
    pub fn results(
        &self,
        study: &Study,
        results: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        self.publish(study, &Document { study, results }, text)
    }

    /// Whether to print the parameters.
    pub fn wants_parameters(&self) -> bool {
        self.parameters
    }

    /// A study for the terminal.
    pub fn text(&self, study: &Study, charts: bool) -> String {
        let parameters = self.parameters;
        let options = TextOptions { columns: columns(), charts, parameters };
        render_text_with(study, &options)
    }

    fn publish(
        &self,
        study: &Study,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let mut printed = false;
        if let Some(path) = &self.html {
            printed |= put_page(path, study).context("--html")?;
        }
        if let Some(path) = &self.json {
            printed |= put(path, &(serde_json::to_string_pretty(document)? + "\n")).context("--json")?;
        }
        if printed { Ok(()) } else { print(&text()) }
    }
}

/// Checks before the work begins that a page can be written to `path`, and that `path` is none of
/// `inputs`, which are read.
pub fn check_page(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    check(path, inputs, PAGE)
}

/// Checks that a file can be written. An existing file must begin as its replacement does. If the
/// value of an option was forgotten, the option takes the next word, which may name a trace.
fn check(path: &Path, inputs: &[&Path], begin: &str) -> anyhow::Result<()> {
    publish::check(path, inputs)?;
    if path == Path::new(STDOUT) || !path.is_file() {
        return Ok(());
    }
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(begin.len() as u64).read_to_end(&mut head).with_context(|| path.display().to_string())?;
    let same = head.is_empty() || head.eq_ignore_ascii_case(begin.as_bytes());
    ensure!(same, "{}: exists, and holds something else; name another file, or remove it", path.display());
    Ok(())
}

/// Writes a page to a file, or to standard output. It returns whether the destination was standard
/// output.
pub fn put_page(path: &Path, study: &Study) -> anyhow::Result<bool> {
    put(path, &render_html(study))
}

fn put(path: &Path, text: &str) -> anyhow::Result<bool> {
    let stdout = path == Path::new(STDOUT);
    if stdout {
        print(text)?;
    } else {
        publish::write(path, text)?;
    }
    Ok(stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn show(json: &Path, html: Option<&Path>) -> Show {
        Show { json: Some(json.to_owned()), html: html.map(Path::to_owned), parameters: false }
    }

    #[test]
    fn what_cannot_be_written_is_said_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace.csv");
        fs::write(&trace, "").unwrap();
        let said = |json: &Path, html: Option<&Path>| {
            show(json, html)
                .check([trace.as_path()])
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default()
        };
        assert!(said(&trace, None).contains("is an input"), "{}", said(&trace, None));
        assert!(said(folder.path(), None).contains("is a directory"));
        assert!(said(&folder.path().join("no/out.json"), None).contains("a directory that does not exist"));
        let out = folder.path().join("out");
        assert!(said(&out, Some(&out)).contains("same file"));
        assert!(said(Path::new("-"), Some(Path::new("-"))).contains("same file"));
        assert_eq!(said(Path::new("-"), Some(&out)), "");
        assert_eq!(said(&out, None), "");
        assert!(!out.exists(), "looking writes nothing");
        let other = folder.path().join("other.csv");
        fs::write(&other, "128166385295514663,hm,0,Write,9056014336,2048,2833\n").unwrap();
        assert!(said(&other, None).contains("holds something else"));
        assert!(said(&out, Some(&other)).contains("holds something else"));
        fs::write(&out, "").unwrap();
        assert_eq!(said(&out, None), "");
    }

    #[test]
    fn a_document_is_a_study_with_results() {
        let folder = tempfile::tempdir().unwrap();
        let (json, html) = (folder.path().join("out.json"), folder.path().join("out.html"));
        let study = Study { title: "A study".into(), ..Study::default() };
        for _ in 0..2 {
            show(&json, Some(&html)).check(None).unwrap();
            show(&json, Some(&html)).study(&study).unwrap();
        }
        show(&json, Some(&html)).results(&study, &[1, 2], String::new).unwrap();
        let text = fs::read_to_string(json).unwrap();
        assert_eq!(terapage_report::from_json(&text).unwrap(), study);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["results"], serde_json::json!([1, 2]));
        assert!(fs::read_to_string(html).unwrap().contains("A study"));
    }
}
