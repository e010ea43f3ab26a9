//! The values of the flags of `terapage paper`, for shells that complete them.

use terapage_stack::{LockKind, MACHINES, Mechanism, Stack};

/// The values of a flag; what it shares with the simulators is theirs.
pub fn names(command: &str, flag: &str) -> Vec<&'static str> {
    match flag {
        "volume" => terapage_volumes::names(),
        "without" => Mechanism::ALL.map(Mechanism::name).to_vec(),
        "stack" => Stack::ALL.map(Stack::name).to_vec(),
        "machine" => MACHINES.to_vec(),
        "lock" => LockKind::ALL.map(LockKind::name).to_vec(),
        _ => terapage_sim::names(command, flag),
    }
}
