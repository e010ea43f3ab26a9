//! A study's way to the user: the terminal, a page, JSON. All commands that make a study take the same options.

use crate::publish::{self, columns, print};
use anyhow::{Context, ensure};
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use terapage_report::{Study, TextOptions, render_html, render_text_with};

/// Standard output, as a file's name.
const STDOUT: &str = "-";
/// How a page begins.
const PAGE: &str = "<!DOCTYPE html";

/// Options that say how a study is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    /// Write JSON to this file; - is standard output, which then has nothing else
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write a page with tables and plots to this file; - is standard output, which then has nothing else
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Print the parameters and where they are from
    #[arg(long)]
    parameters: bool,
}

/// A study with the data that it shows: `terapage sim report` reads the one, scripts read the other.
#[derive(Serialize)]
struct Document<'a, T> {
    #[serde(flatten)]
    study: &'a Study,
    results: &'a T,
}

impl Show {
    /// Whether the files can be written, before the work that they are for begins: `inputs` are what is read.
    ///
    /// # Errors
    /// If one is a directory, in none, or an input.
    pub fn check<'a>(&self, inputs: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
        let inputs: Vec<&Path> = inputs.into_iter().collect();
        for (option, path, begin) in [("--json", &self.json, "{"), ("--html", &self.html, PAGE)] {
            let Some(path) = path else { continue };
            publish::check_output(path, &inputs).context(option)?;
            check_old(path, begin).context(option)?;
        }
        ensure!(
            self.json.is_none() || self.json != self.html,
            "--json and --html name the same file; give each its own"
        );
        Ok(())
    }

    /// Writes what was asked for, and shows the study on standard output unless something else goes there.
    pub fn study(&self, study: &Study) -> anyhow::Result<()> {
        self.publish(study, study, || self.text(study, true))
    }

    /// As `study`, with `text` for the terminal, and in JSON `results` beside the study.
    pub fn results(
        &self,
        study: &Study,
        results: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        self.publish(study, &Document { study, results }, text)
    }

    /// A study for the terminal.
    pub fn text(&self, study: &Study, charts: bool) -> String {
        let parameters = self.parameters;
        let options = TextOptions { columns: columns(), charts, parameters, ..TextOptions::default() };
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
            printed |= put("--html", path, &render_html(study))?;
        }
        if let Some(path) = &self.json {
            printed |= put("--json", path, &(serde_json::to_string_pretty(document)? + "\n"))?;
        }
        if printed { Ok(()) } else { print(&text()) }
    }
}

/// Whether a file that is there already is of the same kind, and so may be replaced. An option whose file was forgotten
/// takes the next word for it: that may be somebody's trace.
fn check_old(path: &Path, begin: &str) -> anyhow::Result<()> {
    if !path.is_file() {
        return Ok(());
    }
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(begin.len() as u64).read_to_end(&mut head).with_context(|| path.display().to_string())?;
    let same = head.is_empty() || head.eq_ignore_ascii_case(begin.as_bytes());
    ensure!(same, "{}: is there, and is no such file; name another, or remove it", path.display());
    Ok(())
}

/// Writes a file, or standard output; whether it was that.
fn put(option: &'static str, path: &Path, text: &str) -> anyhow::Result<bool> {
    let stdout = path == Path::new(STDOUT);
    if stdout {
        print(text)?;
    } else {
        publish::write(path, text).context(option)?;
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
        assert!(said(&trace, None).contains("is read"), "{}", said(&trace, None));
        assert!(said(folder.path(), None).contains("is a directory"));
        assert!(said(&folder.path().join("no/out.json"), None).contains("there is no directory"));
        let out = folder.path().join("out");
        assert!(said(&out, Some(&out)).contains("same file"));
        assert!(said(Path::new("-"), Some(Path::new("-"))).contains("same file"));
        assert_eq!(said(Path::new("-"), Some(&out)), "");
        assert_eq!(said(&out, None), "");
        assert!(!out.exists(), "looking writes nothing");
        let other = folder.path().join("other.csv");
        fs::write(&other, "128166385295514663,hm,0,Write,9056014336,2048,2833\n").unwrap();
        assert!(said(&other, None).contains("is no such file"));
        assert!(said(&out, Some(&other)).contains("is no such file"));
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
