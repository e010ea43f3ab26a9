//! Whether runs were long enough: the gains in the two halves of the measured part are compared,
//! and runs whose halves differ are made longer.

use super::Bench;
use terapage_config::Size;
use terapage_figures::processors;
use terapage_hybrid::Outcome;
use terapage_report::Table;
use terapage_sim::progress::Progress;
use terapage_sim::quantity::signed;
use terapage_volumes::{Case, gain_percent, simulate_all};

/// A volume has converged if the gains of its halves are at most this many percentage points apart,
/// and the standard error over seeds is at most that. Chosen, not measured.
const POINTS: f64 = 1.0;
/// The greatest factor by which a run is made longer. Chosen, not measured.
const LONGER_MAX: u64 = 16;

/// The grouping of cases. The first case of a group is the base, and the others are compared with
/// it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cases {
    /// Cases of a group.
    pub(super) group: usize,
    /// Whether the groups differ only in their seeds; then the mean over the groups is judged.
    pub(super) seeds: bool,
}

/// How a volume's runs were judged.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    volume: String,
    traffic_bytes: u64,
    requests: u64,
    /// The gains in the two halves, in percent, of the case whose halves are furthest apart; `None`
    /// if too little was measured.
    halves: Option<[f64; 2]>,
    /// The standard error of the gain's mean over seeds; `None` for one seed.
    error: Option<f64>,
}

impl Settled {
    fn of(volume: &str, traffic_bytes: u64, outcomes: &[Outcome], cases: Cases) -> Settled {
        let groups: Vec<&[Outcome]> = outcomes.chunks_exact(cases.group).collect();
        let mut worst: Option<[f64; 2]> = None;
        let mut missing = groups.is_empty();
        let mut error = None;
        let mut judge = |groups: &[&[Outcome]], other: usize| {
            let halves: Option<Vec<[f64; 2]>> =
                groups.iter().map(|all| gains(&all[0], &all[other])).collect();
            let Some(halves) = halves else {
                missing = true;
                return;
            };
            let mean = |half: usize| halves.iter().map(|of| of[half]).sum::<f64>() / halves.len() as f64;
            let means = [mean(0), mean(1)];
            if worst.is_none_or(|worst| apart(worst) < apart(means)) {
                worst = Some(means);
            }
            let whole: Vec<f64> = groups.iter().map(|all| gain_percent(&all[0], &all[other])).collect();
            error = standard_error(&whole).into_iter().chain(error).reduce(f64::max);
        };
        for other in 1..cases.group {
            if cases.seeds {
                judge(&groups, other);
            } else {
                groups.iter().for_each(|group| judge(&[group], other));
            }
        }
        let halves = if missing { None } else { worst };
        let requests = outcomes.first().map_or(0, |one| one.requests + one.warm_up);
        Settled { volume: volume.to_owned(), traffic_bytes, requests, halves, error }
    }

    fn has_converged(&self) -> bool {
        self.halves.is_some_and(|halves| apart(halves) <= POINTS)
            && self.error.is_none_or(|error| error <= POINTS)
    }
}

/// The gains of both halves, in percent.
fn gains(base: &Outcome, other: &Outcome) -> Option<[f64; 2]> {
    let (base, other) = (base.halves_iops?, other.halves_iops?);
    Some([0, 1].map(|half| (other[half] / base[half] - 1.0) * 100.0))
}

fn apart(halves: [f64; 2]) -> f64 {
    (halves[1] - halves[0]).abs()
}

fn standard_error(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (count - 1.0) / count).sqrt())
}

/// Simulates `cases`, grouped as `lie` says. Synthetic volumes that have not converged are
/// simulated again, each time twice as long, unless the user has chosen the length.
pub(super) fn simulate(
    bench: &Bench,
    cases: &[Case],
    lie: Cases,
) -> anyhow::Result<(Vec<Vec<Outcome>>, Vec<Settled>)> {
    let mut outcomes = bench.outcomes(cases)?;
    let traffic = cases.first().map_or(0, |case| case.traffic_bytes);
    let fixed = bench.long || bench.changes.iter().any(|(name, _)| name == "requests" || name == "traffic");
    let mut judged = Vec::new();
    for (workload, found) in bench.workloads.iter().zip(&mut outcomes) {
        let mut settled = Settled::of(&workload.name, traffic, found, lie);
        let mut longer = traffic;
        while !settled.has_converged()
            && !fixed
            && workload.is_generated()
            && longer < LONGER_MAX * traffic
            && workload.requests_for(longer) < workload.len()
        {
            longer *= 2;
            let title = format!("{} has not converged, {}", workload.name, Size(longer));
            let progress = Progress::new(title, cases.len() as u64);
            let cases: Vec<Case> =
                cases.iter().map(|case| Case { traffic_bytes: longer, ..case.clone() }).collect();
            let again =
                simulate_all(&cases, std::slice::from_ref(workload), processors(), || progress.add(1))?;
            *found = again.into_iter().next().unwrap_or_default();
            settled = Settled::of(&workload.name, longer, found, lie);
        }
        judged.push(settled);
    }
    Ok((outcomes, judged))
}

/// Which volumes have not converged, for the page's summary.
pub(super) fn finding(judged: &[Settled]) -> String {
    let how = format!(
        "A volume has converged if the gains in the two halves of the measured part are at most {POINTS:.0} percentage point \
         apart, and, with several seeds, the standard error is no more than that."
    );
    let open: Vec<String> = judged.iter().filter(|one| !one.has_converged()).map(said).collect();
    match open.len() {
        0 => format!("All volumes have converged. {how}"),
        _ => format!("NOT CONVERGED: {}. {how}", open.join("; ")),
    }
}

fn said(one: &Settled) -> String {
    match one.halves {
        None => format!("{} (too little was measured)", one.volume),
        Some([first, second]) => format!(
            "{} ({} %, then {} %{}, with {})",
            one.volume,
            signed(first),
            signed(second),
            one.error.map_or_else(String::new, |error| format!(", +- {error:.1}")),
            Size(one.traffic_bytes)
        ),
    }
}

pub(super) fn table(judged: &[Settled]) -> Table {
    let row = |one: &Settled| {
        let half = |at: usize| one.halves.map_or_else(|| "-".to_owned(), |halves| signed(halves[at]));
        vec![
            one.volume.clone(),
            Size(one.traffic_bytes).to_string(),
            one.requests.to_string(),
            half(0),
            half(1),
            one.error.map_or_else(|| "one seed".to_owned(), |error| format!("{error:.2}")),
            if one.has_converged() { "yes" } else { "NO" }.to_owned(),
        ]
    };
    let columns = [
        "volume",
        "traffic, at most",
        "requests",
        "first half, %",
        "second half, %",
        "standard error",
        "converged",
    ];
    Table {
        title: "Convergence".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: judged.iter().map(row).collect(),
        note: "Gains over the first of the compared chips; if several are compared with it, of the one whose halves are furthest \
               apart. A volume that has not converged is simulated again, twice as long each time, if its requests are synthetic \
               and neither --traffic nor the number of requests is given. Traces are used whole."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Settled, finding, standard_error, table};

    fn settled(halves: Option<[f64; 2]>, error: impl Into<Option<f64>>) -> Settled {
        Settled {
            volume: "proj_0".to_owned(),
            traffic_bytes: 3 << 30,
            requests: 9,
            halves,
            error: error.into(),
        }
    }

    #[test]
    fn halves_that_differ_are_named() {
        let good = settled(Some([7.0, 6.4]), 0.2);
        assert!(finding(std::slice::from_ref(&good)).starts_with("All volumes have converged."));
        for bad in [settled(Some([7.0, 5.0]), 0.2), settled(Some([7.0, 7.0]), 1.4), settled(None, 0.0)] {
            let said = finding(&[good.clone(), bad.clone()]);
            assert!(said.starts_with("NOT CONVERGED: proj_0 ("), "{said}");
            assert_eq!(table(&[bad]).rows[0][6], "NO");
        }
        let one_seed = settled(Some([7.0, 5.0]), None);
        let said = finding(std::slice::from_ref(&one_seed));
        assert!(said.contains("(+7.0 %, then +5.0 %, with 3 GiB)"), "{said}");
        assert_eq!(table(&[one_seed]).rows[0][5], "one seed");
    }

    #[test]
    fn seeds_that_agree_have_no_error_and_one_seed_has_none_that_is_known() {
        assert_eq!(standard_error(&[7.0]), None);
        assert_eq!(standard_error(&[7.0, 7.0, 7.0]), Some(0.0));
        assert!((standard_error(&[1.0, 3.0]).unwrap() - 1.0).abs() < 1e-12);
    }
}
