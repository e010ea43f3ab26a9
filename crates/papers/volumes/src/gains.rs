//! Gains: the IOPS of one kind of NAND compared with another, volume by volume.

use crate::case::{Case, CaseError};
use crate::workload::Workload;
use terapage_figures::{in_parallel, mean};
use terapage_hybrid::Outcome;

/// Simulates each case with each workload on `threads` threads: outcomes by workload, then by case.
/// Traces have no seeds, so cases with another seed than that of the first case are left out for
/// them. `progress` is called after each simulation.
///
/// # Errors
/// The first simulation that fails.
pub fn simulate_all(
    cases: &[Case],
    workloads: &[Workload],
    threads: usize,
    mut progress: impl FnMut(),
) -> Result<Vec<Vec<Outcome>>, CaseError> {
    let differs = |workload: &Workload, case: &Case| workload.is_generated() || case.seed == cases[0].seed;
    let jobs: Vec<(usize, &Workload, &Case)> = workloads
        .iter()
        .enumerate()
        .flat_map(|(number, workload)| cases.iter().map(move |case| (number, workload, case)))
        .filter(|(_, workload, case)| differs(workload, case))
        .collect();
    let mut outcomes: Vec<Option<Outcome>> = vec![None; jobs.len()];
    in_parallel(
        jobs.len(),
        threads,
        |number| {
            let (_, workload, case) = jobs[number];
            case.run(workload)
        },
        |number, outcome| {
            outcomes[number] = Some(outcome?);
            progress();
            Ok::<(), CaseError>(())
        },
    )?;
    let mut by_workload: Vec<Vec<Outcome>> = vec![Vec::new(); workloads.len()];
    for ((number, _, _), outcome) in jobs.iter().zip(outcomes.into_iter().flatten()) {
        by_workload[*number].push(outcome);
    }
    Ok(by_workload)
}

/// The percentage by which the IOPS of `outcome` exceed those of `base`.
pub fn gain_percent(base: &Outcome, outcome: &Outcome) -> f64 {
    (outcome.iops / base.iops - 1.0) * 100.0
}

/// A gain over several seeds, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanGain {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation; 0 for one seed.
    pub spread: f64,
}

impl MeanGain {
    /// The gain of pairs of outcomes, one pair for each seed: first the base, then the one compared
    /// with it.
    pub fn of(outcomes: &[Outcome]) -> MeanGain {
        let gains: Vec<f64> = outcomes.chunks_exact(2).map(|both| gain_percent(&both[0], &both[1])).collect();
        let gain = mean(&gains);
        MeanGain { mean: gain.mean, spread: gain.deviation }
    }
}

/// The share of reads in the bytes that pass between cache and flash, 0..1.
pub fn flash_read_share(outcome: &Outcome) -> f64 {
    outcome.cache.as_ref().map_or(0.0, |cache| {
        let (read, written) = (cache.below_read_sectors as f64, cache.below_written_sectors as f64);
        if read + written > 0.0 { read / (read + written) } else { 0.0 }
    })
}

/// The number of pairs of values that are in the same order in both lists, and the number of all
/// pairs. Pairs that are equal in `published` are left out.
pub fn pairs_in_order(published: &[f64], simulated: &[f64]) -> (usize, usize) {
    let (mut agree, mut all) = (0, 0);
    for first in 0..published.len() {
        for second in first + 1..published.len() {
            let (wanted, found) =
                (published[first] - published[second], simulated[first] - simulated[second]);
            if wanted != 0.0 {
                all += 1;
                agree += usize::from(wanted * found > 0.0);
            }
        }
    }
    (agree, all)
}

/// Pearson's correlation of pairs; 0 for fewer than two pairs, or if one side does not vary.
pub fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| pairs.iter().map(pick).sum::<f64>() / n;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum = |product: &dyn Fn(f64, f64) -> f64| {
        pairs.iter().map(|pair| product(pair.0 - x, pair.1 - y)).sum::<f64>()
    };
    let spread = (sum(&|dx, _| dx * dx) * sum(&|_, dy| dy * dy)).sqrt();
    if pairs.len() > 1 && spread > 0.0 { sum(&|dx, dy| dx * dy) / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_by_their_order() {
        assert_eq!(pairs_in_order(&[1.0, 2.0, 3.0], &[0.1, 0.2, 0.3]), (3, 3));
        assert_eq!(pairs_in_order(&[1.0, 2.0, 3.0], &[0.2, 0.1, 0.3]), (2, 3));
        assert_eq!(pairs_in_order(&[1.0, 1.0, 3.0], &[0.2, 0.1, 0.3]), (2, 2));
    }

    #[test]
    fn correlations_of_lines_are_one() {
        let line: Vec<(f64, f64)> = (0..5).map(|x| (f64::from(x), 3.0 - 2.0 * f64::from(x))).collect();
        assert!((correlation(&line) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 2.0)]), 0.0);
    }
}
