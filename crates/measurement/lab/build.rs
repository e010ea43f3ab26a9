//! Lists the experiments that come with the lab: each file in `experiments` is one. Its name is the
//! file's without the number, in whose order `lab all` runs the experiments.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=experiments");
    let own = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let mut files = Vec::new();
    for entry in fs::read_dir(Path::new(&own).join("experiments"))? {
        let path = entry?.path();
        if path.extension() == Some("toml".as_ref()) {
            files.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    files.sort();
    let row = |file: &String| {
        let name = file.strip_suffix(".toml").and_then(|stem| stem.split_once('-'));
        let (_, name) = name.filter(|(number, _)| number.parse::<u32>().is_ok()).expect("NUMBER-NAME.toml");
        format!("({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/experiments/{file}\"))),\n")
    };
    let text = format!(
        "/// Experiments that come with the lab: name and text.\npub const SHIPPED: [(&str, &str); {}] = [\n{}];\n",
        files.len(),
        files.iter().map(row).collect::<String>()
    );
    fs::write(Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("shipped.rs"), text)
}
