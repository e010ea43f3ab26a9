//! Traces through the real pager: the records agree with the touches and the counters.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terapage_pager::{Error, Options, Pager};
use terapage_policy::belady::belady;
use terapage_stats::Snapshot;
use terapage_store::{FileStore, Store};
use terapage_sys::{census, memory};
use terapage_trace::{Event, PageOut, Reader, Record, references};

const BLOCK: usize = 4096;

/// Whether this machine lets the process have a userfaultfd.
fn can_page() -> bool {
    use terapage_sys::userfaultfd::{Kind, Userfaultfd};
    match Userfaultfd::open(Kind::Faults) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            false
        }
    }
}

/// A trace file, removed also when the test fails.
struct TraceFile(PathBuf);

impl TraceFile {
    fn new(name: &str) -> TraceFile {
        let name = format!("{name}-{}.trace", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::remove_file(&path).ok();
        TraceFile(path)
    }

    fn records(&self) -> Vec<Record> {
        Reader::open(&self.0).unwrap().map(Result::unwrap).collect()
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn start(options: Options) -> Result<Pager, Error> {
    let files = |block| -> Result<Box<dyn Store>, Error> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        Ok(Box::new(FileStore::open(&path, block, None)?))
    };
    Pager::start(options, Box::new(move || files(BLOCK)))
}

/// A pager that writes a trace, and paged memory.
fn arena(file: &TraceFile, frames: usize, prefetch: &str, blocks: usize) -> (Pager, usize) {
    let options = Options {
        block: BLOCK,
        frames,
        prefetch: prefetch.to_owned(),
        trace: Some(file.0.clone()),
        ..Options::default()
    };
    let pager = start(options).unwrap();
    let base = memory::reserve(blocks * BLOCK).unwrap() as usize;
    pager.add(base, blocks * BLOCK, 0).unwrap();
    (pager, base)
}

fn write(base: usize, block: u32) {
    // SAFETY: the block is the test's own, mapped for as long as the process lives.
    unsafe { ((base + block as usize * BLOCK) as *mut u64).write_volatile(u64::from(block) + 1) };
}

fn check(base: usize, block: u32) {
    // SAFETY: as above.
    let value = unsafe { ((base + block as usize * BLOCK) as *const u64).read_volatile() };
    assert_eq!(value, u64::from(block) + 1);
}

fn count(records: &[Record], wanted: impl Fn(Event) -> bool) -> u64 {
    records.iter().filter(|record| wanted(record.event)).count() as u64
}

/// The trace agrees with the counters, and Belady's optimum does not exceed the number of reads.
fn agrees(records: &[Record], pager: &Pager, before: &Snapshot, frames: usize) {
    let stats = pager.snapshot();
    assert_eq!(count(records, |event| matches!(event, Event::FirstTouch { .. })), stats.first_touches);
    assert_eq!(count(records, |event| matches!(event, Event::MajorFault { .. })), stats.major_faults);
    assert_eq!(count(records, |event| matches!(event, Event::MinorFault { .. })), stats.minor_faults);
    let marker = |event| matches!(event, Event::PrefetchMarker { .. });
    assert_eq!(count(records, marker), stats.prefetch_used_runs);
    // The pager may page out more right after the trace's end.
    for (how, counted) in [
        (PageOut::Dirty, before.dirty_page_outs..=stats.dirty_page_outs),
        (PageOut::Clean, before.clean_page_outs..=stats.clean_page_outs),
        (PageOut::Zero, before.zero_page_outs..=stats.zero_page_outs),
    ] {
        let out = |event| matches!(event, Event::PageOut { how: seen, .. } if seen == how);
        let seen = count(records, out);
        assert!(counted.contains(&seen), "{how:?}: {seen}, counted {counted:?}");
    }
    let touched = references(records.iter().map(|&record| Ok(record))).unwrap();
    let page_ins = stats.page_in_bytes / BLOCK as u64;
    let least = belady(&touched, frames);
    assert!(least <= page_ins, "Belady {least}, the pager {page_ins}");
    assert!(least > 0, "the test never paged");
}

#[test]
fn a_sequence_and_its_repetition_are_recorded_as_they_were() {
    if !can_page() {
        return;
    }
    let (blocks, frames) = (128, 32);
    let file = TraceFile::new("sequence");
    let (pager, base) = arena(&file, frames, "off", blocks as usize);
    (0..blocks).for_each(|block| write(base, block));
    (0..blocks).for_each(|block| check(base, block));
    pager.finish_trace().unwrap();
    pager.finish_trace().unwrap();
    // No part of the trace any more.
    (0..blocks).for_each(|block| check(base, block));

    let reader = Reader::open(&file.0).unwrap();
    let header = reader.header().clone();
    assert_eq!(header.block_bytes, BLOCK as u32);
    assert_eq!(header.budget_bytes, (frames * BLOCK) as u64);
    assert_eq!(header.pid, std::process::id());
    assert!(header.program.starts_with("trace-"), "{}", header.program);
    let records = file.records();
    let len = u64::from(blocks) * BLOCK as u64;
    assert_eq!(records[0].event, Event::RegionAdd { start: base as u64, len, first: 0 });
    assert!(records.is_sorted_by_key(|record| record.time_us));
    let touched = references(records.iter().map(|&record| Ok(record))).unwrap();
    // The first pass is complete: each block is installed at its touch or ahead of it.
    assert!(touched.starts_with(&(0..blocks).collect::<Vec<_>>()), "{touched:?}");
    // The second pass is complete except for blocks that were still in the program.
    let again = &touched[blocks as usize..];
    assert!(again.is_sorted() && again.len() >= blocks as usize - frames, "{again:?}");
    let page_ins = count(&records, |event| matches!(event, Event::MajorFault { .. }));
    assert!(belady(&touched, frames) <= page_ins);
}

#[test]
fn random_work_agrees_with_the_counters_and_with_belady() {
    if !can_page() {
        return;
    }
    let seed = rand::rng().random();
    eprintln!("seed {seed}");
    for (prefetch, frames) in [("off", 32), ("auto", 64), ("stride", 48), ("trend", 64)] {
        let blocks = 256;
        let file = TraceFile::new(prefetch);
        let (pager, base) = arena(&file, frames, prefetch, blocks as usize);
        let mut random = StdRng::seed_from_u64(seed);
        for _ in 0..300 {
            let first = random.random_range(0..blocks);
            let end = blocks.min(first + random.random_range(1..40));
            match random.random_range(0..10) {
                0 => pager.discard(base + first as usize * BLOCK, (end - first) as usize * BLOCK).unwrap(),
                1 => pager.will_need(base + first as usize * BLOCK, (end - first) as usize * BLOCK).unwrap(),
                2..6 => (first..end).rev().for_each(|block| write(base, block)),
                _ => (first..end).for_each(|block| write(base, block)),
            }
        }
        let before = pager.snapshot();
        pager.finish_trace().unwrap();
        let records = file.records();
        agrees(&records, &pager, &before, frames);
        assert!(count(&records, |event| matches!(event, Event::Discard { .. })) > 0);
    }
}

#[test]
fn blocks_that_begin_again_cost_the_optimum_nothing() {
    if !can_page() {
        return;
    }
    let (blocks, frames) = (64, 16);
    let file = TraceFile::new("again");
    let (pager, base) = arena(&file, frames, "off", 2 * blocks as usize);
    // Written twice and discarded in between.
    (0..blocks).for_each(|block| write(base, block));
    pager.discard(base, blocks as usize * BLOCK).unwrap();
    (0..blocks).for_each(|block| write(base, block));
    // Twice looked at, and zero.
    for block in (blocks..2 * blocks).chain(blocks..2 * blocks) {
        // SAFETY: the block is the test's own, mapped for as long as the process lives.
        let value = unsafe { ((base + block as usize * BLOCK) as *const u64).read_volatile() };
        assert_eq!(value, 0);
    }
    pager.finish_trace().unwrap();
    let touched = references(Reader::open(&file.0).unwrap()).unwrap();
    assert!(touched.len() >= 3 * blocks as usize, "{touched:?}");
    assert_eq!(pager.snapshot().page_in_bytes, 0);
    assert_eq!(belady(&touched, frames), 0);
}

#[test]
fn memory_that_held_data_before_is_recorded() {
    if !can_page() {
        return;
    }
    let file = TraceFile::new("present");
    let options = Options { block: BLOCK, frames: 16, trace: Some(file.0.clone()), ..Options::default() };
    let pager = start(options).unwrap();
    let base = memory::reserve(8 * BLOCK).unwrap() as usize;
    write(base, 3);
    write(base, 5);
    pager.add(base, 8 * BLOCK, 8 * BLOCK).unwrap();
    check(base, 3);
    pager.finish_trace().unwrap();
    let events: Vec<_> = file.records()[1..].iter().map(|record| record.event).collect();
    assert_eq!(events, [Event::Present { block: 3 }, Event::Present { block: 5 }]);
}

#[test]
fn a_trace_that_cannot_be_created_is_an_error_at_the_start() {
    if !can_page() {
        return;
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no/such/directory");
    let options = Options { block: BLOCK, frames: 16, trace: Some(path.clone()), ..Options::default() };
    let Err(error) = start(options) else { panic!("started") };
    assert!(matches!(&error, Error::Trace { path: at, .. } if *at == path));
    assert!(error.to_string().contains("no/such/directory: No such file"), "{error}");
}

/// Runs `work` in a child process, which then waits to be killed.
fn child(work: impl FnOnce()) -> libc::pid_t {
    // If another thread were just initialising the census, the child would wait for that for ever.
    census::join();
    // SAFETY: the child uses only what it makes itself, and never returns.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            work();
            loop {
                libc::pause();
            }
        }
        child
    }
}

/// Kills a child, also when the test fails.
struct Killed(libc::pid_t);

impl Drop for Killed {
    fn drop(&mut self) {
        // SAFETY: a child of this process for which nobody else waits.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_killed_program_leaves_a_trace_that_can_be_read() {
    if !can_page() {
        return;
    }
    let file = TraceFile::new("killed");
    let killed = Killed(child(|| {
        let (_pager, base) = arena(&file, 16, "off", 64);
        (0..64).for_each(|block| write(base, block));
        (0..64).for_each(|block| check(base, block));
    }));
    let whole = || {
        let Ok(reader) = Reader::open(&file.0) else { return false };
        let touched = references(reader.allow_cut_short()).unwrap();
        touched.starts_with(&(0..64).collect::<Vec<_>>()) && touched[64..].contains(&40)
    };
    let since = Instant::now();
    while !whole() {
        assert!(since.elapsed() < Duration::from_secs(60), "nothing was written");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(killed);
    assert!(whole());
    let strict = Reader::open(&file.0).unwrap().last();
    assert!(matches!(strict, Some(Err(terapage_trace::Error::CutShort { .. }))), "{strict:?}");
}

#[test]
fn a_forked_child_records_nothing() {
    if !can_page() {
        return;
    }
    let file = TraceFile::new("fork");
    let (mut pager, base) = arena(&file, 16, "off", 64);
    (0..64).for_each(|block| write(base, block));
    let forking = pager.before_fork().unwrap();
    // SAFETY: the child continues only in this thread and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = pager.after_fork_in_child(forking).is_ok() && {
            (0..64).for_each(|block| check(base, block));
            pager.finish_trace().is_ok()
        };
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    pager.after_fork_in_parent(forking);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    (0..64).for_each(|block| check(base, block));
    let before = pager.snapshot();
    pager.finish_trace().unwrap();
    agrees(&file.records(), &pager, &before, 16);
}
