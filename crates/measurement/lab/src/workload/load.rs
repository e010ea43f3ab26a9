//! A load of reads at random places: at a fixed rate, or as fast as possible.
//!
//! At a fixed rate the schedule is absolute: batch `k` of `m` reads is due at `t0 + k * m / rate`,
//! whether or not earlier batches have ended (open loop). Latency counts from the time when a read
//! was due, so that a stalled device does not get fewer requests, and its stall is not hidden. Each
//! batch is submitted by one call; the calls are counted, and a load whose calls did not have `m`
//! reads fails. fio does not guarantee this at a fixed rate. The design follows Sato et al., whose
//! own tool is not published.

use crate::workload::{Pass, Said};
use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::Duration;
use terapage_rig::calls::{Aio, Calls, Parts, Ring, Way, now_ns, sleep_until};
use terapage_rig::device::Device;
use terapage_rig::driver::Driver;
use terapage_rig::spinner::{Spinners, TaskClock, processors, run_on, ticks_s};

/// The time for which spinners run alone, before and after.
const CALIBRATION: Duration = Duration::from_millis(400);

/// If two calibrations differ by more than this, as a share, a remark says so.
const CALIBRATION_SPREAD: f64 = 0.03;

/// If the rate is missed by more than this, as a share, a remark says so.
const RATE_MISSED: f64 = 0.01;

/// The maximum number of reads in flight, at a fixed rate: further reads wait, and their latency
/// grows.
const FLIGHT_MOST: usize = 256;

/// With fewer processors than this, their contention is not visible.
const CONTENTION_CORES: usize = 8;

/// The workload's options.
#[derive(Clone, Debug, clap::Args)]
pub struct Load {
    /// The device or file.
    #[arg(long)]
    device: PathBuf,
    /// The way in which reads are submitted.
    #[arg(long)]
    method: Method,
    /// I/Os of a call.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    multiplicity: u32,
    /// `rate-N`, I/Os per second, or `depth-N`, as fast as possible with N in flight.
    #[arg(long)]
    load: Goal,
    /// Milliseconds.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    milliseconds: u64,
    /// Bytes of a read.
    #[arg(long, default_value_t = 8192)]
    block: usize,
    /// The number of threads, each with its share of the load.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// A thread for each hardware queue, up to this number, on a processor of that queue; nothing
    /// if the device has one queue.
    #[arg(long)]
    queues: Option<u32>,
    /// Through the page cache.
    #[arg(long)]
    cached: bool,
    /// Microseconds of a sleep, of the method `sleep`.
    #[arg(long, default_value_t = 1000)]
    sleep_us: u64,
    /// The processor of each thread, if threads are bound.
    #[arg(skip)]
    places_of_threads: Vec<usize>,
}

/// A processor for each of a device's hardware queues, at most `most`; none if there is one queue.
fn by_queue(path: &Path, most: u32) -> anyhow::Result<Vec<usize>> {
    let number = fs::metadata(path).with_context(|| path.display().to_string())?.rdev();
    let known = fs::canonicalize(format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number)));
    let name = known.ok().and_then(|known| Some(known.file_name()?.to_str()?.to_owned()));
    let queues = name.and_then(|name| Device::named(&name)).map(|device| device.queues()).unwrap_or_default();
    let free = processors();
    let able = |queue: &Vec<usize>| queue.iter().copied().find(|processor| free.contains(processor));
    let all: Vec<usize> = queues.iter().filter_map(able).collect();
    Ok(if all.len() < 2 { Vec::new() } else { all.into_iter().take(most as usize).collect() })
}

/// A way to hand reads in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// pread, one at a time.
    Pread,
    /// libaio.
    Libaio,
    /// io_uring.
    IoUring,
    /// io_uring with file and buffers registered.
    IoUringFixed,
    /// io_uring, with a kernel thread that takes the reads without a call.
    Sqpoll,
    /// A sleep instead of a read: a known answer.
    Sleep,
    /// fio's psync.
    FioPsync,
    /// fio's libaio.
    FioLibaio,
    /// fio's io_uring.
    FioIoUring,
}

impl Method {
    fn engine_of_fio(self) -> Option<&'static str> {
        match self {
            Method::FioPsync => Some("psync"),
            Method::FioLibaio => Some("libaio"),
            Method::FioIoUring => Some("io_uring"),
            _ => None,
        }
    }

    fn is_one_at_a_time(self) -> bool {
        matches!(self, Method::Pread | Method::Sleep | Method::FioPsync)
    }
}

/// The goal of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// I/Os per second.
    Rate(f64),
    /// I/Os in flight.
    Depth(usize),
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Goal, String> {
        let rate = |text: &str| text.parse().ok().filter(|rate: &f64| *rate >= 1.0 && *rate <= 1e8);
        let depth = |text: &str| text.parse().ok().filter(|depth| (1..=4096).contains(depth));
        let goal = match text.split_once('-') {
            Some(("rate", number)) => rate(number).map(Goal::Rate),
            Some(("depth", number)) => depth(number).map(Goal::Depth),
            _ => None,
        };
        goal.ok_or_else(|| format!("{text} is not a load (write rate-1000 or depth-32)"))
    }
}

/// The results of a load.
pub struct Done {
    /// Reads.
    pub ios: u64,
    /// Seconds from the first to the end of the last.
    pub seconds: f64,
    /// Calls.
    pub calls: Calls,
    /// Latencies, ns.
    pub latency: Histogram<u64>,
    /// Their times from when each was submitted, ns.
    from_submission: Histogram<u64>,
    /// Processor time of the threads that handed reads in, ns.
    pub thread_ns: u64,
}

impl Load {
    /// Runs the load, and prints its passes.
    ///
    /// # Errors
    /// A read fails, or the reads of a call were not kept together.
    pub fn run(mut self) -> anyhow::Result<()> {
        ensure!(self.threads >= 1 && self.block >= 512, "threads, block");
        if let Some(most) = self.queues {
            self.places_of_threads = by_queue(&self.device, most)?;
            self.threads = self.places_of_threads.len() as u32;
            if self.threads == 0 {
                return Said::Note("one hardware queue: there is nothing to compare by queues".into())
                    .print();
            }
        }
        if let Some(engine) = self.method.engine_of_fio() {
            return self.by_fio(engine);
        }
        let one = self.method.is_one_at_a_time();
        ensure!(!one || self.multiplicity == 1, "{:?} submits one I/O a call", self.method);
        let spinners = Spinners::start();
        let alone = spinners.alone(CALIBRATION);
        let (before, ticks) = (spinners.now(), ticks_s());
        let done = self.all_threads()?;
        let (after, ticks) = (spinners.now(), ticks_s() - ticks);
        let again = spinners.alone(CALIBRATION);
        drop(spinners);
        self.check_calls(&done)?;
        let busy = Spinners::busy_s(&before, &after, &alone.mean(&again));
        let ios = done.ios as f64;
        for (pass, seconds) in [
            ("time of one", done.seconds),
            ("busy, all processors", busy),
            ("busy, task clock", done.thread_ns as f64 / 1e9),
            ("busy, /proc/stat", ticks),
        ] {
            // If others work, spinners may be faster than they were alone; ticks may see nothing.
            match seconds > 0.0 {
                true => self.print(pass, seconds, ios, &done)?,
                false => Said::Note(format!("{pass}: too little to differ from zero")).print()?,
            }
        }
        for (pass, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
            self.print(pass, done.latency.value_at_quantile(quantile) as f64 / 1e9, 1.0, &done)?;
        }
        if matches!(self.load, Goal::Rate(_)) {
            let p50_ns = done.from_submission.value_at_quantile(0.5);
            self.print("p50, from submission", p50_ns as f64 / 1e9, 1.0, &done)?;
        }
        self.remarks(&done, alone.distance(&again))
    }

    fn print(&self, pass: &str, seconds: f64, operations: f64, done: &Done) -> anyhow::Result<()> {
        let pass = Pass {
            pass: pass.into(),
            seconds,
            bytes: done.ios * self.block as u64,
            threads: self.threads as usize,
            operations: Some(operations),
            ..Pass::default()
        };
        use std::io::Write;
        Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(&pass)?)?)
    }

    /// Remarks that a reader must know.
    fn remarks(&self, done: &Done, distance: f64) -> anyhow::Result<()> {
        let note = |text: String| Said::Note(text).print();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        if cores < CONTENTION_CORES {
            note(format!("{cores} cores: contention not visible"))?;
        }
        if distance > CALIBRATION_SPREAD {
            note("the spinners' calibrations before and after differ by over 3 %: busy is uncertain".into())?;
        }
        if let Goal::Rate(rate) = self.load {
            let found = done.ios as f64 / done.seconds;
            if found < rate * (1.0 - RATE_MISSED) {
                note(format!("the rate was not reached: {found:.0} of {rate:.0} I/Os per second"))?;
            }
        }
        Said::Raw(format!(
            "{} I/Os, {} calls that submit, {} that wait, {:.3} s",
            done.ios, done.calls.submit, done.calls.wait, done.seconds
        ))
        .print()
    }

    /// Whether each call had its number of I/Os.
    fn check_calls(&self, done: &Done) -> anyhow::Result<()> {
        let m = u64::from(self.multiplicity);
        // A call wakes the kernel's thread only if it sleeps.
        let kept = match self.method {
            Method::Sqpoll => done.calls.submit * m <= done.ios,
            _ => done.calls.submit * m == done.ios,
        };
        let calls = done.calls.submit;
        ensure!(kept, "{} I/Os in {calls} calls: not {m} in each", done.ios);
        Ok(())
    }

    fn all_threads(&self) -> anyhow::Result<Done> {
        let start_ns = now_ns() + 1_000_000;
        let mut all = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads).map(|i| scope.spawn(move || self.one_thread(i, start_ns))).collect();
            let results = threads.into_iter().map(|thread| thread.join());
            let failed = |_| anyhow::anyhow!("a thread failed");
            results
                .map(|result| result.map_err(failed).and_then(|done| done))
                .collect::<Result<Vec<Done>, _>>()
        })?;
        let mut total = all.swap_remove(0);
        for one in all {
            total.ios += one.ios;
            total.seconds = total.seconds.max(one.seconds);
            total.calls.submit += one.calls.submit;
            total.calls.wait += one.calls.wait;
            total.thread_ns += one.thread_ns;
            total.latency.add(&one.latency)?;
            total.from_submission.add(&one.from_submission)?;
        }
        Ok(total)
    }

    fn one_thread(&self, number: u32, start_ns: u64) -> anyhow::Result<Done> {
        if let Some(processor) = self.places_of_threads.get(number as usize) {
            run_on(*processor);
        }
        let m = self.multiplicity as usize;
        let slots = match self.load {
            Goal::Depth(depth) => depth.max(m),
            Goal::Rate(_) => FLIGHT_MOST.max(2 * m),
        };
        // One at a time, there is never more than one buffer in use.
        let slots = if self.method.is_one_at_a_time() { m } else { slots };
        let (places, seed) = (self.places()?, u64::from(number) + 1);
        let mut driver = Driver::new(self.way(slots)?, (places, self.block as u64), seed, (slots, m), 3)?;
        let mut clock = TaskClock::open();
        sleep_until(start_ns);
        let before = clock.ns();
        match self.load {
            Goal::Rate(rate) => {
                let each_ns = 1e9 * m as f64 * f64::from(self.threads) / rate;
                let batches = (self.milliseconds as f64 * 1e6 / each_ns).ceil().max(1.0) as u64;
                driver.open_loop(m, each_ns, batches, start_ns)?;
            }
            Goal::Depth(_) => driver.closed_loop(m, start_ns + self.milliseconds * 1_000_000)?,
        }
        let thread_ns = clock.ns() - before;
        let seconds = (now_ns() - start_ns) as f64 / 1e9;
        let calls = driver.way.calls();
        let Driver { ios, latency, from_submission, .. } = driver;
        Ok(Done { ios, seconds, calls, latency, from_submission, thread_ns })
    }

    fn open(&self) -> anyhow::Result<File> {
        let direct = if self.cached || self.method == Method::Sleep { 0 } else { libc::O_DIRECT };
        let opened = OpenOptions::new().read(true).custom_flags(direct).open(&self.device);
        opened.with_context(|| self.device.display().to_string())
    }

    /// Places to read.
    fn places(&self) -> anyhow::Result<u64> {
        use std::io::Seek;
        let bytes = self.open()?.seek(std::io::SeekFrom::End(0))?;
        let places = bytes / self.block as u64;
        ensure!(places > 0 || self.method == Method::Sleep, "{} is empty", self.device.display());
        Ok(places.max(1))
    }

    fn way(&self, slots: usize) -> anyhow::Result<Way> {
        let parts = Parts::new(self.block, slots)?;
        let file = self.open()?;
        let calls = Calls::default();
        Ok(match self.method {
            Method::Pread => Way::Pread { file, parts, done: Vec::new(), calls },
            Method::Sleep => {
                Way::Sleep { each: Duration::from_micros(self.sleep_us), done: Vec::new(), calls }
            }
            Method::Libaio => Way::Aio(Aio::new(file, parts)?),
            Method::IoUring => Way::Ring(Ring::new(file, parts, false, false)?),
            Method::IoUringFixed => Way::Ring(Ring::new(file, parts, false, true)?),
            Method::Sqpoll => Way::Ring(Ring::new(file, parts, true, false)?),
            Method::FioPsync | Method::FioLibaio | Method::FioIoUring => bail!("fio runs by itself"),
        })
    }

    /// fio, for the parts that it supports: as fast as possible, and the latency.
    fn by_fio(&self, engine: &str) -> anyhow::Result<()> {
        let Goal::Depth(depth) = self.load else { bail!("fio does not keep I/Os together at a fixed rate") };
        ensure!(self.multiplicity == 1, "fio is compared with one I/O a call");
        let bytes = self.places()? * self.block as u64;
        let program = terapage_rig::tools::find("fio").map_err(anyhow::Error::msg)?;
        // As for the other methods.
        let _spinners = Spinners::start();
        let output = Command::new(program)
            .args([
                "--name=terapage-lab",
                "--output-format=json",
                "--rw=randread",
                "--norandommap",
                "--thread",
            ])
            .args(["--time_based", "--direct=1", "--clocksource=clock_gettime"])
            // As in the lab: the clock is read before a read is submitted and when it has ended,
            // and all completions are taken at once. By default fio takes one completion.
            .args(["--disable_slat=1", "--disable_clat=1", "--lat_percentiles=1", "--clat_percentiles=0"])
            .arg(format!("--iodepth_batch_complete_max={depth}"))
            .arg(format!("--ioengine={engine}"))
            .arg(format!("--filename={}", self.device.display().to_string().replace(':', "\\:")))
            .args([format!("--size={bytes}"), format!("--bs={}", self.block), format!("--iodepth={depth}")])
            .arg(format!("--runtime={}ms", self.milliseconds))
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "fio: {}", errors.lines().last().unwrap_or("no message"));
        let text = String::from_utf8_lossy(&output.stdout);
        let (seconds, ios, p50_ns) = parse_fio(&text).context("fio's output cannot be read")?;
        let latency = Histogram::new(3).context("a histogram")?;
        let (from_submission, calls) = (latency.clone(), Calls::default());
        let done = Done { ios: ios as u64, seconds, calls, latency, from_submission, thread_ns: 0 };
        self.print("time of one", seconds, ios, &done)?;
        self.print("p50", p50_ns / 1e9, 1.0, &done)
    }
}

/// Seconds, reads and the median latency in ns, of fio's JSON.
fn parse_fio(text: &str) -> Option<(f64, f64, f64)> {
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &json["jobs"][0];
    if job["error"].as_u64() != Some(0) {
        return None;
    }
    let read = &job["read"];
    let seconds = read["runtime"].as_f64()? / 1000.0;
    let ios = read["total_ios"].as_f64()?;
    let p50 = read["lat_ns"]["percentile"]["50.000000"].as_f64()?;
    (seconds > 0.0 && ios > 0.0).then_some((seconds, ios, p50))
}

/// A readable file of zeros, for tests.
#[cfg(test)]
fn sample(bytes: u64) -> tempfile::NamedTempFile {
    use std::os::unix::fs::FileExt;
    let file = tempfile::Builder::new().tempfile_in("/var/tmp").expect("a file");
    file.as_file().write_all_at(&vec![7; bytes as usize], 0).expect("room");
    file
}

#[cfg(test)]
mod tests {
    use super::{Done, Goal, Load, Method, by_queue, parse_fio, sample};

    fn load(method: Method, m: u32, goal: Goal, device: &std::path::Path) -> Load {
        Load {
            device: device.to_owned(),
            method,
            multiplicity: m,
            load: goal,
            milliseconds: 300,
            block: 4096,
            threads: 1,
            queues: None,
            cached: true,
            sleep_us: 1000,
            places_of_threads: Vec::new(),
        }
    }

    /// Runs a load; `None`, with a message, if this machine lacks the method.
    fn done(load: &Load) -> Option<Done> {
        match load.all_threads() {
            Ok(done) => Some(done),
            Err(error) if format!("{error:#}").contains("io_uring: Operation not permitted") => {
                println!("SKIPPED: {error:#}");
                None
            }
            Err(error) => panic!("{:?}: {error:#}", load.method),
        }
    }

    #[test]
    fn every_way_keeps_the_ios_of_a_call_together() {
        let file = sample(1 << 20);
        for method in [Method::Pread, Method::Libaio, Method::IoUring, Method::IoUringFixed, Method::Sqpoll] {
            for (m, goal) in [(1, Goal::Rate(2000.0)), (4, Goal::Rate(2000.0)), (4, Goal::Depth(16))] {
                if method == Method::Pread && m > 1 {
                    continue;
                }
                let load = load(method, m, goal, file.path());
                let Some(done) = done(&load) else { continue };
                load.check_calls(&done).expect("kept");
                assert_eq!(done.latency.len(), done.ios);
                if let Goal::Rate(rate) = goal {
                    // The schedule, and not the device, determines their number.
                    assert_eq!(done.ios, (rate * 0.3) as u64, "{method:?} {m}");
                }
            }
        }
    }

    #[test]
    fn a_file_has_no_hardware_queues() {
        let file = sample(4096);
        assert!(by_queue(file.path(), 8).expect("a file").is_empty());
        assert!(by_queue(std::path::Path::new("/nonexistent"), 8).is_err());
        // Threads that are bound to processors share the load like others.
        let places_of_threads = vec![terapage_rig::spinner::processors()[0]; 2];
        let load = load(Method::Libaio, 2, Goal::Rate(2000.0), file.path());
        let done = Load { threads: 2, places_of_threads, ..load }.all_threads().expect("reads");
        assert_eq!(done.ios, 600);
    }

    #[test]
    fn threads_share_the_load() {
        let file = sample(1 << 20);
        let load = Load { threads: 3, ..load(Method::Libaio, 2, Goal::Rate(3000.0), file.path()) };
        let done = load.all_threads().expect("reads");
        assert_eq!(done.ios, 900);
        load.check_calls(&done).expect("kept");
    }

    #[test]
    fn a_load_that_was_not_kept_together_fails() {
        let file = sample(1 << 16);
        let load = load(Method::Libaio, 4, Goal::Depth(8), file.path());
        let mut done = load.all_threads().expect("reads");
        done.calls.submit += 1;
        let error = load.check_calls(&done).expect_err("one call too many").to_string();
        assert!(error.contains("not 4 in each"), "{error}");
    }

    #[test]
    fn latency_counts_from_when_a_read_was_due() {
        let file = sample(1 << 16);
        // Each read takes 2 ms, and one is due each 1 ms: the last is about 60 ms late.
        let late = Load {
            sleep_us: 2000,
            milliseconds: 60,
            ..load(Method::Sleep, 1, Goal::Rate(1000.0), file.path())
        };
        let done = late.all_threads().expect("sleeps");
        assert_eq!(done.ios, 60);
        assert!(done.latency.max() >= 60_000_000, "{}", done.latency.max());
        assert!(done.latency.min() >= 2_000_000 - 2_000, "{}", done.latency.min());
        // From its submission on each read takes what it takes: that is fio's time of it.
        let median_ns = done.from_submission.value_at_quantile(0.5);
        assert!(median_ns < done.latency.value_at_quantile(0.5), "{median_ns}");
    }

    #[test]
    fn loads_have_names() {
        assert_eq!("rate-1000".parse(), Ok(Goal::Rate(1000.0)));
        assert_eq!("depth-32".parse(), Ok(Goal::Depth(32)));
        for text in ["", "rate", "rate-0", "depth-0", "depth-x", "speed-3"] {
            assert!(text.parse::<Goal>().is_err(), "{text}");
        }
    }

    #[test]
    fn figures_of_fio_are_those_of_its_json() {
        let text = r#"warning {"jobs": [{"error": 0, "read": {"runtime": 2000, "total_ios": 5000,
            "lat_ns": {"percentile": {"50.000000": 81408}}}}]}"#;
        assert_eq!(parse_fio(text), Some((2.0, 5000.0, 81408.0)));
        assert_eq!(parse_fio("{}"), None);
        assert_eq!(parse_fio("no"), None);
    }
}
