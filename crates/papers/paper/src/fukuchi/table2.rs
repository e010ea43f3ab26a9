//! Table 2: the gains of 3D CT TLC over 2D FG MLC.

use super::{Bench, called, collected, headed, sensitivity, settled};
use terapage_report::{Axis, Ends, Mark, Plot, PlotKind, Series, Study, Table, Whisker, X};
use terapage_sim::quantity::signed;
use terapage_volumes::published::{GAINS, SOURCE};
use terapage_volumes::{Case, MeanGain, pairs_in_order};

pub(super) fn study(bench: &Bench, seeds: u64, varied: bool) -> anyhow::Result<Study> {
    let mut cases = Vec::new();
    for seed in bench.base.seed..bench.base.seed + seeds {
        for nand in ["2d-fg-mlc", "3d-ct-tlc"] {
            cases.push(Case { seed, ..bench.case(nand)? });
        }
    }
    let (outcomes, judged) = settled::simulate(bench, &cases, settled::Cases { group: 2, seeds: true })?;
    let gains: Vec<MeanGain> = outcomes.iter().map(|of_seeds| MeanGain::of(of_seeds)).collect();
    let means: Vec<f64> = gains.iter().map(|gain| gain.mean).collect();
    let mut study = headed("Table 2: gains of SCM with 3D CT TLC over SCM with 2D FG MLC");
    study.summary = vec![
        collected::first_line(bench, &outcomes),
        settled::finding(&judged),
        verdict(&means),
        freedom(bench),
    ];
    study.tables = vec![table(bench, &gains)];
    if varied {
        let variations = sensitivity::variations(bench)?;
        study.summary.push(sensitivity::finding(&variations));
        study.tables.push(sensitivity::table(&variations));
    }
    let names = [bench.chip("2d-fg-mlc"), bench.chip("3d-ct-tlc")];
    study.tables.push(settled::table(&judged));
    study.tables.push(collected::table(bench, &outcomes, &[&names[0], &names[1]]));
    study.plots = vec![plot(bench, &gains)];
    Ok(study)
}

/// The degrees of freedom that the fit leaves.
fn freedom(bench: &Bench) -> String {
    let chip = bench.fitted.chips.get("3d-ct-tlc").map_or(0, std::collections::BTreeMap::len);
    let values = bench.fitted.common.len() + chip;
    match values {
        0 => "No value was fitted.".to_owned(),
        _ => format!(
            "{values} values were fitted to these {} gains, which leaves {} degrees of freedom: their agreement says nothing \
             about the model.",
            GAINS.len(),
            GAINS.len().saturating_sub(values)
        ),
    }
}

/// Whether signs and order are as published, and the largest difference.
fn verdict(gains: &[f64]) -> String {
    let published: Vec<f64> = GAINS.iter().map(|gain| gain.percent).collect();
    let wrong: Vec<&str> = GAINS
        .iter()
        .zip(gains)
        .filter(|(gain, found)| gain.percent * **found <= 0.0)
        .map(|(gain, _)| gain.volume)
        .collect();
    let signs = match wrong.len() {
        0 => "All seven signs are as published.".to_owned(),
        n => format!("{} of seven signs are as published, not those of {}.", 7 - n, wrong.join(", ")),
    };
    let (agree, pairs) = pairs_in_order(&published, gains);
    let order = if agree == pairs {
        "The order of the volumes is as published.".to_owned()
    } else {
        format!("Of {pairs} pairs of volumes, {agree} are in the published order.")
    };
    let far = GAINS.iter().zip(gains).map(|(gain, found)| (found - gain.percent).abs());
    let (mut most, mut volume) = (0.0, "");
    for (distance, gain) in far.zip(GAINS) {
        if distance > most {
            (most, volume) = (distance, gain.volume);
        }
    }
    format!("{signs} {order} The largest difference is {most:.1} percentage points, of {volume}.")
}

fn table(bench: &Bench, gains: &[MeanGain]) -> Table {
    let rows = GAINS.iter().zip(gains).zip(bench.volumes()).map(|((gain, found), (_, mark))| {
        // Traces have no seeds.
        let spread = if mark == Mark::Synthetic { format!("{:.2}", found.spread) } else { "-".to_owned() };
        let found = found.mean;
        let sign = if gain.percent * found > 0.0 { "as published" } else { "WRONG" };
        vec![
            gain.volume.to_owned(),
            if gain.write_intensive { "writes" } else { "reads" }.to_owned(),
            signed(gain.percent),
            signed(found),
            spread,
            signed(found - gain.percent),
            sign.to_owned(),
            called(mark).to_owned(),
        ]
    });
    let columns =
        ["volume", "mostly", "published, %", "simulated, %", "+- (seeds)", "difference", "sign", "requests"];
    Table {
        title: "Gain in IOPS".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: format!(
            "Published: {SOURCE}. Differences are in percentage points; +- is the standard deviation over seeds."
        ),
    }
}

/// Published gains beside simulated ones. Synthetic volumes and real traces are separate series.
fn plot(bench: &Bench, gains: &[MeanGain]) -> Plot {
    let named = |name: &str, value: f64| (X::Name(name.to_owned()), value);
    let published = GAINS.iter().map(|gain| named(gain.volume, gain.percent)).collect();
    let mut series = vec![Series {
        name: "published".to_owned(),
        mark: Mark::Published,
        points: published,
        ..Series::default()
    }];
    for mark in [Mark::Synthetic, Mark::Simulated] {
        let of = || bench.volumes().zip(gains).filter(|((_, of), _)| *of == mark);
        let points: Vec<(X, f64)> = of().map(|((name, _), gain)| named(name, gain.mean)).collect();
        // Traces have no seeds.
        let spread = of().filter(|_| mark == Mark::Synthetic);
        let whiskers =
            spread.map(|(_, gain)| Some(Whisker::around(gain.mean, gain.spread, Ends::Deviation))).collect();
        if !points.is_empty() {
            series.push(Series {
                name: called(mark).to_owned(),
                mark,
                points,
                whiskers,
                ..Series::default()
            });
        }
    }
    Plot {
        title: "Gain of 3D CT TLC over 2D FG MLC".to_owned(),
        kind: PlotKind::Bar,
        x: Axis { name: "volume".to_owned(), ..Axis::default() },
        y: Axis { name: "gain in IOPS".to_owned(), unit: "%".to_owned(), log: false },
        series,
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn wrong_signs_and_order_are_said() {
        let said = verdict(&[6.7, 7.1, 5.3, 6.4, 0.1, 1.9, 3.6]);
        assert!(said.starts_with("6 of seven signs are as published, not those of prxy_1."), "{said}");
        assert!(said.contains("The order of the volumes is as published."), "{said}");
        let said = verdict(&[6.7, 7.1, 5.3, 6.4, -0.1, 3.9, 3.6]);
        assert!(
            said.contains("All seven signs") && said.contains("Of 21 pairs of volumes, 20 are"),
            "{said}"
        );
        assert!(said.contains("2.0 percentage points, of proj_3"), "{said}");
    }
}
