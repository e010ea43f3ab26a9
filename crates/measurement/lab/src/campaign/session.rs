//! What all experiments of a command share: the site, the far stores, the bounds, what the user
//! sees.

use crate::campaign::bounds::Bounds;
use crate::campaign::progress::Progress;
use crate::contender::far::Far;
use crate::ground::runner::Stop;
use crate::ground::site::Site;
use crate::ground::steady::Steady;
use crate::ground::system::Machine;
use anyhow::{Context, ensure};
use std::path::Path;
use std::time::Duration;

/// A command under way.
pub struct Session {
    /// The contender `far`'s stores, where it has any; they go before the janitor.
    pub far: Option<Far>,
    /// The place and the means of all runs.
    pub site: Site,
    /// How long all runs may go on, and how much they may write.
    pub bounds: Bounds,
    /// What was written to the device before it is measured, where that was asked for.
    pub steady: Option<Steady>,
    /// What the user sees meanwhile.
    pub progress: Progress,
}

impl Session {
    /// Undoes what dead labs have left, and starts the janitor. `name` is the subcommand; what
    /// stands before it leads to the lab.
    ///
    /// # Errors
    /// When the directory is none, another lab runs, or the janitor cannot be started.
    pub fn open(name: &str, directory: &Path, timeout: Duration) -> anyhow::Result<Session> {
        let directory = directory.canonicalize().with_context(|| format!("--dir {}", directory.display()))?;
        ensure!(directory.is_dir(), "--dir {}: not a directory", directory.display());
        let stop = Stop::install().context("signals cannot be caught")?;
        let progress = Progress::new();
        let site = Site::open(name, &directory, timeout, stop, |line| progress.say(line))?;
        Ok(Session { far: None, site, bounds: Bounds::default(), steady: None, progress })
    }

    /// This machine, as it is set, with the device that was chosen and the far stores.
    pub fn machine(&self) -> Machine {
        let far = self.far.as_ref().map(|far| far.text.clone());
        Machine { steady: self.steady.clone(), far, ..self.site.machine() }
    }

    /// Does a piece of work beyond the rounds, which progress shows as `what`.
    pub fn extra<T>(&self, what: String, work: impl FnOnce() -> T) -> T {
        self.progress.expect(1);
        self.progress.begin(what);
        let done = work();
        self.progress.end();
        done
    }
}
