//! Experiments on the lab's own disks: options in force, refusals, and that nothing remains. Most
//! need root and loop devices, and say so if these are missing.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest time before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

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

/// The example program, if loop devices are available.
fn lab_with_loops() -> Option<PathBuf> {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/loop-control");
    if let Err(error) = opened {
        println!("SKIPPED: no loop devices: /dev/loop-control: {error}");
        return None;
    }
    lab()
}

fn has(tool: &str) -> bool {
    let found =
        ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].iter().any(|place| Path::new(place).join(tool).exists());
    if !found {
        println!("SKIPPED: {tool} is not installed");
    }
    found
}

/// A directory on a disk.
fn directory() -> TempDir {
    tempfile::Builder::new().prefix("terapage-lab-test-").tempdir_in("/var/tmp").expect("a directory")
}

fn command(program: &Path, place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(place).env_remove("TERAPAGE_BIN").env("COLUMNS", "100");
    command.env("TERAPAGE_LAB_STATE", place.join("state")).env("XDG_CACHE_HOME", place.join("cache"));
    command.env("TERAPAGE_LAB_RETRIES", "0");
    command
}

fn text(output: &Output) -> (String, String) {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (of(&output.stdout), of(&output.stderr))
}

fn run(program: &Path, place: &Path, arguments: &[&str]) -> Output {
    command(program, place, arguments).output().expect("the lab runs")
}

/// What remains of a lab after a test: files, mounts, loops, limits on devices.
fn left(place: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(place).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("terapage-lab-") {
            left.push(name);
        }
    }
    for entry in fs::read_dir(place.join("state")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "lock" {
            left.push(name);
        }
    }
    let own = place.display().to_string();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    left.extend(mounts.lines().filter(|line| line.contains(&own)).map(str::to_owned));
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let behind = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if behind.contains(&own) {
            left.push(entry.path().display().to_string());
        }
    }
    left
}

/// Numbers of the loops of a test, as limits name them.
fn loops(place: &Path) -> Vec<String> {
    let own = place.display().to_string();
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let behind = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let number = fs::read_to_string(entry.path().join("dev")).ok()?;
        behind.contains(&own).then(|| number.trim().to_owned())
    };
    blocks.filter_map(of).collect()
}

const LIMITS: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

fn limits_of(numbers: &[String]) -> Vec<String> {
    let text = fs::read_to_string(LIMITS).unwrap_or_default();
    let own = |line: &&str| numbers.iter().any(|number| line.split(' ').next() == Some(number));
    text.lines().filter(own).map(str::to_owned).collect()
}

const HEAD: &str = "title = \"Disks\"\nunit = \"s\"\ncontrol = false\nrepetitions = { least = 1, most = 1 }\n\
    cost = { seconds = 1, disk = \"300M\" }\n";

fn experiment(place: &Path, run: &str, contenders: &str) {
    let program = format!("[program]\npasses = \"time\"\nrun = [{run}]\n");
    fs::write(place.join("disks.toml"), format!("{HEAD}{program}{contenders}")).expect("a file");
}

/// A contender with its own disk.
fn contender(name: &str, disk: &str) -> String {
    format!("[[contender]]\nname = \"{name}\"\nunder = \"memory\"\ndisk = {{ {disk} }}\n")
}

const USUAL: [&str; 6] = ["run", "disks.toml", "--dir", ".", "--results", "res"];

#[test]
fn what_is_in_force_is_said_and_what_can_no_longer_be_chosen() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let mut all = contender("plain", "kind = \"ext4\", size = \"64M\", options = \"barrier=0\"");
    all +=
        &contender("nobh", "kind = \"ext3\", size = \"64M\", options = \"nobh\", gone = \"it does nothing\"");
    if has("mkfs.xfs") {
        all += &contender(
            "xfs",
            "kind = \"xfs\", size = \"320M\", options = \"nobarrier\", gone = \"it was removed\"",
        );
    }
    experiment(place.path(), "\"sh\", \"-c\", \"echo x > {disk}/x\"", &all);
    let output = run(&program, place.path(), &USUAL);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{out}{errors}");
    let plain = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains("nobarrier"), "what /proc/mounts shows: {out}");
    let ignored = "nobh is no longer selectable: the mount accepts and ignores it, because it does nothing";
    // Newer kernels may also refuse it.
    let refused = errors.contains("left out: nobh: no longer selectable");
    assert!(plain.contains(ignored) || refused, "{out}{errors}");
    if all.contains("xfs") {
        assert!(errors.contains("left out: xfs: no longer selectable, because it was removed"), "{errors}");
        assert!(errors.contains("nobarrier"), "the kernel's own words: {errors}");
    }
    assert_eq!(left(place.path()), Vec::<String>::new());
}

/// A disk of two devices without an array has a file system on each, and swap lies on its
/// contender's own disk.
#[test]
fn a_disk_may_be_two_file_systems_and_swap_lies_on_its_own_disk() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let disk = "kind = \"ext4\", disks = 2, size = \"64M\"";
    let all = contender("two", disk) + &contender("swap", disk).replace("memory", "swap");
    // Other tests have mounts and swap of their own at the same time.
    let own = place.path().display();
    let script = format!(
        "set -- $(grep -c {own}.*mnt- /proc/mounts) $(grep -c {own}.*mnt-0.*swap /proc/swaps); \
         test $1 = 2 && echo $2 > swaps; exit 0"
    );
    experiment(place.path(), &format!("\"sh\", \"-c\", \"{script}\""), &all);
    let sizes = "[sizes]\nmemory = \"64M\"\ndata = \"16M\"\n";
    let file = place.path().join("disks.toml");
    let whole = fs::read_to_string(&file).expect("a file").replace("[program]", &format!("{sizes}[program]"));
    fs::write(&file, whole).expect("a file");
    let output = run(&program, place.path(), &USUAL);
    let (out, errors) = text(&output);
    if errors.contains("left out: swap") {
        println!("SKIPPED: {errors}");
        return;
    }
    assert!(output.status.success(), "{out}{errors}");
    // The contender that runs last is swap.
    let swaps = fs::read_to_string(place.path().join("swaps")).expect("there were two file systems");
    assert_eq!(swaps.trim(), "1", "{out}{errors}");
    assert_eq!(left(place.path()), Vec::<String>::new());
}

/// Waits until a condition holds.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(50));
    }
}

fn kill(id: u32) {
    let id = i32::try_from(id).expect("an id");
    // SAFETY: kill takes two integers; the id is that of one process.
    unsafe { libc::kill(id, libc::SIGKILL) };
}

/// The lab's janitor: the child that reads from a pipe.
fn janitor(lab: &Child) -> Option<u32> {
    let path = format!("/proc/{0}/task/{0}/children", lab.id());
    let children = fs::read_to_string(path).ok()?;
    children.split_whitespace().filter_map(|id| id.parse().ok()).find(|id| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.ends_with("janitor\0")
    })
}

/// Starts an experiment on throttled disks whose program does not end; returns the loops' numbers.
fn start(program: &Path, place: &Path) -> (Child, Vec<String>) {
    let disk = match has("mkfs.btrfs") {
        true => {
            "kind = \"btrfs\", disks = 4, size = \"160M\", class = \"hdd\", scheduler = \"mq-deadline\", \
             make = [\"-d\", \"raid6\", \"-m\", \"raid1\"]"
        }
        false => "kind = \"ext4\", disks = 1, size = \"64M\", class = \"hdd\"",
    };
    experiment(place, "\"sh\", \"-c\", \"echo x > {disk}/begun; sleep 300\"", &contender("all", disk));
    let log = fs::File::create(place.join("log")).expect("a file");
    let child =
        command(program, place, &USUAL).stdout(Stdio::null()).stderr(log).spawn().expect("the lab runs");
    let begun = || {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let own = place.display().to_string();
        let points =
            mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|point| point.contains(&own));
        points.map(|point| Path::new(point).join("begun")).any(|path| path.exists())
    };
    let ended = || fs::read_to_string(place.join("log")).unwrap_or_default();
    wait_for("the program begins", || {
        assert!(!ended().contains("no contender can take part"), "{}", ended());
        begun()
    });
    (child, loops(place))
}

#[test]
fn nothing_is_left_after_a_kill_of_the_lab() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let (mut child, numbers) = start(&program, place.path());
    assert!(!numbers.is_empty());
    let limited = Path::new(LIMITS).exists() && !limits_of(&numbers).is_empty();
    if !limited {
        println!("SKIPPED: limits: the root cgroup's are not the lab's");
    }
    kill(child.id());
    child.wait().expect("it was killed");
    wait_for("the janitor takes all down", || left(place.path()).is_empty());
    assert_eq!(limits_of(&numbers), Vec::<String>::new());
}

#[test]
fn clean_undoes_what_a_lost_lab_and_janitor_have_left() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let (mut child, numbers) = start(&program, place.path());
    kill(janitor(&child).expect("a janitor"));
    kill(child.id());
    child.wait().expect("it was killed");
    assert!(!left(place.path()).is_empty(), "both are gone");
    let output = run(&program, place.path(), &["clean"]);
    let (out, errors) = text(&output);
    assert!(output.status.success(), "{out}{errors}");
    for what in ["mount ", "loop ", "file ", "directory ", "throttle ", "setting "] {
        let always = !matches!(what, "throttle " | "setting ");
        let wanted = always
            || what == "throttle " && Path::new("/sys/fs/cgroup/blkio/release_agent").exists()
            || what == "setting " && out.contains("btrfs ");
        assert!(!wanted || out.contains(&format!("taken down: {what}")), "{what}: {out}");
    }
    assert_eq!(left(place.path()), Vec::<String>::new());
    assert_eq!(limits_of(&numbers), Vec::<String>::new());
    let again = run(&program, place.path(), &["clean"]);
    assert!(text(&again).0.contains("nothing was left"), "{again:?}");
}

#[test]
fn a_device_that_dies_is_a_failure_and_leaves_nothing() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let run = "\"{lab}\", \"workload\", \"stack\", \"--device\", \"{disk}\", \"--method\", \"libaio\", \
               \"--load\", \"rate-100\", \"--milliseconds\", \"60000\"";
    let text_of =
        format!("{HEAD}[program]\nrun = [{run}]\n").replace("unit = \"s\"", "unit = \"us per I/O\"");
    fs::write(
        place.path().join("disks.toml"),
        text_of + &contender("one", "kind = \"none\", size = \"64M\""),
    )
    .expect("a file");
    let arguments = [&USUAL[..], &["--timeout", "100"]].concat();
    let child =
        command(&program, place.path(), &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the lab runs");
    // The second loop is that of the run: the first one was a trial.
    let group = |child: &Child| {
        let path = format!("/proc/{0}/task/{0}/children", child.id());
        fs::read_to_string(path).unwrap_or_default().split_whitespace().count()
    };
    wait_for("the load runs", || group(&child) == 2 && !loops(place.path()).is_empty());
    sleep(Duration::from_millis(1500));
    assert!(child.try_wait().expect("a child").is_none(), "the load goes on");
    let file = fs::read_dir(place.path()).expect("a directory").flatten().map(|entry| entry.path());
    let file = file.into_iter().find(|path| path.extension() == Some("file".as_ref())).expect("the image");
    fs::File::options().write(true).open(file).expect("the image").set_len(4096).expect("a file");
    let output = child.wait_with_output().expect("the lab ends");
    let (out, errors) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{out}{errors}");
    assert!(out.contains("failed"), "{out}{errors}");
    assert_eq!(left(place.path()), Vec::<String>::new());
}

#[test]
fn a_throttled_loop_gives_what_its_class_says() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let run_line = "\"{lab}\", \"workload\", \"stack\", \"--device\", \"{disk}\", \"--method\", \"libaio\", \
                    \"--load\", \"depth-4\", \"--milliseconds\", \"3000\"";
    let head = HEAD.replace("unit = \"s\"", "unit = \"us per I/O\"").replace("[program]", "");
    let form = format!("{head}[random]\n[program]\nrun = [{run_line}]\n");
    let disk = contender("one", "kind = \"none\", size = \"64M\", class = \"hdd\"");
    fs::write(place.path().join("disks.toml"), form + &disk).expect("a file");
    let output = run(&program, place.path(), &[&USUAL[..], &["--json", "-"]].concat());
    let (out, errors) = text(&output);
    if errors.contains("left out") {
        println!("SKIPPED: {errors}");
        return;
    }
    let json: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{errors}"));
    let figures = json["results"][0]["cells"][0]["figures"].as_array().expect("figures");
    let figure = figures.iter().find(|figure| figure["pass"] == "time of one").expect("it was measured");
    // 120 per second, which a busy machine may miss; never more, except in the first slice.
    let us = figure["spread"]["median"].as_f64().expect("a number");
    assert!(us > 1e6 / 120.0 * 0.93, "{us} us: more than the class has");
    assert!(out.contains("throttled like hdd"), "{out}");
    assert_eq!(left(place.path()), Vec::<String>::new());
}

#[test]
fn places_that_are_no_device_are_refused_before_anything_begins() {
    let Some(program) = lab() else { return };
    let place = directory();
    fs::write(place.path().join("file"), "mine").expect("a file");
    let on_memory = Path::new("/dev/shm").is_dir();
    let shm = ["run", "raw", "--device", "x=/dev/shm"];
    for (arguments, expected) in [
        (&shm[..], "it lies on tmpfs, which has no device to measure"),
        (&["run", "raw", "--device", "x=/nonexistent"], "no such directory"),
        (&["run", "raw", "--device", "x=/var/tmp@tape"], "hdd, hdd-2008, sata-ssd"),
        (&["run", "raw", "--device", "/var/tmp"], "NAME=PATH"),
        // Options that would have no effect.
        (&["run", "raw", "--dir", "/var/tmp", "--device", "x=/var/tmp"], "cannot be used with"),
        (&["program", "--device", "x=/var/tmp", "--", "true"], "--device: it is for experiments"),
        (&["program", "--steady", "9", "--", "true"], "--steady: it is for experiments"),
        (&["program", "--quick", "--rounds", "2", "--", "true"], "cannot be used with"),
        (&["compare", "file", "file", "--prices", "file"], "--prices: it is for results"),
    ] {
        if arguments == shm && !on_memory {
            continue;
        }
        let output = run(&program, place.path(), arguments);
        let (out, errors) = text(&output);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(expected), "{arguments:?}: {out}{errors}");
    }
    assert_eq!(fs::read_to_string(place.path().join("file")).expect("a file"), "mine");
}

#[test]
fn an_overlay_is_no_device() {
    let Some(program) = lab() else { return };
    let place = directory();
    for name in ["below", "above", "work", "both"] {
        fs::create_dir(place.path().join(name)).expect("a directory");
    }
    let script = "mount -t overlay -o lowerdir=below,upperdir=above,workdir=work overlay both || exit 99\n\
                  \"$lab\" run raw --device x=both";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(place.path());
    command.env("lab", program).env("TERAPAGE_LAB_STATE", place.path().join("state"));
    let output = match command.output() {
        Ok(output) if output.status.code() != Some(99) => output,
        _ => return println!("SKIPPED: this machine lets the test mount no overlay"),
    };
    let (out, errors) = text(&output);
    if errors.contains("unshare failed") {
        return println!("SKIPPED: {errors}");
    }
    assert!(!output.status.success(), "{out}");
    assert!(errors.contains("it lies on overlay, which has no device to measure"), "{out}{errors}");
}

#[test]
fn what_is_missing_is_named_with_what_installs_it_and_the_rest_runs() {
    let Some(program) = lab() else { return };
    let place = directory();
    let needs = format!("{HEAD}[program]\npasses = \"time\"\nrun = [\"true\"]\nneeds = [\"bonnie--\"]\n");
    let plain = needs.replace("needs = [\"bonnie--\"]\n", "");
    let memory = "[[contender]]\nname = \"m\"\nunder = \"memory\"\n";
    fs::write(place.path().join("needs.toml"), needs + memory).expect("a file");
    fs::write(place.path().join("plain.toml"), plain + memory).expect("a file");
    let usual = ["--dir", ".", "--results", "res"];
    let alone = run(&program, place.path(), &[&["run", "needs.toml"], &usual[..]].concat());
    let (_, errors) = text(&alone);
    assert_eq!(alone.status.code(), Some(1), "{errors}");
    assert!(errors.contains("bonnie-- is not installed (apt-get install bonnie--)"), "{errors}");
    let both = run(&program, place.path(), &[&["run", "needs.toml", "plain.toml"], &usual[..]].concat());
    let (out, errors) = text(&both);
    assert_eq!(both.status.code(), Some(1), "not all was measured: {errors}");
    assert!(errors.contains("bonnie-- is not installed") && out.contains("time"), "{out}{errors}");
}

#[test]
fn without_root_what_needs_it_is_named() {
    let Some(program) = lab_with_loops() else { return };
    let place = directory();
    let open = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("rights");
    };
    open(place.path());
    let own = place.path().join("lab");
    fs::copy(&program, &own).expect("a copy that anybody can run");
    let mut all = contender("disk", "kind = \"ext4\", size = \"64M\"");
    all += "[[contender]]\nname = \"plain\"\nunder = \"memory\"\n";
    experiment(place.path(), "\"true\"", &all);
    let output = command(&own, place.path(), &USUAL).uid(65534).gid(65534).output().expect("the lab runs");
    let (out, errors) = text(&output);
    if errors.contains("Permission denied") && !errors.contains("loop-control") {
        println!("SKIPPED: nobody may not run it: {errors}");
        return;
    }
    assert!(errors.contains("left out: disk: no loop device is available, which needs root"), "{errors}");
    assert!(out.contains("plain") && output.status.success(), "{out}{errors}");
}
