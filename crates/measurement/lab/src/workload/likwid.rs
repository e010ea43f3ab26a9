//! likwid-bench (GPL-3, Debian's `likwid`), run as a program: the memory speed of an independent
//! triad, to be compared with the lab's.

use crate::workload::Pass;
use crate::workload::kernels::threads_of;
use anyhow::{Context, ensure};
use std::io;
use std::process::Command;

/// Options.
#[derive(Debug, clap::Args)]
pub struct Likwid {
    /// Bytes of all arrays.
    #[arg(long)]
    bytes: u64,
    /// Threads, or `all`.
    #[arg(long, default_value = "1", value_parser = threads_of)]
    threads: usize,
}

impl Likwid {
    /// Runs STREAM's triad for a second and reports the pass `triad`; no pass if likwid is not
    /// installed, since it is only a cross-check. Its kernel resembles the code that compilers make
    /// of the lab's: for x86-64 with SSE2, and with plain stores, which read what they overwrite.
    ///
    /// # Errors
    /// likwid-bench fails, or prints output of an unknown form.
    pub fn run(self) -> anyhow::Result<()> {
        let kernel = if cfg!(target_arch = "x86_64") { "stream_sse" } else { "stream" };
        let arrays = format!("N:{}kB:{}", self.bytes / 1000, self.threads);
        // With -W each thread first touches its own part, as in the lab. likwid-bench searches for
        // a helper program, though it does not need the helper here.
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = Command::new("likwid-bench");
        let output = command.args(["-t", kernel, "-W", &arrays, "-s", "1"]).env("PATH", path).output();
        let output = match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("likwid-bench is not installed (apt-get install likwid)");
                return Ok(());
            }
            other => other.context("likwid-bench cannot be run")?,
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "likwid-bench: {}", errors.lines().last().unwrap_or("no message"));
        let pass = parse(&String::from_utf8_lossy(&output.stdout), self.threads);
        let pass = pass.context("likwid-bench's output cannot be read: no Time, or no Data volume")?;
        println!("{}", serde_json::to_string(&pass)?);
        Ok(())
    }
}

/// The pass in its output.
fn parse(output: &str, threads: usize) -> Option<Pass> {
    let value = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok().filter(|value| *value > 0.0)
    };
    let (seconds, bytes) = (value("Time:")?, value("Data volume (Byte):")? as u64);
    Some(Pass { pass: "triad".into(), seconds, bytes, threads, ..Pass::default() })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn bytes_and_seconds_are_read() {
        let output = "Using 1 threads\nTime:\t\t\t7.964526e-01 sec\nIterations:\t\t64\n\
                      Data volume (Byte):\t4095983616\nMByte/s:\t\t5142.78\n";
        let pass = parse(output, 1).expect("it is likwid's output");
        assert_eq!((pass.bytes, pass.seconds), (4095983616, 0.7964526));
        assert!(parse(&output.replace("Data volume", "Volume"), 1).is_none());
        assert!(parse(&output.replace("7.964526e-01", "nan"), 1).is_none());
    }
}
