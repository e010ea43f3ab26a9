//! What drives of the simulated chips cost and how long they last, by the user's file.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;
use terapage_config::Size;
use terapage_report::Table;
use terapage_ssd::Profile;

use super::{columns, names};
use crate::ssd::Run;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    price: Vec<Price>,
}

/// A chip's price.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    nand: String,
    /// In any currency.
    price: f64,
    /// What that buys.
    capacity: String,
    /// The erases for which a block is rated.
    #[serde(default)]
    erases: Option<f64>,
}

/// A chip's price for a byte, and its rated erases.
struct Known {
    nand: String,
    byte: f64,
    erases: Option<f64>,
}

/// The prices of a file.
pub struct Prices {
    file: String,
    known: Vec<Known>,
}

impl Prices {
    /// Reads a file of prices for `nands`, which may have those of other chips, too.
    ///
    /// # Errors
    /// The file is wrong, or names a chip that does not exist.
    pub fn read(path: &Path, nands: &[Profile]) -> anyhow::Result<Prices> {
        let place = format!("--prices {}", path.display());
        let text = fs::read_to_string(path).with_context(|| place.clone())?;
        let file: File = toml::from_str(&text).map_err(|error| {
            let at = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            anyhow::anyhow!("{place}: line {}: {message}", at.matches('\n').count() + 1)
        })?;
        let mut known = Vec::new();
        for Price { nand, price, capacity, erases } in file.price {
            let exists =
                nands.iter().any(|one| one.name == nand) || Profile::names().any(|name| name == nand);
            ensure!(exists, "{place}: there is no chip {nand} (one of {})", list(nands));
            let Size(bytes) = capacity.parse().map_err(|why| anyhow::anyhow!("{place}: capacity: {why}"))?;
            let is_possible = price > 0.0 && bytes > 0 && erases.is_none_or(|erases| erases > 0.0);
            ensure!(is_possible, "{place}: {nand}: price, capacity and erases must be above 0");
            known.push(Known { nand, byte: price / bytes as f64, erases });
        }
        Ok(Prices { file: path.display().to_string(), known })
    }

    fn of(&self, run: &Run) -> Option<(&Known, u64)> {
        let known = self.known.iter().find(|known| known.nand == run.nand)?;
        Some((known, run.flash?.capacity_bytes))
    }

    /// IOPS for 100 units of money.
    fn speed(&self, run: &Run) -> Option<f64> {
        let (known, bytes) = self.of(run)?;
        Some(run.outcome.iops / (known.byte * bytes as f64) * 100.0)
    }

    /// How often the trace can be replayed until the blocks have their rated erases.
    fn replays(&self, run: &Run) -> Option<f64> {
        let erases = super::erases(run).filter(|erases| *erases > 0.0)?;
        Some(self.of(run)?.0.erases? / erases)
    }

    /// Which chip is the best by each measure.
    pub fn sentence(&self, runs: &[Run]) -> String {
        let best = |value: &dyn Fn(&Run) -> Option<f64>| {
            let all = runs.iter().filter_map(|run| Some((value(run)?, run.nand.as_str())));
            all.max_by(|one, other| one.0.total_cmp(&other.0)).map_or("none", |(_, nand)| nand)
        };
        format!(
            "By {}: most capacity for the money {}, most IOPS {}, most replays until worn {}.",
            self.file,
            best(&|run| Some(1.0 / self.of(run)?.0.byte)),
            best(&|run| self.speed(run)),
            best(&|run| self.replays(run)),
        )
    }

    /// What the money buys with each chip.
    pub fn table(&self, runs: &[Run]) -> Table {
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let row = |run: &Run| {
            let of = self.of(run);
            let values = [
                shown(of.map(|(known, bytes)| known.byte * bytes as f64), 2),
                shown(of.map(|(known, _)| 100.0 / known.byte / f64::from(1 << 30)), 1),
                shown(self.speed(run), 0),
                shown(self.replays(run), 0),
            ];
            names(run, runs).into_iter().chain(values).collect()
        };
        Table {
            title: "What the money buys".to_owned(),
            columns: columns(runs, &["price", "GiB for 100", "IOPS for 100", "replays until worn"]),
            rows: runs.iter().map(row).collect(),
            note: format!("Prices and rated erases from {}; a drive of the simulated capacity.", self.file),
        }
    }
}

fn list(nands: &[Profile]) -> String {
    nands.iter().map(|nand| nand.name.as_str()).collect::<Vec<_>>().join(", ")
}
