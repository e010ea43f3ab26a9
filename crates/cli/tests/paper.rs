//! `terapage paper`, run as a user runs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn terapage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terapage")).env("COLUMNS", "100").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(arguments: &[&str]) -> String {
    let output = terapage(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The command is refused with one line that contains this.
fn refused(arguments: &[&str], part: &str) {
    let output = terapage(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{arguments:?}: {said}");
    assert!(said.lines().count() == 1 && said.contains(part), "{arguments:?}: {said}");
}

#[test]
fn a_volume_is_described_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("hm_0.tera.zst");
    let trace = trace.to_str().unwrap();
    let said = done(&["paper", "run", "fukuchi-volumes", "hm_0", "--requests", "200000", "-o", trace]);
    assert!(said.contains("Synthetic hm_0") && said.contains("LRU hits, 256 MiB"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
    let said = done(&["sim", "info", trace]);
    assert!(said.contains("200000") || said.contains("200,000"), "{said}");
    assert!(said.contains("synthetic"), "{said}");
    let said = done(&["paper", "run", "fukuchi-volumes", "--requests", "50000", "--json", "-"]);
    assert!(said.contains("\"Synthetic volumes\""), "{said}");
}

#[test]
fn a_figure_is_drawn_beside_what_was_published() {
    let small = ["--set", "scale=0.02", "--set", "requests=3000"];
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    for figure in ["table2", "fig3", "fig5", "fig6"] {
        let mut arguments = vec!["paper", "run", "fukuchi", figure, "--html", page.to_str().unwrap()];
        arguments.extend(small);
        let said = done(&arguments);
        assert!(said.contains("All requests are synthetic"), "{said}");
        assert!(said.contains("ublished") && said.contains("prxy_0"), "{said}");
        assert!(said.lines().all(|line| line.chars().count() <= 100), "{said}");
        assert!(std::fs::read_to_string(&page).unwrap().contains("Fukuchi"));
    }
    let mut arguments = vec!["paper", "run", "fukuchi", "table2", "--parameters"];
    arguments.extend(small);
    let said = done(&arguments);
    assert!(said.contains("fitted") && said.contains("over-provisioning"), "{said}");
}

#[test]
fn papers_are_listed() {
    let said = done(&["paper", "list"]);
    let help = done(&["paper", "run", "--help"]);
    let commands: Vec<&str> = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("command ")?.trim().strip_prefix("terapage paper run "))
        .collect();
    let names: BTreeSet<&str> = commands.iter().filter_map(|rest| rest.split(' ').next()).collect();
    assert_eq!(names.len(), 7, "{said}");
    assert!(names.iter().all(|name| help.contains(&format!("\n  {name} "))), "{help}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let known = done(&["paper", "run", words[0], "--help"]);
        let figure = words.get(1).filter(|_| !words[0].contains('-'));
        let is_known = |figure: &&str| known.contains(*figure);
        assert!(figure.is_none_or(is_known), "{command}");
    }
    // Rows that were not measured say so, and the list makes no directory for results.
    assert!(said.contains("not measured on this machine yet"), "{said}");
}

/// The settings of the results, as a set, and their number.
fn results(path: &Path) -> (BTreeSet<String>, usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let settings = lines.iter().map(|line| line.split("\"fitted\"").next().unwrap().to_owned());
    (settings.collect(), lines.len())
}

#[test]
fn a_sweep_goes_on_where_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let arguments = [
        "paper",
        "run",
        "fukuchi-sweep",
        "--set",
        "scm=2%,5%",
        "--set",
        "nand=2d-fg-mlc,3d-ct-tlc",
        "--set",
        "scale=0.02",
        "--set",
        "requests=2000",
        "--volume",
        "hm_0,prxy_0",
        "-o",
        path.to_str().unwrap(),
    ];
    done(&arguments);
    let (whole, lines) = results(&path);
    assert_eq!((whole.len(), lines), (8, 8));
    // As if the machine had crashed while the sixth line was being written.
    let bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(4).unwrap().0;
    std::fs::write(&path, &bytes[..end + 40]).unwrap();
    let output = terapage(&arguments);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("incomplete after 39 bytes; dropped"), "{said}");
    assert!(said.contains("8 points, 5 of them there already"), "{said}");
    assert_eq!(results(&path), (whole, 8));
    // No work is left.
    let before = std::fs::read(&path).unwrap();
    done(&arguments);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn what_is_wrong_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    let out = out.to_str().unwrap();
    refused(&["paper", "run", "fukuchi-volumes", "zork"], "there is no volume zork; there are prxy_0, ");
    refused(&["paper", "run", "fukuchi-volumes", "/none.toml"], "/none.toml");
    refused(&["paper", "run", "fukuchi-volumes", "-o", out], "required");
    refused(&["paper", "run", "fukuchi", "fig4"], "fig3");
    refused(&["paper", "run", "fukuchi", "fig3", "--trace", "hm_0"], "VOLUME=FILE");
    refused(&["paper", "run", "fukuchi", "fig3", "--trace", "usr_0=x"], "the paper has no such volume");
    refused(&["paper", "run", "fukuchi", "fig3", "--trace", "hm_0=/none.csv"], "/none.csv");
    refused(&["paper", "run", "fukuchi", "fig3", "--set", "read=80"], "a time, as 100ns");
    refused(
        &["paper", "run", "fukuchi-sweep", "--set", "scmm=1%", "--volume", "hm_0", "-o", out],
        "did you mean scm? there are nand, page, ",
    );
    refused(
        &["paper", "run", "fukuchi-sweep", "--set", "scm=1%", "-o", out],
        "give --volume NAME or --trace FILE",
    );
    refused(
        &["paper", "run", "fukuchi-sweep", "--set", "scm=1%,much", "--volume", "hm_0", "-o", out],
        "scm=much",
    );
    refused(
        &[
            "paper",
            "run",
            "fukuchi-sweep",
            "--set",
            "scm=1%",
            "--set",
            "scm=2%",
            "--volume",
            "hm_0",
            "-o",
            out,
        ],
        "twice",
    );
    refused(
        &["paper", "run", "fukuchi-sweep", "--volume", "proj_3", "--memory", "1M", "-o", out],
        "--memory is 1 MiB",
    );
    assert!(!Path::new(out).exists(), "a sweep that was refused leaves nothing");
    std::fs::write(out, "nonsense\n").unwrap();
    refused(
        &["paper", "run", "fukuchi-sweep", "--volume", "hm_0", "-o", out],
        "line 1 is not a result of a sweep",
    );
    assert!(done(&["paper", "run", "fukuchi-sweep", "--list"]).contains("over-provisioning"));
}

#[test]
fn measurements_on_what_is_no_free_device_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let path = file.to_str().unwrap();
    refused(&["paper", "run", "bonnie", "--i-may-erase", path], "file is no block device");
    refused(&["paper", "run", "bonnie", "--i-may-erase", "/dev/nonexistent"], "/dev/nonexistent");
    refused(&["paper", "run", "stack-measure", path], "file is no block device");
    // Options that would have no effect.
    refused(
        &["paper", "run", "bonnie", "--i-may-erase", "/dev/x", "--device", "x=/var/tmp"],
        "cannot be used with",
    );
    refused(&["paper", "run", "stack-measure", "/dev/x", "--device", "x=/var/tmp"], "cannot be used with");
    refused(&["paper", "run", "stack-guest", "--quick"], "--quick");
    refused(&["paper", "run", "stack-guest", "--prices", path], "--prices: it is for experiments");
    refused(&["paper", "guest", "--part", "paths"], "only as the first process of an emulated machine");
    let absent = terapage(&["paper", "run", "stack-guest", "absent.deb", "--results", path]);
    let said = text(&absent.stderr);
    assert!(!absent.status.success() && said.lines().count() == 1, "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn measurements_say_what_they_take_and_touch_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    for name in ["bonnie", "stack-measure"] {
        let said = done(&["paper", "run", name, "--quick", "--dry-run", "--dir", place, "--results", place]);
        assert!(said.contains(name) && said.contains("of disk at once"), "{said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A file system in a file, mounted; dropping this value unmounts it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Path) -> Option<Mounted> {
        let (image, point) = (place.join("image"), place.join("point"));
        std::fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).unwrap();
        std::fs::create_dir(&point).expect("a directory");
        let works = |tool: &str, arguments: &[&std::ffi::OsStr]| {
            Command::new(tool).args(arguments).output().is_ok_and(|output| output.status.success())
        };
        let (image, target) = (image.as_os_str(), point.as_os_str());
        let made = works("/sbin/mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image])
            && works("mount", &["-o".as_ref(), "loop".as_ref(), image, target]);
        made.then_some(Mounted(point))
    }

    fn device(&self) -> String {
        let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
        let own = format!(" {} ", self.0.display());
        let line = mounts.lines().find(|line| line.contains(&own)).expect("it is mounted");
        line.split(' ').next().expect("a device").to_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The loop is removed with the mount.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_mounted_device_is_not_erased() {
    let folder = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    let Some(mounted) = Mounted::new(folder.path()) else {
        println!("SKIPPED: no file can be mounted here");
        return;
    };
    let place = folder.path().to_str().unwrap();
    let arguments = ["paper", "run", "bonnie", "--quick", "--dir", place, "--i-may-erase", &mounted.device()];
    refused(&arguments, "is in use");
}
