//! Figure 3: four kinds of NAND, relative to 2D FG MLC.

use super::{Bench, called, collected, headed, nands, settled, signed, title};
use terapage_hybrid::Outcome;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_volumes::gain_percent;
use terapage_volumes::published::{FG_TLC_PERCENT, GAINS};

pub(super) fn study(bench: &Bench) -> anyhow::Result<Study> {
    let cases = nands().iter().map(|nand| bench.case(nand)).collect::<Result<Vec<_>, _>>()?;
    let (outcomes, judged) =
        settled::simulate(bench, &cases, settled::Cases { group: cases.len(), seeds: false })?;
    let mut study = headed("Figure 3: IOPS with four kinds of NAND, relative to 2D FG MLC");
    study.summary = vec![collected::first_line(bench, &outcomes), settled::finding(&judged)];
    study.summary.extend(findings(&outcomes));
    study.plots = vec![plot(bench, &outcomes)];
    let names = nands().map(|nand| bench.chip(nand));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    study.tables =
        vec![table(bench, &outcomes), settled::table(&judged), collected::table(bench, &outcomes, &names)];
    Ok(study)
}

fn relative(outcomes: &[Outcome], nand: usize) -> f64 {
    outcomes[nand].iops / outcomes[0].iops
}

/// The findings in the paper's text, and whether each holds here.
fn findings(outcomes: &[Vec<Outcome>]) -> Vec<String> {
    let names = |holds: &dyn Fn(&str, &[Outcome]) -> bool| -> Vec<&str> {
        let against = GAINS.iter().zip(outcomes).filter(|(gain, all)| !holds(gain.volume, all));
        against.map(|(gain, _)| gain.volume).collect()
    };
    let said = |finding: &str, against: Vec<&str>| match against.len() {
        0 => format!("{finding}. Here, too."),
        _ => format!("{finding}. Here, not for {}.", against.join(", ")),
    };
    let best = names(&|volume, all| {
        let best = (0..4).all(|nand| relative(all, 3) >= relative(all, nand));
        if volume == "prxy_1" { !best } else { best }
    });
    let worst = names(&|_, all| (0..4).all(|nand| relative(all, 1) <= relative(all, nand)));
    let fall = outcomes.iter().map(|all| (relative(all, 2) - 1.0) * 100.0).fold(0.0, f64::min);
    vec![
        said("Published: 3D CT TLC is the best of the four for all volumes but prxy_1", best),
        said("Published: 2D FG TLC is the worst of the four", worst),
        format!(
            "Published: 3D FG TLC falls by up to {FG_TLC_PERCENT:.0} %, or to {FG_TLC_PERCENT:.0} % (the text can be read both \
             ways). Here, by up to {:.0} %.",
            -fall
        ),
    ]
}

fn plot(bench: &Bench, outcomes: &[Vec<Outcome>]) -> Plot {
    let ct = GAINS.iter().map(|gain| (X::Name(gain.volume.to_owned()), 1.0 + gain.percent / 100.0)).collect();
    let mut series = Vec::new();
    for mark in [Mark::Synthetic, Mark::Simulated] {
        for (nand, name) in nands().iter().enumerate().skip(1) {
            let of = bench.volumes().zip(outcomes).filter(|((_, of), _)| *of == mark);
            let points: Vec<(X, f64)> =
                of.map(|((volume, _), all)| (X::Name(volume.to_owned()), relative(all, nand))).collect();
            if !points.is_empty() {
                series.push(Series { name: title(name), mark, points, ..Series::default() });
            }
        }
    }
    series.push(Series { name: title("3d-ct-tlc"), mark: Mark::Published, points: ct, ..Series::default() });
    Plot {
        title: "IOPS relative to SCM with 2D FG MLC".to_owned(),
        kind: PlotKind::Bar,
        x: Axis { name: "volume".to_owned(), ..Axis::default() },
        y: Axis { name: "relative IOPS".to_owned(), ..Axis::default() },
        series,
        note: "The paper's text does not have the bars of Figure 3; those of 3D CT TLC follow from Table 2."
            .to_owned(),
    }
}

fn table(bench: &Bench, outcomes: &[Vec<Outcome>]) -> Table {
    let rows = outcomes.iter().zip(bench.volumes()).zip(GAINS).map(|((all, (volume, mark)), gain)| {
        let mut row = vec![volume.to_owned(), format!("{:.0}", all[0].iops)];
        row.extend((1..4).map(|nand| format!("{:.3}", relative(all, nand))));
        row.push(signed(gain_percent(&all[0], &all[3])));
        row.push(signed(gain.percent));
        row.push(called(mark).to_owned());
        row
    });
    let mut columns = vec!["volume".to_owned(), "IOPS, 2D FG MLC".to_owned()];
    columns.extend(nands().iter().skip(1).map(|nand| title(nand)));
    columns.extend(["gain, %", "published", "requests"].map(str::to_owned));
    Table {
        title: "Relative to 2D FG MLC".to_owned(),
        columns,
        rows: rows.collect(),
        note: "The gain is that of 3D CT TLC.".to_owned(),
    }
}
