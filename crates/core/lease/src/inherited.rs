//! The table's file: `terapage run` makes it, and passes it on to all that the program starts.

use crate::table::{Locks, TABLE_BYTES, Table};
use std::fmt;
use std::os::fd::AsRawFd;
use std::str::FromStr;
use terapage_sys::fd::Fd;
use terapage_sys::shared::{self, Identity};
use terapage_sys::{Error, Result};

/// The environment variable that gives an executed program the place of the table, as an
/// [`Inherited`].
pub const JOB_VARIABLE: &str = "TERAPAGE_JOB";

/// The table in a descriptor that stays open on exec, and the number of the job: as text,
/// `NUMBER,DEVICE:FILE,JOB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    number: i32,
    file: Identity,
    job: usize,
}

impl fmt::Display for Inherited {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},{}:{},{}", self.number, self.file.0, self.file.1, self.job)
    }
}

impl FromStr for Inherited {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Inherited, ()> {
        let [number, file, job] = text.split(',').collect::<Vec<_>>().try_into().map_err(|_| ())?;
        let (device, file) = file.split_once(':').ok_or(())?;
        let parse = |text: &str| text.parse::<u64>().map_err(|_| ());
        let job = parse(job)? as usize;
        let number = number.parse().map_err(|_| ())?;
        (job < crate::JOBS)
            .then_some(Inherited { number, file: (parse(device)?, parse(file)?), job })
            .ok_or(())
    }
}

impl Inherited {
    /// Makes the table of a new job with this budget, bytes; if the budget follows the machine,
    /// that is the most that it can be.
    ///
    /// # Errors
    /// There are no memory files, or too many open files.
    pub fn make(budget: u64, is_auto: bool) -> Result<Inherited> {
        let fd = shared::make(c"terapage-job", TABLE_BYTES)?;
        let table = Table::begin(shared::map(fd.as_raw_fd(), TABLE_BYTES)?, budget);
        if is_auto {
            table.follow_machine();
        }
        let number = shared::hand_on(fd)?;
        let file = shared::identity(number).ok_or_else(not_there)?;
        Ok(Inherited { number, file, job: 0 })
    }

    /// Makes a job inside this one, with its own budget in bytes. `None` if there are too many
    /// jobs.
    ///
    /// # Errors
    /// The table cannot be opened again.
    pub fn inside(&self, budget: u64) -> Result<Option<Inherited>> {
        let file = self.open(None)?;
        let table = file.table().ok_or_else(not_there)?;
        let Some(job) = table.add_job(&file, self.job, budget) else { return Ok(None) };
        // With the lock of the job, which lasts while any process has the descriptor.
        shared::keep_on_exec(file.number)?;
        Ok(Some(Inherited { number: file.number, job, ..*self }))
    }

    /// The table's descriptor.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// The same table, under the number that its descriptor has in another process.
    #[must_use]
    pub fn under(self, number: i32) -> Inherited {
        Inherited { number, ..self }
    }

    /// Whether the table is open under that number.
    pub fn is_there(&self) -> bool {
        shared::identity(self.number) == Some(self.file)
    }

    /// Notes the descriptor as the pager's, which the program does not close.
    pub fn keep(&self) {
        shared::take(self.number);
    }

    /// Keeps the table from programs that this process executes from now on.
    pub fn withhold(&self) {
        shared::close_on_exec(self.number).ok();
    }

    /// The most that the budget of the job can be, bytes.
    ///
    /// # Errors
    /// The table is not there.
    pub fn ceiling(&self) -> Result<u64> {
        Ok(self.table()?.ceiling(self.job))
    }

    /// Maps the table, by the inherited descriptor. It stays mapped.
    ///
    /// # Errors
    /// The table is not there.
    pub fn table(&self) -> Result<Table<'static>> {
        if !self.is_there() {
            return Err(not_there());
        }
        Table::of(shared::map(self.number, TABLE_BYTES)?).ok_or_else(not_there)
    }

    /// The number of the job in its table.
    pub fn job(&self) -> usize {
        self.job
    }

    /// The number of the table's file: the same for all processes of a job.
    pub fn file(&self) -> u64 {
        self.file.1
    }

    /// Opens the table with a separate file description, which has separate locks: from this
    /// process, or, if it is not open here, from the process `root`.
    ///
    /// # Errors
    /// The table is not there, or may not be opened.
    pub fn open(&self, root: Option<u32>) -> Result<File> {
        let own = shared::reopen(None, self.number).ok().filter(|fd| self.is_it(fd));
        let fd = match (own, root) {
            (Some(fd), _) => fd,
            (None, Some(root)) => shared::reopen(Some(root), self.number)?,
            (None, None) => return Err(not_there()),
        };
        if !self.is_it(&fd) {
            return Err(not_there());
        }
        Ok(File { number: std::mem::ManuallyDrop::new(fd).raw() })
    }

    fn is_it(&self, fd: &Fd) -> bool {
        shared::identity(fd.raw()) == Some(self.file)
    }
}

fn not_there() -> Error {
    Error { call: "the table of the job", source: std::io::ErrorKind::NotFound.into() }
}

/// The table's file, with a separate file description for this process. It stays open until it is
/// [closed](Self::close).
#[derive(Clone, Copy, Debug)]
pub struct File {
    number: i32,
}

impl File {
    /// Maps the table; it stays mapped. `None` if that is impossible.
    pub fn table(&self) -> Option<Table<'static>> {
        Table::of(shared::map(self.number, TABLE_BYTES).ok()?)
    }

    /// The descriptor's number.
    pub fn number(self) -> i32 {
        self.number
    }

    /// The file with this number, which is already open.
    pub fn from_number(number: i32) -> File {
        File { number }
    }

    /// Closes the file. Its locks are released, if no other process has the file description.
    pub fn close(self) {
        shared::close(self.number);
    }
}

impl Locks for File {
    fn take(&self, byte: u64) -> bool {
        shared::try_lock(self.number, byte)
    }

    fn give(&self, byte: u64) {
        shared::unlock(self.number, byte);
    }

    fn is_free(&self, byte: u64) -> bool {
        shared::is_unlocked(self.number, byte)
    }
}
