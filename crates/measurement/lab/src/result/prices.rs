//! What the same money buys, computed from a file of prices.

use crate::result::journal::Group;
use crate::result::number::number;
use crate::result::solve::Solved;
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use terapage_config::Size;
use terapage_report::Table;

/// The contenders' costs, from the user's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Prices {
    price: Vec<Price>,
}

/// The costs of one contender.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    /// The contender's name.
    contender: String,
    /// Its price, in any currency.
    price: f64,
    /// Bytes that this buys.
    #[serde(default)]
    capacity: Option<String>,
}

/// What the same money buys, computed from a file of prices.
///
/// # Errors
/// The file is wrong, or names a contender that does not exist.
pub fn prices(path: &Path, groups: &[Group], solved: &[Solved]) -> anyhow::Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("--prices {}", path.display()))?;
    let prices: Prices = toml::from_str(&text).map_err(|error| {
        let at = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        anyhow::anyhow!("--prices {}: line {}: {message}", path.display(), at.matches('\n').count() + 1)
    })?;
    let names: Vec<String> = groups
        .iter()
        .filter_map(|group| group.head.experiment.all_contenders().ok())
        .flat_map(|all| all.into_iter().map(|contender| contender.name))
        .collect();
    let mut rows = Vec::new();
    for price in &prices.price {
        let place = format!("--prices {}", path.display());
        ensure!(price.price > 0.0, "{place}: the price of {} is {}", price.contender, price.price);
        ensure!(names.contains(&price.contender), "{place}: there is no contender {}", price.contender);
        let of = |pass: &str| {
            let figures = solved.iter().flat_map(|solved| &solved.cells).flat_map(|cell| &cell.figures);
            let mut own = figures.filter(|figure| figure.contender == price.contender && figure.pass == pass);
            own.next()
                .map_or_else(|| "-".to_owned(), |figure| number(figure.spread.median / price.price * 100.0))
        };
        let capacity = match &price.capacity {
            Some(text) => {
                let Size(bytes) = text.parse().map_err(|why| anyhow::anyhow!("{place}: capacity: {why}"))?;
                number(bytes as f64 / (1u64 << 30) as f64 / price.price * 100.0)
            }
            None => "-".into(),
        };
        let passes = ["read, MiB/s", "write, MiB/s", "seeks, 1/s"].map(of);
        rows.push([vec![price.contender.clone(), number(price.price), capacity], passes.to_vec()].concat());
    }
    let columns = ["contender", "price", "GiB", "read, MiB/s", "write, MiB/s", "seeks, 1/s"];
    Ok(Table {
        title: "What 100 units of money buy".into(),
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        note: format!("Prices from {}.", path.display()),
    })
}
