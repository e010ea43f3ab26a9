//! The C examples and a random walk, compiled against the header and the static library, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The static library, in the profile of this test.
fn library() -> PathBuf {
    build().join("libterapage.a")
}

/// Builds the workspace in the profile of this test, and returns the directory. Cargo builds a
/// package's libraries for other packages, not for its own tests. What is built alone, or without
/// the tests, would be built again with other features.
fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--offline", "--quiet", "--workspace"])
        .args(["--lib", "--bins", "--tests", "--examples", "--target-dir"])
        .arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    // Build scripts that look at these variables, which this test has from cargo, would run again.
    for (name, _) in std::env::vars() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|start| name.starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    profile.to_owned()
}

/// Compiles an example with `compiler`, and returns the program. `None` if there is no such
/// compiler.
fn compile(compiler: &str, example: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_in("../../../examples/c", compiler, example, flags)
}

/// Compiles a program in another directory.
fn compile_in(directory: &str, compiler: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    // A test that runs at the same time may compile the same program.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let made = MADE.fetch_add(1, Relaxed);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{compiler}-{made}"));
    compile_with(&library(), program, directory, compiler, name, flags)
}

/// Compiles a program with either library, to a given place.
fn compile_with(
    library: &Path,
    program: PathBuf,
    directory: &str,
    compiler: &str,
    name: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join(format!("{directory}/{name}.c")))
        .arg(library)
        .args(["-ldl", "-lm", "-o"])
        .arg(&program)
        .output();
    match output {
        Err(error) => {
            eprintln!("SKIPPED: {compiler}: {error}");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", said(&output));
            Some(program)
        }
    }
}

fn said(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn sort_sorts_a_file_larger_than_its_budget() {
    let Some(program) = compile("cc", "sort", &[]) else { return };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = tempfile::NamedTempFile::new_in(directory).unwrap();
    // 3 million numbers and a few more bytes: 23 MiB, and a budget of 6.
    let mut state = 1u64;
    let mut bytes = Vec::new();
    let mut sum = 0u64;
    for _ in 0..3_000_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sum = sum.wrapping_add(state);
        bytes.extend(state.to_le_bytes());
    }
    bytes.extend(b"end");
    std::fs::write(&file, &bytes).unwrap();
    let output =
        Command::new(program).arg(file.path()).arg("6").env("TERAPAGE_STORE", directory).output().unwrap();
    if output.status.code() == Some(77) {
        eprintln!("SKIPPED: {}", said(&output));
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
    let bytes = std::fs::read(&file).unwrap();
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
    assert!(numbers.is_sorted() && rest == b"end" && numbers.len() == 3_000_000);
    assert_eq!(numbers.iter().fold(0u64, |sum, number| sum.wrapping_add(*number)), sum);
}

#[test]
fn memory_keeps_every_byte_and_refuses_every_mistake() {
    let Some(program) = compile("cc", "memory", &[]) else { return };
    let output = Command::new(program).arg(env!("CARGO_TARGET_TMPDIR")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    eprint!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn random_calls_leave_in_memory_and_files_what_a_model_says() {
    let Some(program) = compile_in("tests", "cc", "walk", &[]) else { return };
    let directory = env!("CARGO_TARGET_TMPDIR");
    for (memory, block, mechanism) in [("2M", "4K", "move"), ("4M", "64K", "copy")] {
        let mut walk = Command::new(&program);
        walk.args([directory, "400"]).env("TERAPAGE_STORE", directory);
        // These settings are not for programs with the C interface, and must be ignored.
        walk.env("TERAPAGE_STATS", "/nowhere/stats").env("TERAPAGE_VERBOSE", "maybe");
        walk.env("TERAPAGE_MEMORY", memory).env("TERAPAGE_BLOCK", block).env("TERAPAGE_MECHANISM", mechanism);
        let output = walk.output().unwrap();
        assert!(output.status.success(), "{memory} {block} {mechanism}: {}", said(&output));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn under_terapage_run_a_program_has_one_pager() {
    let Some(program) = compile_in("tests", "cc", "walk", &[]) else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stats = directory.path().join("stats");
    for (memory, block, mechanism) in [("6M", "4K", "move"), ("8M", "64K", "copy")] {
        let mut run = Command::new(build().join("terapage"));
        run.args(["run", "--memory", memory, "--block", block, "--store"]).arg(directory.path());
        run.arg("--stats").arg(&stats).arg("--").arg(&program).arg(directory.path()).arg("300");
        run.env("TERAPAGE_MECHANISM", mechanism).env("TERAPAGE_START_BYTES", "0");
        let output = run.output().unwrap();
        if is_refusal(&said(&output)) {
            eprintln!("SKIPPED: {}", said(&output));
            return;
        }
        assert!(output.status.success(), "{memory} {block} {mechanism}: {}", said(&output));
        // The pager with these counters paged the program's memory and files.
        let counters = std::fs::read_to_string(&stats).unwrap();
        assert!(!counters.contains("\"page_out_bytes\":0,"), "{counters}");
        assert!(!counters.contains("\"page_in_bytes\":0,"), "{counters}");
    }
}

#[test]
fn programs_begin_and_end_in_ways_of_their_own() {
    let Some(program) = compile_in("tests", "cc", "ends", &[]) else { return };
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = tempfile::NamedTempFile::new_in(directory).unwrap();
    let (shared, file) = (library().with_extension("so"), file.path());
    let nothing = Path::new("");
    let ways = [
        ("main-ends", nothing),
        ("fork-at-exit", nothing),
        ("fork-at-first-use", nothing),
        ("fork-on-own-stack", nothing),
        ("unload", &shared),
        ("limit", file),
        ("descriptors", file),
        ("short", nothing),
        ("locked", nothing),
        ("processors", nothing),
        ("closed", file),
        ("closed-all", nothing),
        ("others", nothing),
        ("cancelled", file),
    ];
    for (way, name) in ways {
        let mut ends = Command::new(&program);
        ends.arg(way).arg(name).env("TERAPAGE_STORE", directory).env("TERAPAGE_MEMORY", "2M");
        let output = ends.output().unwrap();
        let said = said(&output);
        if is_refusal(&said) {
            eprintln!("SKIPPED: {way}: {said}");
            continue;
        }
        assert!(output.status.success(), "{way}: {said}");
    }
}

/// Whether `tera_error` says that there is no userfaultfd or io_uring.
fn is_refusal(said: &str) -> bool {
    ["(errno 1, ", "(errno 38, "].iter().any(|refusal| said.contains(refusal))
}

#[test]
fn a_paged_program_with_the_library_in_it_ends_with_its_last_thread() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let built = build();
    let (library, shared) = (built.join("libterapage.a"), built.join("libterapage.so"));
    // The loader looks for the name and version that the library itself states.
    std::os::unix::fs::symlink(&shared, directory.path().join("libterapage.so.0")).unwrap();
    let path = format!("-Wl,-rpath,{}", directory.path().display());
    let nothing = Path::new("");
    let programs: [(&str, &Path, &[&str], &Path); 4] = [
        ("static", &library, &[], nothing),
        ("its-names-seen", &library, &["-rdynamic"], nothing),
        ("shared", &shared, &[&path], nothing),
        ("loads-another", &library, &[], &shared),
    ];
    for (name, library, flags, loads) in programs {
        let program = directory.path().join(name);
        let Some(program) = compile_with(library, program, "tests", "cc", "ends", flags) else { return };
        let plain = Command::new(&program)
            .args(["main-ends", ""])
            .env("TERAPAGE_STORE", directory.path())
            .env("TERAPAGE_MEMORY", "2M")
            .output()
            .unwrap();
        if is_refusal(&said(&plain)) {
            eprintln!("SKIPPED: {name}: {}", said(&plain));
            return;
        }
        assert!(plain.status.success(), "{name}: {}", said(&plain));
        let paged = Command::new(built.join("terapage"))
            .args(["run", "--memory", "2M", "--store"])
            .arg(directory.path())
            .arg("--")
            .arg(&program)
            .arg("main-ends")
            .arg(loads)
            // The pager works from the start.
            .env("TERAPAGE_START_BYTES", "0")
            .output()
            .unwrap();
        assert!(paged.status.success(), "{name}: {}", said(&paged));
    }
}

#[test]
fn the_header_is_cpp_too() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header.cpp");
    std::fs::write(&source, "#include <terapage.h>\nint main() { return tera_free(tera_malloc(0)); }\n")
        .unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let output = Command::new("c++")
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .args([&include, &source])
        .output();
    match output {
        Err(error) => eprintln!("SKIPPED: c++: {error}"),
        Ok(output) => assert!(output.status.success(), "{}", said(&output)),
    }
}
