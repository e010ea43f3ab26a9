//! The lab as a program: its output, the input that it refuses, and that it leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// The stand-in's counters.
const STATS: &str =
    r#"{"started_s": 1, "block_bytes": 8192, "budget_bytes": 32768, "page_in_bytes": 327680}"#;

/// An experiment: passes over 24 MiB with 16 MiB of memory, once.
const SCAN: &str = r#"
title = "A scan"
unit = "MiB/s"
contenders = ["memory", "swap"]
repetitions = { least = 1, most = 1 }
control = false
[program]
run = ["{lab}", "workload", "scan", "--bytes", "{data}", "--threads", "2"]
[sizes]
data = "24M"
memory = "16M"
"#;

/// Another: GNU sort, with two budgets.
const SORT: &str = r#"
title = "A sort"
unit = "s"
contenders = ["memory", "terapage"]
repetitions = { least = 1, most = 1 }
control = false
[program]
run = ["sort", "--parallel=2", "{text}"]
passes = "time"
text = "100K"
[sizes]
data = "24M"
memory = "budget"
[matrix]
budget = ["8M", "4M"]
"#;

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

/// The directory for the record and lock of a test's labs, since tests run at the same time.
fn state(directory: &Path) -> PathBuf {
    directory.join("state")
}

/// Runs `experiment`, written to a file, with further arguments.
fn run(program: &Path, place: &Path, experiment: &str, more: &[&str], terapage: Option<&Path>) -> Output {
    let mut command = of_experiment(program, place, experiment, more);
    if let Some(terapage) = terapage {
        command.env("TERAPAGE_BIN", terapage);
    }
    command.output().expect("the lab runs")
}

fn of_experiment(program: &Path, place: &Path, experiment: &str, more: &[&str]) -> Command {
    fs::write(place.join("one.toml"), experiment).expect("a file");
    let mut command = Command::new(program);
    command.args(["run", "one.toml", "--dir", ".", "--results", "results"]).args(more);
    command.current_dir(place).env_remove("TERAPAGE_BIN").env("TERAPAGE_LAB_STATE", state(place));
    command.env("TERAPAGE_LAB_RETRIES", "0");
    command
}

/// A stand-in for terapage: understands `run ... --stats FILE -- PROGRAM ...`, keeps these words in
/// `stand-in.words`, and then does `then`.
fn stand_in(directory: &Path, then: &str) -> PathBuf {
    let path = directory.join("stand-in");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do\necho \"$1\" >> \"$0.words\"\n\
         [ \"$1\" = --stats ] && echo '{STATS}' > \"$2\"\nshift\ndone\nshift\n{then}\n"
    );
    // A separate process writes it. If this process had it open for writing, a child of another
    // test could inherit the descriptor, and the file could not be run (ETXTBSY).
    let writer = ["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", &script];
    let written = Command::new("sh").args(writer).arg(&path).status().expect("sh runs");
    assert!(written.success());
    path
}

/// The runs that were measured.
fn runs(place: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(place.join("results/one.jsonl")).expect("results");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    lines.filter(|line: &serde_json::Value| line["line"] == "run").collect()
}

/// How each run of a contender ended.
fn ends(runs: &[serde_json::Value], contender: &str) -> Vec<serde_json::Value> {
    runs.iter().filter(|run| run["contender"] == contender).map(|run| run["end"].clone()).collect()
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

/// The things that a lab with this id has left in the directory, in /proc/swaps and among the
/// cgroups.
fn left_behind(directory: &Path, id: u32) -> Vec<String> {
    let mine = format!("terapage-lab-{id}");
    let mut left = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be read").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("terapage-lab-") && !name.starts_with("terapage-lab-text-") {
            left.push(name);
        }
    }
    // The record is removed last; the lock stays.
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
    let twice = SCAN.replace("least = 1, most = 1", "least = 2, most = 2");
    let mut command = of_experiment(&program, place.path(), &twice, &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the lab runs");
    let id = child.id();
    let output = child.wait_with_output().expect("the lab ends");
    assert!(output.status.success(), "{output:?}");
    let (runs, errors) = (runs(place.path()), String::from_utf8_lossy(&output.stderr));
    for contender in ["memory", "swap"] {
        if let Some(line) = errors.lines().find(|line| line.starts_with(&format!("left out: {contender}: ")))
        {
            println!("SKIPPED: {line}");
            continue;
        }
        let ends = ends(&runs, contender);
        // The kernel kills a small cgroup whose pages wait for a busy disk; a contender that was
        // killed once does not run again.
        let killed = contender == "swap" && ends.last().is_some_and(|end| end == "killed");
        assert!(ends.len() == 2 || killed, "{contender}: {ends:?}");
        let all = ["write", "read", "read-again", "rmw", "read2", "read-threads", "rmw-threads", "triad"];
        for run in runs.iter().filter(|run| run["contender"] == contender && run["end"] == "done") {
            let passes = run["passes"].as_array().expect("passes");
            let names: Vec<_> = passes.iter().map(|pass| pass["pass"].as_str().expect("a name")).collect();
            assert_eq!(names, all, "{contender}");
        }
    }
    assert_eq!(left_behind(place.path(), id), [""; 0]);
}

#[test]
fn random_reads_are_counted_for_each_number_of_threads() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "exec \"$@\"");
    let words = r#""random", "--bytes", "{data}", "--reads", "1000", "--seconds", "3", "--seed", "1""#;
    let random = SCAN
        .replace(
            r#""scan", "--bytes", "{data}", "--threads", "2""#,
            &format!("{words}, \"--threads\", \"1,2,4\""),
        )
        .replace("\"swap\"", "\"terapage\"");
    let output = run(&program, place.path(), &random, &[], Some(&stand_in));
    assert!(output.status.success(), "{output:?}");
    let runs = runs(place.path());
    for contender in ["memory", "terapage"] {
        let run = runs.iter().find(|run| run["contender"] == contender).expect(contender);
        let passes = run["passes"].as_array().expect("passes");
        let reads: Vec<_> = passes.iter().filter(|pass| pass["pass"] != "fill").collect();
        for (pass, threads) in reads.iter().zip([1, 2, 4]) {
            assert_eq!((&pass["threads"], &pass["bytes"]), (&threads.into(), &8000.into()));
        }
        assert_eq!(reads.len(), 3, "{contender}");
    }
}

#[test]
fn what_fits_is_held_against_memory() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "exec \"$@\"");
    let target = |when: &str, to: &str| {
        format!(
            "[[target]]\nof = \"terapage\"\npass = \"write\"\nto = \"{to}\"\nvalue = 1\nwhen = \"{when}\"\n"
        )
    };
    let fits = SCAN.replace("24M", "4M").replace("\"swap\"", "\"swap\", \"terapage\"");
    let experiment = format!("{fits}{}{}", target("fits", "memory"), target("paged", "swap"));
    let output = run(&program, place.path(), &experiment, &["--json", "-"], Some(&stand_in));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the lab prints JSON");
    let targets = report["results"][0]["targets"].as_array().expect("targets");
    assert_eq!(targets.len(), 1, "{targets:?}");
    assert_eq!(targets[0][1]["what"], "terapage write / memory write");
    assert!(targets[0][1]["value"].is_number(), "{targets:?}");
}

#[test]
fn sorts_are_compared_and_the_killed_are_named() {
    let Some(program) = lab() else { return };
    // The workload that finds out whether terapage works is let through.
    let sort_only = |then: &str| format!("case \"$1\" in sort) {then} ;; *) exec \"$@\" ;; esac");
    for (then, expected) in [
        ("exec \"$@\"", serde_json::json!("done")),
        ("echo wrong", serde_json::json!({"failed": "its output differs: time"})),
        ("kill -9 $$", serde_json::json!("killed")),
    ] {
        let place = directory();
        let stand_in = stand_in(place.path(), &sort_only(then));
        let output = run(&program, place.path(), SORT, &[], Some(&stand_in));
        assert_eq!(output.status.code(), Some(i32::from(expected.is_object())), "{then}: {output:?}");
        let runs = runs(place.path());
        assert_eq!(ends(&runs, "memory"), ["done", "done"]);
        for end in ends(&runs, "terapage") {
            // The pass's name, or no name, says which of the outputs differs.
            match expected.is_object() {
                true => {
                    assert!(end["failed"].as_str().is_some_and(|why| why.starts_with("its output differs")))
                }
                false => assert_eq!(end, expected, "{then}"),
            }
        }
        assert_eq!(ends(&runs, "terapage").len(), 2, "{then}");
    }
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "case \"$1\" in sort) exec sleep 1000 ;; *) exec \"$@\" ;; esac");
    let one = SORT.replace("[\"8M\", \"4M\"]", "[\"8M\"]");
    run(&program, place.path(), &one, &["--timeout", "3"], Some(&stand_in));
    assert_eq!(ends(&runs(place.path()), "terapage"), ["timed-out"]);
}

/// A probe that takes too long shows that the machine is slow, not that Terapage cannot be run.
#[test]
fn a_probe_that_takes_too_long_leaves_nobody_out() {
    let Some(program) = lab() else { return };
    let place = directory();
    let stand_in = stand_in(place.path(), "exec sleep 1000");
    let scan = SCAN.replace("\"swap\"", "\"terapage\"");
    let more = ["--contenders", "terapage", "--timeout", "2", "--html", "page.html"];
    run(&program, place.path(), &scan, &more, Some(&stand_in));
    let ends = ends(&runs(place.path()), "terapage");
    assert!(!ends.is_empty() && ends.iter().all(|end| end == "timed-out"), "{ends:?}");
    let page = fs::read_to_string(place.path().join("page.html")).expect("a page");
    assert!(page.contains("timed out"), "the page names the runs that took too long");
}

#[test]
fn a_page_says_why_nobody_can_take_part() {
    let Some(program) = lab() else { return };
    let place = directory();
    let absent = Some(Path::new("/nonexistent/terapage"));
    let experiment = SCAN.replace("\"memory\", \"swap\"", "\"terapage\"");
    assert_ne!(experiment, SCAN);
    let output = run(&program, place.path(), &experiment, &["--html", "page.html"], absent);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = fs::read_to_string(place.path().join("page.html")).expect("a page");
    assert!(page.contains("/nonexistent/terapage"), "the page has the reason");
}

#[test]
fn contenders_that_cannot_take_part_are_named_in_a_line() {
    let Some(program) = lab() else { return };
    let place = directory();
    let absent = Some(Path::new("/nonexistent/terapage"));
    let scan = SCAN.replace("\"swap\"", "\"terapage\"");
    // A named contender is missing.
    for (more, status) in [(&[][..], 0), (&["--contenders", "terapage"], 1)] {
        let output = run(&program, place.path(), &scan, more, absent);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("left out: terapage: ")).collect();
        assert_eq!(lines.len(), 1, "{errors}");
    }
}

#[test]
fn a_terapage_that_does_not_page_is_left_out() {
    let Some(program) = lab() else { return };
    // Runs the program correctly, and leaves no counters, or those of a program that did not grow.
    for counters in ["rm -f \"$file\"", "echo '{\"started_s\": 0, \"regions\": 0}' > \"$file\""] {
        let place = directory();
        let then = format!("for file in \"${{0%/*}}\"/*.stats.json; do {counters}; done; exec \"$@\"");
        let stand_in = stand_in(place.path(), &then);
        let scan = SCAN.replace("\"swap\"", "\"terapage\"");
        let output = run(&program, place.path(), &scan, &[], Some(&stand_in));
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = errors.lines().find(|line| line.starts_with("left out: terapage: "));
        assert!(why.is_some_and(|why| why.contains("not paged")), "{errors}");
        assert_eq!(ends(&runs(place.path()), "terapage").len(), 0);
    }
}

#[test]
fn files_that_were_not_paged_are_no_figure() {
    let Some(program) = lab() else { return };
    let passes = r#""mapped", "--file", "{file}", "--bytes", "{data}", "--pattern", "sequential""#;
    let mapped = SCAN
        .replace(r#""scan", "--bytes", "{data}", "--threads", "2""#, passes)
        .replace("\"swap\"", "\"files\"")
        .replace("data = \"24M\"\nmemory = \"16M\"", "data = \"128M\"\nmemory = \"100M\"");
    // The small file of the probe has 96 MiB, the experiment's 128 MiB.
    for (paged_mib, probed, done) in [(40, false, false), (60, true, false), (70, true, true)] {
        let place = directory();
        let counters = format!("{{\"mapped_file_bytes\": {}, \"files_left\": 2}}", paged_mib << 20);
        let then = format!(
            "for file in \"${{0%/*}}\"/*.stats.json; do echo '{counters}' > \"$file\"; done\nexec \"$@\""
        );
        let stand_in = stand_in(place.path(), &then);
        let output = run(&program, place.path(), &mapped, &["--contenders", "files"], Some(&stand_in));
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("no memory cgroup can be made") {
            println!("SKIPPED: {errors}");
            return;
        }
        let why = "less than half of its data was a paged file";
        assert_eq!(
            errors.contains(&format!("left out: files: terapage failed: its counters say that {why}")),
            !probed,
            "{errors}"
        );
        let runs = runs(place.path());
        let ends = ends(&runs, "files");
        assert_eq!(ends.len(), usize::from(probed), "{errors}");
        if done {
            let run = runs.iter().find(|run| run["contender"] == "files").expect("it ran");
            assert_eq!(
                (&ends[0], &run["notes"][0]),
                (&"done".into(), &"2 parts of files went back to the kernel".into())
            );
            let names: Vec<_> =
                run["passes"].as_array().expect("passes").iter().map(|pass| &pass["pass"]).collect();
            assert_eq!(names, ["first, MiB/s", "again, MiB/s"]);
            // 100 MiB, less 1 % and 32 MiB; in the probe 80 MiB.
            let words = fs::read_to_string(stand_in.with_extension("words")).expect("words");
            let budgets: Vec<&str> = words
                .lines()
                .zip(words.lines().skip(1))
                .filter(|(name, _)| *name == "--memory")
                .map(|(_, value)| value)
                .collect();
            assert_eq!(budgets, [((80 - 32) * 1048576 - 838860).to_string(), (67 << 20).to_string()]);
            assert_eq!(words.lines().filter(|word| *word == "--files").count(), 2);
        } else {
            assert!(
                ends.iter().all(|end| end["failed"].as_str().is_some_and(|said| said.contains(why))),
                "{ends:?}"
            );
        }
    }
}

/// Starts a long experiment and waits until its workload runs, with a swap file in use if that is
/// allowed. Returns the workload's id.
fn start_long(program: &Path, place: &Path) -> (Child, u32) {
    start_contender(program, place, "swap").unwrap_or_else(|| {
        println!("SKIPPED: swap: this machine does not let the lab use it");
        start_contender(program, place, "memory").expect("memory can take part everywhere")
    })
}

fn start_contender(program: &Path, place: &Path, contender: &str) -> Option<(Child, u32)> {
    let long = SCAN
        .replace("\"memory\", \"swap\"", &format!("\"{contender}\""))
        .replace("least = 1, most = 1", "least = 1000, most = 1000")
        .replace("24M", "64M");
    let mut command = of_experiment(program, place, &long, &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the lab runs");
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
    // A loop with another file behind it, and a mount that is gone, no longer belong to the lab.
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

/// The janitor of a lab: the child that the lab tells what must be removed.
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
        let short = SCAN.replace("\"memory\", \"swap\"", "\"memory\"");
        let next = || run(&program, place.path(), &short, &[], None);
        for second in [next(), clean(&program, place.path())] {
            let errors = String::from_utf8_lossy(&second.stderr);
            assert_eq!(second.status.code(), Some(1), "{errors}");
            assert!(errors.contains(&format!("another lab runs (process {id})")), "{errors}");
            assert_eq!(errors.trim().lines().count(), 1, "{errors}");
        }
        // Things that look like the lab's but are not in its record stay.
        let bystander = place.path().join("terapage-lab-1.swap");
        fs::write(&bystander, "mine").expect("a file");
        signal(janitor_of(id), libc::SIGKILL);
        signal(id, libc::SIGKILL);
        child.wait().expect("it can be waited for");
        poll("the workload's end", || (!is_workload(workload)).then_some(()));
        assert!(left_behind(place.path(), id).len() > 1, "the record is left at least");
        let output = match by_next_run {
            true => next(),
            false => clean(&program, place.path()),
        };
        assert!(output.status.success(), "{output:?}");
        assert_eq!(left_behind(place.path(), id), ["terapage-lab-1.swap"]);
        assert_eq!(fs::read_to_string(&bystander).expect("it is there"), "mine");
        let again = clean(&program, place.path());
        assert_eq!(String::from_utf8_lossy(&again.stdout), "nothing was left\n");
    }
}
