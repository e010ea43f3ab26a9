//! The costs of the pager's own work on this machine, measured with small programs and small
//! budgets.

use crate::device::Device;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};
use terapage_config::Size;
use terapage_figures::median;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of the small programs' data. Chosen, not measured, as are the next three.
const DATA: u64 = 96 * MIB;
/// Random reads of a pass over blocks of up to 64 KiB. Larger blocks are read less often, so that a
/// pass does not take longer.
const READS: u64 = 6000;

/// The least and the greatest number of rounds of measurements.
pub const ROUNDS: u64 = 3;
const ROUNDS_MAX: usize = 9;
/// The time after which no further round begins: on a busy machine rounds take long, and do not
/// settle.
const PATIENCE: Duration = Duration::from_secs(30);
/// Costs are settled once the middle half of the rounds lies within this share of their median.
/// Chosen, not measured.
const SETTLED: f64 = 0.25;
/// The most that the pager adds to a page-in, us: a bound for measurements, chosen, not measured.
const OWN_PART_US: f64 = 50.0;
/// The most that a minor fault may take, us: a bound for measurements, chosen, not measured.
const SOFT_MOST_US: f64 = 1000.0;
/// The possible error of the costs of a new block, us. Chosen, not measured.
const FRESH_ERROR_US: f64 = 5.0;

/// One of the costs.
type Part = fn(&Costs) -> f64;

/// Costs, and whether they can be trusted.
pub struct Calibration {
    /// The costs, within possible bounds.
    pub costs: Costs,
    /// The number of rounds that measured them.
    pub rounds: usize,
    /// Why they cannot be trusted: the machine was busy.
    pub trouble: Option<String>,
}

/// Why costs cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A small program could not be run.
    #[error("a small paged program could not be measured: {why} (see terapage doctor)")]
    Run {
        /// What it said.
        why: String,
    },
    /// Nothing temporary can be written.
    #[error("the counters of a small paged program: {cause}")]
    Counters {
        /// Why.
        cause: io::Error,
    },
}

// Not a source: its text is in the message already, and would be shown twice.
impl From<io::Error> for Error {
    fn from(cause: io::Error) -> Error {
        Error::Counters { cause }
    }
}

/// Costs in microseconds, for one block size and one store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// A minor fault, with the page-out that follows it.
    pub minor_us: f64,
    /// A demand page-in, with the page-out that follows it, on the device that was measured.
    pub demand_us: f64,
    /// The fault of a first touch, without the block that it installs.
    pub first_us: f64,
    /// A block of fresh memory natively.
    pub native_us: f64,
    /// A block of fresh memory in a new frame, beyond its native cost.
    pub fresh_us: f64,
    /// The same in a used frame; negative if that is quicker than the kernel's fresh memory.
    pub recycled_us: f64,
    /// Bytes a second that streams were read with, through the pager.
    pub read_bytes_s: f64,
    /// Bytes per second at which blocks were written through the pager while others were read.
    pub write_bytes_s: f64,
    /// The bytes per second that the measured device reads and writes.
    pub device_bytes_s: (f64, f64),
    /// Processor time of the pager for a block that is paged in and out in a stream.
    pub block_cpu_us: f64,
    /// The extra time of a fault that finds the pager's thread asleep.
    pub wake_us: f64,
}

impl Costs {
    /// Bytes per second at which streams are read and written on `device`: as measured through the
    /// pager if it is the measured device; otherwise the device's own rates, up to what the pager's
    /// processor time allows.
    pub fn rates(&self, device: &Device) -> (f64, f64) {
        let same = device.measured && (device.read_bytes_s, device.write_bytes_s) == self.device_bytes_s;
        if same {
            return (self.read_bytes_s, self.write_bytes_s);
        }
        let most = self.block_bytes as f64 / self.block_cpu_us * 1e6;
        (device.read_bytes_s.min(most), device.write_bytes_s.min(most))
    }

    /// A demand page-in on `device`: as measured if it is the measured device; otherwise the
    /// latency of `device` and the pager's part, which is at least a minor fault.
    pub fn demand_us(&self, device: &Device, measured: &Device) -> f64 {
        if device == measured {
            return self.demand_us;
        }
        let own = self.demand_us - measured.latency_us(self.block_bytes);
        own.max(self.minor_us) + device.latency_us(self.block_bytes)
    }

    /// Costs for blocks of another size, interpolated between two sizes: the cost of each fault
    /// stays, the cost of each byte grows. `small` and `large` are the two measured costs.
    pub fn between(small: &Costs, large: &Costs, block_bytes: u64) -> Costs {
        let span = large.block_bytes as f64 - small.block_bytes as f64;
        let share = if span > 0.0 { (block_bytes as f64 - small.block_bytes as f64) / span } else { 0.0 };
        let mix = |of: fn(&Costs) -> f64| of(small) + share * (of(large) - of(small));
        Costs::from(block_bytes, small.device_bytes_s, mix)
    }

    /// Describes costs that are impossible; these mean that something else kept the machine busy
    /// during the measurement.
    pub fn nonsense(&self, device: &Device) -> Option<String> {
        let (least, most) = self.demand_bounds_us(device);
        let own = device.latency_us(self.block_bytes);
        let block = Size(self.block_bytes);
        if !(self.demand_us >= least && self.demand_us <= most) {
            return Some(format!(
                "a page-in of {block} took {:.0} us, while the device alone takes {own:.0} us",
                self.demand_us
            ));
        }
        // Fresh memory in a new frame is the kernel's fresh memory, and something more.
        if self.fresh_us.is_nan() || self.fresh_us < -(SETTLED * self.native_us).max(FRESH_ERROR_US) {
            return Some(format!("a new block of {block} took {:.0} us less than natively", -self.fresh_us));
        }
        if !(self.minor_us > 0.0 && self.minor_us <= SOFT_MOST_US) {
            return Some(format!("a minor fault took {:.1} us", self.minor_us));
        }
        None
    }

    /// A page-in takes at least half of the device's own latency, since latencies vary, and at most
    /// twice that latency and the pager's part.
    fn demand_bounds_us(&self, device: &Device) -> (f64, f64) {
        let own = device.latency_us(self.block_bytes);
        (0.5 * own, 2.0 * own + OWN_PART_US)
    }

    /// The same costs within possible bounds.
    fn bounded(mut self, device: &Device) -> Costs {
        let (least, most) = self.demand_bounds_us(device);
        let within =
            |value: f64, least: f64, most: f64| if value.is_nan() { least } else { value.clamp(least, most) };
        self.demand_us = within(self.demand_us, least, most);
        self.minor_us = within(self.minor_us, 0.1, SOFT_MOST_US);
        self.fresh_us = within(self.fresh_us, 0.0, f64::MAX);
        self.recycled_us = self.recycled_us.min(self.fresh_us);
        self
    }

    /// Names the cost that varies too much between rounds, if there is one.
    fn unsettled(rounds: &[Costs]) -> Option<String> {
        let kinds: [(&str, Part); 4] = [
            ("minor faults", |costs| costs.minor_us),
            ("page-ins", |costs| costs.demand_us),
            // What was measured: the cost beyond the native one may be next to nothing.
            ("new blocks", |costs| costs.native_us + costs.fresh_us),
            ("streams", |costs| 1e12 / costs.read_bytes_s),
        ];
        kinds.into_iter().find_map(|(name, of)| {
            let mut values: Vec<f64> = rounds.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            // Of three rounds all.
            let last = values.len() - 1;
            let (low, high, median) = (values[last / 4], values[(3 * last).div_ceil(4)], values[last / 2]);
            let spread = high - low;
            (spread > SETTLED * median.abs()).then(|| {
                let percent = spread / median.abs().max(0.1) * 100.0;
                format!("the costs of {name} still differ by {percent:.0} % after {} rounds", rounds.len())
            })
        })
    }

    /// The median of each.
    fn median(rounds: &[Costs]) -> Costs {
        let of_all = |of: fn(&Costs) -> f64| {
            let values: Vec<f64> = rounds.iter().map(of).collect();
            median(&values).expect("there is a round")
        };
        Costs::from(rounds[0].block_bytes, rounds[0].device_bytes_s, of_all)
    }

    fn from(block_bytes: u64, device_bytes_s: (f64, f64), value: impl Fn(fn(&Costs) -> f64) -> f64) -> Costs {
        Costs {
            block_bytes,
            device_bytes_s,
            minor_us: value(|costs| costs.minor_us),
            demand_us: value(|costs| costs.demand_us),
            first_us: value(|costs| costs.first_us),
            native_us: value(|costs| costs.native_us),
            fresh_us: value(|costs| costs.fresh_us),
            recycled_us: value(|costs| costs.recycled_us),
            read_bytes_s: value(|costs| costs.read_bytes_s),
            write_bytes_s: value(|costs| costs.write_bytes_s),
            block_cpu_us: value(|costs| costs.block_cpu_us),
            wake_us: value(|costs| costs.wake_us),
        }
    }
}

/// One pass of a small program, as `terapage lab workload` prints it.
#[derive(Clone, Debug, Deserialize)]
struct Pass {
    pass: String,
    seconds: f64,
    page_in_bytes: Option<u64>,
    page_out_bytes: Option<u64>,
}

impl Pass {
    fn moved(&self) -> (f64, f64) {
        (self.page_in_bytes.unwrap_or(0) as f64, self.page_out_bytes.unwrap_or(0) as f64)
    }
}

/// A small program that has ended.
struct Ran {
    passes: Vec<Pass>,
    stats: serde_json::Value,
    cpu_s: f64,
}

impl Ran {
    fn pass(&self, name: &str) -> Result<&Pass, Error> {
        let found = self.passes.iter().rev().find(|pass| pass.pass == name);
        found.ok_or_else(|| Error::Run { why: format!("it has no pass {name}") })
    }

    fn count(&self, name: &str) -> f64 {
        self.stats[name].as_f64().unwrap_or(0.0)
    }

    /// Blocks of a pass for which its thread waited; the others that it read were companions.
    fn waited_for(&self, pass: &Pass, block: f64) -> f64 {
        let share = self.count("major_faults") * block / self.page_in_bytes().max(block);
        (pass.moved().0 / block * share.min(1.0)).max(1.0)
    }

    fn page_in_bytes(&self) -> f64 {
        self.passes.iter().map(|pass| pass.moved().0).sum()
    }
}

/// How a small program is paged.
struct Budget<'a> {
    bytes: u64,
    soft_per_mille: usize,
    prefetch: &'a str,
    spin: bool,
}

/// Runs small programs.
pub struct Bench {
    /// The terapage command.
    pub terapage: PathBuf,
    /// The store.
    pub store: PathBuf,
    /// Bytes of a block.
    pub block_bytes: u64,
}

impl Bench {
    /// Measures the costs here until they settle, and returns the medians of the rounds whose costs
    /// are possible. It takes about ten seconds on an idle machine. `progress` is called for each
    /// step, at least [`STEPS`] times.
    ///
    /// # Errors
    /// A small program that cannot be run.
    pub fn measure(&self, device: &Device, progress: impl Fn()) -> Result<Calibration, Error> {
        settle(device, PATIENCE, || self.once(device, &progress))
    }

    fn once(&self, device: &Device, progress: &impl Fn()) -> Result<Costs, Error> {
        let block = self.block_bytes as f64;
        let reads = READS / (self.block_bytes / (64 * KIB)).max(1);
        let scan = |bytes: u64| vec!["scan".into(), "--bytes".into(), bytes.to_string()];
        let random = |reads: u64| {
            let (bytes, reads) = (DATA.to_string(), reads.to_string());
            [
                "random",
                "--bytes",
                &bytes,
                "--reads",
                &reads,
                "--seconds",
                "2",
                "--threads",
                "1,1",
                "--seed",
                "7",
            ]
            .map(str::to_owned)
            .to_vec()
        };
        let stepped = |result| {
            progress();
            result
        };
        // 1. A native run, with the same allocator and before paging begins.
        let native = stepped(self.run(&scan(DATA), None))?;
        let native_write_us = native.pass("write")?.seconds * 1e6 / (DATA as f64 / block);
        // 2. Everything fits: new frames.
        let fits = Budget { bytes: 2 * DATA, soft_per_mille: 20, prefetch: "auto", spin: true };
        let fits = stepped(self.run(&scan(DATA), Some(&fits)))?;
        let fresh_us = fits.pass("write")?.seconds * 1e6 / (DATA as f64 / block);
        // 3. Half of the frames are soft, so that only touches of soft blocks are measured.
        let half = Budget { bytes: DATA * 5 / 4, soft_per_mille: 500, prefetch: "off", spin: true };
        let half = stepped(self.run(&random(reads), Some(&half)))?;
        let minor_us = half.pass("threads-1")?.seconds * 1e6 / (half.count("minor_faults") / 2.0).max(1.0);
        // 4. A quarter of the data fits: page-ins on demand. The second pass finds everything
        //    clean.
        let few = |spin| Budget { bytes: DATA / 4, soft_per_mille: 20, prefetch: "off", spin };
        let quarter = stepped(self.run(&random(reads / 2), Some(&few(true))))?;
        let pass = quarter.pass("threads-1")?;
        let soft_share = quarter.count("minor_faults") / quarter.count("major_faults").max(1.0);
        let demand = quarter.waited_for(pass, block);
        let demand_us = pass.seconds * 1e6 / demand - soft_share * minor_us;
        //    The same by a pager that sleeps before each fault.
        let asleep = stepped(self.run(&random(reads / 2), Some(&few(false))))?;
        let slept = asleep.pass("threads-1")?;
        let fault_us = |pass: &Pass, demand: f64| pass.seconds * 1e6 / demand;
        let asleep_us = fault_us(slept, asleep.waited_for(slept, block));
        let wake_us = (asleep_us - fault_us(pass, demand)) / (1.0 + soft_share);
        // 5. Streams in and out, then the same without spinning, for the processor time.
        let streams = |spin| Budget { bytes: DATA / 3, soft_per_mille: 20, prefetch: "auto", spin };
        let stream = stepped(self.run(&scan(DATA), Some(&streams(true))))?;
        let waiting_us = stream.count("major_faults") * demand_us;
        let passes = without_waiting(&stream.passes, waiting_us / 1e6, stream.count("major_faults") * block);
        let (read_bytes_s, write_bytes_s) = rates(&passes, device);
        let idle = stepped(self.run(&scan(DATA), Some(&streams(false))))?;
        let block_cpu_us =
            (idle.cpu_s - native.cpu_s).max(0.0) * 1e6 * block / idle.page_in_bytes().max(block);
        // The cost of a used frame is the extra time of the write pass over new frames, with the
        // write-back of the earlier contents.
        let write = stream.pass("write")?;
        let (new, used) = ((DATA / 3) as f64 / block, (DATA - DATA / 3) as f64 / block);
        let recycled_us = (write.seconds * 1e6 - new * fresh_us) / used - native_write_us;
        Ok(Costs {
            block_bytes: self.block_bytes,
            minor_us,
            demand_us: demand_us.max(0.1),
            first_us: minor_us / 2.0,
            native_us: native_write_us,
            fresh_us: fresh_us - native_write_us,
            recycled_us: recycled_us.clamp(-native_write_us, fresh_us),
            read_bytes_s,
            write_bytes_s,
            device_bytes_s: (device.read_bytes_s, device.write_bytes_s),
            block_cpu_us: block_cpu_us.max(0.1),
            wake_us: wake_us.max(0.0),
        })
    }

    fn run(&self, workload: &[String], budget: Option<&Budget<'_>>) -> Result<Ran, Error> {
        let counters = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(&self.terapage);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TERAPAGE_") && name != "TERAPAGE_LIBRARY" {
                command.env_remove(name);
            }
        }
        if let Some(budget) = budget {
            command.env("TERAPAGE_START_BYTES", "0");
            command.env("TERAPAGE_SOFT_PER_MILLE", budget.soft_per_mille.to_string());
            if !budget.spin {
                command.env("TERAPAGE_SPIN_US", "0");
            }
            command
                .args(["run", "--require", "--memory", &budget.bytes.to_string()])
                .arg("--store")
                .arg(&self.store);
            command.args([
                "--block",
                &self.block_bytes.to_string(),
                "--prefetch",
                budget.prefetch,
                "--stats",
            ]);
            command.arg(counters.path()).arg("--").arg(&self.terapage);
        }
        command.args(["lab", "workload"]).args(workload).stdin(Stdio::null());
        let (output, cpu_s) =
            crate::child::output(command).map_err(|error| Error::Run { why: error.to_string() })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let why = said.lines().last().unwrap_or("no message").trim_start_matches("terapage: ").to_owned();
            return Err(Error::Run { why });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let passes = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let stats = read_json(counters.path()).unwrap_or_default();
        Ok(Ran { passes, stats, cpu_s })
    }
}

/// Runs rounds until they settle, or until `patience` has passed.
fn settle(
    device: &Device,
    patience: Duration,
    mut once: impl FnMut() -> Result<Costs, Error>,
) -> Result<Calibration, Error> {
    let (mut all, mut good): (Vec<Costs>, Vec<Costs>) = (Vec::new(), Vec::new());
    let mut trouble = None;
    let begun = Instant::now();
    while all.is_empty() || all.len() < ROUNDS_MAX && begun.elapsed() < patience {
        let costs = once()?;
        match costs.nonsense(device) {
            Some(why) => trouble = Some(why),
            None => good.push(costs.clone()),
        }
        all.push(costs);
        if good.len() >= ROUNDS as usize {
            trouble = Costs::unsettled(&good);
            if trouble.is_none() {
                break;
            }
        }
    }
    if good.len() < ROUNDS as usize && trouble.is_none() {
        trouble =
            Some(format!("only {} of {ROUNDS} rounds were made in {} s", all.len(), patience.as_secs()));
    }
    let costs = Costs::median(if good.is_empty() { &all } else { &good }).bounded(device);
    Ok(Calibration { costs, rounds: all.len(), trouble })
}

/// The least number of steps of [`Bench::measure`].
pub const STEPS: u64 = 7 * ROUNDS;

fn read_json(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// Passes without the demand page-ins that all of them had, `seconds` and `bytes`, in proportion to
/// what each pass read. At least half of a pass remains.
fn without_waiting(passes: &[Pass], seconds: f64, bytes: f64) -> Vec<Pass> {
    let all: f64 = passes.iter().map(|pass| pass.moved().0).sum();
    let less = |pass: &Pass| {
        let read = pass.moved().0;
        let share = if all > 0.0 { read / all } else { 0.0 };
        Pass {
            seconds: (pass.seconds - share * seconds).max(pass.seconds / 2.0),
            page_in_bytes: Some((read - share * bytes).max(read / 2.0) as u64),
            ..pass.clone()
        }
    };
    passes.iter().map(less).collect()
}

/// Bytes per second read and written in streams: the rates that fit the times of all reading passes
/// best, by least squares. The rates of the device itself if the passes do not determine them.
fn rates(passes: &[Pass], device: &Device) -> (f64, f64) {
    let (mut rr, mut rw, mut ww, mut rt, mut wt) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for pass in passes {
        let (read, written) = pass.moved();
        if read > 0.0 {
            rr += read * read;
            rw += read * written;
            ww += written * written;
            rt += read * pass.seconds;
            wt += written * pass.seconds;
        }
    }
    let determinant = rr * ww - rw * rw;
    let (read_s, write_s) = ((rt * ww - wt * rw) / determinant, (wt * rr - rt * rw) / determinant);
    if read_s.is_nan() || read_s <= 0.0 {
        return (device.read_bytes_s, device.write_bytes_s);
    }
    let write = if write_s > 0.0 { 1.0 / write_s } else { device.write_bytes_s };
    (1.0 / read_s, write)
}

#[cfg(test)]
mod tests {
    use super::{Costs, Pass, Ran, rates, settle};
    use crate::device::Device;
    use std::time::Duration;

    fn pass(seconds: f64, read: u64, written: u64) -> Pass {
        Pass { pass: String::new(), seconds, page_in_bytes: Some(read), page_out_bytes: Some(written) }
    }

    #[test]
    fn rates_are_those_that_explain_the_passes() {
        let device = Device::stated("d", 80.0, 5.0, 6.0);
        let passes = [pass(3.0, 2000, 500), pass(2.0, 2000, 0), pass(4.0, 2000, 1000), pass(9.0, 0, 9)];
        let (read, write) = rates(&passes, &device);
        assert!((read - 1000.0).abs() < 1e-6 && (write - 500.0).abs() < 1e-6, "{read} {write}");
        assert_eq!(rates(&[pass(1.0, 0, 5)], &device), (5.0, 6.0));
    }

    #[test]
    fn a_thread_does_not_wait_for_companions() {
        let block = 1000.0;
        let passes = vec![pass(1.0, 30_000, 0), pass(1.0, 10_000, 0)];
        let ran = |major_faults: u64| Ran {
            passes: passes.clone(),
            stats: serde_json::json!({ "major_faults": major_faults }),
            cpu_s: 0.0,
        };
        // All that was read was waited for, or half of it.
        assert_eq!(ran(40).waited_for(&passes[1], block), 10.0);
        assert_eq!(ran(20).waited_for(&passes[1], block), 5.0);
        // Counters that are missing.
        assert_eq!(ran(0).waited_for(&passes[1], block), 1.0);
    }

    fn costs(demand_us: f64, fresh_us: f64) -> Costs {
        Costs {
            block_bytes: 256 << 10,
            minor_us: 12.0,
            demand_us,
            first_us: 6.0,
            native_us: 80.0,
            fresh_us,
            recycled_us: 1.0,
            read_bytes_s: 1e9,
            write_bytes_s: 1e9,
            device_bytes_s: (1e9, 1e9),
            block_cpu_us: 2.0,
            wake_us: 0.0,
        }
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        let device = Device::stated("d", 69.0, 1e15, 1e15);
        assert_eq!(costs(90.0, 3.0).nonsense(&device), None);
        assert_eq!(costs(90.0, -2.0).nonsense(&device), None);
        let said = costs(228.0, 3.0).nonsense(&device).unwrap();
        assert!(said.contains("228 us, while the device alone takes 69 us"), "{said}");
        let said = costs(90.0, -101.0).nonsense(&device).unwrap();
        assert!(said.contains("101 us less than natively"), "{said}");
        assert!(costs(20.0, 3.0).nonsense(&device).is_some());
        assert!(costs(f64::NAN, 3.0).nonsense(&device).is_some());
    }

    #[test]
    fn rounds_go_on_until_costs_settle() {
        let device = Device::stated("d", 69.0, 1e15, 1e15);
        let run_for = |patience: Duration, rounds: &[(f64, f64)]| {
            let mut rounds = rounds.iter().cycle();
            let once = || Ok(rounds.next().map(|&(demand, fresh)| costs(demand, fresh)).unwrap());
            settle(&device, patience, once).unwrap()
        };
        let run = |rounds: &[(f64, f64)]| run_for(Duration::MAX, rounds);
        // At rest.
        let calibration = run(&[(90.0, 3.0)]);
        assert_eq!((calibration.rounds, &calibration.trouble), (3, &None));
        // New blocks cost next to nothing beyond the native cost.
        let calibration = run(&[(90.0, 0.1), (90.0, -4.0), (90.0, 8.0)]);
        assert_eq!((calibration.rounds, &calibration.trouble), (3, &None));
        // Two rounds with impossible costs are left out.
        let calibration = run(&[(228.0, 3.0), (90.0, -101.0), (92.0, 3.0), (90.0, 3.0), (91.0, 3.0)]);
        assert_eq!((calibration.rounds, &calibration.trouble), (5, &None));
        assert_eq!(calibration.costs.demand_us, 91.0);
        // Nothing settles.
        let calibration = run(&[(60.0, 3.0), (180.0, 3.0)]);
        assert!(calibration.trouble.unwrap().contains("page-ins still differ by"));
        // All rounds are impossible: the result is within bounds.
        let calibration = run(&[(228.0, -101.0)]);
        assert!(calibration.trouble.is_some() && calibration.rounds == 9);
        assert!((calibration.costs.demand_us - 188.0).abs() < 0.01);
        assert_eq!(calibration.costs.fresh_us, 0.0);
        // No time: only one round, which is not enough.
        let calibration = run_for(Duration::ZERO, &[(90.0, 3.0)]);
        assert_eq!(calibration.rounds, 1);
        assert!(calibration.trouble.unwrap().starts_with("only 1 of 3 rounds were made in 0 s"));
    }

    #[test]
    fn waits_are_taken_out_of_passes_by_what_they_read() {
        let passes = [pass(3.0, 3000, 5), pass(2.0, 1000, 0), pass(1.0, 0, 9)];
        let left = super::without_waiting(&passes, 2.0, 400.0);
        let seconds: Vec<f64> = left.iter().map(|pass| pass.seconds).collect();
        assert_eq!(seconds, [1.5, 1.5, 1.0]);
        assert_eq!(left[0].moved(), (2700.0, 5.0));
        assert_eq!(left[1].moved(), (900.0, 0.0));
    }

    #[test]
    fn another_device_is_limited_by_the_pager() {
        let device = Device::stated("here", 80.0, 1e9, 2e9);
        let costs = Costs {
            block_bytes: 16384,
            minor_us: 1.0,
            demand_us: 100.0,
            first_us: 1.0,
            native_us: 4.0,
            fresh_us: 1.0,
            recycled_us: 1.0,
            read_bytes_s: 0.9e9,
            write_bytes_s: 1.5e9,
            device_bytes_s: (1e9, 2e9),
            block_cpu_us: 16384.0 / 3e9 * 1e6,
            wake_us: 0.0,
        };
        assert_eq!(costs.rates(&Device { measured: true, ..device.clone() }), (0.9e9, 1.5e9));
        let (read, write) = costs.rates(&Device::stated("fast", 5.0, 12e9, 1.2e9));
        assert!((read - 3e9).abs() < 1.0 && write == 1.2e9);
    }
}
