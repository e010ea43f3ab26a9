//! `lab report`.

use crate::commands::show::Show;
use crate::result::journal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportOn {
    /// Files of results
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    show: Show,
}

impl ReportOn {
    /// Draws earlier results.
    ///
    /// # Errors
    /// Results cannot be read, or the report cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.show.check()?;
        let groups = journal::read(&self.files)?;
        self.show.groups("The lab", &groups)?;
        Ok(ExitCode::SUCCESS)
    }
}
