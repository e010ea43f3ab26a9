//! Placeholder.
use clap::Args;
use std::process::ExitCode;
/// Arguments.
#[derive(Args)]
pub struct Top {}
impl Top {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}
