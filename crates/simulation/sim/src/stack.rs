//! `terapage sim stack`: Linux's I/O stack, simulated.

mod anchors;
mod calibrate;
mod figures;
mod free;
mod mechanisms;
mod options;
mod prediction;

use options::Options;
use terapage_report::{Ends, Study, Whisker};
use terapage_stack::Spread;

/// The studies of the I/O stack.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  terapage sim stack fig6
  terapage sim stack fig7 --without host-lock,smt
  terapage sim stack mechanisms --html mechanisms.html
  terapage sim stack run --stack scsi --rate 800k --multiplicity 4
  terapage sim stack calibrate --out here.toml")]
pub enum Stack {
    /// CPU use against IOPS, SCSI and NVMe.
    Fig5(figures::Figure5),
    /// Busy time for an I/O against IOPS, and what it is spent on.
    Fig6(figures::Figure6),
    /// The highest rate at each multiplicity.
    Fig7(figures::Figure7),
    /// Published results of others, beside the model's.
    Anchors(anchors::Anchors),
    /// The findings with each mechanism switched off in turn.
    Mechanisms(mechanisms::Switches),
    /// The multi-queue stacks at the same load, with the model's uncertainty.
    Predict(prediction::Predict),
    /// One setup of your own.
    Run(Box<free::Run>),
    /// Measure this machine, and fit the model to it.
    Calibrate(calibrate::Calibrate),
}

impl Stack {
    /// Runs the study and shows it.
    ///
    /// # Errors
    /// A setup is impossible, or a file cannot be read or written.
    pub fn run(self) -> anyhow::Result<()> {
        let this = match self {
            Stack::Calibrate(calibrate) => return calibrate.run(),
            other => other,
        };
        let Some(Options { show, costs, .. }) = this.options() else { return Ok(()) };
        show.check(costs.as_deref())?;
        show.study(&this.study()?)
    }

    fn study(&self) -> anyhow::Result<Study> {
        match self {
            Stack::Fig5(figure) => figure.study(),
            Stack::Fig6(figure) => figure.study(),
            Stack::Fig7(figure) => figure.study(),
            Stack::Anchors(anchors) => anchors.study(),
            Stack::Mechanisms(switches) => switches.study(),
            Stack::Predict(predict) => predict.study(),
            Stack::Run(run) => run.study(),
            Stack::Calibrate(_) => anyhow::bail!("calibrate measures; it is no simulation"),
        }
    }

    /// The options of a simulation.
    fn options(&self) -> Option<&Options> {
        Some(match self {
            Stack::Fig5(figure) => &figure.options,
            Stack::Fig6(figure) => &figure.options,
            Stack::Fig7(figure) => &figure.options,
            Stack::Anchors(anchors) => &anchors.options,
            Stack::Mechanisms(switches) => &switches.options,
            Stack::Predict(predict) => &predict.options,
            Stack::Run(run) => &run.options,
            Stack::Calibrate(_) => return None,
        })
    }
}

/// A value over several seeds as a whisker; `None` for one seed.
fn whisker(spread: &Spread) -> Option<Whisker> {
    Some(Whisker::around(spread.mean, spread.margin?, Ends::Interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use terapage_report::Origin;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        stack: Stack,
    }

    fn study(line: &str) -> anyhow::Result<Study> {
        Line::try_parse_from(std::iter::once("stack").chain(line.split(' ')))?.stack.study()
    }

    #[test]
    fn every_study_is_whole() {
        let short = "--time 1 --seeds 1";
        for line in
            ["fig5", "fig6", "fig7", "anchors", "predict --draws 10", "run --stack mq-nvme --rate 200k"]
        {
            let study = study(&format!("{line} {short}")).unwrap();
            assert!(
                !study.title.is_empty() && !study.summary.is_empty() && !study.parameters.is_empty(),
                "{line}"
            );
            assert!(
                study.command.starts_with(&format!("terapage sim stack {}", &line[..3])),
                "{}",
                study.command
            );
            for table in &study.tables {
                assert!(
                    table.rows.iter().all(|row| row.len() == table.columns.len()),
                    "{line}: {}",
                    table.title
                );
            }
        }
    }

    #[test]
    fn the_same_command_gives_the_same_study() {
        let line = "run --stack scsi --rate 600k --time 2";
        let json = |line: &str| serde_json::to_string(&study(line).unwrap()).unwrap();
        assert_eq!(json(line), json(line));
        assert_ne!(json(line), json(&format!("{line} --seed 9")));
    }

    #[test]
    fn what_the_user_chose_is_in_the_study() {
        let study = study("run --stack scsi --cores 4 --rate 100k --cost aio-dio=3000 --time 1").unwrap();
        let value = |name: &str| {
            let mut named = study.parameters.iter().filter(|parameter| parameter.name == name);
            named.next().map(|parameter| (parameter.value.clone(), parameter.origin))
        };
        assert_eq!(value("haswell cores"), Some(("4".into(), Origin::Chosen)));
        assert_eq!(value("aio-dio"), Some(("3000".into(), Origin::Chosen)));
        assert_eq!(value("haswell smt"), Some(("2".into(), Origin::Published)));
    }

    #[test]
    fn bad_input_is_named() {
        let refused = |line: &str| study(line).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused("run --stack scsy").contains("unknown stack 'scsy'; known are scsi, nvme"));
        assert!(refused("fig5 --without locks").contains("unknown mechanism 'locks'; known are queue-lock"));
        assert!(refused("run --stack scsi --cores 0").contains("cores is 0; it must lie between 1 and 1024"));
        assert!(refused("run --stack scsi --rate 1e30").contains("rate (IOPS)"));
        assert!(refused("run --stack scsi --machine cray").contains("unknown machine 'cray'"));
        assert!(refused("run --stack uring --threads 30").contains("30 threads that poll"));
        assert!(refused("fig6 --cost what=1").contains("unknown cost 'what'"));
        assert!(refused("fig6 --cost what").contains("write NAME=VALUE"));
        assert!(refused("mechanisms --without smt").contains("leave out --without"));
    }
}
