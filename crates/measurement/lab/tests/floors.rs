//! The lab's folders are floors: each imports only from those below it.

use std::fs;
use std::path::Path;

/// From the top down.
const FLOORS: [&str; 7] = ["commands", "campaign", "result", "contender", "ground", "experiment", "workload"];

#[test]
fn imports_go_down_only() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = fs::read_dir(&source).expect("the sources").flatten();
    let folders = entries.filter(|entry| entry.path().join("mod.rs").exists()).count();
    assert_eq!(folders, FLOORS.len(), "a folder has no floor");
    let mut wrong = Vec::new();
    for (floor, folder) in FLOORS.iter().enumerate() {
        for entry in fs::read_dir(source.join(folder)).expect("a folder").flatten() {
            let text = fs::read_to_string(entry.path()).expect("a file of text");
            // Paths must be written in full, so that this test can read them.
            let mut upward: Vec<String> =
                FLOORS[..floor].iter().map(|name| format!("crate::{name}")).collect();
            upward.extend(["crate::{".into(), "super::super::".into()]);
            let found = upward.iter().filter(|path| text.contains(path.as_str()));
            wrong.extend(found.map(|path| format!("{}: {path}", entry.path().display())));
        }
    }
    assert!(wrong.is_empty(), "not downwards:\n{}", wrong.join("\n"));
}
