//! Network namespaces.

use anyhow::ensure;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{fs, io};
use terapage_rig::tools;

/// Runs a program of the system.
///
/// # Errors
/// The program is missing, or fails; the error has its output.
pub fn run(words: &[&str]) -> anyhow::Result<()> {
    let program = tools::find(words[0]).map_err(anyhow::Error::msg)?;
    let ran = Command::new(program).args(&words[1..]).stdin(Stdio::null()).output()?;
    let why = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "{}: {}", words.join(" "), why.trim());
    Ok(())
}

/// Removes a namespace, and with it its network card.
///
/// # Errors
/// The namespace exists and cannot be removed.
pub fn remove_namespace(name: &str) -> io::Result<()> {
    let is_there = || fs::metadata(PathBuf::from("/run/netns").join(name)).is_ok();
    if !is_there() {
        return Ok(());
    }
    let ran = run(&["ip", "netns", "del", name]);
    match is_there() {
        true => Err(io::Error::other(ran.err().map_or_else(|| "it stays".into(), |error| error.to_string()))),
        false => Ok(()),
    }
}
