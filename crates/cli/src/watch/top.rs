//! `terapage top`: paged processes, live.

mod history;
mod view;

use super::process::{self, Paged};
use super::regions;
use super::stat::table;
use crate::{complain, print};
use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use history::History;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terapage_config::Size;
use terapage_stats::Snapshot;
use view::{By, HEAD, Line, Rates, Sort, folds};

/// Between two frames.
const REFRESH: Duration = Duration::from_secs(1);
/// The time between two checks for signals.
const SIGNALS: Duration = Duration::from_millis(200);
/// The time between the two readings from which rates are computed if only one frame is printed.
const ONE_LOOK: Duration = Duration::from_millis(500);

/// The arguments of `terapage top`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage top
  terapage top 4711
  terapage top --by job --sort stall | cat

If standard output is no terminal, one frame is printed, and the command ends.

Above the table, live: how much of the lease is in use, and the last minute of the STALL%, IN and
OUT of all processes together.

Keys:
  q quits. p, j, c, r show processes, jobs, cgroups, regions. Capital letters sort: N by number,
  M by resident memory, U by untracked memory, F by major faults, I and O by page-ins and page-outs,
  S by stalled time.

Columns:
  LEASE is the part of the budget that the process has now, or all of it with --per-process. RESIDENT
  is memory that counts against the budget; UNTRACKED is other memory: shared, executable, stacks.
  STALL% is the share of the time in which at least one thread waited for a page-in; for several
  processes it is the mean. WAIT% is the time that threads have waited for memory since the start, as
  a share of the time in which they waited or worked. HIT% and WASTE% are the shares of prefetched
  runs that were used and that were not used. DIRTY% is the share of page-outs that needed a write.
  P50 and P99 are percentiles of the time that major faults took.

Exit status:
  0, even if the process has ended; 1 if the process is not paged, or ends before its only frame
  is printed.")]
pub struct Top {
    /// The number of the process; without it, all paged processes
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// What a line stands for
    #[arg(long, value_enum, default_value_t = By::Process, conflicts_with = "pid")]
    by: By,
    /// The order of the lines
    #[arg(long, value_enum, default_value_t = Sort::Pid)]
    sort: Sort,
}

/// An action that a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Quit,
    By(By),
    Sort(Sort),
}

/// Counters of one process at one time.
type Looks = HashMap<u32, (Instant, Snapshot)>;

impl Top {
    /// Shows frames until `q`, or only one frame.
    pub fn run(mut self) -> anyhow::Result<ExitCode> {
        if let Some(pid) = self.pid {
            let why = match Paged::find(pid) {
                Ok(Some(_)) => None,
                Ok(None) => Some(process::not_paged(pid)),
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(why) = why {
                complain(&why);
                return Ok(ExitCode::FAILURE);
            }
        }
        let mut before = Looks::new();
        let mut history = History::new();
        if !stdout().is_terminal() {
            let width = terminal_width().unwrap_or(usize::MAX);
            self.look(&mut before, &mut history, width);
            std::thread::sleep(ONE_LOOK);
            let frame = self.look(&mut before, &mut history, width);
            if self.has_ended(&before) {
                return Ok(ExitCode::FAILURE);
            }
            print(&frame)?;
            return Ok(ExitCode::SUCCESS);
        }
        let ended_by = Arc::new(AtomicUsize::new(0));
        // SIGHUP is not among them: without a terminal, waiting for keys would never end.
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_usize(signal, ended_by.clone(), signal as usize)?;
        }
        {
            let _screen = Screen::enter()?;
            loop {
                // Some terminals report a size of zero.
                let size = terminal::size().ok().filter(|&(width, height)| width > 0 && height > 0);
                let (width, height) = size.unwrap_or((80, 24));
                let table = self.look(&mut before, &mut history, width.into());
                let frame = history.text(width.into()) + &table;
                let gone = self.pid.is_some() && before.is_empty();
                if !gone {
                    show(&frame, width, height)?;
                }
                if gone {
                    break;
                }
                match wait_for_key(&ended_by)? {
                    Some(Ask::Quit) => break,
                    Some(Ask::By(by)) => self.by = by,
                    Some(Ask::Sort(sort)) => self.sort = sort,
                    None => {}
                }
            }
        }
        self.has_ended(&before);
        // The terminal is restored. Now the signal is raised again with its default action.
        match ended_by.load(Relaxed) {
            0 => {}
            signal => signal_hook::low_level::emulate_default_handler(signal as i32)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Says so if the requested process has ended.
    fn has_ended(&self, now: &Looks) -> bool {
        let ended = self.pid.filter(|_| now.is_empty());
        if let Some(pid) = ended {
            complain(&format!("process {pid} has ended"));
        }
        ended.is_some()
    }

    /// A frame of the present processes, with rates since `before`, for lines of `width`
    /// characters. Replaces `before` by the present counters, and adds their sums to `history`.
    fn look(&self, before: &mut Looks, history: &mut History, width: usize) -> String {
        let paged = match self.pid {
            Some(pid) => Paged::find(pid).ok().flatten().into_iter().collect(),
            None => process::all(),
        };
        let mut now = Looks::new();
        let mut lines = Vec::new();
        let mut details = String::new();
        for paged in paged.iter().filter(|paged| paged.is_alive()) {
            let Some(snapshot) = paged.snapshot() else { continue };
            let at = Instant::now();
            now.insert(paged.pid, (at, snapshot));
            let rates = before
                .get(&paged.pid)
                .map(|(then, old)| Rates { old: *old, seconds: at.duration_since(*then).as_secs_f64() });
            let name = paged.name.clone();
            lines.push(Line { pid: paged.pid, name, processes: 1, now: snapshot, rates });
            if self.pid.is_some() {
                // A low terminal has no room for the last counters.
                let regions = regions::table(paged.regions(), width);
                details = format!("{regions}\n{}", table(&paged.name, &snapshot));
            }
        }
        let jobs = jobs(now.values().map(|(_, snapshot)| snapshot));
        *before = now;
        if self.by == By::Region && self.pid.is_none() {
            details = regions::table(view::regions(&paged), width);
        }
        history.add(&Line::sum(String::new(), &lines));
        let rows = view::rows(lines, self.by, self.sort);
        let hidden = rows.is_empty() && process::some_are_hidden();
        frame(&rows, width, hidden) + &jobs + &details
    }
}

/// A line for each job whose processes share a budget.
fn jobs<'a>(processes: impl Iterator<Item = &'a Snapshot>) -> String {
    let mut jobs: BTreeMap<u64, (u64, u64, u64, &str)> = BTreeMap::new();
    for process in processes.filter(|process| process.job != 0) {
        let (count, leased, budget, auto) = jobs.entry(process.job).or_default();
        *auto = if process.budget_auto > 0 { " (auto)" } else { "" };
        (*count, *leased) = (*count + 1, *leased + process.lease_bytes);
        *budget = process.budget_bytes.max(*budget);
    }
    let mut text = String::new();
    for (job, (count, leased, budget, auto)) in jobs {
        let _ =
            writeln!(text, "job {job}: {} of {}{auto} leased, by {count} paged", Size(leased), Size(budget));
    }
    text
}

/// If there are no `rows`, `hidden` says whether there are processes that this user may not
/// inspect.
fn frame(rows: &[String], width: usize, hidden: bool) -> String {
    let mut lines = vec![HEAD.to_owned()];
    match rows {
        [] if hidden => {
            lines.push(
                "no paged process that you may inspect (root sees the processes of all \
                        users)\n"
                    .to_owned(),
            );
        }
        [] => lines.push("no process is paged (start one with terapage run)\n".to_owned()),
        _ => lines.extend_from_slice(rows),
    }
    lines.iter_mut().for_each(|line| *line = folded(line, folds(width)));
    lines.concat()
}

/// A row in several lines, which begin at the characters `folds` of the row. Shorter parts stand at
/// the right.
fn folded(line: &str, folds: &[usize]) -> String {
    let Some(&width) = folds.first().filter(|&&fold| line.trim_end().chars().count() > fold) else {
        return line.to_owned();
    };
    let letters: Vec<char> = line.trim_end().chars().collect();
    let ends = folds.iter().copied().filter(|&fold| fold < letters.len()).chain([letters.len()]);
    let mut begin = 0;
    let mut text = String::new();
    for end in ends {
        let part: String = letters[begin..end].iter().collect();
        let _ = writeln!(text, "{part:>width$}");
        begin = end;
    }
    text
}

/// The width in the variable `COLUMNS`. A single frame needs no terminal.
fn terminal_width() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}

/// The terminal while `top` uses it; dropping this value restores the terminal.
struct Screen;

impl Screen {
    fn enter() -> anyhow::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

/// Draws a frame, cut to the terminal.
fn show(frame: &str, width: u16, height: u16) -> anyhow::Result<()> {
    let mut screen = String::new();
    for line in frame.lines().take(usize::from(height).saturating_sub(1)) {
        screen.extend(line.chars().take(width.into()));
        screen.push_str("\x1b[K\r\n");
    }
    let keys = "q quits; p j c r: processes, jobs, cgroups, regions; N M U F I O S sort";
    let keys: String = keys.chars().take(width.into()).collect();
    let mut out = stdout().lock();
    write!(out, "\x1b[H{screen}\x1b[J\x1b[2m{keys}\x1b[0m")?;
    Ok(out.flush()?)
}

/// The action that a key asks for, if any.
fn asked_by(code: KeyCode) -> Option<Ask> {
    Some(match code {
        KeyCode::Char('q') | KeyCode::Esc => Ask::Quit,
        KeyCode::Char('p') => Ask::By(By::Process),
        KeyCode::Char('j') => Ask::By(By::Job),
        KeyCode::Char('c') => Ask::By(By::Cgroup),
        KeyCode::Char('r') => Ask::By(By::Region),
        KeyCode::Char('N') => Ask::Sort(Sort::Pid),
        KeyCode::Char('M') => Ask::Sort(Sort::Resident),
        KeyCode::Char('U') => Ask::Sort(Sort::Untracked),
        KeyCode::Char('F') => Ask::Sort(Sort::Major),
        KeyCode::Char('I') => Ask::Sort(Sort::In),
        KeyCode::Char('O') => Ask::Sort(Sort::Out),
        KeyCode::Char('S') => Ask::Sort(Sort::Stall),
        _ => return None,
    })
}

/// Waits for the next frame's time, or for an earlier key or signal.
fn wait_for_key(ended_by: &AtomicUsize) -> anyhow::Result<Option<Ask>> {
    let end = Instant::now() + REFRESH;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let key = event::poll(left.min(SIGNALS))?;
        if ended_by.load(Relaxed) != 0 {
            return Ok(Some(Ask::Quit));
        }
        if !key {
            match left.is_zero() {
                true => return Ok(None),
                false => continue,
            }
        }
        let Event::Key(key) = event::read()? else { continue };
        let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let asked = if interrupt { Some(Ask::Quit) } else { asked_by(key.code) };
        if asked.is_some() && key.kind == KeyEventKind::Press {
            return Ok(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_under_its_heads() {
        let old = Snapshot { budget_bytes: 8 << 30, lease_bytes: 4 << 30, job: 7, ..Snapshot::default() };
        assert_eq!(jobs([&old, &old].into_iter()), "job 7: 8 GiB of 8 GiB leased, by 2 paged\n");
        let mut now = Snapshot {
            resident_bytes: 3 << 30,
            untracked_bytes: 64 << 20,
            major_faults: 200,
            stalled_us: 1_000_000,
            major_wait_us: 3_000_000,
            program_us: 1_000_000,
            page_in_bytes: 4_000_000,
            prefetched_blocks: 10_000,
            prefetch_used_runs: 90,
            prefetch_wasted_runs: 10,
            dirty_page_outs: 1,
            clean_page_outs: 3,
            ..old
        };
        now.major_latency_us[7] = 1;
        let rates = Some(Rates { old, seconds: 2.0 });
        let row = Line { pid: 42, name: "simulation".to_owned(), processes: 1, now, rates }.row("42");
        let narrow = frame(std::slice::from_ref(&row), 80, true);
        let frame = frame(std::slice::from_ref(&row), 140, false);
        let fields: Vec<_> = row.split_whitespace().collect();
        let wanted = "42 simulation 4 GiB 3 GiB 64 MiB 100 0 2 0 50 75 90 10 25 <128 us <128 us";
        assert_eq!(fields.join(" "), wanted, "{frame}");
        let widths: Vec<_> = frame.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [140, 140], "{frame}");
        let widths: Vec<_> = narrow.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [72; 4], "{narrow}");
        let phone = super::frame(std::slice::from_ref(&row), 58, true);
        let widths: Vec<_> = phone.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [56; 6], "{phone}");
        assert_eq!(phone.split_whitespace().count(), narrow.split_whitespace().count());
        assert_eq!(
            narrow.split_whitespace().collect::<Vec<_>>()[11..19].join(" "),
            "STALL% WAIT% HIT% WASTE% DIRTY% P50 P99 42"
        );
    }

    #[test]
    fn without_a_first_look_there_are_no_rates() {
        let now = Snapshot::default();
        let row = Line { pid: 1, name: "x".to_owned(), processes: 1, now, rates: None }.row("1");
        assert!(row.contains(" - "), "{row}");
        assert!(frame(&[], 80, false).contains("no process is paged (start"));
        assert!(frame(&[], 134, true).contains("that you may inspect"));
        assert!(frame(&[], 58, true).lines().all(|line| line.chars().count() <= 58));
    }
}
