//! `--steady`: writes to a device until its speed has settled, before anything is measured.
//!
//! A new SSD, or one that has rested, writes fast until a cache of quick cells is full and its
//! erased blocks are used up. Figures from before that time do not last. As in SNIA's solid state
//! storage test, the speed has settled when it stays within a tenth of its mean for a whole window;
//! fio checks that (`steadystate`). The speed of each second is kept and drawn.

use crate::campaign::session::Session;
use crate::ground::janitor::{Janitor, OwnedFile};
use crate::ground::room::free_bytes;
use crate::ground::runner::{self, End, Job};
use crate::ground::steady::{Steady, WITHIN_PERCENT};
use anyhow::{Context, ensure};
use std::fs;
use std::path::Path;
use std::time::Duration;
use terapage_config::Size;
use terapage_rig::Cannot;
use terapage_rig::tools;

/// The maximum time of writing, seconds, if none is given.
pub const SECONDS: &str = "600";

/// The minimum and maximum length of a window, seconds; between these it is a quarter of the whole
/// time.
const WINDOW_S: (u64, u64) = (2, 60);

/// The minimum size of the file, bytes.
const FILE_LEAST: u64 = 256 << 20;

/// Writes at random places of a file until the speed has settled, at most for `most_s` seconds. The
/// file, which is returned too, must stay until everything is measured: removing it would free its
/// blocks on the device.
///
/// # Errors
/// fio is missing or fails, or the lab must stop.
pub fn reach<'a>(
    session: &Session,
    janitor: &'a Janitor,
    most_s: u64,
    disk_bytes: u64,
) -> anyhow::Result<(Steady, OwnedFile<'a>)> {
    let program = tools::find("fio").map_err(Cannot)?;
    let room = free_bytes(&session.site.directory).unwrap_or(u64::MAX);
    let bytes = disk_bytes.max(FILE_LEAST);
    ensure!(
        bytes.saturating_add(disk_bytes) < room,
        "--steady: {}: {} of disk needed, {} free",
        session.site.directory.display(),
        Size(bytes.saturating_add(disk_bytes)),
        Size(room)
    );
    let file = OwnedFile::new(janitor, session.site.path("steady"))?;
    let log = session.site.path("steady-log");
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
    let finished = runner::run(janitor, &session.site.stop, job)?;
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

/// Reads fio's JSON and its log of speeds.
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
    use super::{arguments, parse};
    use std::path::Path;

    const OUTPUT: &str = r#"fio: a warning
        {"jobs": [{"error": 0, "write": {"io_bytes": 3145728, "runtime": 2700},
          "steadystate": {"ss": "bw:10.000000%", "duration": 2, "attained": 1, "criterion": "4.237500%"}}]}"#;

    #[test]
    fn the_speed_by_second_and_whether_it_settled_are_read() {
        let log = "1000, 2048, 1, 65536, 0\n2000, 1024, 1, 65536, 0\n";
        let steady = parse(OUTPUT, log).expect("it is fio's output");
        assert_eq!((steady.attained, steady.bandwidth.as_slice()), (true, [2.0, 1.0].as_slice()));
        assert_eq!((steady.written_bytes, steady.criterion.as_str()), (3 << 20, "4.2 %"));
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
