//! Configuration that somebody wrote, damaged: no text makes the reader panic, and what it says is
//! one line.

use std::ffi::OsString;
use std::path::Path;
use terapage_config::{Partial, SETTINGS};
use terapage_fuzz::fuzz;

const PARTS: [&str; 28] = [
    "memory",
    "store",
    "block",
    "policy",
    "encrypt",
    "compress",
    "faults",
    " = ",
    "\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    "4G",
    "50%",
    "1e400",
    "-1",
    "99999999999999999999T",
    "mirror:/a+/b",
    "tier:/a,/b",
    "ram:1G",
    "true",
    "valkey://h:6379?grace=5m",
    "zstd:",
    "\u{1F600}\0",
];

#[test]
fn fuzzed_configuration_does_no_harm() {
    let whole = "memory = \"4G\"\nstore = [\"/tmp\", \"ram:1G\"]\nblock = \"64K\"\nencrypt = true\n";
    let one_line = |text: String, from: &str| {
        assert!(!text.is_empty() && !text.trim_end().contains('\n'), "{text:?} of {from:?}");
    };
    let (mut read, mut refused) = (0, 0);
    fuzz("configuration", 1000, |random| {
        let mut text = random.one(&[whole, ""]).to_owned();
        for _ in 0..random.below(12) {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (from, to) = (random.one(&places), random.one(&places));
            match random.below(3) {
                0 if from < to => drop(text.drain(from..to)),
                _ => text.insert_str(from, random.one(&PARTS)),
            }
        }
        match Partial::from_toml(&text, Path::new("config.toml")) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                one_line(error.to_string(), &text);
            }
        }
        let setting = &SETTINGS[random.below(SETTINGS.len())];
        let value: String = (0..random.below(5)).map(|_| random.one(&PARTS)).collect();
        if let Err(error) =
            Partial::from_variables(|name| (name == setting.variable).then(|| OsString::from(&value)))
        {
            one_line(error.to_string(), &value);
        }
    });
    assert!(read > 0 && refused > 0, "{read} were read, {refused} refused");
}
