//! What the second emulated machine measures: I/Os by the queues of a device, an array of RAID-6,
//! and limits of cgroups of version 2. The machine has one processor, and room for more, for which
//! the drivers make queues: qemu 7.2 cannot start several processors if the clock counts
//! instructions.

use crate::init::{BLOCK, cost, devices, mount, serial, since};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terapage_figures::SplitMix;
use terapage_rig::calls::Parts;
use terapage_rig::md;
use terapage_rig::spinner::{Alone, Spinners};
use terapage_rig::swap;

/// Processors that the machine has room for.
pub const PROCESSORS: usize = 4;

/// Queues of devices.
pub const QUEUES: [u32; 3] = [1, 2, 4];

/// I/Os of a call.
pub const MULTIPLICITIES: [usize; 3] = [1, 4, 32];

/// Serial numbers of the nvme devices begin with this; the number of queues follows.
pub const QUEUES_SERIAL: &str = "queues-";

/// The directory in which devices of null_blk are created.
const NULL_BLK: &str = "/sys/kernel/config/nullb";

/// Devices of an array, and bytes of each.
const ARRAY: usize = 6;
const ARRAY_MIB: usize = 16;

/// Bytes of a stripe's data, and of the part of the array that is used.
const STRIPE: usize = (ARRAY - 2) * md::CHUNK as usize;
const ARRAY_BYTES: usize = ((ARRAY - 2) * ARRAY_MIB) << 19;

/// The number of calls on an array or on one of its devices, and of the first ones, which only warm
/// up. Chosen, not measured.
const ARRAY_CALLS: usize = 96;
const ARRAY_WARM_UP: usize = 16;

/// The cost of an I/O on a device with this number of queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The driver.
    pub path: String,
    /// Queues of the device.
    pub queues: u32,
    /// I/Os of a call.
    pub multiplicity: usize,
    /// Instructions for an I/O, of all that ran.
    pub busy: f64,
}

/// The cost of an I/O on an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrayed {
    /// The operation.
    pub operation: String,
    /// Its instructions on one device, if that is possible.
    pub one: Option<f64>,
    /// The same on an array.
    pub array: f64,
}

/// A rate under a limit of version 2 of cgroups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limited {
    /// What moved.
    pub limited: String,
    /// The limit, MiB/s.
    pub limit: f64,
    /// The rate by the machine's own clock, MiB/s.
    pub rate: f64,
    /// The rate of the same work without a limit.
    pub free: f64,
}

/// Measures all.
///
/// # Errors
/// An existing device cannot be measured.
pub fn measure() -> anyhow::Result<()> {
    mount("configfs", "/sys/kernel/config").context("configfs")?;
    for queued in queues().context("queues")? {
        println!("{}", serde_json::to_string(&queued)?);
    }
    match arrays() {
        Ok(all) => all.iter().try_for_each(|one| {
            println!("{}", serde_json::to_string(one)?);
            anyhow::Ok(())
        })?,
        Err(error) => println!("left out: RAID-6: {error:#}"),
    }
    match limits() {
        Ok(all) => all.iter().try_for_each(|one| {
            println!("{}", serde_json::to_string(one)?);
            anyhow::Ok(())
        })?,
        Err(error) => println!("left out: limits: {error:#}"),
    }
    Ok(())
}

/// Makes a device of null_blk, which answers at once. Returns its name in /dev.
fn null_blk(name: &str, settings: &[(&str, usize)]) -> anyhow::Result<String> {
    let place = Path::new(NULL_BLK).join(name);
    fs::create_dir(&place).with_context(|| place.display().to_string())?;
    let usual = [("queue_mode", 2), ("irqmode", 0), ("completion_nsec", 0), ("blocksize", 4096)];
    for (file, value) in usual.iter().chain(settings).chain(&[("power", 1)]) {
        fs::write(place.join(file), value.to_string()).with_context(|| format!("null_blk's {file}"))?;
    }
    // The device has its own name, or one with a number, depending on the kernel.
    match Path::new("/sys/block").join(name).exists() {
        true => Ok(name.into()),
        false => Ok(format!("nullb{}", fs::read_to_string(place.join("index"))?.trim())),
    }
}

/// Removes one.
fn remove_null_blk(name: &str) -> std::io::Result<()> {
    let place = Path::new(NULL_BLK).join(name);
    fs::write(place.join("power"), "0")?;
    fs::remove_dir(place)
}

/// Reads from devices with one queue and with several.
fn queues() -> anyhow::Result<Vec<Queued>> {
    let mut places = Vec::new();
    for queues in QUEUES {
        let settings = [("submit_queues", queues as usize), ("poll_queues", 0), ("size", 1024)];
        places.push(("null_blk", queues, null_blk(&format!("queues-{queues}"), &settings)?));
    }
    for device in devices() {
        let number = serial(&device).strip_prefix(QUEUES_SERIAL).and_then(|text| text.parse().ok());
        places.extend(number.map(|queues| ("nvme", queues, device)));
    }
    places.sort();
    let mut all: Vec<Queued> = Vec::new();
    for (path, queues, device) in &places {
        // Hardware contexts of the block layer.
        let found = fs::read_dir(format!("/sys/block/{device}/mq"))?.count();
        ensure!(found == *queues as usize, "{path}: {found} queues, not {queues}");
        fs::write(format!("/sys/block/{device}/queue/scheduler"), "none")?;
        all.extend(MULTIPLICITIES.map(|multiplicity| {
            let path = (*path).to_owned();
            Queued { path, queues: *queues, multiplicity, busy: 0.0 }
        }));
    }
    let (spinners, alone) = Spinners::start_fine().context("a spinner ended")?;
    for (i, queued) in all.iter_mut().enumerate() {
        let device = &places[i / MULTIPLICITIES.len()].2;
        (queued.busy, _) = cost(device, queued.multiplicity, &spinners, &alone)?;
    }
    for queues in QUEUES {
        remove_null_blk(&format!("queues-{queues}"))?;
    }
    Ok(all)
}

/// Opens a device past the page cache.
fn direct(device: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(device);
    opened.with_context(|| device.display().to_string())
}

/// Instructions for a call, the median of many at random places.
fn each(
    bytes: usize,
    block: usize,
    spinners: &Spinners,
    alone: &Alone,
    mut call: impl FnMut(usize) -> std::io::Result<()>,
) -> anyhow::Result<f64> {
    let (mut numbers, mut last) = (SplitMix(2), spinners.now());
    let looks: Vec<f64> = (0..64).map(|_| since(&mut last, spinners, alone)).collect();
    let mut all = Vec::with_capacity(ARRAY_CALLS);
    for _ in 0..ARRAY_CALLS {
        call(numbers.next() as usize % (bytes / block) * block)?;
        all.push(since(&mut last, spinners, alone));
    }
    let median = |values: &[f64]| terapage_figures::median(values).unwrap_or(0.0);
    Ok(median(&all[ARRAY_WARM_UP..]) - median(&looks))
}

/// Measures an array of RAID-6 in memory, and one of its devices alone. The bytes are read again
/// after two devices have been removed.
fn arrays() -> anyhow::Result<Vec<Arrayed>> {
    md::check().map_err(anyhow::Error::msg)?;
    let settings = [("memory_backed", 1), ("size", ARRAY_MIB)];
    let made = |i: usize| -> anyhow::Result<PathBuf> {
        Ok(Path::new("/dev").join(null_blk(&format!("array-{i}"), &settings)?))
    };
    let parts = (0..ARRAY).map(made).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    let alone = Path::new("/dev").join(null_blk("alone", &settings)?);
    let array = md::device("lab");
    md::create(&array, &parts)?;
    let all = on_array(&array, &parts, &alone);
    md::stop(&array)?;
    (0..ARRAY).try_for_each(|i| remove_null_blk(&format!("array-{i}")))?;
    remove_null_blk("alone")?;
    all
}

fn on_array(array: &Path, parts: &[PathBuf], single: &Path) -> anyhow::Result<Vec<Arrayed>> {
    let (spinners, alone) = Spinners::start_fine().context("a spinner ended")?;
    let (whole, one) = (direct(array)?, direct(single)?);
    // The constant contents of the array; reads go to another place.
    let mut all = Parts::huge(ARRAY_BYTES, 1)?;
    let mut numbers = SplitMix(1);
    for word in all.bytes().chunks_exact_mut(8) {
        word.copy_from_slice(&numbers.next().to_le_bytes());
    }
    let (held, mut memory) = (&*all.bytes(), Parts::huge(STRIPE, 1)?);
    let buffer = memory.bytes();
    for place in (0..ARRAY_BYTES).step_by(STRIPE) {
        whole.write_all_at(&held[place..][..STRIPE], place as u64)?;
    }
    let write = |file: &File, bytes: usize, block: usize| {
        each(bytes, block, &spinners, &alone, |place| {
            file.write_all_at(&held[place..][..block], place as u64)
        })
    };
    let mut read = |file: &File, bytes: usize| {
        each(bytes, BLOCK, &spinners, &alone, |place| file.read_exact_at(&mut buffer[..BLOCK], place as u64))
    };
    let own = ARRAY_MIB << 20;
    let mut costs = vec![
        ("read of 8 KiB", Some(read(&one, own)?), read(&whole, ARRAY_BYTES)?),
        ("write of 8 KiB", Some(write(&one, own, BLOCK)?), write(&whole, ARRAY_BYTES, BLOCK)?),
        ("write of a stripe, 256 KiB", Some(write(&one, own, STRIPE)?), write(&whole, ARRAY_BYTES, STRIPE)?),
    ];
    for part in &parts[1..3] {
        md::fail(array, part)?;
    }
    ensure!(md::lacks(array)? == 2, "the array does not lack two devices");
    costs.push(("read of 8 KiB, two devices gone", None, read(&whole, ARRAY_BYTES)?));
    for place in (0..ARRAY_BYTES).step_by(STRIPE) {
        whole.read_exact_at(buffer, place as u64)?;
        ensure!(
            buffer == &held[place..][..STRIPE],
            "with two devices gone byte {place} or a later one differs"
        );
    }
    let arrayed = |(operation, one, array): (&str, Option<f64>, f64)| Arrayed {
        operation: operation.into(),
        one,
        array,
    };
    Ok(costs.into_iter().map(arrayed).collect())
}

/// The result of a group's work: a file that must stay open until everything is written.
type Work = anyhow::Result<Option<File>>;

/// The work of a group on a device.
type Working = fn(&Path) -> Work;

/// The mount point of version 2 of cgroups, and the limited group.
const GROUPS: &str = "/groups";
const GROUP: &str = "/groups/lab";

/// Bytes that move under a limit, and the limit of a second.
const MOVED_MIB: usize = 48;
const LIMIT_MIB: usize = 8;

/// Memory of the group, far less than it moves.
const GROUP_MIB: usize = 16;

/// A device's bytes written so far.
fn written(device: &str) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/sys/block/{device}/stat"))?;
    let sectors: u64 = stat.split_whitespace().nth(6).context("no such column")?.parse()?;
    Ok(sectors * 512)
}

/// Write-back and swap-out, which version 1 does not limit. No spinner runs: time in which all
/// wait passes at once.
fn limits() -> anyhow::Result<Vec<Limited>> {
    mount("cgroup2", GROUPS)?;
    fs::write(format!("{GROUPS}/cgroup.subtree_control"), "+io +memory").context("+io +memory")?;
    let cases: [(&str, Working); 3] =
        [("direct write", write_direct), ("write-back", write_back), ("swap-out", swap_out)];
    let mut all = Vec::new();
    for (name, work) in cases {
        let free = rate("max", work).with_context(|| format!("{name}, free"))?;
        let limit = (LIMIT_MIB << 20).to_string();
        let rate = rate(&limit, work).with_context(|| name.to_owned())?;
        all.push(Limited { limited: name.into(), limit: LIMIT_MIB as f64, rate, free });
    }
    Ok(all)
}

/// MiB/s that reach a new device while the group works; this process is a member during that time.
/// On an old device, pages of another group would at first be written back as those of this group.
fn rate(limit: &str, work: Working) -> anyhow::Result<f64> {
    let device = &*null_blk("limits", &[("memory_backed", 1), ("size", 2 * MOVED_MIB)])?;
    let path = &Path::new("/dev").join(device);
    fs::create_dir(GROUP)?;
    fs::write(format!("{GROUP}/memory.max"), (GROUP_MIB << 20).to_string())?;
    let number = fs::read_to_string(format!("/sys/block/{device}/dev"))?;
    fs::write(format!("{GROUP}/io.max"), format!("{} wbps={limit}", number.trim())).context("io.max")?;
    let (before, start) = (written(device)?, Instant::now());
    fs::write(format!("{GROUP}/cgroup.procs"), "0").context("cgroup.procs")?;
    let worked = work(path);
    // A process outside the group writes the rest back.
    fs::write(format!("{GROUPS}/cgroup.procs"), "0")?;
    let open = worked?;
    // SAFETY: sync takes no memory.
    unsafe { libc::sync() };
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), written(device)? - before);
    drop(open);
    ensure!(bytes >= (MOVED_MIB as u64) << 19, "only {bytes} bytes were written");
    fs::remove_dir(GROUP).context("the group is in use")?;
    remove_null_blk("limits")?;
    Ok(bytes as f64 / (1 << 20) as f64 / seconds)
}

fn write_direct(device: &Path) -> Work {
    let (file, mut memory) = (direct(device)?, Parts::huge(1 << 20, 1)?);
    (0..MOVED_MIB as u64).try_for_each(|i| file.write_all_at(memory.bytes(), i << 20))?;
    Ok(None)
}

/// The last process to close a device writes its pages back: that process must not be in the group.
fn write_back(device: &Path) -> Work {
    let (file, piece) = (OpenOptions::new().write(true).open(device)?, vec![7; 1 << 20]);
    (0..MOVED_MIB as u64).try_for_each(|i| file.write_all_at(&piece, i << 20))?;
    Ok(Some(file))
}

fn swap_out(device: &Path) -> Work {
    swap::start(device, (2 * MOVED_MIB as u64) << 20)?;
    std::hint::black_box(vec![7u8; MOVED_MIB << 20]);
    swap::off(device)?;
    Ok(None)
}
