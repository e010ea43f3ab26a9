//! The meter: the use of the CPUs' time, and the number of completed I/Os.

use terapage_event::Nanos;

/// The activity of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The program's own work.
    User,
    /// The kernel's work.
    Kernel,
    /// Waiting for cache lines that another core has.
    Transfer,
    /// Spinning at the lock of a volume's queue.
    QueueSpin,
    /// Spinning at the lock of a host.
    HostSpin,
    /// Spinning at another lock, or waiting for a cache line that many want.
    OtherSpin,
    /// Looking for completions while there are none.
    Poll,
}

impl Activity {
    /// All activities.
    pub const ALL: [Activity; 7] = [
        Activity::User,
        Activity::Kernel,
        Activity::Transfer,
        Activity::QueueSpin,
        Activity::HostSpin,
        Activity::OtherSpin,
        Activity::Poll,
    ];

    /// The activity's name.
    pub fn name(self) -> &'static str {
        match self {
            Activity::User => "user",
            Activity::Kernel => "kernel work",
            Activity::Transfer => "lines",
            Activity::QueueSpin => "queue lock",
            Activity::HostSpin => "host lock",
            Activity::OtherSpin => "other",
            Activity::Poll => "polling",
        }
    }
}

/// Sums up the measured time.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    from: Nanos,
    to: Nanos,
    busy_ns: [u64; Activity::ALL.len()],
    ios: u64,
    latencies_ns: Vec<u64>,
    interrupts: u64,
    charged_ns: u64,
    /// Calls under way, since when, and their number times time in the measured time.
    calls: i64,
    calls_since: Nanos,
    calls_ns: u64,
}

impl Meter {
    pub fn new(from: Nanos, to: Nanos) -> Self {
        Meter {
            from,
            to,
            busy_ns: [0; _],
            ios: 0,
            latencies_ns: Vec::new(),
            interrupts: 0,
            charged_ns: 0,
            calls: 0,
            calls_since: 0,
            calls_ns: 0,
        }
    }

    /// Notes the activity of a CPU from `start` to `end`.
    pub fn busy(&mut self, activity: Activity, start: Nanos, end: Nanos) {
        let (start, end) = (start.max(self.from), end.min(self.to));
        self.busy_ns[activity as usize] += end.saturating_sub(start);
    }

    /// Notes time that the kernel attributes to a thread: its own, and that of interrupts
    /// meanwhile.
    pub fn charge(&mut self, start: Nanos, end: Nanos) {
        self.charged_ns += end.min(self.to).saturating_sub(start.max(self.from));
    }

    /// Notes that a request for `ios` I/Os is done, `latency_ns` after the program wanted it.
    pub fn done(&mut self, now: Nanos, ios: u32, latency_ns: u64) {
        if (self.from..self.to).contains(&now) {
            self.ios += u64::from(ios);
            self.latencies_ns.push(latency_ns);
        }
    }

    /// Notes that from now on `more` more calls are under way: from their issue until the program
    /// has their results.
    pub fn under_way(&mut self, now: Nanos, more: i64) {
        let (since, until) = (self.calls_since.max(self.from), now.min(self.to));
        self.calls_ns += self.calls.unsigned_abs() * until.saturating_sub(since);
        self.calls += more;
        self.calls_since = now;
    }

    /// Notes an interrupt.
    pub fn interrupt(&mut self, now: Nanos) {
        self.interrupts += u64::from((self.from..self.to).contains(&now));
    }

    /// The result, for `cpus` logical CPUs.
    pub fn outcome(mut self, cpus: u32) -> Outcome {
        let seconds = (self.to - self.from) as f64 / 1e9;
        let ios = self.ios.max(1) as f64;
        self.latencies_ns.sort_unstable();
        let count = self.latencies_ns.len();
        let percentile = |p: f64| {
            let place = ((count as f64 * p).ceil() as usize).clamp(1, count.max(1)) - 1;
            self.latencies_ns.get(place).map_or(0.0, |&ns| ns as f64 / 1e3)
        };
        Outcome {
            iops: self.ios as f64 / seconds,
            busy_us: self.busy_ns.map(|ns| ns as f64 / 1e3 / ios),
            latency_mean_us: self.latencies_ns.iter().sum::<u64>() as f64 / 1e3 / count.max(1) as f64,
            latency_p99_us: percentile(0.99),
            interrupts_per_io: self.interrupts as f64 / ios,
            thread_us: self.charged_ns as f64 / 1e3 / ios,
            calls_under_way: self.calls_ns as f64 / 1e9 / seconds,
            cpus,
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// I/Os per second.
    pub iops: f64,
    /// Time of logical CPUs for an I/O, us, by activity.
    pub busy_us: [f64; Activity::ALL.len()],
    /// The mean time of an I/O, us: at a rate, from the moment that the program wanted it until it
    /// is done; otherwise, from its call until the program has the result.
    pub latency_mean_us: f64,
    /// The 99th percentile of that time, us.
    pub latency_p99_us: f64,
    /// Interrupts for an I/O.
    pub interrupts_per_io: f64,
    /// Time per I/O that the kernel attributes to the threads, us, without interrupts of an idle
    /// CPU. Waiting for locks is not included.
    pub thread_us: f64,
    /// Calls under way, on average, of all threads: from their issue until the program has their
    /// results. If the threads are the bottleneck, these are fewer than there may be.
    pub calls_under_way: f64,
    /// Logical CPUs of the machine.
    pub cpus: u32,
}

impl Outcome {
    /// Time per I/O for one activity, us.
    pub fn us(&self, activity: Activity) -> f64 {
        self.busy_us[activity as usize]
    }

    /// Busy time of logical CPUs for an I/O, us.
    pub fn total_us(&self) -> f64 {
        self.busy_us.iter().sum()
    }

    /// Spinning at locks, for an I/O, us.
    pub fn spin_us(&self) -> f64 {
        self.us(Activity::QueueSpin) + self.us(Activity::HostSpin) + self.us(Activity::OtherSpin)
    }

    /// The share of all logical CPUs' time that is not idle.
    pub fn cpu_use(&self) -> f64 {
        self.total_us() * self.iops / 1e6 / f64::from(self.cpus)
    }

    /// The share of all logical CPUs' time that the kernel uses.
    pub fn kernel_use(&self) -> f64 {
        (self.total_us() - self.us(Activity::User)) * self.iops / 1e6 / f64::from(self.cpus)
    }

    /// The share of busy time that is spent waiting for locks.
    pub fn contention(&self) -> f64 {
        self.spin_us() / self.total_us().max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_measured_time_counts() {
        let mut meter = Meter::new(1_000, 2_000);
        meter.busy(Activity::User, 500, 1_100);
        meter.busy(Activity::Kernel, 1_900, 2_500);
        meter.busy(Activity::Kernel, 2_500, 2_600);
        meter.busy(Activity::HostSpin, 100, 200);
        meter.done(999, 1, 5);
        meter.done(1_000, 2, 3_000);
        meter.under_way(500, 3);
        meter.under_way(1_500, -2);
        meter.under_way(2_500, 0);
        let outcome = meter.outcome(2);
        assert_eq!(outcome.iops, 2e6);
        assert_eq!(outcome.calls_under_way, 2.0);
        assert_eq!(outcome.us(Activity::User), 0.05);
        assert_eq!(outcome.us(Activity::Kernel), 0.05);
        assert_eq!(outcome.spin_us(), 0.0);
        assert_eq!(outcome.latency_p99_us, 3.0);
        assert!((outcome.cpu_use() - 0.1).abs() < 1e-12);
        assert!((outcome.kernel_use() - 0.05).abs() < 1e-12);
    }
}
