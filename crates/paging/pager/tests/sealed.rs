//! Files that the program only reads: their bytes under a small budget, and while the range becomes
//! the kernel's mapping of the file.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use terapage_pager::{Error, Options, Pager};
use terapage_store::{FileStore, Store};
use terapage_sys::memory;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};

const BLOCK: usize = 16 << 10;
const BLOCKS: usize = 100;

fn can_page() -> bool {
    match Userfaultfd::open(Kind::Faults) {
        Ok(fd) if fd.can_protect() => true,
        Ok(_) => {
            eprintln!("SKIPPED: no write protection by userfaultfd");
            false
        }
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

fn arena(copy: bool) -> (Pager, usize) {
    let len = 2 * BLOCKS * BLOCK;
    let start = (memory::reserve(len + BLOCK).unwrap() as usize).next_multiple_of(BLOCK);
    let options = Options { block: BLOCK, frames: 16, copy, ..Options::default() };
    let pager = Pager::start(options, Box::new(store)).unwrap();
    pager.add(start, len, 0).unwrap();
    (pager, start)
}

/// A file without a name, and its bytes. Some of its blocks are zero.
fn file(random: &mut StdRng) -> (File, Vec<u8>) {
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut bytes = vec![0; BLOCKS * BLOCK - 777];
    for (index, block) in bytes.chunks_mut(BLOCK).enumerate() {
        if index % 5 != 3 {
            random.fill(block);
        }
    }
    file.write_all_at(&bytes, 0).unwrap();
    (file, bytes)
}

fn seeded() -> StdRng {
    let seed: u64 = rand::rng().random();
    eprintln!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

/// Compares ranges of the mapping with the file until `over`. Blocks beside the mapping are written
/// to meanwhile.
fn compare(start: usize, model: &[u8], mut random: StdRng, over: impl Fn() -> bool) {
    while !over() {
        let at = random.random_range(0..model.len());
        let size = random.random_range(1..=(2 * BLOCK).min(model.len() - at));
        // SAFETY: the range is the test's own.
        let real = unsafe { memory::bytes(start + at, size) };
        assert!(*real == model[at..at + size], "other bytes from {at}");
        let beside = start + BLOCKS * BLOCK + random.random_range(0..BLOCKS) * BLOCK;
        // SAFETY: these blocks have no other use.
        unsafe { memory::bytes(beside, BLOCK) }.fill(random.random());
    }
}

/// Maps a part of a sealed range as the kernel does.
fn leave(pager: &Pager, file: &File, start: usize, from: usize, len: usize) {
    assert_eq!(
        pager.leave_sealed(start + from, len, BLOCK, 1).unwrap(),
        [(start + from, start + from + len)]
    );
    let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: the pager has given the range up for this.
    let at = unsafe {
        libc::mmap((start + from) as *mut libc::c_void, len, prot, flags, file.as_raw_fd(), from as i64)
    };
    assert_eq!(at as usize, start + from);
}

#[test]
fn a_sealed_file_has_its_bytes_and_becomes_the_kernels_while_threads_read() {
    if !can_page() {
        return;
    }
    for copy in [false, true] {
        let mut random = seeded();
        let (file, model) = file(&mut random);
        let (pager, start) = arena(copy);
        let len = BLOCKS * BLOCK;
        for _ in 0..20 {
            pager.map_sealed(start, len, &file, 0, model.len() as u64).unwrap();
            let over = AtomicBool::new(false);
            let mut others = random.clone();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let random = StdRng::seed_from_u64(others.random());
                    let (over, model) = (&over, &model);
                    scope.spawn(move || compare(start, model, random, || over.load(SeqCst)));
                }
                let mut left = 100;
                compare(start, &model, StdRng::seed_from_u64(random.random()), {
                    let left = std::cell::Cell::new(100);
                    move || left.replace(left.get() - 1) == 0
                });
                while left > 0 {
                    let part = random.random_range(1..=left);
                    leave(&pager, &file, start, (left - part) * BLOCK, part * BLOCK);
                    left -= part;
                }
                over.store(true, SeqCst);
            });
            // SAFETY: no thread uses the range.
            unsafe { memory::replace(start as *mut u8, len) }.unwrap();
            pager.restore(start, len).unwrap();
            // SAFETY: the range is the test's own.
            assert!(unsafe { memory::bytes(start, len) }.iter().all(|&byte| byte == 0));
            pager.discard(start, len).unwrap();
        }
        assert!(pager.snapshot().page_in_bytes > 0);
        assert_eq!(pager.snapshot().released_bytes, 0);
    }
}

#[test]
fn parts_of_a_sealed_file_are_unmapped() {
    if !can_page() {
        return;
    }
    let mut random = seeded();
    let (file, model) = file(&mut random);
    let (pager, start) = arena(false);
    // More mappings than the pager has numbers for files.
    for _ in 0..300 {
        pager.map_sealed(start, BLOCKS * BLOCK, &file, 0, model.len() as u64).unwrap();
        let cut = random.random_range(1..BLOCKS);
        pager.unmap_sealed(start, cut * BLOCK).unwrap();
        // SAFETY: the range is the test's own.
        unsafe { memory::bytes(start, cut * BLOCK) }.fill(7);
        // SAFETY: as above.
        let rest = unsafe { memory::bytes(start + cut * BLOCK, model.len() - cut * BLOCK) };
        assert!(*rest == model[cut * BLOCK..]);
        // SAFETY: as above.
        assert!(unsafe { memory::bytes(start, cut * BLOCK) }.iter().all(|&byte| byte == 7));
        pager.unmap_sealed(start + cut * BLOCK, (BLOCKS - cut) * BLOCK).unwrap();
        pager.discard(start, BLOCKS * BLOCK).unwrap();
    }
}

/// Writes random bytes to a private mapping and its model.
fn write(start: usize, model: &mut [u8], random: &mut StdRng) {
    let at = random.random_range(0..model.len());
    let size = random.random_range(1..=(2 * BLOCK).min(model.len() - at));
    random.fill(&mut model[at..at + size]);
    // SAFETY: the range is the test's own.
    unsafe { memory::bytes(start + at, size) }.copy_from_slice(&model[at..at + size]);
}

#[test]
fn a_private_file_keeps_changes_until_they_are_dropped() {
    if !can_page() {
        return;
    }
    for copy in [false, true] {
        let mut random = seeded();
        let (file, bytes) = file(&mut random);
        let (pager, start) = arena(copy);
        let len = BLOCKS * BLOCK;
        for most in [BLOCKS, 3] {
            let mut model = bytes.clone();
            pager.map_sealed(start, len, &file, 0, bytes.len() as u64).unwrap();
            assert_eq!(pager.let_write(start, len).unwrap(), []);
            for _ in 0..300 {
                write(start, &mut model, &mut random);
                if random.random_range(0..4) == 0 {
                    let from = random.random_range(0..model.len());
                    let to = (from + random.random_range(1..10 * BLOCK)).min(model.len());
                    for (at, end) in pager.drop_changes(start + from, start + to).unwrap() {
                        let part = at - start..end - start;
                        assert!(part.start >= from && part.end <= to);
                        // SAFETY: the range is the test's own.
                        unsafe { memory::bytes(at, end - at) }.copy_from_slice(&bytes[part]);
                    }
                    model[from..to].copy_from_slice(&bytes[from..to]);
                }
                let left = std::cell::Cell::new(3);
                let random = StdRng::seed_from_u64(random.random());
                compare(start, &model, random, || left.replace(left.get() - 1) == 0);
            }
            let changed = pager.changed_within(start, start + len).unwrap();
            assert!(pager.snapshot().changed_file_bytes > 0 && pager.snapshot().page_out_bytes > 0);
            let sealed = pager.leave_sealed(start, len, BLOCK, most).unwrap();
            assert!(sealed.len() <= most && sealed.iter().all(|part| !changed.contains(part)));
            for &(from, to) in &sealed {
                let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
                let (at, offset) = (from as *mut libc::c_void, (from - start) as i64);
                // SAFETY: the pager has given the range up for this.
                let mapped = unsafe { libc::mmap(at, to - from, prot, flags, file.as_raw_fd(), offset) };
                assert_eq!(mapped, at);
            }
            // SAFETY: the range is the test's own.
            assert!(unsafe { memory::bytes(start, model.len()) } == model, "after the file has left");
            for (from, to) in sealed {
                // SAFETY: no thread uses the range.
                unsafe { memory::replace(from as *mut u8, to - from) }.unwrap();
                pager.restore(from, to - from).unwrap();
            }
            pager.forget_private(start, start + len).unwrap();
            pager.discard(start, len).unwrap();
        }
        assert_eq!(pager.snapshot().released_bytes, 0);
    }
}

#[test]
fn a_file_that_leaves_in_parts_is_closed_once() {
    if !can_page() {
        return;
    }
    let mut random = seeded();
    let (first, bytes) = file(&mut random);
    let (pager, start) = arena(false);
    let len = BLOCKS * BLOCK;
    pager.map_sealed(start, len, &first, 0, bytes.len() as u64).unwrap();
    assert_eq!(pager.let_write(start, len).unwrap(), []);
    for block in (1..BLOCKS).step_by(2) {
        // SAFETY: the range is the test's own.
        unsafe { memory::bytes(start + block * BLOCK, 1) }.fill(1);
    }
    let sealed = pager.leave_sealed(start, len, BLOCK, BLOCKS).unwrap();
    assert_eq!(sealed.len(), BLOCKS / 2);
    for (from, to) in sealed {
        // SAFETY: no thread uses the range.
        unsafe { memory::replace(from as *mut u8, to - from) }.unwrap();
        pager.restore(from, to - from).unwrap();
    }
    pager.forget_private(start, start + len).unwrap();
    // Two files at a time have two numbers.
    let files = [file(&mut random), file(&mut random)];
    for (index, (file, bytes)) in files.iter().enumerate() {
        pager.map_sealed(start + index * len, len, file, 0, bytes.len() as u64).unwrap();
    }
    for (index, (_, bytes)) in files.iter().enumerate() {
        // SAFETY: the range is the test's own.
        assert!(unsafe { memory::bytes(start + index * len, bytes.len()) } == bytes, "file {index}");
        pager.unmap_sealed(start + index * len, len).unwrap();
    }
}
