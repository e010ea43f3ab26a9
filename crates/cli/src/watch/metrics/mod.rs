//! `terapage metrics`: the counters of all paged processes, for Prometheus and for programs that
//! read its formats.

mod collect;
mod serve;
mod text;

use crate::{complain, print};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum, ValueHint};
use collect::Collector;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use text::Format;

/// The file that node_exporter's textfile collector finds.
const FILE: &str = "terapage.prom";
/// The time between two checks for signals.
const SIGNALS: Duration = Duration::from_millis(200);

/// The arguments of `terapage metrics`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage metrics
  terapage metrics --listen 127.0.0.1:9464 --by cgroup
  terapage metrics --textfile /var/lib/prometheus/node-exporter
  terapage metrics | promtool check metrics

Stalled seconds are the time in which at least one thread of a process waited for a page-in, like
\"some\" in the kernel's pressure stall information. contrib/grafana/terapage.json is a dashboard.

Exit status:
  0; that of the signal that ended the command; 125 if the port is in use, or the directory cannot be
  written.")]
pub struct Metrics {
    /// Answer HTTP requests for /metrics at this address, until a signal
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:9464")]
    listen: Option<SocketAddr>,
    /// Write the file terapage.prom into this directory repeatedly, until a signal, for the
    /// textfile collector of node_exporter
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "listen", value_hint = ValueHint::DirPath)]
    textfile: Option<PathBuf>,
    /// Seconds between two writes of the file
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "textfile", value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// One series for each process, for all processes of one name, or for all of one cgroup
    #[arg(long, value_enum, default_value_t = By::Pid)]
    by: By,
}

/// The unit of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Each process.
    Pid,
    /// Processes of the same name.
    Comm,
    /// Processes of the same cgroup: of a pod, a unit, a job.
    Cgroup,
}

impl Metrics {
    /// Prints the counters once, or continues to export them.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut collector = Collector::new(self.by);
        if let Some(address) = self.listen {
            let (listener, address) = serve::listen(address)?;
            complain(&format!("metrics at http://{address}/metrics"));
            serve::serve(&listener, &mut collector);
        }
        match &self.textfile {
            None => print(&text::page(&collector.collect(), Format::Text))?,
            Some(directory) => {
                if let Some(signal) = write_until_signal(directory, &mut collector, self.every)? {
                    signal_hook::low_level::emulate_default_handler(signal)?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the file again and again. After a signal, removes the file and returns the signal.
fn write_until_signal(
    directory: &Path,
    collector: &mut Collector,
    every_s: u64,
) -> anyhow::Result<Option<i32>> {
    if !directory.is_dir() {
        bail!("--textfile: {} is no directory (make it, or name another)", directory.display());
    }
    let came = Arc::new(AtomicUsize::new(0));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register_usize(signal, came.clone(), signal as usize)?;
    }
    let file = directory.join(FILE);
    let outcome = loop {
        let begun = Instant::now();
        if let Err(error) = replace(&file, &text::page(&collector.collect(), Format::Text)) {
            break Err(error).with_context(|| format!("--textfile: {}", file.display()));
        }
        while came.load(Relaxed) == 0 && begun.elapsed() < Duration::from_secs(every_s) {
            std::thread::sleep(SIGNALS.min(Duration::from_secs(every_s)));
        }
        match came.load(Relaxed) {
            0 => {}
            signal => break Ok(Some(signal as i32)),
        }
    };
    // Readers would take a file that is no longer written for a current one.
    fs::remove_file(&file).ok();
    outcome
}

/// Replaces a file atomically: a reader finds the whole old text or the whole new one.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension(format!("prom.{}", std::process::id()));
    let written = File::create(&new).and_then(|mut made| {
        made.write_all(text.as_bytes())?;
        made.sync_all()?;
        fs::rename(&new, file)
    });
    if written.is_err() {
        fs::remove_file(&new).ok();
    }
    Ok(written?)
}
