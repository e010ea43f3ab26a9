//! `lab compare`.

use crate::commands::show::Show;
use crate::result::compare::compare;
use crate::result::journal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Results of one machine, kernel or version
    one: PathBuf,
    /// Results of another
    other: PathBuf,
    #[command(flatten)]
    show: Show,
}

impl Compare {
    /// Holds two machines, kernels or versions against each other.
    ///
    /// # Errors
    /// Results cannot be read, or have nothing in common.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.show.check()?;
        anyhow::ensure!(self.show.prices.is_none(), "--prices: it is for results, not for their comparison");
        let (one, other) = (
            journal::read(std::slice::from_ref(&self.one))?,
            journal::read(std::slice::from_ref(&self.other))?,
        );
        let study = compare((&self.one, &one), (&self.other, &other), self.show.lang.texts())?;
        self.show.study(&study, &[])?;
        Ok(ExitCode::SUCCESS)
    }
}
