//! The expected cost of an experiment, by its own account, and the contenders of each cell.

use crate::experiment::{Cell, Contender, Experiment, Under, is_in};
use crate::result::solve::AGAIN;

/// The expected cost of an experiment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    /// Runs, at least.
    pub runs_least: u64,
    /// The maximum number of runs, without repeated ones.
    pub runs_most: u64,
    /// Seconds, at least and at most.
    pub seconds: (f64, f64),
    /// Bytes of disk at once.
    pub disk_bytes: u64,
    /// The most bytes written to the disk.
    pub written_bytes: u64,
}

/// The expected cost of an experiment, by its own account.
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

/// The contenders of a cell, in order; in the first cell the baseline appears twice.
///
/// # Errors
/// A name does not stand for a contender.
pub fn entrants(experiment: &Experiment, cell: &Cell, first: bool) -> anyhow::Result<Vec<Contender>> {
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

#[cfg(test)]
mod tests {
    use super::{entrants, estimate};
    use crate::experiment::Experiment;

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
}
