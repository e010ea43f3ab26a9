//! The terapage command.
fn main() {}
