//! The simulation against closed forms.

use terapage_farsim::{Outcome, Parameters, Part, Setup, simulate};

fn setup(values: &[(&str, &str)]) -> Setup {
    let mut parameters = Parameters::default();
    for (name, value) in values {
        parameters.set(name, value).unwrap();
    }
    parameters.setup().unwrap()
}

fn near(found: f64, expected: f64, share: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= share, "{what}: {found}, not {expected}");
}

/// Little's law: the number of operations in flight is their rate times their mean time. All three
/// are counted separately.
fn little(outcome: &Outcome, share: f64) {
    let product = outcome.operations_per_s() * outcome.mean_ns / 1e9;
    near(product, outcome.under_way, share, "Little's law");
}

#[test]
fn one_operation_at_a_time_takes_the_sum_of_its_parts() {
    for (writes, block) in [("0", "16384"), ("1", "65536")] {
        let setup = setup(&[
            ("clients", "1"),
            ("servers", "1"),
            ("depth", "1"),
            ("variation", "fixed"),
            ("writes", writes),
            ("block", block),
            ("seconds", "0.1"),
        ]);
        let is_write = writes == "1";
        let (out, back) = setup.messages(is_write, setup.block);
        let wire =
            |bytes: u64| bytes as f64 / setup.client_nic.min(setup.server_nic) + setup.latency_ns as f64;
        let wake = if is_write { 0.0 } else { setup.wake_ns as f64 };
        let sum = setup.pager_ns(setup.block)
            + wire(out)
            + setup.work_ns(is_write, setup.block)
            + wire(back)
            + wake;
        let outcome = simulate(&setup);
        near(outcome.mean_ns, sum, 0.001, "the time of one");
        near(outcome.operations_per_s(), 1e9 / sum, 0.002, "the rate of one after the other");
        little(&outcome, 0.002);
    }
}

#[test]
fn a_client_and_a_server_go_as_fast_as_the_slower_part() {
    let cases: [(&[(&str, &str)], Part); 4] = [
        (&[("server-out", "0.5")], Part::Server),
        (&[("client-nic", "2")], Part::ClientIn),
        (&[("server-nic", "1.5")], Part::ServerOut),
        (&[("client-bytes", "0.9")], Part::Pager),
    ];
    for (more, slowest) in cases {
        let common = [
            ("clients", "1"),
            ("servers", "1"),
            ("depth", "64"),
            ("variation", "fixed"),
            ("writes", "0"),
            ("client-bytes", "0.1"),
        ];
        let values: Vec<_> = common.iter().chain(more).copied().collect();
        let setup = setup(&values);
        let (_, back) = setup.messages(false, setup.block);
        let ns = [
            setup.work_ns(false, setup.block),
            back as f64 / setup.client_nic,
            back as f64 / setup.server_nic,
            setup.pager_ns(setup.block),
        ];
        let most = ns.into_iter().fold(0.0, f64::max);
        let outcome = simulate(&setup);
        near(outcome.operations_per_s(), 1e9 / most, 0.005, "min(rates)");
        assert_eq!(outcome.saturated(), Some(slowest));
        little(&outcome, 0.01);
    }
}

/// Clients that think and one server, both exponential: the machine repairman (M/M/1//N).
#[test]
fn clients_that_think_wait_for_a_server_as_the_repairman_says() {
    for clients in [1_u32, 3, 6, 12] {
        let setup = setup(&[
            ("clients", &clients.to_string()),
            ("servers", "1"),
            ("depth", "1"),
            ("writes", "0"),
            ("think", "400"),
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
            ("seconds", "20"),
        ]);
        // p(k) is in proportion to N!/(N-k)! (service/think)^k.
        let ratio = 100.0 / 400.0;
        let mut weights = vec![1.0];
        for k in 0..clients {
            weights.push(weights[k as usize] * f64::from(clients - k) * ratio);
        }
        let idle = weights[0] / weights.iter().sum::<f64>();
        let outcome = simulate(&setup);
        near(outcome.operations_per_s(), (1.0 - idle) / 100e-6, 0.02, &format!("{clients} clients"));
        let load = outcome.loads.iter().find(|load| load.part == Part::Server).unwrap();
        near(load.most, 1.0 - idle, 0.02, "the server's load");
        little(&outcome, 0.02);
    }
}

#[test]
fn loads_are_rates_times_costs() {
    let setup = setup(&[("clients", "6"), ("servers", "3"), ("depth", "4"), ("seconds", "0.3")]);
    let outcome = simulate(&setup);
    let writes = 1.0 - outcome.reads as f64 / outcome.operations as f64;
    near(writes, setup.writes, 0.03, "the share of page-outs");
    let each = |read: f64, write: f64| read * (1.0 - writes) + write * writes;
    let work = each(setup.work_ns(false, setup.block), setup.work_ns(true, setup.block));
    let mean = |part| outcome.loads.iter().find(|load| load.part == part).unwrap().mean;
    near(mean(Part::Server), outcome.operations_per_s() * work / 1e9 / 3.0, 0.02, "servers");
    let bytes = each(setup.messages(false, setup.block).1 as f64, setup.messages(true, setup.block).1 as f64);
    let nic = outcome.operations_per_s() * bytes / setup.server_nic / 1e9 / 3.0;
    near(mean(Part::ServerOut), nic, 0.02, "cards");
}

#[test]
fn servers_add_up_until_the_clients_are_slower() {
    let rate = |servers: &str, placement: &str| {
        let values = [
            ("clients", "8"),
            ("servers", servers),
            ("placement", placement),
            ("depth", "32"),
            ("data", "2"),
        ];
        simulate(&setup(&values)).bytes_per_s()
    };
    let one = rate("1", "round-robin");
    near(rate("2", "round-robin"), 2.0 * one, 0.03, "two servers");
    near(rate("4", "round-robin"), 4.0 * one, 0.05, "four servers");
    // 16 GiB fit on the first server.
    near(rate("4", "simple"), one, 0.02, "four servers of which one is filled");
}

#[test]
fn a_mirror_reads_from_both_and_writes_to_both() {
    let rate = |copies: &str, writes: &str| {
        let values =
            [("clients", "8"), ("servers", "2"), ("copies", copies), ("writes", writes), ("depth", "32")];
        simulate(&setup(&values)).bytes_per_s()
    };
    near(rate("2", "0"), rate("1", "0"), 0.03, "page-ins");
    near(rate("2", "1"), rate("1", "1") / 2.0, 0.03, "page-outs");
}

#[test]
fn a_server_that_is_lost_stops_clients_that_have_no_other_copy() {
    let common = [("clients", "4"), ("servers", "2"), ("fail", "0.2"), ("data", "1"), ("detect", "20")];
    let with = |more: &[(&str, &str)]| simulate(&setup(&[&common, more].concat()));
    let alone = with(&[]);
    assert_eq!(alone.stopped, 4);
    assert_eq!(alone.timeline[45], 0);
    let mirror = with(&[("copies", "2")]);
    assert_eq!(mirror.stopped, 0);
    assert!(mirror.detours > 0 && mirror.timeline[45] > 0);
    // Operations in flight wait until they are given up, and no longer.
    assert!((20_000_000..30_000_000).contains(&mirror.longest_ns), "{}", mirror.longest_ns);
}

#[test]
fn a_server_that_is_back_is_whole_after_all_was_copied_at_the_rate() {
    let setup = setup(&[
        ("clients", "2"),
        ("servers", "4"),
        ("copies", "2"),
        ("fail", "0.1"),
        ("return", "0.3"),
        ("data", "0.25"),
        ("resync", "128"),
        ("depth", "2"),
        ("detect", "20"),
        ("seconds", "2"),
    ]);
    let outcome = simulate(&setup);
    // A resync copies half of each client's extents, at 128 MiB a second.
    assert_eq!(outcome.resynced, 2 * (128 << 20));
    near(outcome.whole_again_ns as f64, 0.3e9 + 1e9, 0.02, "the end of the resync");
}

#[test]
fn a_code_reads_each_byte_once_and_writes_its_parts() {
    let rate = |code: &str, servers: &str, writes: &str| {
        let values = [
            ("clients", "12"),
            ("servers", servers),
            ("code", code),
            ("writes", writes),
            ("depth", "32"),
            ("server-read", "0"),
            ("server-write", "0"),
            ("server-out", "0.5"),
            ("server-in", "0.5"),
        ];
        simulate(&setup(&values)).bytes_per_s()
    };
    let one = rate("none", "1", "0");
    for (code, servers, number) in [("2of3", "3", 3.0), ("4of6", "6", 6.0)] {
        near(rate(code, servers, "0"), number * one, 0.05, "page-ins");
        near(rate(code, servers, "1"), number / 1.5 * one, 0.05, "page-outs");
    }
}

#[test]
fn what_a_code_lost_is_read_from_as_many_servers_as_are_needed() {
    for (code, servers, needed) in [("2of3", "3", 2), ("4of6", "6", 4)] {
        let outcome = simulate(&setup(&[
            ("clients", "2"),
            ("servers", servers),
            ("code", code),
            ("fail", "0.1"),
            ("return", "0.3"),
            ("data", "0.25"),
            ("resync", "128"),
            ("depth", "2"),
            ("detect", "20"),
            ("seconds", "2"),
        ]));
        let lost = 2 * (256 << 20) / needed;
        assert_eq!((outcome.resynced, outcome.read_for_resync), (lost, lost * needed), "{code}");
        let whole_ns = 0.3e9 + 2e9 / needed as f64;
        near(outcome.whole_again_ns as f64, whole_ns, 0.02, "the end of the resync");
        assert_eq!(outcome.stopped, 0);
        assert!(outcome.detours > 0);
        assert!((20_000_000..30_000_000).contains(&outcome.longest_ns), "{}", outcome.longest_ns);
    }
}

#[test]
fn the_same_seed_gives_the_same() {
    let run = |seed: &str| simulate(&setup(&[("seed", seed), ("seconds", "0.05")]));
    assert_eq!(format!("{:?}", run("7")), format!("{:?}", run("7")));
    assert_ne!(format!("{:?}", run("7")), format!("{:?}", run("8")));
}
