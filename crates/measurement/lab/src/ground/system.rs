//! The machine: its settings, and its other work while a program was measured.

use crate::ground::runner::fields;
use crate::ground::steady::Steady;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terapage_rig::device::{Device, Mount, Moved};

/// If the host takes more than this share of the processors' time, a run is disturbed.
const STEAL_MOST: f64 = 0.02;

/// A device that moves more than this per second while the lab does nothing has other users.
const FOREIGN_BYTES_PER_S: f64 = 2.0 * 1024.0 * 1024.0;

/// If others read more than this share of the bytes read in a run, the run is disturbed.
const FOREIGN_SHARE: f64 = 0.05;

/// If the processors are busier than this before a run begins, somebody else works.
const BUSY_MOST: f64 = 0.10;

/// The greatest difference in seconds, over a run, between the system's clock and a clock that is
/// never set.
const CLOCKS_DIFFER_S: f64 = 0.5;

/// The time for which the machine is watched before a run.
const QUIET: Duration = Duration::from_millis(200);

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A machine and its settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that the lab may use.
    pub cores: usize,
    /// What they are.
    pub processor: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The clocks' governor, if there is one.
    pub governor: Option<String>,
    /// Huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// `vm.swappiness`.
    pub swappiness: String,
    /// Whether zswap is on.
    pub zswap: String,
    /// The cgroup that the lab is in.
    pub cgroup: String,
    /// The file system of the directory, as in /proc/mounts.
    pub mount: Mount,
    /// The device's name in `--device`.
    #[serde(default)]
    pub device_name: Option<String>,
    /// The emulated class, if the device is throttled.
    #[serde(default)]
    pub class: Option<String>,
    /// The far stores, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    /// The earlier writes to the device, if `--steady` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    /// Its device, if it has one.
    pub device: Option<String>,
    /// The device's settings: scheduler, wbt_lat_usec, nr_requests and others.
    pub device_settings: BTreeMap<String, String>,
    /// Microseconds of a 4 KiB write with fdatasync, if it was measured.
    pub flush_us: Option<f64>,
}

impl Machine {
    /// This machine, and the file system of `directory`.
    pub fn here(directory: &Path) -> Machine {
        let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
        let memory = read("/proc/meminfo").unwrap_or_default();
        let device = Device::of(directory);
        let chosen = |text: String| {
            let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            inside.map_or(text.clone(), |(inside, _)| inside.to_owned())
        };
        let processors = read("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Machine {
            cores: thread::available_parallelism().map_or(1, usize::from),
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            memory_bytes: fields(&memory).get("MemTotal").copied().unwrap_or(0),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled").map(chosen).unwrap_or_default(),
            swappiness: read("/proc/sys/vm/swappiness").unwrap_or_default(),
            zswap: read("/sys/module/zswap/parameters/enabled").unwrap_or_default(),
            cgroup: read("/proc/self/cgroup").unwrap_or_default().replace('\n', " "),
            mount: Mount::of(directory).unwrap_or_default(),
            device_name: None,
            class: None,
            far: None,
            steady: None,
            device_settings: device.as_ref().map(Device::settings).unwrap_or_default(),
            device: device.map(|device| device.name),
            flush_us: None,
        }
    }

    /// The part on which results depend, and which is the same each time: it distinguishes groups.
    pub fn identity(&self) -> Machine {
        let steady = self.steady.as_ref().map(Steady::asked);
        Machine { cgroup: String::new(), flush_us: None, steady, ..self.clone() }
    }

    /// As pairs of name and value.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = vec![
            ("processor".to_owned(), format!("{} x {}", self.cores, self.processor)),
            ("memory".into(), terapage_config::Size(self.memory_bytes).to_string()),
            ("kernel".into(), format!("Linux {}", self.kernel)),
            ("governor".into(), self.governor.clone().unwrap_or_else(|| "none to be seen".into())),
            ("huge pages".into(), self.huge_pages.clone()),
            ("swappiness".into(), self.swappiness.clone()),
            ("zswap".into(), self.zswap.clone()),
            ("file system".into(), format!("{} ({})", self.mount.kind, self.mount.options)),
            ("device".into(), self.device.clone().unwrap_or_else(|| "none of its own".into())),
        ];
        pairs.extend(self.device_name.iter().map(|name| ("measured as".to_owned(), name.clone())));
        pairs.extend(self.class.iter().map(|class| ("throttled".to_owned(), class.clone())));
        if self.device.is_some() && self.class.is_none() {
            let state = match &self.steady {
                Some(steady) if steady.attained => "yes",
                Some(_) => "tried; its speed did not settle",
                None => "no: new files, on a device as it was found (--steady)",
            };
            pairs.push(("preconditioned".into(), state.into()));
        }
        pairs.extend(self.far.iter().map(|far| ("far".to_owned(), far.clone())));
        pairs.extend(self.device_settings.iter().map(|(name, value)| (name.clone(), value.clone())));
        if let Some(us) = self.flush_us {
            pairs.push(("4 KiB write and fdatasync".into(), format!("{us:.0} us")));
        }
        pairs.retain(|(_, value)| !value.is_empty());
        pairs
    }
}

/// Other events during a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Watched {
    /// Why the run counts as disturbed; empty if it does not.
    pub marks: Vec<String>,
    /// The share of the processors' time that the host took.
    pub steal: f64,
    /// Bytes that the device moved meanwhile, for any process.
    pub moved: Moved,
    /// Bytes a second that the device moved before the run, while the lab did nothing.
    pub foreign_bytes_per_s: f64,
    /// The share of the processors that was busy before the run.
    pub busy_before: f64,
    /// Seconds in which some task waited for I/O.
    pub io_pressure_s: f64,
    /// Seconds in which some task waited for memory.
    pub memory_pressure_s: f64,
    /// The duration in seconds.
    pub seconds: f64,
}

/// Counts of the kernel at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Ticks of all processors.
    total: u64,
    idle: u64,
    steal: u64,
    moved: Moved,
    io_pressure_us: u64,
    memory_pressure_us: u64,
    throttled: u64,
}

impl Counts {
    fn now(device: Option<&Device>) -> Counts {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (total, idle, steal) = ticks(&read("/proc/stat"));
        Counts {
            total,
            idle,
            steal,
            moved: device.and_then(Device::moved).unwrap_or_default(),
            io_pressure_us: pressure(&read("/proc/pressure/io")),
            memory_pressure_us: pressure(&read("/proc/pressure/memory")),
            throttled: throttled(),
        }
    }

    /// The share of the processors' time that was not idle.
    fn busy_since(&self, earlier: &Counts) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        let idle = self.idle.saturating_sub(earlier.idle);
        1.0 - idle as f64 / total.max(1) as f64
    }
}

/// Ticks in all, idle (waiting for I/O too) and stolen, of the first line of /proc/stat.
fn ticks(stat: &str) -> (u64, u64, u64) {
    let first = stat.lines().next().unwrap_or_default();
    let values: Vec<u64> = first.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    let at = |i: usize| values.get(i).copied().unwrap_or(0);
    // The last two, of guests, are counted in the first two as well.
    (values.iter().take(8).sum(), at(3) + at(4), at(7))
}

/// Microseconds of `some total=`.
fn pressure(text: &str) -> u64 {
    let some = text.lines().find(|line| line.starts_with("some "));
    let total =
        some.and_then(|line| line.split_once("total=")).and_then(|(_, total)| total.trim().parse().ok());
    total.unwrap_or(0)
}

/// The number of times that processors were slowed: for heat, and by the cgroup of the lab.
fn throttled() -> u64 {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let processors = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let of_heat = processors
        .map(|entry| read(entry.path().join("thermal_throttle/core_throttle_count")))
        .filter_map(|text| text.trim().parse::<u64>().ok());
    let own = read("/proc/self/cgroup".into());
    let of_group = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let top = match (id, names.split(',').any(|name| name == "cpu")) {
            ("0", _) => "/sys/fs/cgroup".to_owned(),
            (_, true) => "/sys/fs/cgroup/cpu".to_owned(),
            _ => return None,
        };
        let stat = read(PathBuf::from(format!("{top}{path}/cpu.stat")));
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
        line.trim().parse::<u64>().ok()
    });
    of_heat.sum::<u64>() + of_group.sum::<u64>()
}

/// A run under way.
pub struct Watch {
    device: Option<Device>,
    before: Counts,
    quiet: Watched,
    start: Instant,
    start_by_system: SystemTime,
}

impl Watch {
    /// Waits for the directory's own writes to end, observes the machine while the lab does
    /// nothing, and begins to count.
    pub fn begin(directory: &Path) -> Watch {
        let device = Device::of(directory);
        if let Ok(opened) = fs::File::open(directory) {
            // SAFETY: the descriptor is open for the call; no memory is passed.
            unsafe { libc::syncfs(opened.as_raw_fd()) };
        }
        let (earlier, start) = (Counts::now(device.as_ref()), Instant::now());
        thread::sleep(QUIET);
        let before = Counts::now(device.as_ref());
        let moved = before.moved.since(earlier.moved);
        let bytes = (moved.read_bytes + moved.written_bytes) as f64;
        let quiet = Watched {
            foreign_bytes_per_s: bytes / start.elapsed().as_secs_f64(),
            busy_before: before.busy_since(&earlier),
            ..Watched::default()
        };
        Watch { device, before, quiet, start: Instant::now(), start_by_system: SystemTime::now() }
    }

    /// Ends it. `own_read_bytes` are the bytes that the program read from devices.
    pub fn end(self, own_read_bytes: Option<u64>) -> Watched {
        let after = Counts::now(self.device.as_ref());
        let mut watched = Watched { seconds: self.start.elapsed().as_secs_f64(), ..self.quiet };
        let total = after.total.saturating_sub(self.before.total).max(1);
        watched.steal = after.steal.saturating_sub(self.before.steal) as f64 / total as f64;
        watched.moved = after.moved.since(self.before.moved);
        watched.io_pressure_s = after.io_pressure_us.saturating_sub(self.before.io_pressure_us) as f64 / 1e6;
        watched.memory_pressure_s =
            after.memory_pressure_us.saturating_sub(self.before.memory_pressure_us) as f64 / 1e6;
        let throttled = after.throttled > self.before.throttled;
        watched.marks = marks(&watched, throttled, own_read_bytes);
        // Then programs that measure time by the system's clock have measured something else.
        watched.marks.extend(clock_was_set(self.start_by_system, SystemTime::now(), watched.seconds));
        watched
    }
}

/// Whether and by how much the system's clock was set meanwhile, compared with `seconds` by another
/// clock.
fn clock_was_set(before: SystemTime, after: SystemTime, seconds: f64) -> Option<String> {
    let by_system = match after.duration_since(before) {
        Ok(forwards) => forwards.as_secs_f64(),
        Err(backwards) => -backwards.duration().as_secs_f64(),
    };
    let by = by_system - seconds;
    (by.abs() > CLOCKS_DIFFER_S).then(|| format!("clock set by {by:+.0} s"))
}

/// Why a run counts as disturbed.
fn marks(watched: &Watched, throttled: bool, own_read_bytes: Option<u64>) -> Vec<String> {
    let mut marks = Vec::new();
    if watched.steal > STEAL_MOST {
        marks.push(format!("steal {:.0} %", watched.steal * 100.0));
    }
    if throttled {
        marks.push("processors were slowed".into());
    }
    if watched.busy_before > BUSY_MOST {
        marks.push(format!("processors {:.0} % busy before it", watched.busy_before * 100.0));
    }
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    if watched.foreign_bytes_per_s > FOREIGN_BYTES_PER_S {
        marks.push(format!("foreign I/O of {:.0} MiB/s before it", mib(watched.foreign_bytes_per_s)));
    }
    let foreign = own_read_bytes.map_or(0, |own| watched.moved.read_bytes.saturating_sub(own)) as f64;
    let all = (watched.moved.read_bytes + watched.moved.written_bytes) as f64;
    if foreign > FOREIGN_SHARE * all && foreign > FOREIGN_BYTES_PER_S * watched.seconds {
        marks.push(format!("others read {:.0} MiB meanwhile", mib(foreign)));
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::{Machine, Watched, clock_was_set, marks, pressure, ticks};
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};
    use terapage_rig::device::Moved;

    #[test]
    fn a_clock_that_is_set_meanwhile_is_marked() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(clock_was_set(at(1000), at(1010), 10.2), None);
        assert_eq!(clock_was_set(at(1000), at(4610), 10.0).as_deref(), Some("clock set by +3600 s"));
        assert_eq!(clock_was_set(at(1000), at(910), 10.0).as_deref(), Some("clock set by -100 s"));
    }

    #[test]
    fn ticks_of_guests_count_once() {
        let stat = "cpu  100 5 50 800 20 1 4 20 60 3\ncpu0 1 2\n";
        assert_eq!(ticks(stat), (1000, 820, 20));
        assert_eq!(ticks(""), (0, 0, 0));
    }

    #[test]
    fn pressure_is_that_of_some() {
        assert_eq!(pressure("some avg10=0.00 total=123\nfull avg10=0.00 total=45\n"), 123);
        assert_eq!(pressure(""), 0);
    }

    #[test]
    fn steal_foreign_work_and_slowed_processors_are_marked() {
        let quiet = Watched { steal: 0.01, busy_before: 0.02, seconds: 1.0, ..Watched::default() };
        assert!(marks(&quiet, false, Some(0)).is_empty());
        let steal = Watched { steal: 0.03, ..quiet.clone() };
        assert_eq!(marks(&steal, false, None), ["steal 3 %"]);
        assert_eq!(marks(&quiet, true, None), ["processors were slowed"]);
        let busy = Watched { busy_before: 0.5, foreign_bytes_per_s: 8e6, ..quiet.clone() };
        assert_eq!(marks(&busy, false, None).len(), 2);
        // Of 100 MiB read, 40 were the program's own.
        let moved = Moved { read_bytes: 100 << 20, written_bytes: 0 };
        let read = Watched { moved, ..quiet };
        assert_eq!(marks(&read, false, Some(40 << 20)), ["others read 60 MiB meanwhile"]);
        assert!(marks(&read, false, Some(100 << 20)).is_empty() && marks(&read, false, None).is_empty());
    }

    #[test]
    fn a_machine_has_a_kernel_and_says_what_is_in_force() {
        let machine = Machine::here(Path::new("/"));
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
        let pairs = machine.pairs();
        assert!(pairs.iter().any(|(name, value)| name == "file system" && !value.is_empty()));
        let identity = machine.identity();
        assert!(identity.cgroup.is_empty() && identity.kernel == machine.kernel);
    }
}
