//! `--json` and `--html` mean the same in every command of the simulators that shows a study.

use std::fs;
use std::process::{Command, Output};

fn terapage(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terapage")).env("COLUMNS", "60").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two hundred requests in SSDsim's format.
fn trace() -> String {
    (0..200u64).map(|n| format!("{} 0 {} 8 {}\n", n * 1000, n * 7919 % 4000 * 8, n % 2)).collect()
}

#[test]
fn json_and_html_are_written_by_one_rule() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (input, json, html, other) =
        (place("in.trace"), place("out.json"), place("out.html"), place("other"));
    fs::write(&input, trace()).unwrap();
    let small = ["--set", "scale=0.02", "--set", "requests=1000"];
    let commands: [(&[&str], &[&str]); 5] = [
        (&["sim", "info", &input], &[]),
        (&["sim", "ssd", &input], &[]),
        (&["paper", "run", "fukuchi-volumes", "web_1", "--requests", "1000"], &[]),
        (&["paper", "run", "fukuchi", "fig6"], &small),
        (&["paper", "run", "stack", "--stack", "nvme", "--rate", "100k", "--time", "1", "--seeds", "1"], &[]),
    ];
    for (command, more) in commands {
        let run = |options: &[&str]| terapage(&[command, more, options].concat());
        let alone = run(&["--json", "-"]);
        assert!(alone.status.success(), "{command:?}: {}", text(&alone.stderr));
        let shown = text(&alone.stdout);
        assert!(shown.starts_with("{\n  \"title\"") && shown.ends_with("}\n"), "{command:?}: {shown}");
        let both = run(&["--json", &json, "--html", &html, "--parameters"]);
        assert!(both.status.success(), "{command:?}: {}", text(&both.stderr));
        let shown = text(&both.stdout);
        assert!(!shown.starts_with('{') && shown.lines().all(|line| line.chars().count() <= 60), "{shown}");
        assert!(fs::read_to_string(&html).unwrap().starts_with("<!DOCTYPE html"));
        let again = terapage(&["sim", "report", &json]);
        assert_eq!(text(&again.stdout).lines().next(), shown.lines().next(), "{command:?}");
        // Any existing file that is not such output is not overwritten.
        fs::write(&other, "not JSON").unwrap();
        for option in ["--json", "--html"] {
            let refused = run(&[option, &other]);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(125), "{command:?}: {said}");
            assert!(said.lines().count() == 1 && said.contains("holds something else"), "{said}");
            assert_eq!(fs::read_to_string(&other).unwrap(), "not JSON");
        }
    }
    let said = text(&terapage(&["sim", "info", &input, "--json", &input]).stderr);
    assert!(said.contains("is an input; write to another file"), "{said}");
    assert_eq!(fs::read_to_string(&input).unwrap(), trace());
}
