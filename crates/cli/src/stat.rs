//! Placeholder.
use clap::Args;
use std::process::ExitCode;
/// Arguments.
#[derive(Args)]
pub struct Stat {}
impl Stat {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
