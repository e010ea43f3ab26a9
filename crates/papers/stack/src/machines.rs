//! Machines for which results were published, and the load of the report on SCSI and NVMe.

use crate::lock::Kind;
use crate::setup::{Load, Machine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terapage_figures::Sourced;

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

type Table = BTreeMap<String, Sourced<f64>>;

fn tables() -> BTreeMap<String, Table> {
    toml::from_str(DATA).expect("the model's own machines are well-formed")
}

/// The values of a machine (or of "load", the report's load), by name, with their origins.
///
/// # Errors
/// The name is unknown.
pub fn machine_values(name: &str) -> Result<Vec<(String, Sourced<f64>)>, UnknownMachine> {
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
    Ok(from_table(&table, if name == "haswell" { Kind::Ticket } else { Kind::Queued }))
}

fn from_table(table: &Table, lock: Kind) -> Machine {
    let value = |key: &str| table.get(key).map_or(f64::NAN, |sourced| sourced.value);
    let count = |key: &str| value(key) as u32;
    Machine {
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
        drains: value("drains") > 0.0,
        lock,
    }
}

/// The values that a machine must have.
const KEYS: [&str; 13] = [
    "cores",
    "smt",
    "sockets",
    "ghz",
    "smt-speed",
    "transfer",
    "transfer-far",
    "hosts",
    "hw-queues",
    "front-end",
    "latency-fixed",
    "latency-random",
    "drains",
];

/// Those of them that are counts.
const COUNTS: [&str; 5] = ["cores", "smt", "sockets", "hosts", "hw-queues"];

/// A user's machine, in a file: its values, and the costs that differ from the model's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// The machine's values, as in the model's own file.
    pub machine: BTreeMap<String, Sourced<f64>>,
    /// The costs on it, by name.
    #[serde(default)]
    pub costs: BTreeMap<String, Sourced<f64>>,
}

/// An error in a machine file.
#[derive(Debug, thiserror::Error)]
pub enum MachineFileError {
    /// It is not TOML, or does not have the form that `terapage paper run stack-calibrate` writes.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value is missing.
    #[error("[machine.{0}] is missing")]
    Missing(&'static str),
    /// A value is unknown.
    #[error("[machine.{0}] is unknown")]
    Unknown(String),
    /// A number of things is not whole.
    #[error("[machine.{0}] is {1}: a whole number is expected")]
    Whole(&'static str, f64),
    /// A cost is unknown, or out of range.
    #[error(transparent)]
    Cost(#[from] crate::costs::Error),
}

impl MachineFile {
    /// Reads the text of a machine file.
    ///
    /// # Errors
    /// A syntax error, or a missing or unknown value.
    pub fn read(text: &str) -> Result<MachineFile, MachineFileError> {
        let file: MachineFile = toml::from_str(text)?;
        if let Some(key) = KEYS.into_iter().find(|&key| !file.machine.contains_key(key)) {
            return Err(MachineFileError::Missing(key));
        }
        if let Some(key) = file.machine.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(MachineFileError::Unknown(key.clone()));
        }
        for key in COUNTS {
            let value = file.machine[key].value;
            if !(0.0..=f64::from(u32::MAX)).contains(&value) || value.fract() != 0.0 {
                return Err(MachineFileError::Whole(key, value));
            }
        }
        file.apply(&mut crate::costs::Costs::builtin())?;
        Ok(file)
    }

    /// The machine. Its kernel has queued spinlocks.
    pub fn machine(&self) -> Machine {
        from_table(&self.machine, Kind::Queued)
    }

    /// Replaces costs by those of the file.
    ///
    /// # Errors
    /// A cost is unknown, or out of range.
    pub fn apply(&self, costs: &mut crate::costs::Costs) -> Result<(), crate::costs::Error> {
        self.costs.iter().try_for_each(|(name, cost)| costs.put(name, cost.clone()))
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("values and texts can be written")
    }
}

/// The report's load, at its highest rate.
pub fn paper_load() -> Load {
    let table = tables().remove("load").unwrap_or_default();
    let count = |key: &str| table.get(key).map_or(1, |sourced| sourced.value as u32);
    Load {
        volumes: count("volumes"),
        timer_slack_ns: table.get("timer-slack").map_or(0.0, |sourced| sourced.value),
        ..Load::unpaced(count("threads"), count("calls-in-flight"), 1)
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
    fn a_machine_file_gives_back_what_was_written() {
        let sourced = |value| Sourced {
            value,
            unit: String::new(),
            origin: terapage_figures::Origin::Measured,
            source: "a test".into(),
        };
        let machine = KEYS.map(|key| (key.to_owned(), sourced(1.0))).into();
        let costs = [("syscall".to_owned(), sourced(123.0))].into();
        let file = MachineFile { machine, costs };
        let read = MachineFile::read(&file.text()).unwrap();
        assert_eq!(read, file);
        assert!(read.machine().drains);
        let mut costs = Costs::builtin();
        read.apply(&mut costs).unwrap();
        assert_eq!(costs.syscall, 123.0);
    }

    #[test]
    fn a_wrong_machine_file_is_refused() {
        let refused = |text: &str| MachineFile::read(text).unwrap_err().to_string();
        assert_eq!(refused("[machine]"), "[machine.cores] is missing");
        assert!(refused("[machines]").contains("unknown field `machines`"));
        let half = r#"{ value = 2.5, unit = "", origin = "measured", source = "a test" }"#;
        let text: String = KEYS.map(|key| format!("{key} = {half}\n")).concat();
        assert_eq!(
            refused(&format!("[machine]\n{text}")),
            "[machine.cores] is 2.5: a whole number is expected"
        );
    }

    #[test]
    fn others_are_not_known() {
        let error = machine("cray").unwrap_err().to_string();
        assert_eq!(error, "unknown machine 'cray'; known are haswell, desktop, polled");
        assert!(machine("load").is_err());
    }
}
