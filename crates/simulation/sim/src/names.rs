//! The values of the simulators' flags, for shells that complete them.

use terapage_blocktrace::Format;
use terapage_policy::replacement;
use terapage_ssd::Profile;
use terapage_stack::{LockKind, MACHINES, Mechanism, Stack};

/// The values of a flag of `terapage sim`, by the flag's name; none if it takes any text.
pub fn names(flag: &str) -> Vec<&'static str> {
    match flag {
        "policy" => replacement::NAMES.to_vec(),
        "format" | "to" => Format::ALL.map(Format::name).to_vec(),
        "nand" => Profile::names().chain(["all"]).collect(),
        "volume" => terapage_volumes::names(),
        "without" => Mechanism::ALL.map(Mechanism::name).to_vec(),
        "stack" => Stack::ALL.map(Stack::name).to_vec(),
        "machine" => MACHINES.to_vec(),
        "lock" => LockKind::ALL.map(LockKind::name).to_vec(),
        _ => Vec::new(),
    }
}
