//! Whether a device's speed had settled before it was measured: as a sentence and as a plot.

use crate::ground::steady::{Steady, WITHIN_PERCENT};
use crate::result::language::Texts;
use terapage_config::Size;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, X};

/// Whether it has settled, as a sentence.
pub fn words(steady: &Steady, texts: &Texts) -> String {
    let seconds = format!("{:.0}", steady.took_s.max(steady.bandwidth.len() as f64));
    let mean = |part: &[f64]| format!("{:.0}", part.iter().sum::<f64>() / part.len().max(1) as f64);
    let (least, last) = (steady.bandwidth.len() / 10, steady.bandwidth.len() / 4);
    let (first, last) = (mean(&steady.bandwidth[..least.max(1).min(steady.bandwidth.len())]), {
        mean(&steady.bandwidth[steady.bandwidth.len() - last.max(1).min(steady.bandwidth.len())..])
    });
    let percent = WITHIN_PERCENT.to_string();
    let (written, window) = (Size(steady.written_bytes >> 20 << 20).to_string(), steady.window_s.to_string());
    let values = [
        ("seconds", seconds.as_str()),
        ("written", &written),
        ("first", &first),
        ("last", &last),
        ("percent", &percent),
        ("window", &window),
        ("criterion", &steady.criterion),
    ];
    match steady.attained {
        true => texts.say("steady", &values),
        false => texts.say("not-steady", &values),
    }
}

/// The speed by second.
pub fn plot(steady: &Steady, texts: &Texts) -> Plot {
    let points = steady.bandwidth.iter().enumerate();
    let points = points.map(|(second, speed)| (X::Number(second as f64 + 1.0), *speed)).collect();
    Plot {
        title: texts.say("steady-plot", &[]),
        kind: PlotKind::Line,
        x: Axis { name: texts.say("steady-time", &[]), unit: "s".into(), log: false },
        y: Axis { name: texts.say("steady-speed", &[]), unit: "MiB/s".into(), log: false },
        series: vec![Series { name: "fio".into(), mark: Mark::Measured, points, ..Series::default() }],
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{plot, words};
    use crate::ground::steady::Steady;
    use crate::result::language::Texts;
    use terapage_report::Language;

    #[test]
    fn the_speed_is_told_and_drawn() {
        let steady = Steady {
            attained: true,
            took_s: 2.7,
            written_bytes: 3 << 20,
            bandwidth: vec![2.0, 1.0],
            ..Steady::default()
        };
        let texts = Texts::of(Language::En);
        assert_eq!(plot(&steady, texts).series[0].points.len(), 2);
        let told = words(&steady, texts);
        assert!(told.contains("3 MiB were written in 3 s") && told.contains("from 2 to 1 MiB/s"), "{told}");
        let open = Steady { attained: false, ..steady.clone() };
        assert_ne!(words(&open, texts), told);
        assert_eq!(steady.asked(), open.asked());
    }
}
