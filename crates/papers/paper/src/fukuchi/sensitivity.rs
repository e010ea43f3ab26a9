//! Table 2 with other values for what the paper does not give, to see whether the signs hold.

use super::Bench;
use terapage_report::Table;
use terapage_sim::quantity::signed;
use terapage_volumes::published::GAINS;
use terapage_volumes::{Case, gain_percent};

/// The variations, each of one setting: description, name of the setting, value.
const VARIATIONS: [(&str, &str, &str); 9] = [
    ("traffic 1 GiB", "traffic", "1G"),
    ("traffic 6 GiB", "traffic", "6G"),
    ("traffic 12 GiB", "traffic", "12G"),
    ("depth 4", "depth", "4"),
    ("depth 32", "depth", "32"),
    ("spare 7 %", "over-provisioning", "7%"),
    ("spare 50 %", "over-provisioning", "50%"),
    ("fill: steady", "precondition", "steady"),
    ("front: nvme", "front", "nvme"),
];

/// The gains of one variation, by volume.
pub(super) struct Variation {
    name: &'static str,
    gains: Vec<f64>,
}

pub(super) fn variations(bench: &Bench) -> anyhow::Result<Vec<Variation>> {
    // If the user fixes the number of requests, traffic has no effect.
    let counted = bench.changes.iter().any(|(name, _)| name == "requests");
    let varied: Vec<_> = VARIATIONS.iter().filter(|(_, name, _)| !(counted && *name == "traffic")).collect();
    let mut cases: Vec<Case> = Vec::new();
    for (_, name, value) in &varied {
        for nand in ["2d-fg-mlc", "3d-ct-tlc"] {
            cases.push(bench.case_with(nand, name, value)?);
        }
    }
    let outcomes = bench.outcomes(&cases)?;
    let variation = |(at, (name, _, _)): (usize, &&(&'static str, &str, &str))| Variation {
        name,
        gains: outcomes.iter().map(|all| gain_percent(&all[2 * at], &all[2 * at + 1])).collect(),
    };
    Ok(varied.iter().enumerate().map(variation).collect())
}

/// The volumes whose gain has another sign than the published one.
fn turned(gains: &[f64]) -> Vec<&'static str> {
    let wrong = GAINS.iter().zip(gains).filter(|(gain, found)| gain.percent * **found <= 0.0);
    wrong.map(|(gain, _)| gain.volume).collect()
}

/// Says for the page's summary whether the signs hold.
pub(super) fn finding(variations: &[Variation]) -> String {
    let wrong: Vec<String> = variations
        .iter()
        .filter(|one| !turned(&one.gains).is_empty())
        .map(|one| format!("{} ({})", one.name, turned(&one.gains).join(", ")))
        .collect();
    match wrong.len() {
        0 => format!("All signs hold in the {} variations below.", variations.len()),
        n => format!(
            "NOT ROBUST: in {n} of the {} variations below, signs turn: {}. The paper gives none of the values that are varied.",
            variations.len(),
            wrong.join("; ")
        ),
    }
}

pub(super) fn table(variations: &[Variation]) -> Table {
    let mut columns = vec!["variation".to_owned()];
    columns.extend(GAINS.iter().map(|gain| gain.volume.to_owned()));
    columns.push("signs that turn".to_owned());
    let row = |one: &Variation| {
        let mut row = vec![one.name.to_owned()];
        row.extend(one.gains.iter().map(|gain| signed(*gain)));
        let turned = turned(&one.gains);
        row.push(if turned.is_empty() { "none".to_owned() } else { turned.join(", ") });
        row
    };
    Table {
        title: "Sensitivity: gains in %, one thing changed at a time".to_owned(),
        columns,
        rows: variations.iter().map(row).collect(),
        note: "One seed each. These runs are never made longer: the table Convergence is of the runs above."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Variation, finding};

    #[test]
    fn signs_that_turn_are_named() {
        let gains = |proj_3: f64| vec![6.7, 7.1, 5.3, 6.4, -0.1, proj_3, 3.6];
        let holds = Variation { name: "depth 4", gains: gains(1.0) };
        assert!(finding(std::slice::from_ref(&holds)).starts_with("All signs hold"));
        let said = finding(&[holds, Variation { name: "depth 32", gains: gains(-0.4) }]);
        assert!(
            said.starts_with("NOT ROBUST: in 1 of the 2") && said.contains("depth 32 (proj_3)"),
            "{said}"
        );
    }
}
