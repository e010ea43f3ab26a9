//! Machines for which results were published, and the load of the report on SCSI and NVMe.

use crate::costs::Sourced;
use crate::lock::Kind;
use crate::setup::{Arrivals, Load, Machine, Variation};
use std::collections::BTreeMap;

/// The values of the machines, with origins.
const DATA: &str = include_str!("../data/machines.toml");

/// The names of the machines: the report's; the desktop of the scheduler's patches; one core that
/// polls.
pub const MACHINES: [&str; 3] = ["haswell", "desktop", "polled"];

/// An unknown machine.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown machine '{name}'; known are {}", MACHINES.join(", "))]
pub struct UnknownMachine {
    name: String,
}

type Table = BTreeMap<String, Sourced>;

fn tables() -> BTreeMap<String, Table> {
    toml::from_str(DATA).expect("the model's own machines are well-formed")
}

/// The values of a machine (or of "load", the report's load), by name, with their origins.
///
/// # Errors
/// The name is unknown.
pub fn machine_values(name: &str) -> Result<Vec<(String, Sourced)>, UnknownMachine> {
    let table = tables().remove(name).ok_or_else(|| UnknownMachine { name: name.into() })?;
    Ok(table.into_iter().collect())
}

/// A machine by name.
///
/// # Errors
/// The name is unknown.
pub fn machine(name: &str) -> Result<Machine, UnknownMachine> {
    if !MACHINES.contains(&name) {
        return Err(UnknownMachine { name: name.into() });
    }
    let table: Table = machine_values(name)?.into_iter().collect();
    let value = |key: &str| table.get(key).map_or(f64::NAN, |sourced| sourced.value);
    let count = |key: &str| value(key) as u32;
    Ok(Machine {
        cores: count("cores"),
        smt: count("smt"),
        sockets: count("sockets"),
        ghz: value("ghz"),
        smt_speed: value("smt-speed"),
        transfer_ns: value("transfer"),
        transfer_far_ns: value("transfer-far"),
        hosts: count("hosts"),
        hw_queues: count("hw-queues"),
        front_end_iops: value("front-end"),
        latency_fixed_ns: value("latency-fixed"),
        latency_random_ns: value("latency-random"),
        lock: if name == "haswell" { Kind::Ticket } else { Kind::Queued },
    })
}

/// The report's load, at its highest rate.
pub fn paper_load() -> Load {
    let table = tables().remove("load").unwrap_or_default();
    let count = |key: &str| table.get(key).map_or(1, |sourced| sourced.value as u32);
    Load {
        threads: count("threads"),
        calls_in_flight: count("calls-in-flight"),
        multiplicity: 1,
        volumes: count("volumes"),
        rate_iops: None,
        sequential: 0.0,
        spread: false,
        timer_slack_ns: table.get("timer-slack").map_or(0.0, |sourced| sourced.value),
        arrivals: Arrivals::Regular,
        variation: Variation::Uniform,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::mechanism::Mechanisms;
    use crate::setup::Setup;
    use crate::stacks::Stack;

    #[test]
    fn every_machine_can_be_simulated() {
        for name in MACHINES {
            let setup = Setup {
                stack: Stack::Nvme,
                machine: machine(name).unwrap(),
                load: paper_load(),
                costs: Costs::builtin(),
                mechanisms: Mechanisms::all(),
                warm_ns: 0,
                measure_ns: 1_000_000,
            };
            setup.check().unwrap();
        }
        assert_eq!(paper_load().volumes, 192);
    }

    #[test]
    fn others_are_not_known() {
        let error = machine("cray").unwrap_err().to_string();
        assert_eq!(error, "unknown machine 'cray'; known are haswell, desktop, polled");
        assert!(machine("load").is_err());
    }
}
