//! `terapage paper run stack-guest`: counts instructions for each I/O in two emulated machines that
//! boot at the same time, and whose results must agree.

use crate::machine::{Boot, Kernel, LIMIT, boot, can_be, pack};
use crate::{Host, Ran, Told, study, together};
use anyhow::{Context, bail, ensure};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, thread};
use terapage_lab::runner::{self, End, Job};
use terapage_lab::{OwnedFile, PAPER, Session, Show, Site, results_directory};

/// Options of `paper run stack-guest`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  terapage paper run stack-guest
  terapage paper run stack-guest linux-image-6.1.0-28-cloud-amd64.deb --html guest.html")]
pub struct Run {
    /// The Debian package with the machine's kernel (linux-image-*-cloud-amd64_*.deb); by default
    /// it is downloaded
    #[arg(value_name = "FILE.deb")]
    kernel: Option<PathBuf>,
    /// Where the machines' files lie
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Where the counts are kept; by default ~/.local/share/terapage-lab
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    #[command(flatten)]
    show: Show,
}

/// The file of the counts, one line for each measurement.
const RESULTS: &str = "guest.jsonl";

impl Run {
    /// Measures in two machines, and reports.
    ///
    /// # Errors
    /// There is no emulator or no kernel, or a machine does not finish its work.
    pub fn run(self) -> anyhow::Result<()> {
        ensure!(self.show.prices.is_none(), "--prices: it is for experiments of the lab");
        self.show.check()?;
        can_be()?;
        let session = Session::open(PAPER, &self.dir, LIMIT)?;
        let results = results_directory(self.results.as_deref())?.join(RESULTS);
        let told = measure(&session, self.kernel.as_deref(), &results)?;
        session.progress.clear();
        let texts = study::texts(self.show.lang.texts().language());
        self.show.study(&study::study(&told, texts)?, &[])
    }
}

/// Measures in two machines. The counts are on disk, in `results`, before they are returned. If
/// `results` already has counts of the same kernel and version, these are returned.
fn measure(session: &Session, kernel: Option<&Path>, results: &Path) -> anyhow::Result<Told> {
    let qemu = can_be()?;
    session.progress.expect(2);
    session.progress.begin("guest: the kernel".into());
    let kernel = Kernel::get(kernel)?;
    session.progress.end();
    let terapage = env!("CARGO_PKG_VERSION");
    let known = read(results)?;
    // Earlier versions counted less.
    let whole = |told: &Told| told.boots.iter().all(|boot| !boot.queues.is_empty());
    let same = |told: &Told| told.kernel == kernel.name && told.terapage == terapage && whole(told);
    if let Some(told) = known.into_iter().rfind(same) {
        let name = &kernel.name;
        session.progress.say(&format!("guest: the counts of an earlier run ({name}, this version)"));
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
                scope.spawn(move || boot(&session.site, qemu, kernel, initramfs, i))
            })
            .collect();
        let joined =
            boots.into_iter().map(|boot| boot.join().map_err(|_| anyhow::anyhow!("a thread failed")));
        joined.map(|result| result.and_then(|boot| boot)).collect::<anyhow::Result<Vec<Boot>>>()
    })?;
    session.progress.end();
    together(&boots)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let told = Told {
        kernel: kernel.name,
        command: env::args().collect::<Vec<_>>().join(" "),
        terapage: terapage.into(),
        started_s: now.map_or(0, |since| since.as_secs()),
        boots,
    };
    append(results, &told)?;
    Ok(told)
}

/// The counts in a file, whose last line may be cut off.
fn read(results: &Path) -> anyhow::Result<Vec<Told>> {
    let text = match fs::read_to_string(results) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| results.display().to_string())?,
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Appends a line, which is on disk then.
fn append(results: &Path, told: &Told) -> anyhow::Result<()> {
    let open = OpenOptions::new().read(true).append(true).create(true).open(results);
    let written = open.and_then(|mut file| {
        // A line that was cut off stays a line.
        let whole = file.metadata()?.len() == 0 || fs::read(results)?.ends_with(b"\n");
        let line = serde_json::to_string(told)? + "\n";
        file.write_all(if whole { "" } else { "\n" }.as_bytes())?;
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data())
    });
    written.with_context(|| results.display().to_string())
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
}

#[cfg(test)]
mod tests {
    use super::{append, read};
    use crate::Told;

    #[test]
    fn counts_come_back_and_a_torn_line_does_not_matter() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("guest.jsonl");
        assert!(read(&path).expect("no file yet").is_empty());
        let told = |kernel: &str| Told {
            kernel: kernel.into(),
            command: "c".into(),
            terapage: "1".into(),
            started_s: 1,
            boots: Vec::new(),
        };
        append(&path, &told("a")).expect("a line");
        let whole = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, format!("{whole}{}", &whole[..20])).expect("text");
        append(&path, &told("b")).expect("another line");
        let names: Vec<String> = read(&path).expect("lines").into_iter().map(|told| told.kernel).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
