//! `terapage sim ssd`: block traces against hybrid SSDs.

mod arguments;
mod quantity;
mod source;
mod study;
mod workers;

use std::fs;
use std::io::{IsTerminal, Write};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use terapage_hybrid::{Outcome, Setup, Survey, simulate};
use terapage_report::{Study, TextOptions, render_html, render_text_with};
use terapage_ssd::Profile;

pub use arguments::Ssd;
use source::Source;
use workers::each;

/// Requests between two looks at the progress bar.
const STEP: u64 = 1 << 14;

/// One SSD with one trace.
#[derive(Serialize)]
struct Run {
    trace: String,
    synthetic: bool,
    survey: Survey,
    device_bytes: u64,
    skipped: u64,
    nand: String,
    setup: Setup,
    outcome: Outcome,
}

/// What `--json` writes.
#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    study: &'a Study,
    runs: &'a [Run],
}

impl Ssd {
    /// Runs it.
    ///
    /// # Errors
    /// A profile, a trace or a setup that is wrong; a report that cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let nands = self.profiles()?;
        let sources = self.sources()?;
        let runs = self.runs(&sources, &nands)?;
        let study = study::of(&self, &runs);
        if let Some(path) = &self.html {
            fs::write(path, render_html(&study)).with_context(|| format!("{}", path.display()))?;
        }
        let text = if self.json {
            serde_json::to_string_pretty(&Data { study: &study, runs: &runs })? + "\n"
        } else {
            let options = TextOptions {
                columns: terminal_columns(),
                parameters: self.parameters,
                ..TextOptions::default()
            };
            render_text_with(&study, &options)
        };
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    }

    fn sources(&self) -> anyhow::Result<Vec<Source>> {
        let bar = bar("reading", None);
        let (options, limit) = (self.options(), self.requests.unwrap_or(u64::MAX));
        each(&self.traces, |path| {
            let mut seen = 0;
            Source::survey(path, &options, limit, self.line_bytes()?, self.layout(), || tick(&bar, &mut seen))
        })
    }

    fn runs(&self, sources: &[Source], nands: &[Profile]) -> anyhow::Result<Vec<Run>> {
        let jobs: Vec<(&Source, &Profile)> =
            sources.iter().flat_map(|source| nands.iter().map(move |nand| (source, nand))).collect();
        let total = jobs.iter().map(|(source, _)| source.survey.requests).sum();
        let bar = bar("simulating", Some(total));
        each(&jobs, |&(source, nand)| {
            let setup = self.setup(nand, source)?;
            let mut seen = 0;
            let requests = source.requests()?.inspect(|_| tick(&bar, &mut seen));
            let outcome =
                simulate(&setup, requests).with_context(|| format!("{} on {}", source.name, nand.name))?;
            Ok(Run {
                trace: source.name.clone(),
                synthetic: source.synthetic,
                survey: source.survey.clone(),
                device_bytes: source.device_bytes(),
                skipped: source.skipped,
                nand: nand.name.clone(),
                setup,
                outcome,
            })
        })
    }
}

/// A bar on standard error; it hides itself where that is no terminal.
fn bar(message: &'static str, total: Option<u64>) -> ProgressBar {
    let (bar, style) = match total {
        Some(total) => (ProgressBar::new(total), "{msg} {wide_bar} {human_pos}/{human_len}, {eta} left"),
        None => (ProgressBar::no_length(), "{msg} {spinner} {human_pos} requests"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.with_message(message).with_finish(indicatif::ProgressFinish::AndClear)
}

fn tick(bar: &ProgressBar, seen: &mut u64) {
    *seen += 1;
    if seen.is_multiple_of(STEP) {
        bar.inc(STEP);
    }
}

/// The terminal's columns, from 40 to 100; 100 where there is no terminal.
fn terminal_columns() -> usize {
    if !std::io::stdout().is_terminal() {
        return 100;
    }
    let (_, columns) = console::Term::stdout().size();
    usize::from(columns).clamp(40, 100)
}
