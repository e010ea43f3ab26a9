//! Sweeps: all combinations of values. Each is simulated once, however often the sweep is begun.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terapage_hybrid::Outcome;

/// Why a sweep's file cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A line is not a result.
    #[error("line {line} is not a result of a sweep: {problem}; give another file")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// An axis is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// There is nothing to do.
    #[error("{0} has no values")]
    Empty(String),
}

/// A point of a sweep: one combination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// The workload's name.
    pub volume: String,
    /// The values by parameter, as given.
    pub settings: BTreeMap<String, String>,
    /// Whether other values are those of the fit.
    pub fitted: bool,
    /// The trace's path; `None` for a generator.
    pub trace: Option<String>,
}

/// One line of a sweep's file.
#[derive(Clone, Debug, Serialize)]
pub struct Row<'a> {
    /// The point that was simulated.
    #[serde(flatten)]
    pub point: &'a Point,
    /// Whether the requests were synthetic.
    pub synthetic: bool,
    /// Bytes read from flash for each byte that the host read.
    pub nand_read_share: f64,
    /// Bytes written to flash by the cache for each byte that the host wrote.
    pub nand_write_share: f64,
    /// The share of lines touched by requests that were in the SCM.
    pub hit_ratio: f64,
    /// Pages programmed for each page that was written to the flash.
    pub write_amplification: f64,
    /// All other results.
    #[serde(flatten)]
    pub outcome: &'a Outcome,
}

/// The combinations of all axes (names and their values); the last axis varies first. `workloads`
/// are names and paths.
///
/// # Errors
/// An axis is given twice, or is empty.
pub fn points(
    axes: &[(String, Vec<String>)],
    workloads: &[(String, Option<String>)],
    fitted: bool,
) -> Result<Vec<Point>, SweepError> {
    let mut all = vec![BTreeMap::new()];
    for (number, (name, values)) in axes.iter().enumerate() {
        if axes[..number].iter().any(|(other, _)| other == name) {
            return Err(SweepError::Twice(name.clone()));
        }
        if values.is_empty() {
            return Err(SweepError::Empty(name.clone()));
        }
        let with = |settings: &BTreeMap<String, String>, value: &String| {
            let mut settings = settings.clone();
            settings.insert(name.clone(), value.clone());
            settings
        };
        all = all.iter().flat_map(|settings| values.iter().map(|value| with(settings, value))).collect();
    }
    let point = |(volume, trace): &(String, Option<String>), settings: &BTreeMap<String, String>| Point {
        volume: volume.clone(),
        settings: settings.clone(),
        fitted,
        trace: trace.clone(),
    };
    Ok(workloads.iter().flat_map(|workload| all.iter().map(|settings| point(workload, settings))).collect())
}

/// The present contents of a sweep's file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Before {
    /// The points in the file.
    pub points: Vec<Point>,
    /// The bytes of the file that are complete lines.
    pub whole_bytes: usize,
    /// Bytes of an incomplete last line.
    pub cut_bytes: usize,
}

/// Reads a sweep's file. Its last line may be incomplete; all others must be complete.
///
/// # Errors
/// The first complete line that is not a result.
pub fn before(text: &[u8]) -> Result<Before, SweepError> {
    let whole_bytes = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let (whole, cut) = text.split_at(whole_bytes);
    let mut points = Vec::new();
    for (number, line) in whole.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
    {
        let point = serde_json::from_slice::<Point>(line);
        points
            .push(point.map_err(|error| SweepError::Line { line: number + 1, problem: error.to_string() })?);
    }
    Ok(Before { points, whole_bytes, cut_bytes: cut.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn axis(name: &str, values: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
    }

    fn some() -> Vec<Point> {
        let workloads = [("hm_0".to_owned(), None), ("mine".to_owned(), Some("a \"b\".csv".to_owned()))];
        points(&[axis("scm", &["1%", "5%"]), axis("nand", &["a", "b", "c"])], &workloads, true).unwrap()
    }

    #[test]
    fn every_combination_is_there_once() {
        let mut all = some();
        assert_eq!(all.len(), 12);
        assert_eq!(all[0].settings["scm"], "1%");
        assert_eq!(all[1].settings["nand"], "b");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12);
        assert!(points(&[axis("a", &["1"]), axis("a", &["2"])], &[], true).is_err());
        assert!(points(&[axis("a", &[])], &[], true).is_err());
    }

    proptest! {
        #[test]
        fn a_file_cut_anywhere_gives_its_whole_lines(cut in 0..3000usize) {
            let points = some();
            let lines: Vec<String> = points.iter().map(|point| serde_json::to_string(point).unwrap() + "\n").collect();
            let text = lines.concat();
            let cut = cut.min(text.len());
            let found = before(&text.as_bytes()[..cut]).unwrap();
            let mut ends = lines.iter().scan(0, |end, line| { *end += line.len(); Some(*end) });
            let whole = ends.by_ref().take_while(|&end| end <= cut).count();
            prop_assert_eq!(&found.points[..], &points[..whole]);
            prop_assert_eq!(found.whole_bytes + found.cut_bytes, cut);
        }
    }

    #[test]
    fn a_whole_line_that_is_no_result_is_named() {
        let text = serde_json::to_string(&some()[0]).unwrap() + "\nnonsense\n";
        assert!(before(text.as_bytes()).unwrap_err().to_string().starts_with("line 2 is not"));
    }
}
