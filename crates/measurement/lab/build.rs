//! Lists the experiments that come with the lab: each file in `experiments` is one.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=experiments");
    let own = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let mut names = Vec::new();
    for entry in fs::read_dir(Path::new(&own).join("experiments"))? {
        let path = entry?.path();
        if path.extension() == Some("toml".as_ref()) {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    let file = |name: &String| {
        format!(
            "({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/experiments/{name}.toml\"))),\n"
        )
    };
    let text = format!(
        "/// Experiments that come with the lab: name and text.\npub const SHIPPED: [(&str, &str); {}] = [\n{}];\n",
        names.len(),
        names.iter().map(file).collect::<String>()
    );
    fs::write(Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("shipped.rs"), text)
}
