//! The destinations of results: standard output and files.

use anyhow::{Context, anyhow, bail};
use std::fs;
use std::io::Write;
use std::path::Path;

/// Characters of a line: the width of the terminal, from 40 to 100, or 100 without a terminal.
pub fn columns() -> usize {
    const MOST: usize = 100;
    terapage_report::columns(std::io::stdout()).unwrap_or(MOST).clamp(40, MOST)
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

/// Checks before the work begins that a file can be written, and is none of `inputs`, which are
/// read. `-` stands for standard output.
pub fn check(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let shown = path.display();
    if inputs.iter().any(|input| same_file(input, path)) {
        bail!("{shown}: is an input; write to another file");
    }
    terapage_config::can_be_written(path).map_err(|why| anyhow!("{shown} {why}"))
}

/// Whether both paths lead to one regular file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let (a, b) = (a.canonicalize(), b.canonicalize());
    matches!((a, b), (Ok(a), Ok(b)) if a == b && a.is_file())
}

/// A word, quoted for a shell if it needs that.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,%=:+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command line that produced these results, quoted for a shell.
pub fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    std::iter::once("terapage".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
