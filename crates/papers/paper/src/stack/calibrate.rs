//! The model for the user's machine: costs are measured, two of them are fitted, and the other
//! measurements are kept to check the model.

use super::options::parameter;
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;
use terapage_event::MILLISECOND;
use terapage_figures::{Origin, Sourced, processors};
use terapage_probe::{Interface, Reads};
use terapage_report::{Axis, Mark, Parameter, Plot, PlotKind, Series, Study, Table, X};
use terapage_sim::progress::Progress;
use terapage_sim::publish;
use terapage_sim::show::Show;
use terapage_stack::{Experiment, Load, MachineFile, Setup, Stack, Variation};

/// The depths that are measured.
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The depths to which costs are fitted. The others check the model.
const FITTED: [u32; 2] = [1, 32];
/// Bytes of a read.
const READ: usize = 8 << 10;
/// Rows that agree within this many percent count as right. Chosen, not measured.
const WITHIN: f64 = 15.0;
/// Rounds of reads at each depth: the least number, and the most if the rounds differ.
const ROUNDS: u64 = 3;
const ROUNDS_MAX: u64 = 9;
/// The rounds of a depth agree if their middle half lies within this share of their median. Chosen,
/// not measured.
const SETTLED: f64 = 0.15;
/// Seeds for each simulated point.
const SEEDS: u64 = 3;
/// Simulated time for each point.
const SIMULATED_NS: u64 = 60 * MILLISECOND;

/// Measure this machine and fit the model to it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage paper run stack-calibrate --output here.toml
  terapage paper run stack-calibrate --dir /nvme/tmp --output nvme.toml --html nvme.html
  terapage paper run stack --stack virtio --machine here.toml --set threads=1 --set calls=8

This measures the clock, a system call, a switch, a wake-up, an interrupt, the transfer of a cache
line between two processors, and random direct reads of 8 KiB by libaio and io_uring at depths 1 to
64, from a file that it creates. For each interface two costs are fitted to depths 1 and 32; the
other depths check the model. It takes about 20 s; run it on an otherwise idle machine.")]
pub struct Calibrate {
    /// Directory of the file for the reads, which is created and removed
    #[arg(long = "dir", value_name = "DIR", default_value = "/var/tmp")]
    directory: PathBuf,
    /// Bytes of that file, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=65536))]
    size: u64,
    /// Write the machine file here
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// Reads of one interface at one depth, as measured.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Point {
    depth: u32,
    /// Processor time of the thread for a read, us: the median of the rounds.
    thread_us: f64,
    /// The bounds of the middle half of the rounds, or of all if there are three.
    low_us: f64,
    high_us: f64,
    iops: f64,
    /// Calls that waited for results, per read.
    waits: f64,
    /// Latency, median and fast, us.
    latency_us: f64,
    latency_fast_us: f64,
}

impl Point {
    fn is_settled(&self) -> bool {
        self.high_us - self.low_us <= SETTLED * self.thread_us
    }
}

/// The model beside the measurement, at one depth.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Compared {
    point: Point,
    model_us: f64,
    fitted: bool,
}

impl Compared {
    fn off_percent(&self) -> f64 {
        (self.model_us / self.point.thread_us - 1.0) * 100.0
    }
}

/// The depths of each interface.
type Results = BTreeMap<&'static str, Vec<Compared>>;

/// The measured times of single steps, ns.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Steps {
    ghz: f64,
    syscall_ns: f64,
    getevents_ns: f64,
    switch_ns: f64,
    wake_ns: f64,
    sleep_ns: f64,
    interrupt_ns: f64,
    line_ns: f64,
}

impl Steps {
    fn measure() -> anyhow::Result<Steps> {
        Ok(Steps {
            ghz: terapage_probe::clock_ghz(),
            syscall_ns: terapage_probe::syscall_ns(),
            getevents_ns: terapage_probe::empty_getevents_ns()?,
            switch_ns: terapage_probe::switch_ns()?,
            wake_ns: terapage_probe::wake_ns()?.unwrap_or(0.0),
            sleep_ns: terapage_probe::sleep_ns(),
            interrupt_ns: terapage_probe::interrupt_ns()?,
            line_ns: terapage_probe::line_transfer_ns().unwrap_or(0.0),
        })
    }

    fn table(&self) -> Table {
        let rows = [
            ("clock", format!("{:.2}", self.ghz), "GHz"),
            ("system call that does nothing", format!("{:.0}", self.syscall_ns), "ns"),
            ("io_getevents that finds nothing", format!("{:.0}", self.getevents_ns), "ns"),
            ("switch to another thread, with its wake-up", format!("{:.0}", self.switch_ns), "ns"),
            ("waking a thread on another processor", format!("{:.0}", self.wake_ns), "ns"),
            ("sleeping until a timer rings, processor time", format!("{:.0}", self.sleep_ns), "ns"),
            ("interrupt and its handler", format!("{:.0}", self.interrupt_ns), "ns"),
            ("cache line from another processor", format!("{:.0}", self.line_ns), "ns"),
        ];
        Table {
            title: "Steps, measured".into(),
            columns: ["step", "value", "unit"].map(String::from).into(),
            rows: rows.into_iter().map(|(name, value, unit)| vec![name.into(), value, unit.into()]).collect(),
            note: "The tenth percentile of many repetitions.".into(),
        }
    }

    /// The costs of these steps, in cycles.
    fn costs(&self) -> BTreeMap<String, Sourced<f64>> {
        let cycles = |ns: f64, source: &str| Sourced {
            value: (ns * self.ghz).round(),
            unit: "cycles".into(),
            origin: Origin::Measured,
            source: source.into(),
        };
        let timer_ns = (self.sleep_ns - self.switch_ns).max(0.0);
        BTreeMap::from([
            ("user-call".to_owned(), cycles(0.0, "the loop of the reads does nothing else for a call")),
            ("user-io".to_owned(), cycles(60.0, "clock and random place: about 60 ns")),
            ("syscall".to_owned(), cycles(self.syscall_ns, "getppid() in a loop")),
            ("getevents".to_owned(), cycles(self.getevents_ns, "io_getevents() that finds nothing")),
            ("uring-enter".to_owned(), cycles(0.0, "part of uring-dio")),
            ("switch".to_owned(), cycles(self.switch_ns, "two threads and two pipes on one processor")),
            ("wake".to_owned(), cycles(0.0, "part of switch")),
            ("ipi".to_owned(), cycles(self.wake_ns, "write() to a pipe that another processor sleeps at")),
            ("timer".to_owned(), cycles(timer_ns, "a sleep of 50 us, less a switch")),
            ("irq".to_owned(), cycles(self.interrupt_ns, "the gap in a loop that reads the clock")),
        ])
    }
}

impl Calibrate {
    /// Measures, fits, compares, and writes.
    ///
    /// # Errors
    /// A measurement is impossible, or a file cannot be read or written.
    pub fn run(self) -> anyhow::Result<()> {
        self.show.check(None)?;
        if let Some(out) = &self.output {
            publish::check(out, &[]).context("--output")?;
        }
        let (study, file, results) = self.study()?;
        if let Some(out) = &self.output {
            publish::write(out, &file.text())?;
        }
        let text = || self.show.text(&study, true);
        self.show.results(&study, &results, text)
    }

    fn study(&self) -> anyhow::Result<(Study, MachineFile, Results)> {
        let progress = Progress::endless("measuring steps");
        let steps = Steps::measure()?;
        let points = self.own_reads(&progress)?;
        let libaio = points.get("libaio").map(Vec::as_slice).unwrap_or_default();
        ensure!(libaio.len() >= 3, "libaio was measured at {} depths; three are needed", libaio.len());
        progress.phase("fitting the model");
        let mut file = MachineFile { machine: machine(&steps, libaio), costs: steps.costs() };
        let mut compared = BTreeMap::new();
        for (name, stack, each, batch) in [
            ("libaio", Stack::Virtio, "aio-dio", "virtio-kick"),
            ("io_uring", Stack::VirtioUring, "uring-dio", "uring-wait"),
        ] {
            if let Some(points) = points.get(name).filter(|points| points.len() >= 2) {
                compared.insert(name, fit(&mut file, stack, points, [each, batch])?);
            }
        }
        drop(progress);
        Ok((self.page(&steps, &file, &compared), file, compared))
    }

    /// The command's own reads, by both interfaces, at all depths, in turns.
    fn own_reads(&self, progress: &Progress) -> anyhow::Result<BTreeMap<&'static str, Vec<Point>>> {
        const TIME: Duration = Duration::from_millis(350);
        progress.phase("writing the file for the reads");
        let directory = &self.directory;
        let named = || format!("{}: no file for the reads", directory.display());
        let mut file = tempfile::NamedTempFile::new_in(directory).with_context(named)?;
        let mut random = vec![0_u8; 1 << 20];
        std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random))?;
        for _ in 0..self.size {
            file.write_all(&random).with_context(named)?;
        }
        file.as_file().sync_all().with_context(named)?;
        progress.phase("reading");
        progress.steps(ROUNDS * 2 * DEPTHS.len() as u64);
        let mut rounds: BTreeMap<(&'static str, u32), Vec<Reads>> = BTreeMap::new();
        for round in 0..ROUNDS_MAX {
            for interface in [Interface::Libaio, Interface::IoUring] {
                for depth in DEPTHS {
                    let known = rounds.get(&(interface.name(), depth));
                    if round >= ROUNDS && known.is_none_or(|reads| point(depth, reads).is_settled()) {
                        continue;
                    }
                    let read =
                        terapage_probe::read_at_random(file.path(), interface, depth, READ, TIME, round);
                    progress.add(u64::from(round < ROUNDS));
                    match read {
                        Ok(reads) => rounds.entry((interface.name(), depth)).or_default().push(reads),
                        // io_uring may be forbidden, but libaio is needed.
                        Err(_) if interface == Interface::IoUring => {}
                        Err(error) => bail!("{}: {error}", directory.display()),
                    }
                }
            }
        }
        let mut points: BTreeMap<&'static str, Vec<Point>> = BTreeMap::new();
        for ((name, depth), reads) in rounds {
            points.entry(name).or_default().push(point(depth, &reads));
        }
        Ok(points)
    }

    /// The study of all results.
    fn page(
        &self,
        steps: &Steps,
        file: &MachineFile,
        compared: &BTreeMap<&'static str, Vec<Compared>>,
    ) -> Study {
        let mut parameters: Vec<Parameter> = Vec::new();
        parameters.extend(file.machine.iter().map(|(name, value)| parameter(name, value)));
        parameters.extend(file.costs.iter().map(|(name, value)| parameter(name, value)));
        let unsettled = compared.values().flatten().any(|row| !row.point.is_settled());
        let mut summary: Vec<String> = compared.iter().map(|(name, rows)| sentence(name, rows)).collect();
        if unsettled {
            summary.push(format!(
                "The rounds of a depth still differ by more than {:.0} %, after {ROUNDS_MAX} of them: the machine is busy. Repeat this on a quiet one.",
                SETTLED * 100.0
            ));
        }
        Study {
            title: "The I/O stack of this machine: measured, and the model".into(),
            command: "terapage paper run stack-calibrate".into(),
            summary,
            parameters,
            tables: std::iter::once(steps.table())
                .chain(compared.iter().map(|(name, rows)| table(name, rows)))
                .collect(),
            plots: vec![plot(compared)],
            ..Study::default()
        }
    }
}

/// The median of the rounds at one depth.
fn point(depth: u32, reads: &[Reads]) -> Point {
    let mut reads = reads.to_vec();
    reads.sort_by(|a, b| a.thread_us.total_cmp(&b.thread_us));
    let (middle, last) = (reads[reads.len() / 2], reads.len() - 1);
    Point {
        depth,
        thread_us: middle.thread_us,
        low_us: reads[last / 4].thread_us,
        high_us: reads[(3 * last).div_ceil(4)].thread_us,
        iops: middle.iops,
        waits: middle.waits,
        latency_us: middle.latency_us,
        latency_fast_us: middle.latency_fast_us,
    }
}

/// The machine's values.
fn machine(steps: &Steps, libaio: &[Point]) -> BTreeMap<String, Sourced<f64>> {
    let processors = processors() as f64;
    let one = &libaio[0];
    let iops = libaio.iter().map(|point| point.iops).fold(0.0, f64::max);
    let served_us = 1e6 / iops;
    let fixed_us = (one.latency_fast_us - one.thread_us - served_us).max(1.0);
    let random_us = (one.latency_us - one.latency_fast_us).max(0.0);
    // One wait serves all reads of the depth; otherwise each read would need one.
    let deep = libaio.iter().find(|point| point.depth == 16);
    let drains = deep.map_or(1.0, |point| f64::from(u8::from(point.waits * 16.0 < 1.5)));
    let measured = |value: f64, unit: &str, source: &str| Sourced {
        value,
        unit: unit.into(),
        origin: Origin::Measured,
        source: source.into(),
    };
    let estimated = |value: f64, unit: &str, source: &str| Sourced {
        origin: Origin::Estimated,
        ..measured(value, unit, source)
    };
    let whole = |value: f64| value.round();
    let values = [
        ("cores", measured(processors, "", "processors that this process may use")),
        ("smt", estimated(1.0, "", "processors are taken as cores")),
        ("sockets", estimated(1.0, "", "one")),
        ("ghz", measured((steps.ghz * 100.0).round() / 100.0, "GHz", "a chain of multiplications")),
        ("smt-speed", estimated(1.0, "", "not used: no siblings")),
        ("transfer", measured(whole(steps.line_ns), "ns", "two threads that write one line in turn")),
        ("transfer-far", estimated(whole(steps.line_ns), "ns", "not used: one socket")),
        ("hosts", estimated(1.0, "", "one device")),
        ("hw-queues", estimated(0.0, "", "one for each processor")),
        ("front-end", measured(whole(iops), "IOPS", "the highest rate of the reads")),
        (
            "latency-fixed",
            measured(whole(fixed_us * 1e3), "ns", "depth 1: the tenth percentile, less own time"),
        ),
        (
            "latency-random",
            measured(whole(random_us * 1e3), "ns", "depth 1: the median less the tenth percentile"),
        ),
        ("drains", measured(drains, "", "depth 16: whether one wait finds all reads done")),
    ];
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The setup of the reads at a depth.
fn setup(file: &MachineFile, stack: Stack, depth: u32) -> anyhow::Result<Setup> {
    let paper = Experiment { measure_ns: SIMULATED_NS, ..Experiment::paper() };
    let mut setup = paper.setup(stack, None, 1);
    setup.machine = file.machine();
    file.apply(&mut setup.costs)?;
    setup.load =
        Load { threads: 1, calls_in_flight: depth, volumes: 1, variation: Variation::Uniform, ..setup.load };
    setup.check()?;
    Ok(setup)
}

/// Processor time of the thread for a read, in the model, us.
fn thread_us(file: &MachineFile, stack: Stack, depth: u32) -> anyhow::Result<f64> {
    let setup = setup(file, stack, depth)?;
    let repeated = terapage_stack::repeat(std::slice::from_ref(&setup), SEEDS, 1, &|| {})?;
    Ok(repeated[0].mean(|outcome| outcome.thread_us))
}

/// Fits the two `costs`, of each read and of each batch, to the least and a great depth, and
/// compares all.
fn fit(
    file: &mut MachineFile,
    stack: Stack,
    points: &[Point],
    costs: [&str; 2],
) -> anyhow::Result<Vec<Compared>> {
    const ROUNDS: usize = 6;
    let least = &points[0];
    let great = points.iter().find(|point| point.depth == FITTED[1]).unwrap_or(&points[points.len() - 1]);
    let set = |file: &mut MachineFile, cost: &str, cycles: f64| {
        let source = format!("fitted to this machine's reads at depths {} and {}", least.depth, great.depth);
        let value = cycles.clamp(0.0, 1e7).round();
        let fitted = Sourced { value, unit: "cycles".into(), origin: Origin::Fitted, source };
        file.costs.insert(cost.into(), fitted);
    };
    let (mut each, mut batch) = (3000.0_f64, 6000.0_f64);
    for _ in 0..ROUNDS {
        set(file, costs[0], each);
        set(file, costs[1], batch);
        let ghz = file.machine().ghz;
        // A batch's cost is shared by the reads of the depth.
        each += (great.thread_us - thread_us(file, stack, great.depth)?) * 1e3 * ghz;
        each = each.max(0.0);
        set(file, costs[0], each);
        batch += (least.thread_us - thread_us(file, stack, least.depth)?) * 1e3 * ghz;
        batch = batch.max(0.0);
        set(file, costs[1], batch);
    }
    let compare = |point: &Point| -> anyhow::Result<Compared> {
        let fitted = point.depth == least.depth || point.depth == great.depth;
        Ok(Compared { point: *point, model_us: thread_us(file, stack, point.depth)?, fitted })
    };
    points.iter().map(compare).collect()
}

fn sentence(name: &str, rows: &[Compared]) -> String {
    let held: Vec<f64> = rows.iter().filter(|row| !row.fitted).map(|row| row.off_percent().abs()).collect();
    let worst = held.iter().copied().fold(0.0, f64::max);
    let within = held.iter().filter(|&&off| off <= WITHIN).count();
    format!(
        "{name}: {within} of {} held-out depths agree within {WITHIN:.0} %; the worst is {worst:.0} % off.",
        held.len()
    )
}

fn table(name: &str, rows: &[Compared]) -> Table {
    let row = |row: &Compared| {
        vec![
            row.point.depth.to_string(),
            format!("{:.2} ({:.2} to {:.2})", row.point.thread_us, row.point.low_us, row.point.high_us),
            format!("{:.2}", row.model_us),
            format!("{:+.0}", row.off_percent()),
            if row.fitted { "fitted" } else { "held out" }.into(),
            format!("{:.1}", row.point.iops / 1e3),
            format!("{:.2}", row.point.waits),
        ]
    };
    Table {
        title: format!("Processor time for an 8 KiB read, {name}, us"),
        columns: ["depth", "measured", "model", "off, %", "role", "kIOPS", "waits a read"]
            .map(String::from)
            .into(),
        rows: rows.iter().map(row).collect(),
        note: "The time that the kernel counts as the thread's, as fio's usr + sys. Measured: median of the rounds (their middle half)."
            .into(),
    }
}

fn plot(compared: &BTreeMap<&'static str, Vec<Compared>>) -> Plot {
    let series = compared.iter().flat_map(|(name, rows)| {
        let points = |value: fn(&Compared) -> f64| -> Vec<(X, f64)> {
            rows.iter().map(|row| (X::Number(f64::from(row.point.depth)), value(row))).collect()
        };
        [
            Series {
                name: format!("{name}, measured"),
                mark: Mark::Measured,
                points: points(|row| row.point.thread_us),
                ..Series::default()
            },
            Series {
                name: format!("{name}, model"),
                mark: Mark::Simulated,
                points: points(|row| row.model_us),
                ..Series::default()
            },
        ]
    });
    Plot {
        title: "Processor time for an 8 KiB read".into(),
        kind: PlotKind::Line,
        x: Axis { name: "depth".into(), unit: String::new(), log: true },
        y: Axis { name: "thread's time".into(), unit: "us".into(), log: false },
        series: series.collect(),
        note: "Depths 1 and 32 are fitted, the others held out.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Steps {
        Steps {
            ghz: 2.5,
            syscall_ns: 200.0,
            getevents_ns: 300.0,
            switch_ns: 2000.0,
            wake_ns: 2000.0,
            sleep_ns: 5000.0,
            interrupt_ns: 3000.0,
            line_ns: 80.0,
        }
    }

    fn points(each_us: f64, batch_us: f64) -> Vec<Point> {
        let point = |depth: u32| {
            let thread_us = each_us + batch_us / f64::from(depth);
            Point {
                depth,
                thread_us,
                low_us: thread_us,
                high_us: thread_us,
                iops: 1e6 / (20.0 + 80.0 / f64::from(depth)),
                waits: 1.0 / f64::from(depth),
                latency_us: 100.0,
                latency_fast_us: 90.0,
            }
        };
        DEPTHS.map(point).into()
    }

    /// Reads with known costs: one for each read and one for each batch.
    #[test]
    fn a_machine_that_follows_the_model_is_found_again() {
        let points = points(4.2, 16.0);
        let mut file = MachineFile { machine: machine(&steps(), &points), costs: steps().costs() };
        let compared = fit(&mut file, Stack::Virtio, &points, ["aio-dio", "virtio-kick"]).unwrap();
        for row in &compared {
            assert!(row.off_percent().abs() < 15.0, "{row:?}");
        }
        assert_eq!(MachineFile::read(&file.text()).unwrap(), file);
    }

    #[test]
    fn a_round_that_was_disturbed_does_not_count() {
        let rounds = |times: &[f64]| -> Vec<Reads> {
            let one = |&thread_us: &f64| Reads {
                interface: Interface::Libaio,
                depth: 16,
                iops: 6e4,
                thread_us,
                waits: 0.1,
                latency_us: 100.0,
                latency_fast_us: 90.0,
            };
            times.iter().map(one).collect()
        };
        let three = point(16, &rounds(&[7.2, 6.0, 7.3]));
        assert!(!three.is_settled(), "{three:?}");
        let more = point(16, &rounds(&[7.2, 6.0, 7.3, 6.0, 5.9, 6.1, 6.0, 6.1, 5.9]));
        assert!(more.is_settled() && more.thread_us == 6.0, "{more:?}");
        assert!(point(1, &rounds(&[20.0, 21.0, 22.0])).is_settled());
    }
}
