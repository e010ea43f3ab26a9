//! Runs an experiment, cell by cell, in rounds, until its ratios are known well enough. Each run is
//! on disk before the next begins, so that the same command can continue later.

pub mod bounds;
pub mod checks;
pub mod estimate;
pub mod once;
pub mod probe;
pub mod progress;
pub mod session;
pub mod steady;
pub mod text;

use crate::campaign::checks::{impossible, judged, stamps, written};
use crate::campaign::estimate::{entrants, estimate};
use crate::campaign::probe::{hold, nobody, probe};
use crate::campaign::progress::clock;
use crate::campaign::session::Session;
use crate::contender::run::Run;
use crate::experiment::{Cell, Contender, Experiment, Under, words};
use crate::ground::janitor::{Held, OwnedFile};
use crate::ground::room::free_bytes;
use crate::ground::runner::End;
use crate::ground::system::{Watch, Watched, now_s};
use crate::result::journal::{Group, Head, Journal, Line, Record};
use crate::result::pairs::order;
use crate::result::solve::{AGAIN, is_settled, of_cell};
use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terapage_config::Size;
use terapage_rig::{Cannot, tools};

/// How an experiment is run.
pub struct Plan {
    /// Its name.
    pub name: String,
    /// The experiment.
    pub experiment: Experiment,
    /// The number of times that a disturbed run is repeated.
    pub retries: u32,
}

/// An experiment under way.
pub struct Campaign<'a> {
    session: &'a Session,
    plan: Plan,
    journal: Journal,
    group: Group,
    /// Settings of the device, restored at the end.
    _held: Vec<Held<'a>>,
    /// The file that `{file}` names, which is kept through all runs.
    file: OwnedFile<'a>,
    text: Option<PathBuf>,
    left_out: Vec<String>,
    /// The expected outputs, by cell and pass.
    expected: BTreeMap<(String, String), String>,
    begun: Instant,
    done: usize,
}

impl<'a> Campaign<'a> {
    /// Opens the results, and finds out which contenders can take part.
    ///
    /// # Errors
    /// The results cannot be written, or the disk is too small.
    pub fn new(session: &'a Session, plan: Plan, results: &Path) -> anyhow::Result<Campaign<'a>> {
        let (site, experiment) = (&session.site, &plan.experiment);
        let estimate = estimate(experiment)?;
        let room = free_bytes(&site.directory).unwrap_or(u64::MAX);
        ensure!(
            estimate.disk_bytes < room,
            "--dir {}: {} of disk needed, {} free",
            site.directory.display(),
            Size(estimate.disk_bytes),
            Size(room)
        );
        for program in &experiment.program.needs {
            tools::find(program).map_err(Cannot)?;
        }
        let (mut journal, groups) = Journal::open(results)?;
        let file = OwnedFile::new(&site.janitor, site.path(&format!("{}.file", plan.name)))?;
        let (left_out, why) = probe(session, &plan, file.path())?;
        let held = hold(site, &plan.experiment)?;
        // The settings of the machine now.
        let mut machine = session.machine();
        machine.flush_us = site.flush_us();
        let head = Head::new(&plan.name, experiment, machine, why);
        let known = groups.into_iter().find(|group| group.head.group == head.group);
        let group = match known {
            Some(mut group) => {
                session.progress.say(&format!("{}: goes on after {} runs", plan.name, group.runs.len()));
                // A failed run may not fail again: a tool was missing, or the disk was full.
                group.runs.retain(|record| !matches!(record.run.end, End::Failed(_)));
                group
            }
            None => {
                journal.append(&Line::Head(Box::new(head.clone())))?;
                Group { head, runs: Vec::new() }
            }
        };
        let text = match &experiment.program.text {
            Some(term) => {
                let cell = experiment.cells().into_iter().next().unwrap_or_default();
                let sizes = experiment.sizes_of(&cell)?;
                Some(text::text(site, experiment.term("program.text", term, &cell, &sizes)?, 1)?)
            }
            None => None,
        };
        let (expected, begun) = (BTreeMap::new(), Instant::now());
        let known: Vec<_> = group.runs.iter().filter(|record| record.run.end == End::Done).cloned().collect();
        let mut campaign = Campaign {
            session,
            plan,
            journal,
            group,
            _held: held,
            file,
            text,
            left_out,
            expected,
            begun,
            done: 0,
        };
        for mut record in known {
            let cell = record.cell.clone();
            campaign.compare(&cell, &mut record.run, record.output.as_ref());
        }
        Ok(campaign)
    }

    /// Does the missing runs; returns all runs.
    ///
    /// # Errors
    /// The lab must stop, or the results cannot be written; earlier results are kept.
    pub fn run(mut self) -> anyhow::Result<Group> {
        let cells = self.plan.experiment.cells();
        let least = self.plan.experiment.repetitions.least as usize;
        let mut planned = Vec::new();
        for (i, cell) in cells.iter().enumerate() {
            let mut all = entrants(&self.plan.experiment, cell, i == 0)?;
            all.retain(|contender| !self.left_out.iter().any(|name| name == name_of(contender)));
            planned.push((cell.clone(), all));
        }
        let names: Vec<&str> = planned.iter().flat_map(|(_, all)| all).map(|c| c.name.as_str()).collect();
        ensure!(!names.is_empty(), Cannot(nobody(&self.group.head.left_out)));
        self.session.progress.expect(names.len() * least);
        for (at, (cell, all)) in planned.iter().enumerate() {
            if at > 0 && self.session.bounds.is_over() {
                let (missing, name) = (planned.len() - at, &self.plan.name);
                self.session.progress.leave(planned[at..].iter().map(|(_, all)| all.len() * least).sum());
                let told = format!("{name}: no time for {missing} of {} cells", planned.len());
                self.session.progress.say(&told);
                break;
            }
            self.cell(cell, all)?;
        }
        Ok(self.group)
    }

    fn cell(&mut self, cell: &Cell, all: &[Contender]) -> anyhow::Result<()> {
        let repetitions = self.plan.experiment.repetitions;
        if let Some(ground) = &self.session.site.ground {
            ground.set(self.plan.experiment.profile(cell)).context("the device's limits cannot be set")?;
        }
        for round in 1..=repetitions.most {
            let runs = of_cell(&self.group.runs, cell);
            let whole = (1..round).all(|round| {
                all.iter().all(|contender| {
                    let of = |record: &&&Record| record.run.contender == contender.name;
                    runs.iter().any(|record| record.run.round == round && of(&record))
                        || runs.iter().filter(of).any(|record| record.run.end != End::Done)
                })
            });
            if round > repetitions.least && whole && is_settled(&self.plan.experiment, &runs) {
                break;
            }
            if round > repetitions.least {
                self.session.progress.expect(all.len());
            }
            for place in order(round, all.len()) {
                let before = self.group.runs.len();
                self.turn(cell, &all[place], round)?;
                self.done += usize::from(self.group.runs.len() > before);
                self.session.progress.end();
            }
        }
        Ok(())
    }

    /// One contender's turn: a run, repeated while it is disturbed.
    fn turn(&mut self, cell: &Cell, contender: &Contender, round: u32) -> anyhow::Result<()> {
        let own = |record: &&Record| record.cell == *cell && record.run.contender == contender.name;
        // A contender that was killed, or failed, would end in the same way again.
        if self.group.runs.iter().filter(own).any(|record| record.run.end != End::Done) {
            return Ok(());
        }
        loop {
            let tries: Vec<&Record> =
                self.group.runs.iter().filter(own).filter(|record| record.run.round == round).collect();
            let attempt = tries.len() as u32 + 1;
            let quiet = tries.last().is_some_and(|record| record.watched.marks.is_empty());
            if quiet || attempt > 1 + self.plan.retries {
                return Ok(());
            }
            self.session.bounds.check()?;
            self.session.progress.begin(format!(
                "{}: round {round}, {}{}{}",
                format!("{} {}", self.plan.name, words(cell)).trim_end(),
                contender.name,
                if attempt > 1 { ", again as it was disturbed" } else { "" },
                self.ends_about()
            ));
            let record = self.measured(cell, contender, round, attempt)?;
            self.journal.append(&Line::Run(Box::new(record.clone())))?;
            self.group.runs.push(record);
        }
    }

    /// The expected end of all work: by the pace so far, and by the estimates of further
    /// experiments.
    fn ends_about(&self) -> String {
        let each = match self.done {
            0 => self.plan.experiment.cost.seconds,
            done => self.begun.elapsed().as_secs_f64() / done as f64,
        };
        let left = self.session.progress.left() as f64 * each + self.session.progress.later_s();
        format!("; ends about {}", clock(now_s() + left as u64))
    }

    fn measured(
        &mut self,
        cell: &Cell,
        contender: &Contender,
        round: u32,
        attempt: u32,
    ) -> anyhow::Result<Record> {
        let watch = Watch::begin(&self.session.site.directory);
        let started_s = now_s();
        let before = stamps(&self.plan.experiment.program.writes);
        let (outcome, mut output) = self.once(cell, contender)?;
        let mut run = outcome.run;
        // A pager's reads go through the kernel and are counted too; swap's are not.
        let swaps = matches!(contender.under, Under::Swap | Under::Zram | Under::Zswap | Under::Mglru);
        let own = (!swaps).then_some(run.own_read_bytes);
        let mut watched: Watched = watch.end(own.filter(|_| run.end == End::Done));
        let foreign = outcome.foreign_swap_bytes >> 20;
        watched.marks.extend((foreign > 0).then(|| format!("others had {foreign} MiB in its swap")));
        self.session.bounds.wrote(watched.moved.written_bytes);
        (run.round, run.contender) = (round, contender.name.clone());
        run.end = judged(run.end, run.code, self.plan.experiment.program.status);
        if let Some(why) = impossible(&run).filter(|_| run.end == End::Done) {
            run.end = End::Failed(why);
        }
        if run.end == End::Done {
            match written(&self.plan.experiment.program.writes, &before) {
                Ok(hash) => output = output.map(|output| output + &hash),
                Err(why) => run.end = End::Failed(why),
            }
            self.compare(cell, &mut run, output.as_ref());
        }
        if run.end != End::Done {
            run.passes.clear();
        }
        let group = self.group.head.group.clone();
        Ok(Record { group, cell: cell.clone(), attempt, started_s, output, watched, run })
    }

    /// Compares the output with the first output.
    fn compare(&mut self, cell: &Cell, run: &mut Run, output: Option<&String>) {
        let own = self.plan.experiment.contender.iter().find(|own| own.name == run.contender && own.own_data);
        let of = own.map_or_else(|| words(cell), |own| format!("{}: {}", words(cell), own.name));
        let checks = run.passes.iter().filter_map(|pass| Some((pass.pass.clone(), pass.check.clone()?)));
        let checks = checks.chain(output.map(|hash| (String::new(), hash.clone())));
        for (pass, found) in checks.collect::<Vec<_>>() {
            let known = self.expected.entry((of.clone(), pass.clone())).or_insert_with(|| found.clone());
            if *known != found {
                run.end = End::Failed(format!(
                    "its output differs{}{pass}",
                    if pass.is_empty() { "" } else { ": " }
                ));
            }
        }
    }
}

/// A contender's name, without the suffix of its second run in a round.
fn name_of(contender: &Contender) -> &str {
    contender.name.trim_end_matches(AGAIN)
}
