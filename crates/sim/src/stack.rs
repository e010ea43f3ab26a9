//! `terapage sim stack`: Linux's I/O stack, simulated.

mod anchors;
mod figures;
mod free;
mod mechanisms;
mod options;
mod output;
mod prediction;

/// The studies of the I/O stack.
#[derive(clap::Subcommand)]
#[command(after_help = "\
Examples:
  terapage sim stack fig6
  terapage sim stack fig7 --without host-lock,smt
  terapage sim stack mechanisms --html mechanisms.html
  terapage sim stack run --stack scsi --rate 800k --multiplicity 4")]
pub enum Stack {
    /// CPU use against IOPS, SCSI and NVMe.
    Fig5(figures::Figure5),
    /// Busy time for an I/O against IOPS, and what it is spent on.
    Fig6(figures::Figure6),
    /// The highest rate at each multiplicity.
    Fig7(figures::Figure7),
    /// What others have published, and what the model gives for the same.
    Anchors(anchors::Anchors),
    /// Each mechanism switched off in turn: what becomes of the findings.
    Mechanisms(mechanisms::Switches),
    /// The multi-queue stacks at the same load, with the model's uncertainty.
    Predict(prediction::Predict),
    /// One setup of your own.
    Run(Box<free::Run>),
}

impl Stack {
    /// Runs the study and shows it.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Stack::Fig5(figure) => figure.run(),
            Stack::Fig6(figure) => figure.run(),
            Stack::Fig7(figure) => figure.run(),
            Stack::Anchors(anchors) => anchors.run(),
            Stack::Mechanisms(switches) => switches.run(),
            Stack::Predict(predict) => predict.run(),
            Stack::Run(run) => run.run(),
        }
    }
}
