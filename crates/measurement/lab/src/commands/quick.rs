//! `lab all --quick` keeps to its time: by the estimates before it begins, and by the pace of this
//! machine once experiments have run.

use std::time::{Duration, Instant};

/// The seconds that it takes at most by the estimates, which are right within a fifth on a quiet
/// machine.
pub const ESTIMATED_MOST_S: f64 = 12.5 * 60.0;

/// The seconds that it takes at most.
const MOST_S: f64 = 15.0 * 60.0;

/// An experiment may take this many times the time that is expected of it: a single estimate may be
/// further off than their sum.
const SLACK: f64 = 2.0;

/// The experiments that are left out if time is short, in this order: those that show little with
/// small data, those of far memory, and then those whose work others also do.
const LEFT_OUT: [&str; 15] = [
    "devices",
    "sort-blocks",
    "temporal",
    "raid",
    "stream",
    "poisson",
    "mapped",
    "latency",
    "transfer",
    "stride",
    "random",
    "scan",
    "sort",
    "stencil",
    "arrays",
];

/// The time of `lab all --quick`.
pub struct Quick {
    begun: Instant,
    /// The estimate of the work that was done, seconds.
    estimated_s: f64,
    /// The experiments that are left out.
    pub left_out: Vec<String>,
}

impl Quick {
    /// Begins now; leaves experiments out until the estimates of the others fit.
    pub fn new(estimates: Vec<(String, f64)>) -> Quick {
        let left_out = too_long(&estimates, ESTIMATED_MOST_S);
        Quick { begun: Instant::now(), estimated_s: 0.0, left_out }
    }

    /// Work of this estimate was done.
    pub fn did(&mut self, estimated_s: f64) {
        self.estimated_s += estimated_s;
    }

    fn taken_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// The time that the work took as a multiple of its estimate, 1 or more.
    pub fn pace(&self) -> f64 {
        match self.estimated_s > 0.0 {
            true => (self.taken_s() / self.estimated_s).max(1.0),
            false => 1.0,
        }
    }

    /// When an experiment must have ended.
    pub fn end_of(&self, estimated_s: f64) -> Instant {
        let left_s = (MOST_S - self.taken_s()).max(0.0);
        Instant::now() + Duration::from_secs_f64((SLACK * self.pace() * estimated_s).min(left_s))
    }

    /// The experiments among the remaining ones that must be left out too, at the pace so far.
    pub fn leave_out(&mut self, remaining: &[(String, f64)]) -> Vec<String> {
        let dropped = too_long(remaining, (MOST_S - self.taken_s()) / self.pace());
        self.left_out.extend(dropped.iter().cloned());
        dropped
    }

    /// Says that experiments are left out.
    pub fn told(&self, names: &[String]) -> String {
        let pace = self.pace();
        let slow = match pace > 1.2 {
            true => format!(" (this machine takes {pace:.1} times as long as estimated)"),
            false => String::new(),
        };
        format!(
            "--quick keeps to {:.0} minutes{slow}, and leaves out {} ({})",
            MOST_S / 60.0,
            names.join(", "),
            command(names)
        )
    }
}

/// The command that runs the experiments that were left out.
pub fn command(names: &[String]) -> String {
    format!("terapage lab run {} --quick", names.join(" "))
}

/// The experiments that must be left out so that the estimates of the others fit.
fn too_long(estimates: &[(String, f64)], room_s: f64) -> Vec<String> {
    let mut left: Vec<String> = Vec::new();
    for name in LEFT_OUT {
        let kept = estimates.iter().filter(|(known, _)| !left.contains(known));
        if kept.map(|(_, seconds)| seconds).sum::<f64>() <= room_s {
            break;
        }
        left.extend(estimates.iter().any(|(known, _)| known == name).then(|| name.to_owned()));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::{LEFT_OUT, MOST_S, Quick, too_long};
    use crate::experiment::SHIPPED;
    use std::time::{Duration, Instant};

    fn estimates(names: &[&str]) -> Vec<(String, f64)> {
        names.iter().map(|name| ((*name).to_owned(), 60.0)).collect()
    }

    #[test]
    fn every_experiment_but_the_first_can_be_left_out() {
        for (name, _) in &SHIPPED[1..] {
            assert!(LEFT_OUT.contains(name), "{name}");
        }
        let all = estimates(&["raw", "arrays", "scan", "sort"]);
        assert!(too_long(&all, 240.0).is_empty());
        assert_eq!(too_long(&all, 130.0), ["scan", "sort"]);
        assert_eq!(too_long(&all, 0.0), ["scan", "sort", "arrays"]);
    }

    #[test]
    fn a_slow_machine_leaves_out_more() {
        let mut quick = Quick::new(estimates(&["raw", "arrays", "stencil", "scan", "sort"]));
        assert!(quick.left_out.is_empty() && quick.pace() == 1.0);
        // 60 estimated seconds took 300.
        quick.begun = Instant::now().checked_sub(Duration::from_secs(300)).expect("a machine that is up");
        quick.did(60.0);
        assert!((quick.pace() - 5.0).abs() < 0.1, "{}", quick.pace());
        // 10 minutes are left, for 2 minutes by the estimates.
        let dropped = quick.leave_out(&estimates(&["arrays", "stencil", "scan", "sort"]));
        assert_eq!(dropped, ["scan", "sort", "stencil"]);
        assert_eq!(quick.left_out, dropped);
        let said = quick.told(&dropped);
        assert!(said.contains("5.0 times") && said.contains("terapage lab run scan sort stencil"), "{said}");
        // No experiment may go on beyond the end of all.
        let end = quick.end_of(10_000.0).saturating_duration_since(Instant::now()).as_secs_f64();
        assert!(end <= MOST_S - 300.0 && end > MOST_S - 310.0, "{end}");
    }
}
