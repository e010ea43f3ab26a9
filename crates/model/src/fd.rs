//! Descriptors: events and pipes.

use crate::Result;
use crate::machine::{Open, bells, point, try_with, with};
use std::os::fd::OwnedFd;

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
    /// None; the real one has some.
    pub fn adopt(file: OwnedFd) -> Result<Fd> {
        Ok(Fd::open(Open::File(file.into())))
    }

    /// An event, not set.
    ///
    /// # Errors
    /// None; the real one has some.
    pub fn event() -> Result<Fd> {
        Ok(Fd::open(Open::Event { set: false }))
    }

    /// A timer that never fires: no run is long enough.
    ///
    /// # Errors
    /// None; the real one has some.
    pub fn each_second() -> Result<Fd> {
        Fd::event()
    }

    /// A pipe: the reading end, the writing end.
    ///
    /// # Errors
    /// None; the real one has some.
    pub fn pipe() -> Result<(Fd, Fd)> {
        let read = Fd::open(Open::Pipe { hung_up: false });
        let raw = with(|machine| machine.number() as i32);
        let write = Fd { raw, reader: Some(read.raw) };
        Ok((read, write))
    }

    /// Sets the event.
    pub fn signal(&self) {
        point();
        with(|machine| {
            machine.open.insert(self.raw, Open::Event { set: true });
            machine.notify(self.raw);
        });
        bells().ends.ring();
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
