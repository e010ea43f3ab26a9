//! The emulated machine: its kernel, its first file system, its devices, and its output.
//!
//! The machine boots from an archive in memory, with terapage's own program, the libraries that
//! this program has loaded, and the drivers. Nothing is installed; the kernel is kept in the user's
//! cache.

use crate::Host;
use crate::init::{ARRAY_MODULES, Counted, DEVICES, FILES_SERIAL, Files, MODULES, Part};
use crate::second::{Arrayed, Limited, PROCESSORS, QUEUES, QUEUES_SERIAL, Queued};
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use terapage_rig::spinner::processors;
use terapage_rig::{Cannot, tools};

const QEMU: &str = "qemu-system-x86_64";

/// Usable kernels, the best known first.
const KERNELS: [&str; 2] =
    [r"^linux-image-6\.1\.0-[0-9]+-cloud-amd64$", r"^linux-image-6\.12\.[0-9+a-z]*-cloud-amd64$"];

/// The machine is killed after this. Chosen, not measured.
pub const LIMIT: Duration = Duration::from_secs(900);

/// Memory of the machine, MiB. Chosen, not measured.
const MEMORY_MIB: u32 = 512;

/// Memory that unpacking a compressed driver may need, KiB.
const XZ_KIB_MAX: u32 = 128 << 10;

/// Bytes of a file system, most of them holes. Chosen, not measured.
const FILES_BYTES: u64 = 400 << 20;

/// The emulator, if a machine is possible here.
///
/// # Errors
/// A [`Cannot`]: there is no emulator, or this is another kind of processor.
pub fn can_be() -> anyhow::Result<PathBuf> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        Cannot("the emulated machine is an x86_64, as Debian's kernel is".into())
    );
    Ok(tools::find(QEMU).map_err(Cannot)?)
}

/// A kernel and its drivers, unpacked.
pub struct Kernel {
    /// The name of its package.
    pub name: String,
    image: PathBuf,
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// The kernel of a package: the named one, one that was unpacked earlier, or one from apt.
    ///
    /// # Errors
    /// There is none.
    pub fn get(named: Option<&Path>) -> anyhow::Result<Kernel> {
        let cache = cache()?;
        if let Some(package) = named {
            ensure!(package.is_file(), "{}: no such file", package.display());
            let name = package.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return unpack(package, &cache, &name);
        }
        tools::find("apt-cache")
            .map_err(|why| Cannot(format!("{why}; or name a kernel: stack-guest FILE.deb")))?;
        let Some(name) = known_to_apt()? else {
            bail!(Cannot(
                "apt knows no kernel for the machine (apt-get update; or name a kernel: \
                 stack-guest FILE.deb)"
                    .into()
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
        for needed in ["null_blk", "xfs", "raid456"] {
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
    let names = MODULES.iter().chain(&ARRAY_MODULES).chain(DEVICES.iter().map(|(name, _)| name));
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
///
/// # Errors
/// A file cannot be read or written.
pub fn pack(to: File, kernel: &Kernel) -> anyhow::Result<()> {
    let mut archive = Archive::new(BufWriter::new(to));
    let program = fs::read("/proc/self/exe").context("terapage's own program")?;
    let parts = Parts::of(&program).context("terapage's own program is no ELF file")?;
    archive.file(Path::new("/terapage"), 0o755, &program[..parts.end])?;
    let mut libraries = loaded(&fs::read_to_string("/proc/self/maps")?);
    if let Some(interpreter) = parts.interpreter {
        // The interpreter has its usual name, which may be a link.
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Boot {
    /// I/Os, by path.
    pub cells: Vec<Counted>,
    /// Files on file systems.
    #[serde(default)]
    pub files: Vec<Files>,
    /// I/Os, by queues.
    #[serde(default)]
    pub queues: Vec<Queued>,
    /// I/Os on an array.
    #[serde(default)]
    pub arrays: Vec<Arrayed>,
    /// Rates under limits.
    #[serde(default)]
    pub limits: Vec<Limited>,
    /// What was not available, and why.
    pub left_out: Vec<String>,
    /// The run time, by the host's clock.
    pub seconds: f64,
}

/// File systems of one machine, on which files are made: XFS of version 4. With lazy-count,
/// transactions do not include the counts of free blocks and files. Newer kernels cannot mount
/// version 4.
fn systems(host: &dyn Host, number: usize) -> Result<Vec<Box<dyn AsRef<Path> + '_>>, String> {
    let mkfs = tools::find("mkfs.xfs")?;
    let mut all = Vec::new();
    for lazy in ["lazy-count=0", "lazy-count=1"] {
        let made = host.file(&format!("files-{number}-{}", all.len()));
        let (owned, file) = made.map_err(|error| error.to_string())?;
        file.set_len(FILES_BYTES).map_err(|error| error.to_string())?;
        let mut command = Command::new(&mkfs);
        command.args(["-q", "-m", "crc=0", "-l", lazy]).arg((*owned).as_ref());
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("mkfs.xfs: {}", errors.lines().next().unwrap_or("no message")));
        }
        all.push(owned);
    }
    Ok(all)
}

/// Runs two machines, one after the other, for all counts.
///
/// # Errors
/// A machine does not finish its work.
pub fn boot(
    host: &dyn Host,
    qemu: &Path,
    kernel: &Kernel,
    initramfs: &Path,
    number: usize,
) -> anyhow::Result<Boot> {
    let systems = systems(host, number);
    let images: Vec<&Path> = systems.iter().flatten().map(|owned| (**owned).as_ref()).collect();
    let devices = |part| match part {
        Part::Paths => [devices(), drives(&images)].concat(),
        Part::More => devices_with_queues(),
    };
    let run = |part| machine(host, qemu, &arguments(part, kernel, initramfs), devices(part), number, part);
    let (mut all, more) = (run(Part::Paths)?, run(Part::More)?);
    all.left_out.extend(systems.as_ref().err().map(|why| format!("files: {why}")));
    for line in more.left_out {
        if !all.left_out.contains(&line) {
            all.left_out.push(line);
        }
    }
    let seconds = all.seconds + more.seconds;
    Ok(Boot { queues: more.queues, arrays: more.arrays, limits: more.limits, seconds, ..all })
}

/// Runs a machine to its end.
fn machine(
    host: &dyn Host,
    qemu: &Path,
    arguments: &[OsString],
    devices: Vec<OsString>,
    number: usize,
    part: Part,
) -> anyhow::Result<Boot> {
    let port = |name: &str| host.file(&format!("{name}-{number}"));
    let ((results, _), (console, _)) = (port("results")?, port("console")?);
    let (results, console): (&Path, &Path) = ((*results).as_ref(), (*console).as_ref());
    let mut words = at_once(number);
    words.push(qemu.into());
    words.extend([arguments, &devices, &line(part)].concat());
    for path in [results, console] {
        let mut text = OsString::from("file:");
        text.push(path);
        words.extend(["-serial".into(), text]);
    }
    let program = PathBuf::from(words.remove(0));
    let ran = host.run(program, words, LIMIT)?;
    let text = String::from_utf8_lossy(&fs::read(results)?).replace('\r', "");
    match (ran.failed, read(&text)) {
        (None, Ok(boot)) => Ok(Boot { seconds: ran.seconds, ..boot }),
        (failed, outcome) => {
            let end = failed.unwrap_or_else(|| "done".into());
            let words = String::from_utf8_lossy(&fs::read(console)?).into_owned();
            let last = words.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim();
            let why = outcome.err().map_or_else(String::new, |why| format!(": {why}"));
            bail!("the emulated machine did not finish its work: {end}{why}; its last words: {last}")
        }
    }
}

/// The words before the emulator's command. They make the devices answer at once, by the machine's
/// own clock: both threads of the emulator run on one processor, where the main thread, which
/// answers, has priority over the thread that computes. Without them, an answer comes when the host
/// has time, and the caller may or may not be asleep by then. Words are omitted if tools or rights
/// are missing.
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

/// Text as options of a command line.
fn words(text: &str) -> Vec<OsString> {
    text.split(' ').map(OsString::from).collect()
}

/// The command line of a machine, without its devices.
fn arguments(part: Part, kernel: &Kernel, initramfs: &Path) -> Vec<OsString> {
    let room = if part == Part::Paths { 1 } else { PROCESSORS };
    let mut all =
        words("-nodefaults -no-user-config -display none -no-reboot -accel tcg -icount shift=0,sleep=off");
    all.extend(words(&format!("-smp 1,maxcpus={room} -m {MEMORY_MIB}")));
    for (option, value) in [("-kernel", kernel.image.as_path()), ("-initrd", initramfs)] {
        all.extend([option.into(), value.into()]);
    }
    all
}

/// The line for the machine's kernel.
fn line(part: Part) -> Vec<OsString> {
    let first = format!("paper guest --part {}", part.name());
    // The kernel's tests of its own ciphers would take half of the start.
    let line = "console=ttyS1 loglevel=4 panic=-1 mitigations=off nokaslr norandmaps tsc=reliable \
                cryptomgr.notests=1";
    vec!["-append".into(), format!("{line} rdinit=/terapage -- {first}").into()]
}

/// A device of the emulator that answers at once and does nothing: if I/O ended in the host's time,
/// two boots would differ.
fn nothing(name: &str) -> Vec<OsString> {
    words(&format!("-blockdev driver=null-co,node-name={name},size=1073741824,read-zeroes=off"))
}

/// The devices of the first machine. Without an eventfd, the thread that computes does the
/// device's work, too.
fn devices() -> Vec<OsString> {
    let mut all = ["n0", "n1", "n2"].map(nothing).concat();
    all.extend(words("-device nvme,drive=n0,serial=lab -device virtio-blk-pci,drive=n1,ioeventfd=off"));
    all.extend(words("-device virtio-scsi-pci,ioeventfd=off -device scsi-hd,drive=n2"));
    all
}

/// The devices of the second machine.
fn devices_with_queues() -> Vec<OsString> {
    let device = |queues: u32| {
        let text =
            format!("-device nvme,drive=q{queues},serial={QUEUES_SERIAL}{queues},max_ioqpairs={queues}");
        [nothing(&format!("q{queues}")), words(&text)].concat()
    };
    QUEUES.map(device).concat()
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

/// Reads the lines that a machine has printed.
fn read(text: &str) -> Result<Boot, String> {
    fn of<T: serde::de::DeserializeOwned>(line: &str) -> Option<T> {
        serde_json::from_str(line).ok()
    }
    let mut boot = Boot::default();
    for line in text.lines() {
        if let Some(why) = line.strip_prefix("failed: ") {
            return Err(why.into());
        }
        boot.left_out.extend(line.strip_prefix("left out: ").map(str::to_owned));
        boot.cells.extend(of::<Counted>(line));
        boot.files.extend(of::<Files>(line));
        boot.queues.extend(of::<Queued>(line));
        boot.arrays.extend(of::<Arrayed>(line));
        boot.limits.extend(of::<Limited>(line));
    }
    match text.lines().any(|line| line == "end") && !(boot.cells.is_empty() && boot.queues.is_empty()) {
        true => Ok(boot),
        false => Err("it ended early".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Archive, Parts, loaded, numbers, read};
    use crate::init::{Counted, Files};
    use crate::second::{Arrayed, Limited, Queued};
    use std::path::{Path, PathBuf};

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

    #[test]
    fn lines_of_a_machine_are_whole_or_an_error() {
        let json = |value: &dyn Fn() -> serde_json::Result<String>| value().expect("JSON");
        let files = Files { system: "XFS".into(), made: 2.0, removed: 1.0 };
        let queued = Queued { path: "nvme".into(), queues: 2, multiplicity: 4, busy: 3.0 };
        let arrayed = Arrayed { operation: "read".into(), one: None, array: 7.0 };
        let limited = Limited { limited: "swap-out".into(), limit: 4.0, rate: 4.1, free: 900.0 };
        let line = json(&|| serde_json::to_string(&counted()));
        let others = [
            json(&|| serde_json::to_string(&files)),
            json(&|| serde_json::to_string(&queued)),
            json(&|| serde_json::to_string(&arrayed)),
            json(&|| serde_json::to_string(&limited)),
        ];
        let text = format!("noise\nleft out: x: y\n{line}\n{}\nend\n", others.join("\n"));
        let boot = read(&text).expect("whole");
        assert_eq!((boot.cells, boot.left_out), (vec![counted()], vec!["x: y".to_owned()]));
        assert_eq!((boot.files, boot.queues), (vec![files], vec![queued]));
        assert_eq!((boot.arrays, boot.limits), (vec![arrayed], vec![limited]));
        assert_eq!(read(&format!("{line}\n")).expect_err("no end"), "it ended early");
        assert_eq!(read(&format!("{line}\nfailed: no disk\nend\n")).expect_err("failed"), "no disk");
        assert!(read("end\n").is_err());
    }

    fn counted() -> Counted {
        let (path, scheduler) = ("nvme".into(), "none".into());
        Counted { path, scheduler, multiplicity: 1, busy: 5.0, thread: 2.5 }
    }
}
