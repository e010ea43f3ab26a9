//! A study's way to the user, and progress on the way to it.

use crate::publish::{self, Outputs};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use terapage_report::{Study, TextOptions, render_text_with};

/// Options that say how a study is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Show {
    #[command(flatten)]
    outputs: Outputs,
    /// Print the parameters and where they are from
    #[arg(long)]
    parameters: bool,
}

impl Show {
    /// Writes what was asked for, and shows the study on standard output unless JSON goes there.
    pub fn study(&self, study: &Study) -> anyhow::Result<()> {
        if let Some(path) = &self.outputs.html {
            publish::html(path, study)?;
        }
        if let Some(path) = &self.outputs.json
            && publish::json_study(path, study)?
        {
            return Ok(());
        }
        let columns = publish::columns();
        let options = TextOptions { columns, parameters: self.parameters, ..TextOptions::default() };
        publish::print(&render_text_with(study, &options))
    }
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
