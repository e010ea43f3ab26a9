//! Values of single first impressions, for rows of which this machine has measured nothing, and
//! where each comes from.

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The values, and the machines that they are from.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Once {
    /// What is known of each machine, by name.
    machines: BTreeMap<String, String>,
    values: Vec<Values>,
}

/// The values of one row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    /// What the row's figure shows.
    row: String,
    /// The day, as 2026-11-28.
    date: String,
    /// A name of [`Once::machines`].
    machine: String,
    /// The command that measured them.
    command: String,
    /// In the order of the row's published values.
    values: String,
    /// The unit of the values.
    unit: String,
}

impl Once {
    /// Reads the file that comes with the program.
    ///
    /// # Errors
    /// The file is wrong.
    pub fn read() -> anyhow::Result<Once> {
        toml::from_str(include_str!("../../data/once.toml")).context("once.toml")
    }

    /// The values of a row with their origin, if there are any.
    pub fn of(&self, row: &str) -> Option<String> {
        let own = self.values.iter().find(|values| values.row == row)?;
        let Values { date, machine, command, values, unit, .. } = own;
        let machine = self.machines.get(machine)?;
        Some(format!("once, on {date}, by {command}, on {machine}: {values} ({unit})"))
    }
}

#[cfg(test)]
mod tests {
    use super::Once;
    use crate::list::rows::PAPERS;
    use crate::measured::EXPERIMENTS;
    use clap::Parser;
    use std::collections::BTreeSet;
    use terapage_lab::Kept;

    /// The commands of which rows can be.
    #[derive(Parser)]
    #[command(name = "terapage")]
    enum Terapage {
        #[command(subcommand)]
        Lab(terapage_lab::Command),
        #[command(subcommand)]
        Sim(terapage_sim::Command),
        #[command(subcommand)]
        Paper(crate::Command),
    }

    const UNITS: [&str; 4] = ["MiB/s", "seeks/s", "us", "times"];

    fn parses(command: &str) {
        if let Err(error) = Terapage::try_parse_from(command.split(' ')) {
            panic!("{command}: {error}");
        }
    }

    /// Whether it is a day, as 2026-11-28.
    fn is_day(text: &str) -> bool {
        let parts: Vec<&str> = text.split('-').collect();
        let lens = parts.iter().map(|part| part.len());
        let numbers: Vec<u32> = parts.iter().filter_map(|part| part.parse().ok()).collect();
        lens.eq([4, 2, 2])
            && numbers.len() == 3
            && (1..=12).contains(&numbers[1])
            && (1..=31).contains(&numbers[2])
    }

    #[test]
    fn each_value_has_a_day_a_machine_a_command_and_a_unit() {
        let once = Once::read().expect("the file that comes with the program");
        let rows: Vec<_> = PAPERS.iter().flat_map(|(_, rows)| *rows).collect();
        let mut seen = BTreeSet::new();
        for own in &once.values {
            let found: Vec<_> = rows.iter().filter(|row| row.what == own.row).collect();
            assert!(found.len() == 1 && seen.insert(&own.row), "{}: {} rows", own.row, found.len());
            let row = found[0];
            assert!(!row.experiment.is_empty(), "{}: what nothing measures is said in the row", own.row);
            // It is the row's own command, with less to measure.
            parses(&own.command);
            let rest = own.command.strip_prefix(row.command).unwrap_or_else(|| panic!("{}", own.command));
            assert!(rest.starts_with(" --quick"), "{}", own.command);
            assert!(is_day(&own.date), "{}: {}", own.row, own.date);
            assert!(once.machines.contains_key(&own.machine), "{}: {}", own.row, own.machine);
            assert!(UNITS.contains(&own.unit.as_str()), "{}: {}", own.row, own.unit);
            let text = EXPERIMENTS.iter().find(|(name, _)| *name == row.experiment).map(|(_, text)| *text);
            let published = Kept::default().printed(row.experiment, text).expect("it is shipped");
            let published = published.iter().filter(|one| row.figures.contains(&one.figure.as_str())).count();
            let most = published + row.findings.len() + usize::from(!row.checks.is_empty());
            assert!(own.values.split("; ").count() <= most, "{}: more than {most} values", own.row);
            assert!(once.of(row.what).is_some_and(|said| said.contains(&own.date)));
        }
        assert!(once.of("nothing").is_none());
    }

    #[test]
    fn each_row_has_a_command_that_can_be_typed() {
        for row in PAPERS.iter().flat_map(|(_, rows)| *rows) {
            parses(row.command);
        }
    }

    #[test]
    fn what_is_no_day_is_known() {
        assert!(
            is_day("2026-11-28") && !is_day("2026-13-28") && !is_day("28 November") && !is_day("2026-1-8")
        );
    }
}
