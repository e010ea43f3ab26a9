//! The expected costs of experiments, and the list of experiments.

use crate::campaign::estimate::estimate;
use crate::campaign::progress::clock;
use crate::commands::show::columns;
use crate::experiment::{Experiment, SHIPPED};
use crate::ground::system::now_s;
use std::io::{self, Write};
use std::process::ExitCode;
use terapage_config::Size;
use terapage_report::{Study, Table, render_text};

/// The expected costs of experiments, on each of this number of devices.
///
/// # Errors
/// A term that cannot be calculated.
pub fn costs(experiments: &[(String, Experiment)], devices: usize) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    let (mut least, mut most, mut written, mut disk) = (0.0, 0.0, 0, 0);
    for (name, experiment) in experiments {
        let one = estimate(experiment)?;
        least += one.seconds.0;
        most += one.seconds.1;
        written += one.written_bytes;
        disk = one.disk_bytes.max(disk);
        rows.push(vec![
            name.clone(),
            from_to(one.runs_least, one.runs_most),
            minutes(one.seconds),
            Size(one.disk_bytes).to_string(),
            Size(one.written_bytes >> 20 << 20).to_string(),
        ]);
    }
    let columns = ["experiment", "runs", "minutes", "disk", "written to it"].map(str::to_owned).to_vec();
    (least, most, written) = (least * devices as f64, most * devices as f64, written * devices as u64);
    let ends = clock(now_s() + most as u64);
    let on_each =
        if devices > 1 { format!(", {devices} devices, the table is of one") } else { String::new() };
    let note = format!(
        "In all {}{on_each}, with {} of disk at once and up to {} written; if it begins now it \
         ends by {ends}. Disturbed runs are repeated, which takes longer.",
        in_minutes((least, most)),
        Size(disk),
        Size(written >> 20 << 20)
    );
    let table = Table { title: "What it takes".into(), columns, rows, note };
    Ok(render_text(&Study { tables: vec![table], ..Study::default() }, 80).trim_start().to_owned())
}

/// `3 to 8`, or `3`.
pub fn from_to(least: u64, most: u64) -> String {
    if least == most { most.to_string() } else { format!("{least} to {most}") }
}

/// The time, at least and at most, in minutes. Short times are in tenths of minutes, so that their
/// sum is not far above the whole.
fn minutes((least, most): (f64, f64)) -> String {
    let of = |seconds: f64| match seconds {
        few if few < 594.0 => format!("{:.1}", (few / 60.0).max(0.1)),
        many => format!("{:.0}", many / 60.0),
    };
    if of(least) == of(most) { of(most) } else { format!("{} to {}", of(least), of(most)) }
}

/// The time in whole minutes, with its unit.
pub fn in_minutes((least, most): (f64, f64)) -> String {
    let of = |seconds: f64| (seconds / 60.0).ceil().max(1.0);
    match (of(least), of(most)) {
        (1.0, 1.0) => "1 minute".into(),
        (least, most) if least == most => format!("{most} minutes"),
        (least, most) => format!("{least} to {most} minutes"),
    }
}

/// Prints the names of the experiments.
///
/// # Errors
/// The list cannot be written.
pub fn list() -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for (name, _) in SHIPPED {
        let (_, experiment) = Experiment::find(name)?;
        let names: Vec<String> = experiment.all_contenders()?.into_iter().map(|c| c.name).collect();
        let quick = estimate(&experiment.clone().quick())?;
        rows.push(vec![
            name.to_owned(),
            experiment.title.clone(),
            experiment.cells().len().to_string(),
            minutes(estimate(&experiment)?.seconds),
            minutes(quick.seconds),
            names.join(", "),
        ]);
    }
    let heads = ["name", "what", "cells", "minutes", "--quick", "contenders"].map(str::to_owned).to_vec();
    let table = Table { title: "Experiments".into(), columns: heads, rows, note: String::new() };
    let text = render_text(&Study { tables: vec![table], ..Study::default() }, columns());
    io::stdout().lock().write_all(text.trim_start().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::{in_minutes, minutes};
    use crate::campaign::estimate::estimate;
    use crate::experiment::{Experiment, SHIPPED};

    #[test]
    fn minutes_are_rounded_and_add_up() {
        assert_eq!((minutes((1.0, 1.0)), minutes((90.0, 90.0))), ("0.1".into(), "1.5".into()));
        assert_eq!(
            (minutes((30.0, 900.0)), in_minutes((30.0, 900.0))),
            ("0.5 to 15".into(), "1 to 15 minutes".into())
        );
        let (mut shown, mut seconds) = (0.0, 0.0);
        for (name, _) in SHIPPED {
            let (_, experiment) = Experiment::find(name).expect("it is shipped");
            let quick = estimate(&experiment.quick()).expect("terms").seconds;
            shown += minutes((quick.0, quick.0)).parse::<f64>().expect("a number");
            seconds += quick.0;
        }
        assert!((shown - seconds / 60.0).abs() <= 1.0, "{shown} minutes are shown, of {}", seconds / 60.0);
    }
}
