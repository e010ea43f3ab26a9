//! The first process of the emulated machine: loads drivers, measures each path with each
//! scheduler, prints, and switches the machine off.
//!
//! The machine has one processor on which an instruction takes one nanosecond of its own clock
//! (`-icount shift=0`). So what a spinner of the lowest priority lacks, in nanoseconds, is
//! instructions.

use crate::aio::{Aio, Calls, Parts, Way, now_ns};
use crate::load::batches;
use crate::spinner::{Spinners, TaskClock};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Bytes of a read.
pub const BLOCK: usize = 8192;

/// I/Os of a call; 0 is pread.
pub const MULTIPLICITIES: [usize; 6] = [0, 1, 2, 4, 8, 32];

/// Those that a scheduler is measured with: the usual two with all.
fn multiplicities(scheduler: &str) -> Vec<usize> {
    match scheduler {
        "none" | "mq-deadline" => MULTIPLICITIES.to_vec(),
        _ => vec![1, 4],
    }
}

/// Schedulers, where the kernel has them.
pub const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

/// Drivers, in an order that works with most kernels; what fails at first is tried again.
pub const MODULES: [&str; 23] = [
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
];

/// Drivers that are devices, and their options: they answer at once.
pub const DEVICES: [(&str, &str); 2] = [
    ("null_blk", "nr_devices=1 queue_mode=2 irqmode=0 completion_nsec=0 gb=1 bs=512 submit_queues=1"),
    ("scsi_debug", "delay=0 dev_size_mb=64 fake_rw=1 max_luns=1 num_tgts=1"),
];

/// Reads of a cell and round; a multiple of every multiplicity.
const IOS: usize = 512;

/// Rounds of a cell after one to warm up.
const ROUNDS: usize = 3;

/// What a cell took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The path: a driver.
    pub path: String,
    /// The scheduler.
    pub scheduler: String,
    /// I/Os of a call; 0 is pread.
    pub multiplicity: usize,
    /// Instructions by I/O, of all that ran.
    pub busy: f64,
    /// Of these, of the thread that handed them in.
    pub thread: f64,
}

/// Options: none.
#[derive(Debug, clap::Args)]
pub struct Guest {}

impl Guest {
    /// Measures, and switches the machine off. Does not return in the machine.
    ///
    /// # Errors
    /// When it is not the first process of a machine.
    pub fn run(self) -> anyhow::Result<()> {
        ensure!(std::process::id() == 1, "this is the first process of an emulated machine, and no other");
        if let Err(error) = measure() {
            println!("failed: {error:#}");
        }
        // SAFETY: sync and reboot take no memory.
        unsafe {
            libc::sync();
            libc::reboot(libc::RB_POWER_OFF);
        }
        Ok(())
    }
}

fn measure() -> anyhow::Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, place).with_context(|| place.to_owned())?;
    }
    // The machine's own words go elsewhere.
    let port = OpenOptions::new().write(true).open("/dev/ttyS0").context("/dev/ttyS0")?;
    // SAFETY: both descriptors are open, and nobody else has standard output.
    unsafe { libc::dup2(port.as_raw_fd(), 1) };
    let mut left: Vec<&str> = MODULES.to_vec();
    for _ in 0..4 {
        left.retain(|name| load(name, "").is_err());
    }
    for (name, options) in DEVICES {
        if let Err(error) = load(name, options) {
            println!("left out: {name}: {error:#}");
        }
    }
    let spinners = Spinners::start();
    std::thread::sleep(Duration::from_millis(20));
    let alone = spinners.alone(Duration::from_millis(200));
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
    println!("end");
    Ok(())
}

fn mount(kind: &str, place: &str) -> anyhow::Result<()> {
    fs::create_dir_all(place)?;
    let (kind, place) = (CString::new(kind)?, CString::new(place)?);
    // SAFETY: the texts end in a zero byte and live through the call; there are no data.
    let answer = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    let error = std::io::Error::last_os_error();
    // The kernel itself may have mounted it.
    ensure!(answer == 0 || error.raw_os_error() == Some(libc::EBUSY), "{error}");
    Ok(())
}

/// Loads a driver, where it is there.
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

/// Paths by name, with their devices: it takes a moment until they are there.
fn paths() -> Vec<(String, String)> {
    let wanted = ["null_blk", "scsi_debug", "nvme", "virtio-blk", "virtio-scsi"];
    let mut found: Vec<(String, String)> = Vec::new();
    for _ in 0..100 {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let names = devices.filter_map(|entry| entry.file_name().into_string().ok());
        found = names.filter_map(|name| Some((path_of(&name)?.to_owned(), name))).collect();
        if found.len() == wanted.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    found.sort_by_key(|(path, _)| wanted.iter().position(|name| name == path));
    for path in wanted {
        if !found.iter().any(|(known, _)| known == path) {
            println!("left out: {path}: no such device came up");
        }
    }
    found
}

/// The path that a device stands for.
fn path_of(device: &str) -> Option<&'static str> {
    let vendor = fs::read_to_string(format!("/sys/block/{device}/device/vendor")).unwrap_or_default();
    match (device, vendor.trim()) {
        (name, _) if name.starts_with("nullb") => Some("null_blk"),
        (name, _) if name.starts_with("nvme") => Some("nvme"),
        (name, _) if name.starts_with("vd") => Some("virtio-blk"),
        (name, "Linux") if name.starts_with("sd") => Some("scsi_debug"),
        (name, _) if name.starts_with("sd") => Some("virtio-scsi"),
        _ => None,
    }
}

/// The median of some rounds, after one that warms up.
fn cell(
    path: &str,
    device: &str,
    scheduler: &str,
    multiplicity: usize,
    spinners: &Spinners,
    alone: &crate::spinner::Alone,
) -> anyhow::Result<Counted> {
    let m = multiplicity.max(1);
    let sectors: u64 = fs::read_to_string(format!("/sys/block/{device}/size"))?.trim().parse()?;
    // So many that the places are alike for all.
    let places = (sectors * 512 / BLOCK as u64).clamp(1, 8192);
    let (mut busy, mut thread) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(format!("/dev/{device}"))?;
        let parts = Parts::new(BLOCK, m)?;
        let way = match multiplicity {
            0 => Way::Pread { file, parts, done: Vec::new(), calls: Calls::default() },
            _ => Way::Aio(Aio::new(file, parts)?),
        };
        let mut clock = TaskClock::Thread;
        let (before, at, own) = (spinners.now(), now_ns(), clock.ns());
        let ios = batches(way, places, BLOCK as u64, m, IOS / m)?;
        let (own, after) = (clock.ns() - own, spinners.now());
        ensure!(ios as usize == IOS && now_ns() > at, "{ios} I/Os of {IOS}");
        if round > 0 {
            busy.push(Spinners::busy_s(&before, &after, alone) * 1e9 / ios as f64);
            thread.push(own as f64 / ios as f64);
        }
    }
    let median = |values: &[f64]| crate::statistics::median(values).unwrap_or(0.0);
    Ok(Counted {
        path: path.into(),
        scheduler: scheduler.into(),
        multiplicity,
        busy: median(&busy),
        thread: median(&thread),
    })
}
