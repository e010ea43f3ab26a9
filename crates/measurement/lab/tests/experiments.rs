//! Experiments as files, and a user's program: running, keeping, computing and drawing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The example program, which `cargo test` builds beside the tests.
fn lab() -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a test knows its program");
    let path = test.parent()?.parent()?.join("examples/lab");
    if !path.exists() {
        println!("SKIPPED: {} is not built (cargo test -p terapage-lab builds it)", path.display());
        return None;
    }
    Some(path)
}

/// A directory on a disk, as memory file systems hold no swap files.
fn directory() -> TempDir {
    tempfile::Builder::new().prefix("terapage-lab-test-").tempdir_in("/var/tmp").expect("a directory")
}

fn run(program: &Path, place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place).env_remove("TERAPAGE_BIN").env("COLUMNS", "80");
    command.env("TERAPAGE_LAB_RETRIES", "0");
    command.env("TERAPAGE_LAB_STATE", place.join("state")).output().expect("the lab runs")
}

fn text(output: &Output) -> (String, String) {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (of(&output.stdout), of(&output.stderr))
}

const TINY: &str = r#"
title = "Tiny"
unit = "MiB/s"
contenders = ["memory"]
repetitions = { least = 2, most = 2 }
[program]
run = ["{lab}", "workload", "scan", "--bytes", "{data}"]
[sizes]
data = "1M"
[matrix]
size = [1, 2]
[[contender]]
name = "other"
under = "memory"
"#;

/// Runs the tiny experiment; returns the lines of its results.
fn tiny(program: &Path, place: &Path, more: &[&str]) -> (Output, Vec<String>) {
    fs::write(place.join("tiny.toml"), TINY).expect("a file");
    let usual = ["run", "tiny.toml", "--dir", ".", "--results", "res"];
    let output = run(program, place, &[&usual[..], more].concat());
    let lines = fs::read_to_string(place.join("res/tiny.jsonl")).unwrap_or_default();
    (output, lines.lines().map(str::to_owned).collect())
}

#[test]
fn the_same_command_goes_on_and_reports_need_no_machine() {
    let Some(program) = lab() else { return };
    let place = directory();
    let (output, lines) = tiny(&program, place.path(), &["--dry-run"]);
    assert!(output.status.success() && lines.is_empty(), "{output:?}");
    assert!(text(&output).0.contains("10"), "two rounds of 3 and 2 contenders: {output:?}");

    let (output, lines) = tiny(&program, place.path(), &["--html", "a.html", "--json", "a.json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines.len(), 1 + 10, "a head and the runs");
    let (out, _) = text(&output);
    assert!(out.contains("Noise floor") && out.lines().all(|line| line.chars().count() <= 80), "{out}");
    assert!(fs::read_to_string(place.path().join("a.html")).expect("a page").contains("Tiny"));
    let json = fs::read_to_string(place.path().join("a.json")).expect("JSON");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["results"][0]["runs"], 10);

    // The run ended in the middle of the ninth line: the earlier lines stay, the missing runs are
    // made.
    let kept = lines[..8].join("\n") + "\n";
    fs::write(place.path().join("res/tiny.jsonl"), format!("{kept}{}", &lines[8][..50])).expect("a file");
    let (output, again) = tiny(&program, place.path(), &[]);
    assert!(text(&output).1.contains("goes on after 7 runs"), "{output:?}");
    assert_eq!((again.len(), &again[..8]), (11, &lines[..8]));

    let report = run(&program, place.path(), &["report", "res/tiny.jsonl"]);
    assert_eq!(text(&report).0, text(&output).0, "the same from the lines alone");
    // Several files are one report, with each run once; so is their concatenation.
    let twice = run(&program, place.path(), &["report", "res/tiny.jsonl", "res/tiny.jsonl"]);
    assert_eq!(text(&twice).0, text(&output).0);
    let lines = fs::read_to_string(place.path().join("res/tiny.jsonl")).expect("lines");
    fs::write(place.path().join("two.jsonl"), lines.repeat(2)).expect("a file");
    let both = run(&program, place.path(), &["report", "two.jsonl"]);
    assert_eq!(text(&both).0, text(&output).0);
    let compared = run(&program, place.path(), &["compare", "res/tiny.jsonl", "two.jsonl"]);
    assert!(text(&compared).0.contains("1.00"), "{compared:?}");
    // The record is gone, and only the results of the lab remain.
    let state: Vec<_> = fs::read_dir(place.path().join("state")).expect("a directory").flatten().collect();
    assert_eq!(state.len(), 1, "{state:?}");
    let left = fs::read_dir(place.path()).expect("a directory").flatten();
    assert!(
        !left.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("terapage-lab-"))
    );
}

#[test]
fn a_contender_with_data_of_its_own_is_compared_with_itself() {
    let Some(program) = lab() else { return };
    let arrays = TINY.replace("scan", "arrays");
    let other = r#"run = ["{lab}", "workload", "arrays", "--bytes", "{data}", "--iterations", "3"]"#;
    for (own, status) in [("", 1), ("own-data = true", 0)] {
        let place = directory();
        fs::write(place.path().join("tiny.toml"), format!("{arrays}{other}\n{own}\n")).expect("a file");
        let usual = ["run", "tiny.toml", "--dir", ".", "--results", "res"];
        let output = run(&program, place.path(), &usual);
        let (out, errors) = text(&output);
        assert_eq!(output.status.code(), Some(status), "{out}{errors}");
        let lines = fs::read_to_string(place.path().join("res/tiny.jsonl")).expect("results");
        assert_eq!(lines.contains("its output differs"), own.is_empty(), "{lines}");
    }
}

#[test]
fn a_signal_leaves_what_was_measured_and_a_report_of_it() {
    let Some(program) = lab() else { return };
    let place = directory();
    let many = TINY.replace("least = 2, most = 2", "least = 500, most = 500");
    fs::write(place.path().join("tiny.toml"), many).expect("a file");
    let mut command = Command::new(&program);
    command.args(["run", "tiny.toml", "--dir", ".", "--results", "res", "--html", "part.html"]);
    command.current_dir(place.path()).env("TERAPAGE_LAB_STATE", place.path().join("state"));
    command.env("TERAPAGE_LAB_RETRIES", "0");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the lab runs");
    let lines =
        || fs::read_to_string(place.path().join("res/tiny.jsonl")).unwrap_or_default().lines().count();
    let start = Instant::now();
    while lines() < 4 {
        assert!(start.elapsed() < Duration::from_secs(120), "no runs");
        sleep(Duration::from_millis(20));
    }
    let id = i32::try_from(child.id()).expect("an id");
    // SAFETY: kill takes two integers; the id is that of a child that was not waited for.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
    let output = child.wait_with_output().expect("the lab ends");
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("the same command goes on") && errors.contains("signal 2"), "{errors}");
    assert!(out.contains("tiny: Tiny") && out.contains("Not settled"), "{out}");
    let page = fs::read_to_string(place.path().join("part.html")).expect("a page of what there is");
    assert!(page.contains("Not settled") && page.ends_with("</html>"));
    assert!(lines() >= 4);
    let state = fs::read_dir(place.path().join("state")).expect("a directory").count();
    assert_eq!(state, 1, "the lock alone");
}

#[test]
fn a_report_is_markdown_csv_and_japanese_too() {
    let Some(program) = lab() else { return };
    let place = directory();
    let (output, _) = tiny(&program, place.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    let report = |more: &[&str]| {
        let output = run(&program, place.path(), &[&["report", "res/tiny.jsonl"], more].concat());
        assert!(output.status.success(), "{more:?}: {output:?}");
        text(&output).0
    };
    let markdown = report(&["--markdown", "-"]);
    assert!(markdown.starts_with("# tiny: Tiny") && markdown.contains("| contender |"), "{markdown}");
    let csv = report(&["--csv", "-"]);
    assert!(csv.starts_with("part,plot,series,mark,x,"), "{csv}");
    // Passes of less than a tenth of a second are not drawn; slower ones say what their ends are.
    assert!(csv.lines().skip(1).all(|line| line.contains("least and greatest")), "{csv}");
    let japanese = report(&["--lang", "ja", "--html", "ja.html"]);
    assert!(japanese.contains("未収束"), "{japanese}");
    assert!(fs::read_to_string(place.path().join("ja.html")).expect("a page").contains("<html lang=\"ja\">"));
    let refused = run(&program, place.path(), &["report", "res/tiny.jsonl", "--csv", "x", "--markdown", "x"]);
    assert!(text(&refused).1.contains("--markdown and --csv name the same file"), "{refused:?}");
    assert!(!place.path().join("x").exists());
}

#[test]
fn all_says_what_it_takes_and_touches_nothing() {
    let Some(program) = lab() else { return };
    let place = directory();
    let usual = ["all", "--quick", "--dry-run", "--dir", ".", "--results", "res"];
    let output = run(&program, place.path(), &usual);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{errors}");
    let plain = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["raw", "transfer", "In all", "of disk at once", "it ends by"] {
        assert!(plain.contains(part), "{part} is not in\n{out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
}

#[test]
fn a_clock_that_jumps_is_no_figure() {
    let Some(program) = lab() else { return };
    let place = directory();
    let other = TINY.replace(
        "run = [\"{lab}\", \"workload\", \"scan\", \"--bytes\", \"{data}\"]",
        "run = [\"sh\", \"say.sh\"]",
    );
    fs::write(place.path().join("clock.toml"), other).expect("a file");
    for (seconds, fails) in [("0.5", false), ("-3599.5", true), ("0.0", true)] {
        let pass = format!(r#"{{"pass": "p", "seconds": {seconds}, "bytes": 1048576, "threads": 1}}"#);
        fs::write(place.path().join("say.sh"), format!("echo '{pass}'\n")).expect("a file");
        fs::remove_dir_all(place.path().join("res")).ok();
        let output = run(&program, place.path(), &["run", "clock.toml", "--dir", ".", "--results", "res"]);
        let (out, errors) = text(&output);
        assert_eq!(output.status.code(), Some(i32::from(fails)), "{seconds}: {out}{errors}");
        let plain = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(plain.contains("by its own clock"), fails, "{seconds}: {out}");
    }
}

/// Runs a shell script with the lab as `$lab`, in a file system of 24 MiB that is mounted only for
/// it on `small`; `None` if that is impossible.
fn in_a_small_file_system(program: &Path, place: &Path, script: &str) -> Option<Output> {
    fs::create_dir(place.join("small")).expect("a directory");
    let mount = "mount -t tmpfs -o size=24M tmpfs small || exit 99";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mount}\n{script}")]).current_dir(place);
    command.env("lab", program).env("COLUMNS", "80").env("TERAPAGE_LAB_STATE", place.join("state"));
    command.env("TERAPAGE_LAB_RETRIES", "0");
    let output = command.env_remove("TERAPAGE_BIN").output().ok()?;
    let refused = text(&output).1.contains("unshare failed");
    (output.status.code() != Some(99) && !refused).then_some(output)
}

#[test]
fn a_disk_that_fills_up_is_said_and_leaves_nothing() {
    let Some(program) = lab() else { return };
    let place = directory();
    // It asks for less than it needs, so that it begins.
    let large = TINY
        .replace("\"scan\", \"--bytes\", \"{data}\"", "\"raw\", \"--file\", \"{file}\", \"--bytes\", \"{data}\", \"--method\", \"rw\", \"--pattern\", \"sequential-write\", \"--block\", \"1M\"")
        .replace("\"1M\"\n[matrix]", "\"64M\"\n[matrix]");
    fs::write(place.path().join("large.toml"), large).expect("a file");
    let script = "\"$lab\" run large.toml --dir small --results res\n\
                  status=$?; echo \"left: $(ls -A small) end\"; exit $status";
    let Some(output) = in_a_small_file_system(&program, place.path(), script) else {
        println!("SKIPPED: this machine lets the test mount nothing");
        return;
    };
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{errors}");
    let plain = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains("No space left on device"), "{out}{errors}");
    assert!(plain.contains("left: end"), "something is left: {out}");
}

#[test]
fn swap_that_has_other_users_is_said() {
    let Some(program) = lab() else { return };
    let place = directory();
    let swapping = TINY
        .replace("[\"memory\"]", "[\"memory\", \"swap\"]")
        .replace("data = \"1M\"", "data = \"24M\"\nmemory = \"16M\"")
        .replace("least = 2, most = 2", "least = 1, most = 1");
    fs::write(place.path().join("swapping.toml"), swapping).expect("a file");
    // The lab sees a different /proc/swaps: path, bytes in use and priority of one area.
    let with = |area: &str, results: &str| {
        let script = format!(
            "printf 'Filename Type Size Used Priority\\n{area}\\n' > swaps\n\
             mount --bind swaps /proc/swaps || exit 99\n\
             exec \"$lab\" run swapping.toml --dir \"$PWD\" --results {results}"
        );
        let output = in_a_small_file_system(&program, place.path(), &script);
        let _ = fs::remove_dir(place.path().join("small"));
        output.map(|output| text(&output))
    };
    let Some((out, errors)) = with("/elsewhere/their.swap file 65532 0 32767", "rival") else {
        println!("SKIPPED: this machine lets the test mount nothing");
        return;
    };
    let why = "left out: swap: /elsewhere/their.swap is swap of the highest priority too";
    assert!(errors.contains(why), "{out}{errors}");
    // Pages of other programs in the lab's own swap.
    let (out, errors) =
        with("'\"$PWD\"'/terapage-lab-'$$'.swap file 65532 4096 10", "shared").expect("as before");
    if errors.contains("left out: swap") {
        println!("SKIPPED: swap: this machine does not let the lab use it");
        return;
    }
    let kept = fs::read_to_string(place.path().join("shared/swapping.jsonl")).expect("results");
    assert!(kept.contains("others had 4 MiB in its swap"), "{out}{errors}{kept}");
    let plain = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains("Disturbed:"), "{out}");
}

#[test]
fn results_that_find_no_room_end_the_lab_without_half_a_line() {
    let Some(program) = lab() else { return };
    let place = directory();
    fs::write(place.path().join("tiny.toml"), TINY.replace("most = 2", "most = 2000")).expect("a file");
    // The disk fills during the run: once there are lines, the rest of the disk is used up.
    let script = "\"$lab\" run tiny.toml --dir . --results small/res &\n\
                  while [ \"$(cat small/res/tiny.jsonl 2> /dev/null | wc -l)\" -lt 3 ]; do sleep 0.05; done\n\
                  head -c 30M /dev/zero > small/filler 2> /dev/null; wait $!; status=$?\n\
                  cp small/res/tiny.jsonl kept.jsonl; exit $status";
    let Some(output) = in_a_small_file_system(&program, place.path(), script) else {
        println!("SKIPPED: this machine lets the test mount nothing");
        return;
    };
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{errors}");
    assert!(errors.contains("No space left on device") && errors.contains("tiny.jsonl"), "{errors}");
    let kept = fs::read_to_string(place.path().join("kept.jsonl")).expect("results");
    assert!(kept.ends_with("}\n") && kept.lines().count() >= 3, "half a line is left");
    let report = run(&program, place.path(), &["report", "kept.jsonl"]);
    assert!(report.status.success(), "{report:?}");
}

#[test]
fn a_tool_whose_output_has_changed_is_no_figure() {
    let Some(program) = lab() else { return };
    let place = directory();
    let raw = [
        "workload",
        "raw",
        "--file",
        "data",
        "--bytes",
        "1048576",
        "--block",
        "64K",
        "--method",
        "fio-psync",
    ];
    for output in
        ["{\"fio version\": \"fio-9\", \"jobs\": [{\"error\": 0, \"reads\": {}}]}", "fio: all well", "{"]
    {
        let path = stand_in(place.path(), "fio", &format!("#!/bin/sh\ncat <<'END'\n{output}\nEND\n"));
        let mut command = Command::new(&program);
        command.args(raw).args(["--pattern", "random-read"]).current_dir(place.path());
        let output = command.env("PATH", path).output().expect("the lab runs");
        let (out, errors) = text(&output);
        assert!(!output.status.success() && out.is_empty(), "{out}{errors}");
        assert!(errors.contains("fio") && errors.contains("cannot be read"), "{errors}");
    }
}

/// Writes a program that replaces the real one in a test.
fn stand_in(place: &Path, name: &str, script: &str) -> String {
    let path = place.join("bin");
    fs::create_dir_all(&path).expect("a directory");
    let writer = ["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", script];
    let written = Command::new("sh").args(writer).arg(path.join(name)).status().expect("sh runs");
    assert!(written.success());
    format!("{}:{}", path.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn no_run_begins_beyond_a_bound_and_the_same_command_goes_on() {
    let Some(program) = lab() else { return };
    let place = directory();
    let (output, lines) = tiny(&program, place.path(), &["--most-written", "0"]);
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{errors}");
    assert!(errors.contains("0 B are written, --most-written is 0 B"), "{errors}");
    assert_eq!(lines.len(), 1, "a head alone: {lines:?}");
    let (output, lines) = tiny(&program, place.path(), &["--most-minutes", "60", "--most-written", "1T"]);
    assert!(output.status.success(), "{output:?}");
    assert!(lines.len() > 4, "{lines:?}");
}

#[test]
fn a_device_is_written_to_until_its_speed_settles_before_it_is_measured() {
    let Some(program) = lab() else { return };
    let place = directory();
    fs::write(place.path().join("tiny.toml"), TINY).expect("a file");
    // fio's output and files, without two minutes of writes.
    let script = r#"#!/bin/sh
echo "$@" > arguments
for word; do case $word in
  --write_bw_log=*) printf '1000, 4096, 1, 65536, 0
2000, 1024, 1, 65536, 0
' > "${word#*=}_bw.1.log" ;;
  --filename=*) echo written > "${word#*=}" ;;
esac; done
echo '{"jobs": [{"error": 0, "write": {"io_bytes": 5242880, "runtime": 2000}, "steadystate": {"attained": 1, "criterion": "3.1%"}}]}'
"#;
    let path = stand_in(place.path(), "fio", script);
    let usual = ["run", "tiny.toml", "--dir", ".", "--results", "res", "--steady", "40"];
    let mut command = Command::new(&program);
    command.args(usual).args(["--csv", "points.csv"]).current_dir(place.path()).env("PATH", path);
    command.env("COLUMNS", "80").env("TERAPAGE_LAB_STATE", place.path().join("state"));
    command.env("TERAPAGE_LAB_RETRIES", "0");
    let (out, errors) = text(&command.output().expect("the lab runs"));
    let plain = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains("from 4 to 1 MiB/s: settled, within 10 % for 10 s (3.1 %)"), "{out}{errors}");
    let told = fs::read_to_string(place.path().join("arguments")).expect("it was run");
    assert!(told.contains("--steadystate=bw:10%") && told.contains("--runtime=40"), "{told}");
    let points = fs::read_to_string(place.path().join("points.csv")).expect("points");
    assert!(points.contains("until the speed settles"), "{points}");
    let left: Vec<_> = fs::read_dir(place.path()).expect("a directory").flatten().collect();
    assert!(!left.iter().any(|entry| entry.file_name().to_string_lossy().contains("steady")), "{left:?}");
}

#[test]
fn what_is_wrong_is_one_line() {
    let Some(program) = lab() else { return };
    let place = directory();
    fs::write(place.path().join("wrong.toml"), TINY.replace("title", "tittle")).expect("a file");
    fs::write(place.path().join("letters.jsonl"), "my letters\n").expect("a file");
    fs::write(place.path().join("lines.jsonl"), "{\"line\":\"head\"}\n").expect("a file");
    let large = format!("{TINY}[cost]\nseconds = 1\ndisk = \"100000G\"\nwritten = \"0\"\n");
    fs::write(place.path().join("large.toml"), large).expect("a file");
    for (arguments, expected) in [
        (&["run", "large.toml", "--dir", ".", "--results", "res"][..], "97.7 TiB of disk needed, "),
        (&["run", "large.toml", "--dir", ".", "--results", "res", "--steady", "8"], "of disk needed, "),
        (&["run", "wrong.toml"], "wrong.toml: line 2, column 1: unknown field `tittle`"),
        (&["run", "nonsense"], "no experiment is called nonsense"),
        (&["run", "absent.toml"], "absent.toml"),
        (&["run", "scan", "--contenders", "tape"], "tape is none of memory, swap"),
        (&["run", "scan", "--dir", "/nonexistent", "--dry-run", "--html", "/var/tmp"], "--html"),
        (&["report", "letters.jsonl"], "letters.jsonl: line 1: not a line that the lab wrote"),
        (&["report", "absent.jsonl"], "absent.jsonl"),
        (&["report", "--html", "letters.jsonl", "other.jsonl"], "exists, and holds something else"),
        (&["report", "--json", "lines.jsonl", "other.jsonl"], "exists, and holds something else"),
        (&["program", "--ratios", "2,x", "--", "true"], "--ratios: x is not a fraction"),
        (&["program", "--results", "res", "--dir", ".", "--", "/nonexistent/x"], "does not run natively"),
        (&["program", "--results", "res", "--dir", ".", "--", "true"], "too little to be paged"),
    ] {
        let output = run(&program, place.path(), arguments);
        let (_, errors) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.contains(expected), "{arguments:?}: {errors}");
    }
    assert_eq!(fs::read_to_string(place.path().join("letters.jsonl")).expect("a file"), "my letters\n");
}

/// A program that wants 48 MB, writes a line and a file, and ends with exit status 3.
const PYTHON: &str = "import sys, time\nx = bytearray(48000000)\nx[::4096] = b'a' * len(x[::4096])\n\
                      open('made', 'w').write('x' * 9)\ntime.sleep(0.3)\nprint(sum(x[::4096]))\n\
                      print(time.time() if len(sys.argv) > 1 else 0)\nsys.exit(3)\n";

#[test]
fn a_program_is_measured_and_its_output_compared() {
    let Some(program) = lab() else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIPPED: python3 is not installed");
        return;
    }
    let place = directory();
    fs::write(place.path().join("mine.py"), PYTHON).expect("a file");
    let usual = ["program", "--quick", "--dir", ".", "--results", "res", "--ratios", "1,1/2"];
    let options = [&usual[..], &["--contenders", "swap", "--output", "made", "--json", "-"]].concat();
    let output = run(&program, place.path(), &[&options[..], &["--", "python3", "mine.py"]].concat());
    let (out, errors) = text(&output);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{errors}"));
    assert!(errors.contains("exit status 3"), "{errors}");
    let cells = json["results"][0]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let of = |name: &str| {
            let figures = cell["figures"].as_array().expect("figures");
            figures.iter().any(|figure| figure["contender"] == name && figure["pass"] == "time")
        };
        assert!(of("memory"), "{cell}");
        match errors.contains("left out: swap") {
            true => println!("SKIPPED: swap: this machine does not let the lab use it"),
            // It may be killed if the disk is too busy for such a small cgroup.
            false => assert!(of("swap") || cell["ends"][0][1] == "killed", "{cell}"),
        }
    }
    // A program whose output differs natively each time is refused; no contender is blamed.
    let output = run(&program, place.path(), &[&options[..], &["--", "python3", "mine.py", "now"]].concat());
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        out.is_empty() && errors.contains("its output differs from run to run natively"),
        "{out}{errors}"
    );
    // The memory of a program that ends as soon as it has filled its memory is seen in time.
    let fills = "x = bytearray(200 << 20)\nx[::4096] = b'a' * len(x[::4096])\n";
    let quick = [&usual[..], &["--contenders", "memory", "--", "python3", "-c", fills]].concat();
    let (out, errors) = text(&run(&program, place.path(), &quick));
    let wants = errors.split(" wants ").nth(1).and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    assert!(wants.is_some_and(|mib| (60.0..300.0).contains(&mib)), "{out}{errors}");
}

#[test]
fn every_way_to_read_and_write_a_file_moves_its_bytes() {
    let Some(program) = lab() else { return };
    let place = directory();
    let methods = ["rw", "mmap", "msync", "msync-async", "sync-file-range", "direct", "io-uring"];
    let by_fio = ["fio-psync", "fio-mmap", "fio-io-uring"];
    let has_fio = Command::new("fio").arg("--version").output().is_ok();
    if !has_fio {
        println!("SKIPPED: fio is not installed");
    }
    let all = methods.iter().chain(by_fio.iter().filter(|_| has_fio));
    for method in all {
        for pattern in ["random-write", "sequential-write", "random-read", "sequential-read"] {
            let arguments = ["workload", "raw", "--file", "data", "--bytes", "3145728", "--block", "64K"];
            let more = ["--milliseconds", "30000", "--laps", "1", "--method", method, "--pattern", pattern];
            let output = run(&program, place.path(), &[&arguments[..], &more].concat());
            let (out, errors) = text(&output);
            assert!(output.status.success(), "{method} {pattern}: {errors}");
            let lines: Vec<serde_json::Value> =
                out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
            let passes: Vec<_> = lines.iter().filter(|line| line["pass"].is_string()).collect();
            assert!(passes.iter().all(|pass| pass["bytes"] == 3145728), "{method} {pattern}: {out}");
            if method.starts_with("fio") {
                // fio's own work is subtracted if something is left then.
                assert!((1..=2).contains(&passes.len()), "{method} {pattern}: {out}");
                assert_eq!(passes[0]["pass"], "io");
                let less = passes.get(1).is_none_or(|pass| {
                    pass["pass"] == "less-own-work"
                        && pass["seconds"].as_f64() <= passes[0]["seconds"].as_f64()
                });
                assert!(less, "{method} {pattern}: {out}");
            } else {
                let synced = pattern.ends_with("write");
                assert_eq!(passes.len(), 1 + usize::from(synced), "{method} {pattern}: {out}");
            }
        }
    }
    // The contents of the file matter: a wrong byte is found.
    let path = place.path().join("data");
    let rw = ["workload", "raw", "--file", "data", "--bytes", "3145728", "--block", "64K", "--method", "rw"];
    let read =
        || run(&program, place.path(), &[&rw[..], &["--pattern", "sequential-read", "--laps", "1"]].concat());
    assert!(read().status.success());
    let mut bytes = fs::read(&path).expect("the file");
    bytes[65536] ^= 1;
    fs::write(&path, bytes).expect("the file");
    let output = read();
    assert!(text(&output).1.contains("byte 65536 of the file holds something else"), "{output:?}");
}

#[test]
fn kernels_give_the_same_result_for_any_number_of_threads_and_in_a_file() {
    let Some(program) = lab() else { return };
    let place = directory();
    fs::write(place.path().join("map"), vec![0xff; 1 << 20]).expect("a file");
    for kernel in [&["arrays"][..], &["stencil", "--mask", "15"], &["stencil", "--mask", "3"], &["poisson"]] {
        let mut checks = std::collections::BTreeSet::new();
        for more in [&["--threads", "1"][..], &["--threads", "3"], &["--threads", "all", "--map", "map"]] {
            let output =
                run(&program, place.path(), &[&["workload"], kernel, &["--bytes", "1048576"], more].concat());
            let (out, errors) = text(&output);
            assert!(output.status.success(), "{kernel:?}: {errors}");
            for line in out.lines() {
                let pass: serde_json::Value = serde_json::from_str(line).expect("a pass");
                assert!(pass["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{line}");
                checks.insert(pass["check"].as_str().expect("a check").to_owned());
            }
        }
        assert_eq!(checks.len(), 1, "{kernel:?}");
    }
}
