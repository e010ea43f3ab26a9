//! The setup of a simulation: a machine, a stack, a load.

use crate::costs::Costs;
use crate::lock::Kind;
use crate::mechanism::Mechanisms;
use crate::stacks::Stack;
use terapage_event::Nanos;

/// A machine and its storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Cores.
    pub cores: u32,
    /// Logical CPUs of a core.
    pub smt: u32,
    /// Sockets, or clusters of cores that share a cache; the cores are spread over them evenly.
    pub sockets: u32,
    /// The clock, GHz.
    pub ghz: f64,
    /// The speed of a logical CPU whose sibling is busy, as a share of its speed alone.
    pub smt_speed: f64,
    /// Fetching a line from a core of the same socket, ns.
    pub transfer_ns: f64,
    /// Fetching a line from a core of another socket, ns.
    pub transfer_far_ns: f64,
    /// Hosts (controllers); the volumes are distributed over them.
    pub hosts: u32,
    /// Hardware queues of a host; 0 for one per core.
    pub hw_queues: u32,
    /// I/Os per second that the front end lets through, all hosts together.
    pub front_end_iops: f64,
    /// The constant part of an I/O's latency behind the front end, ns.
    pub latency_fixed_ns: f64,
    /// The mean of the exponentially distributed part of that latency, ns.
    pub latency_random_ns: f64,
    /// Whether a host reports completions together, once it has no more requests, as virtual disks
    /// do.
    pub drains: bool,
    /// The kind of the kernel's spinlocks.
    pub lock: Kind,
}

impl Machine {
    /// Logical CPUs.
    pub fn cpus(&self) -> u32 {
        self.cores * self.smt
    }

    /// The core of a logical CPU.
    pub(crate) fn core(&self, cpu: u32) -> u32 {
        cpu % self.cores
    }

    /// The time that core `to` needs to fetch a cache line that core `from` wrote last, ns.
    pub(crate) fn transfer_ns(&self, from: u32, to: u32) -> f64 {
        let socket = |core: u32| core * self.sockets / self.cores;
        match () {
            () if from == to => 0.0,
            () if socket(from) == socket(to) => self.transfer_ns,
            () => self.transfer_far_ns,
        }
    }
}

/// How the calls of a paced load are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Each thread issues at equal intervals; the threads are not in step.
    Regular,
    /// Each thread issues after exponentially distributed pauses.
    Poisson,
}

/// The variation of the costs of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variation {
    /// The costs do not vary.
    Fixed,
    /// Uniform from half the cost to one and a half times the cost.
    Uniform,
    /// Exponentially distributed.
    Exponential,
}

/// The load of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Threads, each bound to a logical CPU, in turn.
    pub threads: u32,
    /// System calls of a thread that may be in flight at the same time.
    pub calls_in_flight: u32,
    /// I/Os of a system call.
    pub multiplicity: u32,
    /// Volumes; each call goes to one at random.
    pub volumes: u32,
    /// I/Os per second of all threads together; `None` for as many as possible.
    pub rate_iops: Option<f64>,
    /// The chance that an I/O of a call continues the previous one.
    pub sequential: f64,
    /// Whether each I/O of a call goes to another volume.
    pub spread: bool,
    /// The greatest delay with which a timer wakes a thread, ns. The thread then issues all calls
    /// that are due.
    pub timer_slack_ns: f64,
    /// The times at which a paced thread issues.
    pub arrivals: Arrivals,
    /// How the stages' costs vary.
    pub variation: Variation,
}

impl Load {
    /// Threads that issue as fast as possible, to one volume, and never sleep for a timer.
    pub fn unpaced(threads: u32, calls_in_flight: u32, multiplicity: u32) -> Load {
        Load {
            threads,
            calls_in_flight,
            multiplicity,
            volumes: 1,
            rate_iops: None,
            sequential: 0.0,
            spread: false,
            timer_slack_ns: 0.0,
            arrivals: Arrivals::Regular,
            variation: Variation::Uniform,
        }
    }
}

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The software.
    pub stack: Stack,
    /// The hardware.
    pub machine: Machine,
    /// The program.
    pub load: Load,
    /// The costs of the stages.
    pub costs: Costs,
    /// The enabled mechanisms.
    pub mechanisms: Mechanisms,
    /// Simulated time at the start that is not counted.
    pub warm_ns: Nanos,
    /// Simulated time that is measured after that.
    pub measure_ns: Nanos,
}

/// A setup that cannot be simulated.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Error {
    /// A value is out of range.
    #[error("{name} is {value}; it must lie between {low} and {high}")]
    Range {
        /// The name of the value.
        name: &'static str,
        /// The value given.
        value: f64,
        /// The least possible value.
        low: f64,
        /// The greatest possible value.
        high: f64,
    },
    /// The cores cannot be spread evenly over the sockets.
    #[error("{cores} cores cannot be spread evenly over {sockets} sockets; make one a multiple of the other")]
    Sockets {
        /// Cores.
        cores: u32,
        /// Sockets.
        sockets: u32,
    },
    /// There are more polling threads than CPUs.
    #[error("{threads} threads that poll need as many logical CPUs, and there are {cpus}; use fewer threads")]
    Polling {
        /// Threads.
        threads: u32,
        /// Logical CPUs.
        cpus: u32,
    },
    /// There are more hosts than volumes.
    #[error("{hosts} hosts for {volumes} volumes; use at most one host per volume")]
    Hosts {
        /// Hosts.
        hosts: u32,
        /// Volumes.
        volumes: u32,
    },
    /// The simulation would take too long.
    #[error("{ios} I/Os to simulate; at most {most} are, so use a lower rate or a shorter time")]
    Long {
        /// I/Os.
        ios: u64,
        /// The most.
        most: u64,
    },
}

/// The greatest number of I/Os of a run, so that it ends. Chosen, not measured.
pub(crate) const IOS_MAX: u64 = 50_000_000;

impl Setup {
    /// Checks whether the setup can be simulated.
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let (machine, load) = (&self.machine, &self.load);
        let count = |name, value: u32, high: u32| range(name, f64::from(value), 1.0, f64::from(high));
        count("cores", machine.cores, 1024)?;
        count("logical CPUs a core", machine.smt, 8)?;
        count("sockets", machine.sockets, machine.cores)?;
        count("hosts", machine.hosts, 64)?;
        range("hardware queues", machine.hw_queues.into(), 0.0, 4096.0)?;
        range("clock (GHz)", machine.ghz, 0.1, 20.0)?;
        range("SMT speed", machine.smt_speed, 0.05, 1.0)?;
        range("line transfer (ns)", machine.transfer_ns, 0.0, 1e5)?;
        range("line transfer between sockets (ns)", machine.transfer_far_ns, 0.0, 1e5)?;
        range("front end (IOPS)", machine.front_end_iops, 1e3, 1e9)?;
        range("device latency (ns)", machine.latency_fixed_ns + machine.latency_random_ns, 0.0, 1e9)?;
        count("threads", load.threads, 4096)?;
        count("calls in flight", load.calls_in_flight, 4096)?;
        count("multiplicity", load.multiplicity, 64)?;
        count("volumes", load.volumes, 65_536)?;
        range("share of sequential I/Os", load.sequential, 0.0, 1.0)?;
        range("rate (IOPS)", load.rate_iops.unwrap_or(1e3), 1e3, 1e8)?;
        range("timer slack (ns)", load.timer_slack_ns, 0.0, 1e9)?;
        range("warm-up (ns)", self.warm_ns as f64, 0.0, 1e10)?;
        range("measured time (ns)", self.measure_ns as f64, 1e6, 1e10)?;
        self.check_together()
    }

    /// Checks values that are possible separately, but perhaps not together.
    fn check_together(&self) -> Result<(), Error> {
        let (machine, load) = (&self.machine, &self.load);
        if !machine.cores.is_multiple_of(machine.sockets) {
            return Err(Error::Sockets { cores: machine.cores, sockets: machine.sockets });
        }
        if machine.hosts > load.volumes {
            return Err(Error::Hosts { hosts: machine.hosts, volumes: load.volumes });
        }
        if self.stack.polls() && load.threads > machine.cpus() {
            return Err(Error::Polling { threads: load.threads, cpus: machine.cpus() });
        }
        let rate = load.rate_iops.unwrap_or(0.0);
        let ios = (rate * (self.warm_ns + self.measure_ns) as f64 / 1e9) as u64;
        if ios > IOS_MAX {
            return Err(Error::Long { ios, most: IOS_MAX });
        }
        Ok(())
    }
}

fn range(name: &'static str, value: f64, low: f64, high: f64) -> Result<(), Error> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(Error::Range { name, value, low, high }) }
}
