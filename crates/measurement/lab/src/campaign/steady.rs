//! `--steady`: writes to a device until its speed has settled, before anything is measured.
//!
//! A new SSD, or one that has rested, writes fast until a cache of quick cells is full and its
//! erased blocks are used up. What is measured before that is true for a while only. As SNIA's
//! solid state storage test has it, the speed has settled when it stays within a tenth of its mean
//! for a whole window; fio watches that (`steadystate`). The speed by second is kept and drawn.

use crate::campaign::Cannot;
use crate::campaign::session::Session;
use crate::ground::janitor::{Janitor, OwnedFile};
use crate::ground::room::free_bytes;
use crate::ground::runner::{self, End, Job};
use crate::ground::tools;
use crate::result::language::Texts;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use std::time::Duration;
use terapage_config::Size;
use terapage_report::{Axis, Mark, Plot, PlotKind, Series, X};

/// Seconds of writing, at most, if none are given.
pub const SECONDS: &str = "600";

/// A window's seconds, at least and at most; a quarter of the whole time between these.
const WINDOW_S: (u64, u64) = (2, 60);

/// Speeds within a window that are at most so far from their mean, per cent.
const WITHIN_PERCENT: u32 = 10;

/// The file that is written to has so many bytes at least.
const FILE_LEAST: u64 = 256 << 20;

/// What was written before the measurements, and how fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steady {
    /// Whether the speed settled.
    pub attained: bool,
    /// Seconds that were given to it at most.
    pub most_s: u64,
    /// Seconds of a window.
    pub window_s: u64,
    /// How far the last window's speeds were from their mean, as fio has it.
    pub criterion: String,
    /// Seconds that it took.
    pub took_s: f64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// MiB/s of each second.
    pub bandwidth: Vec<f64>,
}

impl Steady {
    /// What tells results apart: that it was asked for, and how.
    pub fn asked(&self) -> Steady {
        Steady { most_s: self.most_s, ..Steady::default() }
    }

    /// In words.
    pub fn words(&self, texts: &Texts) -> String {
        let seconds = format!("{:.0}", self.took_s.max(self.bandwidth.len() as f64));
        let mean = |part: &[f64]| format!("{:.0}", part.iter().sum::<f64>() / part.len().max(1) as f64);
        let (least, last) = (self.bandwidth.len() / 10, self.bandwidth.len() / 4);
        let (first, last) = (mean(&self.bandwidth[..least.max(1).min(self.bandwidth.len())]), {
            mean(&self.bandwidth[self.bandwidth.len() - last.max(1).min(self.bandwidth.len())..])
        });
        let percent = WITHIN_PERCENT.to_string();
        let (written, window) = (Size(self.written_bytes >> 20 << 20).to_string(), self.window_s.to_string());
        let values = [
            ("seconds", seconds.as_str()),
            ("written", &written),
            ("first", &first),
            ("last", &last),
            ("percent", &percent),
            ("window", &window),
            ("criterion", &self.criterion),
        ];
        match self.attained {
            true => texts.say("steady", &values),
            false => texts.say("not-steady", &values),
        }
    }

    /// The speed by second.
    pub fn plot(&self, texts: &Texts) -> Plot {
        let points = self.bandwidth.iter().enumerate();
        let points = points.map(|(second, speed)| (X::Number(second as f64 + 1.0), *speed)).collect();
        Plot {
            title: texts.say("steady-plot", &[]),
            kind: PlotKind::Line,
            x: Axis { name: texts.say("steady-time", &[]), unit: "s".into(), log: false },
            y: Axis { name: texts.say("steady-speed", &[]), unit: "MiB/s".into(), log: false },
            series: vec![Series { name: "fio".into(), mark: Mark::Measured, points, whiskers: Vec::new() }],
            note: String::new(),
        }
    }
}

/// Writes at random places of a file until the speed has settled, `most_s` seconds at most. The
/// file, which is given too, is to stay until all is measured: to remove it would give the device
/// its blocks back.
///
/// # Errors
/// When fio is missing or fails, or the lab shall stop.
pub fn reach<'a>(
    session: &Session,
    janitor: &'a Janitor,
    most_s: u64,
    disk_bytes: u64,
) -> anyhow::Result<(Steady, OwnedFile<'a>)> {
    let program = tools::find("fio").map_err(Cannot)?;
    let room = free_bytes(&session.directory).unwrap_or(u64::MAX);
    let bytes = disk_bytes.max(FILE_LEAST);
    ensure!(
        bytes.saturating_add(disk_bytes) < room,
        "--steady: {}: {} of disk needed, {} free",
        session.directory.display(),
        Size(bytes.saturating_add(disk_bytes)),
        Size(room)
    );
    let file = OwnedFile::new(janitor, session.path("steady"))?;
    let log = session.path("steady-log");
    let name = log.with_file_name(format!("{}_bw.1.log", base(&log)));
    let speeds = OwnedFile::new(janitor, name)?;
    let window_s = (most_s / 4).clamp(WINDOW_S.0, WINDOW_S.1);
    session.progress.say(&format!("writing until the speed settles, for {most_s} s at most"));
    let job = Job {
        program,
        arguments: arguments(file.path(), &log, bytes, most_s, window_s)
            .into_iter()
            .map(Into::into)
            .collect(),
        variables: Vec::new(),
        output: None,
        cgroup: None,
        throttle: None,
        beside: None,
        timeout: Duration::from_secs(most_s + 120),
    };
    let finished = runner::run(janitor, &session.stop, job)?;
    ensure!(finished.end == End::Done, "--steady: fio: {}", finished.end.text());
    let text = fs::read_to_string(speeds.path()).unwrap_or_default();
    let steady = parse(&finished.output, &text).context("--steady: fio's output cannot be read")?;
    Ok((Steady { most_s, window_s, ..steady }, file))
}

/// A path's last part.
fn base(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn arguments(file: &Path, log: &Path, bytes: u64, most_s: u64, window_s: u64) -> Vec<String> {
    let mut words: Vec<String> = [
        "--name=terapage-lab",
        "--output-format=json",
        "--ioengine=io_uring",
        "--direct=1",
        "--thread",
        "--rw=randwrite",
        "--norandommap",
        "--refill_buffers",
        "--bs=64K",
        "--iodepth=16",
        "--time_based",
        "--log_avg_msec=1000",
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend([
        format!("--filename={}", file.display().to_string().replace(':', "\\:")),
        format!("--size={bytes}"),
        format!("--runtime={most_s}"),
        format!("--steadystate=bw:{WITHIN_PERCENT}%"),
        format!("--steadystate_duration={window_s}"),
        format!("--write_bw_log={}", log.display()),
    ]);
    words
}

/// `2.375088%` is `2.4 %`.
fn percent(text: &str) -> String {
    let number = text.trim_end_matches('%').parse::<f64>();
    number.map_or_else(|_| text.to_owned(), |number| format!("{number:.1} %"))
}

/// What fio's JSON and its log of speeds tell.
fn parse(output: &str, log: &str) -> Option<Steady> {
    let json: serde_json::Value = serde_json::from_str(&output[output.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    if job["error"].as_u64() != Some(0) {
        return None;
    }
    let state = &job["steadystate"];
    // A line: milliseconds, KiB/s, direction, bytes, offset.
    let speed = |line: &str| line.split(',').nth(1)?.trim().parse::<f64>().ok();
    let bandwidth: Vec<f64> = log.lines().filter_map(speed).map(|kib| kib / 1024.0).collect();
    (!bandwidth.is_empty()).then_some(Steady {
        attained: state["attained"].as_u64()? == 1,
        criterion: percent(state["criterion"].as_str().unwrap_or_default()),
        took_s: job["write"]["runtime"].as_f64()? / 1000.0,
        written_bytes: job["write"]["io_bytes"].as_u64()?,
        bandwidth,
        ..Steady::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{Steady, arguments, parse};
    use crate::result::language::Texts;
    use std::path::Path;
    use terapage_report::Language;

    const OUTPUT: &str = r#"fio: a warning
        {"jobs": [{"error": 0, "write": {"io_bytes": 3145728, "runtime": 2700},
          "steadystate": {"ss": "bw:10.000000%", "duration": 2, "attained": 1, "criterion": "4.237500%"}}]}"#;

    #[test]
    fn the_speed_by_second_and_whether_it_settled_are_read() {
        let log = "1000, 2048, 1, 65536, 0\n2000, 1024, 1, 65536, 0\n";
        let steady = parse(OUTPUT, log).expect("it is fio's output");
        assert_eq!((steady.attained, steady.bandwidth.as_slice()), (true, [2.0, 1.0].as_slice()));
        assert_eq!((steady.written_bytes, steady.criterion.as_str()), (3 << 20, "4.2 %"));
        let texts = Texts::of(Language::En);
        assert_eq!(steady.plot(texts).series[0].points.len(), 2);
        let words = steady.words(texts);
        assert!(
            words.contains("3 MiB were written in 3 s") && words.contains("from 2 to 1 MiB/s"),
            "{words}"
        );
        let open = Steady { attained: false, ..steady.clone() };
        assert_ne!(open.words(texts), words);
        assert_eq!(steady.asked(), open.asked());
        assert!(parse(OUTPUT, "").is_none());
        assert!(parse(&OUTPUT.replace("steadystate", "state"), log).is_none());
        assert!(parse("fio: no", log).is_none());
    }

    #[test]
    fn fio_is_told_when_to_stop() {
        let words = arguments(Path::new("/a:b"), Path::new("/log"), 1 << 20, 40, 10);
        for wanted in
            ["--filename=/a\\:b", "--steadystate=bw:10%", "--steadystate_duration=10", "--runtime=40"]
        {
            assert!(words.iter().any(|word| word == wanted), "{wanted}");
        }
    }
}
