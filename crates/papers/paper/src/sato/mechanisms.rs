//! Each mechanism switched off in turn.

use crate::stack::options::{Options, machine_lines, parameters};
use anyhow::bail;
use serde_json::{Value, json};
use terapage_report::{Study, Table};
use terapage_sim::progress::Progress;
use terapage_stack::{Experiment, Findings, Mechanism, Mechanisms};

/// The findings with each mechanism switched off in turn.
///
/// # Errors
/// A setup is impossible, or a file of costs cannot be read.
pub fn mechanisms(options: &Options) -> anyhow::Result<(Study, Value)> {
    let mut options = options.clone();
    options.seeds.get_or_insert(1);
    if !options.without.is_empty() {
        bail!("mechanisms switches each off in turn; leave out --without");
    }
    let experiment = options.experiment()?;
    let cases: Vec<Option<Mechanism>> =
        std::iter::once(None).chain(Mechanism::ALL.map(Some)).chain([None]).collect();
    let progress = Progress::new("simulating", experiment.runs() * cases.len() as u64);
    let last = cases.len() - 1;
    let (mut rows, mut results) = (Vec::new(), Vec::new());
    for (place, &off) in cases.iter().enumerate() {
        let (name, mechanisms) = match off {
            Some(mechanism) => (mechanism.name(), Mechanisms::from_iter([mechanism])),
            None if place == last => ("both locks", Mechanisms::from_iter(BOTH_LOCKS)),
            None => ("(all on)", Mechanisms::all()),
        };
        let found = Experiment { mechanisms, ..experiment.clone() }.findings(&|| progress.add(1))?;
        rows.push(row(name, &found));
        results.push(result(name, &found));
    }
    drop(progress);
    let mut study = options.study("What explains the findings", "paper run sato mechanisms");
    study.summary = vec![
            "One mechanism is off in each row. A finding that differs from the first row depends on that mechanism."
                .into(),
        ];
    study.machine = machine_lines(&experiment);
    study.parameters = parameters(&experiment.costs, &["haswell", "load"])?;
    study.tables = vec![table(rows)];
    Ok((study, results.into()))
}

/// The locks of volumes and hosts.
const BOTH_LOCKS: [Mechanism; 2] = [Mechanism::QueueLock, Mechanism::HostLock];

fn row(name: &str, found: &Findings) -> Vec<String> {
    let percent = |value: f64| format!("{:+.0} %", (value - 1.0) * 100.0);
    vec![
        name.into(),
        format!("{:.2}", found.ratio_low),
        format!("{:.2}", found.ratio_high),
        percent(found.scsi_peak_us / found.scsi_low_us),
        found.scsi_peak_kiops.to_string(),
        percent(found.scsi_last_us / found.scsi_peak_us),
        format!("{} x{}", found.scsi_last_kiops, found.scsi_last_multiplicity),
        percent(found.nvme_change),
        format!("{:.0}", found.gap_kiops),
    ]
}

fn result(name: &str, found: &Findings) -> Value {
    json!({
        "without": name,
        "ratio_200_kiops": found.ratio_low,
        "ratio_800_kiops": found.ratio_high,
        "scsi_low_us": found.scsi_low_us,
        "scsi_peak_us": found.scsi_peak_us,
        "scsi_peak_kiops": found.scsi_peak_kiops,
        "scsi_last_us": found.scsi_last_us,
        "scsi_last_kiops": found.scsi_last_kiops,
        "nvme_change": found.nvme_change,
        "gap_kiops": found.gap_kiops,
    })
}

fn table(rows: Vec<Vec<String>>) -> Table {
    let columns = [
        "without",
        "ratio 200k",
        "800k",
        "SCSI rise",
        "peak at",
        "then",
        "at (x mult.)",
        "NVMe",
        "ahead kIOPS",
    ];
    Table {
        title: "Findings, each mechanism off in turn".into(),
        columns: columns.map(String::from).into(),
        rows,
        note: "ratio: CPU use of SCSI over NVMe. SCSI rise: its busy time for an I/O, from 200 kIOPS to the most up \
               to 1000 kIOPS. then: from there to the highest rate. NVMe: its busy time from 200 to 900 kIOPS. \
               ahead: the most that NVMe reaches above SCSI at multiplicities 2 to 4. Published: ratio about 2, peak \
               at 600 to 900, then a fall, NVMe a small rise, ahead up to about 80."
            .into(),
    }
}
