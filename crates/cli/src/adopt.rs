//! `terapage adopt`: pages a program that is already running.

use crate::{complain, library, options::Options};
use anyhow::{Context, bail};
use clap::Args;
use rustix::fs::statvfs;
use std::ffi::{CString, OsString};
use std::io::{IsTerminal, Write, stderr};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terapage_adopt::{Adopted, Progress, Wish, adopt};
use terapage_config::{Group, Settings, Size, StoreSpec};

/// The arguments of `terapage adopt`.
#[derive(Args)]
#[command(
    override_usage = "terapage adopt [OPTIONS] PID",
    disable_help_flag = true,
    after_help = "\
Examples:
  terapage adopt --memory 32G 4711
  terapage adopt --memory 32G --store /mnt/nvme0 4711
  terapage adopt --memory 32G $(pidof solver)
  terapage stat 4711

The program is stopped for some milliseconds. From then on it is paged, and so are the processes
that it starts. Its memory leaves for the store while it runs, until the rest fits into the budget.
This is experimental, and there is no way back: docs/host.md has the limits. Do not adopt shells,
make, or others that start very many programs.

Exit status:
  0; 125 if the program was not adopted: then it goes on as before."
)]
pub struct Adopt {
    #[command(flatten)]
    options: Options,
    /// Print help
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = Group::Advanced.heading())]
    help: Option<bool>,
    /// The number of the process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,
}

/// The time between two looks at how far the host is.
const LOOK: Duration = Duration::from_millis(20);

impl Adopt {
    /// Adopts the program, and waits until its memory is within the budget.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let settings = self.options.settings()?;
        if settings.stores.iter().any(|store| store.is_far()) {
            bail!("--store: an adopted program has its store in files or on devices (name a directory)");
        }
        has_room(&settings, self.pid)?;
        let host = library::static_host()?;
        let texts = texts(&settings)?;
        let fault = std::env::var("TERAPAGE_ADOPT_FAULT").ok().and_then(|number| number.parse().ok());
        let wish = Wish { pid: self.pid, host: &host, settings: &texts, fault };
        // An interrupted command would leave the program's threads in the middle of its work.
        let signals = Quiet::begin();
        let adopted = adopt(&wish);
        drop(signals);
        let adopted = match adopted {
            Ok(adopted) => adopted,
            Err(why) => bail!("process {} is not adopted: {why}; it goes on as before", self.pid),
        };
        follow(&adopted, self.pid);
        Ok(ExitCode::SUCCESS)
    }
}

/// The settings as variables. Nothing else of this command's environment goes to the program.
fn texts(settings: &Settings) -> anyhow::Result<Vec<CString>> {
    let text = |(name, value): (&str, OsString)| {
        let mut text = OsString::from(name);
        text.push("=");
        text.push(value);
        CString::new(text.into_vec()).context("a setting")
    };
    settings.to_variables().into_iter().map(text).collect()
}

/// Refuses if a directory on a disk too small for the program's memory is the only store: a store
/// that fills would end the program.
fn has_room(settings: &Settings, pid: u32) -> anyhow::Result<()> {
    let [StoreSpec::File(path)] = &settings.stores[..] else { return Ok(()) };
    if !path.is_dir() {
        return Ok(());
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let used = (kib("RssAnon:").unwrap_or(0) + kib("VmSwap:").unwrap_or(0)) << 10;
    let leaves = used.saturating_sub(settings.memory.size.0);
    let free = statvfs(path).map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
    if free < leaves {
        let [free, leaves] = [free, leaves].map(|bytes| Size(bytes >> 20 << 20));
        bail!(
            "--store: {} has {free} free, and {leaves} of process {pid} would leave for it (name a larger one)",
            path.display()
        );
    }
    Ok(())
}

/// Shows how far the host is, until it is done.
fn follow(adopted: &Adopted, pid: u32) {
    let began = Instant::now();
    let pause = adopted.pause.as_secs_f64() * 1e3;
    let mut shown = false;
    while let Some(progress) = adopted.progress() {
        let Progress { all_bytes, done_bytes, is_done } = progress;
        let [all, done] = [all_bytes, done_bytes].map(|bytes| Size(bytes >> 20 << 20));
        if is_done {
            clear(shown);
            let seconds = began.elapsed().as_secs_f64();
            complain(&format!(
                "process {pid} is paged: {all} were taken over in {seconds:.1} s; it was stopped for {pause:.0} ms"
            ));
            return;
        }
        if stderr().is_terminal() {
            let _ = write!(stderr(), "\rterapage: process {pid}: {done} of {all} taken over\x1b[K\r");
            shown = true;
        }
        std::thread::sleep(LOOK);
    }
    clear(shown);
    complain(&format!("process {pid} has ended"));
}

fn clear(shown: bool) {
    if shown {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

/// While this lives, signals that would end this command wait.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn begin() -> Quiet {
        // SAFETY: sets are plain data, for which zeros are a value, and have room for the answer.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Quiet(before)
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}
