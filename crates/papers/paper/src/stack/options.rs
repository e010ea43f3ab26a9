//! Options that the studies of the I/O stack share.

use anyhow::{Context, bail};
use clap::Args;
use terapage_event::MILLISECOND;
use terapage_figures::Sourced;
use terapage_report::{Parameter, Study};
use terapage_sim::publish::quoted;
use terapage_sim::show::Show;
use terapage_stack::{Costs, Experiment, Mechanism, machine_values};

/// The simulated setups, and the time for each.
#[derive(Args, Clone)]
pub struct Options {
    /// Switch mechanisms off: queue-lock, host-lock, plugging, cache-transfer, waiter-storm, smt,
    /// remote-completion, coalescing, call-sharing, front-end.
    #[arg(long, value_name = "MECHANISM", value_delimiter = ',')]
    pub without: Vec<Mechanism>,
    /// Seeds for each point, for the spread of the results [default: 3; for
    /// mechanisms 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Simulated milliseconds for each point, after a warm-up of a fifth of them.
    #[arg(long, value_name = "MS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=5000))]
    pub time: u64,
    /// Set one cost, in CPU cycles: aio-dio=3000.
    #[arg(long, value_name = "NAME=VALUE")]
    pub cost: Vec<String>,
    #[command(flatten)]
    pub show: Show,
}

impl Options {
    /// Seeds for each point.
    pub fn seeds(&self) -> u64 {
        self.seeds.unwrap_or(3)
    }

    /// The report's experiment, with the changes of the options.
    pub fn experiment(&self) -> anyhow::Result<Experiment> {
        self.experiment_at(Costs::builtin())
    }

    /// The same, but starting from other costs, which the options change.
    pub fn experiment_at(&self, mut costs: Costs) -> anyhow::Result<Experiment> {
        self.apply_costs(&mut costs)?;
        Ok(Experiment {
            costs,
            mechanisms: self.without.iter().copied().collect(),
            seeds: self.seeds(),
            seed: self.seed,
            measure_ns: self.time * MILLISECOND,
            ..Experiment::paper()
        })
    }

    /// Replaces costs by those of the command line.
    fn apply_costs(&self, costs: &mut Costs) -> anyhow::Result<()> {
        for cost in &self.cost {
            let Some((name, value)) = cost.split_once('=') else {
                bail!("--cost {cost} has no value; write NAME=VALUE");
            };
            let value: f64 = value.parse().ok().with_context(|| {
                format!(
                    "--cost {cost}: not a \
                                                                         number"
                )
            })?;
            costs.set(name, value)?;
        }
        Ok(())
    }

    /// A study with this title, and with the command that makes it again.
    pub fn study(&self, title: &str, command: &str) -> Study {
        let mut words = vec![format!("terapage {command}")];
        if !self.without.is_empty() {
            let names: Vec<_> = self.without.iter().map(|mechanism| mechanism.name()).collect();
            words.push(format!("--without {}", names.join(",")));
        }
        words.push(format!("--seeds {} --seed {} --time {}", self.seeds(), self.seed, self.time));
        words.extend(self.cost.iter().map(|cost| format!("--cost {}", quoted(cost))));
        Study { title: title.into(), command: words.join(" "), ..Study::default() }
    }
}

/// The costs and the values of a machine or load as a study's parameters.
pub fn parameters(costs: &Costs, tables: &[&str]) -> anyhow::Result<Vec<Parameter>> {
    let mut parameters: Vec<Parameter> = costs.all().map(|(name, cost)| parameter(name, cost)).collect();
    for table in tables {
        let values = machine_values(table)?;
        parameters.extend(values.iter().map(|(name, value)| parameter(&format!("{table} {name}"), value)));
    }
    Ok(parameters)
}

pub fn parameter(name: &str, known: &Sourced<f64>) -> Parameter {
    Parameter::sourced(name, known.value.to_string(), known)
}

/// The machine of the report, for a study's head.
pub fn machine_lines(experiment: &Experiment) -> Vec<(String, String)> {
    let machine = &experiment.machine;
    let load = &experiment.load;
    vec![
        ("model".into(), "discrete events; no hardware was measured".into()),
        ("CPU".into(), format!("{} cores x {} at {} GHz", machine.cores, machine.smt, machine.ghz)),
        ("hosts".into(), format!("{}, together {} kIOPS", machine.hosts, machine.front_end_iops / 1e3)),
        ("load".into(), format!("{} threads, {} volumes", load.threads, load.volumes)),
    ]
}
