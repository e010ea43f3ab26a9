//! A pager on one screen: fault, read, move, evict.
//!
//! It is what Terapage does, less everything that makes it fast or safe for real programs: one
//! fault at a time, FIFO, no prefetch, no clean blocks, no hashes, no forks. 64 MiB of data live
//! within 8 MiB of frames; the rest is in a file.
//!
//!     cargo run --release -p terapage-sys --example tiny_pager
//!
//! A frame is one block of memory. It lies either in the program, at the block's address, or in
//! the pool, at one of the pool's places. `UFFDIO_MOVE` takes its pages from one to the other
//! without a copy.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use terapage_sys::fd::Fd;
use terapage_sys::userfaultfd::{Kind, Userfaultfd};
use terapage_sys::{Result, memory};

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 1024;
const FRAMES: usize = 128;
/// How often a move is tried again if the kernel is busy for a moment.
const TRIES: u32 = 100;

/// Where a block's bytes are.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Nowhere: it was never touched, and reads as zeros.
    Zero,
    /// In a frame in the program.
    Mapped,
    /// In the file, at the block's own offset.
    Stored,
}

struct Pager {
    /// Hears of touches of blocks that are not there. Its range is the program's.
    program: Userfaultfd,
    /// The pool's. A touch of a place without a frame is an error, not a wait for this thread.
    pool: Userfaultfd,
    data_at: usize,
    pool_at: usize,
    /// Places in the pool: those with a frame, and those without.
    filled: Vec<usize>,
    hollow: Vec<usize>,
    states: Vec<State>,
    /// The blocks that have frames, the oldest first.
    mapped: VecDeque<usize>,
    store: File,
    page_ins: usize,
    page_outs: usize,
}

impl Pager {
    fn new(data_at: usize, store: File) -> Result<Pager> {
        let (program, pool) = (Userfaultfd::open(Kind::Faults)?, Userfaultfd::open(Kind::Sigbus)?);
        let pool_at = memory::reserve(FRAMES * BLOCK)? as usize;
        // Frames are made by a first touch, before the pool is watched.
        memory::populate(pool_at, FRAMES * BLOCK)?;
        pool.register(pool_at, FRAMES * BLOCK, false)?;
        program.register(data_at, BLOCKS * BLOCK, false)?;
        Ok(Pager {
            program,
            pool,
            data_at,
            pool_at,
            filled: (0..FRAMES).collect(),
            hollow: Vec::new(),
            states: vec![State::Zero; BLOCKS],
            mapped: VecDeque::new(),
            store,
            page_ins: 0,
            page_outs: 0,
        })
    }

    fn block_at(&self, block: usize) -> usize {
        self.data_at + block * BLOCK
    }

    fn place_at(&self, place: usize) -> usize {
        self.pool_at + place * BLOCK
    }

    /// A thread of the program touched `at`, and waits.
    fn fault(&mut self, at: usize) {
        let block = (at - self.data_at) / BLOCK;
        if self.states[block] == State::Mapped {
            // Two threads touched it; the first one's fault has brought it.
            return self.program.wake(self.block_at(block), BLOCK).expect("to wake a waiter");
        }
        if self.filled.is_empty() {
            self.evict();
        }
        let place = self.filled.pop().expect("a frame in the pool");
        // SAFETY: the place has a frame, which is this thread's alone.
        let bytes = unsafe { memory::bytes(self.place_at(place), BLOCK) };
        match self.states[block] {
            State::Stored => {
                self.store.read_exact_at(bytes, (block * BLOCK) as u64).expect("the block's bytes");
                self.page_ins += 1;
            }
            _ => bytes.fill(0),
        }
        // SAFETY: nobody else uses the place. The move wakes whoever waits for the block.
        let moved =
            unsafe { self.program.shift(self.block_at(block), self.place_at(place), BLOCK, true, TRIES) };
        moved.expect("the frame goes into the program");
        self.hollow.push(place);
        self.states[block] = State::Mapped;
        self.mapped.push_back(block);
    }

    /// Takes the oldest block out of the program, and writes it.
    fn evict(&mut self) {
        let block = self.mapped.pop_front().expect("all frames are in the program");
        let place = self.hollow.pop().expect("a place for each frame");
        // SAFETY: the program relies on the block, and gets it back when it touches it. From here
        // on it cannot change the bytes.
        let moved =
            unsafe { self.pool.shift(self.place_at(place), self.block_at(block), BLOCK, false, TRIES) };
        moved.expect("the frame goes into the pool");
        // SAFETY: the frame is here now, and this thread's alone.
        let bytes = unsafe { memory::bytes(self.place_at(place), BLOCK) };
        self.store.write_all_at(bytes, (block * BLOCK) as u64).expect("room in the store");
        self.filled.push(place);
        self.states[block] = State::Stored;
        self.page_outs += 1;
    }

    /// Serves faults until `end` is signalled.
    fn run(mut self, end: &Fd, ended: &std::sync::atomic::AtomicBool) -> Pager {
        let mut faults = Vec::new();
        while !ended.load(std::sync::atomic::Ordering::Acquire) {
            self.program.wait(end).expect("to poll the userfaultfd");
            self.program.read(16, &mut faults, &mut Vec::new()).expect("to read the userfaultfd");
            for fault in faults.drain(..) {
                self.fault(fault.at);
            }
        }
        self
    }
}

/// Writes numbers all over the data, reads them back; returns page-ins and page-outs.
fn use_it() -> Result<(usize, usize)> {
    let data_at = memory::reserve(BLOCKS * BLOCK)? as usize;
    let store = tempfile::tempfile_in(std::env::temp_dir()).expect("a temporary file");
    let pager = Pager::new(data_at, store)?;
    let (end, ended) = (Fd::event()?, std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| pager.run(&end, &ended));
        // SAFETY: mapped above, served by the pager, and used by this thread alone.
        let data = unsafe { memory::bytes(data_at, BLOCKS * BLOCK) };
        for (index, word) in data.chunks_exact_mut(4096).enumerate() {
            word[..8].copy_from_slice(&(index as u64 * 7).to_le_bytes());
        }
        for (index, word) in data.chunks_exact(4096).enumerate() {
            let expected = (index as u64 * 7).to_le_bytes();
            assert!(word[..8] == expected && word[8..].iter().all(|&byte| byte == 0), "page {index}");
        }
        ended.store(true, std::sync::atomic::Ordering::Release);
        end.signal();
        let pager = thread.join().expect("the pager's thread");
        Ok((pager.page_ins, pager.page_outs))
    })
}

fn main() {
    match use_it() {
        Ok((page_ins, page_outs)) => println!(
            "{} MiB of data within {} MiB of frames: {page_ins} page-ins, {page_outs} page-outs",
            (BLOCKS * BLOCK) >> 20,
            (FRAMES * BLOCK) >> 20
        ),
        Err(error) => {
            eprintln!("tiny_pager: {error}");
            std::process::exit(1);
        }
    }
}

#[test]
fn data_beyond_the_frames_come_back_as_they_were() {
    match Userfaultfd::open(Kind::Faults) {
        Ok(program) if program.can_move() => {}
        Ok(_) => return eprintln!("SKIPPED: this kernel does not move pages (Linux 6.8)"),
        Err(error) => return eprintln!("SKIPPED: {error}"),
    }
    // FIFO over a scan that is larger than the frames: each block of the second pass is read.
    assert_eq!(use_it().unwrap(), (BLOCKS, 2 * BLOCKS - FRAMES));
}
