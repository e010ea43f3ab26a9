//! Compares the simulator with queues whose behaviour is known exactly, and checks its invariants.

use proptest::prelude::*;
use terapage_stack::*;

/// A machine on which every stage is free, and a load without bounds.
fn free(stack: Stack) -> Setup {
    let mut setup = Experiment::paper().setup(stack, None, 1);
    for name in COST_NAMES {
        setup.costs.set(name, 0.0).unwrap();
    }
    setup.machine.ghz = 1.0;
    setup.machine.hosts = 1;
    setup.machine.latency_fixed_ns = 0.0;
    setup.machine.latency_random_ns = 0.0;
    setup.machine.transfer_ns = 0.0;
    setup.load.timer_slack_ns = 0.0;
    setup.load.arrivals = Arrivals::Poisson;
    setup.load.volumes = 1;
    setup.mechanisms = setup.mechanisms.without(Mechanism::Smt);
    setup.warm_ns = 50_000_000;
    setup.measure_ns = 1_500_000_000;
    setup
}

/// The mean of `value` over four seeds.
fn mean(setup: &Setup, value: impl Fn(&Outcome) -> f64) -> f64 {
    repeat(std::slice::from_ref(setup), 4, 11, &|| {}).unwrap()[0].mean(value)
}

fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    let off = (value / expected - 1.0).abs();
    assert!(off < tolerance, "{what}: {value}, expected {expected} ({:.1} % off)", off * 100.0);
}

#[test]
fn the_front_end_is_m_d_1() {
    for utilisation in [0.3, 0.6, 0.8] {
        let mut setup = free(Stack::Nvme);
        setup.machine.front_end_iops = 200e3;
        setup.load.calls_in_flight = 4000;
        setup.load.rate_iops = Some(utilisation * 200e3);
        let service_us = 5.0;
        let expected = service_us * (1.0 + utilisation / (2.0 * (1.0 - utilisation)));
        let latency = mean(&setup, |outcome| outcome.latency_mean_us);
        assert_near(&format!("M/D/1 at {utilisation}"), latency, expected, 0.02);
    }
}

#[test]
fn a_cpu_is_m_m_1() {
    for utilisation in [0.3, 0.6, 0.75] {
        // Completions interrupt the other core.
        let mut setup = free(Stack::Scsi);
        setup.costs.set("user-call", 1000.0).unwrap();
        setup.machine.front_end_iops = 1e9;
        setup.machine.cores = 2;
        setup.machine.smt = 1;
        setup.load.threads = 1;
        setup.load.calls_in_flight = 4000;
        setup.load.variation = Variation::Exponential;
        setup.load.rate_iops = Some(utilisation * 1e6);
        setup.measure_ns = 1_000_000_000;
        let latency = mean(&setup, |outcome| outcome.latency_mean_us);
        assert_near(&format!("M/M/1 at {utilisation}"), latency, 1.0 / (1.0 - utilisation), 0.02);
    }
}

/// Throughput of `machines` that work for `think` and are repaired one at a time for `repair`, both
/// exponential.
fn machine_repairman(machines: u32, think: f64, repair: f64) -> f64 {
    let mut weights = vec![1.0];
    for failed in 0..machines {
        let last = weights.last().copied().unwrap_or(1.0);
        weights.push(last * f64::from(machines - failed) * repair / think);
    }
    let idle = 1.0 / weights.iter().sum::<f64>();
    (1.0 - idle) / repair
}

/// Threads that think, and take one lock.
fn one_lock(threads: u32, think: f64, hold: f64, kind: LockKind) -> Setup {
    let mut setup = free(Stack::Deadline);
    setup.costs.set("sched-io", think).unwrap();
    setup.costs.set("deadline-dispatch", hold).unwrap();
    setup.machine.cores = threads;
    setup.machine.smt = 1;
    setup.machine.lock = kind;
    setup.machine.front_end_iops = 1e9;
    setup.load.threads = threads;
    setup.load.calls_in_flight = 1;
    setup.load.variation = Variation::Exponential;
    setup.measure_ns = 60_000_000;
    setup
}

#[test]
fn a_lock_is_a_machine_repairman() {
    for kind in LockKind::ALL {
        for (threads, think) in [(2, 1000.0), (4, 800.0), (8, 1000.0), (16, 1000.0)] {
            let setup = one_lock(threads, think, 200.0, kind);
            let expected = machine_repairman(threads, think, 200.0) * 1e9;
            let iops = mean(&setup, |outcome| outcome.iops);
            assert_near(&format!("{} lock, {threads} threads", kind.name()), iops, expected, 0.02);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let setup = Experiment::paper().setup(Stack::Scsi, Some(900e3), 2);
    assert_eq!(run(&setup, 5).unwrap(), run(&setup, 5).unwrap());
    assert_ne!(run(&setup, 5).unwrap(), run(&setup, 6).unwrap());
}

#[test]
fn neighbours_merge_into_one_request() {
    let mut setup = Experiment::paper().setup(Stack::Scsi, Some(400e3), 8);
    let apart = run(&setup, 1).unwrap();
    setup.load.sequential = 1.0;
    let together = run(&setup, 1).unwrap();
    assert!(together.interrupts_per_io < apart.interrupts_per_io / 4.0);
    assert!(together.total_us() < apart.total_us());
    assert_near("rate", together.iops, apart.iops, 0.01);
    setup.mechanisms = setup.mechanisms.without(Mechanism::Plugging);
    assert!(run(&setup, 1).unwrap().total_us() > together.total_us());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let good = Experiment::paper().setup(Stack::Scsi, Some(400e3), 1);
    let refused = |change: &dyn Fn(&mut Setup)| {
        let mut setup = good.clone();
        change(&mut setup);
        run(&setup, 1).unwrap_err().to_string()
    };
    assert_eq!(refused(&|setup| setup.machine.cores = 0), "cores is 0; it must lie between 1 and 1024");
    assert_eq!(
        refused(&|setup| setup.load.rate_iops = Some(1e12)),
        "rate (IOPS) is 1000000000000; it must lie between 1000 and 100000000"
    );
    let polling = refused(&|setup| (setup.stack, setup.load.threads) = (Stack::Uring, 21));
    assert!(
        polling.starts_with("21 threads that poll need as many logical CPUs, and there are 20"),
        "{polling}"
    );
    assert!(refused(&|setup| setup.machine.ghz = f64::NAN).contains("clock (GHz) is NaN"));
    assert!(refused(&|setup| setup.machine.sockets = 3).contains("10 cores cannot be spread evenly over 3"));
    assert!(refused(&|setup| setup.machine.hosts = 64 * 3).contains("hosts"));
}

/// Any possible setup.
fn setups() -> impl Strategy<Value = Setup> {
    let machine = (1..6u32, 1..3u32, 1..4u32, 0..3u32, 0..3usize);
    let load = (1..12u32, 1..6u32, 1..9u32, 1..9u32, prop::option::of(10e3..2e6f64));
    let rest = (0..Stack::ALL.len(), 0..1024u32, 0.0..1.0f64, any::<bool>());
    (machine, load, rest).prop_map(|(machine, load, (stack, off, sequential, spread))| {
        let mut setup = Experiment::paper().setup(Stack::ALL[stack], load.4, load.2);
        let (cores, smt, hosts, hw_queues, lock) = machine;
        setup.machine = Machine { cores, smt, hosts, hw_queues, lock: LockKind::ALL[lock], ..setup.machine };
        let (threads, calls_in_flight, multiplicity, volumes, _) = load;
        let threads = if setup.stack.polls() { threads.min(cores * smt) } else { threads };
        let volumes = volumes.max(hosts);
        setup.load =
            Load { threads, calls_in_flight, multiplicity, volumes, sequential, spread, ..setup.load };
        let off = Mechanism::ALL.into_iter().enumerate().filter(|(bit, _)| off & (1 << bit) != 0);
        setup.mechanisms = off.map(|(_, mechanism)| mechanism).collect();
        setup.warm_ns = 500_000;
        setup.measure_ns = 2_000_000;
        setup
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// In any simulation, no CPU is busy for longer than the simulated time, I/Os complete, at most
    /// at the front end's rate, and mechanisms that are switched off cost nothing.
    #[test]
    fn time_and_ios_add_up(setup in setups(), seed in 0..1000u64) {
        let outcome = run(&setup, seed).unwrap();
        prop_assert!(outcome.iops > 0.0);
        prop_assert!(outcome.cpu_use() <= 1.0 + 1e-9, "{}", outcome.cpu_use());
        if !setup.mechanisms.has(Mechanism::QueueLock) {
            prop_assert_eq!(outcome.us(Activity::QueueSpin), 0.0);
        }
        if !setup.mechanisms.has(Mechanism::HostLock) {
            prop_assert_eq!(outcome.us(Activity::HostSpin), 0.0);
        }
        if !setup.mechanisms.has(Mechanism::CacheTransfer) {
            prop_assert_eq!(outcome.us(Activity::Transfer), 0.0);
        }
        if setup.mechanisms.has(Mechanism::FrontEnd) {
            // Requests of the warm-up may complete in the measured time.
            prop_assert!(outcome.iops <= setup.machine.front_end_iops * 1.25 + 64e3 * 8.0);
        }
    }

    /// With all mechanisms enabled, one core without a sibling waits for no other core.
    #[test]
    fn one_core_never_spins(stack in 0..Stack::ALL.len(), seed in 0..1000u64, rate in 10e3..100e3f64) {
        let mut setup = Experiment::paper().setup(Stack::ALL[stack], Some(rate), 2);
        setup.machine.cores = 1;
        setup.machine.smt = 1;
        setup.load.threads = 1;
        setup.measure_ns = 2_000_000;
        let outcome = run(&setup, seed).unwrap();
        prop_assert_eq!(outcome.spin_us(), 0.0);
        prop_assert_eq!(outcome.us(Activity::Transfer), 0.0);
    }
}

/// Little's law: without a rate, the rate of calls times their latency is the number of calls under
/// way, also if the thread that issues them is the bottleneck, and keeps fewer than it may. A call
/// is under way until the program has its result.
#[test]
fn rate_times_latency_is_what_is_under_way() {
    for stack in [Stack::Scsi, Stack::Nvme, Stack::MqNvme, Stack::Uring, Stack::Virtio] {
        for calls in [1, 3, 12, 24, 48, 96, 128] {
            let mut setup = Experiment::paper().setup(stack, None, 1);
            setup.load.threads = 1;
            setup.load.calls_in_flight = calls;
            let product = mean(&setup, |outcome| outcome.iops * outcome.latency_mean_us / 1e6);
            let under_way = mean(&setup, |outcome| outcome.calls_under_way);
            assert_near(&format!("{stack:?}, {calls} calls"), product, under_way, 0.02);
            let most = f64::from(calls);
            assert!(under_way <= most && (calls > 12 || under_way > most * 0.95), "{stack:?}: {under_way}");
        }
    }
}
