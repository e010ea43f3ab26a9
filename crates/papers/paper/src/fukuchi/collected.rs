//! The work of garbage collection in the runs behind a figure. What depends on collection is tested
//! only if there was collection.

use super::Bench;
use terapage_hybrid::Outcome;
use terapage_report::Table;

/// The work on the flash in the measured part of one run.
struct Collected {
    erases: u64,
    moved: u64,
    amplification: f64,
}

impl Collected {
    fn of(outcome: &Outcome) -> Collected {
        outcome.nand.as_ref().map_or(Collected { erases: 0, moved: 0, amplification: 0.0 }, |nand| {
            Collected {
                erases: nand.nand_erases,
                moved: nand.gc_moved_units,
                amplification: nand.write_amplification(),
            }
        })
    }
}

/// Whether any block was erased in any of these runs.
pub(super) fn any(outcomes: &[Vec<Outcome>]) -> bool {
    outcomes.iter().flatten().any(|one| Collected::of(one).erases > 0)
}

/// The page's first line: whether anything was collected.
pub(super) fn first_line(bench: &Bench, outcomes: &[Vec<Outcome>]) -> String {
    let names = bench.volumes().map(|(name, _)| name);
    let some = names.zip(outcomes).filter(|(_, all)| all.iter().any(|one| Collected::of(one).erases > 0));
    let some: Vec<&str> = some.map(|(name, _)| name).collect();
    if some.is_empty() {
        return "NOTHING WAS COLLECTED: no block was erased in any of these runs. What depends on collection (block size, \
                erase time, spare flash, wear) is not tested on this page."
            .to_owned();
    }
    let most = outcomes.iter().flatten().map(|one| Collected::of(one).amplification).fold(0.0, f64::max);
    let rest = outcomes.len() - some.len();
    let rest =
        if rest == 0 { String::new() } else { format!(" In the other {rest} no block was collected.") };
    format!(
        "Blocks were collected in {} of {} volumes ({}), with write amplification up to {most:.2}.{rest}",
        some.len(),
        outcomes.len(),
        some.join(", ")
    )
}

/// Erases, moved units and write amplification by volume and by case; `names` are the names of the
/// cases.
pub(super) fn table(bench: &Bench, outcomes: &[Vec<Outcome>], names: &[&str]) -> Table {
    let mut rows = Vec::new();
    for ((volume, _), all) in bench.volumes().zip(outcomes) {
        for (name, one) in names.iter().zip(all.iter().map(Collected::of)) {
            let amplification = format!("{:.3}", one.amplification);
            rows.push(vec![
                volume.to_owned(),
                (*name).to_owned(),
                one.erases.to_string(),
                one.moved.to_string(),
                amplification,
            ]);
        }
    }
    Table {
        title: "Garbage collection".to_owned(),
        columns: ["volume", "flash", "blocks erased", "units moved", "write amplification"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        note: "Of the measured part. Write amplification is the units programmed for each unit that the host wrote; padding \
               counts. It is 0 if none of the host's writes reached the flash."
            .to_owned(),
    }
}
