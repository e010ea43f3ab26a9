//! The lab as a program: what it prints, what it refuses, and that it leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the stand-in's counters say: 4 frames, 40 blocks read.
const STATS: &str =
    r#"{"started_s": 1, "block_bytes": 8192, "budget_bytes": 32768, "page_in_bytes": 327680}"#;

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

/// Where a test's labs keep their record and lock: tests run at the same time.
fn state(directory: &Path) -> PathBuf {
    directory.join("state")
}

fn run(program: &Path, directory: &Path, arguments: &[&str], terapage: Option<&Path>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).arg("--dir").arg(directory).env_remove("TERAPAGE_BIN");
    command.env("TERAPAGE_LAB_STATE", state(directory));
    if let Some(terapage) = terapage {
        command.env("TERAPAGE_BIN", terapage);
    }
    command.output().expect("the lab runs")
}

/// A stand-in for terapage: knows `run ... --stats FILE -- PROGRAM ...` and then does `then`. The
/// file `trace` beside it is the trace of each run; `$off` is set where prefetch is off.
fn stand_in(directory: &Path, then: &str) -> PathBuf {
    let path = directory.join("stand-in");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do\n\
         [ \"$1\" = --stats ] && echo '{STATS}' > \"$2\"\n\
         [ \"$1\" = --trace ] && cp \"${{0%/*}}/trace\" \"$2\"\n\
         [ \"$1 $2\" = '--prefetch off' ] && off=1\nshift\ndone\nshift\n{then}\n"
    );
    // A process of its own writes it: a file that this one has open for writing could be inherited
    // by a child of another test, and then not be run (ETXTBSY).
    let writer = ["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &script];
    let written = Command::new("sh").args(writer).arg(&path).status().expect("sh runs");
    assert!(written.success());
    path
}

/// The report; that something failed, or could not take part, is the tests' own matter.
fn json(output: &Output) -> serde_json::Value {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the lab prints JSON")
}

/// How each run of a contender ended.
fn ends<'a>(report: &'a serde_json::Value, contender: &str) -> Vec<&'a serde_json::Value> {
    let runs = report["runs"].as_array().expect("runs");
    runs.iter().filter(|run| run["contender"] == contender).map(|run| &run["end"]).collect()
}

/// Names in `directory` and below whose last part is `name`.
fn find(directory: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .flat_map(|entry| match entry.file_name() == name {
            true => vec![entry.path()],
            false => find(&entry.path(), name),
        })
        .collect()
}

/// What a lab with this id has left in the directory, in /proc/swaps and among the cgroups.
fn left_behind(directory: &Path, id: u32) -> Vec<String> {
    let mine = format!("terapage-lab-{id}");
    let mut left = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be read").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("terapage-lab-") && !name.starts_with("terapage-lab-text-") {
            left.push(name);
        }
    }
    // The record goes last; the lock stays.
    for entry in fs::read_dir(state(directory)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lock" {
            left.push(name);
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let place = directory.to_string_lossy();
    left.extend(swaps.lines().filter(|line| line.contains(&*place)).map(str::to_owned));
    left.extend(find(Path::new("/sys/fs/cgroup"), &mine).iter().map(|path| path.display().to_string()));
    left
}

fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_tiny_scan_is_reported_and_leaves_nothing() {
    let Some(program) = lab() else { return };
    let place = directory();
    let arguments = [
        "scan",
        "--data",
        "24M",
        "--memory",
        "16M",
        "--rounds",
        "2",
        "--json",
        "-",
        "--contenders",
        "memory,swap",
    ];
    let child = Command::new(&program)
        .args(arguments)
        .arg("--dir")
        .arg(place.path())
        .env("TERAPAGE_LAB_STATE", state(place.path()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the lab runs");
    let id = child.id();
    let output = child.wait_with_output().expect("the lab ends");
    let report = json(&output);
    for contender in ["memory", "swap"] {
        let left_out = report["left_out"].as_array().expect("who was left out");
        if let Some(entry) = left_out.iter().find(|entry| entry[0] == contender) {
            println!("SKIPPED: {contender}: {}", entry[1]);
            continue;
        }
        let ends = ends(&report, contender);
        assert_eq!(ends.len(), 2, "{contender}");
        // The kernel kills a small cgroup whose pages wait for a busy disk.
        let fine = |end: &serde_json::Value| end == "done" || contender == "swap" && end == "killed";
        assert!(ends.iter().all(|end| fine(end)), "{contender}: {ends:?}");
        let figures = report["figures"].as_array().expect("figures");
        let passes = figures.iter().filter(|figure| figure["contender"] == contender);
        let names: Vec<_> = passes.map(|figure| figure["pass"].as_str().expect("a name")).collect();
        let all = ["write", "read", "read-again", "rmw", "read2", "read-threads", "rmw-threads", "triad"];
        // A killed run may have given its first passes.
        match ends.contains(&&serde_json::json!("done")) {
            true => assert_eq!(names, all, "{contender}"),
            false => assert_eq!(names, all[..names.len()], "{contender}"),
        }
    }
    assert_eq!(report["targets"][0]["met"], serde_json::Value::Null);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("not measured"), "the table goes to standard error: {text}");
    assert_eq!(left_behind(place.path(), id), [""; 0]);
}

#[test]
fn random_reads_are_counted_for_each_number_of_threads() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "exec \"$@\"");
    let arguments = [
        "random",
        "--data",
        "4M",
        "--memory",
        "2M",
        "--reads",
        "1000",
        "--rounds",
        "1",
        "--json",
        "-",
        "--contenders",
        "memory,terapage",
    ];
    let report = json(&run(&program, place.path(), &arguments, Some(&stand_in)));
    for contender in ["memory", "terapage"] {
        let runs = report["runs"].as_array().expect("runs");
        let run = runs.iter().find(|run| run["contender"] == contender).expect(contender);
        for (pass, (threads, reads)) in [(1, 1000), (2, 1000), (4, 1000)].into_iter().enumerate() {
            assert_eq!(run["passes"][pass]["threads"], threads);
            assert_eq!(run["passes"][pass]["bytes"], reads * 8);
        }
    }
    assert!(report["setting"].as_str().is_some_and(|setting| setting.contains("fio reads 8 KiB")));
}

#[test]
fn what_fits_is_held_against_memory() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "exec \"$@\"");
    for (experiment, pass) in [("scan", "write"), ("random", "threads-1")] {
        let sizes = ["--data", "4M", "--memory", "16M", "--rounds", "1", "--json", "-"];
        let arguments = [&[experiment][..], &sizes, &["--contenders", "memory,terapage"]].concat();
        let report = json(&run(&program, place.path(), &arguments, Some(&stand_in)));
        let target = &report["targets"][0];
        assert_eq!(target["what"], format!("terapage {pass} / memory {pass}"));
        assert!(target["value"].is_number(), "{target}");
    }
}

#[test]
fn sorts_are_compared_and_the_killed_are_named() {
    let Some(program) = lab() else { return };
    let arguments = [
        "sort",
        "--size",
        "100K",
        "--memory",
        "8M",
        "--memory",
        "4M",
        "--rounds",
        "1",
        "--json",
        "-",
        "--contenders",
        "memory,terapage",
    ];
    // The workload that finds out whether terapage works is let through.
    let sort_only = |then: &str| format!("case \"$1\" in sort) {then} ;; *) exec \"$@\" ;; esac");
    for (then, expected) in [
        ("exec \"$@\"", serde_json::json!("done")),
        ("echo wrong", serde_json::json!({"failed": "its output differs"})),
        ("kill -9 $$", serde_json::json!("killed")),
    ] {
        let place = directory();
        let stand_in = stand_in(place.path(), &sort_only(then));
        let output = run(&program, place.path(), &arguments, Some(&stand_in));
        let report = json(&output);
        assert_eq!(output.status.code(), Some(i32::from(expected.is_object())), "{then}");
        assert_eq!(ends(&report, "native"), [&serde_json::json!("done")]);
        for budget in ["8 MiB", "4 MiB"] {
            assert_eq!(ends(&report, &format!("terapage {budget}")), [&expected], "{then}");
        }
    }
}

/// Writes the trace of a program that goes through 8 blocks five times; gives its references.
fn write_trace(path: &Path) -> Vec<u32> {
    use terapage_trace::{Event, Header, Record, Writer};
    let program = "sort".to_owned();
    let header = Header { block_bytes: 8192, pid: 1, start_us: 1, budget_bytes: 32768, program };
    let mut writer = Writer::new(fs::File::create(path).expect("a file"), &header).expect("a trace");
    let touched: Vec<u32> = (0..5).flat_map(|_| 0..8).collect();
    for (i, &block) in touched.iter().enumerate() {
        let event = if i < 8 { Event::FirstTouch { block } } else { Event::HardFault { block } };
        writer.record(&Record { time_us: i as u64, event }).expect("a record");
    }
    writer.finish().expect("an end");
    touched
}

#[test]
fn page_ins_are_held_against_the_optimum_of_the_densest_recording() {
    let Some(program) = lab() else { return };
    let arguments = [
        "sort",
        "--size",
        "100K",
        "--memory",
        "8M",
        "--rounds",
        "1",
        "--json",
        "-",
        "--contenders",
        "terapage",
    ];
    // One that can record with a window of an eighth of the budget, and one that cannot record at
    // all.
    let killed = "[ -n \"$off\" ] && kill -9 $$\nexec \"$@\"";
    for (then, recorded) in [("exec \"$@\"", 1 << 20), (killed, 8 << 20)] {
        let place = directory();
        let touched = write_trace(&place.path().join("trace"));
        let optimum = terapage_policy::belady::belady(&touched, 4);
        let stand_in = stand_in(place.path(), then);
        let output = run(&program, place.path(), &arguments, Some(&stand_in));
        let report = json(&output);
        let found = &report["optima"][0];
        assert_eq!(found["page_ins"], 40, "{found}");
        assert_eq!(found["optimum"], optimum, "{found}");
        assert_eq!(found["references"], 40);
        assert_eq!(found["first_touches"], 8);
        assert_eq!(found["recorded_window_bytes"], recorded);
        let notes = found["notes"].as_array().expect("notes");
        let noted = notes.iter().any(|note| note == "a recording with a window of 4 MiB: killed");
        assert_eq!(noted, then == killed, "{notes:?}");
        let targets = report["targets"].as_array().expect("targets");
        let target = targets.iter().find(|target| target["what"] == "terapage 8 MiB: page-ins / optimum");
        assert_eq!(target.expect("a target")["value"], 40.0 / optimum as f64);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("smallest budget: terapage 8 MiB completes\n"), "{text}");
    }
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "case \"$1\" in sort) exec sleep 1000 ;; *) exec \"$@\" ;; esac");
    let arguments = [
        "sort",
        "--size",
        "10K",
        "--memory",
        "8M",
        "--rounds",
        "1",
        "--timeout",
        "3",
        "--json",
        "-",
        "--contenders",
        "terapage",
    ];
    let report = json(&run(&program, place.path(), &arguments, Some(&stand_in)));
    assert_eq!(ends(&report, "terapage 8 MiB"), ["timed-out"]);
}

#[test]
fn contenders_that_cannot_take_part_are_named_in_a_line() {
    let Some(program) = lab() else { return };
    let place = directory();
    let arguments = ["scan", "--data", "1M", "--rounds", "1", "--contenders", "memory,terapage"];
    let output = run(&program, place.path(), &arguments, Some(Path::new("/nonexistent/terapage")));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("left out: terapage: ")).collect();
    assert_eq!(lines.len(), 1, "{errors}");
}

#[test]
fn a_terapage_that_does_not_page_is_left_out() {
    let Some(program) = lab() else { return };
    let place = directory();
    // Runs the program as it should, and leaves no counters, or those of a program that did not
    // grow.
    for counters in ["rm -f \"$file\"", "echo '{\"started_s\": 0, \"regions\": 0}' > \"$file\""] {
        let then = format!("for file in \"${{0%/*}}\"/*.stats.json; do {counters}; done; exec \"$@\"");
        let stand_in = stand_in(place.path(), &then);
        let arguments =
            ["scan", "--data", "1M", "--rounds", "1", "--json", "-", "--contenders", "memory,terapage"];
        let report = json(&run(&program, place.path(), &arguments, Some(&stand_in)));
        let why = report["left_out"][0][1].as_str().expect("terapage was left out");
        assert!(why.contains("not paged"), "{why}");
        assert_eq!(ends(&report, "terapage").len(), 0);
    }
}

#[test]
fn nonsense_is_refused_in_one_line() {
    let Some(program) = lab() else { return };
    let place = directory();
    for arguments in [
        ["scan", "--data", "nonsense"],
        ["scan", "--data", "-5M"],
        ["scan", "--memory", "0"],
        ["random", "--data", "12X"],
        ["random", "--block", "1"],
        ["random", "--block", "5000"],
        ["scan", "--block", "4M"],
        ["scan", "--json", "/nonexistent/report.json"],
        ["sort", "--json", "/var/tmp"],
        ["sort", "--size", ""],
        ["sort", "--memory", "-1"],
        ["sort", "--record-window", "1K"],
        ["sort", "--dir", "/nonexistent"],
    ] {
        let mut command = Command::new(&program);
        if arguments[1] != "--dir" {
            command.arg(arguments[0]).arg("--dir").arg(place.path()).args(&arguments[1..]);
        } else {
            command.args(arguments);
        }
        command.env("TERAPAGE_LAB_STATE", state(place.path()));
        let output = command.output().expect("the lab runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{arguments:?}: {errors}");
        assert!(errors.contains(arguments[1]), "{arguments:?}: {errors}");
    }
}

/// Starts a long experiment and waits until its workload runs, with a swap file in use where that
/// is allowed. Gives the workload's id.
fn start_long(program: &Path, place: &Path) -> (Child, u32) {
    start_contender(program, place, "swap").unwrap_or_else(|| {
        println!("SKIPPED: swap: this machine does not let the lab use it");
        start_contender(program, place, "memory").expect("memory can take part everywhere")
    })
}

fn start_contender(program: &Path, place: &Path, contender: &str) -> Option<(Child, u32)> {
    let mut child = Command::new(program)
        .args(["scan", "--data", "64M", "--memory", "16M", "--rounds", "1000", "--contenders", contender])
        .arg("--dir")
        .arg(place)
        .env("TERAPAGE_LAB_STATE", state(place))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the lab runs");
    let lab = child.id();
    let workload = poll("a workload or the lab's end", || {
        if child.try_wait().expect("it can be waited for").is_some() {
            return Some(None);
        }
        let mut processes = fs::read_dir("/proc").ok()?.flatten();
        let workload = processes.find_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            (parent == lab && is_workload(id)).then_some(id)
        });
        workload.map(Some)
    })?;
    Some((child, workload))
}

fn is_workload(id: u32) -> bool {
    let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&arguments).contains("\0workload\0")
}

fn signal(id: u32, signal: i32) {
    let id = i32::try_from(id).expect("an id");
    // SAFETY: kill takes two integers; the id is that of a child that was not waited for.
    assert_eq!(unsafe { libc::kill(id, signal) }, 0);
}

#[test]
fn a_signal_in_mid_run_leaves_nothing() {
    let Some(program) = lab() else { return };
    for which in [libc::SIGTERM, libc::SIGINT] {
        let place = directory();
        let (mut child, workload) = start_long(&program, place.path());
        let id = child.id();
        signal(id, which);
        let status = poll("the lab's end", || child.try_wait().expect("it can be waited for"));
        assert_eq!(status.code(), Some(1));
        assert_eq!(left_behind(place.path(), id), [""; 0]);
        assert!(!is_workload(workload));
    }
}

#[test]
fn after_sigkill_the_janitor_takes_everything_down() {
    let Some(program) = lab() else { return };
    let place = directory();
    let (mut child, workload) = start_long(&program, place.path());
    let id = child.id();
    signal(id, libc::SIGKILL);
    child.wait().expect("it can be waited for");
    poll("the workload's end", || (!is_workload(workload)).then_some(()));
    poll("the janitor's work", || left_behind(place.path(), id).is_empty().then_some(()));
}

fn ends_well(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn mounts_loops_settings_and_directories_are_undone_by_the_record() {
    let Some(program) = lab() else { return };
    let place = directory();
    let path = |name: &str| place.path().join(name).display().to_string();
    fs::create_dir_all(state(place.path())).expect("a directory");
    let rights = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(state(place.path()), rights).expect("a directory of ours");
    fs::write(path("image"), vec![0; 8 << 20]).expect("a file");
    fs::write(path("setting"), "mine").expect("a file");
    fs::create_dir(path("point")).expect("a directory");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot");
    let mut record = format!("boot {}\nlab 1 1\n+file {}\n", boot.trim(), path("image"));
    record += &format!("+setting theirs {}\n+directory {}\n", path("setting"), path("point"));
    let device = ends_well("losetup", &["--find", "--show", &path("image")]);
    let mounted = device.as_ref().is_some_and(|device| {
        record += &format!("+loop {device} {}\n+mount {}\n", path("image"), path("point"));
        ends_well("mkfs.ext4", &["-q", device]).is_some()
            && ends_well("mount", &[device, &path("point")]).is_some()
    });
    if !mounted {
        println!("SKIPPED: mounts: this machine does not let the test use them");
    }
    // A loop that another file is behind, and a mount that is gone, are not the lab's any more.
    record += &format!("+loop /dev/loop0 {}\n+mount {}\n", path("other"), path("absent"));
    fs::write(state(place.path()).join("lab-1.record"), record).expect("a record");
    let output = clean(&program, place.path());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(path("setting")).expect("a file"), "theirs");
    assert!(!Path::new(&path("image")).exists() && !Path::new(&path("point")).exists());
    if let Some(device) = device {
        let behind = Path::new("/sys/block").join(Path::new(&device).file_name().expect("a name"));
        let behind = fs::read_to_string(behind.join("loop/backing_file")).unwrap_or_default();
        assert!(!behind.contains(&path("image")), "{behind}");
    }
    assert_eq!(left_behind(place.path(), 1), [""; 0]);
}

/// The janitor of a lab: its child that is told what there is to take down.
fn janitor_of(lab: u32) -> u32 {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let found = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|id: &u32| {
        let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(lab) && arguments.ends_with(b"\0janitor\0")
    });
    found.expect("a lab has a janitor")
}

fn clean(program: &Path, place: &Path) -> Output {
    let mut command = Command::new(program);
    command.arg("clean").env("TERAPAGE_LAB_STATE", state(place)).output().expect("the lab runs")
}

#[test]
fn what_lab_and_janitor_left_is_taken_down_by_the_record() {
    let Some(program) = lab() else { return };
    for by_next_run in [false, true] {
        let place = directory();
        let (mut child, workload) = start_long(&program, place.path());
        let id = child.id();
        // Another lab does not begin meanwhile, and does not clean.
        let arguments = ["scan", "--data", "1M", "--rounds", "1", "--contenders", "memory"];
        for second in [run(&program, place.path(), &arguments, None), clean(&program, place.path())] {
            let errors = String::from_utf8_lossy(&second.stderr);
            assert_eq!(second.status.code(), Some(1), "{errors}");
            assert!(errors.contains(&format!("another lab runs (process {id})")), "{errors}");
        }
        // What looks like the lab's and is not in its record stays.
        let bystander = place.path().join("terapage-lab-1.swap");
        fs::write(&bystander, "mine").expect("a file");
        signal(janitor_of(id), libc::SIGKILL);
        signal(id, libc::SIGKILL);
        child.wait().expect("it can be waited for");
        poll("the workload's end", || (!is_workload(workload)).then_some(()));
        assert!(left_behind(place.path(), id).len() > 1, "the record is left at least");
        let output = match by_next_run {
            true => run(&program, place.path(), &arguments, None),
            false => clean(&program, place.path()),
        };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(left_behind(place.path(), id), ["terapage-lab-1.swap"]);
        assert_eq!(fs::read_to_string(&bystander).expect("it is there"), "mine");
        let again = clean(&program, place.path());
        assert_eq!(String::from_utf8_lossy(&again.stdout), "nothing was left\n");
    }
}
