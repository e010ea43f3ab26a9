//! Where studies go, and progress on the way to them.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use terapage_report::{Study, TextOptions, render_html, render_text_with, to_json};

/// Options that say where a study goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    /// Write the study as a page with plots and tables
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Print the study as JSON
    #[arg(long)]
    pub json: bool,
    /// Print the parameters and where they are from
    #[arg(long, conflicts_with = "json")]
    pub parameters: bool,
}

impl Show {
    /// Shows it: a page if one was asked for, and text or JSON on standard output.
    pub fn study(&self, study: &Study) -> anyhow::Result<()> {
        if let Some(path) = &self.html {
            fs::write(path, render_html(study)).with_context(|| format!("--html {}", path.display()))?;
        }
        let text = if self.json {
            to_json(study)
        } else {
            let options =
                TextOptions { columns: columns(), parameters: self.parameters, ..TextOptions::default() };
            render_text_with(study, &options)
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.trim_end().as_bytes())?;
        Ok(out.write_all(b"\n")?)
    }
}

/// The terminal's columns, from 40 to 100; 100 where there is no terminal.
fn columns() -> usize {
    if !std::io::stdout().is_terminal() {
        return 100;
    }
    let (_, columns) = console::Term::stdout().size();
    usize::from(columns).clamp(40, 100)
}

/// A bar on standard error, with the time that is left; it hides itself where that is no terminal.
pub fn bar(message: &'static str, steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len}, {eta} left") {
        bar.set_style(style);
    }
    bar.with_message(message).with_finish(indicatif::ProgressFinish::AndClear)
}

/// The command line, as a shell takes it.
pub fn command_line() -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,%=:+@".contains(letter);
    let quoted = |argument: String| {
        if !argument.is_empty() && argument.chars().all(plain) {
            argument
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    };
    let arguments =
        std::env::args_os().skip(1).map(|argument| quoted(argument.to_string_lossy().into_owned()));
    std::iter::once("terapage".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
