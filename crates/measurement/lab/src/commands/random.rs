//! `random`: 8-byte reads all over the data.

use crate::campaign::session::{Common, Contender, EXIT_STATUS, Session, failed};
use crate::commands::sizes::Sizes;
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, End};
use crate::result::report::{Run, Side, Unit};
use crate::workload::fio::{self, Pattern};
use std::cell::Cell;
use std::process::ExitCode;
use terapage_config::Size;

const MIB: u64 = 1 << 20;

/// Bytes of fio's reads where no block size is known.
const BLOCK_DEFAULT: u64 = 64 << 10;

/// What several threads are to do as a multiple of what one does, where the device has it to give.
const SCALING: [(u32, f64); 2] = [(2, 1.8), (4, 3.0)];

/// Options of `random`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Random {
    #[command(flatten)]
    sizes: Sizes,
    /// Reads of each pass.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    reads: u64,
    /// Seconds after which a pass ends early.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Threads, one pass for each.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Seed of the places that are read.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

const ABLE: [Contender; 5] =
    [Contender::Memory, Contender::Swap, Contender::Mmap, Contender::Terapage, Contender::Fio];

impl Random {
    /// Runs the experiment.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let limits = self.sizes.limits()?;
        let mut session = Session::start("random", self.common, &ABLE, &limits)?;
        let threads: Vec<String> = self.threads.iter().map(u32::to_string).collect();
        let arguments = session.workload_arguments(&[
            "random",
            "--bytes",
            &limits.data.to_string(),
            "--reads",
            &self.reads.to_string(),
            "--seconds",
            &self.seconds.to_string(),
            "--threads",
            &threads.join(","),
            "--seed",
            &self.seed.to_string(),
        ]);
        // fio comes after Terapage and reads what Terapage reads for one touch.
        let size_read = Cell::new(limits.block.unwrap_or(BLOCK_DEFAULT));
        let runs = session.rounds(
            &session.contenders,
            |contender| contender.name().into(),
            |&contender| match contender {
                Contender::Fio => {
                    device(&session, limits.data, size_read.get(), &self.threads, f64::from(self.seconds))
                }
                _ => {
                    let program = (session.program(), arguments.clone());
                    let passes = |finished: &runner::Finished| {
                        let mut passes = finished.passes();
                        passes.retain(|pass| pass.pass != "fill");
                        passes
                    };
                    let run = session.contend(contender, program, &limits, None, passes)?;
                    let used = run.stats.as_ref().and_then(|stats| stats["block_bytes"].as_u64());
                    if let Some(used) = used.filter(|bytes| *bytes > 0) {
                        size_read.set(used);
                    }
                    Ok(run)
                }
            },
        )?;
        let setting = format!(
            "{} data, {} memory, fio reads {}",
            Size(limits.data),
            Size(limits.memory),
            Size(size_read.get())
        );
        let mut report = session.report("random", setting, Unit::Latency, runs);
        if limits.all_fits() {
            for threads in &threads {
                let pass = format!("threads-{threads}");
                report.ratio(("terapage", &pass), ("memory", &pass), Side::AtMost, 1.03);
            }
            report.residents();
            return session.publish(&report);
        }
        if self.threads.contains(&1) {
            report.difference(("terapage", "threads-1"), ("fio", "threads-1"), Side::AtMost, 15.0);
        }
        for threads in &threads {
            let pass = format!("threads-{threads}");
            report.ratio(("terapage", &pass), ("swap", &pass), Side::Below, 1.0);
        }
        for (threads, least) in SCALING {
            if [1, threads].iter().all(|wanted| self.threads.contains(wanted)) {
                report.scaling("terapage", "fio", threads, least);
            }
        }
        report.residents();
        session.publish(&report)
    }
}

/// fio's reads of a file that it has written, with as many in flight as there are threads.
fn device(
    session: &Session,
    bytes: u64,
    block: u64,
    threads: &[u32],
    seconds: f64,
) -> Result<Run, runner::Error> {
    let file = match OwnedFile::new(&session.janitor, session.path("fio")) {
        Ok(file) => file,
        Err(error) => return Ok(failed(Contender::Fio, error.to_string())),
    };
    let mut run = Run { end: End::Done, ..failed(Contender::Fio, String::new()) };
    let fill = Pattern {
        pass: "fill",
        rw: "write",
        read_percent: 0,
        block: 2 * MIB,
        depth: 16,
        words: false,
        seconds: None,
    };
    let names: Vec<String> = threads.iter().map(|threads| format!("threads-{threads}")).collect();
    let reads = names.iter().zip(threads).map(|(pass, &depth)| Pattern {
        pass,
        rw: "randread",
        read_percent: 100,
        block,
        depth,
        words: true,
        seconds: Some(seconds),
    });
    for pattern in std::iter::once(fill).chain(reads) {
        match fio::run(&session.janitor, &session.stop, file.path(), bytes, &pattern, session.timeout)? {
            Ok((pass, finished)) if pattern.words => {
                run.passes.push(pass);
                run.resident_peak_bytes = run.resident_peak_bytes.max(finished.resident_peak_bytes);
            }
            Ok(_) => {}
            Err(end) => {
                run.end = end;
                break;
            }
        }
    }
    Ok(run)
}
