//! `sort`: GNU sort of a text file, natively, on swap and on Terapage at several budgets.

use crate::campaign::session::{Common, Contender, EXIT_STATUS, Limits, Session, failed, size};
use crate::commands::optimum::Optima;
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, End, Finished};
use crate::result::report::{Optimum, Run, Side, Unit};
use crate::workload::Pass;
use anyhow::Context;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terapage_config::Size;
use terapage_figures::SplitMix;
use twox_hash::xxhash3_128::Hasher;

const MIB: u64 = 1 << 20;

/// The text that the budgets were chosen for, bytes.
const TEXT_BYTES: f64 = 600e6;

/// Budgets for it, and the time against a native run that they may take; `None`: it completes.
const BUDGETS: [(u64, Option<f64>); 3] =
    [(1024 * MIB, Some(1.08)), (768 * MIB, Some(1.18)), (512 * MIB, None)];

/// Page-ins against Belady's optimum.
const OF_OPTIMUM: f64 = 1.25;

/// Options of `sort`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Sort {
    /// Bytes of text. It is kept in the directory for later runs.
    #[arg(long, value_name = "SIZE", default_value = "600MB", allow_hyphen_values = true)]
    size: String,
    /// Bytes of memory for contenders with a limit; may be given several times. By default 1 GiB,
    /// 768 MiB and 512 MiB for 600 MB of text, in proportion for others.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Vec<String>,
    /// Bytes that sort may touch unseen while references are recorded for Belady's optimum. By
    /// default a half, a quarter and an eighth of each budget, as long as a recording takes less
    /// than half of --timeout.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    record_window: Option<String>,
    /// Seed of the text.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

const ABLE: [Contender; 3] = [Contender::Memory, Contender::Swap, Contender::Terapage];

/// A contender and its budget.
struct Entrant {
    contender: Contender,
    memory: u64,
}

impl Entrant {
    fn name(&self) -> String {
        match self.contender {
            Contender::Memory => "native".into(),
            // To the byte: runs are told apart by it.
            contender if self.memory.is_multiple_of(MIB) && !self.memory.is_multiple_of(1 << 30) => {
                format!("{} {} MiB", contender.name(), self.memory / MIB)
            }
            contender if self.memory.is_multiple_of(MIB) => {
                format!("{} {}", contender.name(), Size(self.memory))
            }
            contender => format!("{} {} B", contender.name(), self.memory),
        }
    }
}

impl Sort {
    /// Runs the experiment.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let bytes = size("--size", &self.size, 1000)?;
        let budgets = self.budgets(bytes)?;
        let record_window = self.record_window.map(|text| size("--record-window", &text, MIB)).transpose()?;
        // 600 MB of text take 1.66 GB.
        let limits = |memory| Limits {
            data: bytes * 3,
            memory,
            block: None,
            options: Vec::new(),
            window: None,
            may_fit: false,
        };
        let least = budgets.iter().copied().min().unwrap_or(MIB);
        let mut session = Session::start("sort", self.common, &ABLE, &limits(least))?;
        let text = text(&session, bytes, self.seed)?;
        // Whoever comes first would else wait for the disk, and the others not.
        hash(&session, File::open(&text).with_context(|| text.display().to_string())?)?;
        let entrants = entrants(&session.contenders, &budgets);
        let expected = RefCell::new(None);
        // Recorded runs are checked too, although no table shows them.
        let differs = Cell::new(false);
        let checked = |contender, limits: &Limits| {
            let mut run = sort(&session, contender, &text, limits)?;
            let hash = run.1.filter(|_| run.0.end == End::Done);
            if hash.is_some_and(|hash| *expected.borrow_mut().get_or_insert(hash) != hash) {
                differs.set(true);
                run.0.end = End::Failed("its output differs".into());
                run.0.passes.clear();
            }
            Ok(run.0)
        };
        // A budget that only has to complete takes minutes: by default it runs once, and is not
        // recorded.
        let by_default = self.memory.is_empty();
        let is_timed = |entrant: &Entrant| {
            let only_completes = goal(bytes, entrant.memory) == Some(None);
            !(by_default && only_completes)
        };
        let runs = session.rounds_of(&entrants, Entrant::name, is_timed, |entrant| {
            checked(entrant.contender, &limits(entrant.memory))
        })?;
        let mut optima = Optima::new(&session, record_window);
        let optima = entrants
            .iter()
            .filter(|entrant| entrant.contender == Contender::Terapage && is_timed(entrant))
            .map(|entrant| {
                let again = |limits: &Limits| checked(Contender::Terapage, limits);
                let name = entrant.name();
                if !runs.iter().any(|run| run.contender == name && run.end == End::Done) {
                    return Ok(Optimum::none(&name, entrant.memory).note("no timed run completed".into()));
                }
                optima.find(&name, &limits(entrant.memory), again)
            })
            .collect::<Result<Vec<_>, runner::Error>>()?;
        let setting = format!("sort -S 6G --parallel=2 of {} text", Size(bytes));
        let mut report = session.report("sort", setting, Unit::Seconds, runs);
        for (memory, of_native) in budgets.iter().filter_map(|memory| Some((*memory, goal(bytes, *memory)?)))
        {
            let name = Entrant { contender: Contender::Terapage, memory }.name();
            match of_native {
                Some(goal) => report.ratio((&name, "sort"), ("native", "sort"), Side::AtMost, goal),
                None => {
                    let runs: Vec<_> = report.runs.iter().filter(|run| run.contender == name).collect();
                    let done = runs.iter().filter(|run| run.end == End::Done).count();
                    let share = (!runs.is_empty()).then(|| done as f64 / runs.len() as f64);
                    report.target(format!("{name} completes, share of runs"), Side::AtLeast, 1.0, share);
                }
            }
        }
        for optimum in optima {
            report.optimum(optimum, OF_OPTIMUM);
        }
        for entrant in entrants.iter().filter(|entrant| entrant.memory == least) {
            report.completion(&entrant.name(), least);
        }
        report.residents();
        let status = session.publish(&report)?;
        Ok(if differs.get() { ExitCode::FAILURE } else { status })
    }

    fn budgets(&self, bytes: u64) -> anyhow::Result<Vec<u64>> {
        let named = self.memory.iter().map(|text| size("--memory", text, MIB));
        let mut budgets = named.collect::<anyhow::Result<Vec<_>>>()?;
        if budgets.is_empty() {
            budgets = BUDGETS.map(|(memory, _)| in_proportion(bytes, memory)).to_vec();
        }
        Ok(once(budgets))
    }
}

/// Each budget once: of a small text all usual ones are the same.
fn once(mut budgets: Vec<u64>) -> Vec<u64> {
    let mut seen = HashSet::new();
    budgets.retain(|memory| seen.insert(*memory));
    budgets
}

/// The budget for `bytes` of text that corresponds to `memory` for the usual text, whole MiB.
fn in_proportion(bytes: u64, memory: u64) -> u64 {
    let scaled = memory as f64 * bytes as f64 / TEXT_BYTES;
    ((scaled / MIB as f64).round().max(1.0)) as u64 * MIB
}

/// What a budget must reach, where it is one of the usual ones or in proportion to it.
fn goal(bytes: u64, memory: u64) -> Option<Option<f64>> {
    let (_, goal) = BUDGETS.into_iter().find(|(usual, _)| in_proportion(bytes, *usual) == memory)?;
    Some(goal)
}

fn entrants(contenders: &[Contender], budgets: &[u64]) -> Vec<Entrant> {
    let of = |contender| match contender {
        Contender::Memory => vec![Entrant { contender, memory: 0 }],
        _ => budgets.iter().map(|memory| Entrant { contender, memory: *memory }).collect(),
    };
    contenders.iter().flat_map(|contender| of(*contender)).collect()
}

/// One sort, and the hash of its output.
fn sort(
    session: &Session,
    contender: Contender,
    text: &Path,
    limits: &Limits,
) -> Result<(Run, Option<u128>), runner::Error> {
    let set_up = || -> io::Result<_> {
        let (sorted, output) = OwnedFile::create(&session.janitor, session.path("sorted"), 0o600)?;
        Ok((output.try_clone()?, output, sorted))
    };
    let (output, kept, _sorted) = match set_up() {
        Ok(files) => files,
        Err(error) => return Ok((failed(contender, error.to_string()), None)),
    };
    let arguments = vec!["-S".into(), buffer(text).into(), "--parallel=2".into(), text.into()];
    let passes = |finished: &Finished| match finished.end {
        End::Done => vec![Pass {
            pass: "sort".into(),
            seconds: finished.seconds,
            bytes: fs::metadata(text).map_or(0, |text| text.len()),
            threads: 2,
            ..Pass::default()
        }],
        _ => Vec::new(),
    };
    let run = session.contend(contender, ("sort".into(), arguments), limits, Some(output), passes)?;
    let hash = match run.end {
        End::Done => hash(session, kept)?,
        _ => None,
    };
    Ok((run, hash))
}

/// sort's `-S`: 6 GiB, more for long texts, so that it never writes temporary files.
fn buffer(text: &Path) -> String {
    let bytes = fs::metadata(text).map_or(0, |text| text.len());
    format!("{}b", (6 << 30).max(bytes.saturating_mul(10)))
}

/// A hash of the whole file; `None` where it cannot be read.
pub fn hash(session: &Session, mut file: File) -> Result<Option<u128>, runner::Error> {
    use std::io::Seek;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; MIB as usize];
    if file.rewind().is_err() {
        return Ok(None);
    }
    loop {
        session.stop.check()?;
        match file.read(&mut piece) {
            Ok(0) => return Ok(Some(hasher.finish_128())),
            Ok(count) => hasher.write(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
}

/// The text, made unless an earlier run has left it.
pub fn text(session: &Session, bytes: u64, seed: u64) -> anyhow::Result<PathBuf> {
    let path = session.directory.join(format!("terapage-lab-text-{bytes}-{seed}.txt"));
    if fs::metadata(&path).is_ok_and(|known| known.len() == bytes) {
        return Ok(path);
    }
    // Under another name until it is whole.
    let path_of_part = session.path("text");
    let made = OwnedFile::create(&session.janitor, path_of_part.clone(), 0o666);
    let (part, file) = made.with_context(|| path_of_part.display().to_string())?;
    let mut file = BufWriter::with_capacity(MIB as usize, file);
    let (mut numbers, mut left) = (SplitMix(seed), bytes);
    let mut line = Vec::new();
    while left > 0 {
        session.stop.check()?;
        // A check of the signals every few thousand lines.
        for _ in 0..4096 {
            random_line(&mut numbers, left, &mut line);
            file.write_all(&line).with_context(|| part.path().display().to_string())?;
            left -= line.len() as u64;
            if left == 0 {
                break;
            }
        }
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    fs::rename(part.path(), &path)?;
    Ok(path)
}

/// A line of 9 to 63 bytes with its end, 36 on average (600 MB then take sort 1.66 GB), and never
/// more than `left`.
fn random_line(numbers: &mut SplitMix, left: u64, line: &mut Vec<u8>) {
    const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-";
    line.clear();
    let length = (8 + numbers.below(55)).min(left - 1);
    let mut bits = 0;
    for i in 0..length {
        if i % 10 == 0 {
            bits = numbers.next();
        }
        line.push(LETTERS[(bits & 63) as usize]);
        bits >>= 6;
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::{Contender, Entrant, MIB, entrants, goal, in_proportion, once, random_line};
    use std::collections::HashSet;
    use terapage_figures::SplitMix;

    #[test]
    fn budgets_keep_their_proportion() {
        assert_eq!(in_proportion(600_000_000, 768 * MIB), 768 * MIB);
        assert_eq!(in_proportion(60_000_000, 1024 * MIB), 102 * MIB);
        assert_eq!(goal(60_000_000, 102 * MIB), Some(Some(1.08)));
        assert_eq!(goal(600_000_000, 512 * MIB), Some(None));
        assert_eq!(goal(600_000_000, 600 * MIB), None);
    }

    #[test]
    fn budgets_that_print_alike_are_told_apart() {
        let budgets = [1100 * MIB, 1150 * MIB, 1 << 30, (1 << 30) + 4096, 1100 * MIB];
        let entrants = entrants(&[Contender::Swap, Contender::Terapage], &once(budgets.to_vec()));
        let names: HashSet<_> = entrants.iter().map(Entrant::name).collect();
        assert_eq!((entrants.len(), names.len()), (8, 8), "{names:?}");
        assert!(names.contains("swap 1100 MiB") && names.contains("terapage 1 GiB"), "{names:?}");
    }

    #[test]
    fn lines_never_go_past_the_end() {
        let mut line = Vec::new();
        for seed in 0..200 {
            let mut numbers = SplitMix(seed);
            for left in 1..80 {
                random_line(&mut numbers, left, &mut line);
                assert!(line.len() as u64 <= left && line.last() == Some(&b'\n'));
            }
        }
    }
}
