//! `terapage top`: paged processes, live.

use crate::{complain, print, process, process::Paged, regions, stat::latency, stat::table};
use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terapage_config::Size;
use terapage_stats::Snapshot;

/// Between two frames.
const REFRESH: Duration = Duration::from_secs(1);
/// Between the two looks that rates are taken from when only one frame is printed.
const ONE_LOOK: Duration = Duration::from_millis(500);

/// The arguments of `terapage top`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage top
  terapage top 4711
  terapage top --once

Keys:
  q quits.

Exit status:
  0; 1 where the process is not paged.")]
pub struct Top {
    /// The process; all paged processes without it
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Print one frame and end; needs no terminal
    #[arg(long)]
    once: bool,
}

/// Counters of one process at one time.
type Looks = HashMap<u32, (Instant, Snapshot)>;

impl Top {
    /// Shows frames until `q`, or one.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(pid) = self.pid {
            let why = match Paged::find(pid) {
                Ok(Some(_)) => None,
                Ok(None) => Some(format!("process {pid} is not paged (start it with terapage run)")),
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(why) = why {
                complain(&why);
                return Ok(ExitCode::FAILURE);
            }
        }
        let mut before = Looks::new();
        if self.once {
            self.look(&mut before);
            std::thread::sleep(ONE_LOOK);
            print(&self.look(&mut before))?;
            return Ok(ExitCode::SUCCESS);
        }
        if !stdout().is_terminal() {
            anyhow::bail!("standard output is no terminal (use terapage top --once)");
        }
        let _screen = Screen::enter()?;
        loop {
            show(&self.look(&mut before))?;
            if wait_for_quit()? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// A frame of the processes as they are now, with rates since `before`, which becomes now.
    fn look(&self, before: &mut Looks) -> String {
        let paged = match self.pid {
            Some(pid) => Paged::find(pid).ok().flatten().into_iter().collect(),
            None => process::all(),
        };
        let mut now = Looks::new();
        let mut rows = Vec::new();
        let mut details = String::new();
        for paged in paged.iter().filter(|paged| paged.is_alive()) {
            let Some(snapshot) = paged.snapshot() else { continue };
            let at = Instant::now();
            now.insert(paged.pid, (at, snapshot));
            let rates = before
                .get(&paged.pid)
                .map(|(then, old)| Rates { old: *old, seconds: at.duration_since(*then).as_secs_f64() });
            rows.push(row(paged.pid, &paged.name, &snapshot, rates.as_ref()));
            if self.pid.is_some() {
                let regions = regions::table(paged.regions());
                details = format!("\n{}{regions}", table(&paged.name, &snapshot));
            }
        }
        *before = now;
        frame(&rows) + &details
    }
}

const HEAD: &str = concat!(
    "    PID NAME            ",
    "    BUDGET   RESIDENT  HARD/s  SOFT/s IN MB/s OUT MB/s  HIT% WASTE% DIRTY%      P50      P99\n"
);

fn frame(rows: &[String]) -> String {
    if rows.is_empty() {
        return format!("{HEAD}no process is paged (start one with terapage run)\n");
    }
    format!("{HEAD}{}", rows.concat())
}

/// What to take rates from.
struct Rates {
    old: Snapshot,
    seconds: f64,
}

impl Rates {
    fn of(&self, now: &Snapshot, counter: fn(&Snapshot) -> u64) -> f64 {
        // Another process under the same id counts from zero again.
        counter(now).saturating_sub(counter(&self.old)) as f64 / self.seconds.max(1e-3)
    }
}

fn row(pid: u32, name: &str, now: &Snapshot, rates: Option<&Rates>) -> String {
    let rate = |counter, unit: f64| match rates {
        Some(rates) => format!("{:.0}", rates.of(now, counter) / unit),
        None => "-".to_owned(),
    };
    let share = |part: u64, whole: u64| match whole {
        0 => "-".to_owned(),
        _ => format!("{:.0}", part as f64 * 100.0 / whole as f64),
    };
    let left = now.clean_page_outs.saturating_add(now.zero_page_outs).saturating_add(now.dirty_page_outs);
    let percentile = |p| latency(now.hard_latency_percentile_us(p));
    let mut row = String::new();
    let _ = writeln!(
        row,
        "{pid:>7} {name:<15} {:>10} {:>10} {:>7} {:>7} {:>7} {:>8} {:>5} {:>6} {:>6} {:>8} {:>8}",
        Size(now.budget_bytes).to_string(),
        Size(now.resident_bytes).to_string(),
        rate(|s| s.hard_faults, 1.0),
        rate(|s| s.soft_faults, 1.0),
        rate(|s| s.page_in_bytes, 1e6),
        rate(|s| s.page_out_bytes, 1e6),
        share(now.prefetch_used_blocks, now.prefetched_blocks),
        share(now.prefetch_wasted_blocks, now.prefetched_blocks),
        share(now.dirty_page_outs, left),
        percentile(0.5),
        percentile(0.99),
    );
    row
}

/// The terminal while `top` has it; given back when dropped.
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
fn show(frame: &str) -> anyhow::Result<()> {
    let (width, height) = terminal::size().unwrap_or((80, 24));
    let mut screen = String::new();
    for line in frame.lines().take(usize::from(height).saturating_sub(1)) {
        screen.extend(line.chars().take(width.into()));
        screen.push_str("\x1b[K\r\n");
    }
    let mut out = stdout().lock();
    write!(out, "\x1b[H{screen}\x1b[J\x1b[2mq quits\x1b[0m")?;
    Ok(out.flush()?)
}

/// Waits for the next frame's time; true where the user wants to end before.
fn wait_for_quit() -> anyhow::Result<bool> {
    let end = Instant::now() + REFRESH;
    loop {
        if !event::poll(end.saturating_duration_since(Instant::now()))? {
            return Ok(false);
        }
        let Event::Key(key) = event::read()? else { continue };
        let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let quit = interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if quit && key.kind == KeyEventKind::Press {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stands_under_its_heads() {
        let old = Snapshot { budget_bytes: 4 << 30, ..Snapshot::default() };
        let mut now = Snapshot {
            resident_bytes: 3 << 30,
            hard_faults: 200,
            page_in_bytes: 4_000_000,
            prefetched_blocks: 100,
            prefetch_used_blocks: 90,
            prefetch_wasted_blocks: 5,
            dirty_page_outs: 1,
            clean_page_outs: 3,
            ..old
        };
        now.hard_latency_us[7] = 1;
        let row = row(42, "simulation", &now, Some(&Rates { old, seconds: 2.0 }));
        let frame = frame(std::slice::from_ref(&row));
        let fields: Vec<_> = row.split_whitespace().collect();
        let wanted = "42 simulation 4 GiB 3 GiB 100 0 2 0 90 5 25 <128 us <128 us";
        assert_eq!(fields.join(" "), wanted, "{frame}");
        let widths: Vec<_> = frame.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths[0], widths[1], "{frame}");
    }

    #[test]
    fn without_a_first_look_there_are_no_rates() {
        let row = row(1, "x", &Snapshot::default(), None);
        assert!(row.contains(" - "), "{row}");
        assert!(frame(&[]).contains("no process is paged"));
    }
}
