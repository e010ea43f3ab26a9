//! `terapage sim ssd`: block traces against hybrid SSDs.

mod arguments;
mod quantity;
mod source;
mod speed;
mod study;
mod workers;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use terapage_hybrid::{Outcome, Setup, Survey, simulate};
use terapage_report::{Study, TextOptions, render_text_with};
use terapage_ssd::Profile;

use crate::publish;
pub use arguments::Ssd;
use source::Source;
pub use speed::Speed;
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
            publish::html(path, &study)?;
        }
        if self.json {
            return publish::print(
                &(serde_json::to_string_pretty(&Data { study: &study, runs: &runs })? + "\n"),
            );
        }
        let (columns, parameters) = (publish::columns(), self.parameters);
        publish::print(&render_text_with(
            &study,
            &TextOptions { columns, parameters, ..TextOptions::default() },
        ))
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

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::fs;

    use clap::Parser;
    use terapage_report::{from_json, render_text};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ssd: Ssd,
    }

    /// A trace of 3000 requests in SSDsim's format, half of them writes, to a hot and a cold part.
    fn trace() -> tempfile::NamedTempFile {
        let mut text = String::new();
        for n in 0..3_000_u64 {
            let sector = if n % 3 == 0 { n * 7919 % 400_000 * 8 } else { n * 31 % 500 * 8 };
            let _ = writeln!(text, "{} 0 {sector} 8 {}", n * 10_000, n % 2);
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("it is written");
        file
    }

    fn parse(trace: &tempfile::NamedTempFile, flags: &str) -> Ssd {
        let path = trace.path().to_str().expect("plain");
        let line = ["ssd", path].into_iter().chain(flags.split_whitespace());
        Line::try_parse_from(line).expect("good flags").ssd
    }

    fn run(flags: &str) -> anyhow::Result<(Ssd, Vec<Run>)> {
        let trace = trace();
        let ssd = parse(&trace, flags);
        let runs = ssd.runs(&ssd.sources()?, &ssd.profiles()?)?;
        Ok((ssd, runs))
    }

    #[test]
    fn all_nands_are_compared_with_the_first() {
        let (ssd, runs) = run("--nand all --warm-up 10%").expect("it runs");
        let nands: Vec<&str> = runs.iter().map(|run| run.nand.as_str()).collect();
        assert_eq!(nands, arguments::PAPER);
        let study = study::of(&ssd, &runs);
        assert_eq!(study.tables[0].rows[0][2], "+0.0");
        assert_eq!(runs[0].outcome.requests, 2_700);
        let text = render_text(&study, 100);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let json = serde_json::to_string(&Data { study: &study, runs: &runs }).expect("plain data");
        assert_eq!(from_json(&json).expect("a study").title, study.title);
    }

    #[test]
    fn each_cache_and_load_runs() {
        for flags in [
            "--cache write-only",
            "--cache space --high-water 40%",
            "--cache dram --flush-after 1ms --open",
            "--cache scm-only",
            "--cache none --front sata",
            "--scm 0",
            "--scm 5%nand --policy arc --gc cost-benefit",
            "--idle-gc 1ms --wear-gap 4 --bad-blocks 2% --erase-failures 0.1% --over-provisioning 15%",
            "--open --speed 2 --layout as-is --precondition fresh",
            "--capacity 1G --wrap --layout as-is --requests 1000",
        ] {
            let (ssd, runs) = run(flags).unwrap_or_else(|error| panic!("{flags}: {error:#}"));
            assert_eq!(runs.len(), 1);
            assert!(runs[0].outcome.iops > 0.0, "{flags}");
            assert!(!render_text(&study::of(&ssd, &runs), 80).is_empty());
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (flags, word) in [
            ("--nand 4d-mlc", "4d-mlc"),
            ("--line 5000", "--line"),
            ("--evict 5000", "5000"),
            ("--low-water 50% --high-water 20%", "water"),
            ("--capacity 1G --layout as-is", "--wrap"),
            ("--warm-up 100%", "nothing to measure"),
            ("--depth 0", "depth"),
            ("--channels 0", "channels"),
            ("--bad-blocks 50%", "bad_blocks"),
            ("--idle-gc 1ms --idle-blocks 1", "idle_collection"),
        ] {
            let error = run(flags).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(word) && !error.contains('\n'), "{flags}: {error:?}");
        }
    }
}
