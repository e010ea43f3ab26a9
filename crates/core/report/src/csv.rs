//! All points of a study as CSV: a row for each, in the units of the study.

use crate::study::{Ends, Mark, Plot, Study, X};

/// The heads of the columns.
const HEADS: [&str; 12] =
    ["part", "plot", "series", "mark", "x", "x_name", "x_unit", "y", "y_name", "y_unit", "low", "high"];

/// The points of all plots as CSV, with a header line; lines end as in RFC 4180. A number that is
/// not finite gives an empty cell. `low`, `high` and `ends` describe the whisker.
pub fn render_csv(study: &Study) -> String {
    let mut out = HEADS.join(",") + ",ends\r\n";
    parts(&mut out, study, "");
    out
}

fn parts(out: &mut String, study: &Study, name: &str) {
    study.plots.iter().for_each(|plot| rows(out, plot, name));
    study.parts.iter().for_each(|part| parts(out, part, &part.title));
}

fn rows(out: &mut String, plot: &Plot, part: &str) {
    for series in &plot.series {
        let mark = match series.mark {
            Mark::Measured => "measured",
            Mark::Simulated => "simulated",
            Mark::Synthetic => "synthetic",
            Mark::Published => "published",
        };
        for (at, (x, y)) in series.points.iter().enumerate() {
            let whisker = series.whisker(at);
            let x = match x {
                X::Number(value) => number(*value),
                X::Name(name) => name.clone(),
            };
            let end = |of: Option<f64>| of.map_or_else(String::new, number);
            let ends = match whisker.map(|whisker| whisker.ends) {
                Some(Ends::Interval) => "95% interval",
                Some(Ends::Range) => "least and greatest",
                Some(Ends::Deviation) => "standard deviation",
                None => "",
            };
            let cells = [
                part,
                &plot.title,
                &series.name,
                mark,
                &x,
                &plot.x.name,
                &plot.x.unit,
                &number(*y),
                &plot.y.name,
                &plot.y.unit,
                &end(whisker.map(|whisker| whisker.low)),
                &end(whisker.map(|whisker| whisker.high)),
                ends,
            ];
            *out += &(cells.map(cell).join(",") + "\r\n");
        }
    }
}

fn number(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

/// A cell, in quotation marks if it needs them.
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::render_csv;
    use crate::study::{Ends, Mark, Plot, Series, Study, Whisker, X};

    #[test]
    fn each_point_is_a_row_with_its_whisker() {
        let series = Series {
            name: "a, \"b\"".into(),
            mark: Mark::Measured,
            points: vec![(X::Name("1/2".into()), 1.5), (X::Number(4.0), f64::NAN)],
            whiskers: vec![Some(Whisker { low: 1.0, high: 2.5, ends: Ends::Interval })],
            ..Series::default()
        };
        let plot = Plot { title: "P".into(), series: vec![series], ..Plot::default() };
        let part = Study { title: "one".into(), plots: vec![plot], ..Study::default() };
        let text = render_csv(&Study { parts: vec![part], ..Study::default() });
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0].split(',').count(), 13);
        assert_eq!(lines[1], "one,P,\"a, \"\"b\"\"\",measured,1/2,,,1.5,,,1,2.5,95% interval");
        assert_eq!(lines[2], "one,P,\"a, \"\"b\"\"\",measured,4,,,,,,,,");
        assert_eq!(lines.len(), 4);
    }
}
