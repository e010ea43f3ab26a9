//! `sim cache` as called from the command line.

use clap::Parser;
use serde_json::Value;
use std::fs;
use std::path::Path;
use terapage_sim::Command;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let cli = Cli::try_parse_from(["terapage", "cache"].iter().chain(arguments));
    cli.map_err(|error| error.to_string())?.command.run().map_err(|error| format!("{error:#}"))
}

/// The value under `results` in the output of `--json`.
fn results(trace: &Path, arguments: &[&str]) -> Value {
    let json = trace.with_extension("json");
    let (trace, out) = (trace.to_str().unwrap(), json.to_str().unwrap());
    run(&[&["--json", out, trace][..], arguments].concat()).unwrap();
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    value["results"].clone()
}

fn ratios(results: &Value) -> Vec<(String, f64, f64)> {
    let row = |row: &Value| {
        let number = |name: &str| row[name].as_f64().unwrap();
        (row["policy"].as_str().unwrap().to_owned(), number("byte_miss_ratio"), number("object_miss_ratio"))
    };
    results["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn objects_have_their_own_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("requests.csv");
    // 100 bytes hold a and b, or only c.
    let text = "time,op,key,bytes\n1,get,a,40\n2,get,b,60\n3,get,a,40\n4,set,c,100\n5,get,b,60\n6,delete,b,0\n7,get,b,60\n";
    fs::write(&trace, text).unwrap();
    let results = results(&trace, &["--policy", "lru", "--size", "100"]);
    assert_eq!(results["requests"], 6);
    assert_eq!((&results["objects"], &results["footprint_bytes"]), (&3.into(), &200.into()));
    let (_, bytes, objects) = ratios(&results).pop().unwrap();
    assert!((objects - 5.0 / 6.0).abs() < 1e-12 && (bytes - 320.0 / 360.0).abs() < 1e-12);
}

#[test]
fn keys_without_sizes_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("keys.bin");
    let keys: Vec<u8> = (0..1000u64).flat_map(|at| (at % 10).to_le_bytes()).collect();
    fs::write(&trace, keys).unwrap();
    let arguments = ["--format", "u64", "--policy", "lru,fifo", "--size", "9,10,50%"];
    let found = ratios(&results(&trace, &arguments));
    assert_eq!(found.iter().map(|row| row.2).collect::<Vec<_>>(), [1.0, 1.0, 0.01, 1.0, 1.0, 0.01]);
}

#[test]
fn block_traces_are_blocks_or_objects() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("in.csv");
    // Two blocks at a time, of which the second is the first of the next request.
    let line = |at: u64| format!("{},hm,0,Read,{},8192,9\n", at * 10, at % 5 * 4096);
    fs::write(&trace, (0..50).map(line).collect::<String>()).unwrap();
    let blocks = results(&trace, &["--policy", "lru,auto", "--size", "24K"]);
    assert_eq!((&blocks["requests"], &blocks["block_bytes"]), (&100.into(), &4096.into()));
    assert!((ratios(&blocks)[0].2 - 0.06).abs() < 1e-12);
    let objects = results(&trace, &["--as", "objects", "--policy", "lru", "--size", "100%"]);
    assert_eq!((&objects["requests"], &objects["objects"]), (&50.into(), &5.into()));
    assert!((ratios(&objects)[0].2 - 0.1).abs() < 1e-12);
}

#[test]
fn traces_of_key_value_stores_are_read_by_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    // The output of YCSB's basic client, and RocksDB's block cache trace as its analyzer writes it.
    let ycsb = "READ usertable user6284 [ <all fields>]\nUPDATE usertable user84 [ field1=x ]\n\
                READ usertable user6284 [ <all fields>]\n";
    let rocks = "1551915834254018,4198467,9,4096,0,default,4\n1551915834254021,4198468,9,4096,0,default,4\n\
                 1551915834254033,4198467,9,4096,0,default,4\n";
    for (name, text, columns) in [("ycsb", ycsb, "op=1,key=3"), ("rocks.csv", rocks, "time=1,key=2,size=4")] {
        let trace = folder.path().join(name);
        fs::write(&trace, text).unwrap();
        let found = results(&trace, &["--columns", columns, "--policy", "lru", "--size", "100%"]);
        assert_eq!((&found["requests"], &found["objects"]), (&3.into(), &2.into()), "{name}");
        assert_eq!(found["rows"][0]["misses"], 2, "{name}");
    }
    // Offsets and lengths are blocks.
    let trace = folder.path().join("blocks.csv");
    fs::write(&trace, "lba,bytes,disk\n0,8192,a\n8,4096,a\n8,4096,b\n").unwrap();
    let columns = "offset=lba:512,size=bytes,volume=disk";
    let found = results(&trace, &["--columns", columns, "--policy", "lru", "--size", "100%"]);
    assert_eq!((&found["requests"], &found["block_bytes"]), (&4.into(), &4096.into()));
    assert_eq!(found["rows"][0]["misses"], 3);
}

#[test]
fn what_is_rounded_or_has_another_name_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("in.csv");
    let line = |at: u64| format!("{},hm,0,Read,{},4096,9\n", at * 10, at * at % 50 * 4096);
    fs::write(&trace, (0..400).map(line).collect::<String>()).unwrap();
    let found = results(&trace, &["--policy", "fifo-reinsertion,lirs", "--size", "10000,9K,20%"]);
    let notes = found["notes"].to_string();
    for part in ["fifo-reinsertion is clock.", "--size 10000 is 8 KiB here: whole blocks.", "are the same"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let rows = found["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["cache_bytes"].as_u64().unwrap() % 4096 == 0));
    assert!(rows.iter().any(|row| row["policy"] == "clock"));
    assert!(rows.iter().all(|row| row["least_misses"].as_u64() <= row["misses"].as_u64()));
    assert!(rows.iter().all(|row| row["least_is_reached"] == true));
    let plain = results(&trace, &["--policy", "lru", "--size", "8K"]);
    assert_eq!(plain["notes"], serde_json::json!([]));
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("keys.txt");
    fs::write(&trace, "a\nb\n").unwrap();
    let trace = trace.to_str().unwrap();
    for (arguments, part) in [
        (&["--policy", "best"][..], "'best' is unknown"),
        (&["--policy", "auto"], "it is for blocks"),
        (&["--size", "0"], "is not a size"),
        (&["--size", "x%"], "is not a size"),
        (&["--format", "xls"], "'xls' is unknown"),
        (&["--format", "keys", "--as", "blocks"], "keys have no addresses"),
        (&["--block", "7"], "at least 512"),
        (&["--format", "u64"], "byte 0: expected 8 bytes"),
        (&["--block", "4K"], "--block: it is for blocks, and this trace was read as"),
        (&["--volume", "hm"], "--volume: it is for block traces"),
        (&["--unit", "512"], "--unit: it is for arc"),
        (&["--format", "keys", "--columns", "key=1"], "--columns: it is for CSV"),
    ] {
        let said = run(&[&[trace][..], arguments].concat()).unwrap_err();
        assert!(said.contains(part) && !said.contains('\n'), "{arguments:?}: {said}");
    }
    assert!(run(&["/nowhere/at/all"]).unwrap_err().contains("cannot be opened"));
}

/// Real traces beside this checkout, if there are any: the ARC paper's P3 and others.
#[test]
fn real_traces_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/traces");
    if !folder.is_dir() {
        println!("SKIPPED: no real traces in {}", folder.display());
        return;
    }
    let out = tempfile::tempdir().unwrap();
    for name in ["arc-P3.lis.zst", "msr-hm_0-head.csv", "tpcc-small.trace"] {
        let copy = out.path().join(name);
        fs::copy(folder.join(name), &copy).unwrap();
        let found = results(&copy, &["--size", "1%,10%"]);
        let policies = terapage_eviction::all().filter(|known| known.sized).count();
        assert_eq!(ratios(&found).len(), 2 * policies, "{name}");
        let inside = |(_, bytes, objects): &(String, f64, f64)| *bytes > 0.0 && *objects <= 1.0;
        assert!(ratios(&found).iter().all(inside), "{name}");
    }
}
