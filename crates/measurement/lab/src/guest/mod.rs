//! Instructions for each I/O, counted in an emulated machine: a Debian kernel under qemu without
//! KVM, whose clock counts instructions. Two machines boot at the same time, and must agree.

pub mod init;
pub mod machine;
pub mod second;
pub mod tables;

use crate::campaign::results_directory;
use crate::campaign::session::Session;
use crate::commands::Running;
use crate::ground::janitor::OwnedFile;
use crate::ground::system::now_s;
use crate::guest::machine::{Boot, Kernel, LIMIT};
use crate::guest::tables::together;
use crate::result::journal::{self, Journal, Line};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::ExitCode;
use std::{env, thread};

/// The time that two machines are expected to take, and the disk that they need meanwhile.
pub const SECONDS: f64 = 45.0;
/// See [`SECONDS`].
pub const DISK_BYTES: u64 = 256 << 20;

/// The counts of two machines.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
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

/// Measures in two machines, and reports.
///
/// # Errors
/// There is no emulator or no kernel, or a machine does not finish its work.
pub fn run(kernel: Option<&Path>, running: &Running) -> anyhow::Result<ExitCode> {
    running.show.check()?;
    machine::can_be()?;
    let session = Session::open("stack", &running.dir, LIMIT)?;
    let results = results_directory(running.results.as_deref())?.join(RESULTS);
    let told = measure(&session, kernel, &results)?;
    session.progress.clear();
    running.show.groups("The lab", &[], &[told])?;
    Ok(ExitCode::SUCCESS)
}

/// The path of the results.
pub const RESULTS: &str = "guest.jsonl";

/// Measures in two machines. The counts are on disk, in `results`, before they are returned. If
/// `results` has counts of the same kernel and version already, these are returned.
///
/// # Errors
/// A `Cannot` if there is no emulator or no kernel; or a machine does not finish its work.
pub fn measure(session: &Session, kernel: Option<&Path>, results: &Path) -> anyhow::Result<Told> {
    let qemu = machine::can_be()?;
    session.progress.expect(2);
    session.progress.begin("guest: the kernel".into());
    let kernel = Kernel::get(kernel)?;
    session.progress.end();
    let terapage = env!("CARGO_PKG_VERSION");
    let (mut journal, _) = Journal::open(results)?;
    let known = journal::guests(&[results.to_owned()])?;
    // Earlier versions counted less.
    let whole = |told: &Told| told.boots.iter().all(|boot| !boot.queues.is_empty());
    let same = |told: &Told| told.kernel == kernel.name && told.terapage == terapage && whole(told);
    if let Some(told) = known.into_iter().rfind(same) {
        session.progress.say(&format!("guest: counted before, with {} and this version", kernel.name));
        session.progress.end();
        return Ok(told);
    }
    let initramfs = OwnedFile::create(&session.janitor, session.path("initramfs"), 0o600)?;
    machine::pack(initramfs.1, &kernel)?;
    session.progress.begin("guest: two machines at once".into());
    let boots = thread::scope(|scope| {
        let boots: Vec<_> = (0..2)
            .map(|i| {
                let (qemu, kernel, initramfs) = (&qemu, &kernel, initramfs.0.path());
                scope.spawn(move || machine::boot(session, qemu, kernel, initramfs, i))
            })
            .collect();
        let joined =
            boots.into_iter().map(|boot| boot.join().map_err(|_| anyhow::anyhow!("a thread failed")));
        joined.map(|result| result.and_then(|boot| boot)).collect::<anyhow::Result<Vec<Boot>>>()
    })?;
    session.progress.end();
    together(&boots)?;
    let told = Told {
        kernel: kernel.name,
        command: env::args().collect::<Vec<_>>().join(" "),
        terapage: terapage.into(),
        started_s: now_s(),
        boots,
    };
    journal.append(&Line::Guest(Box::new(told.clone())))?;
    Ok(told)
}
