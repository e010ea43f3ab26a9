//! What stands above the table of a live `top`: how full memory is, as a bar, and how the last
//! minute was, as a row of small bars for each rate.

use super::view::Line;
use std::collections::VecDeque;
use terapage_config::Size;

/// Looks that are kept: a minute.
const KEPT: usize = 60;

/// Characters of the names on the left, and of the values on the right.
const NAMES: usize = 8;
const VALUES: usize = 24;

/// The heights of a bar of one character, the lowest first.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same where the terminal's character set is unknown.
const LETTERS: [char; 8] = [' ', '.', ':', '-', '=', '+', '*', '#'];

/// How all processes together were at one time.
#[derive(Clone, Copy, Default)]
struct Look {
    /// The share of the time in which a thread waited, the mean of the processes.
    stalled: f64,
    in_mb_s: f64,
    out_mb_s: f64,
}

/// The last minute.
pub struct History {
    looks: VecDeque<Look>,
    resident_bytes: u64,
    lease_bytes: u64,
    heights: [char; 8],
}

impl History {
    /// Nothing yet, for the terminal that the environment describes.
    pub fn new() -> History {
        let names = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
        let set = names.map(|name| name.to_string_lossy().to_lowercase()).find(|name| !name.is_empty());
        History::with(set.is_some_and(|set| set.contains("utf-8") || set.contains("utf8")))
    }

    fn with(blocks: bool) -> History {
        let heights = if blocks { BLOCKS } else { LETTERS };
        History { looks: VecDeque::new(), resident_bytes: 0, lease_bytes: 0, heights }
    }

    /// Adds how all processes together are now; nothing was known of them before the first look.
    pub fn add(&mut self, all: &Line) {
        (self.resident_bytes, self.lease_bytes) = (all.now.resident_bytes, all.now.lease_bytes);
        let Some(rates) = &all.rates else { return };
        let rate = |counter| rates.of(&all.now, counter);
        self.looks.push_back(Look {
            stalled: (rate(|s| s.stalled_us) / 1e6 / all.processes.max(1) as f64).min(1.0),
            in_mb_s: rate(|s| s.page_in_bytes) / 1e6,
            out_mb_s: rate(|s| s.page_out_bytes) / 1e6,
        });
        if self.looks.len() > KEPT {
            self.looks.pop_front();
        }
    }

    /// Four lines of at most `width` characters.
    pub fn text(&self, width: usize) -> String {
        let room = width.saturating_sub(NAMES + VALUES).clamp(1, KEPT);
        let last = self.looks.back().copied().unwrap_or_default();
        let bytes = |bytes: u64| Size(bytes >> 20 << 20);
        let value = format!("{} of {}", bytes(self.resident_bytes), bytes(self.lease_bytes));
        let full = self.resident_bytes as f64 / self.lease_bytes.max(1) as f64;
        let mut text = line("memory", self.bar(full, room), &value);
        let percent = format!("{:.0} %", last.stalled * 100.0);
        text += &line("stalled", self.row(|look| look.stalled, Some(1.0), room), &percent);
        for (name, rate, now) in [
            ("in", (|look| look.in_mb_s) as fn(&Look) -> f64, last.in_mb_s),
            ("out", |look| look.out_mb_s, last.out_mb_s),
        ] {
            let most = self.looks.iter().map(rate).fold(0.0, f64::max);
            let value = format!("{now:.0} MB/s, at most {most:.0}");
            text += &line(name, self.row(rate, None, room), &value);
        }
        text
    }

    /// A bar of `room` characters, so full.
    fn bar(&self, full: f64, room: usize) -> String {
        let filled = ((full * room as f64).round() as usize).min(room);
        let [most, least] = [self.heights[7], if self.heights == BLOCKS { '░' } else { '.' }];
        (0..room).map(|at| if at < filled { most } else { least }).collect()
    }

    /// The last `room` values as bars of one character each, the last at the right; the highest is
    /// `most`, or that of the values.
    fn row(&self, value: impl Fn(&Look) -> f64, most: Option<f64>, room: usize) -> String {
        let values: Vec<f64> = self.looks.iter().rev().take(room).map(value).collect();
        let most = most.unwrap_or_else(|| values.iter().copied().fold(0.0, f64::max));
        let height = |value: &f64| match most > 0.0 && *value > 0.0 {
            true => self.heights[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
            false => ' ',
        };
        let bars: String = values.iter().rev().map(height).collect();
        format!("{bars:>room$}")
    }
}

fn line(name: &str, graph: String, value: &str) -> String {
    format!("{name:<NAMES$}{graph} {value}\n")
}

#[cfg(test)]
mod tests {
    use super::super::view::Rates;
    use super::*;
    use terapage_stats::Snapshot;

    fn look(stalled_us: u64, page_in_bytes: u64) -> Line {
        let old = Snapshot { lease_bytes: 200 << 20, resident_bytes: 150 << 20, ..Snapshot::default() };
        let now = Snapshot { stalled_us, page_in_bytes, ..old };
        Line { pid: 1, name: "x".into(), processes: 1, now, rates: Some(Rates { old, seconds: 1.0 }) }
    }

    #[test]
    fn memory_is_a_bar_and_the_last_minute_rows_of_bars() {
        let mut history = History::with(true);
        for (stalled, bytes) in [(0, 0), (500_000, 40_000_000), (1_000_000, 80_000_000)] {
            history.add(&look(stalled, bytes));
        }
        let text = history.text(42);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "memory  ████████░░ 150 MiB of 200 MiB",
                "stalled         ▄█ 100 %",
                "in              ▄█ 80 MB/s, at most 80",
                "out                0 MB/s, at most 0",
            ]
        );
        history.heights = LETTERS;
        assert!(history.text(42).is_ascii());
    }

    #[test]
    fn lines_fit_any_terminal_and_a_minute_is_kept() {
        let mut history = History::with(true);
        for _ in 0..200 {
            history.add(&look(700_000, 123_000_000));
        }
        assert_eq!(history.looks.len(), KEPT);
        for width in [58, 80, 140] {
            let widest = history.text(width).lines().map(|line| line.chars().count()).max().unwrap();
            assert!((width.min(90) - 8..=width).contains(&widest), "{widest} of {width}");
        }
        assert_eq!(history.text(1).lines().count(), 4);
    }
}
