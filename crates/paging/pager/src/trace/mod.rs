//! The recorder: writes the actions of the pager's thread to a trace file, for simulators.
//!
//! The pager's thread appends words of 8 bytes to a ring; it takes no lock, compresses nothing and
//! waits for no disk. The writing thread takes the words out, compresses and writes them. No event
//! is dropped: if the ring is full, the pager waits, and the waits are counted. The writing thread
//! touches no paged memory, because otherwise the two threads could wait for each other.
//!
//! A word: the block in bits 0 to 31, the kind in bits 32 to 35, above that the microseconds since
//! the previous word. `Time` has 60 bits of microseconds around its kind instead; a discard and a
//! region are followed by words with their numbers.

mod file;
pub(crate) mod words;

use crate::error::Error;
use crate::event_count::EventCount;
use crate::sync::{AtomicU32, AtomicU64};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use terapage_sys::thread::{self, now_ns};
use terapage_trace::{Event, PageOut, Record, Writer};
use words::{Put, Take, Words};

/// Words in the ring: 512 KiB. Chosen, not measured.
const RING: usize = 1 << 16;

/// The writing thread is woken each time this many words have been added.
const WAKE: usize = RING / 2;

/// The writing thread frees the room of this many words at once. Chosen, not measured.
const PORTION: usize = 4096;

/// A compressed frame of the file is written at this age, ms. Chosen, not measured.
const FRAME_AGE_MS: u64 = 1000;

/// The longest time that the end of a trace may take, ns. Chosen, not measured.
const FINISH_NS: u64 = 5_000_000_000;

/// Bits of a word for its time.
const TIME_BITS: u32 = 28;

/// The event in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    FirstTouch,
    FreshAhead,
    Present,
    MajorFault,
    MinorFault,
    PrefetchMarker,
    Prefetched,
    PageOutDirty,
    PageOutClean,
    PageOutZero,
    Discard,
    RegionAdd,
    PutBack,
    Time,
}

const KINDS: [Kind; 14] = [
    Kind::FirstTouch,
    Kind::FreshAhead,
    Kind::Present,
    Kind::MajorFault,
    Kind::MinorFault,
    Kind::PrefetchMarker,
    Kind::Prefetched,
    Kind::PageOutDirty,
    Kind::PageOutClean,
    Kind::PageOutZero,
    Kind::Discard,
    Kind::RegionAdd,
    Kind::PutBack,
    Kind::Time,
];

const RUNNING: u32 = 0;
const DONE: u32 = 1;
/// The file does not accept the trace, or has taken too long.
const FAILED: u32 = 2;

/// Data that three threads share: the pager's, the writing one, and the one that ends the trace.
pub(crate) struct Shared {
    path: PathBuf,
    ring: Words<RING>,
    state: AtomicU32,
    /// The time when the wait for the end of the trace is given up, ns; 0 before the end has begun.
    deadline_ns: AtomicU64,
    stalls: AtomicU64,
    /// Notified if the writing thread has much to do; it ends with the recording.
    work: EventCount,
}

impl Shared {
    /// Begins the end of the trace: no thread waits for the file for longer than five seconds from
    /// now.
    pub fn begin_end(&self) {
        self.deadline_ns.compare_exchange(0, now_ns() + FINISH_NS, Relaxed, Relaxed).ok();
    }

    fn late(&self) -> bool {
        let deadline_ns = self.deadline_ns.load(Relaxed);
        deadline_ns > 0 && now_ns() >= deadline_ns
    }

    /// Waits until the file is complete.
    pub fn wait_end(&self) -> Result<(), Error> {
        loop {
            match self.state.load(Acquire) {
                DONE => return Ok(()),
                FAILED => {
                    return Err(self.error(io::Error::other(
                        "the trace could not be written to the \
                                                            end",
                    )));
                }
                _ if self.late() => {
                    return Err(self.error(io::Error::other("the trace was not all written within 5 s")));
                }
                _ => thread::sleep_ms(1),
            }
        }
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Trace { path: self.path.clone(), source }
    }

    /// The number of times that the pager waited for the writing thread.
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Relaxed)
    }
}

/// The side of the pager's thread.
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    at: Put,
    started_ns: u64,
    last_us: u64,
}

impl Recorder {
    /// Starts the writing thread, which writes to `writer`; errors call it `path`.
    pub fn begin<W: Write + Send + 'static>(
        writer: Writer<W>,
        path: PathBuf,
    ) -> Result<(Recorder, Arc<Shared>), Error> {
        let shared = Arc::new(Shared {
            path,
            ring: Words::new(),
            state: AtomicU32::new(RUNNING),
            deadline_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            work: EventCount::new(),
        });
        let taker = Taker { shared: shared.clone(), writer, at: Take::default(), time_us: 0 };
        thread::spawn(c"terapage-trace", move || taker.run()).map_err(|error| shared.error(error.source))?;
        let recorder =
            Recorder { shared: shared.clone(), at: Put::default(), started_ns: now_ns(), last_us: 0 };
        Ok((recorder, shared))
    }

    /// Records that the same event happened to each of `blocks` now.
    pub fn events(&mut self, kind: Kind, blocks: impl IntoIterator<Item = u32>) {
        let mut blocks = blocks.into_iter().peekable();
        if blocks.peek().is_none() {
            // Without a block there is no word that could carry the time, so the time is not taken.
            return;
        }
        let mut time = self.time();
        for block in blocks {
            time = self.put(time, kind, block, &[]);
        }
    }

    /// Records that blocks read as zeros from now on.
    pub fn discard(&mut self, block: u32, count: u32) {
        let time = self.time();
        self.put(time, Kind::Discard, block, &[count.into()]);
    }

    /// Records that a range is paged from now on.
    pub fn region(&mut self, start: usize, len: usize, first: u32) {
        let time = self.time();
        self.put(time, Kind::RegionAdd, first, &[start as u64, len as u64]);
    }

    /// Ends the recording: the last event has been recorded.
    pub fn end(self) {
        self.shared.work.end();
    }

    /// Microseconds since the event before.
    fn time(&mut self) -> u64 {
        let now_us = (now_ns() - self.started_ns) / 1000;
        let delta_us = now_us - self.last_us;
        self.last_us = now_us;
        delta_us
    }

    /// Puts a whole event into the ring. Returns 0: the time from this event to the next one of the
    /// same moment.
    fn put(&mut self, delta_us: u64, kind: Kind, block: u32, more: &[u64]) -> u64 {
        let long = delta_us >> TIME_BITS != 0;
        let words = usize::from(long) + 1 + more.len();
        if !self.have_room(words) {
            return 0;
        }
        let before = self.at.head();
        let short_us = if long {
            self.store(delta_us >> 32 << 36 | u64::from(Kind::Time as u8) << 32 | delta_us & 0xffff_ffff);
            0
        } else {
            delta_us
        };
        self.store(short_us << 36 | u64::from(kind as u8) << 32 | u64::from(block));
        for &word in more {
            self.store(word);
        }
        self.at.publish(&self.shared.ring);
        if before / WAKE != self.at.head() / WAKE {
            self.shared.work.notify();
        }
        0
    }

    fn store(&mut self, word: u64) {
        self.at.put(&self.shared.ring, word);
    }

    /// Waits for room if there is none; false if the trace has failed.
    fn have_room(&mut self, words: usize) -> bool {
        if self.shared.state.load(Relaxed) != RUNNING {
            return false;
        }
        if self.at.has_room(&self.shared.ring, words) {
            return true;
        }
        self.shared.stalls.fetch_add(1, Relaxed);
        self.shared.work.notify();
        while !self.at.has_room(&self.shared.ring, words) {
            if self.shared.late() {
                self.shared.state.store(FAILED, Release);
            }
            if self.shared.state.load(Relaxed) != RUNNING {
                return false;
            }
            thread::sleep_ms(1);
        }
        true
    }
}

/// The side of the writing thread.
struct Taker<W: Write> {
    shared: Arc<Shared>,
    writer: Writer<W>,
    at: Take,
    time_us: u64,
}

impl<W: Write> Taker<W> {
    fn run(self) {
        let shared = self.shared.clone();
        let state = match self.write_all() {
            Ok(()) => DONE,
            Err(error) => {
                let path = shared.path.display();
                thread::say(&format!(
                    "terapage: trace {path}: {error}; the trace ends here, the program goes on\n"
                ));
                FAILED
            }
        };
        shared.state.store(state, Release);
    }

    fn write_all(mut self) -> io::Result<()> {
        let mut written_ns = now_ns();
        loop {
            // The thread reads the count before it reads the ring: if the count has ended, the
            // ring has all remaining words.
            let seen = self.shared.work.read();
            let head = self.shared.ring.head();
            self.take(head)?;
            if self.shared.state.load(Relaxed) == FAILED {
                return Err(io::Error::other("the file took too long"));
            }
            let Some(seen) = seen else { return self.writer.finish().map(drop) };
            if now_ns() - written_ns >= FRAME_AGE_MS * 1_000_000 {
                self.writer.flush()?;
                written_ns = now_ns();
            }
            if self.shared.ring.head() - self.at.tail() < WAKE {
                self.shared.work.wait_ms(seen, FRAME_AGE_MS);
            }
        }
    }

    /// Takes the words up to `head` out of the ring.
    fn take(&mut self, head: usize) -> io::Result<()> {
        let mut given_back = self.at.tail();
        while self.at.tail() < head {
            let word = self.word();
            let kind = KINDS[(word >> 32 & 15) as usize];
            if kind == Kind::Time {
                self.time_us += word >> 36 << 32 | word & 0xffff_ffff;
                continue;
            }
            self.time_us += word >> 36;
            let event = self.event(kind, word as u32);
            self.writer.record(&Record { time_us: self.time_us, event })?;
            if self.at.tail() - given_back >= PORTION {
                self.at.give_back(&self.shared.ring);
                given_back = self.at.tail();
            }
        }
        self.at.give_back(&self.shared.ring);
        Ok(())
    }

    fn word(&mut self) -> u64 {
        self.at.take(&self.shared.ring)
    }

    fn event(&mut self, kind: Kind, block: u32) -> Event {
        match kind {
            Kind::FirstTouch => Event::FirstTouch { block },
            Kind::FreshAhead => Event::FreshAhead { block },
            Kind::Present => Event::Present { block },
            Kind::MajorFault => Event::MajorFault { block },
            Kind::MinorFault => Event::MinorFault { block },
            Kind::PrefetchMarker => Event::PrefetchMarker { block },
            Kind::Prefetched => Event::Prefetched { block },
            Kind::PutBack => Event::PutBack { block },
            Kind::PageOutDirty => Event::PageOut { block, how: PageOut::Dirty },
            Kind::PageOutClean => Event::PageOut { block, how: PageOut::Clean },
            Kind::PageOutZero => Event::PageOut { block, how: PageOut::Zero },
            Kind::Discard => Event::Discard { block, count: self.word() as u32 },
            Kind::RegionAdd => Event::RegionAdd { start: self.word(), len: self.word(), first: block },
            Kind::Time => unreachable!("taken by the caller"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::file::{TraceFile, with_pid};
    use super::*;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;
    use terapage_trace::Reader;

    /// A path that no other test uses, with nothing there.
    fn fresh_path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("terapage-{name}-{}", std::process::id()));
        std::fs::remove_file(&path).ok();
        path
    }

    /// Removes a file, also when the test fails.
    struct Removed(PathBuf);

    impl Drop for Removed {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).ok();
        }
    }

    #[test]
    fn what_happens_to_no_block_takes_no_time_from_others() {
        let file = Removed(fresh_path("recorder-empty"));
        let (mut recorder, shared) = Recorder::start(&file.0, 4096, 8).unwrap();
        // As if the recording had begun a second ago.
        recorder.started_ns -= 1_000_000_000;
        recorder.events(Kind::PutBack, []);
        recorder.events(Kind::MajorFault, [7]);
        recorder.end();
        shared.wait_end().unwrap();
        let records: Vec<_> = Reader::open(&file.0).unwrap().map(Result::unwrap).collect();
        assert!(records.len() == 1 && records[0].time_us >= 1_000_000, "{records:?}");
    }

    #[test]
    fn every_event_comes_back_however_many_and_however_late() {
        let file = Removed(fresh_path("recorder"));
        let (mut recorder, shared) = Recorder::start(&file.0, 4096, 8).unwrap();
        recorder.region(1 << 40, 1 << 30, 0);
        recorder.discard(5, 70_000);
        let mut expected = Vec::new();
        let mut time_us = recorder.last_us;
        for index in 0..5 * RING as u64 {
            let delta_us = if index % 1000 == 0 { (1 << TIME_BITS) + (index << 30) } else { index % 3 };
            let block = (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
            recorder.put(delta_us, Kind::MajorFault, block, &[]);
            time_us += delta_us;
            expected.push(Record { time_us, event: Event::MajorFault { block } });
        }
        recorder.end();
        shared.wait_end().unwrap();
        let records: Vec<_> = Reader::open(&file.0).unwrap().map(Result::unwrap).collect();
        assert_eq!(records[0].event, Event::RegionAdd { start: 1 << 40, len: 1 << 30, first: 0 });
        assert_eq!(records[1].event, Event::Discard { block: 5, count: 70_000 });
        assert!(records[2..] == expected);
    }

    #[test]
    fn a_file_that_takes_nothing_does_not_hold_the_end_up_for_ever() {
        let pipe = Removed(fresh_path("pipe"));
        let name = std::ffi::CString::new(pipe.0.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let open = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&pipe.0);
        let _reader = open.unwrap();
        let (mut recorder, shared) = Recorder::start(&pipe.0, 4096, 8).unwrap();
        shared.begin_end();
        // More than a pipe and the ring can hold. All blocks differ, so zstd can compress little.
        for index in 0..20 * RING as u64 {
            recorder.put(0, Kind::MajorFault, (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32, &[]);
        }
        recorder.end();
        assert!(shared.wait_end().is_err());
        assert!(shared.stalls() > 0);
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_trace_with_an_error() {
        let pipe = Removed(fresh_path("gone"));
        let name = std::ffi::CString::new(pipe.0.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe.0).unwrap();
        let (mut recorder, shared) = Recorder::start(&pipe.0, 4096, 8).unwrap();
        drop(reader);
        recorder.events(Kind::FirstTouch, 0..100);
        recorder.end();
        assert!(shared.wait_end().is_err());
    }

    #[test]
    fn two_processes_do_not_write_one_file() {
        let file = Removed(fresh_path("twice"));
        let first = TraceFile::create(&file.0).unwrap();
        let Err(error) = TraceFile::create(&file.0) else { panic!("two have it") };
        assert!(error.to_string().contains("%p"), "{error}");
        drop(first);
        TraceFile::create(&file.0).unwrap();
        let named = with_pid(Path::new("/a/%p/b%p%"));
        let pid = std::process::id();
        assert_eq!(named, PathBuf::from(format!("/a/{pid}/b{pid}%")));
    }
}
