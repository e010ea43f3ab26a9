//! A trace in the form that simulators need: steps with times, references at any block size, and a
//! description of what was not recorded.

mod blocks;

pub use blocks::{Merger, Uses};

use blocks::{GROUPS_MOST, Groups, NONE, Tracker};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use terapage_trace::{Event, PageOut, Reader, Record};

/// Why a trace cannot be used. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be opened.
    #[error("{}: cannot be opened: {cause}", path.display())]
    Open {
        /// The trace.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// It cannot be read.
    #[error("{}: {cause} (record it again with terapage run --trace)", path.display())]
    Trace {
        /// The trace.
        path: PathBuf,
        /// Why.
        cause: terapage_trace::Error,
    },
    /// The trace has misses only.
    #[error(
        "{}: a file of --learn has misses only, too few to predict from (record it with terapage run --trace)",
        path.display()
    )]
    Misses {
        /// The trace.
        path: PathBuf,
    },
    /// It has no references.
    #[error(
        "{}: the trace of {program} has no references: the program never used enough of its budget \
         (record with less --memory)",
        path.display()
    )]
    Empty {
        /// The trace.
        path: PathBuf,
        /// What was recorded.
        program: String,
    },
    /// Its references lie too far from one another.
    #[error(
        "{}: its references lie in more than {GROUPS_MOST} places far from one another, too many to \
         study (record the program with less data)",
        path.display()
    )]
    Sparse {
        /// The trace.
        path: PathBuf,
    },
    /// The requested block size is not the recorded one times a power of two.
    #[error(
        "blocks of {wanted} bytes: the trace was recorded with {recorded} bytes, and touches \
         inside a block are not recorded, so only {recorded} times 2, 4, 8, ... up to 2 MiB can be \
         studied"
    )]
    Block {
        /// The block size asked for, bytes.
        wanted: u64,
        /// The recorded block size, bytes.
        recorded: u64,
    },
}

/// Whether a file begins like a trace of `terapage run`, of any version.
pub fn is_recording(path: &Path) -> bool {
    let mut head = [0; terapage_trace::MAGIC.len() - 1];
    // A pipe could not be read again.
    let read = path.is_file().then(|| File::open(path).and_then(|mut file| file.read_exact(&mut head)));
    matches!(read, Some(Ok(()))) && terapage_trace::MAGIC.starts_with(&head)
}

/// The largest block that the pager has, bytes.
pub const BLOCK_MAX: u64 = 2 << 20;

/// The state of a block when it is next taken out of the program, as the pager found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The block was not taken out again.
    Unknown,
    /// The bytes that the store has.
    Clean,
    /// Other bytes.
    Dirty,
    /// Zeros.
    Zero,
}

/// The event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The program touches the block.
    Touch,
    /// The program touches a block that is all zero and has no frame.
    First,
    /// A zero block got a frame along with a first touch; whether it was touched is unknown.
    Ahead,
    /// The block held data when paging began.
    Present,
    /// The program discards this many blocks, beginning with this one.
    Discard(u32),
}

/// One step of the program.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The block, in recorded numbers.
    pub block: u32,
    /// Time since the step before, microseconds, as recorded.
    pub gap_us: u32,
    /// What happens.
    pub what: What,
    /// The state of the block's bytes when it is next taken out.
    pub after: After,
}

/// A range of addresses that was paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The number of its first block.
    pub first: u32,
    /// Its blocks.
    pub blocks: u32,
}

/// The work of the recorded run, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    /// Blocks that became zero-filled memory, with those installed ahead.
    pub first_touches: u64,
    /// Blocks read because a thread waited.
    pub major_faults: u64,
    /// Blocks that were touched again before they had left memory.
    pub minor_faults: u64,
    /// Blocks that were read ahead and installed.
    pub prefetched: u64,
    /// Blocks written.
    pub dirty_page_outs: u64,
}

/// A recorded run.
pub struct Recording {
    /// The program's name.
    pub program: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// The budget of the recording, bytes.
    pub budget_bytes: u64,
    /// The time from the first record to the last, microseconds.
    pub duration_us: u64,
    /// What happened.
    pub steps: Vec<Step>,
    /// The ranges that were paged.
    pub regions: Vec<Region>,
    /// The greatest number of blocks that were in the address space at once, where touches leave no
    /// record.
    pub window: usize,
    /// The work of the run.
    pub did: Did,
    /// Why the trace ends early, if it does.
    pub cut_short: Option<String>,
}

impl Recording {
    /// Reads a trace, even if its program was killed.
    ///
    /// # Errors
    /// A trace that cannot be read, has misses only or no references, or has references too far
    /// from one another.
    pub fn open(path: &Path) -> Result<Recording, Error> {
        let failed = |cause| Error::Trace { path: path.to_owned(), cause };
        let file = File::open(path).map_err(|cause| Error::Open { path: path.to_owned(), cause })?;
        let mut reader = Reader::new(BufReader::new(file)).map_err(failed)?.allow_cut_short();
        let header = reader.header().clone();
        if header.misses_only {
            return Err(Error::Misses { path: path.to_owned() });
        }
        let mut reading = Reading::new(header.block_bytes.into());
        for record in reader.by_ref() {
            reading.take(&record.map_err(failed)?);
            if reading.groups.are_too_many() {
                return Err(Error::Sparse { path: path.to_owned() });
            }
        }
        if reading.references == 0 {
            return Err(Error::Empty { path: path.to_owned(), program: header.program });
        }
        Ok(Recording {
            program: header.program,
            block_bytes: header.block_bytes.into(),
            budget_bytes: header.budget_bytes,
            duration_us: reading.last_us - reading.first_us.unwrap_or(0),
            steps: reading.steps,
            regions: reading.groups.regions(&reading.regions, header.block_bytes.into()),
            window: reading.window,
            did: reading.did,
            cut_short: reader.cut_short().map(ToString::to_string),
        })
    }

    /// The frames of the recorded budget.
    pub fn frames(&self) -> usize {
        (self.budget_bytes / self.block_bytes).max(1) as usize
    }

    /// The base-2 logarithm of the number of recorded blocks in a block of `block_bytes`.
    ///
    /// # Errors
    /// A block size that is smaller, larger than 2 MiB, or not a power of two.
    pub fn shift(&self, block_bytes: u64) -> Result<u32, Error> {
        let fits = block_bytes.is_power_of_two() && (self.block_bytes..=BLOCK_MAX).contains(&block_bytes);
        if !fits {
            return Err(Error::Block { wanted: block_bytes, recorded: self.block_bytes });
        }
        Ok((block_bytes / self.block_bytes).trailing_zeros())
    }

    /// Maps recorded blocks to merged ones, each of `1 << shift` recorded blocks, aligned by
    /// address.
    pub fn merger(&self, shift: u32) -> Merger {
        Merger::new(self, shift)
    }

    /// The program's touches and discards of blocks that each merge `1 << shift` recorded ones.
    /// Blocks are numbered by [`merger`](Recording::merger), so that neighbours in number are
    /// neighbours in memory, as policies require.
    ///
    /// A block that begins with a first touch was free before, so the touch costs no page-in. A
    /// merged block is freed only once all of its parts have been discarded.
    pub fn uses(&self, shift: u32) -> Uses {
        let blocks = self.blocks();
        let mut tracker = Tracker::new(self.merger(shift), blocks);
        for step in &self.steps {
            match step.what {
                What::Touch => tracker.touch(step.block, false),
                What::First | What::Ahead | What::Present => tracker.touch(step.block, true),
                What::Discard(count) => {
                    for block in step.block..step.block.saturating_add(count).min(blocks) {
                        tracker.discard(block);
                    }
                }
            }
        }
        tracker.end()
    }

    /// One more than the largest block number.
    pub fn blocks(&self) -> u32 {
        self.steps.iter().map(|step| step.block + 1).max().unwrap_or(0)
    }
}

/// A trace while it is read.
struct Reading {
    block_bytes: u64,
    steps: Vec<Step>,
    regions: Vec<Region>,
    groups: Groups,
    /// By block: the step that put it into the address space, or `NONE` if it is not there.
    here: Vec<u32>,
    present: usize,
    window: usize,
    references: u64,
    did: Did,
    first_us: Option<u64>,
    last_us: u64,
    step_us: u64,
}

impl Reading {
    fn new(block_bytes: u64) -> Reading {
        Reading {
            block_bytes,
            steps: Vec::new(),
            regions: Vec::new(),
            groups: Groups::default(),
            here: Vec::new(),
            present: 0,
            window: 0,
            references: 0,
            did: Did::default(),
            first_us: None,
            last_us: 0,
            step_us: 0,
        }
    }

    fn take(&mut self, record: &Record) {
        self.first_us.get_or_insert(record.time_us);
        self.last_us = self.last_us.max(record.time_us);
        let (block, what) = match record.event {
            Event::FirstTouch { block } => (block, What::First),
            Event::FreshAhead { block } => (block, What::Ahead),
            Event::Present { block } => (block, What::Present),
            Event::MajorFault { block }
            | Event::MinorFault { block }
            | Event::PrefetchMarker { block }
            | Event::Prefetched { block }
            | Event::PutBack { block } => (block, What::Touch),
            Event::Discard { block, count } => (block, What::Discard(count)),
            Event::PageOut { block, how } => {
                let block = self.groups.number(block);
                return self.out(block, how);
            }
            Event::RegionAdd { start, len, first } => {
                let blocks = (len / self.block_bytes) as u32;
                return self.regions.push(Region { start, first, blocks });
            }
        };
        match record.event {
            Event::MajorFault { .. } => self.did.major_faults += 1,
            Event::MinorFault { .. } => self.did.minor_faults += 1,
            Event::PrefetchMarker { .. } | Event::Prefetched { .. } => self.did.prefetched += 1,
            Event::FirstTouch { .. } | Event::FreshAhead { .. } => self.did.first_touches += 1,
            _ => {}
        }
        let since = self.step_us.max(self.first_us.unwrap_or(0));
        let gap_us = u32::try_from(record.time_us.saturating_sub(since)).unwrap_or(u32::MAX);
        self.step_us = record.time_us;
        let What::Discard(count) = what else {
            let block = self.groups.number(block);
            self.came(block);
            self.steps.push(Step { block, gap_us, what, after: After::Unknown });
            return;
        };
        let mut gap_us = gap_us;
        for (block, count) in self.groups.parts(block, count) {
            self.discarded(block, count);
            self.steps.push(Step { block, gap_us, what: What::Discard(count), after: After::Unknown });
            gap_us = 0;
        }
    }

    fn came(&mut self, block: u32) {
        self.references += 1;
        let index = block as usize;
        if index >= self.here.len() {
            self.here.resize((index + 1).next_power_of_two(), NONE);
        }
        if std::mem::replace(&mut self.here[index], self.steps.len() as u32) == NONE {
            self.present += 1;
            self.window = self.window.max(self.present);
        }
    }

    fn out(&mut self, block: u32, how: PageOut) {
        let Some(here) = self.here.get_mut(block as usize) else { return };
        let step = std::mem::replace(here, NONE);
        if step == NONE {
            return;
        }
        self.present -= 1;
        self.steps[step as usize].after = match how {
            PageOut::Dirty => After::Dirty,
            PageOut::Clean => After::Clean,
            PageOut::Zero => After::Zero,
        };
        if how == PageOut::Dirty {
            self.did.dirty_page_outs += 1;
        }
    }

    fn discarded(&mut self, block: u32, count: u32) {
        let end = (block as usize).saturating_add(count as usize).min(self.here.len());
        for here in self.here.get_mut(block as usize..end).into_iter().flatten() {
            if std::mem::replace(here, NONE) != NONE {
                self.present -= 1;
            }
        }
    }
}
