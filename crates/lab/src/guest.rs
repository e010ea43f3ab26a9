//! Instructions for each I/O, counted in an emulated machine: a Debian kernel under qemu without
//! KVM, whose clock counts instructions. Two machines boot at the same time, and must agree.
//!
//! The machine boots from an archive in memory, with the lab's own program, the libraries that the
//! program has loaded, and the drivers. Nothing is installed; the kernel is kept in the user's
//! cache.

use crate::campaign::{Cannot, results_directory};
use crate::commands::Running;
use crate::guest_init::{Counted, DEVICES, FILES_SERIAL, Files, MODULES, MULTIPLICITIES};
use crate::janitor::OwnedFile;
use crate::journal::{self, Journal, Line};
use crate::language::Texts;
use crate::report::number;
use crate::runner::{self, End, Job};
use crate::session::Session;
use crate::spinner::processors;
use crate::system::now_s;
use crate::tools;
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, thread};
use terapage_report::{Axis, Mark, Origin, Parameter, Plot, PlotKind, Series, Study, Table, X};

const QEMU: &str = "qemu-system-x86_64";

/// Kernels that can be used, the best known first.
const KERNELS: [&str; 2] =
    [r"^linux-image-6\.1\.0-[0-9]+-cloud-amd64$", r"^linux-image-6\.12\.[0-9+a-z]*-cloud-amd64$"];

/// The machine is killed after this. Chosen, not measured.
const LIMIT: Duration = Duration::from_secs(900);

/// Two boots may differ by this, as a share. Chosen, not measured.
const BOOTS_DIFFER: f64 = 0.01;

/// Memory of the machine, MiB. Chosen, not measured.
const MEMORY_MIB: u32 = 512;

/// Memory that a compressed driver may take to unpack, KiB.
const XZ_KIB_MAX: u32 = 128 << 10;

/// The time that two machines are expected to take, and the disk that they need meanwhile.
pub const SECONDS: f64 = 40.0;
/// See [`SECONDS`].
pub const DISK_BYTES: u64 = 256 << 20;

/// Bytes of a file system, most of them holes. Chosen, not measured.
const FILES_BYTES: u64 = 400 << 20;

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

fn can_be() -> anyhow::Result<PathBuf> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        Cannot("the emulated machine is an x86_64, as Debian's kernel is".into())
    );
    Ok(tools::find(QEMU).map_err(Cannot)?)
}

/// Measures in two machines. The counts are on disk, in `results`, before they are returned. If
/// `results` has counts of the same kernel and version already, these are returned.
///
/// # Errors
/// A [`Cannot`] if there is no emulator or no kernel; or a machine does not finish its work.
pub fn measure(session: &Session, kernel: Option<&Path>, results: &Path) -> anyhow::Result<Told> {
    let qemu = can_be()?;
    session.progress.expect(2);
    session.progress.begin("guest: the kernel".into());
    let kernel = Kernel::get(kernel)?;
    session.progress.end();
    let terapage = env!("CARGO_PKG_VERSION");
    let (mut journal, _) = Journal::open(results)?;
    let known = journal::guests(&[results.to_owned()])?;
    let same = |told: &Told| told.kernel == kernel.name && told.terapage == terapage;
    if let Some(told) = known.into_iter().rfind(same) {
        session.progress.say(&format!("guest: counted before, with {} and this version", kernel.name));
        session.progress.end();
        return Ok(told);
    }
    let initramfs = OwnedFile::create(&session.janitor, session.path("initramfs"), 0o600)?;
    pack(initramfs.1, &kernel)?;
    session.progress.begin("guest: two machines at once".into());
    let boots = thread::scope(|scope| {
        let boots: Vec<_> = (0..2)
            .map(|i| {
                let (qemu, kernel, initramfs) = (&qemu, &kernel, initramfs.0.path());
                scope.spawn(move || boot(session, qemu, kernel, initramfs, i))
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

/// The ratio of an I/O's instructions by virtio-scsi to those by nvme, with 1, 4 and 32 I/Os in a
/// call. Experiment 004 predicts it.
pub fn scsi_over_nvme(told: &Told) -> Vec<(usize, f64)> {
    let Ok(cells) = together(&told.boots) else { return Vec::new() };
    [1, 4, 32].into_iter().filter_map(|m| Some((m, ratio(&cells, "virtio-scsi", "nvme", m)?))).collect()
}

/// The instructions of a cell.
fn of(cells: &[(Counted, f64)], path: &str, scheduler: &str, m: usize) -> Option<f64> {
    let same = |cell: &&(Counted, f64)| {
        cell.0.path == path && cell.0.scheduler == scheduler && cell.0.multiplicity == m
    };
    cells.iter().find(same).map(|(cell, _)| cell.busy)
}

/// The ratio of one path's instructions to another's, without a scheduler.
fn ratio(cells: &[(Counted, f64)], one: &str, other: &str, m: usize) -> Option<f64> {
    Some(of(cells, one, "none", m)? / of(cells, other, "none", m)?)
}

/// A kernel and its drivers, unpacked.
struct Kernel {
    name: String,
    image: PathBuf,
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// The kernel of a package: the one that was named, one that was unpacked earlier, or one from
    /// apt.
    fn get(named: Option<&Path>) -> anyhow::Result<Kernel> {
        let cache = cache()?;
        if let Some(package) = named {
            ensure!(package.is_file(), "--kernel {}: no such file", package.display());
            let name = package.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return unpack(package, &cache, &name);
        }
        tools::find("apt-cache")
            .map_err(|why| Cannot(format!("{why}; or --kernel FILE.deb names a kernel")))?;
        let Some(name) = known_to_apt()? else {
            bail!(Cannot(
                "apt knows no kernel for the machine (apt-get update; or --kernel FILE.deb names one)".into()
            ));
        };
        if let Ok(kernel) = Kernel::found(&cache.join(&name), &name) {
            return Ok(kernel);
        }
        let place = tempfile::Builder::new().prefix("download-").tempdir_in(&cache)?;
        let output =
            Command::new("apt-get").args(["download", "-qq", &name]).current_dir(place.path()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or("no message");
        ensure!(output.status.success(), Cannot(format!("{name} cannot be downloaded: {last}")));
        let package = fs::read_dir(place.path())?
            .flatten()
            .find(|entry| entry.path().extension() == Some("deb".as_ref()));
        let package = package.with_context(|| format!("apt-get downloaded no {name}"))?;
        unpack(&package.path(), &cache, &name)
    }

    /// The kernel and the drivers below a directory.
    fn found(place: &Path, name: &str) -> anyhow::Result<Kernel> {
        let (mut image, mut modules) = (None, BTreeMap::new());
        for path in files(place)? {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if file.starts_with("vmlinuz-") {
                image = Some(path);
            } else if let Some(module) = file.split(".ko").next().filter(|module| file != *module) {
                modules.insert(module.to_owned(), path);
            }
        }
        let image = image.with_context(|| format!("{name} has no kernel"))?;
        for needed in ["null_blk", "xfs"] {
            ensure!(modules.contains_key(needed), "{name} has no driver {needed}");
        }
        Ok(Kernel { name: name.into(), image, modules })
    }
}

/// The directory in which kernels are kept.
fn cache() -> anyhow::Result<PathBuf> {
    let of = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = of("XDG_CACHE_HOME").or_else(|| Some(of("HOME")?.join(".cache")));
    let place = usual.context("no place for a cache: HOME is not set")?.join("terapage-lab");
    fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
    Ok(place)
}

/// The newest package that apt knows.
fn known_to_apt() -> anyhow::Result<Option<String>> {
    for pattern in KERNELS {
        let output = Command::new("apt-cache").args(["search", "--names-only", pattern]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        if let Some(newest) = names.max_by_key(|name| numbers(name)) {
            return Ok(Some(newest.to_owned()));
        }
    }
    Ok(None)
}

/// The numbers in a name, by which versions are ordered.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Unpacks those files of a package that the machine needs.
fn unpack(package: &Path, cache: &Path, name: &str) -> anyhow::Result<Kernel> {
    let dpkg = tools::find("dpkg-deb").map_err(Cannot)?;
    let tar = tools::find("tar").map_err(Cannot)?;
    let place = tempfile::Builder::new().prefix("unpack-").tempdir_in(cache)?;
    let mut archive = Command::new(dpkg)
        .args(["--fsys-tarfile".as_ref(), package.as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = archive.stdout.take().context("dpkg-deb has no output")?;
    let names = MODULES.iter().chain(DEVICES.iter().map(|(name, _)| name));
    let patterns = names.map(|name| format!("*/{name}.ko*")).chain(["*/vmlinuz-*".to_owned()]);
    // tar complains of patterns that match nothing. The needed files are checked below.
    Command::new(tar)
        .args(["-x", "-f", "-", "--wildcards", "--no-same-owner", "-C"])
        .arg(place.path())
        .args(patterns)
        .stdin(output)
        .stderr(Stdio::null())
        .status()?;
    ensure!(archive.wait()?.success(), "{}: dpkg-deb cannot read it", package.display());
    Kernel::found(place.path(), name).with_context(|| package.display().to_string())?;
    let to = cache.join(name);
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    fs::rename(place.keep(), &to)?;
    Kernel::found(&to, name)
}

/// All files below a directory.
fn files(place: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(place).with_context(|| place.display().to_string())? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => all.extend(files(&entry.path())?),
            false => all.push(entry.path()),
        }
    }
    Ok(all)
}

/// An archive in cpio's format "newc", from which the machine starts.
struct Archive<W: Write> {
    to: W,
    number: u32,
    made: Vec<PathBuf>,
}

impl<W: Write> Archive<W> {
    fn new(to: W) -> Archive<W> {
        Archive { to, number: 0, made: Vec::new() }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> anyhow::Result<()> {
        self.number += 1;
        let (length, bytes) = (u32::try_from(name.len() + 1)?, u32::try_from(data.len())?);
        let fields = [self.number, mode, 0, 0, 1, 0, bytes, 0, 0, 0, 0, length, 0];
        let header: String = fields.iter().map(|field| format!("{field:08X}")).collect();
        let head = [b"070701", header.as_bytes(), name.as_bytes(), b"\0"].concat();
        for part in [&head[..], data] {
            self.to.write_all(part)?;
            self.to.write_all(&[0; 3][..part.len().next_multiple_of(4) - part.len()])?;
        }
        Ok(())
    }

    /// A file, and the directories above it.
    fn file(&mut self, path: &Path, mode: u32, data: &[u8]) -> anyhow::Result<()> {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let above: Vec<&Path> =
            inside.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        for directory in above.into_iter().rev() {
            if !self.made.iter().any(|made| made == directory) {
                self.made.push(directory.to_owned());
                self.entry(&directory.to_string_lossy(), 0o040_755, &[])?;
            }
        }
        self.entry(&inside.to_string_lossy(), 0o100_000 | mode, data)
    }

    fn end(mut self) -> anyhow::Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.to.flush()?)
    }
}

/// Writes the archive.
fn pack(to: File, kernel: &Kernel) -> anyhow::Result<()> {
    let mut archive = Archive::new(BufWriter::new(to));
    let program = fs::read("/proc/self/exe").context("the lab's own program")?;
    let parts = Parts::of(&program).context("the lab's own program is no ELF file")?;
    archive.file(Path::new("/lab"), 0o755, &program[..parts.end])?;
    let mut libraries = loaded(&fs::read_to_string("/proc/self/maps")?);
    if let Some(interpreter) = parts.interpreter {
        // By its usual name, which may be a link.
        libraries.retain(|path| *path != interpreter);
        libraries.push(interpreter);
    }
    for path in libraries {
        archive.file(&path, 0o755, &fs::read(&path).with_context(|| path.display().to_string())?)?;
    }
    for (name, path) in &kernel.modules {
        let mut data = fs::read(path)?;
        if path.extension() == Some("xz".as_ref()) {
            let mut plain = Vec::new();
            lzma_rust2::XzReader::new_mem_limit(&data[..], true, XZ_KIB_MAX).read_to_end(&mut plain)?;
            data = plain;
        }
        archive.file(&PathBuf::from(format!("/modules/{name}.ko")), 0o644, &data)?;
    }
    archive.end()
}

/// The libraries of a process, from its /proc/PID/maps.
fn loaded(maps: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let path = line.splitn(6, ' ').nth(5).map(str::trim).unwrap_or_default();
        let is_library =
            path.starts_with('/') && path.rsplit('/').next().is_some_and(|name| name.contains(".so"));
        if is_library && !all.iter().any(|known| known == Path::new(path)) {
            all.push(path.into());
        }
    }
    all
}

/// The parts of an ELF file that are needed to run it.
struct Parts {
    /// Bytes up to the end of the parts that are loaded; a debugger's names and lines follow.
    end: usize,
    /// The path of the program that loads its libraries.
    interpreter: Option<PathBuf>,
}

impl Parts {
    fn of(file: &[u8]) -> Option<Parts> {
        const PT_LOAD: u32 = 1;
        const PT_INTERP: u32 = 3;
        let u16_at = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?) as usize);
        if file.get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let (start, size, count) = (u64_at(32)?, usize::from(u16_at(54)?), usize::from(u16_at(56)?));
        let mut parts = Parts { end: start + size * count, interpreter: None };
        for i in 0..count {
            let at = start + i * size;
            let (kind, offset, bytes) = (u32_at(at)?, u64_at(at + 8)?, u64_at(at + 32)?);
            match kind {
                PT_LOAD => parts.end = parts.end.max(offset + bytes),
                PT_INTERP => {
                    let text = String::from_utf8_lossy(file.get(offset..offset + bytes)?).into_owned();
                    parts.interpreter = Some(text.trim_end_matches('\0').into());
                }
                _ => {}
            }
        }
        (parts.end <= file.len()).then_some(parts)
    }
}

/// The counts of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Boot {
    cells: Vec<Counted>,
    #[serde(default)]
    files: Vec<Files>,
    left_out: Vec<String>,
    seconds: f64,
}

/// File systems of one machine, on which files are made: XFS of version 4. Each transaction has the
/// counts of free blocks and files, or does not (lazy-count). Newer kernels cannot mount it.
fn systems(session: &Session, number: usize) -> Result<Vec<OwnedFile<'_>>, String> {
    let mkfs = tools::find("mkfs.xfs")?;
    let mut all = Vec::new();
    for lazy in ["lazy-count=0", "lazy-count=1"] {
        let name = session.path(&format!("files-{number}-{}", all.len()));
        let made = OwnedFile::create(&session.janitor, name, 0o600);
        let (owned, file) = made.map_err(|error| error.to_string())?;
        file.set_len(FILES_BYTES).map_err(|error| error.to_string())?;
        let mut command = Command::new(&mkfs);
        command.args(["-q", "-m", "crc=0", "-l", lazy]).arg(owned.path());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("mkfs.xfs: {}", errors.lines().next().unwrap_or("no message")));
        }
        all.push(owned);
    }
    Ok(all)
}

fn boot(
    session: &Session,
    qemu: &Path,
    kernel: &Kernel,
    initramfs: &Path,
    number: usize,
) -> anyhow::Result<Boot> {
    let port =
        |name: &str| OwnedFile::create(&session.janitor, session.path(&format!("{name}-{number}")), 0o600);
    let ((results, _), (console, _)) = (port("results")?, port("console")?);
    let systems = systems(session, number);
    let images: Vec<&Path> = systems.iter().flatten().map(OwnedFile::path).collect();
    let mut arguments = arguments(session.lab_arguments(), kernel, initramfs, results.path(), console.path());
    arguments.extend(drives(&images));
    let mut words = at_once(number);
    words.extend([vec![qemu.into()], arguments].concat());
    let program = PathBuf::from(words.remove(0));
    let job = Job { timeout: LIMIT, throttle: None, ..session.job(program, words) };
    let finished = match runner::run(&session.janitor, &session.stop, job) {
        Ok(finished) => finished,
        Err(runner::Error::Start { program, error }) => bail!("{program}: {error}"),
        Err(stopped) => return Err(stopped.into()),
    };
    let text = String::from_utf8_lossy(&fs::read(results.path())?).replace('\r', "");
    match (&finished.end, read(&text)) {
        (End::Done, Ok((cells, files, mut left_out))) => {
            left_out.extend(systems.as_ref().err().map(|why| format!("files: {why}")));
            Ok(Boot { cells, files, left_out, seconds: finished.seconds })
        }
        (end, outcome) => {
            let words = String::from_utf8_lossy(&fs::read(console.path())?).into_owned();
            let last = words
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("nothing")
                .trim()
                .to_owned();
            let why = outcome.err().map_or_else(String::new, |why| format!(": {why}"));
            bail!("the emulated machine did not finish its work: {}{why}; its last words: {last}", end.text())
        }
    }
}

/// The words before the emulator's command. With them the devices answer at once, by the machine's
/// own clock: both threads of the emulator run on one processor, where the main thread, which
/// answers, has priority over the thread that computes. Otherwise the answer comes when the host
/// has time, and the caller may sleep by then, or not. If tools or rights are missing, words are
/// left out.
fn at_once(number: usize) -> Vec<OsString> {
    let processors = processors();
    let mut words = Vec::new();
    if tools::find("taskset").is_ok() {
        let processor = processors[number % processors.len()].to_string();
        words.extend(["taskset".to_owned(), "--cpu-list".to_owned(), processor]);
    }
    let first = ["chrt", "--fifo", "--reset-on-fork", "1"];
    let able = Command::new(first[0]).args(&first[1..]).arg("true").stderr(Stdio::null()).status();
    if able.is_ok_and(|status| status.success()) {
        words.extend(first.map(str::to_owned));
    }
    words.into_iter().map(Into::into).collect()
}

/// The command line of the machine.
fn arguments(
    lab: &[String],
    kernel: &Kernel,
    initramfs: &Path,
    results: &Path,
    console: &Path,
) -> Vec<OsString> {
    let words = [lab, &["workload".to_owned(), "guest".to_owned()]].concat().join(" ");
    let line = format!(
        "console=ttyS1 loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable rdinit=/lab -- {words}"
    );
    let mut all: Vec<OsString> = Vec::new();
    let mut push = |text: &str| all.extend(text.split(' ').map(OsString::from));
    push("-nodefaults -no-user-config -display none -no-reboot -accel tcg -icount shift=0,sleep=off -smp 1");
    push(&format!("-m {MEMORY_MIB}"));
    // Devices that answer at once and do nothing: with I/O that ends in the host's time, two boots
    // would differ.
    for name in ["n0", "n1", "n2"] {
        push(&format!("-blockdev driver=null-co,node-name={name},size=1073741824,read-zeroes=off"));
    }
    // Without an eventfd, the thread that computes does the device's work, too.
    push("-device nvme,drive=n0,serial=lab -device virtio-blk-pci,drive=n1,ioeventfd=off");
    push("-device virtio-scsi-pci,ioeventfd=off -device scsi-hd,drive=n2");
    for (option, value) in [("-kernel", kernel.image.as_path()), ("-initrd", initramfs)] {
        all.extend([option.into(), value.into()]);
    }
    all.extend(["-append".into(), line.into()]);
    for path in [results, console] {
        let mut text = OsString::from("file:");
        text.push(path);
        all.extend(["-serial".into(), text]);
    }
    all
}

/// The options for file systems in files. The files need not outlive the machine, so flushes do
/// nothing.
fn drives(images: &[&Path]) -> Vec<OsString> {
    let mut all = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let file = image.display().to_string().replace(',', ",,");
        let drive = format!("if=none,id=files{number},format=raw,cache=unsafe,file={file}");
        let device = format!("virtio-blk-pci,drive=files{number},serial={FILES_SERIAL},ioeventfd=off");
        all.extend(["-drive", &drive, "-device", &device].map(OsString::from));
    }
    all
}

/// The counts of a machine, and what it left out.
type Lines = (Vec<Counted>, Vec<Files>, Vec<String>);

/// Reads the lines that a machine has printed.
fn read(text: &str) -> Result<Lines, String> {
    let (mut cells, mut files, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        if let Some(why) = line.strip_prefix("failed: ") {
            return Err(why.into());
        }
        left_out.extend(line.strip_prefix("left out: ").map(str::to_owned));
        cells.extend(serde_json::from_str::<Counted>(line).ok());
        files.extend(serde_json::from_str::<Files>(line).ok());
    }
    match text.lines().any(|line| line == "end") && !cells.is_empty() {
        true => Ok((cells, files, left_out)),
        false => Err("it ended early".into()),
    }
}

/// The mean of both boots by cell, in order, and the largest difference, as a share.
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

/// The results, as a page.
///
/// # Errors
/// The machines counted different things.
pub fn study(told: &Told, texts: &Texts) -> anyhow::Result<Study> {
    let (both, cells) = (&told.boots, together(&told.boots)?);
    let seconds = both.iter().map(|boot| format!("{:.0}", boot.seconds)).collect::<Vec<_>>();
    let mut study = Study {
        title: texts.text("guest: Instructions for an I/O, by path, scheduler and I/Os of a call"),
        command: told.command.clone(),
        machine: vec![
            (
                texts.text("emulated"),
                texts.text("qemu without KVM, one processor, -icount shift=0: a count of instructions"),
            ),
            (texts.text("its kernel"), told.kernel.clone()),
            (texts.text("seconds, both at once"), texts.list(&seconds)),
        ],
        ..Study::default()
    };
    study.summary.push(answer(&cells, texts));
    let nvme = |m| of(&cells, "nvme", "none", m);
    if let Some(saved) = nvme(1).zip(nvme(32)).map(|(one, many)| 1.0 - many / one) {
        study.summary.push(texts.say("guest-saved", &[("percent", &format!("{:.0}", saved * 100.0))]));
    }
    study.summary.push(differ(&cells, texts));
    study.summary.push(texts.say("guest-limits", &[]));
    study.summary.extend(both[0].left_out.iter().filter_map(|line| {
        let (name, why) = line.split_once(": ")?;
        Some(texts.say("left-out", &[("name", name), ("why", why)]))
    }));
    study.parameters = [
        ("reads", "8 KiB, at random places, O_DIRECT"),
        ("calls of a cell", "64 to 256; the median, after a quarter to warm up"),
    ]
    .map(|(name, value)| Parameter {
        name: texts.text(name),
        value: texts.text(value),
        origin: Origin::Chosen,
        ..Parameter::default()
    })
    .to_vec();
    study.plots = plots(&cells, texts);
    study.tables = vec![
        table("All that ran", &cells, texts, |cell| cell.busy),
        table("Only the thread that handed them in", &cells, texts, |cell| cell.thread),
    ];
    let files = files_of(both);
    if let [without, with] = &files[..] {
        let times = |one: f64, other: f64| format!("{:.2}", one / other);
        let values =
            [("made", &*times(without.made, with.made)), ("removed", &times(without.removed, with.removed))];
        study.summary.push(texts.say("guest-xfs", &values));
    }
    if !files.is_empty() {
        study.tables.push(table_of_files(&files, texts));
    }
    Ok(study)
}

/// The mean of both boots for each file system.
fn files_of(both: &[Boot]) -> Vec<Files> {
    let [one, other] = both else { return Vec::new() };
    let pairs = one.files.iter().zip(&other.files).filter(|(a, b)| a.system == b.system);
    pairs
        .map(|(a, b)| Files {
            system: a.system.clone(),
            made: (a.made + b.made) / 2.0,
            removed: (a.removed + b.removed) / 2.0,
        })
        .collect()
}

fn table_of_files(files: &[Files], texts: &Texts) -> Table {
    let value = |value: f64| number(value.round());
    let row = |files: &Files| vec![files.system.clone(), value(files.made), value(files.removed)];
    Table {
        title: texts.text("Files on XFS of version 4 (001)"),
        columns: ["file system", "making a file", "removing it"].map(|name| texts.text(name)).to_vec(),
        rows: files.iter().map(row).collect(),
        note: texts.text("Instructions for a file, the mean of two boots, with all that is written later."),
    }
}

/// The questions of experiment 004 and the results, with one I/O a call and with 32.
fn answer(cells: &[(Counted, f64)], texts: &Texts) -> String {
    let pairs =
        [("a", "virtio-scsi", "nvme"), ("b", "scsi_debug", "null_blk"), ("c", "virtio-scsi", "virtio-blk")];
    let mut values = Vec::new();
    for (key, one, other) in pairs {
        for m in [1, 32] {
            let value = ratio(cells, one, other, m).map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
            values.push((format!("{key}{m}"), value));
        }
    }
    let values: Vec<(&str, &str)> = values.iter().map(|(key, value)| (&**key, &**value)).collect();
    texts.say("guest-answer", &values)
}

/// The difference of the boots, in words.
fn differ(cells: &[(Counted, f64)], texts: &Texts) -> String {
    let worst = cells.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let far = cells.iter().filter(|(_, distance)| *distance > BOOTS_DIFFER).count();
    let Some((cell, distance)) = worst else { return String::new() };
    let (all, near) = (cells.len().to_string(), (cells.len() - far).to_string());
    let (percent, place) = (format!("{:.1}", distance * 100.0), name(cell));
    let values = [("all", &*all), ("met", &near), ("percent", &percent), ("place", &place)];
    match far {
        0 if percent == "0.0" => texts.say("guest-same", &values),
        0 => texts.say("guest-agree", &values),
        _ => texts.say("guest-apart", &values),
    }
}

/// The paths, in order.
fn paths(cells: &[(Counted, f64)]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (cell, _) in cells {
        let key = (cell.path.clone(), cell.scheduler.clone());
        if !all.contains(&key) {
            all.push(key);
        }
    }
    all
}

fn table(title: &str, cells: &[(Counted, f64)], texts: &Texts, value: impl Fn(&Counted) -> f64) -> Table {
    let mut columns = vec![texts.text("path"), texts.text("scheduler")];
    columns.extend(MULTIPLICITIES.map(column));
    let rows = paths(cells).into_iter().map(|(path, scheduler)| {
        let own = |m: &usize| {
            let mut found = cells.iter().map(|(cell, _)| cell);
            let found = found.find(|c| c.path == path && c.scheduler == scheduler && c.multiplicity == *m);
            found.map_or_else(|| "-".to_owned(), |cell| number(value(cell).round()))
        };
        let values: Vec<String> = MULTIPLICITIES.iter().map(own).collect();
        [vec![path.clone(), scheduler.clone()], values].concat()
    });
    Table {
        title: texts.text(title),
        rows: rows.collect(),
        columns,
        note: texts.text("Instructions for an I/O, the mean of two boots; m: I/Os of an io_submit."),
    }
}

fn plots(cells: &[(Counted, f64)], texts: &Texts) -> Vec<Plot> {
    let y = Axis { name: texts.text("instructions for an I/O"), unit: String::new(), log: false };
    let series = |wanted: &dyn Fn(&Counted) -> bool, across: &dyn Fn(&Counted) -> String| {
        let mut all: Vec<Series> = Vec::new();
        for (cell, _) in cells.iter().filter(|(cell, _)| wanted(cell)) {
            let point = (X::Name(across(cell)), cell.busy);
            match all.iter_mut().find(|known| known.name == cell.path) {
                Some(known) => known.points.push(point),
                None => all.push(Series {
                    name: cell.path.clone(),
                    mark: Mark::Measured,
                    points: vec![point],
                    ..Series::default()
                }),
            }
        }
        all
    };
    let plot = |title: &str, x: &str, series: Vec<Series>| Plot {
        title: texts.text(title),
        kind: PlotKind::Bar,
        x: Axis { name: texts.text(x), ..Axis::default() },
        y: y.clone(),
        series,
        ..Plot::default()
    };
    vec![
        plot(
            "By I/Os of a call, without a scheduler (004 Fig 7)",
            "call",
            series(&|c| c.scheduler == "none", &|c| column(c.multiplicity)),
        ),
        plot(
            "By scheduler, 4 I/Os a call",
            "scheduler",
            series(&|c| c.multiplicity == 4, &|c| c.scheduler.clone()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Archive, Boot, Parts, Told, differ, loaded, numbers, read, scsi_over_nvme, study, together};
    use crate::guest_init::{Counted, Files};
    use crate::language::Texts;
    use std::path::{Path, PathBuf};
    use terapage_report::Language;

    #[test]
    fn an_archive_is_what_the_kernel_reads() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file(Path::new("/a/b"), 0o755, b"hello").expect("memory");
        archive.file(Path::new("/a/c"), 0o644, b"").expect("memory");
        archive.end().expect("memory");
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(text.matches("070701").count(), 4, "a directory, two files, the end");
        // The header has 110 bytes; name and data end at multiples of four.
        let at = text.find("a/b\0").expect("the name");
        let header = &text[at - 110..at];
        assert_eq!(&header[14..22], "000081ED", "a file that can be run");
        assert_eq!((&header[54..62], &header[94..102]), ("00000005", "00000004"));
        assert_eq!(&bytes[(at + 4).next_multiple_of(4)..][..5], b"hello");
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn a_program_is_cut_behind_what_is_loaded() {
        let own = std::fs::read("/proc/self/exe").expect("this test");
        let parts = Parts::of(&own).expect("an ELF file");
        assert!(parts.end <= own.len());
        assert!(parts.interpreter.is_none_or(|path| path.exists()));
        assert!(Parts::of(b"\x7fELF\x01").is_none() && Parts::of(b"#!/bin/sh\n").is_none());
        assert!(Parts::of(&own[..100]).is_none());
    }

    #[test]
    fn libraries_are_those_that_are_loaded() {
        let maps = "55-56 r-xp 00000000 fe:00 12  /usr/bin/lab\n\
                    7f-80 r--p 00000000 fe:00 13                         /usr/lib/libc.so.6\n\
                    7f-80 r-xp 00001000 fe:00 13                         /usr/lib/libc.so.6\n\
                    80-81 rw-p 00000000 00:00 0                          [heap]\n";
        assert_eq!(loaded(maps), [PathBuf::from("/usr/lib/libc.so.6")]);
    }

    #[test]
    fn the_newest_kernel_is_that_with_the_greatest_numbers() {
        assert!(numbers("linux-image-6.1.0-9-cloud-amd64") < numbers("linux-image-6.1.0-56-cloud-amd64"));
    }

    fn counted(path: &str, multiplicity: usize, busy: f64) -> Counted {
        Counted { path: path.into(), scheduler: "none".into(), multiplicity, busy, thread: busy / 2.0 }
    }

    fn boot(factor: f64) -> Boot {
        let paths = [
            ("null_blk", 7000.0),
            ("scsi_debug", 8400.0),
            ("nvme", 8000.0),
            ("virtio-blk", 9000.0),
            ("virtio-scsi", 10800.0),
        ];
        let cells = paths.iter().flat_map(|(path, busy)| {
            [1, 4, 32].map(|m| counted(path, m, busy * factor / if m == 32 { 1.25 } else { 1.0 }))
        });
        let files = [("lazy-count=0", 1.1), ("lazy-count=1", 1.0)].map(|(system, times)| Files {
            system: system.into(),
            made: 9000.0 * times,
            removed: 8000.0 * times * times,
        });
        let left_out = vec!["bfq: none".into()];
        Boot { cells: cells.collect(), files: files.to_vec(), left_out, seconds: 9.0 }
    }

    #[test]
    fn lines_of_a_machine_are_whole_or_an_error() {
        let line = serde_json::to_string(&counted("nvme", 1, 5.0)).expect("JSON");
        let files = Files { system: "XFS".into(), made: 2.0, removed: 1.0 };
        let other = serde_json::to_string(&files).expect("JSON");
        let (cells, known, left_out) =
            read(&format!("noise\nleft out: x: y\n{line}\n{other}\nend\n")).expect("whole");
        assert_eq!((cells, left_out), (vec![counted("nvme", 1, 5.0)], vec!["x: y".to_owned()]));
        assert_eq!(known, [files]);
        assert_eq!(read(&format!("{line}\n")).expect_err("no end"), "it ended early");
        assert_eq!(read(&format!("{line}\nfailed: no disk\nend\n")).expect_err("failed"), "no disk");
        assert!(read("end\n").is_err());
    }

    #[test]
    fn the_open_question_is_answered_from_two_boots() {
        let told = Told {
            kernel: "a kernel".into(),
            command: "terapage lab all".into(),
            terapage: "1".into(),
            started_s: 1,
            boots: vec![boot(1.0), boot(1.004)],
        };
        let ratios = scsi_over_nvme(&told);
        assert!(
            ratios.len() == 3 && ratios.iter().all(|(_, ratio)| (ratio - 1.35).abs() < 1e-9),
            "{ratios:?}"
        );
        let texts = Texts::of(Language::En);
        let text = terapage_report::render_text(&study(&told, texts).expect("a study"), 100);
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "takes 1.35 (one I/O a call) to 1.35 (32)",
            "null_blk) 1.20 to 1.20 times",
            "save 20 %",
            "agree within 0.4 %",
            "Left out: bfq",
            "1.10 times as many instructions to make a file without lazy-count, 1.21 times to remove",
        ] {
            assert!(plain.contains(part), "{part}: {text}");
        }
        let far = differ(&together(&[boot(1.0), boot(1.02)]).expect("the same cells"), texts);
        assert!(far.contains("in 0 of 15 cells") && far.contains("2.0 %"), "{far}");
        let same = differ(&together(&[boot(1.0), boot(1.0)]).expect("the same cells"), texts);
        assert!(same.contains("the same in all 15 cells"), "{same}");
        let japanese = study(&told, Texts::of(Language::Ja)).expect("a study");
        let titles = japanese.plots.iter().map(|plot| &plot.title).chain(&japanese.summary);
        let titles = titles.chain(japanese.tables.iter().flat_map(|table| [&table.title, &table.note]));
        let plain: Vec<&String> = titles.filter(|text| text.is_ascii()).collect();
        assert!(plain.is_empty() && !japanese.title.is_ascii(), "not translated: {plain:?}");
        let mut short = boot(1.0);
        short.cells.pop();
        assert!(together(&[boot(1.0), short]).is_err());
    }
}
