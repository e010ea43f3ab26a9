//! fio, for the speed of the device itself.

use crate::workload::Pass;
use std::io;
use std::path::Path;
use std::process::Command;

/// How fio accesses its file.
pub struct Pattern<'a> {
    /// The pass's name in the report.
    pub pass: &'a str,
    /// fio's `rw`.
    pub rw: &'a str,
    /// The share of reads among reads and writes, per cent.
    pub read_percent: u32,
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight.
    pub depth: u32,
    /// Counts requests, as reads of a word each by `depth` threads, rather than bytes.
    pub words: bool,
    /// Stops after this many seconds instead of at the end of the file.
    pub seconds: Option<f64>,
}

/// The speed of a device, pass by pass, as a separate program: whole passes, or reads at random
/// places with `threads` in flight.
///
/// # Errors
/// When fio fails.
pub fn device(file: &Path, bytes: u64, threads: &[u32], block: u64, seconds: f64) -> anyhow::Result<()> {
    let names: Vec<String> = threads.iter().map(|threads| format!("threads-{threads}")).collect();
    let whole = |pass, rw, read_percent| Pattern {
        pass,
        rw,
        read_percent,
        block: 2 << 20,
        depth: 16,
        words: false,
        seconds: None,
    };
    let mut all = vec![whole("write", "write", 0)];
    match threads.is_empty() {
        // The triad reads three thirds of the data for each third that it writes.
        true => all.extend([whole("read", "read", 100), whole("rmw", "rw", 50), whole("triad", "rw", 75)]),
        false => all.extend(names.iter().zip(threads).map(|(pass, &depth)| Pattern {
            pass,
            rw: "randread",
            read_percent: 100,
            block,
            depth,
            words: true,
            seconds: Some(seconds),
        })),
    }
    for pattern in &all {
        let pass = here(&arguments(file, bytes, pattern), pattern)?;
        // If there are reads of words, only these are of interest.
        if pattern.words || threads.is_empty() {
            println!("{}", serde_json::to_string(&pass)?);
        }
    }
    Ok(())
}

/// Runs fio as a child of this process.
///
/// # Errors
/// fio cannot be run, or fails.
pub fn here(arguments: &[String], pattern: &Pattern<'_>) -> anyhow::Result<Pass> {
    let (name, value) = huge_buffers();
    let output = Command::new("fio").args(arguments).env(name, value).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!("fio is not installed (apt-get install fio)"),
        _ => anyhow::anyhow!("fio cannot be run: {error}"),
    })?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "fio: {}", errors.lines().last().unwrap_or("no message"));
    let found = parse(&String::from_utf8_lossy(&output.stdout), pattern);
    found.ok_or_else(|| anyhow::anyhow!("fio's output cannot be read"))
}

fn arguments(file: &Path, bytes: u64, pattern: &Pattern<'_>) -> Vec<String> {
    let block = pattern.block;
    let mut arguments: Vec<String> = vec![
        "--name=terapage-lab".into(),
        "--output-format=json".into(),
        "--ioengine=io_uring".into(),
        "--direct=1".into(),
        "--thread".into(),
        // Colons separate files for fio.
        format!("--filename={}", file.display().to_string().replace(':', "\\:")),
        format!("--size={}", (bytes / block * block).max(block)),
        format!("--rw={}", pattern.rw),
        format!("--rwmixread={}", pattern.read_percent),
        format!("--bs={block}"),
        format!("--iodepth={}", pattern.depth),
    ];
    if let Some(seconds) = pattern.seconds {
        arguments.push("--time_based".into());
        arguments.push(format!("--runtime={}", seconds.ceil().max(1.0)));
    }
    arguments
}

/// The variable by which glibc asks for huge pages for fio's buffers: with single pages, which
/// mostly lie scattered, a device may need twice as long. On other systems it has no effect.
fn huge_buffers() -> (&'static str, String) {
    const NAME: &str = "GLIBC_TUNABLES";
    let others = std::env::var(NAME).map_or_else(|_| String::new(), |set| set + ":");
    (NAME, others + "glibc.malloc.hugetlb=1")
}

/// The pass that fio's JSON tells of.
fn parse(output: &str, pattern: &Pattern<'_>) -> Option<Pass> {
    // Warnings may precede the JSON.
    let json: serde_json::Value = serde_json::from_str(&output[output.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    if job["error"].as_u64() != Some(0) {
        return None;
    }
    let sides = [&job["read"], &job["write"]];
    let of = |name: &str| sides.map(|side| side[name].as_u64().unwrap_or(0));
    let seconds = of("runtime").into_iter().max()? as f64 / 1000.0;
    let bytes: u64 = of("io_bytes").into_iter().sum();
    let requests: u64 = of("total_ios").into_iter().sum();
    (seconds > 0.0 && bytes > 0).then(|| Pass {
        pass: pattern.pass.to_owned(),
        seconds,
        bytes: if pattern.words { requests * 8 } else { bytes },
        threads: if pattern.words { pattern.depth as usize } else { 1 },
        ..Pass::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{Pattern, parse};

    #[test]
    fn both_sides_of_a_mixed_run_count() {
        let pattern = Pattern {
            pass: "rmw",
            rw: "rw",
            read_percent: 50,
            block: 1 << 21,
            depth: 16,
            words: false,
            seconds: None,
        };
        let output = r#"fio: a warning
            {"jobs": [{"error": 0,
              "read": {"io_bytes": 3000, "runtime": 2000, "total_ios": 3},
              "write": {"io_bytes": 1000, "runtime": 1000, "total_ios": 1}}]}"#;
        let pass = parse(output, &pattern).expect("it is fio's output");
        assert_eq!((pass.bytes, pass.seconds), (4000, 2.0));
        let single = Pattern { words: true, ..pattern };
        assert_eq!(parse(output, &single).map(|pass| (pass.bytes, pass.threads)), Some((32, 16)));
        assert!(parse("fio: no", &single).is_none());
        assert!(parse(&output.replace("\"error\": 0", "\"error\": 5"), &single).is_none());
    }
}
