//! System calls and requests in flight.

use terapage_event::Nanos;

/// A system call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub thread: u32,
    /// The time when the program wanted it.
    pub wanted: Nanos,
    /// The number of I/Os that are not done, plus one during their submission.
    pub left: u32,
    /// Bit `i`: I/O `i` is part of the request of the previous I/O.
    pub merged: u64,
    /// The volume of each I/O.
    pub volumes: Vec<u32>,
}

/// A request at the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub call: u32,
    pub volume: u32,
    /// I/Os in it.
    pub ios: u32,
    /// The CPU that submitted it.
    pub cpu: u32,
}

/// Numbered items, whose places are reused.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub fn new() -> Self {
        Slots { items: Vec::new(), free: Vec::new() }
    }

    pub fn put(&mut self, item: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.items[place as usize] = item;
            return place;
        }
        self.items.push(item);
        self.items.len() as u32 - 1
    }

    /// A place that was freed, with its old item.
    pub fn reuse(&mut self) -> Option<(u32, &mut T)> {
        let place = self.free.pop()?;
        Some((place, &mut self.items[place as usize]))
    }

    pub fn get(&self, place: u32) -> &T {
        &self.items[place as usize]
    }

    pub fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.items[place as usize]
    }

    pub fn give_back(&mut self, place: u32) {
        self.free.push(place);
    }
}
