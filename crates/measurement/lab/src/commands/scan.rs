//! `scan`: passes over the data from end to end.

use crate::campaign::session::{Common, Contender, EXIT_STATUS, Session, failed};
use crate::commands::sizes::Sizes;
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, End};
use crate::result::report::{Run, Side, Unit};
use crate::workload::fio::{self, Pattern};
use std::process::ExitCode;
use terapage_config::Size;

const MIB: u64 = 1 << 20;

/// Options of `scan`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Scan {
    #[command(flatten)]
    sizes: Sizes,
    /// Threads of the passes that use several.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    #[command(flatten)]
    common: Common,
}

const ABLE: [Contender; 5] =
    [Contender::Memory, Contender::Swap, Contender::Mmap, Contender::Terapage, Contender::Fio];

impl Scan {
    /// Runs the experiment.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let limits = self.sizes.limits()?;
        let mut session = Session::start("scan", self.common, &ABLE, &limits)?;
        let (data, threads) = (limits.data.to_string(), self.threads.to_string());
        let arguments = session.workload_arguments(&["scan", "--bytes", &data, "--threads", &threads]);
        let runs = session.rounds(
            &session.contenders,
            |contender| contender.name().into(),
            |&contender| match contender {
                Contender::Fio => device(&session, limits.data),
                _ => {
                    let program = (session.program(), arguments.clone());
                    session.contend(contender, program, &limits, None, runner::Finished::passes)
                }
            },
        )?;
        let setting = format!("{} data, {} memory", Size(limits.data), Size(limits.memory));
        let mut report = session.report("scan", setting, Unit::Rate, runs);
        if limits.all_fits() {
            // Rates, against at most 1.03 and, with first touches, 1.15 times as long.
            report.ratio(("terapage", "write"), ("memory", "write"), Side::AtLeast, 1.0 / 1.15);
            for pass in ["read", "read-again", "rmw", "triad"] {
                report.ratio(("terapage", pass), ("memory", pass), Side::AtLeast, 1.0 / 1.03);
            }
            report.residents();
            return session.publish(&report);
        }
        for (pass, other, target) in [
            ("read", "fio", 0.95),
            ("read", "swap", 5.0),
            ("read", "mmap", 1.4),
            ("write", "fio", 0.85),
            ("write", "swap", 2.0),
            ("rmw", "fio", 0.95),
            ("rmw", "swap", 6.0),
        ] {
            report.ratio(("terapage", pass), (other, pass), Side::AtLeast, target);
        }
        // The read pass also writes what the write pass left dirty; fio's only reads.
        report.ratio(("terapage", "read-again"), ("fio", "read"), Side::AtLeast, 0.95);
        report.ratio(("terapage", "read-again"), ("swap", "read-again"), Side::AtLeast, 5.0);
        report.ratio(("terapage", "triad"), ("terapage", "rmw"), Side::AtLeast, 1.0);
        report.ratio(("terapage", "triad"), ("fio", "triad"), Side::AtLeast, 0.95);
        if self.threads > 1 {
            report.ratio(("terapage", "read-threads"), ("terapage", "read2"), Side::AtLeast, 1.0);
            report.ratio(("terapage", "rmw-threads"), ("terapage", "rmw"), Side::AtLeast, 1.0);
        }
        // The pass before it read too: of what is dirty, only what the policy has kept through it
        // is left.
        report.written_share("terapage", "read-threads", 0.01);
        report.residents();
        session.publish(&report)
    }
}

/// fio's passes.
fn device(session: &Session, bytes: u64) -> Result<Run, runner::Error> {
    let file = match OwnedFile::new(&session.janitor, session.path("fio")) {
        Ok(file) => file,
        Err(error) => return Ok(failed(Contender::Fio, error.to_string())),
    };
    let mut run = Run { end: End::Done, ..failed(Contender::Fio, String::new()) };
    // The triad reads three thirds of the data for each that it writes.
    for (pass, rw, read_percent) in
        [("write", "write", 0), ("read", "read", 100), ("rmw", "rw", 50), ("triad", "rw", 75)]
    {
        let pattern =
            Pattern { pass, rw, read_percent, block: 2 * MIB, depth: 16, words: false, seconds: None };
        match fio::run(&session.janitor, &session.stop, file.path(), bytes, &pattern, session.timeout)? {
            Ok((pass, finished)) => {
                run.passes.push(pass);
                run.resident_peak_bytes = run.resident_peak_bytes.max(finished.resident_peak_bytes);
            }
            Err(end) => {
                run.end = end;
                break;
            }
        }
    }
    Ok(run)
}
