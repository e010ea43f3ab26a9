//! Measures the number of requests per second that the SSD simulators handle on one core of this
//! machine, with requests in memory and from a file. Run it on an otherwise idle machine.
//! docs/sim-ssd.md says what is measured.
//!
//! ```text
//! cargo run --release -p terapage-sim --example speed
//! cargo run --release -p terapage-sim --example speed -- --requests 1000000 --repeat 1 --only flash
//! ```

mod cases;
#[allow(dead_code)]
#[path = "../../src/progress.rs"]
mod progress;
#[allow(dead_code)]
#[path = "../../src/ssd/source.rs"]
mod source;

use std::fs;

use clap::Parser;
use terapage_figures::processors;
use terapage_report::{Study, Table, render_text};

use crate::progress::Progress;
use cases::{Case, Figure, cases};

/// Requests of MSR Cambridge's largest volume, prxy_1.
const PRXY_1: f64 = 168.6e6;

/// Measure the SSD simulators on this machine.
#[derive(clap::Parser, Clone, Debug)]
struct Speed {
    /// Requests of each run
    #[arg(long, value_name = "N", default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    requests: u64,
    /// Runs of each kind; the median and the spread are shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    repeat: u64,
    /// Only kinds whose names contain this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// One line of the table.
struct Row {
    what: String,
    /// Million requests a second: median, least, most.
    median: f64,
    least: f64,
    most: f64,
    target: Option<f64>,
    note: String,
}

fn main() -> anyhow::Result<()> {
    Speed::parse().run()
}

impl Speed {
    fn run(self) -> anyhow::Result<()> {
        let cases: Vec<Case> = cases().into_iter().filter(|case| case.what.contains(&self.only)).collect();
        if cases.is_empty() {
            anyhow::bail!("--only {}: no run has this in its name", self.only);
        }
        let progress = Progress::new("measuring", cases.len() as u64 * self.repeat);
        let mut rows = Vec::new();
        for case in cases {
            let figures: anyhow::Result<Vec<Figure>> = (0..self.repeat)
                .map(|_| {
                    let figure = (case.run)(self.requests as usize);
                    progress.add(1);
                    figure
                })
                .collect();
            rows.push(row(&case, figures?));
        }
        drop(progress);
        print!("{}", render_text(&study(&self, &rows), 100));
        Ok(())
    }
}

fn row(case: &Case, mut figures: Vec<Figure>) -> Row {
    figures.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    let rate = |at: usize| figures[at].per_second / 1e6;
    let median = &figures[figures.len() / 2];
    Row {
        what: case.what.to_owned(),
        median: median.per_second / 1e6,
        least: rate(0),
        most: rate(figures.len() - 1),
        target: case.target,
        note: median.note.clone(),
    }
}

fn study(speed: &Speed, rows: &[Row]) -> Study {
    let cell = |row: &Row| {
        vec![
            row.what.clone(),
            format!("{:.2}", row.median),
            format!("{:.2}-{:.2}", row.least, row.most),
            row.target.map_or_else(String::new, |target| format!("{target:.2}")),
            row.target.map_or("", |target| if row.median >= target { "yes" } else { "no" }).to_owned(),
            row.note.clone(),
        ]
    };
    let columns = ["on one core", "M requests/s", "spread", "target", "reached", ""];
    let text = format!(
        "{} requests a run, {} runs of each kind; the median is shown. Requests of \"file\" are read from a CSV file, \
         twice, as `terapage sim ssd` does; the others are in memory. The target of \"file\" is prxy_1's {:.1} million \
         requests in three minutes.",
        speed.requests,
        speed.repeat,
        PRXY_1 / 1e6
    );
    Study {
        title: "Speed of the SSD simulators".to_owned(),
        summary: vec![text],
        machine: machine(),
        tables: vec![Table {
            title: "Requests simulated a second".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: rows.iter().map(cell).collect(),
            note: machine()
                .into_iter()
                .map(|(name, value)| format!("{name}: {value}"))
                .collect::<Vec<_>>()
                .join("; "),
        }],
        ..Study::default()
    }
}

/// Processor, cores and kernel, as far as the system reports them.
fn machine() -> Vec<(String, String)> {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|pair| pair.1));
    let cores = processors();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![
        ("processor".to_owned(), model.unwrap_or("unknown").to_owned()),
        ("cores".to_owned(), cores.to_string()),
        ("kernel".to_owned(), kernel.trim().to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_simulates_what_it_is_given() {
        for case in cases() {
            let figure = (case.run)(2_000).unwrap_or_else(|error| panic!("{}: {error:#}", case.what));
            assert!(figure.per_second > 0.0, "{}", case.what);
        }
    }

    #[test]
    fn the_median_is_what_counts() {
        let figures = [3.0, 9.0, 5.0].map(|rate| Figure { per_second: rate * 1e6, note: rate.to_string() });
        let case = Case { what: "x", target: Some(4.0), run: |_| anyhow::bail!("it is not run") };
        let row = row(&case, figures.into());
        assert_eq!((row.median, row.least, row.most, row.note.as_str()), (5.0, 3.0, 9.0, "5"));
    }
}
