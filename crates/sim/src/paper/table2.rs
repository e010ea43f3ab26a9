//! Table 2: the gains of 3D CT TLC over 2D FG MLC.

use super::{Bench, called, headed, signed};
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_volumes::published::{GAINS, SOURCE};
use terapage_volumes::{gain_percent, pairs_in_order};

pub(super) fn study(bench: &Bench) -> anyhow::Result<Study> {
    let cases = [bench.case("2d-fg-mlc")?, bench.case("3d-ct-tlc")?];
    let outcomes = bench.outcomes(&cases)?;
    let gains: Vec<f64> = outcomes.iter().map(|both| gain_percent(&both[0], &both[1])).collect();
    let mut study = headed("Table 2: gains of SCM with 3D CT TLC over SCM with 2D FG MLC");
    study.summary = vec![verdict(&gains)];
    study.tables = vec![table(bench, &gains)];
    study.plots = vec![plot(bench, &gains)];
    Ok(study)
}

/// What can be said of signs, order and distance.
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
        n => format!("{} of seven signs are as published; not those of {}.", 7 - n, wrong.join(", ")),
    };
    let (agree, pairs) = pairs_in_order(&published, gains);
    let order = if agree == pairs {
        "The order of the volumes is as published.".to_owned()
    } else {
        format!("Of {pairs} pairs of volumes {agree} are in the published order.")
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

fn table(bench: &Bench, gains: &[f64]) -> Table {
    let rows = GAINS.iter().zip(gains).zip(bench.volumes()).map(|((gain, &found), (_, mark))| {
        let sign = if gain.percent * found > 0.0 { "as published" } else { "WRONG" };
        vec![
            gain.volume.to_owned(),
            if gain.write_intensive { "writes" } else { "reads" }.to_owned(),
            signed(gain.percent),
            signed(found),
            signed(found - gain.percent),
            sign.to_owned(),
            called(mark).to_owned(),
        ]
    });
    let columns = ["volume", "mostly", "published, %", "simulated, %", "difference", "sign", "requests"];
    Table {
        title: "Gain in IOPS".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: format!("Published: {SOURCE}. Differences are in percentage points."),
    }
}

/// Published gains beside those that were simulated; synthetic and real ones are series of their own.
pub(super) fn plot(bench: &Bench, gains: &[f64]) -> Plot {
    let named = |name: &str, value: f64| (X::Name(name.to_owned()), value);
    let published = GAINS.iter().map(|gain| named(gain.volume, gain.percent)).collect();
    let mut series = vec![Series { name: "published".to_owned(), mark: Mark::Published, points: published }];
    for mark in [Mark::Synthetic, Mark::Simulated] {
        let of = bench.volumes().zip(gains).filter(|((_, of), _)| *of == mark);
        let points: Vec<(X, f64)> = of.map(|((name, _), gain)| named(name, *gain)).collect();
        if !points.is_empty() {
            series.push(Series { name: called(mark).to_owned(), mark, points });
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
        assert!(said.starts_with("6 of seven signs are as published; not those of prxy_1."), "{said}");
        assert!(said.contains("The order of the volumes is as published."), "{said}");
        let said = verdict(&[6.7, 7.1, 5.3, 6.4, -0.1, 3.9, 3.6]);
        assert!(said.contains("All seven signs") && said.contains("Of 21 pairs of volumes 20 are"), "{said}");
        assert!(said.contains("2.0 percentage points, of proj_3"), "{said}");
    }
}
