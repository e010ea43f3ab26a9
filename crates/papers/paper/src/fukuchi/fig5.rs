//! Figure 5: one characteristic of the chips is changed at a time.

use super::{Bench, called, collected, headed, settled};
use terapage_hybrid::Outcome;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, Study, Table, X};
use terapage_sim::quantity::signed;
use terapage_ssd::{Precondition, Profile};
use terapage_volumes::published::LATENCY_PERCENT_MAX;
use terapage_volumes::{Case, gain_percent};

/// Gives the first chips one characteristic of the second.
type Change = fn(&mut Profile, &Profile);

/// The paper's cases.
const CASES: [(&str, Change); 3] = [
    ("case 1: block size", |chips, other| {
        let unit = chips.write_unit.max(1);
        chips.pages_per_block = other.pages_per_block.next_multiple_of(unit);
    }),
    ("case 2: latency", |chips, other| {
        // The time to program one page; the write unit is case 3.
        let page_ns = other.program_ns_per_page();
        chips.program_ns = vec![(page_ns * f64::from(chips.write_unit)) as u64];
        chips.read_ns.clone_from(&other.read_ns);
        chips.erase_ns = other.erase_ns;
        chips.bus_bytes_per_second = other.bus_bytes_per_second;
    }),
    ("case 3: write unit", |chips, other| chips.set_write_unit(other.write_unit)),
];

pub(super) fn study(bench: &Bench, reverse: bool) -> anyhow::Result<Study> {
    let (mut cases, unit) = cases(bench, reverse)?;
    // The paper does not give the initial state of its flash. The second reading is a worn-in
    // flash: blocks are collected from the start. If the user has chosen a state, there is only one
    // reading.
    let chosen = bench.changes.iter().any(|(name, _)| name == "precondition");
    if !chosen {
        let steady = |case: &Case| {
            let mut case = case.clone();
            case.ssd.preconditioning = Precondition::Steady { filled: 1.0 };
            case
        };
        cases.extend(cases.clone().iter().map(steady));
    }
    let (outcomes, judged) = settled::simulate(bench, &cases, settled::Cases { group: 4, seeds: false })?;
    let reading = |from: usize| -> (Vec<Vec<f64>>, Vec<Vec<Outcome>>) {
        let part: Vec<Vec<Outcome>> = outcomes.iter().map(|all| all[from..from + 4].to_vec()).collect();
        let change = |all: &Vec<Outcome>| (1..4).map(|case| gain_percent(&all[0], &all[case])).collect();
        (part.iter().map(change).collect(), part)
    };
    let mut study = headed(if reverse {
        "Figure 5: one characteristic of 2D FG MLC at a time put into 3D CT TLC"
    } else {
        "Figure 5: one characteristic of 3D CT TLC at a time put into 2D FG MLC"
    });
    let readings: &[(&str, &str)] = if chosen {
        &[("", "")]
    } else {
        &[("filled in order: ", ", filled in order"), ("worn in (steady): ", ", worn in (steady)")]
    };
    for (at, (said, titled)) in readings.iter().enumerate() {
        let (changes, part) = reading(4 * at);
        study.summary.push(format!("{}{}", capital(said), collected::first_line(bench, &part)));
        study.summary.extend(
            findings(bench, &changes, collected::any(&part))
                .iter()
                .map(|finding| format!("{}{finding}", capital(said))),
        );
        let (mut plot, mut table) = (plot(bench, &changes), table(bench, &changes));
        plot.title.push_str(titled);
        table.title.push_str(titled);
        let mut collected = collected::table(bench, &part, &["base", "case 1", "case 2", "case 3"]);
        collected.title.push_str(titled);
        study.plots.push(plot);
        study.tables.extend([table, collected]);
    }
    if let Some(unit) = unit {
        study.summary.push(format!(
            "The fit took a write unit of one page. Case 3 is simulated with the {unit} pages of the chip's profile, programmed in \
             the time of {unit} pages."
        ));
    }
    study.summary.push(WRITE_UNIT.to_owned());
    study.summary.insert(1, settled::finding(&judged));
    study.tables.push(settled::table(&judged));
    Ok(study)
}

/// Says why case 3 differs from the published one, as far as changing one option at a time shows.
const WRITE_UNIT: &str = "Why the write unit costs so much here: the fit found few dies, one request is under way at a time, and a read waits \
    until all pages of a unit are programmed. What decides is whether reads suspend programs, and the number of dies: on a worn-in flash \
    with --set suspend=yes --set dies=8 the write unit costs less than latency gives, as published, for all volumes but web_1 (10 %). \
    Spare flash and traffic do not decide it. The paper gives neither; docs/papers/fukuchi.md has the border.";

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The base, the paper's three cases, and the write unit of case 3 if the fit changed it.
fn cases(bench: &Bench, reverse: bool) -> anyhow::Result<(Vec<Case>, Option<u32>)> {
    let (mlc, ct) = (bench.case("2d-fg-mlc")?, bench.case("3d-ct-tlc")?);
    let (from, mut into) = if reverse { (&ct, mlc.clone()) } else { (&mlc, ct.clone()) };
    // A fit may give 3D CT TLC the write unit of 2D FG MLC. Case 3 needs the write unit of the
    // profile.
    let unit = Profile::by_name("3d-ct-tlc")?.write_unit;
    let same = ct.ssd.nand.write_unit == mlc.ssd.nand.write_unit;
    if same && !reverse {
        into.ssd.nand.set_write_unit(unit);
    }
    let changed = |change: Change| {
        let mut case: Case = from.clone();
        change(&mut case.ssd.nand, &into.ssd.nand);
        case
    };
    let mut cases = vec![from.clone()];
    cases.extend(CASES.iter().map(|(_, change)| changed(*change)));
    if same && reverse {
        // Both chips have the same write unit. Only for this case the base gets the write unit of
        // the profile.
        cases[3].ssd.nand.set_write_unit(unit);
    }
    Ok((cases, same.then_some(unit)))
}

fn findings(bench: &Bench, changes: &[Vec<f64>], collected: bool) -> Vec<String> {
    let largest = |case: usize| {
        let all = changes.iter().zip(bench.volumes()).map(|(change, (volume, _))| (change[case], volume));
        all.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())).unwrap_or((0.0, "none"))
    };
    let [block, latency, unit] = [0, 1, 2].map(largest);
    let shown = |(percent, volume): (f64, &str)| format!("{} % ({volume})", signed(percent));
    let rest = changes.iter().zip(bench.volumes()).filter(|(_, (volume, _))| *volume != "proj_3");
    let little = rest.fold(0.0f64, |most, (change, _)| most.max(change[2].abs())) <= LATENCY_PERCENT_MAX;
    let agrees = |agrees: bool| if agrees { "as published" } else { "NOT as published" };
    let most = latency.0.abs() >= block.0.abs().max(unit.0.abs());
    vec![
        format!(
            "Published: block size hardly matters. Here, {} at most: {}.",
            shown(block),
            if collected { agrees(block.0.abs() < 1.0) } else { "NOT TESTED, since nothing was collected" }
        ),
        format!(
            "Published: latency matters most, up to {LATENCY_PERCENT_MAX} %. Here, up to {}{}.",
            shown(latency),
            if most { "" } else { ", but it does not matter most" }
        ),
        format!(
            "Published: the write unit matters little, except for proj_3. Here, up to {}: {}.",
            shown(unit),
            agrees(little)
        ),
    ]
}

fn plot(bench: &Bench, changes: &[Vec<f64>]) -> Plot {
    let mut series = Vec::new();
    for mark in [Mark::Synthetic, Mark::Simulated] {
        for (case, (name, _)) in CASES.iter().enumerate() {
            let of = bench.volumes().zip(changes).filter(|((_, of), _)| *of == mark);
            let points: Vec<(X, f64)> =
                of.map(|((volume, _), change)| (X::Name(volume.to_owned()), change[case])).collect();
            if !points.is_empty() {
                series.push(Series { name: (*name).to_owned(), mark, points, ..Series::default() });
            }
        }
    }
    Plot {
        title: "Change of IOPS by one characteristic".to_owned(),
        kind: PlotKind::Bar,
        x: Axis { name: "volume".to_owned(), ..Axis::default() },
        y: Axis { name: "change of IOPS".to_owned(), unit: "%".to_owned(), log: false },
        series,
        note: "The paper's text does not have the bars of Figure 5; what the text says of them is above."
            .to_owned(),
    }
}

fn table(bench: &Bench, changes: &[Vec<f64>]) -> Table {
    let rows = changes.iter().zip(bench.volumes()).map(|(change, (volume, mark))| {
        let mut row = vec![volume.to_owned()];
        row.extend(change.iter().map(|percent| signed(*percent)));
        row.push(called(mark).to_owned());
        row
    });
    let mut columns = vec!["volume".to_owned()];
    columns.extend(CASES.iter().map(|(name, _)| format!("{name}, %")));
    columns.push("requests".to_owned());
    Table { title: "Change of IOPS".to_owned(), columns, rows: rows.collect(), note: String::new() }
}
