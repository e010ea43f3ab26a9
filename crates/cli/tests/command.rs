//! The command, run as a user runs it: exit status, messages, precedence of settings.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use terapage_stats::{BYTES, FILE_NAME, MAGIC};

/// A separate directory for one test: no settings, and an empty home.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// `terapage` with `arguments`, not yet started.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terapage"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TERAPAGE_") {
                command.env_remove(name);
            }
        }
        command.env("XDG_CONFIG_HOME", self.path()).env_remove("LD_PRELOAD").args(arguments);
        if let Some(library) = library() {
            command.env("TERAPAGE_LIBRARY", library);
        }
        command
    }

    fn terapage(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// A library that can be loaded into anything: the C library.
fn library() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    path.filter(|path| path.contains("/libc.so") || path.contains("/libc-")).map(PathBuf::from).next()
}

/// Whether `terapage run` gets as far as starting a program here.
fn can_run(place: &Place) -> bool {
    let output = place.terapage(&["run", "--", "true"]);
    if !output.status.success() {
        println!("SKIPPED: {}", text(&output.stderr).trim());
    }
    output.status.success()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).unwrap()
}

/// Checks the exit status, and that the message is one line of terapage that contains `part`.
fn assert_error(output: &Output, status: i32, part: &str) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("terapage: ") && message.contains(part), "{message}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_program_that_cannot_be_had_is_told_as_env_does() {
    let place = Place::new();
    assert_error(&place.terapage(&["run", "--", "no-such-program"]), 127, "no-such-program: not found");
    assert_error(&place.terapage(&["run", "--", "/no/such/program"]), 127, "not found");
    assert_error(&place.terapage(&["run", "--", ""]), 127, "name is empty");
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    assert_error(&place.terapage(&["run", "--", file.to_str().unwrap()]), 126, "not executable");
}

#[test]
fn settings_that_cannot_be_are_refused_in_one_line() {
    let place = Place::new();
    for (flag, value) in [
        ("--memory", "0"),
        ("--memory", "-5M"),
        ("--memory", "nan"),
        ("--memory", "4611686018427387905"),
        ("--memory", "0%"),
        ("--memory", "101%"),
        ("--memory", "1K"),
        ("--memory", "1000T"),
        ("--memory", ""),
        ("--store", "/no/such/directory"),
        ("--store", "far:host"),
        ("--store-size", "-1"),
        ("--block", "3K"),
        ("--block", "4M"),
        ("--policy", "best"),
        ("--prefetch", "best"),
        ("--heap", "-x"),
        ("--placement", "random"),
    ] {
        let output = place.terapage(&["run", flag, value, "--", "true"]);
        assert_error(&output, 125, flag.trim_start_matches('-'));
    }
    let output = place.terapage(&["run", "-m", "1048575", "--", "true"]);
    assert_error(&output, 125, "memory: 1048575 is less than the minimum of 1 MiB");
    assert_error(&place.terapage(&["run"]), 125, "required");
    assert_error(&place.terapage(&["run", "--memroy", "1G", "--", "true"]), 125, "--memroy");
    assert_error(&place.terapage(&["run", "--memroy"]), 125, "(see terapage run --help)");
    assert_error(&place.terapage(&["lab", "run", "--date", "1G"]), 125, "(see terapage lab run --help)");
    assert_error(&place.terapage(&["rum"]), 125, "(see terapage --help)");
    assert_error(&place.terapage(&["rn"]), 125, "did you mean 'run'?");
    assert_error(&place.terapage(&["far", "srve"]), 125, "'serve'");
    let both = place.path().join("both");
    let both = both.to_str().unwrap();
    let output = place.terapage(&["run", "--stats", both, "--trace", both, "--", "true"]);
    assert_error(&output, 125, "is the file for the trace, too");
    let file = place.path().join("both.toml");
    fs::write(&file, format!("stats = '{both}'\n")).unwrap();
    let mut command = place.command(&["run", "--config", file.to_str().unwrap(), "--", "true"]);
    assert_error(
        &command.env("TERAPAGE_TRACE", both).output().unwrap(),
        125,
        "is the file for the trace, too",
    );
    assert_error(&place.terapage(&["run", "--config", "/no/file", "--", "true"]), 125, "/no/file");
    let output = place.command(&["run", "--", "true"]).env("TERAPAGE_BLOCK", "99").output().unwrap();
    assert_error(&output, 125, "TERAPAGE_BLOCK");
}

#[test]
fn a_mistyped_variable_is_named() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let output = place.command(&["run", "--", "true"]).env("TERAPAGE_POLCY", "lru").output().unwrap();
    assert!(output.status.success());
    let said = "terapage: warning: no setting is called TERAPAGE_POLCY (did you mean TERAPAGE_POLICY?)\n";
    assert_eq!(text(&output.stderr), said);
    let output = place.command(&["run", "--", "true"]).env("TERAPAGE_FAULTS", "flip=1").output().unwrap();
    assert_error(&output, 125, "TERAPAGE_FAULTS");
}

#[test]
fn a_library_that_is_missing_is_an_error() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let output =
        place.command(&["run", "--", "true"]).env("TERAPAGE_LIBRARY", "/no/lib.so").output().unwrap();
    assert_error(&output, 125, "/no/lib.so");
    // The loader would skip this file, and the program would not be paged.
    let text = place.path().join("lib.so");
    fs::write(&text, "no library").unwrap();
    let output = place.command(&["run", "--", "true"]).env("TERAPAGE_LIBRARY", &text).output().unwrap();
    assert_error(&output, 125, "cannot be loaded as a library");
}

#[test]
fn the_program_keeps_its_status_arguments_and_streams() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let output = place.terapage(&["run", "sh", "-c", "echo out $1; echo err >&2; exit 7", "sh", "--memory"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((&*text(&output.stdout), &*text(&output.stderr)), ("out --memory\n", "err\n"));
}

#[test]
fn the_program_keeps_what_signals_were_ignored_and_blocked() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let signals = ["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"];
    for option in [None, Some("--ignore-signal=PIPE"), Some("--block-signal=USR1")] {
        let status = |prefix: &[&str]| {
            let terapage = place.command(&[]);
            let mut command = Command::new("env");
            command.env_clear();
            command.envs(terapage.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
            command.args(option).args(prefix).args(signals);
            command.output().unwrap()
        };
        let direct = status(&[]);
        if !direct.status.success() {
            println!("SKIPPED: this env(1) has no {option:?}");
            continue;
        }
        let paged = status(&[env!("CARGO_BIN_EXE_terapage"), "run", "--"]);
        assert_eq!(text(&paged.stdout), text(&direct.stdout), "{option:?} {}", text(&paged.stderr));
    }
}

#[test]
fn flags_win_over_variables_over_the_file_over_the_system() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let memory = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shows = ["run", "--", "printenv", "TERAPAGE_MEMORY"];
    fs::create_dir(place.path().join("terapage")).unwrap();
    fs::write(place.path().join("terapage/config.toml"), "memory = '3M'\n").unwrap();
    assert_eq!(memory(&mut place.command(&shows)), "3145728\n");
    assert_eq!(memory(place.command(&shows).env("TERAPAGE_MEMORY", "2M")), "2097152\n");
    let flag = ["run", "--memory", "1M", "--", "printenv", "TERAPAGE_MEMORY"];
    assert_eq!(memory(place.command(&flag).env("TERAPAGE_MEMORY", "2M")), "1048576\n");
    let other = place.path().join("other.toml");
    fs::write(&other, "memory = '5M'\n").unwrap();
    let file = ["run", "--config", other.to_str().unwrap(), "--", "printenv", "TERAPAGE_MEMORY"];
    assert_eq!(memory(&mut place.command(&file)), "5242880\n");
}

#[test]
fn an_unknown_key_is_named_with_its_file() {
    let place = Place::new();
    let file = place.path().join("a.toml");
    fs::write(&file, "memroy = 1\n").unwrap();
    let output = place.terapage(&["run", "--config", file.to_str().unwrap(), "--", "true"]);
    assert_error(&output, 125, "a.toml: unknown key 'memroy'");
}

#[test]
fn a_process_without_paging_has_no_counters() {
    let place = Place::new();
    let init = "1";
    let output = place.terapage(&["stat", init]);
    assert_error(&output, 1, "process 1");
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let output = place.terapage(&["stat", &other.id().to_string()]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_error(&output, 1, "is not paged (not started with terapage run, or still small)");
    assert_error(&place.terapage(&["stat", "4194999"]), 1, "no process");
    assert_error(&place.terapage(&["top", "4194999"]), 1, "no process");
}

#[test]
fn counters_of_a_paged_process_are_shown() {
    let place = Place::new();
    let name = CString::new(FILE_NAME).unwrap();
    let mut memory = File::from(rustix::fs::memfd_create(&name, rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    let words = std::iter::once(MAGIC).chain(1..(BYTES / 8) as u64);
    memory.write_all(&words.flat_map(u64::to_le_bytes).collect::<Vec<_>>()).unwrap();
    let me = std::process::id().to_string();

    let output = place.terapage(&["stat", &me, "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["budget_bytes"], 3);
    let output = place.terapage(&["stat", &me]);
    assert!(output.status.success() && text(&output.stdout).contains("major faults"));
    let output = place.terapage(&["top"]);
    assert!(text(&output.stdout).lines().any(|line| line.split_whitespace().next() == Some(&me)));
}

#[test]
fn the_doctor_gives_a_verdict_and_fixes() {
    let place = Place::new();
    let output = place.terapage(&["doctor"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Paging can"));
    let output = place.terapage(&["doctor", "--json", "--store", "/no/such/directory"]);
    assert_eq!(output.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["works"], false);
    for check in value["checks"].as_array().unwrap() {
        assert_eq!(check["status"] == "ok", check["fix"].is_null(), "{check}");
    }
    let output = place.command(&["doctor"]).env("TERAPAGE_POLCY", "lru").output().unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("no setting is called TERAPAGE_POLCY"), "{shown}");
    assert!(shown.contains("fix: write TERAPAGE_POLICY"), "{shown}");
    let settings =
        value["checks"].as_array().unwrap().iter().find(|check| check["name"] == "settings").unwrap();
    assert_eq!(settings["found"], "store: /no/such/directory does not exist");
    let fix = "make a directory: mkdir /no/such/directory; or an empty file: touch /no/such/directory";
    assert_eq!(settings["fix"], fix);
}

#[test]
fn completions_and_man_pages_are_there() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = place.terapage(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("store-size"), "{shell}");
    }
    let page = text(&place.terapage(&["man"]).stdout);
    assert!(page.contains(".TH") && !page.contains("help(1)"), "{page}");
    let pages = place.path().join("man1");
    assert!(place.terapage(&["man", "--dir", pages.to_str().unwrap()]).status.success());
    let page = fs::read_to_string(pages.join("terapage-run.1")).unwrap();
    let synopsis = page.lines().find(|line| line.starts_with("\\fBterapage run\\fR")).unwrap();
    assert!(synopsis.trim_end().ends_with("[\\-\\-] \\fIPROGRAM\\fR [\\fIARGS\\fR]..."), "{synopsis}");
    assert!(page.contains("store") && page.contains(".SH EXAMPLES\n.nf\nterapage run"), "{page}");
}

/// What bash offers for the last of `words`.
fn offered(place: &Place, words: &[&str]) -> Vec<String> {
    let script = place.path().join("terapage.bash");
    fs::write(&script, place.terapage(&["completions", "bash"]).stdout).unwrap();
    let mut bash = Command::new("bash");
    let ask = "source $0; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); f=$(complete -p terapage | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        $f terapage \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\" 2> /dev/null; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = bash.args(["--norc", "-c", ask]).arg(script).args(words).output().unwrap();
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn names_and_programs_are_completed() {
    let place = Place::new();
    let policy = terapage_config::SETTINGS.iter().find(|setting| setting.name == "policy").unwrap();
    let policies = policy.names();
    assert_eq!(offered(&place, &["terapage", "run", "--policy", ""]), policies);
    let simulated = offered(&place, &["terapage", "sim", "cache", "--policy", ""]);
    assert!(simulated[..policies.len()] == *policies && simulated.len() > policies.len(), "{simulated:?}");
    assert_eq!(offered(&place, &["terapage", "sim", "ssd", "--policy", ""]), policies);
    for (words, name) in [
        (&["run", "--prefetch", ""][..], "stride"),
        (&["run", "--placement", "r"], "round-robin"),
        (&["run", "-b", "6"], "64K"),
        (&["run", "--heap", ""], "large"),
        (&["advise", "--policy", "s"], "s3fifo"),
        (&["lab", "run", "--lang", ""], "ja"),
        (&["sim", "ssd", "--nand", ""], "3d-ct-tlc"),
        (&["sim", "cache", "--policy", "w"], "wtinylfu"),
        (&["sim", "cache", "--format", "u"], "u64"),
        (&["sim", "convert", "--to", "bl"], "blkparse"),
        (&["paper", "run", "stack", "--machine", ""], "polled"),
        (&["run", "-m", "1G", "--", "mkdi"], "mkdir"),
    ] {
        let words = [&["terapage"], words].concat();
        let offered = offered(&place, &words);
        assert!(offered.iter().any(|word| word == name), "{words:?}: {offered:?}");
    }
    let file = place.path().join("store");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for flag in ["--store", "--stats", "--trace", "--config"] {
        assert_eq!(offered(&place, &["terapage", "run", flag, &file[..file.len() - 2]]), [file], "{flag}");
    }
    assert_eq!(offered(&place, &["terapage", "run", "--memory", "1"]), ["1"]);
    let zsh = text(&place.terapage(&["completions", "zsh"]).stdout);
    assert!(zsh.contains("several stores]:STORE:_files'") && zsh.contains(":(auto lru "), "{zsh}");
}

#[test]
fn a_small_stack_is_enough_and_the_programs() {
    let place = Place::new();
    if !can_run(&place) {
        return;
    }
    let mut shell = Command::new("sh");
    let small = place.command(&["run", "--", "sh", "-c", "ulimit -s"]);
    shell.args(["-c", "ulimit -s 64; exec \"$0\" \"$@\""]).arg(small.get_program()).args(small.get_args());
    for (name, value) in small.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(0), "64\n"), "{}", text(&output.stderr));
}

#[test]
fn every_command_has_examples() {
    let place = Place::new();
    for command in ["run", "stat", "top", "metrics", "doctor", "completions", "man"] {
        let output = place.terapage(&[command, "--help"]);
        assert!(output.status.success() && text(&output.stdout).contains("Examples:"), "{command}");
    }
}

#[test]
fn every_flag_is_documented() {
    let docs =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md")).unwrap();
    let help = text(&Place::new().terapage(&["run", "--help"]).stdout);
    let groups: Vec<_> = terapage_config::Group::ALL.map(|group| format!("\n{}:\n", group.heading())).into();
    let at: Vec<_> = groups.iter().map(|heading| help.find(heading.as_str()).expect(heading)).collect();
    assert!(at.is_sorted() && !help.contains("Options:"), "{help}");
    let options = help[at[0]..].split("Examples:").next().unwrap();
    let words = options.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let flags: Vec<_> = words.filter(|word| word.starts_with("--") && *word != "--help").collect();
    assert!(flags.len() > 10, "{flags:?}");
    for flag in flags {
        assert!(docs.contains(&format!("`{flag}`")), "{flag} is not in docs/configuration.md");
    }
    for setting in terapage_config::SETTINGS {
        if setting.hidden {
            assert!(!help.contains(&format!("--{} ", setting.name)), "{} has a flag", setting.name);
            continue;
        }
        let row = format!("`{}` | `{}` |", setting.variable, setting.name);
        assert!(docs.contains(&row), "{row} is not in docs/configuration.md");
    }
}
