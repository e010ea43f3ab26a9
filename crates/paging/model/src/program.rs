//! A program's thread: touches memory, faults, waits.

use crate::machine::{Canary, Open, Waiter, bells, has, point, trouble, with};
use crate::userfaultfd::{Change, Changed, Fault};
use crate::{page_bytes, thread};

/// Bytes of a word, which the program reads and writes at once.
pub const WORD: usize = 8;

/// Reads the word at a multiple of [`WORD`], and checks that it is the last one written there.
///
/// # Panics
/// It is another word: the pager has failed.
pub fn read(at: usize) {
    word(at);
}

/// [`read`] by a thread that forks, while the pager is parked.
///
/// # Panics
/// As for [`read`].
pub fn read_forking(at: usize) {
    touch(at, false, thread::id(), |word, truth| assert_eq!(word, truth, "wrong bytes at {at:#x}"));
}

/// [`read`] that returns the word.
///
/// # Panics
/// As for [`read`].
pub fn word(at: usize) -> [u8; WORD] {
    touch(at, false, 0, |word, truth| {
        assert_eq!(word, truth, "wrong bytes at {at:#x}");
        *word
    })
}

/// The program maps a file, by `ask`, over a range of zeros, which has these bytes from now on.
pub fn map(at: usize, bytes: &[u8], ask: impl FnOnce()) {
    ask();
    with(|machine| {
        let area = machine.area(at).expect("a registered range");
        let from = at - area.start;
        area.truth[from..from + bytes.len()].copy_from_slice(bytes);
    });
}

/// Writes a word that was never written before.
pub fn write(at: usize) {
    let value = with(|machine| machine.number());
    put(at, value.to_le_bytes());
}

/// Writes a word of zeros.
pub fn write_zeros(at: usize) {
    put(at, [0; WORD]);
}

fn put(at: usize, value: [u8; WORD]) {
    touch(at, true, 0, |word, truth| {
        *word = value;
        *truth = value;
    });
}

/// I/O of the program holds a page, if it is present, for this many refused moves.
pub fn pin(at: usize, moves: u32) {
    point();
    with(|machine| {
        let page = machine.watched(at);
        if page.present {
            page.busy = moves;
        }
    });
}

/// The program drops the bytes of a range, by `ask`; no thread touches the range meanwhile.
pub fn discard(at: usize, len: usize, ask: impl FnOnce()) {
    with(|machine| machine.discarding.push(at..at + len));
    ask();
    with(|machine| {
        machine.discarding.retain(|range| range.start != at);
        let area = machine.area(at).expect("a registered range");
        let from = at - area.start;
        area.truth[from..from + len].fill(0);
    });
}

/// The program removes the pages of a range by a direct call; no thread touches the range
/// meanwhile. The pager reads the report before they vanish.
pub fn remove(at: usize, len: usize) {
    point();
    let changed = Changed { change: Change::Removed, from: at, to: at + len };
    let is_deaf = has(Canary::HearsNothing);
    let told = with(|machine| {
        let (id, uffd) = (machine.number(), machine.area(at).expect("a registered range").uffd);
        let Some(Open::Userfaultfd { reports, changes, changing, .. }) = machine.open.get_mut(&uffd) else {
            panic!("no userfaultfd for {at:#x}")
        };
        if !*reports || is_deaf {
            return None;
        }
        changes.push_back((id, changed));
        *changing += 1;
        machine.notify(uffd);
        Some((id, uffd))
    });
    if let Some((id, uffd)) = told {
        bells().ends.ring();
        let is_read = || {
            with(|machine| match machine.open.get(&uffd) {
                Some(Open::Userfaultfd { changes, .. }) => changes.iter().all(|(other, _)| *other != id),
                _ => true,
            })
        };
        bells().changes.wait_until(is_read);
        point();
        with(|machine| {
            if let Some(Open::Userfaultfd { changing, .. }) = machine.open.get_mut(&uffd) {
                *changing -= 1;
            }
        });
    }
    for at in (at..at + len).step_by(page_bytes()) {
        point();
        with(|machine| machine.remove(at));
    }
}

/// The kernel uses a word in a call of the program that has pinned and touched it: a page that is
/// absent makes the call fail.
///
/// # Panics
/// The page is absent, or has another word than the last one written there.
pub fn use_in_a_call(at: usize, write: bool) {
    point();
    with(|machine| {
        let value = machine.number().to_le_bytes();
        let page = machine.watched(at);
        assert!(page.present, "a call has met an absent page at {at:#x}");
        page.shared &= !write;
        let area = machine.area(at).expect("watched");
        let from = at - area.start;
        let truth: &mut [u8; WORD] = (&mut area.truth[from..from + WORD]).try_into().expect("a word");
        // SAFETY: the page is present; no other thread runs in between.
        let word = unsafe { &mut *(at as *mut [u8; WORD]) };
        if write {
            (*word, *truth) = (value, value);
        }
        assert_eq!(word, truth, "wrong bytes at {at:#x} in a call");
    });
}

/// Whether a block at `at` is being discarded: its bytes may or may not be zeros yet.
pub fn is_discarding(at: usize) -> bool {
    with(|machine| machine.discarding.iter().any(|range| range.contains(&at)))
}

/// The bytes that the program last wrote to a range.
pub fn truth(at: usize, len: usize) -> Vec<u8> {
    with(|machine| {
        let area = machine.area(at).expect("a registered range");
        let from = at - area.start;
        area.truth[from..from + len].to_vec()
    })
}

fn touch<R>(
    at: usize,
    write: bool,
    thread: u32,
    use_it: impl Fn(&mut [u8; WORD], &mut [u8; WORD]) -> R,
) -> R {
    let page = at / page_bytes() * page_bytes();
    loop {
        point();
        let got = with(|machine| {
            let state = machine.watched(at);
            if !state.present || write && state.protected {
                return None;
            }
            // A write to a page that is shared with a child gives the program its own page.
            state.shared &= !write;
            let area = machine.area(at).expect("watched");
            let from = at - area.start;
            let truth = (&mut area.truth[from..from + WORD]).try_into().expect("a word");
            // SAFETY: the page is present; no other thread runs in between.
            Some(use_it(unsafe { &mut *(at as *mut [u8; WORD]) }, truth))
        });
        match got {
            Some(got) => return got,
            None => fault(page, write, thread),
        }
    }
}

/// Reports a fault and sleeps, unless the page has come in meanwhile. A thread wakes by itself now
/// and then, except a forking `thread`, which no signal reaches.
fn fault(page: usize, write: bool, thread: u32) {
    point();
    let startled = thread == 0 && trouble(8);
    let id = with(|machine| {
        let state = *machine.watched(page);
        let id = machine.number();
        let uffd = machine.area(page).expect("watched").uffd;
        let Some(Open::Userfaultfd { strict, messages, .. }) = machine.open.get_mut(&uffd) else {
            panic!("no userfaultfd for {page:#x}")
        };
        assert!(!*strict, "the program touches the pool");
        messages.push_back((id, Fault { at: page, write, protected: state.present, thread }));
        machine.notify(uffd);
        // The kernel checks the page again once the fault can be read.
        let sleeps = !state.present || write && state.protected;
        if sleeps && !startled {
            machine.waiters.push(Waiter { id, at: page });
            return Some(id);
        }
        machine.forget_message(id);
        None
    });
    let bells = bells();
    bells.ends.ring();
    if let Some(id) = id {
        bells.pages.wait_until(|| with(|machine| machine.waiters.iter().all(|waiter| waiter.id != id)));
    }
}
