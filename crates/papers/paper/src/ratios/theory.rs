//! The simulators against closed forms.

use super::Beside;
use anyhow::Context;
use terapage_farsim::Parameters;
use terapage_figures::{SplitMix, try_map};
use terapage_ssd::analytic::{md1_waiting, write_amplification};
use terapage_ssd::{Command, Config, Device, Done, Front, Operation, Profile, Ssd};
use terapage_stack::{Arrivals, COST_NAMES, Experiment, Mechanism, Stack, repeat};

/// Clients, and the time in us for which each thinks between two page-ins.
const THINKERS: [(u32, u32); 4] = [(3, 400), (6, 400), (12, 400), (20, 1200)];
/// The mean time of a page-in at the server, us.
const SERVICE_US: f64 = 100.0;
/// Loads of queues with a constant time of service.
const LOADS: [f64; 3] = [0.3, 0.6, 0.8];
/// Shares of spare flash.
const SPARES: [f64; 3] = [0.07, 0.15, 0.28];
/// I/Os a second that the front end takes.
const FRONT_END_IOPS: f64 = 200e3;

/// The number of simulations; those of far memory have two values each.
const RUNS: usize = THINKERS.len() + LOADS.len() + SPARES.len();
/// The number of values that are compared.
pub const CASES: usize = RUNS + THINKERS.len();

/// Simulates all cases. `tick` is called for each value.
///
/// # Errors
/// A setup is impossible.
pub fn all(tick: &(dyn Fn() + Sync)) -> anyhow::Result<Vec<Beside>> {
    let case = |at: usize| {
        let found = match at.checked_sub(THINKERS.len()) {
            None => far(THINKERS[at])?,
            Some(at) if at < LOADS.len() => vec![front_end(LOADS[at])?],
            Some(at) => vec![collection(SPARES[at - LOADS.len()])?],
        };
        found.iter().for_each(|_| tick());
        anyhow::Ok(found)
    };
    let found: Vec<Vec<Beside>> = try_map(RUNS, case)?;
    Ok(found.into_iter().flatten().collect())
}

/// Clients that think and one server, both exponential: the machine repairman.
fn far((clients, think_us): (u32, u32)) -> anyhow::Result<Vec<Beside>> {
    let mut parameters = Parameters::default();
    let (clients_text, think) = (clients.to_string(), think_us.to_string());
    for (name, value) in [
        ("clients", clients_text.as_str()),
        ("think", &think),
        ("servers", "1"),
        ("depth", "1"),
        ("writes", "0"),
        ("server-out", "0"),
        ("server-read", "100"),
        ("latency", "0"),
        ("client-request", "0"),
        ("client-bytes", "0"),
        ("wake", "0"),
        ("overhead", "0"),
        ("client-nic", "1000000"),
        ("server-nic", "1000000"),
        ("block", "1"),
        ("data", "0.01"),
        ("seconds", "20"),
    ] {
        parameters.set(name, value).with_context(|| format!("{name}={value}"))?;
    }
    let outcome = terapage_farsim::simulate(&parameters.setup()?);
    // The chance of k page-ins at the server is in proportion to N!/(N-k)! (service/think)^k.
    let mut weights = vec![1.0];
    for k in 0..clients {
        weights.push(weights[k as usize] * f64::from(clients - k) * SERVICE_US / f64::from(think_us));
    }
    let rate = (1.0 - weights[0] / weights.iter().sum::<f64>()) / SERVICE_US;
    let time_us = f64::from(clients) / rate - f64::from(think_us);
    let beside = |of: &str, theirs, ours, unit| Beside {
        with: "machine repairman (sim far)".into(),
        what: format!("{of}, {clients} clients that think for {think_us} us"),
        theirs,
        ours,
        unit,
    };
    Ok(vec![
        beside("rate", rate * 1e3, outcome.operations_per_s() / 1e3, "1/ms"),
        beside("time of a page-in", time_us, outcome.mean_ns / 1e3, "us"),
    ])
}

/// The front end of a storage array, behind an I/O stack that takes no time: M/D/1.
fn front_end(load: f64) -> anyhow::Result<Beside> {
    let mut setup = Experiment::paper().setup(Stack::Nvme, None, 1);
    for name in COST_NAMES {
        setup.costs.set(name, 0.0)?;
    }
    (setup.machine.ghz, setup.machine.hosts) = (1.0, 1);
    (setup.machine.latency_fixed_ns, setup.machine.latency_random_ns) = (0.0, 0.0);
    (setup.machine.transfer_ns, setup.load.timer_slack_ns) = (0.0, 0.0);
    setup.machine.front_end_iops = FRONT_END_IOPS;
    (setup.load.arrivals, setup.load.volumes) = (Arrivals::Poisson, 1);
    (setup.load.calls_in_flight, setup.load.rate_iops) = (4000, Some(load * FRONT_END_IOPS));
    setup.mechanisms = setup.mechanisms.without(Mechanism::Smt);
    (setup.warm_ns, setup.measure_ns) = (50_000_000, 1_500_000_000);
    let repeated = repeat(&[setup], 4, 11, &|| {})?;
    let ours = repeated.first().map_or(f64::NAN, |one| one.mean(|outcome| outcome.latency_mean_us));
    Ok(Beside {
        with: "M/D/1 (paper run stack)".into(),
        what: format!("time of an I/O, front end {:.0} % busy", load * 100.0),
        theirs: 1e6 / FRONT_END_IOPS * (1.0 + md1_waiting(load)),
        ours,
        unit: "us",
    })
}

/// Greedy collection under uniform random writes.
fn collection(spare: f64) -> anyhow::Result<Beside> {
    let mut chip = Profile::by_name("2d-fg-mlc")?;
    (chip.planes, chip.page_bytes, chip.pages_per_block) = (1, 4096, 256);
    let mut config = Config::new(chip, 1 << 30);
    (config.channels, config.dies_per_channel) = (2, 1);
    (config.over_provisioning, config.front) = (spare, Front::instant());
    let mut ssd = Ssd::new(&config)?;
    let pages = ssd.sectors() / 8;
    let before = ssd.counters();
    write_at_random(&mut ssd, pages);
    let spare = ssd.over_provisioning();
    Ok(Beside {
        with: "Xiang, Kurkoski 2011 (sim ssd)".into(),
        what: format!("write amplification with {:.1} % of spare flash", spare * 100.0),
        theirs: write_amplification(spare),
        ours: ssd.counters().since(&before).write_amplification(),
        unit: "",
    })
}

/// Writes as many pages at random as the device has, 32 at once.
fn write_at_random(ssd: &mut Ssd, pages: u64) {
    let (mut random, mut done) = (SplitMix(5), Vec::<Done>::new());
    let (mut submitted, mut ended, mut now) = (0, 0, ssd.next_time().unwrap_or(0));
    while ended < pages {
        while submitted < pages && submitted - ended < 32 {
            let sector = random.below(pages) * 8;
            let command = Command { tag: submitted, operation: Operation::Write, sector, sectors: 8 };
            ssd.submit(now, command, &mut done);
            submitted += 1;
        }
        let Some(next) = ssd.next_time() else { return };
        now = next;
        ssd.step(&mut done);
        ended += done.len() as u64;
        done.clear();
    }
}
