//! `terapage release`: takes all memory of a paged program back, and lets it go on unpaged.

use crate::adopt::clear;
use crate::complain;
use crate::signals::Ends;
use crate::watch::process::{Paged, not_paged};
use anyhow::{Context, bail};
use clap::Args;
use std::fs::{self, File};
use std::io::{IsTerminal, Write, stderr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terapage_config::{Machine, Size};
use terapage_stats::{Control, FILE_BYTES, Shared, Snapshot, Stage};

/// The arguments of `terapage release`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  terapage release 4711
  terapage stat 4711

The program was started by `terapage run` or adopted by `terapage adopt`, and goes on meanwhile. All
its memory comes back, and neither it nor programs that it starts are paged any more. Ctrl-C undoes
what was done: the program stays paged. This is experimental: docs/rescue.md has the limits.

Exit status:
  0; 125 if the program was not released: then it is paged as before.")]
pub struct Release {
    /// The number of the process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,
}

/// The time between two looks at how far the program is.
const LOOK: Duration = Duration::from_millis(20);
/// Progress is shown after this time.
const QUICK: Duration = Duration::from_secs(2);
/// Memory that the program needs beside, as a part of what comes back: page tables, and what is
/// changed meanwhile.
const BESIDE_PART: u64 = 64;

impl Release {
    /// Releases the program, and waits until that is done.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let pid = self.pid;
        let Some(paged) = Paged::find(pid)? else { bail!("{}", not_paged(pid)) };
        let Some(now) = paged.snapshot() else { bail!("{}", not_paged(pid)) };
        if now.released == 1 {
            bail!("process {pid} is released already");
        }
        let file = paged.writable().with_context(|| format!("process {pid}"))?;
        let control = shared(&file)?;
        if !is_own(pid, &now) {
            bail!(
                "process {pid} is not paged: what it has are the counters of its parent, process {}",
                now.pid
            );
        }
        if control.stage() == Stage::Unserved {
            bail!(
                "process {pid} is not released: its memory is still being taken over, or it uses libterapage \
                 without terapage run"
            );
        }
        has_room(pid, &now)?;
        let signals = Ends::begin();
        if ![Stage::Waits, Stage::Refused].into_iter().any(|stage| control.change(stage, Stage::Asked)) {
            bail!("process {pid} is being released already");
        }
        wake(control);
        follow(&paged, control, &signals)
    }
}

/// Refuses to adopt a program that was released: its filter of system calls stays.
pub fn refuse_again(pid: u32) -> anyhow::Result<()> {
    let released = |paged: Paged| paged.snapshot().is_some_and(|now| now.released == 1);
    if Paged::find(pid).ok().flatten().is_some_and(released) {
        bail!(
            "process {pid} is not adopted: it was released, and is adopted only once; it goes on as before"
        );
    }
    Ok(())
}

/// The words that the program shares with this command, for as long as this command runs.
fn shared(file: &File) -> anyhow::Result<&'static Control> {
    let (rights, len) = (libc::PROT_READ | libc::PROT_WRITE, size_of::<Shared>());
    let size = file.metadata().map_or(0, |found| found.len());
    if size < FILE_BYTES as u64 {
        bail!("the program is paged by another version of terapage");
    }
    // SAFETY: the kernel chooses the place. The file is as long as its contents, which are atomic
    // words for which any value is valid.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, rights, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("the program's counters");
        }
        Ok(&(*at.cast::<Shared>()).control)
    }
}

/// Wakes the program's thread that waits for a change of the stage.
fn wake(control: &Control) {
    // SAFETY: the call reads no memory.
    unsafe { libc::syscall(libc::SYS_futex, control.stage.as_ptr(), libc::FUTEX_WAKE, 1_i64) };
}

/// Whether the counters are the process's own: a child may have inherited its parent's.
fn is_own(pid: u32, now: &Snapshot) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let own = numbers.and_then(|numbers| numbers.split_ascii_whitespace().next_back()?.parse::<u64>().ok());
    own == Some(now.pid)
}

/// Refuses if there is no room in memory, or in a cgroup of the process, for what is paged out.
fn has_room(pid: u32, now: &Snapshot) -> anyhow::Result<()> {
    // The store also has bytes that are in memory.
    let out = now.store_bytes.min(now.region_bytes.saturating_sub(now.resident_bytes));
    let needed = out + out / BESIDE_PART;
    let read = |path: &Path| fs::read_to_string(path).ok();
    for (index, level) in Machine::of(&pid.to_string(), &read).levels(&read).iter().enumerate() {
        if level.available < needed {
            let whose = if index == 0 { "the machine has" } else { "its cgroup has" };
            let [out, free] = [out, level.available].map(|bytes| Size(bytes >> 20 << 20));
            bail!(
                "process {pid} is not released: {out} of its memory are paged out, and {whose} only {free} free"
            );
        }
    }
    Ok(())
}

/// Shows how far the program is, until the release is over.
fn follow(paged: &Paged, control: &Control, signals: &Ends) -> anyhow::Result<ExitCode> {
    let (pid, began) = (paged.pid, Instant::now());
    let mut shown = false;
    let size = |bytes: u64| Size(bytes >> 20 << 20);
    let load = |word: &std::sync::atomic::AtomicU64| word.load(std::sync::atomic::Ordering::Relaxed);
    loop {
        let stage = control.stage();
        if stage.waits() || stage == Stage::Released || !paged.is_alive() {
            clear(shown);
            if stage == Stage::Released {
                let seconds = began.elapsed().as_secs_f64();
                let all = size(load(&control.done_bytes));
                complain(&format!(
                    "process {pid} is no longer paged: {all} were taken back in {seconds:.1} s"
                ));
                return Ok(ExitCode::SUCCESS);
            }
            if !stage.waits() {
                bail!("process {pid} has ended");
            }
            match control.why() {
                why if why.is_empty() => bail!("process {pid} is not released: it is paged as before"),
                why => bail!("process {pid} is not released: {why}; it is paged as before"),
            }
        }
        if began.elapsed() > QUICK && stderr().is_terminal() {
            let [done, all] = [&control.done_bytes, &control.all_bytes].map(|word| size(load(word)));
            let _ = write!(stderr(), "\rterapage: process {pid}: {done} of {all} taken back\x1b[K\r");
            shown = true;
        }
        if signals.come_within(LOOK).is_some() {
            // Too late if the release has ended, or ends.
            control.change(Stage::Asked, Stage::Cancelled);
        }
    }
}
