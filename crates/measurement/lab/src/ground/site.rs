//! Where an experiment runs: the directory and its device, the janitor, and the way to start
//! programs there.

use crate::ground::chosen::{Chosen, Ground};
use crate::ground::janitor::{Janitor, OwnedFile};
use crate::ground::record::Record;
use crate::ground::room::free_bytes;
use crate::ground::runner::{Job, Stop};
use crate::ground::system::Machine;
use crate::ground::throttle::Throttle;
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, process};
use terapage_config::Size;
use terapage_figures::median;

/// The command beside `lab` that repeats published experiments.
pub const PAPER: &str = "paper";

/// The place and the means of all runs.
pub struct Site {
    /// The device that `--device` has chosen, if any. It is dropped before its janitor.
    pub ground: Option<Ground>,
    /// Removes what the lab cannot remove.
    pub janitor: Arc<Janitor>,
    /// Whether the lab shall stop.
    pub stop: Stop,
    /// Where files lie.
    pub directory: PathBuf,
    /// A device that may be formatted, instead of an image file.
    pub may_erase: Option<PathBuf>,
    /// The maximum time of a run.
    pub timeout: Duration,
    program: PathBuf,
    lab_arguments: Vec<String>,
}

impl Site {
    /// Undoes what dead labs have left, reports it to `say`, and starts the janitor. `name` is the
    /// subcommand; the words before it lead to the lab, or to the program that has the lab as `lab`
    /// beside [`PAPER`].
    ///
    /// # Errors
    /// The path is not a directory, another lab runs, or the janitor cannot be started.
    pub fn open(
        name: &str,
        directory: &Path,
        timeout: Duration,
        stop: Stop,
        say: impl FnMut(&str),
    ) -> anyhow::Result<Site> {
        let program = env::current_exe().context("the lab's own program cannot be found")?;
        let mut lab_arguments: Vec<String> =
            env::args().skip(1).take_while(|argument| argument != name).collect();
        lab_arguments.extend((name == PAPER).then(|| "lab".to_owned()));
        let record = Record::begin(say)?;
        let mut janitor = lab_arguments.clone();
        janitor.push("janitor".into());
        let janitor = Janitor::start(&program, &janitor, record).context("the janitor cannot be started")?;
        Ok(Site {
            ground: None,
            janitor: Arc::new(janitor),
            stop,
            directory: directory.to_owned(),
            may_erase: None,
            timeout,
            program,
            lab_arguments,
        })
    }

    /// Moves the following runs to a device: its directory, or an emulated slower device, with room
    /// for `bytes` bytes; without `bytes` the contenders have separate disks.
    ///
    /// # Errors
    /// The device cannot be set up.
    pub fn choose(&mut self, chosen: &Chosen, bytes: Option<u64>) -> anyhow::Result<()> {
        self.ground = None;
        self.directory =
            chosen.path.canonicalize().with_context(|| format!("--device {}", chosen.path.display()))?;
        if let (Some(_), Some(bytes)) = (chosen.class, bytes) {
            let room = free_bytes(&self.directory).unwrap_or(u64::MAX);
            let place = self.directory.display();
            ensure!(bytes < room, "--device {place}: {} of disk needed, {} free", Size(bytes), Size(room));
        }
        let ground = Ground::up(self, chosen, bytes).with_context(|| format!("--device {}", chosen.name))?;
        self.directory = ground.place().canonicalize()?;
        self.ground = Some(ground);
        Ok(())
    }

    /// This machine and its settings, with the chosen device.
    pub fn machine(&self) -> Machine {
        let mut machine = Machine::here(&self.directory);
        if let Some(ground) = &self.ground {
            ground.describe(&mut machine);
        }
        machine
    }

    /// The limits of the chosen device, if it is throttled.
    pub fn throttle(&self) -> Option<&Throttle> {
        self.ground.as_ref().and_then(Ground::throttle)
    }

    /// A job without a limit.
    pub fn job(&self, program: PathBuf, arguments: Vec<OsString>) -> Job<'_> {
        Job {
            program,
            arguments,
            variables: Vec::new(),
            output: None,
            cgroup: None,
            throttle: self.throttle(),
            beside: None,
            timeout: self.timeout,
        }
    }

    /// A path for this lab only, in its directory.
    pub fn path(&self, suffix: &str) -> PathBuf {
        self.path_in(&self.directory, suffix)
    }

    /// A path for this lab only, in another directory.
    pub fn path_in(&self, directory: &Path, suffix: &str) -> PathBuf {
        directory.join(format!("terapage-lab-{}.{suffix}", process::id()))
    }

    /// The arguments that lead to the lab in its program's command line.
    pub fn lab_arguments(&self) -> &[String] {
        &self.lab_arguments
    }

    /// The lab's program in its workload mode.
    pub fn workload_arguments(&self, arguments: &[&str]) -> Vec<OsString> {
        let own = self.lab_arguments.iter().map(String::as_str).chain(["workload"]);
        own.chain(arguments.iter().copied()).map(OsString::from).collect()
    }

    /// The lab's program.
    pub fn program(&self) -> PathBuf {
        self.program.clone()
    }

    /// The median time of a few 4 KiB writes with fdatasync, microseconds: the cost of a flush
    /// here.
    pub fn flush_us(&self) -> Option<f64> {
        let (_owned, mut file) = OwnedFile::create(&self.janitor, self.path("flush"), 0o600).ok()?;
        let piece = [0x5a; 4096];
        let mut all = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            file.write_all(&piece).ok()?;
            // SAFETY: the descriptor is open for the call; no memory is passed.
            if unsafe { libc::fdatasync(file.as_raw_fd()) } != 0 {
                return None;
            }
            all.push(start.elapsed().as_secs_f64() * 1e6);
        }
        median(&all)
    }
}
