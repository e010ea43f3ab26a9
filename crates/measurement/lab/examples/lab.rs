//! The lab as a separate program: `cargo run --release -p terapage-lab --example lab -- run scan`.

use clap::Parser;
use std::process::ExitCode;

/// Programs larger than memory: in memory, on swap, on mmap, on Terapage.
#[derive(Parser)]
struct Lab {
    #[command(subcommand)]
    command: terapage_lab::Command,
}

fn main() -> ExitCode {
    match Lab::parse().command.run() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
