//! Traces of every format, compressed or not, from files and from standard input: all the same.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The results of `sim cache`, as JSON, without what differs by the file's name.
fn results(trace: &Path, options: &[&str], from_stdin: bool) -> String {
    let name = if from_stdin { "-" } else { trace.to_str().unwrap() };
    let small = ["sim", "cache", name, "--policy", "lru,sieve", "--size", "5%,50%", "--json", "-"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_terapage"));
    command.args(small).args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = if from_stdin { fs::read(trace).unwrap() } else { Vec::new() };
    let writer = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}, {options:?}, {from_stdin}: {said}", trace.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let at = text.find("\"results\"").expect("it has results");
    text[at..].to_owned()
}

fn lines(line: impl Fn(u64) -> String) -> Vec<u8> {
    (0..400).map(|at| line(at) + "\n").collect::<String>().into_bytes()
}

/// Some place that is asked for again later.
fn place(at: u64) -> u64 {
    at * 7919 % 97
}

/// Traces: the name of a format, bytes, and options that the format needs.
fn traces() -> Vec<(&'static str, Vec<u8>, Vec<&'static str>)> {
    let rw = |at: u64| if at.is_multiple_of(3) { "W" } else { "R" };
    let rocksdb = |at: u64| {
        let block = place(at);
        format!("{at},{block},9,{},0,default,2,11,1,0,5,6,100,1,0,12,1,3,22,18,4096", 100 + block)
    };
    let numbers = |bytes: usize| (0..400).flat_map(|at| place(at).to_le_bytes()[..bytes].to_vec()).collect();
    let oracle = |at: u64| {
        let next =
            (at + 1..400).find(|later| place(*later) == place(at)).map_or(-1, |later| later as i64 + 1);
        let (time, object, size) =
            ((at as u32).to_le_bytes(), place(at).to_le_bytes(), 512_u32.to_le_bytes());
        [&time[..], &object, &size, &next.to_le_bytes()].concat()
    };
    vec![
        ("msr", lines(|at| format!("{},hm,0,Read,{},4096,9", at * 1000, place(at) * 4096)), vec![]),
        ("ssdsim", lines(|at| format!("{} 0 {} 8 {}", at * 1000, place(at) * 8, at % 2)), vec![]),
        ("disksim", lines(|at| format!("{at}.5 0 {} 8 {}", place(at) * 8, at % 2)), vec![]),
        ("spc", lines(|at| format!("0,{},4096,{},{at}.5", place(at) * 8, rw(at))), vec![]),
        ("arc", lines(|at| format!("{} 8 0 {at}", place(at) * 8)), vec![]),
        ("alibaba", lines(|at| format!("3,{},{},4096,{}", rw(at), place(at) * 4096, at * 10)), vec![]),
        (
            "tencent",
            lines(|at| format!("{at},{},8,{},7", place(at) * 8, at % 2)),
            vec!["--format", "tencent"],
        ),
        ("systor17", lines(|at| format!("{at}.5,0.1,{},4,{},4096", rw(at), place(at) * 4096)), vec![]),
        ("fiu", lines(|at| format!("{at} 4892 a {} 8 {} 6 0 531e", place(at) * 8, rw(at))), vec![]),
        ("keys", lines(|at| format!("key{}", place(at))), vec![]),
        (
            "csv",
            lines(|at| format!("{at},k{},{}", place(at), 9 + place(at))),
            vec!["--columns", "key=2,size=3"],
        ),
        (
            "csv of blocks",
            lines(|at| format!("{at},{},4096", place(at) * 8)),
            vec!["--columns", "time=1,offset=2:512,size=3"],
        ),
        ("ycsb", lines(|at| format!("READ usertable user{} [ <all fields>]", place(at))), vec![]),
        ("rocksdb", lines(rocksdb), vec![]),
        ("u32", numbers(4), vec!["--format", "u32"]),
        ("u64", numbers(8), vec!["--format", "u64"]),
        ("oraclegeneral", (0..400).flat_map(oracle).collect(), vec![]),
        ("oraclegeneral as blocks", (0..400).flat_map(oracle).collect(), vec!["--as", "blocks"]),
    ]
}

/// The bytes compressed in each way.
fn compressed(bytes: &[u8]) -> [(&'static str, Vec<u8>); 3] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(6)).unwrap();
    xz.write_all(bytes).unwrap();
    [
        ("gz", gzip.finish().unwrap()),
        ("zst", zstd::encode_all(bytes, 3).unwrap()),
        ("xz", xz.finish().unwrap()),
    ]
}

#[test]
fn standard_input_and_compression_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, options) in traces() {
        let plain = folder.path().join(name);
        fs::write(&plain, &bytes).unwrap();
        let expected = results(&plain, &options, false);
        assert_eq!(results(&plain, &options, true), expected, "{name} from standard input");
        for (suffix, bytes) in compressed(&bytes) {
            let packed = folder.path().join(format!("{name}.{suffix}"));
            fs::write(&packed, bytes).unwrap();
            for from_stdin in [false, true] {
                assert_eq!(results(&packed, &options, from_stdin), expected, "{name}.{suffix} {from_stdin}");
            }
        }
    }
}
