//! Descriptors: events and pipes.

use crate::Result;
use crate::machine::{Open, bells, choose, point, try_with, with};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Sets an event.
fn signal(raw: i32) {
    point();
    with(|machine| {
        machine.open.insert(raw, Open::Event { set: true });
        machine.notify(raw);
    });
    bells().ends.ring();
}

/// A descriptor.
#[derive(Debug)]
pub struct Fd {
    raw: i32,
    /// The reading end, which sees the end if this one is closed.
    reader: Option<i32>,
}

impl Fd {
    pub(crate) fn open(open: Open) -> Fd {
        let raw = with(|machine| {
            let raw = machine.number() as i32;
            machine.open.insert(raw, open);
            raw
        });
        Fd { raw, reader: None }
    }

    /// Takes a file over, for reading blocks.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn adopt(file: OwnedFd) -> Result<Fd> {
        Ok(Fd::open(Open::File(file.into())))
    }

    /// Copies a file, for reading blocks.
    ///
    /// # Errors
    /// As the real function's.
    pub fn copy(file: BorrowedFd<'_>) -> Result<Fd> {
        let file = file.try_clone_to_owned();
        Fd::adopt(file.map_err(|source| crate::Error { call: "fcntl(F_DUPFD_CLOEXEC)", source })?)
    }

    /// An event, not set.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn event() -> Result<Fd> {
        Ok(Fd::open(Open::Event { set: false }))
    }

    /// A timer that fires a few times, at any time.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn each(_ms: u64) -> Result<Fd> {
        let timer = Fd::event()?;
        let raw = timer.raw;
        drop(shuttle::thread::spawn(move || (0..choose(8)).for_each(|_| signal(raw))));
        Ok(timer)
    }

    /// The real function sets the timer anew.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn every(&self, _ms: u64) -> Result<()> {
        Ok(())
    }

    /// A pipe: the reading end, the writing end.
    ///
    /// # Errors
    /// None; the real function has some.
    pub fn pipe() -> Result<(Fd, Fd)> {
        let read = Fd::open(Open::Pipe { hung_up: false });
        let raw = with(|machine| machine.number() as i32);
        let write = Fd { raw, reader: Some(read.raw) };
        Ok((read, write))
    }

    /// Sets the event.
    pub fn signal(&self) {
        signal(self.raw);
    }

    /// Clears the event.
    pub fn clear(&self) {
        point();
        with(|machine| machine.open.insert(self.raw, Open::Event { set: false }));
    }

    /// The number.
    pub fn raw(&self) -> i32 {
        self.raw
    }
}

impl Fd {
    /// Closes the writing end of a pipe: the reader sees it.
    pub fn close(self) {
        drop(self);
        bells().ends.ring();
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        try_with(|machine| {
            machine.open.remove(&self.raw);
            if let Some(reader) = self.reader
                && let Some(Open::Pipe { hung_up }) = machine.open.get_mut(&reader)
            {
                *hung_up = true;
                machine.notify(reader);
            }
        });
    }
}
