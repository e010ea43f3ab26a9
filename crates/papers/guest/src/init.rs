//! The first process of an emulated machine: loads drivers, measures each path with each scheduler,
//! prints the results, and switches the machine off. A second machine does the measurements of
//! [`crate::second`].
//!
//! The first machine has one processor, and an instruction takes one nanosecond of its own clock
//! (`-icount shift=0`). So the nanoseconds in which a spinner of the lowest priority does not run
//! are the instructions of all other work.

use crate::second;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use terapage_rig::calls::{Aio, Calls, Parts, Way};
use terapage_rig::driver::batches;
use terapage_rig::spinner::{Alone, Spinners, Spun, TaskClock};

/// Bytes of a read.
pub const BLOCK: usize = 8192;

/// The number of I/Os in a call; 0 is pread.
pub const MULTIPLICITIES: [usize; 6] = [0, 1, 2, 4, 8, 32];

/// The I/Os of a call with which a scheduler is measured: the usual two schedulers with all.
fn multiplicities(scheduler: &str) -> Vec<usize> {
    match scheduler {
        "none" | "mq-deadline" => MULTIPLICITIES.to_vec(),
        _ => vec![1, 4],
    }
}

/// Schedulers; those that the kernel lacks are skipped.
pub const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

/// Drivers, in an order that works with most kernels. A driver that fails at first is tried again.
pub const MODULES: [&str; 26] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "configfs",
    "scsi_common",
    "scsi_mod",
    "crc-t10dif",
    "crct10dif_common",
    "crct10dif_generic",
    "crc64",
    "crc64-rocksoft",
    "crc64_rocksoft_generic",
    "t10-pi",
    "sd_mod",
    "virtio_scsi",
    "nvme-core",
    "nvme",
    "mq-deadline",
    "kyber-iosched",
    "bfq",
    "crc32c_generic",
    "libcrc32c",
    "xfs",
];

/// The modules for an array, only in the second machine: they try for a second which way to compute
/// parity is the fastest.
pub const ARRAY_MODULES: [&str; 9] = [
    "async_tx",
    "async_memcpy",
    "xor",
    "raid6_pq",
    "async_xor",
    "async_pq",
    "async_raid6_recov",
    "md-mod",
    "raid456",
];

/// Drivers that make devices, and their options: the devices answer at once.
pub const DEVICES: [(&str, &str); 2] = [
    ("null_blk", "nr_devices=1 queue_mode=2 irqmode=0 completion_nsec=0 gb=1 bs=512 submit_queues=1"),
    ("scsi_debug", "delay=0 dev_size_mb=64 fake_rw=1 max_luns=1 num_tgts=1"),
];

/// The number of calls of a cell, the first of which only warm up: more calls if a call has fewer
/// I/Os. Chosen, not measured.
fn calls(multiplicity: usize) -> usize {
    match multiplicity {
        0 | 1 => 256,
        2..=4 => 128,
        _ => 64,
    }
}

/// The calls of a cell, divided by this, only warm up. Chosen, not measured.
const WARM_UP: usize = 4;

/// The cost of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The path: a driver.
    pub path: String,
    /// The scheduler.
    pub scheduler: String,
    /// The number of I/Os in a call; 0 is pread.
    pub multiplicity: usize,
    /// Instructions for each I/O, of all that ran.
    pub busy: f64,
    /// The part of the instructions that the submitting thread ran.
    pub thread: f64,
}

/// Devices with this serial number have an XFS on which files are made.
pub const FILES_SERIAL: &str = "files";

/// The number of files that are made and removed. Chosen, not measured.
const FILES: usize = 2000;

/// The cost of files on a file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// Its version and settings, from its superblock.
    pub system: String,
    /// Instructions to make a file.
    pub made: f64,
    /// Instructions to remove one.
    pub removed: f64,
}

/// Options.
#[derive(Debug, clap::Args)]
pub struct Guest {
    /// What it measures.
    #[arg(long)]
    part: Part,
}

/// What a machine measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// I/Os by path and scheduler, and files.
    Paths,
    /// I/Os by the number of queues, the array, and limits.
    More,
}

impl Part {
    /// The name in the option.
    pub fn name(self) -> &'static str {
        match self {
            Part::Paths => "paths",
            Part::More => "more",
        }
    }
}

impl Guest {
    /// Measures, and switches the machine off. Does not return in the machine.
    ///
    /// # Errors
    /// This is not the first process of a machine.
    pub fn run(self) -> anyhow::Result<()> {
        ensure!(
            std::process::id() == 1,
            "this command runs only as the first process of an emulated machine"
        );
        let measured = start(self.part).and_then(|()| match self.part {
            Part::Paths => measure(),
            Part::More => second::measure(),
        });
        match measured {
            Ok(()) => println!("end"),
            Err(error) => println!("failed: {error:#}"),
        }
        // SAFETY: sync and reboot take no memory.
        unsafe {
            libc::sync();
            libc::reboot(libc::RB_POWER_OFF);
        }
        Ok(())
    }
}

/// Mounts file systems, and loads drivers.
fn start(part: Part) -> anyhow::Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, place).with_context(|| place.to_owned())?;
    }
    // The kernel's messages go elsewhere.
    let port = OpenOptions::new().write(true).open("/dev/ttyS0").context("/dev/ttyS0")?;
    // SAFETY: both descriptors are open, and only this process uses standard output.
    unsafe { libc::dup2(port.as_raw_fd(), 1) };
    // A machine with little memory has huge pages off.
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "madvise").context("huge pages")?;
    let mut left: Vec<&str> = MODULES.to_vec();
    left.extend(ARRAY_MODULES.iter().filter(|_| part == Part::More));
    for _ in 0..4 {
        left.retain(|name| load(name, "").is_err());
    }
    for (name, options) in DEVICES {
        // The second machine makes its devices itself.
        let options = if part == Part::More && name == "null_blk" { "nr_devices=0" } else { options };
        if let Err(error) = load(name, options) {
            println!("left out: {name}: {error:#}");
        }
    }
    Ok(())
}

fn measure() -> anyhow::Result<()> {
    let (spinners, alone) = Spinners::start_fine().context("a spinner ended")?;
    for (path, device) in paths() {
        for scheduler in SCHEDULERS {
            let file = format!("/sys/block/{device}/queue/scheduler");
            if fs::write(file, scheduler).is_err() {
                continue;
            }
            for multiplicity in multiplicities(scheduler) {
                let counted = cell(&path, &device, scheduler, multiplicity, &spinners, &alone)
                    .with_context(|| format!("{path} {scheduler} {multiplicity}"))?;
                println!("{}", serde_json::to_string(&counted)?);
            }
        }
    }
    for device in devices().iter().filter(|device| serial(device) == FILES_SERIAL) {
        match files(device, &spinners, &alone) {
            Ok(files) => println!("{}", serde_json::to_string(&files)?),
            Err(error) => println!("left out: files: {error:#}"),
        }
    }
    Ok(())
}

/// Makes files and removes them. The cost includes the writes that follow.
fn files(device: &str, spinners: &Spinners, alone: &Alone) -> anyhow::Result<Files> {
    let (path, place) = (format!("/dev/{device}"), Path::new("/files"));
    let mut superblock = [0; 512];
    File::open(&path)?.read_exact(&mut superblock)?;
    let system = xfs(&superblock).with_context(|| format!("{device} has no XFS"))?;
    fs::create_dir_all(place)?;
    let names = [CString::new(path)?, c"/files".to_owned(), c"xfs".to_owned()];
    // SAFETY: the texts end in a zero byte and live through the call; there are no data.
    let answer =
        unsafe { libc::mount(names[0].as_ptr(), names[1].as_ptr(), names[2].as_ptr(), 0, std::ptr::null()) };
    ensure!(answer == 0, "{system}: mount: {}", std::io::Error::last_os_error());
    let all: Vec<_> = (0..FILES).map(|number| place.join(format!("file-{number}"))).collect();
    let timed = |each: &dyn Fn(&Path) -> std::io::Result<()>| {
        let before = spinners.now();
        all.iter().try_for_each(|path| each(path))?;
        // SAFETY: sync takes no memory.
        unsafe { libc::sync() };
        let busy = Spinners::busy_s(&before, &spinners.now(), alone);
        anyhow::Ok(busy * 1e9 / FILES as f64)
    };
    let made = timed(&|path| File::create_new(path).map(drop))?;
    let removed = timed(&|path| fs::remove_file(path))?;
    // SAFETY: the text ends in a zero byte and lives through the call.
    let answer = unsafe { libc::umount2(names[1].as_ptr(), 0) };
    ensure!(answer == 0, "{system}: umount: {}", std::io::Error::last_os_error());
    Ok(Files { system, made, removed })
}

/// Version and lazy-count of an XFS, from its superblock (fs/xfs/libxfs/xfs_format.h).
fn xfs(superblock: &[u8]) -> Option<String> {
    let version = u16::from_be_bytes(superblock.get(100..102)?.try_into().ok()?) & 15;
    let features = u32::from_be_bytes(superblock.get(200..204)?.try_into().ok()?);
    let lazy = features >> 1 & 1;
    (superblock.starts_with(b"XFSB")).then(|| format!("XFS version {version}, lazy-count={lazy}"))
}

/// All block devices.
pub fn devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// A device's serial number.
pub fn serial(device: &str) -> String {
    let of = |file: &str| fs::read_to_string(format!("/sys/block/{device}/{file}")).ok();
    of("serial").or_else(|| of("device/serial")).unwrap_or_default().trim().to_owned()
}

/// Mounts a file system of the kernel's own.
///
/// # Errors
/// The kernel has none.
pub fn mount(kind: &str, place: &str) -> anyhow::Result<()> {
    fs::create_dir_all(place)?;
    let (kind, place) = (CString::new(kind)?, CString::new(place)?);
    // SAFETY: the texts end in a zero byte and live through the call; there are no data.
    let answer = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    let error = std::io::Error::last_os_error();
    // The kernel itself may have mounted it.
    ensure!(answer == 0 || error.raw_os_error() == Some(libc::EBUSY), "{error}");
    Ok(())
}

/// Loads a driver, if the machine has it.
fn load(name: &str, options: &str) -> anyhow::Result<()> {
    let path = format!("/modules/{name}.ko");
    if !Path::new(&path).exists() {
        return Ok(());
    }
    let (file, options) = (File::open(path)?, CString::new(options)?);
    // SAFETY: the descriptor is open, and the options end in a zero byte and live through the call.
    let answer = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), options.as_ptr(), 0) };
    let error = std::io::Error::last_os_error();
    ensure!(answer == 0 || error.raw_os_error() == Some(libc::EEXIST), "{error}");
    Ok(())
}

/// Paths by name, with their devices. It takes a moment until the devices exist.
fn paths() -> Vec<(String, String)> {
    let wanted = ["null_blk", "scsi_debug", "nvme", "virtio-blk", "virtio-scsi"];
    let mut found: Vec<(String, String)> = Vec::new();
    for _ in 0..100 {
        found = devices().into_iter().filter_map(|name| Some((path_of(&name)?.to_owned(), name))).collect();
        if found.len() == wanted.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    found.sort_by_key(|(path, _)| wanted.iter().position(|name| name == path));
    for path in wanted {
        if !found.iter().any(|(known, _)| known == path) {
            println!("left out: {path}: no such device appeared");
        }
    }
    found
}

/// The path to which a device belongs.
fn path_of(device: &str) -> Option<&'static str> {
    let vendor = fs::read_to_string(format!("/sys/block/{device}/device/vendor")).unwrap_or_default();
    match (device, vendor.trim()) {
        (name, _) if name.starts_with("nullb") => Some("null_blk"),
        (name, _) if name.starts_with("nvme") => Some("nvme"),
        (name, _) if name.starts_with("vd") => (serial(name) != FILES_SERIAL).then_some("virtio-blk"),
        (name, "Linux") if name.starts_with("sd") => Some("scsi_debug"),
        (name, _) if name.starts_with("sd") => Some("virtio-scsi"),
        _ => None,
    }
}

/// Whether this process has huge pages.
fn has_huge_pages() -> anyhow::Result<bool> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let found = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    Ok(found.is_some_and(|size| size.trim() != "0 kB"))
}

/// Counts a cell.
fn cell(
    path: &str,
    device: &str,
    scheduler: &str,
    multiplicity: usize,
    spinners: &Spinners,
    alone: &Alone,
) -> anyhow::Result<Counted> {
    let (busy, thread) = cost(device, multiplicity, spinners, alone)?;
    Ok(Counted { path: path.into(), scheduler: scheduler.into(), multiplicity, busy, thread })
}

/// Instructions since the previous reading.
pub fn since(last: &mut Spun, spinners: &Spinners, alone: &Alone) -> f64 {
    let now = spinners.now();
    let busy = Spinners::busy_s(last, &now, alone) * 1e9;
    *last = now;
    busy
}

/// Instructions for an I/O, and the part of them that this thread ran: the median of single calls.
/// Most calls contain no tick of the clock, and no late answer of the emulator; a mean would
/// include the calls that do.
///
/// # Errors
/// An I/O fails.
pub fn cost(
    device: &str,
    multiplicity: usize,
    spinners: &Spinners,
    alone: &Alone,
) -> anyhow::Result<(f64, f64)> {
    let m = multiplicity.max(1);
    let sectors: u64 = fs::read_to_string(format!("/sys/block/{device}/size"))?.trim().parse()?;
    // Enough calls that all have similar places.
    let places = (sectors * 512 / BLOCK as u64).clamp(1, 8192);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(format!("/dev/{device}"))?;
    let parts = Parts::huge(BLOCK, m)?;
    ensure!(has_huge_pages()?, "the machine has no huge page for the reads");
    let way = match multiplicity {
        0 => Way::Pread { file, parts, done: Vec::new(), calls: Calls::default() },
        _ => Way::Aio(Aio::new(file, parts)?),
    };
    let count = calls(multiplicity);
    // Reading the clock takes instructions, too.
    let mut last = spinners.now();
    let looks: Vec<f64> = (0..64).map(|_| since(&mut last, spinners, alone)).collect();
    let mut clock = TaskClock::Thread;
    let mut each = Vec::with_capacity(count);
    let own = clock.ns();
    last = spinners.now();
    let ios = batches(way, places, BLOCK as u64, m, count, || each.push(since(&mut last, spinners, alone)))?;
    let own = clock.ns() - own;
    ensure!(ios as usize == count * m, "{ios} I/Os of {}", count * m);
    let median = |values: &[f64]| terapage_figures::median(values).unwrap_or(0.0);
    let look = median(&looks);
    let busy = (median(&each[count / WARM_UP..]) - look) / m as f64;
    Ok((busy, (own as f64 / count as f64 - look) / m as f64))
}

#[cfg(test)]
mod tests {
    use super::xfs;

    #[test]
    fn a_superblock_says_what_is_in_force() {
        let mut block = [0; 512];
        assert_eq!(xfs(&block), None);
        block[..4].copy_from_slice(b"XFSB");
        block[100..102].copy_from_slice(&0xb4a4_u16.to_be_bytes());
        assert_eq!(xfs(&block).as_deref(), Some("XFS version 4, lazy-count=0"));
        block[200..204].copy_from_slice(&0x8a_u32.to_be_bytes());
        assert_eq!(xfs(&block).as_deref(), Some("XFS version 4, lazy-count=1"));
    }
}
