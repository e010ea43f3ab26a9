//! userfaultfd: a descriptor reports the page faults of a range, and its calls resolve them.

use crate::fd::Fd;
use crate::machine::{Area, Canary, Open, Page, bells, choose, has, point, trouble, with};
use crate::{Result, page_bytes, thread};
use std::collections::VecDeque;

const ENOENT: i32 = 2;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const ENOMEM: i32 = 12;

/// The purpose of a userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A faulting thread waits until its fault is resolved.
    Faults,
    /// Faults wait, and so do calls that change the range.
    Events {
        /// Whether pages will be copied, not moved: then calls that remove pages do not wait.
        copies: bool,
    },
    /// To touch a missing page is a bus error.
    Sigbus,
}

/// The effect of a direct system call on a registered range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The pages go once this event has been read: the range must then read as zeros.
    Removed,
    /// The range is unmapped: not simulated.
    Unmapped,
    /// The pages were moved elsewhere: not simulated.
    Moved,
}

/// A change of a range, as the kernel reports it. The call continues once this event has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The effect of the call.
    pub change: Change,
    /// The start of the range.
    pub from: usize,
    /// The end of the range.
    pub to: usize,
}

/// A fault, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address of the page.
    pub at: usize,
    /// Whether the touch was a write.
    pub write: bool,
    /// Whether the page is present but write-protected.
    pub protected: bool,
    /// The id of the waiting thread, or 0: only a forking thread is named here.
    pub thread: u32,
}

/// Why a transfer stopped, and how far it had come, by the kernel's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Bytes done.
    pub done: usize,
    /// The error number.
    pub errno: i32,
}

/// A userfaultfd.
#[derive(Debug)]
pub struct Userfaultfd {
    fd: Fd,
}

impl Userfaultfd {
    /// Opens one.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn open(kind: Kind) -> Result<Self> {
        let strict = kind == Kind::Sigbus;
        let reports = kind == Kind::Events { copies: false } && with(|machine| machine.behaviour.moves);
        let (messages, changes) = (VecDeque::new(), VecDeque::new());
        let open = Open::Userfaultfd { strict, reports, messages, changes, changing: 0 };
        Ok(Userfaultfd { fd: Fd::open(open) })
    }

    /// Whether pages can be moved.
    pub fn can_move(&self) -> bool {
        with(|machine| machine.behaviour.moves)
    }

    /// Whether pages can be write-protected from the beginning.
    pub fn can_protect(&self) -> bool {
        false
    }

    /// The descriptor's number.
    pub fn raw(&self) -> i32 {
        self.fd.raw()
    }

    /// Registers a range; it has only the pages that it had before.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn register(&self, at: usize, len: usize, _protect: bool) -> Result<()> {
        with(|machine| match machine.area(at) {
            Some(area) => area.uffd = self.raw(),
            None => {
                let pages = vec![Page::default(); len / page_bytes()];
                machine.areas.push(Area { start: at, uffd: self.raw(), pages, truth: vec![0; len] });
            }
        });
        Ok(())
    }

    /// Wakes the waiters, and does nothing else: no thread touches a range while it is not
    /// registered.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn unregister(&self, at: usize, len: usize) -> Result<()> {
        self.wake(at, len)
    }

    /// Wakes all threads that wait for the range.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn wake(&self, at: usize, len: usize) -> Result<()> {
        point();
        if !has(Canary::ForgetsToWake) {
            with(|machine| machine.wake(at, len));
            bells().pages.ring();
        }
        Ok(())
    }

    /// Write-protects the range; or ends the protection, and wakes the waiters.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn protect(&self, at: usize, len: usize, on: bool) -> Result<()> {
        for at in (at..at + len).step_by(page_bytes()) {
            point();
            with(|machine| machine.watched(at).protected = on);
        }
        if on { Ok(()) } else { self.wake(at, len) }
    }

    /// Moves the pages at `from` to `to`, which must have none, and wakes the waiters of `to`.
    ///
    /// # Errors
    /// Where and why the call stopped, by the kernel's count.
    ///
    /// # Safety
    /// No code relies on the bytes at `from` staying there.
    pub unsafe fn shift(
        &self,
        to: usize,
        from: usize,
        len: usize,
        wake: bool,
        patience: u32,
    ) -> std::result::Result<(), Stuck> {
        self.patiently(len, wake, to, patience, |done, len| {
            self.shift_once(to + done, from + done, len, false)
        })
    }

    /// Moves the present pages at `from`, and wakes no thread.
    ///
    /// # Errors
    /// As for [`shift`](Self::shift).
    ///
    /// # Safety
    /// As for [`shift`](Self::shift).
    pub unsafe fn shift_what_is_there(
        &self,
        to: usize,
        from: usize,
        len: usize,
    ) -> std::result::Result<(), Stuck> {
        self.patiently(len, false, to, 100, |done, len| self.shift_once(to + done, from + done, len, true))
    }

    /// Copies `len` bytes at `from` into fresh pages at `to`, which must have none, and wakes the
    /// waiters.
    ///
    /// # Errors
    /// Where and why the call stopped.
    ///
    /// # Safety
    /// The bytes at `from` are valid and do not change meanwhile.
    pub unsafe fn copy(
        &self,
        to: usize,
        from: usize,
        len: usize,
        wake: bool,
        _protect: bool,
        patience: u32,
    ) -> std::result::Result<(), Stuck> {
        self.patiently(len, wake, to, patience, |done, len| self.copy_once(to + done, from + done, len))
    }

    /// Continues after the completed part, like the real function.
    fn patiently(
        &self,
        len: usize,
        wake: bool,
        to: usize,
        mut patience: u32,
        once: impl Fn(usize, usize) -> (usize, i32),
    ) -> std::result::Result<(), Stuck> {
        let mut done = 0;
        while done < len {
            let (bytes, errno) = once(done, len - done);
            if wake && bytes > 0 {
                self.wake(to + done, bytes).ok();
            }
            match errno {
                _ if bytes > 0 => done += bytes,
                EAGAIN if patience > 0 => {
                    patience -= 1;
                    thread::pause().ok();
                }
                errno => return Err(Stuck { done, errno }),
            }
        }
        Ok(())
    }

    /// One call. Returns the bytes that it counts, and why it stopped.
    fn shift_once(&self, to: usize, from: usize, len: usize, holes: bool) -> (usize, i32) {
        if self.is_changing() {
            return (0, EAGAIN);
        }
        for offset in (0..len).step_by(page_bytes()) {
            point();
            let errno = match shift_page(to + offset, from + offset) {
                ENOENT if holes => 0,
                errno => errno,
            };
            if errno != 0 {
                if has(Canary::CountsTooMany) {
                    return (offset + page_bytes(), errno);
                }
                let uncounts = offset > 0 && choose(2) == 0;
                if uncounts {
                    let last = offset - page_bytes();
                    with(|machine| {
                        machine.watched(to + last).uncounted = true;
                        machine.watched(from + last).uncounted = true;
                    });
                    return (last, errno);
                }
                return (offset, errno);
            }
            // The last page is moved, and the kernel says that it was not.
            if offset + page_bytes() == len && !holes && trouble(2) {
                with(|machine| {
                    machine.watched(to + offset).uncounted = true;
                    machine.watched(from + offset).uncounted = true;
                });
                return (offset, EAGAIN);
            }
        }
        (len, 0)
    }

    fn copy_once(&self, to: usize, from: usize, len: usize) -> (usize, i32) {
        if self.is_changing() {
            return (0, EAGAIN);
        }
        for offset in (0..len).step_by(page_bytes()) {
            point();
            if trouble(1) {
                return (offset, EAGAIN);
            }
            // A single page is tried as the last way.
            let is_frame = with(|machine| machine.page(from).is_some());
            if is_frame && len > page_bytes() && trouble(2) {
                return (offset, ENOMEM);
            }
            let (to, from) = (to + offset, from + offset);
            let there = with(|machine| {
                assert!(machine.page(from).is_none_or(|page| page.present), "{from:#x} has no bytes to copy");
                let there = machine.watched(to).present;
                if !there {
                    machine.bring(to, Page::default());
                    put(to, from);
                    machine.copied.insert(from);
                }
                there
            });
            if there {
                return (offset, EEXIST);
            }
        }
        (len, 0)
    }

    /// Waits until a fault has come or `other` is readable.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn wait(&self, other: &Fd) -> Result<()> {
        point();
        let ready = || with(|machine| machine.readable(self.raw()) || machine.readable(other.raw()));
        bells().ends.wait_until(ready);
        Ok(())
    }

    /// Whether a call that changes a range waits for its report to be read, or has not continued
    /// yet.
    pub fn is_changing(&self) -> bool {
        with(|machine| match machine.open.get(&self.raw()) {
            Some(Open::Userfaultfd { changing, .. }) => *changing > 0,
            _ => false,
        })
    }

    /// Whether faults have come.
    pub fn has_faults(&self) -> bool {
        with(|machine| match machine.open.get(&self.raw()) {
            Some(Open::Userfaultfd { messages, .. }) => !messages.is_empty(),
            _ => false,
        })
    }

    /// Takes the events that have come, up to `most`, faults first. Returns their number. Returns
    /// how many.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn read(&self, most: usize, faults: &mut Vec<Fault>, into: &mut Vec<Changed>) -> Result<usize> {
        point();
        let got = with(|machine| {
            let Some(Open::Userfaultfd { messages, changes, .. }) = machine.open.get_mut(&self.raw()) else {
                return 0;
            };
            let count = messages.len().min(most);
            faults.extend(messages.drain(..count).map(|(_, fault)| fault));
            let more = changes.len().min(most - count);
            into.extend(changes.drain(..more).map(|(_, changed)| changed));
            count + more
        });
        bells().changes.ring();
        Ok(got)
    }
}

/// Copies the bytes of one page to another.
fn put(to: usize, from: usize) {
    // SAFETY: both pages are memory of the machine; no other thread runs in between.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, page_bytes()) };
}

/// Moves one page. Returns 0 or the error number.
fn shift_page(to: usize, from: usize) -> i32 {
    if trouble(2) {
        return EAGAIN;
    }
    with(|machine| {
        let page = machine.watched(from);
        if !page.present {
            return ENOENT;
        }
        if page.busy > 0 || page.shared {
            page.busy = page.busy.saturating_sub(1);
            return EBUSY;
        }
        if machine.watched(to).present {
            return EEXIST;
        }
        // The bytes are copied first: the old page becomes rubbish.
        put(to, from);
        let page = machine.remove(from);
        machine.bring(to, Page { protected: false, uncounted: false, ..page });
        0
    })
}
