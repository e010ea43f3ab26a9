//! The commands that read block traces, as called from the command line.

use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use terapage_blocktrace::{Format, Options, Request, open};
use terapage_sim::Command;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn run(arguments: &[&str]) -> Result<(), String> {
    let cli = Cli::try_parse_from(std::iter::once("terapage").chain(arguments.iter().copied()));
    cli.map_err(|error| error.to_string())?.command.run().map_err(|error| format!("{error:#}"))
}

fn requests(path: &Path) -> (Format, Vec<Request>) {
    let reader = open(path, &Options::default()).unwrap();
    (reader.meta().format, reader.map(Result::unwrap).collect())
}

/// A folder with a small MSR trace of two volumes.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let mut text = String::new();
    for number in 0..100u64 {
        text += &format!(
            "{},hm,{},{},{},4096,9\n",
            number * 10,
            number % 2,
            ["Read", "Write"][number as usize % 3 % 2],
            number * 512
        );
    }
    fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn formats_follow_suffixes() {
    let (folder, input) = folder();
    let (_, expected) = requests(&input);
    for (name, format) in [
        ("a.tera", Format::Tera),
        ("b.ssdsim.gz", Format::Ssdsim),
        ("c.fio.zst", Format::Fio),
        ("d.spc.xz", Format::Spc),
        ("plain", Format::Tera),
    ] {
        let out = folder.path().join(name);
        run(&["convert", input.to_str().unwrap(), out.to_str().unwrap()]).unwrap();
        assert_eq!(requests(&out), (format, expected.clone()), "{name}");
    }
}

#[test]
fn a_volume_is_picked_and_a_name_kept() {
    let (folder, input) = folder();
    let (out, again) = (folder.path().join("x.tera"), folder.path().join("y.tera"));
    let (input, out_name) = (input.to_str().unwrap(), out.to_str().unwrap());
    run(&["convert", "--volume", "hm_1", "--name", "half", "--synthetic", input, out_name]).unwrap();
    run(&["convert", out_name, again.to_str().unwrap()]).unwrap();
    let reader = open(&again, &Options::default()).unwrap();
    assert_eq!((reader.meta().name.as_str(), reader.meta().synthetic), ("half", true));
    assert_eq!(reader.count(), 50);
}

#[test]
fn errors_leave_nothing_behind() {
    let (folder, input) = folder();
    let out = folder.path().join("out");
    let (input_name, out_name) = (input.to_str().unwrap(), out.to_str().unwrap());
    let error = run(&["convert", input_name, out_name, "--to", "oraclegeneral"]).unwrap_err();
    assert_eq!(
        error,
        "as oraclegeneral: request 2 does not fit: the format has one volume (--volume picks one, --lossy merges them)"
    );
    let error = run(&["convert", input_name, out_name, "--to", "arc"]).unwrap_err();
    assert!(error.starts_with("arc traces are read, not written"), "{error}");
    let error = run(&["convert", input_name, input_name]).unwrap_err();
    assert!(error.contains("write to another file"), "{error}");
    let damaged = fs::read_to_string(&input).unwrap().replace(",hm,0,Read,5120,", ",hm,0,Raed,5120,");
    let damaged = if damaged == fs::read_to_string(&input).unwrap() {
        damaged.replace(",hm,0,Write,5120,", ",hm,0,Raed,5120,")
    } else {
        damaged
    };
    fs::write(&input, damaged).unwrap();
    let error = run(&["convert", input_name, out_name]).unwrap_err();
    assert_eq!(error, format!("{input_name}, line 11: expected Read or Write, found \"Raed\""));
    let error = run(&["info", input_name]).unwrap_err();
    assert!(error.contains("line 11"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the input is there");
    run(&["convert", input_name, out_name, "--skip-bad", "1"]).unwrap();
    assert_eq!(requests(&out).1.len(), 99);
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    let (folder, input) = folder();
    let marked = folder.path().join("bom.csv");
    fs::write(&marked, [b"\xef\xbb\xbf", fs::read(&input).unwrap().as_slice()].concat()).unwrap();
    assert_eq!(requests(&marked), requests(&input));
}

#[test]
fn a_trace_without_requests_is_refused_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let header = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
    for (name, text) in [("blank.csv", "\n\n\n   \n"), ("header.csv", header)] {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let (path, out) = (path.to_str().unwrap(), folder.path().join("out.tera"));
        let out = out.to_str().unwrap();
        for arguments in [
            &["cache", "--policy", "lru", "--size", "10%", "--format", "msr", path][..],
            &["info", "--format", "msr", path],
            &["ssd", "--format", "msr", path],
            &["convert", "--format", "msr", path, out],
        ] {
            let error = run(arguments).expect_err(&format!("{arguments:?}"));
            assert!(error.contains("no request"), "{arguments:?}: {error}");
        }
        assert!(!Path::new(out).exists());
    }
}

/// A killed conversion runs no code that could remove its output: the output has no name until it
/// is complete.
#[test]
fn an_unfinished_output_has_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.tera");
    let options = terapage_blocktrace::WriterOptions::default();
    let writer = terapage_blocktrace::Writer::create(&out, Format::Tera, &options).unwrap();
    let names = || fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names(), 0);
    writer.finish().unwrap();
    assert!(out.exists() && names() == 1);
    // A second conversion replaces the file.
    let writer = terapage_blocktrace::Writer::create(&out, Format::Tera, &options).unwrap();
    assert_eq!(names(), 1);
    writer.finish().unwrap();
    assert!(out.exists() && names() == 1);
}
