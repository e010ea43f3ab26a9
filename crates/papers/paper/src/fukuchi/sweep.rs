//! `terapage paper run fukuchi-sweep`: every combination of parameters.

use super::{fitted, is_none, pair};
use anyhow::{Context, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use terapage_config::Size;
use terapage_figures::{in_parallel, processors};
use terapage_hybrid::Outcome;
use terapage_sim::progress::Progress;
use terapage_sim::publish::check;
use terapage_volumes::settings::{self, PARAMETERS};
use terapage_volumes::sweep::{Point, Row, before, points};
use terapage_volumes::{Case, Fitted, Workload};

/// The arguments of `terapage paper run fukuchi-sweep`.
#[derive(Args)]
#[command(after_help = "Examples:
  terapage paper run fukuchi-sweep --set scm=1%,5% --set nand=2d-fg-mlc,3d-ct-tlc --volume prxy_0 -o out.jsonl
  terapage paper run fukuchi-sweep --set policy=lru,arc --set scm=2% --volume hm_0,proj_0 -o out.jsonl
  terapage paper run fukuchi-sweep --set depth=1,4,16 --trace mine.csv.gz -o out.jsonl
  terapage paper run fukuchi-sweep --list

Each line of the output is one result, as JSON. A stopped sweep continues if it is started again with
the same output: existing results are not simulated again.")]
pub struct SweepCommand {
    /// A parameter and its values; several parameters are combined
    #[arg(long, value_name = "NAME=VALUE,VALUE...")]
    set: Vec<String>,
    /// Synthetic volumes, or `all`
    #[arg(long, value_name = "NAME,NAME...", value_delimiter = ',')]
    volume: Vec<String>,
    /// A block trace
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: Vec<PathBuf>,
    /// Append results to this file, one per line
    #[arg(short, long, value_name = "FILE", required_unless_present = "list", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Memory that the simulations may occupy together
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    memory: Size,
    /// Read fitted values from a file, for parameters that are not set, or none: use the profiles
    /// as they are [default: built-in values]
    #[arg(long, value_name = "FILE|none")]
    fitted: Option<PathBuf>,
    /// List the parameters
    #[arg(long, exclusive = true)]
    list: bool,
}

/// A point, and its case and workload.
struct Job<'a> {
    point: Point,
    case: Case,
    workload: &'a Workload,
}

impl SweepCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// A parameter is unknown, a value is wrong, or the output cannot be continued.
    pub fn run(self) -> anyhow::Result<()> {
        let Some(output) = self.output.as_deref().filter(|_| !self.list) else { return list() };
        let traces: Vec<&Path> = self.trace.iter().map(PathBuf::as_path).collect();
        check(output, &traces).context("--output")?;
        let workloads = self.workloads()?;
        let named = |workload: &Workload| {
            (workload.name.clone(), workload.path().map(|path| path.display().to_string()))
        };
        let names: Vec<_> = workloads.iter().map(named).collect();
        let all = points(&self.axes()?, &names, !self.fitted.as_deref().is_some_and(is_none))?;
        // Every value is checked before the first simulation.
        let each = workloads.iter().flat_map(|workload| {
            let name = named(workload);
            let of = all.iter().filter(move |point| (&point.volume, &point.trace) == (&name.0, &name.1));
            of.map(move |point| (workload, point))
        });
        let fitted = self.fitted_values()?;
        let jobs = each.map(|(workload, point)| {
            let case = case(&fitted, point)?;
            Ok(Job { point: point.clone(), case, workload })
        });
        let jobs: Vec<Job> = jobs.collect::<anyhow::Result<_>>()?;
        let threads = self.threads(&jobs)?;
        let (mut file, done) = open(output)?;
        let total = jobs.len();
        let jobs: Vec<Job> = jobs.into_iter().filter(|job| !done.contains(&job.point)).collect();
        eprintln!(
            "terapage: {total} points, {} of them there already; {threads} at the same time",
            total - jobs.len()
        );
        let progress = Progress::new("sweeping", jobs.len() as u64);
        in_parallel(
            jobs.len(),
            threads,
            |number| jobs[number].case.run(jobs[number].workload),
            |number, outcome| {
                write(&mut file, &jobs[number], outcome?).with_context(|| format!("{}", output.display()))?;
                progress.add(1);
                Ok::<(), anyhow::Error>(())
            },
        )
    }

    fn axes(&self) -> anyhow::Result<Vec<(String, Vec<String>)>> {
        let axis = |text: &String| {
            let (name, values) = pair(text, "--set", "NAME=VALUE,VALUE...")?;
            Ok((name, values.split(',').map(str::to_owned).collect()))
        };
        self.set.iter().map(axis).collect()
    }

    fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        let mut all = Vec::new();
        for name in &self.volume {
            if name == "all" {
                for name in terapage_volumes::names() {
                    all.push(Workload::synthetic(name)?);
                }
            } else {
                all.push(Workload::synthetic(name)?);
            }
        }
        for path in &self.trace {
            let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            all.push(Workload::trace(&name, path)?);
        }
        if all.is_empty() {
            bail!("there are no requests to sweep with; give --volume NAME or --trace FILE");
        }
        Ok(all)
    }

    fn fitted_values(&self) -> anyhow::Result<Fitted> {
        fitted(self.fitted.as_deref())
    }

    /// As many simulations as cores and memory allow.
    fn threads(&self, jobs: &[Job]) -> anyhow::Result<usize> {
        let mut largest = 1;
        for job in jobs {
            let bytes = job.case.memory_bytes(job.workload)?;
            if bytes > self.memory.0 {
                let (need, cap) = (bytes >> 20, self.memory.0 >> 20);
                bail!(
                    "{} with {:?} takes about {need} MiB, and --memory is {cap} MiB",
                    job.point.volume,
                    job.point.settings
                );
            }
            largest = largest.max(bytes);
        }
        let fits = usize::try_from(self.memory.0 / largest).unwrap_or(usize::MAX);
        Ok(processors().clamp(1, fits.max(1)))
    }
}

fn list() -> anyhow::Result<()> {
    let width = PARAMETERS.iter().map(|parameter| parameter.name.len()).max().unwrap_or(0);
    let lines: String = PARAMETERS
        .iter()
        .map(|parameter| format!("{:width$}  {}\n", parameter.name, parameter.about))
        .collect();
    Ok(std::io::stdout().lock().write_all(lines.as_bytes())?)
}

fn case(fitted: &Fitted, point: &Point) -> anyhow::Result<Case> {
    let nand = point.settings.get("nand").map_or("2d-fg-mlc", String::as_str);
    let mut case = fitted.case(&Case::default(), nand)?;
    let settings: Vec<(String, String)> = point
        .settings
        .iter()
        .filter(|(name, _)| *name != "nand")
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    settings::apply(&mut case, &settings)?;
    Ok(case)
}

/// Opens the output to continue it. An incomplete last line is dropped, with a message.
fn open(path: &Path) -> anyhow::Result<(File, BTreeSet<Point>)> {
    let shown = path.display();
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        text => text.with_context(|| format!("{shown}"))?,
    };
    let before = before(&text).with_context(|| format!("{shown}"))?;
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).open(path).with_context(|| format!("{shown}"))?;
    if before.cut_bytes > 0 {
        eprintln!(
            "terapage: {shown}: the last line was incomplete after {} bytes; dropped",
            before.cut_bytes
        );
        file.set_len(before.whole_bytes as u64).with_context(|| format!("{shown}"))?;
    }
    Ok((file, before.points.into_iter().collect()))
}

/// Writes a line in one call, so that only the last line can be incomplete.
fn write(file: &mut File, job: &Job, mut outcome: Outcome) -> anyhow::Result<()> {
    outcome.distribution.clear();
    let row = Row {
        point: &job.point,
        synthetic: job.workload.is_synthetic(),
        nand_read_share: outcome.nand_read_share(),
        nand_write_share: outcome.nand_write_share(),
        hit_ratio: outcome.hit_ratio(),
        write_amplification: outcome.write_amplification(),
        outcome: &outcome,
    };
    Ok(file.write_all((serde_json::to_string(&row)? + "\n").as_bytes())?)
}
