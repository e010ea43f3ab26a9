//! Instructions for each I/O, counted in an emulated machine: a Debian kernel under qemu without
//! KVM, whose clock counts instructions. Two machines boot at the same time, and their results must
//! agree.
//!
//! [`Run`] runs on the host, which provides files and runs programs ([`Host`]); [`Guest`] is the
//! first process of the machine.

mod command;
mod init;
mod machine;
mod second;
mod study;

pub use command::Run;
pub use init::Guest;

use init::Counted;
use machine::Boot;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The counts of two machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Told {
    /// The package of the kernel.
    pub kernel: String,
    /// The command that started the measurement.
    pub command: String,
    /// Terapage's version.
    pub terapage: String,
    /// The time of the measurement, in seconds since 1970.
    pub started_s: u64,
    /// The counts of each.
    pub boots: Vec<Boot>,
}

/// What the host does for machines.
trait Host: Sync {
    /// Makes a file whose name ends in `suffix`. Dropping the first part of the result removes the
    /// file.
    ///
    /// # Errors
    /// The file cannot be made.
    fn file(&self, suffix: &str) -> io::Result<(Box<dyn AsRef<Path> + '_>, File)>;

    /// Runs a program to its end, at most for `limit`.
    ///
    /// # Errors
    /// The program cannot be started, or everything must stop.
    fn run(&self, program: PathBuf, arguments: Vec<OsString>, limit: Duration) -> anyhow::Result<Ran>;
}

/// A program on the host that has ended.
struct Ran {
    /// The run time.
    pub seconds: f64,
    /// The failure, if there was one.
    pub failed: Option<String>,
}

/// The mean of both boots by cell, in order, and the largest difference, as a share.
///
/// # Errors
/// The machines counted different things.
fn together(both: &[Boot]) -> anyhow::Result<Vec<(Counted, f64)>> {
    let [one, other] = both else { bail!("two boots are needed") };
    ensure!(one.cells.len() == other.cells.len(), "the two boots counted different things");
    let pairs = one.cells.iter().zip(&other.cells);
    pairs
        .map(|(a, b)| {
            ensure!(name(a) == name(b), "the two boots counted different things");
            let mean =
                Counted { busy: (a.busy + b.busy) / 2.0, thread: (a.thread + b.thread) / 2.0, ..a.clone() };
            Ok((mean, (a.busy / b.busy).ln().abs()))
        })
        .collect()
}

/// A cell in words.
fn name(cell: &Counted) -> String {
    format!("{}, {}, {}", cell.path, cell.scheduler, column(cell.multiplicity))
}

/// The name of a number of I/Os of a call.
fn column(multiplicity: usize) -> String {
    match multiplicity {
        0 => "pread".into(),
        m => format!("m = {m}"),
    }
}
