//! `lab stack --guest`: counts instructions for each I/O in two emulated machines that boot at the
//! same time, and whose results must agree ([`terapage_guest`]).

use crate::campaign::session::Session;
use crate::commands::running::Running;
use crate::ground::janitor::OwnedFile;
use crate::ground::runner::{self, End, Job};
use crate::ground::site::Site;
use crate::ground::system::now_s;
use crate::result::journal::{self, Journal, Line, results_directory};
use anyhow::bail;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, io, thread};
use terapage_guest::{Boot, Host, Kernel, LIMIT, Ran, Told, can_be, pack, together};

/// Measures in two machines, and reports.
///
/// # Errors
/// There is no emulator or no kernel, or a machine does not finish its work.
pub fn run(kernel: Option<&Path>, running: &Running) -> anyhow::Result<ExitCode> {
    running.show.check()?;
    can_be()?;
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
/// `results` already has counts of the same kernel and version, these are returned.
///
/// # Errors
/// A `Cannot` if there is no emulator or no kernel; or a machine does not finish its work.
pub fn measure(session: &Session, kernel: Option<&Path>, results: &Path) -> anyhow::Result<Told> {
    let qemu = can_be()?;
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
    let initramfs = OwnedFile::create(&session.site.janitor, session.site.path("initramfs"), 0o600)?;
    pack(initramfs.1, &kernel)?;
    session.progress.begin("guest: two machines at once".into());
    let boots = thread::scope(|scope| {
        let boots: Vec<_> = (0..2)
            .map(|i| {
                let (qemu, kernel, initramfs) = (&qemu, &kernel, initramfs.0.path());
                scope.spawn(move || terapage_guest::boot(&session.site, qemu, kernel, initramfs, i))
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

impl Host for Site {
    fn file(&self, suffix: &str) -> io::Result<(Box<dyn AsRef<Path> + '_>, File)> {
        let (owned, file) = OwnedFile::create(&self.janitor, self.path(suffix), 0o600)?;
        Ok((Box::new(owned), file))
    }

    fn run(&self, program: PathBuf, arguments: Vec<OsString>, limit: Duration) -> anyhow::Result<Ran> {
        let job = Job { timeout: limit, throttle: None, ..self.job(program, arguments) };
        match runner::run(&self.janitor, &self.stop, job) {
            Ok(finished) => {
                let failed = (finished.end != End::Done).then(|| finished.end.text());
                Ok(Ran { seconds: finished.seconds, failed })
            }
            Err(runner::Error::Start { program, error }) => bail!("{program}: {error}"),
            Err(stopped) => Err(stopped.into()),
        }
    }

    fn lab_arguments(&self) -> &[String] {
        Site::lab_arguments(self)
    }
}
