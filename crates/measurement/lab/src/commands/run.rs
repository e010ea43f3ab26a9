//! `lab run` and `lab all`.

use crate::campaign::estimate::estimate;
use crate::campaign::session::Session;
use crate::campaign::{Campaign, Plan, steady};
use crate::commands::costs::{costs, in_minutes};
use crate::commands::quick::Quick;
use crate::commands::running::Running;
use crate::contender::far::Where;
use crate::experiment::{Experiment, SHIPPED};
use crate::ground::chosen::Chosen;
use crate::ground::janitor::{Janitor, OwnedFile};
use crate::ground::runner::End;
use crate::ground::site::PAPER;
use crate::ground::system::now_s;
use crate::result::journal::{self, Group, Record, results_directory};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terapage_rig::Cannot;

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub struct RunOne {
    /// An experiment's name (terapage lab list), or a TOML file
    #[arg(value_name = "NAME|FILE.toml", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    running: Running,
}

/// Options of `all`.
#[derive(Debug, clap::Args)]
pub struct All {
    #[command(flatten)]
    running: Running,
}

impl RunOne {
    /// Runs the named experiments.
    ///
    /// # Errors
    /// An experiment is wrong, or cannot be run.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let experiments: anyhow::Result<Vec<_>> =
            self.names.iter().map(|name| Experiment::find(name)).collect();
        run_all("run", experiments?, &self.running, None)
    }
}

impl All {
    /// Runs all experiments that come with the lab.
    ///
    /// # Errors
    /// An experiment cannot be run.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let experiments: anyhow::Result<Vec<_>> =
            SHIPPED.iter().map(|(name, _)| Experiment::find(name)).collect();
        let mut running = self.running;
        if running.show.html.is_none() && !running.dry_run {
            let name = if running.quick { "lab-quick.html" } else { "lab.html" };
            running.show.html = Some(results_directory(running.results.as_deref())?.join(name));
        }
        running.show.says_where = true;
        let mut experiments = experiments?;
        let mut quick = None;
        if running.quick && running.contenders.is_empty() {
            let chosen = as_chosen(experiments.clone(), &running)?;
            let estimates: anyhow::Result<Vec<_>> =
                chosen.iter().map(|(name, experiment)| Ok((name.clone(), most_s(experiment)?))).collect();
            let kept = Quick::new(estimates?);
            experiments.retain(|(name, _)| !kept.left_out.contains(name));
            if !kept.left_out.is_empty() {
                let _ = writeln!(io::stderr(), "{}", kept.told(&kept.left_out));
            }
            quick = Some(kept);
        }
        run_within("all", experiments, &running, None, quick)
    }
}

/// The most seconds that an experiment takes, by its estimate.
fn most_s(experiment: &Experiment) -> anyhow::Result<f64> {
    Ok(estimate(experiment)?.seconds.1)
}

/// Runs an experiment of another crate as `terapage paper run` does: `text` is its file.
///
/// # Errors
/// The experiment is wrong, or cannot be run.
pub fn run_paper(
    name: &str,
    text: &str,
    running: &Running,
    may_erase: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    let experiment = Experiment::parse(text, name)?;
    run_all(PAPER, vec![(name.to_owned(), experiment)], running, may_erase)
}

/// Runs experiments, on one device after the other. `command`: the word after those that lead to
/// the lab ([`Session::open`]). `may_erase`: a device that may be formatted.
///
/// # Errors
/// An experiment is wrong, or was ended.
pub fn run_all(
    command: &str,
    experiments: Vec<(String, Experiment)>,
    running: &Running,
    may_erase: Option<PathBuf>,
) -> anyhow::Result<ExitCode> {
    run_within(command, experiments, running, may_erase, None)
}

/// As [`run_all`], within the time of `quick`, if it is given.
fn run_within(
    command: &str,
    experiments: Vec<(String, Experiment)>,
    running: &Running,
    may_erase: Option<PathBuf>,
    quick: Option<Quick>,
) -> anyhow::Result<ExitCode> {
    check(running)?;
    let experiments = as_chosen(experiments, running)?;
    let costs = costs_of(&experiments, running)?;
    if running.dry_run {
        io::stdout().lock().write_all(costs.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = open(command, &experiments, running, may_erase)?;
    let _ = io::stderr().write_all(costs.as_bytes());
    let janitor = session.site.janitor.clone();
    let mut course = Course {
        settled: None,
        janitor: &janitor,
        session,
        running,
        place: results_directory(running.results.as_deref())?,
        disk_bytes: most_disk(&experiments)?,
        several: experiments.len() > 1,
        groups: Vec::new(),
        missing: 0,
        quick,
    };
    course.experiments(&experiments)?;
    course.session.progress.clear();
    let mut show = running.show.clone();
    show.left_out = course.quick.take().map(|quick| quick.left_out).unwrap_or_default();
    show.groups("The lab", &course.groups)?;
    Ok(match course.missing {
        0 => status(&course.groups, &running.contenders),
        _ => ExitCode::FAILURE,
    })
}

/// Checks the options.
fn check(running: &Running) -> anyhow::Result<()> {
    running.show.check()?;
    Where::parse(&running.far)?;
    running.device.iter().try_for_each(Chosen::check)
}

/// The experiments with the options applied: quick, without far memory, only with some contenders.
fn as_chosen(
    mut experiments: Vec<(String, Experiment)>,
    running: &Running,
) -> anyhow::Result<Vec<(String, Experiment)>> {
    for (_, experiment) in &mut experiments {
        if running.quick {
            *experiment = experiment.clone().quick();
        }
        // Far memory was not asked for, and there is no store.
        if running.far.is_empty() && !running.contenders.iter().any(|name| name.starts_with("far")) {
            experiment.leave_far();
        }
        if !running.contenders.is_empty() {
            choose(experiment, &running.contenders)?;
        }
    }
    Ok(experiments)
}

/// The expected costs, in words.
fn costs_of(experiments: &[(String, Experiment)], running: &Running) -> anyhow::Result<String> {
    let mut costs = costs(experiments, running.device.len().max(1))?;
    if let Some(seconds) = running.steady {
        let seconds = (seconds as f64, seconds as f64);
        costs += &format!(
            "--steady takes up to {} more on each device, and writes at full speed meanwhile.\n",
            in_minutes(seconds)
        );
    }
    Ok(costs)
}

fn open(
    command: &str,
    experiments: &[(String, Experiment)],
    running: &Running,
    may_erase: Option<PathBuf>,
) -> anyhow::Result<Session> {
    let mut session = Session::open(command, &running.dir, running.timeout())?;
    session.site.may_erase = may_erase;
    session.bounds = running.bounds();
    let plain: Vec<Experiment> = experiments.iter().map(|(_, experiment)| experiment.clone()).collect();
    session.far = running.far(&session, &plain)?;
    Ok(session)
}

/// Experiments under way.
struct Course<'a> {
    /// The device whose speed has settled, and the file that was written for that.
    settled: Option<(String, OwnedFile<'a>)>,
    janitor: &'a Janitor,
    session: Session,
    running: &'a Running,
    /// Where results lie.
    place: PathBuf,
    /// The largest disk space that one of the experiments needs.
    disk_bytes: u64,
    several: bool,
    groups: Vec<Group>,
    /// The number of experiments that this machine cannot run.
    missing: usize,
    /// The time within which all experiments end, if there is one.
    quick: Option<Quick>,
}

impl Course<'_> {
    /// Runs the experiments on each device.
    fn experiments(&mut self, experiments: &[(String, Experiment)]) -> anyhow::Result<()> {
        let devices: Vec<Option<&Chosen>> = match self.running.device.is_empty() {
            true => vec![None],
            false => self.running.device.iter().map(Some).collect(),
        };
        let mut rest = VecDeque::new();
        for device in devices {
            for (name, experiment) in experiments {
                rest.push_back((device, name, experiment, estimate(experiment)?.seconds));
            }
        }
        while let Some((device, name, experiment, (_, estimated_s))) = rest.pop_front() {
            let pace = self.quick.as_ref().map_or(1.0, Quick::pace);
            let later_s = pace * rest.iter().map(|(.., (least_s, _))| least_s).sum::<f64>();
            self.session.bounds.until(self.quick.as_ref().map(|quick| quick.end_of(estimated_s)));
            let begun_s = now_s();
            let done = self.experiment(device, name, experiment, later_s);
            self.goes_on(done)?;
            let runs = self.groups.last().filter(|group| group.head.name == *name);
            let runs =
                runs.map_or(0, |group| group.runs.iter().filter(|run| run.started_s >= begun_s).count());
            let Some(quick) = &mut self.quick else { continue };
            let share = runs as f64 / estimate(experiment)?.runs_most.max(1) as f64;
            quick.did(estimated_s * share.min(1.0));
            let estimates: Vec<(String, f64)> =
                rest.iter().map(|(_, name, _, (_, most_s))| (name.to_string(), *most_s)).collect();
            let dropped = quick.leave_out(&estimates);
            if !dropped.is_empty() {
                rest.retain(|(_, name, ..)| !dropped.contains(name));
                self.session.progress.say(&quick.told(&dropped));
            }
        }
        Ok(())
    }

    fn experiment(
        &mut self,
        chosen: Option<&Chosen>,
        name: &str,
        experiment: &Experiment,
        later_s: f64,
    ) -> anyhow::Result<()> {
        let suffix = if self.running.quick { "-quick" } else { "" };
        let of_device = chosen.map(|chosen| format!("-{}", chosen.name)).unwrap_or_default();
        let path = self.place.join(format!("{name}{of_device}{suffix}.jsonl"));
        let done = match chosen {
            Some(chosen) => choose_device(&mut self.session, chosen, experiment),
            None => Ok(()),
        };
        let done = done.and_then(|()| self.settle(chosen));
        self.session.progress.later(later_s);
        done?;
        let (name, experiment) = (name.to_owned(), experiment.clone());
        let plan = Plan { name, experiment, retries: self.running.retries() };
        finish(&self.session, plan, &path, &mut self.groups)
    }

    /// Writes to a device until its speed settles, if that was requested and not done yet.
    fn settle(&mut self, chosen: Option<&Chosen>) -> anyhow::Result<()> {
        let device = chosen.map(|chosen| chosen.name.clone()).unwrap_or_default();
        let fresh = self.settled.as_ref().is_none_or(|(known, _)| *known != device);
        let Some(seconds) = self.running.steady.filter(|_| fresh) else { return Ok(()) };
        // The previous device gets its blocks back.
        (self.settled, self.session.steady) = (None, None);
        if let Some(class) = chosen.and_then(|chosen| chosen.class) {
            self.session.progress.say(&format!("--steady: {device} is throttled ({})", class.name));
            return Ok(());
        }
        let (steady, file) = steady::reach(&self.session, self.janitor, seconds, self.disk_bytes)?;
        self.session.steady = Some(steady);
        self.settled = Some((device, file));
        Ok(())
    }

    /// After an experiment that this machine cannot run, the others still run.
    fn goes_on(&mut self, done: anyhow::Result<()>) -> anyhow::Result<()> {
        let Err(error) = done else { return Ok(()) };
        if self.several && error.downcast_ref::<Cannot>().is_some() {
            self.session.progress.say(&format!("{error:#}"));
            self.missing += 1;
            return Ok(());
        }
        self.session.progress.clear();
        self.running.show.so_far(&self.groups);
        Err(error)
    }
}

/// The largest disk space that one of the experiments needs at once.
fn most_disk(experiments: &[(String, Experiment)]) -> anyhow::Result<u64> {
    let each: anyhow::Result<Vec<u64>> =
        experiments.iter().map(|(_, experiment)| Ok(estimate(experiment)?.disk_bytes)).collect();
    Ok(each?.into_iter().max().unwrap_or(0))
}

/// Additional bytes of a device that is made for an experiment.
const ROOM: u64 = 256 << 20;

fn choose_device(session: &mut Session, chosen: &Chosen, experiment: &Experiment) -> anyhow::Result<()> {
    let bytes = match experiment.has_own_disks() {
        true => None,
        false => Some(estimate(experiment)?.disk_bytes * 5 / 4 + ROOM),
    };
    session.site.choose(chosen, bytes)
}

/// Keeps only the named contenders.
fn choose(experiment: &mut Experiment, names: &[String]) -> anyhow::Result<()> {
    let known: Vec<String> =
        experiment.all_contenders()?.into_iter().map(|contender| contender.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        anyhow::bail!("--contenders: {unknown} is none of {}", known.join(", "));
    }
    experiment.keep(names);
    Ok(())
}

/// Runs a campaign, and says where its results are. If the campaign is ended early, `groups` also
/// has the results until then; if no contender can take part, the reasons.
///
/// # Errors
/// The campaign is ended early; earlier results are kept.
pub fn finish(session: &Session, plan: Plan, path: &Path, groups: &mut Vec<Group>) -> anyhow::Result<()> {
    let name = plan.name.clone();
    match Campaign::new(session, plan, path).and_then(Campaign::run) {
        Ok(group) => {
            session.progress.say(&format!("{name}: results in {}", path.display()));
            groups.push(group);
            Ok(())
        }
        Err(error) => {
            let known = journal::read(&[path.to_owned()]).unwrap_or_default();
            // If nobody can take part, the page says why.
            let nobody = error.downcast_ref::<Cannot>().is_some();
            let is_shown =
                |group: &Group| !group.runs.is_empty() || nobody && !group.head.left_out.is_empty();
            let last = known.into_iter().rfind(is_shown);
            let kept = match &last {
                Some(group) if !group.runs.is_empty() => {
                    format!(" (the results so far are in {}; the same command goes on)", path.display())
                }
                _ => String::new(),
            };
            groups.extend(last);
            Err(error.context(format!("{name}{kept}")))
        }
    }
}

/// The status says whether a run failed, or one of the contenders in `named` could not take part. A
/// run that was killed, or took too long, is a finding.
pub fn status(groups: &[Group], named: &[String]) -> ExitCode {
    let failed = |record: &Record| matches!(record.run.end, End::Failed(_));
    let misses = |(name, _): &(String, String)| named.contains(name);
    match groups.iter().any(|group| group.runs.iter().any(failed) || group.head.left_out.iter().any(misses)) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::{RunOne, as_chosen, most_s};
    use crate::commands::quick::{ESTIMATED_MOST_S, Quick};
    use crate::experiment::{Experiment, SHIPPED};
    use clap::{Args, FromArgMatches};

    /// The options of a run.
    fn running(words: &[&str]) -> super::Running {
        let command = RunOne::augment_args(clap::Command::new("run"));
        let words = [&["run", "all"], words].concat();
        RunOne::from_arg_matches(&command.get_matches_from(words)).expect("options").running
    }

    #[test]
    fn all_quick_keeps_to_its_time_and_names_what_it_leaves_out() {
        for words in [&["--quick"][..], &["--quick", "--far"]] {
            let running = running(words);
            let all: Vec<_> =
                SHIPPED.iter().map(|(name, _)| Experiment::find(name).expect("it is shipped")).collect();
            let chosen = as_chosen(all, &running).expect("options");
            let estimates: Vec<(String, f64)> = chosen
                .iter()
                .map(|(name, experiment)| (name.clone(), most_s(experiment).expect("terms")))
                .collect();
            let left = Quick::new(estimates.clone()).left_out;
            assert!(!left.is_empty() && left.len() < estimates.len(), "{left:?}");
            let kept = estimates.iter().filter(|(name, _)| !left.contains(name));
            let seconds: f64 = kept.map(|(_, seconds)| seconds).sum();
            assert!(seconds <= ESTIMATED_MOST_S, "{words:?}: {seconds} s");
        }
    }
}
