//! The flags that are settings.

use anyhow::{Context, anyhow};
use clap::{Args, ValueHint};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use terapage_config::{Partial, Settings};
use terapage_policy::{prefetch, replacement};

/// Flags take any text, so that what is wrong with one is said in the same words
/// wherever it came from: flag, variable or file.
#[derive(Args, Default)]
pub struct Options {
    /// Memory that the data of the program, and of all that it starts, may take together: 4G, 500M,
    /// or 50% of the machine or container
    #[arg(short, long, value_name = "SIZE|PERCENT", allow_hyphen_values = true)]
    memory: Option<OsString>,
    /// Give each process all of --memory for itself, instead of one budget for all
    #[arg(long)]
    per_process: bool,
    /// Where the rest lives: a directory, an empty file, a block device, whose content is lost, a
    /// memory server, as in valkey://HOST:6379; mirror:A+B, tier:A+B, ram:SIZE, encrypt:STORE,
    /// compress:STORE; repeat it for several
    #[arg(short, long, value_name = "STORE", allow_hyphen_values = true, value_hint = ValueHint::AnyPath)]
    store: Vec<OsString>,
    /// How blocks spread over several stores: simple (fill one, then the next), round-robin,
    /// mirror (each has all), or tier (each block in the first that takes it)
    #[arg(long, value_name = "HOW", allow_hyphen_values = true)]
    placement: Option<OsString>,
    /// Encrypt what goes to all stores, with a key that only the program's process has. What goes
    /// to a memory server that others may see is encrypted in any case
    #[arg(long)]
    encrypt: bool,
    /// Compress what goes to the stores: lz4, zstd or zstd:LEVEL (1 to 9); or off
    #[arg(long, value_name = "HOW", allow_hyphen_values = true)]
    compress: Option<OsString>,
    /// Bytes that the store may take, or auto: as much as is needed
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    store_size: Option<OsString>,
    /// Whether the program may have more memory than the store could hold: yes or no. With no, an
    /// allocation that it could not hold is refused (ENOMEM)
    #[arg(long, value_name = "WHICH", allow_hyphen_values = true)]
    overcommit: Option<OsString>,
    /// Bytes that move at once: a power of two from 4K to 2M, or auto
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    block: Option<OsString>,
    /// Which blocks leave first
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help = policy_help())]
    policy: Option<OsString>,
    /// What is read ahead
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help = prefetch_help())]
    prefetch: Option<OsString>,
    /// Threads of the pager, 1 to 64: one decides, the others put blocks into the program and take
    /// them out
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<OsString>,
    /// How stores are read and written: uring, aio, threads, or auto: io_uring, or, where that is
    /// forbidden, libaio
    #[arg(long, value_name = "HOW", allow_hyphen_values = true)]
    io: Option<OsString>,
    /// Which allocations are paged: all, large (128 KiB and more) or off (only mmap and static
    /// arrays)
    #[arg(long, value_name = "WHICH", allow_hyphen_values = true)]
    heap: Option<OsString>,
    /// Do not check that bytes come back from the store unchanged
    #[arg(long)]
    no_verify: bool,
    /// Write the counters to a file at the end, as JSON
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    stats: Option<OsString>,
    /// Write the block references to a file
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_hint = ValueHint::FilePath)]
    trace: Option<OsString>,
    /// Report on standard error what happens
    #[arg(short, long)]
    verbose: bool,
    /// Read this configuration file instead of the user's and the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

fn policy_help() -> String {
    format!("Which blocks leave first: {}", replacement::NAMES.join(", "))
}

fn prefetch_help() -> String {
    format!("What is read ahead: {}", prefetch::NAMES.join(", "))
}

impl Options {
    /// Only stores.
    pub fn with_stores(store: Vec<OsString>) -> Options {
        Options { store, ..Options::default() }
    }

    /// Flags over variables over files over defaults.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let get = |name: &str| std::env::var_os(name);
        let flags = self.flags()?;
        let variables = Partial::from_variables(get)?;
        let files = match &self.config {
            Some(path) => Partial::from_file(path).context("--config")?,
            None => Partial::from_default_files(get)?,
        };
        Ok(flags.or(variables).or(files).resolve(
            replacement::NAMES,
            prefetch::NAMES,
            &terapage_far::shelf(),
            get,
        )?)
    }

    fn flags(&self) -> anyhow::Result<Partial> {
        let mut flags = Partial::default();
        for (name, value) in [
            ("memory", &self.memory),
            ("placement", &self.placement),
            ("compress", &self.compress),
            ("store-size", &self.store_size),
            ("overcommit", &self.overcommit),
            ("block", &self.block),
            ("policy", &self.policy),
            ("prefetch", &self.prefetch),
            ("threads", &self.threads),
            ("io", &self.io),
            ("heap", &self.heap),
            ("stats", &self.stats),
            ("trace", &self.trace),
        ] {
            if let Some(value) = value {
                flags.set(name, value).map_err(|why| anyhow!("--{name}: {why}"))?;
            }
        }
        for store in &self.store {
            flags.add_store(store).map_err(|why| anyhow!("--store: {why}"))?;
        }
        for (name, on, value) in [
            ("per-process", self.per_process, "true"),
            ("encrypt", self.encrypt, "true"),
            ("verify", self.no_verify, "false"),
            ("verbose", self.verbose, "true"),
        ] {
            if on {
                flags.set(name, OsStr::new(value)).map_err(|why| anyhow!("--{name}: {why}"))?;
            }
        }
        Ok(flags)
    }
}
