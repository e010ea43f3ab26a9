//! Where results go: standard output and files.

use anyhow::{Context, bail};
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Columns of the terminal: what `COLUMNS` says, or the terminal, from 40 to 100; 100 where there
/// is none.
pub fn columns() -> usize {
    const MOST: usize = 100;
    let named = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || usize::from(console::Term::stdout().size().1);
    let found = named.unwrap_or_else(|| if std::io::stdout().is_terminal() { terminal() } else { MOST });
    found.clamp(40, MOST)
}

/// Writes to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a file.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// What [`check`] says of a file, unless it is `-`, which stands for standard output.
pub fn check_output(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    if path == Path::new("-") { Ok(()) } else { check(path, inputs) }
}

/// Whether a file can be written, as far as that can be told without writing; `inputs` are what is
/// read.
pub fn check(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let shown = path.display();
    if path.is_dir() {
        bail!("{shown}: is a directory; name a file");
    }
    if inputs.iter().any(|input| same_file(input, path)) {
        bail!("{shown}: is an input; write to another file");
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    if !directory.is_dir() {
        bail!("{shown}: there is no directory {}", directory.display());
    }
    Ok(())
}

/// Whether both paths lead to one regular file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let (a, b) = (a.canonicalize(), b.canonicalize());
    matches!((a, b), (Ok(a), Ok(b)) if a == b && a.is_file())
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,%=:+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command line that gave these results, as a shell takes it.
pub fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    std::iter::once("terapage".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
