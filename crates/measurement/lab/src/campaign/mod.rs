//! Runs an experiment: cell by cell, in rounds, until its ratios are known well enough. Each run is
//! on disk before the next begins, so that the same command goes on where it was ended.

pub mod bounds;
pub mod progress;
pub mod session;
pub mod steady;
pub mod text;

use crate::campaign::session::{Limits, Session};
use crate::contender::far;
use crate::contender::run::Run;
use crate::experiment::{Cell, Contender, Experiment, Passes, Under, is_in, words};
use crate::ground::chosen::Ground;
use crate::ground::device::Device;
use crate::ground::disk::{self, Disk, DiskForm, Wanted};
use crate::ground::janitor::{Held, OwnedFile};
use crate::ground::runner::{End, Finished};
use crate::ground::system::{Watch, Watched, now_s};
use crate::ground::throttle::Class;
use crate::ground::tools;
use crate::result::journal::{Group, Head, Journal, Line, Record};
use crate::result::pairs::order;
use crate::result::solve::{AGAIN, is_settled, of_cell};
use crate::workload::Pass;
use anyhow::{Context, anyhow, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terapage_config::Size;

/// An experiment that this machine cannot run, and why; others may run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cannot(pub String);

/// How an experiment is run.
pub struct Plan {
    /// Its name.
    pub name: String,
    /// The experiment.
    pub experiment: Experiment,
    /// How often a disturbed run is repeated.
    pub retries: u32,
}

/// What an experiment will take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    /// Runs, at least.
    pub runs_least: u64,
    /// Runs, at most, without those that are repeated.
    pub runs_most: u64,
    /// Seconds, at least and at most.
    pub seconds: (f64, f64),
    /// Bytes of disk at once.
    pub disk_bytes: u64,
    /// Bytes written to the disk, at most.
    pub written_bytes: u64,
}

/// What an experiment will take, by its own account.
///
/// # Errors
/// A term that cannot be calculated.
pub fn estimate(experiment: &Experiment) -> anyhow::Result<Estimate> {
    let mut total = Estimate::default();
    for (i, cell) in experiment.cells().iter().enumerate() {
        let sizes = experiment.sizes_of(cell)?;
        let entrants = entrants(experiment, cell, i == 0)?;
        let count = entrants.len() as u64;
        let writing = entrants.iter().filter(|entrant| entrant.under != Under::Memory).count() as u64;
        let (least, most) = (u64::from(experiment.repetitions.least), u64::from(experiment.repetitions.most));
        total.runs_least += count * least;
        total.runs_most += count * most;
        total.disk_bytes =
            total.disk_bytes.max(experiment.term("cost.disk", &experiment.cost.disk, cell, &sizes)?);
        let written = experiment.term("cost.written", &experiment.cost.written, cell, &sizes)?;
        total.written_bytes += written * writing * most;
    }
    let each = experiment.cost.seconds + 0.3;
    total.seconds = (total.runs_least as f64 * each, total.runs_most as f64 * each);
    Ok(total)
}

/// Who runs in a cell, in order; in the first one the baseline twice.
fn entrants(experiment: &Experiment, cell: &Cell, first: bool) -> anyhow::Result<Vec<Contender>> {
    let mut all = experiment.all_contenders()?;
    all.retain(|contender| is_in(&contender.only, cell));
    let baseline = experiment.baseline_name();
    let place = all.iter().position(|contender| contender.name == baseline);
    if let (true, true, Some(place)) = (first, experiment.control, place) {
        let again = Contender { name: format!("{baseline}{AGAIN}"), ..all[place].clone() };
        all.insert(place + 1, again);
    }
    Ok(all)
}

/// An experiment under way.
pub struct Campaign<'a> {
    session: &'a Session,
    plan: Plan,
    journal: Journal,
    group: Group,
    /// Settings of the device, restored at the end.
    _held: Vec<Held<'a>>,
    /// The file that `{file}` names, kept through all runs.
    file: OwnedFile<'a>,
    text: Option<PathBuf>,
    left_out: Vec<String>,
    /// What came out, by cell and pass.
    expected: BTreeMap<(String, String), String>,
    begun: Instant,
    done: usize,
}

impl<'a> Campaign<'a> {
    /// Opens the results, and finds out who can take part.
    ///
    /// # Errors
    /// When the results cannot be written, or the disk is too small.
    pub fn new(session: &'a Session, plan: Plan, results: &Path) -> anyhow::Result<Campaign<'a>> {
        let experiment = &plan.experiment;
        let estimate = estimate(experiment)?;
        let room = crate::ground::room::free_bytes(&session.directory).unwrap_or(u64::MAX);
        ensure!(
            estimate.disk_bytes < room,
            "--dir {}: {} of disk needed, {} free",
            session.directory.display(),
            Size(estimate.disk_bytes),
            Size(room)
        );
        for program in &experiment.program.needs {
            tools::find(program).map_err(Cannot)?;
        }
        let (mut journal, groups) = Journal::open(results)?;
        let file = OwnedFile::new(&session.janitor, session.path(&format!("{}.file", plan.name)))?;
        let (left_out, why) = probe(session, &plan, file.path())?;
        let held = hold(session, &plan.experiment)?;
        // As it is set now.
        let mut machine = session.machine();
        machine.flush_us = flush_us(session);
        let head = Head::new(&plan.name, experiment, machine, why);
        let known = groups.into_iter().find(|group| group.head.group == head.group);
        let group = match known {
            Some(mut group) => {
                session.progress.say(&format!("{}: goes on after {} runs", plan.name, group.runs.len()));
                // What failed may not fail again: a tool was missing, or the disk full.
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
                Some(text::text(session, experiment.term("program.text", term, &cell, &sizes)?, 1)?)
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

    /// Runs what is not there yet; gives all there is.
    ///
    /// # Errors
    /// When the lab shall stop, or the results cannot be written; what was measured stays.
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
        for (cell, all) in planned {
            self.cell(&cell, &all)?;
        }
        Ok(self.group)
    }

    fn cell(&mut self, cell: &Cell, all: &[Contender]) -> anyhow::Result<()> {
        let repetitions = self.plan.experiment.repetitions;
        if let Some(ground) = &self.session.ground {
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
        // Who was killed, or failed, would be so again.
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

    /// When all is done: at the pace so far, and with what further experiments are to take.
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
        let watch = Watch::begin(&self.session.directory);
        let started_s = now_s();
        let before = stamps(&self.plan.experiment.program.writes);
        let (mut run, mut output) = self.once(cell, contender)?;
        // A pager's reads are made by the kernel's hand and are counted too; swap's are not.
        let swaps = matches!(contender.under, Under::Swap | Under::Zram | Under::Zswap | Under::Mglru);
        let own = (!swaps).then_some(run.own_read_bytes);
        let mut watched: Watched = watch.end(own.filter(|_| run.end == End::Done));
        watched.marks.extend(self.session.foreign_swap());
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

    /// Holds what came out against what came out first.
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

    /// Runs it once; with the hash of its output, where that must be the same.
    fn once(&self, cell: &Cell, contender: &Contender) -> anyhow::Result<(Run, Option<String>)> {
        let experiment = &self.plan.experiment;
        let sizes = experiment.sizes_of(cell)?;
        let of = |name: &str| sizes.get(name).copied();
        let memory = of("memory").unwrap_or(u64::MAX / 4);
        let mut options = Vec::new();
        if let (Under::Far, Some(far)) = (contender.under, &self.session.far) {
            let count = contender.servers.unwrap_or(1);
            let urls = match far.urls(count) {
                Ok(urls) => urls,
                Err(why) => return Ok((session::failed(who(contender.under), why), None)),
            };
            // Each takes its part, so that the simple placement needs all of them.
            let part = far::part(experiment, cell, &sizes, count)?;
            for url in urls {
                let url = match count {
                    1 => url.clone(),
                    _ => far::with_option(url, &format!("limit={part}")),
                };
                options.extend(["--store".into(), url.into()]);
            }
        }
        for option in &contender.options {
            options.push(experiment.filled(option, cell, &sizes, &[])?.into());
        }
        let block = of("block");
        let data = of("data").unwrap_or(memory);
        // What is larger than its memory and not paged, such as a static program, has no figure.
        let limits = Limits { data, memory, block, options, may_fit: data <= memory };
        let disk = match &contender.disk {
            Some(form) => match disk_up(self.session, experiment, form, cell, self.file.path()) {
                Ok(disk) => Some(disk),
                Err(error) => match error.downcast::<disk::Error>() {
                    Ok(disk::Error::Stopped(stopped)) => return Err(stopped.into()),
                    Ok(why) => return Ok((session::failed(who(contender.under), why.to_string()), None)),
                    Err(error) => return Err(error),
                },
            },
            None => None,
        };
        let program = self.program(cell, contender, &sizes, disk.as_ref())?;
        let by_time = experiment.program.passes == Passes::Time;
        let kept = match by_time {
            true => Some(OwnedFile::create(&self.session.janitor, self.session.path("out"), 0o600)?),
            false => None,
        };
        let output = kept.as_ref().map(|(_, file)| file.try_clone()).transpose()?;
        let passes = |finished: &Finished| match by_time {
            true => vec![Pass {
                pass: "time".into(),
                seconds: finished.seconds,
                bytes: data,
                threads: 1,
                ..Pass::default()
            }],
            false => finished.passes(),
        };
        let (session, name) = (self.session, who(contender.under));
        let mut run = match &disk {
            Some(disk) => session.contend_on(disk.throttle(), name, program, &limits, output, passes)?,
            None => session.contend(name, program, &limits, output, passes)?,
        };
        run.notes.extend(disk.iter().flat_map(|disk| disk.notes.iter().cloned()));
        run.notes.extend(self.not_throttled(contender.under));
        let hash = match kept {
            Some((_owned, file)) => text::hash(self.session, file)?.map(|hash| format!("{hash:032x}")),
            None => None,
        };
        Ok((run, hash))
    }

    /// What of a contender's I/O escapes the limits of the chosen device.
    fn not_throttled(&self, under: Under) -> Option<String> {
        let throttle = self.session.ground.as_ref()?.throttle()?;
        let what = match under {
            Under::Swap | Under::Zswap | Under::Mglru => "swap-out",
            Under::Limit | Under::Mmap => "write-back from the page cache",
            Under::Memory | Under::Zram | Under::Terapage | Under::Far => return None,
        };
        (!throttle.whole).then(|| format!("not throttled: {what} (cgroups of version 1)"))
    }

    /// The program and its arguments, with their names filled in.
    fn program(
        &self,
        cell: &Cell,
        contender: &Contender,
        sizes: &BTreeMap<String, u64>,
        disk: Option<&Disk>,
    ) -> anyhow::Result<(PathBuf, Vec<OsString>)> {
        let experiment = &self.plan.experiment;
        let words = contender.run.as_ref().unwrap_or(&experiment.program.run);
        let paths = [
            self.session.directory.display().to_string(),
            self.file.path().display().to_string(),
            self.text.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
        ];
        let place = disk.map(|disk| disk.place.display().to_string()).unwrap_or_default();
        let others = [
            ("dir", paths[0].as_str()),
            ("file", &paths[1]),
            ("text", &paths[2]),
            ("contender", name_of(contender)),
            ("disk", &place),
        ];
        let mut all: Vec<OsString> = Vec::new();
        for word in words {
            if word == "{lab}" {
                all.push(self.session.program().into());
                all.extend(self.session.lab_arguments().iter().map(OsString::from));
                continue;
            }
            let filled = match experiment.program.verbatim {
                true => word.clone(),
                false => experiment.filled(word, cell, sizes, &others)?,
            };
            all.push(filled.into());
        }
        let program = all.remove(0);
        Ok((program.into(), all))
    }
}

/// A contender's name, without that it is its second run in a round.
fn name_of(contender: &Contender) -> &str {
    contender.name.trim_end_matches(AGAIN)
}

/// That nobody takes part, and why: the reasons, each once.
fn nobody(left_out: &[(String, String)]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for (_, why) in left_out {
        if !reasons.contains(&why.as_str()) {
            reasons.push(why);
        }
    }
    format!("no contender can take part: {}", reasons.join("; "))
}

/// Sets up a contender's own disk.
///
/// # Errors
/// A [`disk::Error`], or a term that cannot be calculated.
fn disk_up(
    session: &Session,
    experiment: &Experiment,
    form: &DiskForm,
    cell: &Cell,
    image: &Path,
) -> anyhow::Result<Disk> {
    let named = form.class.as_deref().map(Class::find).transpose().map_err(disk::Error::Cannot)?;
    let wanted = Wanted {
        form,
        bytes: experiment.term("disk.size", &form.size, cell, &experiment.sizes_of(cell)?)?,
        scheduler: experiment.scheduler(form, cell)?,
        class: named.or(session.ground.as_ref().and_then(Ground::class)),
        profile: experiment.profile(cell),
        image,
    };
    Ok(Disk::up(session, &wanted)?)
}

/// Sets what the experiment wants of the device.
fn hold<'a>(session: &'a Session, experiment: &Experiment) -> anyhow::Result<Vec<Held<'a>>> {
    let mut all = Vec::new();
    for (name, value) in &experiment.settings {
        let device = Device::of(&session.directory);
        let device =
            device.ok_or_else(|| anyhow!("settings: {} has no device", session.directory.display()))?;
        let before =
            device.setting(name).ok_or_else(|| anyhow!("settings: {} has no {name}", device.name))?;
        let path = device.setting_path(name);
        let held = Held::set(&session.janitor, path, before, value);
        all.push(held.with_context(|| format!("settings: {name} = {value} of {}", device.name))?);
    }
    Ok(all)
}

/// How a run ended, where the program ends with `status` when it has done its work.
pub fn judged(end: End, code: Option<i32>, status: i32) -> End {
    match (&end, code) {
        (End::Failed(_), Some(code)) if status != 0 && code == status => End::Done,
        (End::Done, Some(code)) if code != status => {
            End::Failed(format!("exit status: {code}, not {status}"))
        }
        _ => end,
    }
}

/// What a program's own clock cannot have said if nobody set it meanwhile.
fn impossible(run: &Run) -> Option<String> {
    let wrong = run.passes.iter().find(|pass| !pass.seconds.is_finite() || pass.seconds <= 0.0)?;
    Some(format!(
        "its pass {} took {} s by its own clock, which was set meanwhile or does not work",
        wrong.pass, wrong.seconds
    ))
}

/// The session's name for what a contender runs in.
fn who(under: Under) -> session::Contender {
    match under {
        Under::Memory => session::Contender::Memory,
        Under::Limit => session::Contender::Limit,
        Under::Swap => session::Contender::Swap,
        Under::Zram => session::Contender::Zram,
        Under::Zswap => session::Contender::Zswap,
        Under::Mglru => session::Contender::Mglru,
        Under::Mmap => session::Contender::Mmap,
        Under::Terapage => session::Contender::Terapage,
        Under::Far => session::Contender::Far,
    }
}

/// Who cannot take part; and by name, why.
type LeftOut = (Vec<String>, Vec<(String, String)>);

/// Who cannot take part, and why.
fn probe(session: &Session, plan: &Plan, image: &Path) -> anyhow::Result<LeftOut> {
    let experiment = &plan.experiment;
    let (mut left_out, mut why_of, mut unders) = (Vec::new(), Vec::new(), Vec::new());
    let mut data = 0;
    let mut memory = u64::MAX;
    for cell in experiment.cells() {
        let sizes = experiment.sizes_of(&cell)?;
        memory = memory.min(sizes.get("memory").copied().unwrap_or(u64::MAX / 4));
        data = data.max(sizes.get("data").copied().unwrap_or(0));
    }
    let limits = Limits { data, memory, block: None, options: Vec::new(), may_fit: true };
    for contender in experiment.all_contenders()? {
        if unders.contains(&contender.under) {
            left_out.push(contender.name);
            continue;
        }
        let mut answer = match (contender.under, &session.far) {
            (Under::Far, None) => Err("no far store is named (--far, or --far URL)".to_owned()),
            (Under::Far, Some(far)) => match far.urls(contender.servers.unwrap_or(1)) {
                Ok(_) => session.probe(session::Contender::Far, &limits)?,
                // Others may need fewer.
                Err(why) => {
                    session.progress.say(&format!("left out: {}: {why}", contender.name));
                    left_out.push(contender.name.clone());
                    why_of.push((contender.name, why));
                    continue;
                }
            },
            (under, _) => session.probe(who(under), &limits)?,
        };
        match &contender.disk {
            None if answer.is_err() => unders.push(contender.under),
            Some(form) if answer.is_ok() => {
                answer = probe_disk(session, experiment, &contender, form, image)?
            }
            _ => {}
        }
        if let Err(reason) = answer {
            session.progress.say(&format!("left out: {}: {reason}", contender.name));
            left_out.push(contender.name.clone());
            why_of.push((contender.name, reason));
        }
    }
    Ok((left_out, why_of))
}

/// Whether a contender's own disk can be had: it is set up, and taken down again.
fn probe_disk(
    session: &Session,
    experiment: &Experiment,
    contender: &Contender,
    form: &DiskForm,
    image: &Path,
) -> anyhow::Result<Result<(), String>> {
    let throttled =
        form.class.is_some() || session.ground.as_ref().is_some_and(|ground| ground.class().is_some());
    if throttled && let Err(error) = crate::ground::throttle::check() {
        return Ok(Err(error.to_string()));
    }
    let cell = experiment.cells().into_iter().find(|cell| is_in(&contender.only, cell));
    let Some(cell) = cell else { return Ok(Ok(())) };
    match disk_up(session, experiment, form, &cell, image).map(drop) {
        Ok(()) => Ok(Ok(())),
        Err(error) => match error.downcast::<disk::Error>() {
            Ok(disk::Error::Stopped(stopped)) => Err(stopped.into()),
            Ok(why) => Ok(Err(why.to_string())),
            Err(error) => Err(error),
        },
    }
}

/// The median of a few 4 KiB writes with fdatasync, microseconds: what a flush costs here.
fn flush_us(session: &Session) -> Option<f64> {
    let (_owned, mut file) = OwnedFile::create(&session.janitor, session.path("flush"), 0o600).ok()?;
    let piece = [0x5a; 4096];
    let mut all = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        file.write_all(&piece).ok()?;
        // SAFETY: the descriptor is open for the call; no memory is passed.
        if unsafe { libc::fdatasync(file.as_raw_fd()) } != 0 {
            return None;
        }
        all.push(start.elapsed().as_secs_f64() * 1e6);
    }
    terapage_figures::median(&all)
}

/// What tells that a file was written anew: its number, its time, its length.
type Stamp = Option<(u64, i64, i64, u64)>;

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let stamp = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    };
    paths.iter().map(stamp).collect()
}

/// A hash of the files that the program has written.
fn written(paths: &[PathBuf], before: &[Stamp]) -> Result<String, String> {
    let mut text = String::new();
    for ((path, before), after) in paths.iter().zip(before).zip(stamps(paths)) {
        if after.is_none() || after == *before {
            return Err(format!("it did not write {}", path.display()));
        }
        let hash = hash_of(path).map_err(|error| format!("{}: {error}", path.display()))?;
        text += &format!(" {hash:032x}");
    }
    Ok(text)
}

fn hash_of(path: &Path) -> std::io::Result<u128> {
    use std::io::Read;
    let mut file = File::open(path)?;
    let mut hasher = twox_hash::xxhash3_128::Hasher::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish_128()),
            count => hasher.write(&piece[..count]),
        }
    }
}

/// The time of day, here, as 23:41.
pub fn clock(seconds: u64) -> String {
    let seconds = seconds as libc::time_t;
    // SAFETY: `tm` is plain data, for which zeros are a value (its zone is a pointer that may be
    // null).
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to values of ours that live through the call.
    if unsafe { libc::localtime_r(&seconds, &mut parts) }.is_null() {
        return "?".into();
    }
    format!("{:02}:{:02}", parts.tm_hour, parts.tm_min)
}

/// Where results lie: `--results`, or the user's own place.
///
/// # Errors
/// When there is none, or it cannot be made.
pub fn results_directory(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || {
        let data = of("XDG_DATA_HOME").or_else(|| Some(of("HOME")?.join(".local/share")));
        data.map(|data| data.join("terapage-lab"))
    };
    let place = named.map(Path::to_owned).or_else(usual);
    let place = place.ok_or_else(|| anyhow!("no directory for results: --results names one"))?;
    fs::create_dir_all(&place).with_context(|| format!("--results {}", place.display()))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::{entrants, estimate, stamps, written};
    use crate::experiment::Experiment;
    use std::fs;

    const TEXT: &str = r#"
title = "A"
unit = "s"
contenders = ["memory", "swap"]
repetitions = { least = 2, most = 4 }
[program]
run = ["true"]
[sizes]
memory = "1M"
data = "2M"
[matrix]
threads = [1, 2]
[cost]
seconds = 1.7
disk = "data * 2"
written = "data"
"#;

    #[test]
    fn the_estimate_counts_runs_disk_and_wear() {
        let experiment = Experiment::parse(TEXT, "a.toml").expect("it is right");
        let estimate = estimate(&experiment).expect("terms");
        // The first cell has the baseline twice; memory writes nothing.
        assert_eq!((estimate.runs_least, estimate.runs_most), (10, 20));
        assert_eq!((estimate.disk_bytes, estimate.written_bytes), (4 << 20, 2 * 4 * (2 << 20)));
        assert_eq!(estimate.seconds, (20.0, 40.0));
        let cell = &experiment.cells()[0];
        let names: Vec<_> =
            entrants(&experiment, cell, true).expect("names").into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["memory", "memory again", "swap"]);
    }

    #[test]
    fn a_file_that_was_not_written_is_noticed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("out");
        let paths = [path.clone()];
        let before = stamps(&paths);
        assert!(written(&paths, &before).is_err());
        fs::write(&path, "one").expect("a file");
        let one = written(&paths, &before).expect("written");
        let before = stamps(&paths);
        assert!(written(&paths, &before).expect_err("stale").contains("did not write"));
        fs::write(&path, "other").expect("a file");
        assert_ne!(written(&paths, &before).expect("written"), one);
    }
}
