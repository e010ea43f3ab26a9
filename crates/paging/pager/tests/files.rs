//! Mapped files against a copy in memory: reads, writes, syncs, forks, budgets of a few blocks.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::os::unix::fs::FileExt;
use terapage_pager::{Error, Options, Pager, Tuning};
use terapage_store::{FileStore, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 16 << 10;

/// Whether this machine lets the process have a userfaultfd.
fn can_page() -> bool {
    match Userfaultfd::open(Kind::Faults) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            false
        }
    }
}

fn store() -> Result<Box<dyn Store>, Error> {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    Ok(Box::new(FileStore::open(&path, BLOCK, None)?))
}

/// A pager with a budget of 16 blocks, and the start of a range of `blocks`.
fn arena(blocks: usize) -> (Pager, usize) {
    arena_with(blocks, Options::default())
}

fn arena_with(blocks: usize, options: Options) -> (Pager, usize) {
    let len = blocks * BLOCK;
    let start = (memory::reserve(len + BLOCK).unwrap() as usize).next_multiple_of(BLOCK);
    // Half of the budget suffices for two bounce buffers.
    let frames = if options.tuning.bounce == Some(true) { (8 << 20) / BLOCK } else { 16 };
    let options = Options { block: BLOCK, frames, ..options };
    let pager = Pager::start(options, Box::new(store)).unwrap();
    pager.add(start, len, 0).unwrap();
    (pager, start)
}

/// A file without a name, and its bytes: `len` of them, some blocks zero.
fn file(len: usize, random: &mut StdRng) -> (File, Vec<u8>) {
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut bytes = vec![0; len];
    for (index, block) in bytes.chunks_mut(BLOCK).enumerate() {
        if index % 5 != 3 {
            random.fill(block);
        }
    }
    file.write_all_at(&bytes, 0).unwrap();
    (file, bytes)
}

fn contents(file: &File, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn random_work_and_syncs_leave_in_the_file_what_the_model_says() {
    if can_page() {
        random_work_and_syncs(Options::default());
        random_work_and_syncs(Options { copy: true, ..Options::default() });
        random_work_and_syncs(Options {
            tuning: Tuning {
                bounce: Some(true),
                long_run_bytes: 2 * BLOCK,
                bounce_part: 2,
                ..Tuning::PROGRAMS
            },
            ..Options::default()
        });
        random_work_and_syncs(Options { verify: false, prefetch: "off".to_owned(), ..Options::default() });
    }
}

fn random_work_and_syncs(options: Options) {
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let offset = 4096;
    let (file, mut model) = file(150 * BLOCK + 777, &mut random);
    let bytes = model.len() - offset;
    let len = bytes.next_multiple_of(BLOCK);
    let bounces = options.tuning.bounce == Some(true);
    let (pager, start) = arena_with(200, options);
    pager.map_file(start, len, &file, offset as u64, bytes as u64).unwrap();
    // SAFETY: the range is the test's own.
    let real = unsafe { memory::bytes(start, len) };
    assert!(real[bytes..].iter().all(|&byte| byte == 0), "zeros follow the file's end");
    assert_eq!(pager.sync_file(start, len, &file, offset as u64, bytes as u64).unwrap(), 0);
    for step in 0..3000 {
        let at = random.random_range(0..bytes);
        let size = random.random_range(1..=(2 * BLOCK).min(bytes - at));
        let range = at..at + size;
        let place = offset + at..offset + at + size;
        match random.random_range(0..20) {
            0..9 => assert!(real[range] == model[place], "step {step}"),
            9 => {
                real[range.clone()].fill(0);
                model[place].fill(0);
            }
            10 => {
                // Change, sync, and change back: the pager must not confuse the old bytes with the
                // file's.
                let old = real[at];
                real[at] = !old;
                pager.sync_file(start, len, &file, offset as u64, bytes as u64).unwrap();
                real[at] = old;
            }
            11 => {
                pager.sync_file(start, len, &file, offset as u64, bytes as u64).unwrap();
                assert!(contents(&file, model.len()) == model, "step {step}");
            }
            _ => {
                let value = random.random();
                real[range].fill(value);
                model[place].fill(value);
            }
        }
    }
    pager.sync_file(start, len, &file, offset as u64, bytes as u64).unwrap();
    assert!(contents(&file, model.len()) == model);
    assert!(real[..bytes] == model[offset..]);
    assert_eq!(pager.snapshot().bounced_bytes > 0, bounces);
    // Reads change nothing. All blocks lie in the file again, except those of zeros.
    let again = pager.sync_file(start, len, &file, offset as u64, bytes as u64).unwrap();
    assert!(again <= 40 * BLOCK as u64, "{again} bytes were written for no change");
    pager.unmap_file(start, len).unwrap();
    assert!(real.iter().all(|&byte| byte == 0), "an unmapped range reads as zeros");
    assert!(matches!(pager.unmap_file(start, len), Err(Error::NoFile)));
}

#[test]
fn files_come_and_go_and_too_many_are_refused() {
    if !can_page() {
        return;
    }
    let (file, model) = file(BLOCK, &mut StdRng::seed_from_u64(1));
    let (pager, start) = arena(300);
    // SAFETY: the range is the test's own.
    let real = unsafe { memory::bytes(start, 300 * BLOCK) };
    for _ in 0..600 {
        pager.map_file(start, BLOCK, &file, 0, BLOCK as u64).unwrap();
        assert!(real[..BLOCK] == model);
        pager.unmap_file(start, BLOCK).unwrap();
    }
    let mapped = (0..300)
        .take_while(|at| pager.map_file(start + at * BLOCK, BLOCK, &file, 0, BLOCK as u64).is_ok())
        .count();
    assert_eq!(mapped, 249);
    for block in real.chunks(BLOCK).take(mapped) {
        assert!(block == model);
    }
    pager.unmap_file(start, BLOCK).unwrap();
    pager.map_file(start + 299 * BLOCK, BLOCK, &file, 0, BLOCK as u64).unwrap();
    assert!(real[299 * BLOCK..] == model);
}

#[test]
fn a_forked_child_reads_the_file_and_its_changes_are_its_own() {
    if !can_page() {
        return;
    }
    let (file, model) = file(64 * BLOCK, &mut StdRng::seed_from_u64(2));
    let (mut pager, start) = arena(64);
    pager.map_file(start, model.len(), &file, 0, model.len() as u64).unwrap();
    // SAFETY: the range is the test's own.
    let real = unsafe { memory::bytes(start, model.len()) };
    real[5] = 55;
    let forking = pager.before_fork().unwrap();
    // SAFETY: the child continues only in this thread and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good =
            pager.after_fork_in_child(forking).is_ok() && real[5] == 55 && real[6..] == model[6..] && {
                real.fill(9);
                real.iter().all(|&byte| byte == 9)
            };
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    pager.after_fork_in_parent(forking);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert!(real[5] == 55 && real[6..] == model[6..]);
}

#[test]
fn what_threads_write_during_a_sync_gets_to_the_file_by_the_next() {
    if !can_page() {
        return;
    }
    let (file, model) = file(96 * BLOCK, &mut StdRng::seed_from_u64(3));
    let (pager, start) = arena(96);
    let len = model.len();
    pager.map_file(start, len, &file, 0, len as u64).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let (pager, file, done) = (&pager, &file, &done);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
                let mut random = StdRng::seed_from_u64(thread);
                while !done.load(Relaxed) {
                    let at = start + random.random_range(0..len / 8) * 8;
                    // SAFETY: the range is mapped, and each word is only used as an atomic here.
                    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
                    // There are few values, so blocks often get the file's bytes again.
                    word.store(random.random_range(0..2), Relaxed);
                }
            });
        }
        for _ in 0..30 {
            pager.sync_file(start, len, file, 0, len as u64).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    pager.sync_file(start, len, file, 0, len as u64).unwrap();
    // SAFETY: the threads have ended.
    assert!(contents(file, len) == unsafe { memory::bytes(start, len) });
}

#[test]
fn what_did_not_become_durable_is_written_again() {
    if !can_page() {
        return;
    }
    let (file, mut model) = file(40 * BLOCK + 100, &mut StdRng::seed_from_u64(4));
    let (pager, start) = arena(48);
    let len = model.len().next_multiple_of(BLOCK);
    pager.map_file(start, len, &file, 0, model.len() as u64).unwrap();
    // SAFETY: the range is the test's own.
    let real = unsafe { memory::bytes(start, len) };
    for at in (0..model.len()).step_by(3000) {
        (real[at], model[at]) = (!real[at], !model[at]);
    }
    // The process's memory is a file that can be written, but has no fdatasync.
    let taken = vec![0u8; model.len()];
    let failing = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
    let error = pager.sync_file(start, len, &failing, taken.as_ptr() as u64, taken.len() as u64).unwrap_err();
    assert!(error.to_string().contains("fdatasync"), "{error}");
    // The blocks' bytes are not in the file: the pager must not confuse them with the file's,
    // neither when they are paged out nor at the next sync.
    assert!(real[..model.len()] == model);
    assert!(
        pager.sync_file(start, len, &file, 0, model.len() as u64).unwrap()
            >= model.len() as u64 - BLOCK as u64
    );
    assert!(contents(&file, model.len()) == model);
    assert!(real[..model.len()] == model);
}

#[test]
fn what_cannot_be_read_ahead_stops_nobody() {
    if !can_page() {
        return;
    }
    let (file, model) = file(64 * BLOCK, &mut StdRng::seed_from_u64(5));
    let (pager, start) = arena(64);
    pager.map_file(start, model.len(), &file, 0, model.len() as u64).unwrap();
    // SAFETY: the range is the test's own.
    let real = unsafe { memory::bytes(start, model.len()) };
    file.set_len(30 * BLOCK as u64).unwrap();
    // The blocks are read in order, so that the rest is read ahead, and by a hint.
    for at in (0..30 * BLOCK).step_by(4096) {
        assert!(real[at] == model[at]);
    }
    pager.will_need(start, model.len()).unwrap();
    pager.will_need(start + 28 * BLOCK, 4 * BLOCK).unwrap();
    assert!(real[..30 * BLOCK] == model[..30 * BLOCK]);
    // Once the file is whole again, all reads succeed.
    file.write_all_at(&model, 0).unwrap();
    assert!(*real == model);
}
