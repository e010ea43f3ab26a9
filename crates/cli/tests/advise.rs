//! `terapage sim cache` and `terapage advise`, run as a user runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use terapage_advise::cache::Measured;

/// The command, with a separate cache.
fn terapage(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terapage"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TERAPAGE_") && name != "TERAPAGE_LIBRARY" {
            command.env_remove(name);
        }
    }
    command
        .env("XDG_CACHE_HOME", home)
        .env("XDG_CONFIG_HOME", home)
        .env("COLUMNS", "100")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The command is refused with one line that contains this.
fn refused(home: &Path, arguments: &[&str], part: &str) {
    let output = terapage(home, arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{arguments:?}: {said}");
    assert!(said.lines().count() == 1 && said.contains(part), "{arguments:?}: {said}");
}

/// A directory on a disk, and whether programs can be paged here with the library that was built.
fn place() -> Option<tempfile::TempDir> {
    let Ok(place) = tempfile::tempdir_in("/var/tmp") else {
        println!("SKIPPED: /var/tmp cannot be written");
        return None;
    };
    let store = place.path().to_string_lossy().into_owned();
    let output = terapage(place.path(), &["run", "--memory", "64M", "--store", &store, "--", "true"]);
    if !output.status.success() {
        println!("SKIPPED: {}", text(&output.stderr).trim());
        return None;
    }
    Some(place)
}

/// 24 MiB, touched at random.
const PROGRAM: [&str; 13] = [
    env!("CARGO_BIN_EXE_terapage"),
    "lab",
    "workload",
    "random",
    "--bytes",
    "25165824",
    "--reads",
    "3000",
    "--seconds",
    "9",
    "--threads",
    "1",
    "--seed=1",
];

#[test]
fn a_small_program_gets_advice() {
    let Some(place) = place() else { return };
    let home = place.path();
    let file = |name: &str| home.join(name).to_string_lossy().into_owned();
    let (store, page, trace) = (home.to_string_lossy().into_owned(), file("page.html"), file("kept.trace"));
    let first = file("first.json");
    let mut arguments =
        vec!["advise", "--store", &store, "--html", &page, "--json", &first, "--keep", &trace];
    arguments.extend(["--timeout", "20", "--"]);
    arguments.extend(PROGRAM);
    let output = terapage(home, &arguments);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for part in ["knee", "slow-down", "64 KiB", "policy", "store", "use        terapage run --memory "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("Advice for"));
    // The measurement of the store is kept, unless a busy machine makes it useless: then the output
    // says so.
    let kept = std::fs::read_dir(home.join("terapage")).map_or(0, |files| files.count());
    assert!(kept == 1 || kept == 0 && said.contains("DO NOT RELY"), "{kept} kept: {said}");
    nothing_but(home, &["terapage", "page.html", "first.json", "kept.trace"]);

    // The same from the trace, which needs no program; the store is not measured again: what a busy
    // machine measured is put where it would be kept.
    if kept == 0 {
        keep(home, &store, &first);
    }
    let json =
        terapage(home, &["advise", "--store", &store, "--trace", &trace, "--native", "0.05", "--json", "-"]);
    let advice: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let budgets = advice["results"]["advice"]["budgets"].as_array().unwrap();
    let slow_downs: Vec<f64> = budgets.iter().map(|budget| budget["slow_down"].as_f64().unwrap()).collect();
    // Random touches: with little memory the program is predicted to wait, with all of its memory
    // hardly. Between neighbouring budgets the measured times of a busy machine may differ more.
    assert!(slow_downs[0] > 1.5 && slow_downs[0] > slow_downs[slow_downs.len() - 1], "{slow_downs:?}");
    let footprint = advice["results"]["advice"]["footprint_bytes"].as_u64().unwrap();
    assert!((24 << 20..28 << 20).contains(&footprint), "{footprint}");

    simulations(home, &trace);
    limits(home, &store, &trace);
    let mut fails = vec!["advise", "--store", &store, "--"];
    fails.extend(["sh", "-c", "echo no luck >&2; exit 3"]);
    refused(home, &fails, "sh failed (natively, exit status: 3): no luck");
    refused(home, &["advise", "--store", &store, "--", "true"], "too little to be worth paging");
    refused(home, &["advise", "--store", &store, "--", "/not/there"], "/not/there: No such file");
}

/// `sim cache` of the trace: no policy beats the optimum, and bad input is refused.
fn simulations(home: &Path, trace: &str) {
    let output =
        terapage(home, &["sim", "cache", trace, "--size", "50%,80%", "--block", "16K,64K", "--json", "-"]);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let policy = terapage_config::SETTINGS.iter().find(|setting| setting.name == "policy").unwrap();
    let simulated = ["sieve", "slru", "lirs", "wtinylfu", "lfu", "lfuda", "hyperbolic", "lhd"];
    let names: Vec<&str> = policy.names().iter().copied().chain(simulated).collect();
    for block in results["results"]["blocks"].as_array().unwrap() {
        for row in block["compared"]["rows"].as_array().unwrap() {
            let optimum = row["optimum"].as_f64().unwrap();
            let policies = row["policies"].as_array().unwrap();
            let found: Vec<&str> = policies.iter().map(|one| one["policy"].as_str().unwrap()).collect();
            assert_eq!(found, names);
            assert!(policies.iter().all(|one| one["page_ins"].as_f64().unwrap() >= optimum), "{row}");
        }
    }
    let output = terapage(home, &["sim", "cache", trace]);
    assert!(text(&output.stdout).lines().all(|line| line.chars().count() <= 100), "{}", text(&output.stdout));
    refused(home, &["sim", "cache", trace, "--block", "4K"], "--block: blocks of 4096 bytes");
    refused(home, &["sim", "cache", trace, "--size", "many"], "--size: 'many' is not a size");
    refused(
        home,
        &["sim", "cache", trace, "--policy", "best"],
        "--policy: 'best' is unknown (one of auto, lru",
    );
    refused(home, &["sim", "cache", trace, "--sample", "7"], "--sample: '7' is not a share");
    refused(home, &["sim", "cache", trace, "--soft", "100"], "--soft 100");
    refused(home, &["sim", "cache", trace, "--soft", "2.55"], "--soft 2.55: it has one decimal at most");
    // Whatever is simulated otherwise than asked for is named.
    let output = terapage(home, &["sim", "cache", trace, "--size", "20K", "--policy", "lru,lirs"]);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("--size 20K is 32 KiB here: whole blocks, 2 at least."), "{said}");
    assert!(said.contains("Only simulated, not in the pager: lirs."), "{said}");
}

/// What the advice from a trace says of numbers that it cannot use.
fn limits(home: &Path, store: &str, trace: &str) {
    let traced = ["advise", "--store", store, "--trace", trace, "--native", "0.05"];
    let few = [&traced[..], &["--memory", "50%,64K", "--parallelism", "9999"]].concat();
    let said = text(&terapage(home, &few).stdout);
    assert!(said.contains("note       64 KiB are fewer than 8 blocks of 16 KiB: 8 are simulated"), "{said}");
    assert!(said.contains("note       9999.0 threads at once count as "), "{said}");
    for option in [&["--timeout", "9"][..], &["--quick"], &["--keep", "kept.trace"]] {
        refused(home, &[&traced[..], option].concat(), "cannot be used with");
    }
}

/// Keeps the measurement of a store that a result has, though it was made on a busy machine.
fn keep(home: &Path, store: &str, result: &str) {
    let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap();
    let (device, costs) = (&result["results"]["device"], &result["results"]["costs"]);
    let measured = Measured::new(
        Path::new(store),
        serde_json::from_value(device.clone()).unwrap(),
        serde_json::from_value(costs.clone()).unwrap(),
        Vec::new(),
    );
    measured.save_in(home).unwrap();
}

/// Whether a directory has only these entries.
fn nothing_but(directory: &Path, names: &[&str]) {
    let found: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let others = found.iter().filter(|path| !names.iter().any(|name| path.ends_with(name)));
    assert_eq!(others.count(), 0, "{found:?}");
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    refused(home, &["sim", "cache", "/not/there"], "/not/there:");
    let broken = home.join("broken");
    std::fs::write(&broken, b"TERATRC\x02 and no more").unwrap();
    refused(home, &["sim", "cache", broken.to_str().unwrap()], "broken:");
    refused(home, &["advise"], "required");
    refused(home, &["advise", "--trace", "x"], "--native");
    refused(home, &["advise", "--device", "latency=1us", "--", "true"], "read is missing");
    refused(home, &["advise", "--slow-down", "0.5", "--", "true"], "--slow-down 0.5");
    refused(home, &["advise", "--policy", "best", "--", "true"], "'best' is unknown");
    refused(home, &["advise", "--block", "16X", "--", "true"], "--block:");
    refused(home, &["advise", "--store", "/not/there", "--", "true"], "/not/there");
}
