//! Configuration that somebody wrote, damaged: no text makes the reader panic, and what it says is
//! one line. `TERAPAGE_FUZZ_S=60` makes the run a minute long, `TERAPAGE_SEED` repeats one.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};
use terapage_config::{Partial, SETTINGS};

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
    "ram:auto",
    "true",
    "valkey://h:6379?grace=5m",
    "zstd:",
    "\u{1F600}\0",
];

#[test]
fn damaged_configuration_does_no_harm() {
    let seconds = std::env::var("TERAPAGE_FUZZ_S").ok().and_then(|text| text.parse().ok()).unwrap_or(0.2);
    let fresh = UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = std::env::var("TERAPAGE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(fresh);
    println!("TERAPAGE_SEED={seed}");
    let mut state: u64 = seed;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let whole = "memory = \"4G\"\nstore = [\"/tmp\", \"ram:auto\"]\nblock = \"64K\"\nencrypt = true\n";
    let one_line = |text: String, from: &str| {
        assert!(!text.is_empty() && !text.trim_end().contains('\n'), "{text:?} of {from:?}");
    };
    let (mut cases, mut read, mut refused) = (0, 0, 0);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while cases < 1000 || Instant::now() < until {
        let mut text = if random() % 2 == 0 { whole.to_owned() } else { String::new() };
        for _ in 0..random() % 12 {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let (from, to) = (places[random() % places.len()], places[random() % places.len()]);
            match random() % 3 {
                0 if from < to => drop(text.drain(from..to)),
                _ => text.insert_str(from, PARTS[random() % PARTS.len()]),
            }
        }
        match Partial::from_toml(&text, Path::new("config.toml")) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                one_line(error.to_string(), &text);
            }
        }
        let setting = &SETTINGS[random() % SETTINGS.len()];
        let value: String = (0..random() % 5).map(|_| PARTS[random() % PARTS.len()]).collect();
        if let Err(error) =
            Partial::from_variables(|name| (name == setting.variable).then(|| OsString::from(&value)))
        {
            one_line(error.to_string(), &value);
        }
        cases += 1;
    }
    assert!(read > 0 && refused > 0, "{read} of {cases} were read, {refused} refused");
}
