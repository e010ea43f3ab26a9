//! Advice as text and as a study.

use super::Results;
use crate::publish;
use std::fmt::Write;
use std::path::Path;
use terapage_advise::advice::{Advice, Prediction};
use terapage_config::Size;
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

/// The command to use.
pub fn command(choice: &Prediction, store: &Path, program: &str) -> String {
    let mut command = format!("terapage run --memory {}M", choice.budget_bytes.div_ceil(1 << 20));
    if choice.block_bytes != 16 << 10 {
        let _ = write!(command, " --block {}K", choice.block_bytes >> 10);
    }
    if choice.policy != "auto" {
        let _ = write!(command, " --policy {}", choice.policy);
    }
    if store != Path::new("/var/tmp") {
        let _ = write!(command, " --store {}", publish::quoted(&store.to_string_lossy()));
    }
    format!("{command} -- {program}")
}

/// The note for a program that maps files which the budget has no room for.
pub fn files(mapped_bytes: u64, budget_bytes: u64) -> Option<String> {
    (mapped_bytes > budget_bytes).then(|| {
        format!(
            "the program maps {} of files to read, more than the budget of {}: the predictions leave them out, and the kernel keeps \
             them in memory beside the budget (terapage run --files pages them within it)",
            mib(mapped_bytes),
            mib(budget_bytes)
        )
    })
}

fn mib(bytes: u64) -> String {
    Size(bytes >> 20 << 20).to_string()
}

/// The slow-down in few words: a bound if touches are missing in the recording, else a number
/// without its error. All lines use this form.
fn briefly(prediction: &Prediction) -> String {
    match prediction.too_low {
        true => factor(prediction),
        false => format!("{:.2}", prediction.slow_down),
    }
}

/// The advice: the command to use, if the predicted slow-down is accepted.
fn decision(advice: &Advice, command: &str) -> String {
    if advice.fits {
        return format!("use        {command}");
    }
    let would = match &advice.would_fit {
        Some(other) => format!("{} would ({})", mib(other.budget_bytes), factor(other)),
        None => "nor does one as large as its data".to_owned(),
    };
    format!(
        "use        no budget that was asked fits: {} has a slow-down of {}; {would}",
        mib(advice.choice.budget_bytes),
        factor(&advice.choice)
    )
}

/// The slow-down with its error, or only a bound if touches are missing in the recording. The error
/// does not make a paged program faster than natively.
fn factor(prediction: &Prediction) -> String {
    let least = (prediction.slow_down - prediction.error).max(prediction.slow_down.min(1.0));
    if prediction.too_low {
        return format!("at least {least:.2}");
    }
    format!("{:.2} ({:.2} to {:.2})", prediction.slow_down, least, prediction.slow_down + prediction.error)
}

/// Says why some slow-downs are only bounds, if there are such.
fn bounds(results: &Results) -> Option<String> {
    let some = results.advice.budgets.iter().any(|prediction| prediction.too_low);
    some.then(|| {
        format!(
            "below {}, slow-downs are only \"at least\", and may be several times as much: touches within the window, which \
             would cost time, are missing (a longer --timeout allows smaller windows)",
            mib(results.advice.enough_bytes)
        )
    })
}

pub fn text(results: &Results) -> String {
    let advice = &results.advice;
    let mut text = format!(
        "{}: {:.2} s natively, {:.1} threads at once, {} of data in use at most, {} ever touched; {} references recorded, a window of {}\n",
        results.program,
        results.native_s,
        results.parallelism,
        mib(advice.footprint_bytes),
        mib(advice.touched_bytes),
        results.references,
        mib(results.window_bytes)
    );
    if !results.trouble.is_empty() {
        let _ = writeln!(
            text,
            "DO NOT RELY on the times below: {}. Impossible costs were replaced by the nearest \
             possible ones, and are measured again once the machine is idle. Run it again then.",
            results.trouble.join("; ")
        );
    }
    if let Some((took_s, limit_s)) = results.recording_s {
        let _ = writeln!(text, "recording  {took_s:.0} s in all, of {limit_s:.0} s allowed (--timeout)");
    }
    if let Some(why) = bounds(results) {
        let _ = writeln!(text, "unsure     {why}");
    }
    for note in &results.notes {
        let _ = writeln!(text, "note       {note}");
    }
    let knee = match advice.knee_bytes {
        Some(knee) if knee <= results.window_bytes => {
            format!("at or below {}, where the recording does not see", mib(knee))
        }
        Some(knee) => format!("{}: with less, page-ins grow steeply", mib(knee)),
        None => "none: less memory costs about in proportion, up to all of it".to_owned(),
    };
    let _ = writeln!(text, "knee       {knee}");
    for prediction in &advice.budgets {
        let share = prediction.budget_bytes as f64 / advice.footprint_bytes.max(1) as f64 * 100.0;
        let footprint = advice.footprint_bytes as f64 / prediction.block_bytes as f64;
        let others: String = advice
            .blocks
            .iter()
            .filter(|other| other.budget_bytes == prediction.budget_bytes)
            .map(|other| format!("; {} {}", Size(other.block_bytes), briefly(other)))
            .collect();
        let _ = writeln!(
            text,
            "{:>9}  {share:>4.0} %  slow-down {:<21} page-ins {:.2} x data{others}",
            mib(prediction.budget_bytes),
            factor(prediction),
            prediction.forecast.page_ins() as f64 / footprint,
        );
    }
    let list = |of: &[Prediction], name: &dyn Fn(&Prediction) -> String| {
        of.iter()
            .map(|prediction| format!("{} {}", name(prediction), briefly(prediction)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let at = format!("{}, {}", mib(advice.choice.budget_bytes), Size(advice.choice.block_bytes));
    let _ = writeln!(text, "policy     at {at}: {}", list(&advice.policies, &|p| p.policy.clone()));
    let device = &results.device;
    let _ = writeln!(
        text,
        "store      {}: {:.0} us for 16 KiB, {:.0} MiB/s in, {:.0} out; far memory (stated, not measured): {:.2}",
        device.name,
        device.latency_us(16 << 10),
        device.read_bytes_s / f64::from(1 << 20),
        device.write_bytes_s / f64::from(1 << 20),
        advice.far.slow_down
    );
    let _ = writeln!(text, "{}", decision(advice, &results.command));
    text
}

pub fn study(results: &Results) -> Study {
    let advice = &results.advice;
    let columns = "budget,block,policy,store,slow-down,+-,demand,read ahead,minor faults,written,demand s,stream s,minor s,fresh s,frames s";
    let series = |name: &str, too_low: bool| Series {
        name: name.into(),
        mark: Mark::Simulated,
        points: advice
            .budgets
            .iter()
            .filter(|prediction| prediction.too_low == too_low)
            .map(|p| (X::Number(p.budget_bytes as f64 / f64::from(1 << 20)), p.slow_down))
            .collect(),
        ..Series::default()
    };
    let mut shown = vec![series("predicted", false), series("predicted, at least", true)];
    shown.retain(|series| !series.points.is_empty());
    Study {
        title: format!("Advice for {}", results.program),
        summary: text(results).lines().map(str::to_owned).collect(),
        command: publish::command_line(),
        parameters: parameters(results),
        plots: vec![Plot {
            title: "Slow-down by budget".into(),
            kind: PlotKind::Line,
            x: Axis { name: "budget".into(), unit: "MiB".into(), log: false },
            y: Axis { name: "slow-down".into(), unit: String::new(), log: false },
            series: shown,
            note: "Time over the program's native time.".into(),
        }],
        tables: vec![Table {
            title: "Predicted runs".into(),
            columns: columns.split(',').map(str::to_owned).collect(),
            rows: rows(advice),
            note: "Blocks, and seconds that threads wait.".into(),
        }],
        ..Study::default()
    }
}

/// The rows of the table, one for each prediction.
fn rows(advice: &Advice) -> Vec<Vec<String>> {
    let name = |prediction: &Prediction| {
        vec![
            mib(prediction.budget_bytes),
            Size(prediction.block_bytes).to_string(),
            prediction.policy.clone(),
            prediction.store.clone(),
        ]
    };
    advice
        .budgets
        .iter()
        .chain(&advice.blocks)
        .chain(&advice.policies)
        .chain([&advice.far])
        .map(|prediction| {
            let forecast = &prediction.forecast;
            let seconds = |us: f64| format!("{:.3}", us / 1e6);
            let mut row = name(prediction);
            row.extend(match prediction.too_low {
                true => [factor(prediction), String::new()],
                false => [format!("{:.2}", prediction.slow_down), format!("{:.2}", prediction.error)],
            });
            row.extend(
                [forecast.demand, forecast.prefetched, forecast.minor_faults, forecast.written]
                    .map(|count| count.to_string()),
            );
            row.extend(
                [
                    forecast.demand_us,
                    forecast.stream_us,
                    forecast.minor_us,
                    forecast.first_us,
                    forecast.write_us,
                ]
                .map(seconds),
            );
            row
        })
        .collect()
}

/// The values that were measured on the machine and used by the predictions.
fn parameters(results: &Results) -> Vec<Parameter> {
    let measured = |name: &str, value: String, unit: &str| Parameter {
        name: name.into(),
        value,
        unit: unit.into(),
        origin: Origin::Measured,
        source: "small programs behind small budgets".into(),
    };
    let mut parameters = Vec::new();
    for costs in &results.costs {
        let block = Size(costs.block_bytes);
        let values = [
            ("minor fault", costs.minor_us),
            ("demand page-in", costs.demand_us),
            ("new frame", costs.fresh_us),
            ("used frame", costs.recycled_us),
            ("processor time of a block in a stream", costs.block_cpu_us),
            ("a fault while the pager sleeps, beyond", costs.wake_us),
        ];
        parameters
            .extend(values.map(|(name, us)| measured(&format!("{name}, {block}"), format!("{us:.1}"), "us")));
        let rates = [("streams in", costs.read_bytes_s), ("streams out", costs.write_bytes_s)];
        parameters.extend(rates.map(|(name, rate)| {
            measured(&format!("{name}, {block}"), format!("{:.0}", rate / f64::from(1 << 20)), "MiB/s")
        }));
    }
    parameters
}

#[cfg(test)]
mod tests {
    use super::{briefly, decision, factor, files};
    use terapage_advise::advice::{Advice, Prediction};
    use terapage_advise::replay::Forecast;

    #[test]
    fn mapped_files_are_named_if_the_budget_has_no_room_for_them() {
        assert_eq!(files(64 << 20, 64 << 20), None);
        let said = files(65 << 20, 64 << 20).unwrap();
        assert!(said.contains("maps 65 MiB of files") && said.contains("budget of 64 MiB"), "{said}");
        assert!(said.contains("terapage run --files"), "{said}");
    }

    #[test]
    fn a_budget_near_the_window_has_only_a_bound() {
        let prediction = |too_low| Prediction {
            budget_bytes: 64 << 20,
            block_bytes: 16 << 10,
            policy: "auto".into(),
            store: "/var/tmp".into(),
            slow_down: 9.9,
            error: 1.8,
            too_low,
            forecast: Forecast::default(),
        };
        assert_eq!(factor(&prediction(false)), "9.90 (8.10 to 11.70)");
        assert_eq!(factor(&prediction(true)), "at least 8.10");
        let near = Prediction { slow_down: 1.02, error: 0.05, ..prediction(true) };
        assert_eq!(factor(&near), "at least 1.00");
        // All lines show the same prediction in the same form.
        assert_eq!(briefly(&prediction(true)), factor(&prediction(true)));
        // A budget whose predicted slow-down is not accepted is not advised.
        let mut advice = Advice {
            footprint_bytes: 100 << 20,
            touched_bytes: 100 << 20,
            enough_bytes: 64 << 20,
            knee_bytes: None,
            budgets: vec![prediction(true)],
            choice: prediction(true),
            fits: false,
            would_fit: None,
            blocks: Vec::new(),
            policies: Vec::new(),
            far: prediction(true),
        };
        let command = "terapage run --memory 64M -- x";
        let said = decision(&advice, command);
        assert!(said.contains("no budget that was asked fits") && !said.contains("terapage run"), "{said}");
        advice.would_fit = Some(Prediction { budget_bytes: 80 << 20, slow_down: 1.2, ..prediction(false) });
        let said = decision(&advice, command);
        assert!(said.contains("80 MiB would"), "{said}");
        advice.fits = true;
        assert!(decision(&advice, command).ends_with(command));
    }
}
