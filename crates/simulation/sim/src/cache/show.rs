//! The results of a cache for a trace, as a study.

use super::{Cache, Results, Row, Trace};
use crate::publish::command_line;
use terapage_config::Size;
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

impl Cache {
    pub(super) fn study(&self, trace: &Trace, results: &Results) -> Study {
        let amount = |bytes: u64| if trace.sized { Size(bytes).to_string() } else { bytes.to_string() };
        let what = if trace.block.is_some() { "blocks" } else { "objects" };
        let footprint =
            if trace.sized { format!(", {}", amount(results.footprint_bytes)) } else { String::new() };
        let mut summary = vec![format!(
            "{}: read as {}. {} requests for {} {what}{footprint}.",
            self.trace.display(),
            results.read_as,
            results.requests,
            results.objects,
        )];
        if let Some(row) = results.rows.iter().max_by_key(|row| row.too_large).filter(|row| row.too_large > 0)
        {
            summary.push(format!(
                "{} requests are for objects larger than a cache of {}: they are misses, and the objects are not kept.",
                row.too_large,
                amount(row.cache_bytes)
            ));
        }
        if self.policy.iter().any(|name| name == "auto") {
            summary.push(AUTO.to_owned());
        }
        summary.extend(best(results, amount));
        summary.extend(results.notes.iter().cloned());
        let row = |row: &Row| {
            vec![
                row.policy.clone(),
                amount(row.cache_bytes),
                format!("{:.2} %", row.share * 100.0),
                row.misses.to_string(),
                format!("{:.4}", row.byte_miss_ratio),
                format!("{:.4}", row.least_object_miss_ratio),
                format!("{:.4}", row.object_miss_ratio),
            ]
        };
        let columns = [
            "policy",
            "cache",
            "of what is asked for",
            "misses",
            "byte miss ratio",
            "least",
            "object miss ratio",
        ];
        let reached = results.rows.iter().all(|row| row.least_is_reached);
        let table = Table {
            title: "Miss ratios".into(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: results.rows.iter().map(row).collect(),
            note: if reached { LEAST_REACHED } else { LEAST_BOUND }.to_owned(),
        };
        Study {
            title: format!("A cache for {}", self.trace.display()),
            summary,
            command: command_line(),
            parameters: self.parameters(trace),
            plots: self.plots(results),
            tables: vec![table],
            ..Study::default()
        }
    }

    fn plots(&self, results: &Results) -> Vec<Plot> {
        let plot = |title: &str, of: fn(&Row) -> f64| {
            let series = |policy: &String| {
                let rows = results.rows.iter().filter(|row| row.policy == *policy);
                let points = rows.map(|row| (X::Number(row.share * 100.0), of(row))).collect();
                Series { name: policy.clone(), mark: Mark::Simulated, points, ..Series::default() }
            };
            Plot {
                title: title.into(),
                kind: PlotKind::Line,
                x: Axis { name: "cache".into(), unit: "% of what is asked for".into(), log: true },
                y: Axis { name: title.to_lowercase(), unit: String::new(), log: false },
                series: self.policy.iter().map(series).collect(),
                ..Plot::default()
            }
        };
        let mut objects = plot("Object miss ratio", |row| row.object_miss_ratio);
        let rows = results.rows.iter().filter(|row| row.policy == results.rows[0].policy);
        let points = rows.map(|row| (X::Number(row.share * 100.0), row.least_object_miss_ratio)).collect();
        objects.series.push(Series {
            name: "least possible".into(),
            mark: Mark::Simulated,
            points,
            ..Series::default()
        });
        vec![objects, plot("Byte miss ratio", |row| row.byte_miss_ratio)]
    }

    fn parameters(&self, trace: &Trace) -> Vec<Parameter> {
        let chosen = |name: &str, value: String, unit: &str, source: &str| Parameter {
            name: name.into(),
            value,
            unit: unit.into(),
            origin: Origin::Chosen,
            source: source.into(),
        };
        let mut parameters = vec![chosen(
            "policies",
            self.policy.join(", "),
            "",
            "--policy; docs/design/policies.md and docs/sim-cache.md say how each differs from its paper",
        )];
        if let Some(block) = trace.block {
            parameters.push(chosen("block", block.to_string(), "bytes", "--block"));
        }
        parameters
    }
}

/// Explains the column of the least misses.
const LEAST_REACHED: &str = "least: the object miss ratio of Belady's optimum, which knows the future.";
const LEAST_BOUND: &str =
    "least: an object miss ratio that no policy can be below (PFOO-L); none need reach it.";

/// A sentence on the best policy at the middle size.
fn best(results: &Results, amount: impl Fn(u64) -> String) -> Option<String> {
    let mut sizes: Vec<u64> = results.rows.iter().map(|row| row.cache_bytes).collect();
    sizes.sort_unstable();
    let middle = *sizes.get(sizes.len() / 2)?;
    let rows = results.rows.iter().filter(|row| row.cache_bytes == middle);
    let best = rows.clone().min_by_key(|row| row.misses)?;
    (rows.count() > 1).then(|| {
        format!(
            "With {} {} has the fewest misses: {:.4} of the requests, and the least possible are {:.4}.",
            amount(middle),
            best.policy,
            best.object_miss_ratio,
            best.least_object_miss_ratio
        )
    })
}

/// The note on `auto` if it is offered for traces.
const AUTO: &str = "auto is made for a pager: it judges neighbouring blocks together and learns of few touches. On block \
    traces it is often worse than LRU, and on some worse than FIFO.";
