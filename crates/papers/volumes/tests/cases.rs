//! Simulations by name: settings, fitted values, workloads and gains.

use terapage_blocktrace::{Format, Writer, WriterOptions};
use terapage_volumes::published::{GAINS, NANDS};
use terapage_volumes::settings::{self, PARAMETERS, apply};
use terapage_volumes::{
    Amount, Case, Fitted, Generator, MeanGain, Volume, Workload, gain_percent, simulate_all,
};

fn pairs(settings: &[(&str, &str)]) -> Vec<(String, String)> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with(settings: &[(&str, &str)]) -> Case {
    let mut case = Case { traffic_bytes: 64 << 20, ..Case::default() };
    apply(&mut case, &pairs(settings)).unwrap();
    case
}

#[test]
fn each_parameter_changes_the_case() {
    let values = [
        ("nand", "3d-ct-tlc"),
        ("page", "8K"),
        ("pages-per-block", "128"),
        ("write-unit", "3"),
        ("read", "50us"),
        ("program", "500us"),
        ("erase", "9ms"),
        ("planes", "4"),
        ("bus", "800M"),
        ("channels", "8"),
        ("dies", "3"),
        ("capacity", "3G"),
        ("over-provisioning", "7%"),
        ("mapping", "4096"),
        ("gc", "cost-benefit"),
        ("buffer", "1M"),
        ("acknowledge", "programmed"),
        ("flush-after", "5ms"),
        ("suspend", "yes"),
        ("precondition", "steady"),
        ("front", "sata"),
        ("scm", "64M"),
        ("scm-latency", "1us"),
        ("scm-banks", "4"),
        ("scm-bandwidth", "1G"),
        ("cache", "write-only"),
        ("policy", "arc"),
        ("line", "8192"),
        ("evict", "64K"),
        ("pad", "no"),
        ("whole-lines", "yes"),
        ("low-water", "10%"),
        ("high-water", "30%"),
        ("copy-above", "50%"),
        ("depth", "16"),
        ("open", "2"),
        ("traffic", "1G"),
        ("requests", "2M"),
        ("warm-up", "10%"),
        ("seed", "9"),
        ("scale", "0.5"),
    ];
    let base = serde_json::to_value(with(&[])).unwrap();
    for parameter in PARAMETERS {
        let (name, value) = values.iter().find(|(name, _)| *name == parameter.name).expect(parameter.name);
        assert_ne!(serde_json::to_value(with(&[(name, value)])).unwrap(), base, "{name}={value}");
        let error = apply(&mut with(&[]), &pairs(&[(name, "?")]));
        // A policy's name is looked at by the cache.
        assert!(error.is_err() || *name == "policy", "{name}=?");
    }
    assert_eq!(values.len(), PARAMETERS.len());
}

#[test]
fn settings_take_effect_in_one_order() {
    let one = with(&[("nand", "3d-ct-tlc"), ("write-unit", "1"), ("program", "600us")]);
    let other = with(&[("program", "600us"), ("write-unit", "1"), ("nand", "3d-ct-tlc")]);
    assert_eq!(one.ssd, other.ssd);
    assert_eq!(one.ssd.nand.program_ns, [600_000]);
    assert_eq!(with(&[("program", "600us"), ("write-unit", "4")]).ssd.nand.program_ns, [2_400_000]);
    assert_eq!(with(&[("scm", "0.5%")]).scm, Amount::Share(0.005));
}

#[test]
fn wrong_settings_are_named() {
    let said =
        |name: &str, value: &str| apply(&mut with(&[]), &pairs(&[(name, value)])).unwrap_err().to_string();
    assert_eq!(said("read", "80"), "read=80: a time, as 100ns, 80us or 4ms");
    assert_eq!(said("pad", "maybe"), "pad=maybe: there are yes, no");
    assert!(said("scmm", "1%").starts_with("there is no parameter scmm; did you mean scm? there are nand, "));
    assert!(said("zork", "1").starts_with("there is no parameter zork; there are nand, "));
    assert!(said("nand", "4d-tlc").contains("2d-fg-mlc"), "{}", said("nand", "4d-tlc"));
    assert_eq!(said("scm-latency", "0.4ns"), "scm-latency=0.4ns: a time, as 100ns, 80us or 4ms");
    assert!(settings::known().contains(&"scm"));
    let together =
        |settings: &[(&str, &str)]| apply(&mut with(&[]), &pairs(settings)).unwrap_err().to_string();
    let unit = together(&[("nand", "3d-ct-tlc"), ("pages-per-block", "100")]);
    assert_eq!(unit, "pages-per-block=100: a multiple of the write unit, 3 pages");
    let depth = together(&[("open", "2"), ("depth", "4")]);
    assert_eq!(depth, "depth=4: open is given too, and only one of them can be");
}

#[test]
fn what_was_fitted_is_read_and_applied() {
    let fitted = Fitted::built_in();
    assert_eq!(Fitted::parse(&fitted.text(), "again").unwrap().text(), fitted.text());
    for nand in NANDS {
        let case = fitted.case(&Case::default(), nand).unwrap();
        assert_eq!(case.ssd.nand.name, nand);
        assert_eq!(case.ssd.channels.to_string(), fitted.common["channels"]);
    }
    let wrong = "source = \"\"\n[chips]\n[common]\nscm = \"much\"\n";
    let error = Fitted::parse(wrong, "mine.toml").unwrap_err().to_string();
    assert_eq!(error, "mine.toml: scm=much: a size, as 4096, 64K, 16M or 2G");
}

#[test]
fn the_same_case_gives_the_same_outcome() {
    let workload = Workload::synthetic("hm_0").unwrap();
    let case = with(&[("scale", "0.05")]);
    assert_eq!(case.run(&workload).unwrap().iops, case.run(&workload).unwrap().iops);
    let other = Case { seed: 2, ..case.clone() };
    assert_ne!(case.run(&workload).unwrap().iops, other.run(&workload).unwrap().iops);
}

#[test]
fn a_trace_gives_what_its_requests_give() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.tera");
    let volume = Volume::by_name("hm_0").unwrap();
    let options = WriterOptions { synthetic: true, ..WriterOptions::default() };
    let mut writer = Writer::create(&path, Format::Tera, &options).unwrap();
    for request in Generator::new(&volume, 1, 0.05).take(5000) {
        writer.write(&request, "hm_0").unwrap();
    }
    writer.finish().unwrap();
    let trace = Workload::trace("hm_0", &path).unwrap();
    assert!(trace.is_synthetic() && !trace.is_generated());
    assert_eq!(trace.len(), 5000);
    let case = with(&[]);
    let outcome = case.run(&trace).unwrap();
    assert_eq!(outcome.requests + outcome.warm_up, 5000);
    // Traces have no seeds: the second pair is not simulated.
    let cases = [case.clone(), case.clone(), Case { seed: 7, ..case.clone() }, Case { seed: 7, ..case }];
    let workloads = [trace, Workload::synthetic("hm_0").unwrap()];
    let outcomes = simulate_all(&cases, &workloads, 2, || ()).unwrap();
    assert_eq!(outcomes.iter().map(Vec::len).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(MeanGain::of(&outcomes[0]), MeanGain { mean: 0.0, spread: 0.0 });
}

#[test]
fn a_missing_trace_and_an_impossible_setup_are_errors() {
    assert!(Workload::trace("x", std::path::Path::new("/nowhere/x.csv")).is_err());
    let workload = Workload::synthetic("hm_0").unwrap();
    let error = with(&[("policy", "best")]).run(&workload).unwrap_err().to_string();
    assert!(error.starts_with("hm_0: ") && error.contains("lru"), "{error}");
}

/// A longer program time lowers the IOPS of volumes that write, and the built-in values reproduce
/// the sign of each published gain. The simulation is small, to be quick; the whole is `terapage
/// paper run fukuchi table2`.
#[test]
fn slow_programs_cost_what_writes() {
    let fitted = Fitted::built_in();
    let base = Case { traffic_bytes: 256 << 20, scale: 0.05, ..Case::default() };
    let fast = fitted.case(&base, "2d-fg-mlc").unwrap();
    let mut slow = fast.clone();
    apply(&mut slow, &pairs(&[("program", "3ms")])).unwrap();
    let workload = Workload::synthetic(GAINS[1].volume).unwrap();
    let gain = gain_percent(&fast.run(&workload).unwrap(), &slow.run(&workload).unwrap());
    assert!((-80.0..-30.0).contains(&gain), "{gain}");
}
