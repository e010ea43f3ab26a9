//! Data that all experiments of a command share: the site, the far stores, the bounds, the
//! progress.

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
    /// The stores of the contender `far`, if it has any; they are dropped before the janitor.
    pub far: Option<Far>,
    /// The place and the means of all runs.
    pub site: Site,
    /// Bounds on the time and the written bytes of all runs.
    pub bounds: Bounds,
    /// The writes to the device before it is measured, if they were requested.
    pub steady: Option<Steady>,
    /// The output that the user sees meanwhile.
    pub progress: Progress,
}

impl Session {
    /// Undoes what dead labs have left, and starts the janitor. `name` is the subcommand, as in
    /// [`Site::open`].
    ///
    /// # Errors
    /// The path is not a directory, another lab runs, or the janitor cannot be started.
    pub fn open(name: &str, directory: &Path, timeout: Duration) -> anyhow::Result<Session> {
        let directory = directory.canonicalize().with_context(|| format!("--dir {}", directory.display()))?;
        ensure!(directory.is_dir(), "--dir {}: not a directory", directory.display());
        let stop = Stop::install().context("signals cannot be caught")?;
        let progress = Progress::new();
        let site = Site::open(name, &directory, timeout, stop, |line| progress.say(line))?;
        Ok(Session { far: None, site, bounds: Bounds::default(), steady: None, progress })
    }

    /// This machine and its settings, with the chosen device and the far stores.
    pub fn machine(&self) -> Machine {
        let far = self.far.as_ref().map(|far| far.text.clone());
        Machine { steady: self.steady.clone(), far, ..self.site.machine() }
    }

    /// Does additional work outside the rounds, which progress shows as `what`.
    pub fn extra<T>(&self, what: String, work: impl FnOnce() -> T) -> T {
        self.progress.expect(1);
        self.progress.begin(what);
        let done = work();
        self.progress.end();
        done
    }
}
