//! The state of the machine: which pages are where, which threads wait, and what is under way.
//!
//! Each run has one machine, which is used through [`with`]. Nothing inside `with` is interrupted.
//! At a [`point`] another thread may run.

use crate::page_bytes;
use crate::ring::{Done, Operation, Poll};
use crate::sync::Bell;
use crate::userfaultfd::{Changed, Fault};
use shuttle::rand::Rng;
use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// A bug of the pager or the kernel, made by the machine, that the checker must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// The pager believes the kernel's count of pages moved, not the page map.
    TrustsTheCount,
    /// The kernel counts a page as moved that was not.
    CountsTooMany,
    /// A wake-up is forgotten.
    ForgetsToWake,
    /// A call that removes pages is not reported.
    HearsNothing,
    /// A write reports its completion without ever being done.
    LosesWrites,
    /// A call of the program does not wait for the end of what the pager is taking away.
    WaitsForNothing,
    /// The pager sees no pins.
    SeesNoPins,
}

/// How the machine behaves.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// Whether `UFFDIO_MOVE` exists.
    pub moves: bool,
    /// One operation in this many has trouble; 0 for none.
    pub trouble: u32,
    /// The most pages that may be present, in the pool and in the program together.
    pub pages_max: usize,
    /// The first disk fails often and without end, the others never; another disk has all its
    /// bytes.
    pub mirrored: bool,
    /// The bug that must be found.
    pub canary: Option<Canary>,
}

/// A page of a registered range.
#[derive(Clone, Copy, Default)]
pub(crate) struct Page {
    pub present: bool,
    pub protected: bool,
    /// Whether it is shared since a fork: then it cannot be moved.
    pub shared: bool,
    /// The number of moves that will be refused.
    pub busy: u32,
    /// Whether it was moved, uncounted.
    pub uncounted: bool,
}

/// A range registered with a userfaultfd.
pub(crate) struct Area {
    pub start: usize,
    pub uffd: i32,
    pub pages: Vec<Page>,
    /// What the program last wrote.
    pub truth: Vec<u8>,
}

/// A thread that waits for a page.
pub(crate) struct Waiter {
    pub id: u64,
    pub at: usize,
}

/// The kind of a descriptor.
pub(crate) enum Open {
    Userfaultfd {
        strict: bool,
        /// Whether calls that remove pages wait until their report is read.
        reports: bool,
        messages: VecDeque<(u64, Fault)>,
        changes: VecDeque<(u64, Changed)>,
        /// The number of such calls that have not continued yet.
        changing: u32,
    },
    Event {
        set: bool,
    },
    Pipe {
        hung_up: bool,
    },
    /// A real file, which is only read here.
    File(std::fs::File),
}

pub(crate) struct Machine {
    pub behaviour: Behaviour,
    pub areas: Vec<Area>,
    pub open: HashMap<i32, Open>,
    pub waiters: Vec<Waiter>,
    /// The number of rings.
    pub rings: usize,
    /// Operations under way, each with its ring.
    pub operations: Vec<(usize, Operation)>,
    pub polls: Vec<Poll>,
    /// Completions, each with its ring.
    pub ends: VecDeque<(usize, Done)>,
    /// Slots of stores, by the store's number.
    pub slots: Vec<Vec<u8>>,
    /// The number of successive failures of an operation, by its ring and its tag.
    pub failures: HashMap<(usize, u64), u32>,
    /// Pages of the pool whose bytes are also in the program.
    pub copied: HashSet<usize>,
    /// Ranges that are not frames: their bytes also exist elsewhere.
    pub buffers: Vec<std::ops::Range<usize>>,
    /// Ranges that the program is discarding.
    pub discarding: Vec<std::ops::Range<usize>>,
    pub ending: bool,
    pub now_ns: u64,
    present: usize,
    numbers: u64,
    memory: Vec<(usize, Layout)>,
    pub bells: Rc<Bells>,
}

/// Bells for waiters: threads wait for pages, the pager for ends, the disk for operations.
#[derive(Default)]
pub(crate) struct Bells {
    pub pages: Bell,
    pub ends: Bell,
    pub operations: Bell,
    /// The bell for calls that change a registered range and wait until their report is read.
    pub changes: Bell,
    turns: AtomicU32,
}

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

impl Drop for Machine {
    fn drop(&mut self) {
        for &(at, layout) in &self.memory {
            // SAFETY: `reserve` allocated the memory with this layout, and the run that used it has
            // ended.
            unsafe { dealloc(at as *mut u8, layout) };
        }
    }
}

/// Starts a machine afresh.
pub fn start(behaviour: Behaviour) {
    let machine = Machine {
        behaviour,
        areas: Vec::new(),
        open: HashMap::new(),
        waiters: Vec::new(),
        rings: 0,
        operations: Vec::new(),
        polls: Vec::new(),
        ends: VecDeque::new(),
        slots: Vec::new(),
        failures: HashMap::new(),
        copied: HashSet::new(),
        buffers: Vec::new(),
        discarding: Vec::new(),
        ending: false,
        now_ns: 1,
        present: 0,
        numbers: 0,
        memory: Vec::new(),
        bells: Rc::default(),
    };
    MACHINE.with_borrow_mut(|here| *here = Some(machine));
}

/// Notes that the program has ended: the threads of the pager and the disk end when they have no
/// work.
pub fn end() {
    with(|machine| machine.ending = true);
    let bells = bells();
    bells.ends.ring();
    bells.operations.ring();
}

/// Uses the machine, without interruption by another thread.
pub(crate) fn with<R>(use_it: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| use_it(machine.as_mut().expect("a machine was started")))
}

/// Uses the machine, unless it is gone or in use.
pub(crate) fn try_with(use_it: impl FnOnce(&mut Machine)) {
    MACHINE.with(|machine| {
        if let Ok(mut machine) = machine.try_borrow_mut()
            && let Some(machine) = machine.as_mut()
        {
            use_it(machine);
        }
    });
}

pub(crate) fn bells() -> Rc<Bells> {
    with(|machine| machine.bells.clone())
}

/// The most bytes of a mapped file.
pub const FILE_MAX: usize = 4096;

/// After this many turns a run counts as endless.
const TURNS_MAX: u32 = 200_000;

/// A point at which another thread may run.
///
/// # Panics
/// The run is endless: threads take turns, but none makes progress.
pub fn point() {
    let turns = bells().turns.fetch_add(1, SeqCst);
    assert!(turns < TURNS_MAX, "a run without end: threads take turns, but none gets on");
}

/// A number below `end`, chosen by shuttle.
pub fn choose(end: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..end)
}

/// True once in this many calls; never for 0.
pub(crate) fn one_in(times: u32) -> bool {
    times > 0 && choose(times as usize) == 0
}

/// True once in a while, if the machine makes trouble; `rarity` times more rarely than most
/// trouble.
pub(crate) fn trouble(rarity: u32) -> bool {
    one_in(with(|machine| machine.behaviour.trouble) * rarity)
}

/// Whether the machine has this bug.
pub fn has(canary: Canary) -> bool {
    with(|machine| machine.behaviour.canary) == Some(canary)
}

impl Machine {
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub fn reserve(&mut self, len: usize) -> usize {
        let layout = Layout::from_size_align(len, 4096).expect("a length");
        // SAFETY: the length is not zero.
        let at = unsafe { alloc_zeroed(layout) } as usize;
        assert!(at != 0, "no memory for the simulated machine");
        self.memory.push((at, layout));
        at
    }

    pub fn area(&mut self, at: usize) -> Option<&mut Area> {
        self.areas.iter_mut().find(|area| (area.start..area.start + area.truth.len()).contains(&at))
    }

    pub fn page(&mut self, at: usize) -> Option<&mut Page> {
        let area = self.area(at)?;
        let index = (at - area.start) / page_bytes();
        Some(&mut area.pages[index])
    }

    /// The page at an address, which must be registered.
    pub fn watched(&mut self, at: usize) -> &mut Page {
        self.page(at).unwrap_or_else(|| panic!("{at:#x} is not registered"))
    }

    /// Makes a page present.
    pub fn bring(&mut self, at: usize, page: Page) {
        *self.watched(at) = Page { present: true, ..page };
        self.copied.remove(&at);
        self.present += 1;
        let most = self.behaviour.pages_max;
        assert!(self.present <= most, "{} pages are more than the budget, {most}", self.present);
    }

    /// Makes a page missing.
    pub fn remove(&mut self, at: usize) -> Page {
        let page = std::mem::take(self.watched(at));
        self.copied.remove(&at);
        if page.present {
            self.present -= 1;
            // SAFETY: the page is memory of the machine, and has no references during `with`.
            unsafe { std::slice::from_raw_parts_mut(at as *mut u8, page_bytes()) }.fill(0xee);
        }
        page
    }

    /// Wakes the waiters of a range.
    pub fn wake(&mut self, at: usize, len: usize) {
        let range = at..at + len;
        let woken: Vec<u64> =
            self.waiters.iter().filter(|waiter| range.contains(&waiter.at)).map(|waiter| waiter.id).collect();
        self.waiters.retain(|waiter| !woken.contains(&waiter.id));
        for id in woken {
            self.forget_message(id);
        }
    }

    /// Notes that a thread no longer waits: its fault may still be read, or not.
    pub fn forget_message(&mut self, id: u64) {
        if choose(2) == 0 {
            return;
        }
        for open in self.open.values_mut() {
            if let Open::Userfaultfd { messages, .. } = open {
                messages.retain(|(from, _)| *from != id);
            }
        }
    }

    /// Checks a page of a frame that gets other bytes: if the old bytes are the program's present
    /// ones, they must be in a store or in the program.
    pub fn assert_clean(&mut self, at: usize, old: &[u8]) {
        if self.buffers.iter().any(|range| range.contains(&at)) {
            return;
        }
        if self.copied.remove(&at) || old.iter().all(|byte| *byte == 0) {
            return;
        }
        for area in &self.areas {
            for (index, (truth, page)) in area.truth.chunks_exact(page_bytes()).zip(&area.pages).enumerate() {
                let lost = area.start + index * page_bytes();
                let stored = || {
                    self.slots.iter().any(|slots| slots.chunks_exact(page_bytes()).any(|slot| slot == old))
                };
                assert!(
                    truth != old
                        || page.present
                        || self.discarding.iter().any(|range| range.contains(&lost))
                        || stored()
                        || self.in_a_file(old),
                    "the frame at {at:#x} is reused while its page, {lost:#x}, is dirty"
                );
            }
        }
    }

    /// Notes an event of a descriptor that may be polled.
    pub fn notify(&mut self, fd: i32) {
        for poll in self.polls.iter_mut().filter(|poll| poll.fd == fd) {
            poll.pending = true;
        }
    }

    /// Whether an operation or a poll of a ring has something to report.
    pub fn has_ended(&self, ring: usize) -> bool {
        self.ends.iter().any(|end| end.0 == ring)
            || self.polls.iter().any(|poll| poll.pending && poll.ring == ring)
    }

    pub fn readable(&self, fd: i32) -> bool {
        match self.open.get(&fd) {
            Some(Open::Userfaultfd { messages, changes, .. }) => !messages.is_empty() || !changes.is_empty(),
            Some(Open::Event { set }) => *set,
            Some(Open::Pipe { hung_up }) => *hung_up,
            Some(Open::File(_)) | None => false,
        }
    }

    /// Reads from a file up to its end. Returns the bytes read.
    pub fn read_file(&self, fd: i32, bytes: &mut [u8], offset: u64) -> usize {
        use std::os::unix::fs::FileExt;
        let Some(Open::File(file)) = self.open.get(&fd) else { panic!("{fd} is no open file") };
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], offset + done as u64).expect("a file that can be read") {
                0 => break,
                more => done += more,
            }
        }
        done
    }

    /// Whether an open file has these bytes as one of its blocks, with zeros after its end.
    fn in_a_file(&self, block: &[u8]) -> bool {
        self.open.iter().filter(|(_, open)| matches!(open, Open::File(_))).any(|(&fd, _)| {
            let mut bytes = vec![0; FILE_MAX];
            self.read_file(fd, &mut bytes, 0);
            bytes.chunks_exact(block.len()).any(|part| part == block)
        })
    }
}

/// Makes pages in a range before it is paged: every second page of its first `len` bytes, on
/// average, with its first word written. Some blocks get none.
pub fn fill_some(start: usize, len: usize) {
    with(|machine| {
        let pages = vec![Page::default(); len / page_bytes()];
        machine.areas.push(Area { start, uffd: 0, pages, truth: vec![0; len] });
    });
    for at in (start..start + len).step_by(page_bytes()).filter(|_| choose(2) == 0) {
        with(|machine| {
            machine.bring(at, Page::default());
            let value = machine.number().to_le_bytes();
            // SAFETY: the page is memory of the machine, zeros until now; no other thread runs in
            // between.
            unsafe { *(at as *mut [u8; 8]) = value };
            machine.areas.last_mut().expect("pushed just now").truth[at - start..][..8]
                .copy_from_slice(&value);
        });
    }
}

/// After a fork, every present page is shared with the child.
pub fn share_pages() {
    with(|machine| {
        for page in machine.areas.iter_mut().flat_map(|area| &mut area.pages) {
            page.shared |= page.present;
        }
    });
}
