//! `terapage paper run sato`: the report of Sato, Kondo and Kiyota on SCSI and NVMe.

mod anchors;
mod figures;
mod mechanisms;
mod prediction;

use crate::stack::Figures;
use crate::stack::options::Options;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use terapage_report::Study;
use terapage_stack::{Repeated, Stack};

/// The arguments of `terapage paper run sato`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage paper run sato fig6
  terapage paper run sato fig7 --without host-lock,smt
  terapage paper run sato fig6 --cost host-dispatch=400 --seeds 5
  terapage paper run sato mechanisms --html mechanisms.html")]
pub struct Sato {
    /// What to simulate
    figure: Figure,
    #[command(flatten)]
    options: Options,
}

/// A figure of the report, or a study of its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Figure {
    /// CPU use against IOPS, SCSI and NVMe
    Fig5,
    /// Busy time for an I/O against IOPS, and what it is spent on
    Fig6,
    /// The highest rate at each multiplicity
    Fig7,
    /// Published results of other authors, beside the model's
    Anchors,
    /// The findings with each mechanism switched off in turn
    Mechanisms,
    /// The multi-queue stacks at the same load, with the model's uncertainty
    Predict,
}

impl Sato {
    /// Runs the study and shows it.
    ///
    /// # Errors
    /// A setup is impossible, or a file cannot be read or written.
    pub fn run(self) -> anyhow::Result<()> {
        let show = &self.options.show;
        show.check(None)?;
        let (study, results) = self.study()?;
        show.results(&study, &results, || show.text(&study, true))
    }

    /// The study, and its figures as numbers.
    fn study(&self) -> anyhow::Result<(Study, Value)> {
        let options = &self.options;
        match self.figure {
            Figure::Fig5 => figures::fig5(options),
            Figure::Fig6 => figures::fig6(options),
            Figure::Fig7 => figures::fig7(options),
            Figure::Anchors => anchors::anchored(options),
            Figure::Mechanisms => mechanisms::mechanisms(options),
            Figure::Predict => prediction::predict(options),
        }
    }
}

/// The figures of a stack at a rate in kIOPS, or as fast as it goes.
fn figures(stack: Stack, kiops: Option<u32>, multiplicity: u32, repeated: &Repeated, seed: u64) -> Value {
    let seeds = Figures::all(repeated, seed);
    json!({ "stack": stack.name(), "kiops": kiops, "multiplicity": multiplicity, "seeds": seeds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sato: Sato,
    }

    fn study(line: &str) -> anyhow::Result<(Study, Value)> {
        Line::try_parse_from(std::iter::once("sato").chain(line.split(' ')))?.sato.study()
    }

    #[test]
    fn every_study_is_whole() {
        for line in ["fig5", "fig6", "fig7", "anchors", "predict"] {
            let (study, results) = study(&format!("{line} --time 1 --seeds 1")).unwrap();
            let figures = results.as_array().expect("a list");
            let number = |one: &Value| one["seeds"][0]["iops"].as_f64().is_some_and(|iops| iops > 0.0);
            assert!(!figures.is_empty() && figures.iter().all(number), "{line}: {results}");
            assert!(
                !study.title.is_empty() && !study.summary.is_empty() && !study.parameters.is_empty(),
                "{line}"
            );
            let command = &study.command;
            assert!(command.starts_with(&format!("terapage paper run sato {line}")), "{command}");
            for table in &study.tables {
                let whole = table.rows.iter().all(|row| row.len() == table.columns.len());
                assert!(whole, "{line}: {}", table.title);
            }
        }
    }

    #[test]
    fn bad_input_is_named() {
        let refused = |line: &str| study(line).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused("fig5 --without locks").contains("unknown mechanism 'locks'; known are queue-lock"));
        assert!(refused("fig6 --cost what=1").contains("unknown cost 'what'"));
        assert!(refused("fig6 --cost what").contains("write NAME=VALUE"));
        assert!(refused("mechanisms --without smt").contains("leave out --without"));
    }
}
