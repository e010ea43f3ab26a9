//! `terapage advise`.

/// Options of `advise`.
#[derive(Debug, clap::Args)]
pub struct Advise {}
