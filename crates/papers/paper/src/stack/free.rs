//! A setup that the user defines.

use super::options::{Options, parameter, parameters};
use anyhow::Context;
use clap::{ArgAction, Args};
use serde::Serialize;
use std::collections::BTreeMap;
use terapage_event::MILLISECOND;
use terapage_figures::map;
use terapage_report::{Origin, Parameter, Study, Table};
use terapage_sim::progress::Progress;
use terapage_sim::set::{Set, yes};
use terapage_stack::{
    Activity, Arrivals, Costs, LockKind, MACHINES, MachineFile, Outcome, Repeated, Setup, Stack, machine, run,
};

/// One setup of your own.
#[derive(Args, Clone)]
#[command(after_help = "Examples:
  terapage paper run stack --stack scsi --rate 800k
  terapage paper run stack --stack scsi --set cores=10 --set threads=20 --rate 800k
  terapage paper run stack --stack mq-scsi --set hw-queues=1 --rate 600k --json -
  terapage paper run stack --stack uring --machine polled --set threads=1 --set calls=4
  terapage paper run stack --stack virtio --machine here.toml --set threads=1 --set calls=8

Stacks: scsi, nvme (Linux 3.10), mq-scsi, mq-nvme, uring, mq-deadline, bfq, virtio, virtio-uring.
Machines: haswell, desktop, polled, or a file that `terapage paper run stack-calibrate` wrote.")]
pub struct Run {
    /// The software: scsi, nvme, mq-scsi, mq-nvme, uring, mq-deadline, bfq, virtio, virtio-uring.
    #[arg(long)]
    stack: Stack,
    /// The machine to start from: haswell (the report's), desktop, polled, or a machine file.
    #[arg(long, default_value = "haswell")]
    machine: String,
    /// I/Os per second: 800k, 1.2M [default: as many as possible].
    #[arg(long, value_parser = iops)]
    rate: Option<f64>,
    #[command(flatten)]
    set: Set<Own>,
    #[command(flatten)]
    options: Options,
}

/// What differs from the machine and the load of the start.
#[derive(Args, Clone, Debug)]
pub struct Own {
    /// Cores
    #[arg(long)]
    cores: Option<u32>,
    /// Logical CPUs of a core
    #[arg(long)]
    smt: Option<u32>,
    /// Sockets; the cores are spread over them evenly
    #[arg(long)]
    sockets: Option<u32>,
    /// Hosts (controllers)
    #[arg(long)]
    hosts: Option<u32>,
    /// Hardware queues of a host; 0 for one per core
    #[arg(long)]
    hw_queues: Option<u32>,
    /// Spinlocks: ticket, unfair, queued
    #[arg(long)]
    lock: Option<LockKind>,
    /// The front end's limit, IOPS: 1300k
    #[arg(long, value_parser = iops)]
    front_end: Option<f64>,
    /// Threads
    #[arg(long)]
    threads: Option<u32>,
    /// System calls of a thread under way at once
    #[arg(long)]
    calls: Option<u32>,
    /// I/Os of a system call
    #[arg(long, default_value_t = 1)]
    multiplicity: u32,
    /// Volumes
    #[arg(long)]
    volumes: Option<u32>,
    /// The chance that an I/O continues the previous one of its call, and merges
    #[arg(long, default_value_t = 0.0)]
    sequential: f64,
    /// Whether each I/O of a call goes to another volume
    #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "no")]
    spread: bool,
    /// Whether pauses are exponentially distributed, not even
    #[arg(long, action = ArgAction::Set, value_parser = yes, default_value = "no")]
    poisson: bool,
}

/// Takes a parameter back.
type Reset = fn(&mut Own);

/// The parameters, and what takes each of them back.
const RESETS: [(&str, Reset); 14] = [
    ("cores", |own| own.cores = None),
    ("smt", |own| own.smt = None),
    ("sockets", |own| own.sockets = None),
    ("hosts", |own| own.hosts = None),
    ("hw-queues", |own| own.hw_queues = None),
    ("lock", |own| own.lock = None),
    ("front-end", |own| own.front_end = None),
    ("threads", |own| own.threads = None),
    ("calls", |own| own.calls = None),
    ("multiplicity", |own| own.multiplicity = 1),
    ("volumes", |own| own.volumes = None),
    ("sequential", |own| own.sequential = 0.0),
    ("spread", |own| own.spread = false),
    ("poisson", |own| own.poisson = false),
];

/// The figures of one seed, as the JSON has them.
#[derive(Debug, Serialize)]
pub struct Figures {
    seed: u64,
    iops: f64,
    cpu_use: f64,
    kernel_use: f64,
    contention: f64,
    latency_mean_us: f64,
    latency_p99_us: f64,
    interrupts_per_io: f64,
    thread_us: f64,
    calls_under_way: f64,
    /// Busy time for an I/O, by activity.
    busy_us: BTreeMap<&'static str, f64>,
}

impl Figures {
    /// The figures of runs, whose seeds follow one another from `seed` on.
    pub fn all(repeated: &Repeated, seed: u64) -> Vec<Figures> {
        (seed..).zip(&repeated.outcomes).map(Figures::of).collect()
    }

    fn of((seed, outcome): (u64, &Outcome)) -> Figures {
        Figures {
            seed,
            iops: outcome.iops,
            cpu_use: outcome.cpu_use(),
            kernel_use: outcome.kernel_use(),
            contention: outcome.contention(),
            latency_mean_us: outcome.latency_mean_us,
            latency_p99_us: outcome.latency_p99_us,
            interrupts_per_io: outcome.interrupts_per_io,
            thread_us: outcome.thread_us,
            calls_under_way: outcome.calls_under_way,
            busy_us: Activity::ALL.map(|activity| (activity.name(), outcome.us(activity))).into(),
        }
    }
}

/// A rate counts as reached if at least this share of it is. Chosen, not measured.
const REACHED: f64 = 0.995;

/// As many calls as may be are under way if at least this share of them is. Chosen, not measured.
const REACHED_CALLS: f64 = 0.95;

/// A look at the beginning of a run. Chosen, not measured.
const BRIEF_NS: u64 = 2 * MILLISECOND;

/// Reads a rate: 800000, 800k, 1.2M.
fn iops(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate * factor),
        _ => Err("not a rate; write 800000, 800k or 1.2M".into()),
    }
}

impl Run {
    /// Simulates it and shows the study.
    ///
    /// # Errors
    /// The setup is impossible, or a file cannot be read or written.
    pub fn run(self) -> anyhow::Result<()> {
        self.options.show.check(None)?;
        let (study, results) = self.simulated()?;
        let show = &self.options.show;
        show.results(&study, &results, || show.text(&study, true))
    }

    /// Simulates it. Returns the study, and the figures of each seed.
    pub fn simulated(&self) -> anyhow::Result<(Study, Vec<Figures>)> {
        let setup = self.setup()?;
        let options = &self.options;
        let progress = Progress::new("simulating", options.seeds());
        let setups = std::slice::from_ref(&setup);
        let repeated = terapage_stack::repeat(setups, options.seeds(), options.seed, &|| progress.add(1))?;
        let unused = repeated.first().map(|repeated| self.unused(&setup, repeated)).unwrap_or_default();
        drop(progress);
        let mut study = options.study(&format!("{}, simulated", self.stack.title()), &self.command());
        study.summary = vec!["Simulated; no hardware was measured.".into()];
        study.summary.extend(repeated.first().and_then(|repeated| self.missed(repeated)));
        study.summary.extend(repeated.first().and_then(|repeated| fewer(&setup, repeated)));
        study.summary.extend(unused);
        study.parameters = match self.machine_file()? {
            None => parameters(&setup.costs, &[&self.machine])?,
            Some(file) => {
                let mut all = parameters(&setup.costs, &[])?;
                let named = file.machine.iter();
                all.extend(named.map(|(name, value)| parameter(&format!("{} {name}", self.machine), value)));
                all
            }
        };
        self.choose(&mut study.parameters);
        study.parameters.extend(chosen(&setup));
        study.tables = repeated.first().map(result_table).into_iter().collect();
        study.tables.extend(repeated.first().map(time_table));
        let figures = repeated.first().map(|repeated| Figures::all(repeated, options.seed));
        Ok((study, figures.unwrap_or_default()))
    }

    /// Puts the user's values in the place of the machine's.
    fn choose(&self, parameters: &mut [Parameter]) {
        let counts = [
            ("cores", self.set.cores),
            ("smt", self.set.smt),
            ("sockets", self.set.sockets),
            ("hosts", self.set.hosts),
            ("hw-queues", self.set.hw_queues),
        ];
        let counts = counts.into_iter().filter_map(|(name, value)| Some((name, f64::from(value?))));
        for (name, value) in counts.chain(self.set.front_end.map(|rate| ("front-end", rate))) {
            let name = format!("{} {name}", self.machine);
            for parameter in parameters.iter_mut().filter(|parameter| parameter.name == name) {
                parameter.value = value.to_string();
                parameter.origin = Origin::Chosen;
                parameter.source = "the command line".into();
            }
        }
    }

    /// The machine file, if `--machine` names one.
    fn machine_file(&self) -> anyhow::Result<Option<MachineFile>> {
        let name = &self.machine;
        if MACHINES.contains(&name.as_str()) || !(name.contains('/') || name.contains('.')) {
            return Ok(None);
        }
        let text = std::fs::read_to_string(name).with_context(|| format!("--machine {name}"))?;
        Ok(Some(MachineFile::read(&text).with_context(|| format!("--machine {name}"))?))
    }

    fn setup(&self) -> anyhow::Result<Setup> {
        let file = self.machine_file()?;
        let mut costs = Costs::builtin();
        if let Some(file) = &file {
            file.apply(&mut costs)?;
        }
        let experiment = self.options.experiment_at(costs)?;
        let mut setup = experiment.setup(self.stack, self.rate, self.set.multiplicity);
        match file {
            None => setup.machine = machine(&self.machine)?,
            Some(file) => {
                setup.machine = file.machine();
                setup.load.volumes = 1;
            }
        }
        let (machine, load) = (&mut setup.machine, &mut setup.load);
        let set = |slot: &mut u32, value: Option<u32>| *slot = value.unwrap_or(*slot);
        set(&mut machine.cores, self.set.cores);
        set(&mut machine.smt, self.set.smt);
        set(&mut machine.sockets, self.set.sockets);
        set(&mut machine.hosts, self.set.hosts);
        set(&mut machine.hw_queues, self.set.hw_queues);
        set(&mut load.threads, self.set.threads);
        set(&mut load.calls_in_flight, self.set.calls);
        set(&mut load.volumes, self.set.volumes);
        machine.lock = self.set.lock.unwrap_or(machine.lock);
        machine.front_end_iops = self.set.front_end.unwrap_or(machine.front_end_iops);
        load.sequential = self.set.sequential;
        load.spread = self.set.spread;
        if self.set.poisson {
            load.arrivals = Arrivals::Poisson;
        }
        setup.check()?;
        Ok(setup)
    }

    /// Says by how much a rate that was asked for is missed.
    fn missed(&self, repeated: &Repeated) -> Option<String> {
        let (asked, reached) = (self.rate?, repeated.mean(|outcome| outcome.iops));
        let missed = reached < asked * REACHED;
        missed.then(|| format!("{asked} IOPS were asked for, and {reached:.0} are reached."))
    }

    /// This run without each of the options that were given, and the name of that option.
    fn one_less(&self) -> Vec<(String, Run)> {
        let mut all = Vec::new();
        let mut less = |name: String, change: &dyn Fn(&mut Run)| {
            let mut run = self.clone();
            change(&mut run);
            all.push((name, run));
        };
        for (name, reset) in RESETS {
            less(format!("--set {name}"), &|run| reset(run.set.get_mut()));
        }
        for (at, mechanism) in self.options.without.iter().enumerate() {
            less(format!("--without {}", mechanism.name()), &|run| {
                run.options.without.remove(at);
            });
        }
        for (at, cost) in self.options.cost.iter().enumerate() {
            let name = cost.split('=').next().unwrap_or_default();
            less(format!("--cost {name}"), &|run| {
                run.options.cost.remove(at);
            });
        }
        all
    }

    /// Names the options that were given and change nothing: without each of them, the first seed
    /// has the same outcome, to the last nanosecond.
    fn unused(&self, given: &Setup, repeated: &Repeated) -> Option<String> {
        let outcome = repeated.outcomes.first()?;
        let seed = self.options.seed;
        let brief = |setup: &Setup| Setup { warm_ns: 0, measure_ns: BRIEF_NS, ..setup.clone() };
        let soon = run(&brief(given), seed).ok()?;
        let changes_nothing = |less: &Run| {
            // A setup that is impossible without the option needs the option.
            let Ok(setup) = less.setup() else { return false };
            // Most that have an effect show it soon.
            setup != *given
                && run(&brief(&setup), seed).is_ok_and(|found| found == soon)
                && run(&setup, seed).is_ok_and(|found| found == *outcome)
        };
        let less = self.one_less();
        let found = map(less.len(), |at| changes_nothing(&less[at].1));
        let names = less.iter().zip(found).filter(|(_, nothing)| *nothing).map(|(one, _)| one.0.as_str());
        let names: Vec<&str> = names.collect();
        (!names.is_empty())
            .then(|| format!("Without effect here: {} (each alone can be left out).", names.join(", ")))
    }

    /// The words that repeat this run, without the shared options.
    fn command(&self) -> String {
        let mut words =
            vec![format!("paper run stack --stack {} --machine {}", self.stack.name(), self.machine)];
        let counts = [
            ("cores", self.set.cores),
            ("smt", self.set.smt),
            ("sockets", self.set.sockets),
            ("hosts", self.set.hosts),
            ("hw-queues", self.set.hw_queues),
            ("threads", self.set.threads),
            ("calls", self.set.calls),
            ("multiplicity", Some(self.set.multiplicity)),
            ("volumes", self.set.volumes),
        ];
        words.extend(
            counts.iter().filter_map(|(name, value)| value.map(|value| format!("--set {name}={value}"))),
        );
        words.extend(self.set.lock.map(|lock| format!("--set lock={}", lock.name())));
        words.extend(self.set.front_end.map(|rate| format!("--set front-end={rate}")));
        words.extend(self.rate.map(|rate| format!("--rate {rate}")));
        if self.set.sequential > 0.0 {
            words.push(format!("--set sequential={}", self.set.sequential));
        }
        let flags = [("spread", self.set.spread), ("poisson", self.set.poisson)];
        words.extend(flags.iter().filter(|flag| flag.1).map(|flag| format!("--set {}=yes", flag.0)));
        words.join(" ")
    }
}

/// Says that the threads keep fewer calls under way than they may, since they are the bottleneck.
fn fewer(setup: &Setup, repeated: &Repeated) -> Option<String> {
    let most = f64::from(setup.load.threads * setup.load.calls_in_flight);
    let under_way = repeated.mean(|outcome| outcome.calls_under_way);
    (setup.load.rate_iops.is_none() && under_way < most * REACHED_CALLS).then(|| {
        format!(
            "{most:.0} calls may be under way, and {under_way:.1} are: the threads are the bottleneck. Latency counts \
             until they have taken the results."
        )
    })
}

/// The parameters that the user chose.
fn chosen(setup: &Setup) -> Vec<Parameter> {
    let load = &setup.load;
    let rate = load.rate_iops.map_or("as high as can be".into(), |rate| rate.to_string());
    let pairs = [
        ("load rate", rate, "IOPS"),
        ("load threads", load.threads.to_string(), ""),
        ("load calls-in-flight", load.calls_in_flight.to_string(), ""),
        ("load multiplicity", load.multiplicity.to_string(), "I/Os a call"),
        ("load volumes", load.volumes.to_string(), ""),
        ("load sequential", load.sequential.to_string(), "share"),
        ("load spread", if load.spread { "yes" } else { "no" }.into(), ""),
        ("load pauses", if load.arrivals == Arrivals::Poisson { "exponential" } else { "even" }.into(), ""),
        ("lock", setup.machine.lock.name().into(), ""),
    ];
    let parameter = |(name, value, unit): (&str, String, &str)| Parameter {
        name: name.into(),
        value,
        unit: unit.into(),
        origin: Origin::Chosen,
        source: "the command line, or the report's load".into(),
    };
    pairs.into_iter().map(parameter).collect()
}

fn result_table(repeated: &Repeated) -> Table {
    type Value = fn(&Outcome) -> f64;
    let rows: [(&str, &str, Value); 9] = [
        ("rate", "kIOPS", |outcome| outcome.iops / 1e3),
        ("CPU use", "%", |outcome| outcome.cpu_use() * 100.0),
        ("CPU use, kernel", "%", |outcome| outcome.kernel_use() * 100.0),
        ("contention", "% of busy time", |outcome| outcome.contention() * 100.0),
        ("latency, mean", "us", |outcome| outcome.latency_mean_us),
        ("latency, 99 %", "us", |outcome| outcome.latency_p99_us),
        ("interrupts", "for an I/O", |outcome| outcome.interrupts_per_io),
        ("thread's time", "us for an I/O", |outcome| outcome.thread_us),
        ("calls under way", "", |outcome| outcome.calls_under_way),
    ];
    let row = |(name, unit, value): (&str, &str, Value)| {
        let spread = repeated.spread(value);
        vec![name.into(), spread.shown(1.0, 2), unit.into()]
    };
    Table {
        title: "Result".into(),
        columns: ["quantity", "mean", "unit"].map(String::from).into(),
        rows: rows.into_iter().map(row).collect(),
        note: "± is half of the 95 % interval over the seeds. Latency counts from when the program wanted the I/O."
            .into(),
    }
}

fn time_table(repeated: &Repeated) -> Table {
    let total_us = repeated.mean(Outcome::total_us);
    let row = |name: &str, us: f64| {
        vec![name.into(), format!("{us:.3}"), format!("{:.1}", us / total_us.max(f64::MIN_POSITIVE) * 100.0)]
    };
    let rows =
        Activity::ALL.map(|activity| row(activity.name(), repeated.mean(|outcome| outcome.us(activity))));
    Table {
        title: "Busy time of logical CPUs for an I/O".into(),
        columns: ["activity", "us", "%"].map(String::from).into(),
        rows: rows.into_iter().chain([row("all", total_us)]).collect(),
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_suffixes() {
        assert_eq!(iops("800k"), Ok(800e3));
        assert_eq!(iops("1.2M"), Ok(1.2e6));
        assert_eq!(iops("5000"), Ok(5000.0));
        for wrong in ["", "k", "-1k", "infk", "800 k", "8e400"] {
            assert!(iops(wrong).is_err(), "{wrong}");
        }
    }
}
