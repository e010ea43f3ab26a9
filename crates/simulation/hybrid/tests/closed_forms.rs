//! The replay against queueing theory.

use std::convert::Infallible;

use rand::{Rng, SeedableRng, rngs::StdRng};
use terapage_blocktrace::{Kind, Request};
use terapage_hybrid::{Error, FixedLatency, Latencies, Load, MemoryOnly, MemoryTiming, Plan, replay};

const SECTORS: u64 = 1 << 20;

fn request(time_ns: u64, offset: u64) -> Result<Request, Infallible> {
    Ok(Request { time_ns, offset, bytes: 4096, volume: 0, kind: Kind::Read })
}

fn plan(load: Load) -> Plan {
    Plan { load, warm_up: 0, wrap: false }
}

#[test]
fn a_closed_loop_is_depth_over_latency_exactly() {
    for depth in [1_u32, 2, 7, 32] {
        let mut device = FixedLatency::new(SECTORS, 1_000, 0);
        let requests = (0..u64::from(depth) * 100).map(|n| request(0, n * 4096));
        let out = replay(&mut device, &plan(Load::Closed { depth }), requests, |_| ()).expect("good");
        assert_eq!(out.requests, u64::from(depth) * 100);
        assert_eq!(out.elapsed_ns, 100 * 1_000, "depth {depth}");
        assert_eq!(out.queue_mean, f64::from(depth));
        assert_eq!(out.queue_max, u64::from(depth));
        let latencies = Latencies::of(&out.reads);
        assert_eq!((latencies.p50_ns, latencies.max_ns), (1_000, 1_000));
    }
}

#[test]
fn a_closed_loop_before_few_servers_waits_as_little_says() {
    let mut device = FixedLatency::new(SECTORS, 1_000, 4);
    let requests = (0..1_600).map(|n| request(0, n * 4096));
    let out = replay(&mut device, &plan(Load::Closed { depth: 16 }), requests, |_| ()).expect("good");
    assert_eq!(out.elapsed_ns, 400 * 1_000);
    let steady = Latencies::of(&out.reads).p50_ns;
    assert!(steady.abs_diff(4_000) <= 4, "Little: 16 / (4 / 1 us) = 4 us, not {steady} ns");
}

#[test]
fn the_warm_up_is_not_measured() {
    let mut device = FixedLatency::new(SECTORS, 1_000, 0);
    let plan = Plan { load: Load::Closed { depth: 1 }, warm_up: 300, wrap: false };
    let mut calls = 0;
    let out = replay(&mut device, &plan, (0..1_000).map(|n| request(0, n * 512)), |_| calls += 1);
    let out = out.expect("good");
    assert_eq!((out.requests, out.elapsed_ns, calls), (700, 700_000, 1));
    assert_eq!(out.queue_mean, 1.0);
}

/// The mean wait in an M/D/1 queue is rho / (2 (1 - rho)) service times (Pollaczek, Khinchine).
#[test]
fn an_open_loop_of_poisson_arrivals_waits_as_in_m_d_1() {
    let service_ns = 10_000.0;
    for rho in [0.3, 0.5, 0.8] {
        let mut rng = StdRng::seed_from_u64(7);
        let mut time = 0.0;
        let requests = (0..2_000_000_u64).map(|n| {
            time += -(1.0 - rng.random::<f64>()).ln() * service_ns / rho;
            request(time as u64, n % 1000 * 4096)
        });
        let mut device = FixedLatency::new(SECTORS, service_ns as u64, 1);
        let out = replay(&mut device, &plan(Load::Open { speed: 1.0 }), requests, |_| ()).expect("good");
        let waiting = out.reads.mean() - service_ns;
        let theory = rho / (2.0 * (1.0 - rho)) * service_ns;
        assert!((waiting / theory - 1.0).abs() < 0.02, "rho {rho}: waited {waiting} ns, theory {theory}");
        let little = rho + rho * rho / (2.0 * (1.0 - rho));
        assert!((out.queue_mean / little - 1.0).abs() < 0.02, "queue {} for {little}", out.queue_mean);
    }
}

#[test]
fn a_speed_divides_the_time_stamps() {
    for (speed, elapsed_ns) in [(1.0, 99 * 1_000 + 10), (2.0, 99 * 500 + 10), (0.5, 99 * 2_000 + 10)] {
        let mut device = FixedLatency::new(SECTORS, 10, 0);
        let requests = (0..100).map(|n| request(5_000 + n * 1_000, 0));
        let out = replay(&mut device, &plan(Load::Open { speed }), requests, |_| ()).expect("good");
        assert_eq!(out.elapsed_ns, elapsed_ns);
        assert_eq!(out.queue_max, 1);
    }
}

#[test]
fn a_request_beyond_the_device_is_named_or_wraps() {
    let requests = || [request(0, 0), request(0, SECTORS * 512 - 1024)];
    let closed = plan(Load::Closed { depth: 1 });
    let mut device = FixedLatency::new(SECTORS, 10, 0);
    let error = replay(&mut device, &closed, requests(), |_| ()).err().expect("it is beyond");
    assert!(matches!(error, Error::Beyond { number: 2, .. }), "{error}");
    assert!(error.to_string().contains("request 2 is for 4096 bytes at offset 536869888"), "{error}");
    let mut device = FixedLatency::new(SECTORS, 10, 0);
    let wrapping = Plan { wrap: true, ..closed };
    assert_eq!(replay(&mut device, &wrapping, requests(), |_| ()).expect("it wraps").requests, 2);
}

#[test]
fn bad_loads_and_empty_traces_are_errors() {
    for load in [Load::Closed { depth: 0 }, Load::Open { speed: 0.0 }, Load::Open { speed: f64::NAN }] {
        let mut device = FixedLatency::new(SECTORS, 10, 0);
        assert!(replay(&mut device, &plan(load), [request(0, 0)], |_| ()).is_err(), "{load:?}");
    }
    let mut device = FixedLatency::new(SECTORS, 10, 0);
    let warm_up = Plan { warm_up: 5, ..plan(Load::Closed { depth: 1 }) };
    assert!(matches!(replay(&mut device, &warm_up, [request(0, 0)], |_| ()), Err(Error::Empty(1))));
    let failing = [Err("the disk is gone")];
    let error = replay(&mut device, &warm_up, failing, |_| ()).err().expect("it fails");
    assert_eq!(error.to_string(), "the disk is gone");
}

#[test]
fn memory_alone_is_bound_by_its_banks() {
    let timing = MemoryTiming { banks: 2, ..MemoryTiming::default() };
    let mut device = MemoryOnly::new(SECTORS, &timing).expect("good");
    let requests = (0..1_000).map(|n| request(0, n * 4096));
    let out = replay(&mut device, &plan(Load::Closed { depth: 8 }), requests, |_| ()).expect("good");
    assert_eq!(out.elapsed_ns, 500 * 800, "8 sectors of 100 ns, two at a time");
    assert_eq!(device.busy_ns(), 1_000 * 800);
}
