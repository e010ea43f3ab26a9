//! `lab report` and `lab merge`.

use crate::commands::show::Show;
use crate::result::journal::{self, Line};
use anyhow::Context;
use std::fs;
use std::io::{self, Write};
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

/// Options of `merge`.
#[derive(Debug, clap::Args)]
pub struct Merge {
    /// Files of results
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl ReportOn {
    /// Draws earlier results.
    ///
    /// # Errors
    /// Results cannot be read, or the report cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.show.check()?;
        let groups = journal::read(&self.files)?;
        self.show.groups("The lab", &groups, &journal::guests(&self.files)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Merge {
    /// Merges files of results into one, with each run once.
    ///
    /// # Errors
    /// A file cannot be read, or the new one already exists.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let groups = journal::read(&self.files)?;
        let guests = journal::guests(&self.files)?;
        let made = fs::OpenOptions::new().write(true).create_new(true).open(&self.output);
        let mut file =
            io::BufWriter::new(made.with_context(|| format!("--output {}", self.output.display()))?);
        let mut count = 0;
        for group in groups {
            writeln!(file, "{}", serde_json::to_string(&Line::Head(Box::new(group.head)))?)?;
            let mut known = std::collections::HashSet::new();
            for run in group.runs {
                let line = serde_json::to_string(&Line::Run(Box::new(run)))?;
                if known.insert(line.clone()) {
                    writeln!(file, "{line}")?;
                    count += 1;
                }
            }
        }
        for told in guests {
            writeln!(file, "{}", serde_json::to_string(&Line::Guest(Box::new(told)))?)?;
            count += 1;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        writeln!(io::stdout(), "{count} runs in {}", self.output.display())?;
        Ok(ExitCode::SUCCESS)
    }
}
