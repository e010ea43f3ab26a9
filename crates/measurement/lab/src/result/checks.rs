//! Cross-checks: how often another tool and the lab agree where they must.

use crate::experiment::unit::Side;
use crate::experiment::{Experiment, Kind};
use crate::result::number::number;
use crate::result::solve::Solved;
use crate::result::target::Target;
use std::collections::BTreeMap;

/// The cases in which two results agree.
pub struct Check {
    what: String,
    /// Within this share of each other.
    most: f64,
    /// The least and the greatest ratio.
    range: (f64, f64),
    /// The number of cells in which they agree, beyond the noise.
    pub met: usize,
    /// The number of cells that the noise, or disturbed runs, leave open.
    pub open: usize,
    /// Cells.
    pub all: usize,
}

impl Check {
    /// The values for sentences.
    pub fn values(&self) -> [(&'static str, String); 7] {
        [
            ("what", self.what.clone()),
            ("met", self.met.to_string()),
            ("open", self.open.to_string()),
            ("all", self.all.to_string()),
            ("percent", format!("{:.0}", self.most * 100.0)),
            ("low", number(self.range.0)),
            ("high", number(self.range.1)),
        ]
    }
}

/// The cross-checks of an experiment.
pub fn cross_checks(experiment: &Experiment, solved: &Solved) -> Vec<Check> {
    let mut all: BTreeMap<&str, Vec<(f64, &Target)>> = BTreeMap::new();
    let is_check = |what: &str| {
        experiment.target.iter().any(|form| {
            form.side == Side::Within
                && form.kind == Kind::Ratio
                && what.starts_with(&format!("{} ", form.of))
        })
    };
    for (_, target) in solved.targets.iter().filter(|(_, target)| target.side == Side::Within) {
        if let Some(value) = target.value.filter(|_| is_check(&target.what)) {
            all.entry(&target.what).or_default().push((value, target));
        }
    }
    let check = |(what, values): (&str, Vec<(f64, &Target)>)| Check {
        what: what.to_owned(),
        most: values.first().map_or(0.0, |(_, target)| target.target),
        range: values.iter().fold((f64::MAX, 0f64), |(a, b), (of, _)| (a.min(*of), b.max(*of))),
        met: values.iter().filter(|(_, target)| target.met == Some(true)).count(),
        open: values.iter().filter(|(_, target)| target.undecided.is_some()).count(),
        all: values.len(),
    };
    all.into_iter().map(check).collect()
}
