//! Figure 6: the gain against the share of reads among the bytes that reach the flash.

use super::{Bench, called, collected, headed, settled};
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_sim::quantity::signed;
use terapage_volumes::published::GAINS;
use terapage_volumes::{correlation, flash_read_share, gain_percent};

pub(super) fn study(bench: &Bench) -> anyhow::Result<Study> {
    let cases = [bench.case("2d-fg-mlc")?, bench.case("3d-ct-tlc")?];
    let (outcomes, judged) = settled::simulate(bench, &cases, settled::Cases { group: 2, seeds: false })?;
    let found: Vec<(f64, f64)> = outcomes
        .iter()
        .map(|both| (flash_read_share(&both[0]) * 100.0, gain_percent(&both[0], &both[1])))
        .collect();
    let published: Vec<(f64, f64)> =
        found.iter().zip(GAINS).map(|((share, _), gain)| (*share, gain.percent)).collect();
    let (of_found, of_published) = (correlation(&found), correlation(&published));
    let mut study = headed("Figure 6: the gain against the share of reads in what reaches the flash");
    let agrees = if of_found < 0.0 { "Here, too" } else { "Not here" };
    let first = collected::first_line(bench, &outcomes);
    study.summary = vec![
        first,
        settled::finding(&judged),
        format!(
            "Published: the more reads there are among what reaches the flash, the smaller the gain of 3D CT TLC. {agrees}: the \
         correlation is {of_found:.2}; that of the published gains with the simulated shares is {of_published:.2}."
        ),
    ];
    study.plots = vec![plot(bench, &found, &published)];
    let names = [bench.chip("2d-fg-mlc"), bench.chip("3d-ct-tlc")];
    study.tables = vec![
        table(bench, &found),
        settled::table(&judged),
        collected::table(bench, &outcomes, &[&names[0], &names[1]]),
    ];
    Ok(study)
}

fn plot(bench: &Bench, found: &[(f64, f64)], published: &[(f64, f64)]) -> Plot {
    let points = |pairs: &[(f64, f64)]| pairs.iter().map(|&(x, y)| (X::Number(x), y)).collect::<Vec<_>>();
    let name = "published gain, at the simulated share".to_owned();
    let mut series =
        vec![Series { name, mark: Mark::Published, points: points(published), ..Series::default() }];
    for mark in [Mark::Synthetic, Mark::Simulated] {
        let of = bench.volumes().zip(found).filter(|((_, of), _)| *of == mark);
        let pairs: Vec<(f64, f64)> = of.map(|(_, pair)| *pair).collect();
        if !pairs.is_empty() {
            series.push(Series {
                name: called(mark).to_owned(),
                mark,
                points: points(&pairs),
                ..Series::default()
            });
        }
    }
    Plot {
        title: "Gain of 3D CT TLC and the flash's reads".to_owned(),
        kind: PlotKind::Scatter,
        x: Axis { name: "reads in what reaches the flash".to_owned(), unit: "%".to_owned(), log: false },
        y: Axis { name: "gain in IOPS".to_owned(), unit: "%".to_owned(), log: false },
        series,
        note: "The paper's text does not have the values of the x axis: the shares of both series are simulated, by bytes."
            .to_owned(),
    }
}

fn table(bench: &Bench, found: &[(f64, f64)]) -> Table {
    let rows = bench.volumes().zip(found).zip(GAINS).map(|(((volume, mark), (share, gain)), published)| {
        let share = format!("{share:.1}");
        let cells =
            [volume.to_owned(), share, signed(*gain), signed(published.percent), called(mark).to_owned()];
        cells.to_vec()
    });
    Table {
        title: "Reads of the flash and gains".to_owned(),
        columns: ["volume", "reads, % of bytes", "gain, %", "published", "requests"]
            .map(str::to_owned)
            .to_vec(),
        rows: rows.collect(),
        note: String::new(),
    }
}
