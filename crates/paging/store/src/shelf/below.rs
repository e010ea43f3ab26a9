//! What a store stands on: the defaults of [`Store`] pass everything on to it.

use super::{Ended, Error, Op, Store, StoreRing};
use std::ops::Range;
use terapage_sys::ring::Done;

/// The stores on which a store stands.
#[derive(Clone, Copy)]
pub enum Below<'a> {
    /// None: it has a place of its own.
    Nothing,
    /// One, in which each slot has the number that it has here. Unless the store has operations of
    /// its own in the ring, the two share their tokens.
    Same(&'a dyn Store),
    /// Stores in which slots have other numbers, or in which each slot lies several times.
    Spread(&'a dyn Spread),
}

/// The same, to be changed.
pub enum BelowMut<'a> {
    /// None.
    Nothing,
    /// One.
    Same(&'a mut dyn Store),
    /// Stores in which slots have other numbers.
    Spread(&'a mut dyn Spread),
}

/// What a store answers by itself if its slots have other numbers in the stores below it, which are
/// the *parts* here. Only the store can translate the numbers, so nothing has a default. In the
/// ring the part number 3 is [`StoreRing::inner`] number 3.
pub trait Spread: Store {
    /// A part; `None` after the last part.
    fn part(&self, index: usize) -> Option<&dyn Store>;

    /// The same.
    fn part_mut(&mut self, index: usize) -> Option<&mut dyn Store>;

    /// [`Store::judge`].
    fn judge_parts(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    );

    /// [`Store::forget`].
    fn forget_parts(&mut self, slots: Range<u32>);

    /// [`Store::wants_back`].
    fn part_wants_back(&self, slot: u32) -> bool;

    /// [`Store::whereabouts`].
    fn whereabouts_of_part(&self, slot: u32) -> Option<String>;

    /// [`Store::take_lost`].
    fn take_lost_of_parts(&mut self, tell: &mut dyn FnMut(Range<u32>));
}

impl<'a> Below<'a> {
    /// Each of the stores.
    pub fn each(self) -> impl Iterator<Item = &'a dyn Store> {
        (0..).map_while(move |index| match self {
            Below::Same(store) => (index == 0).then_some(store),
            Below::Spread(store) => store.part(index),
            Below::Nothing => None,
        })
    }
}

impl BelowMut<'_> {
    /// Calls each of the stores.
    pub fn each(self, mut call: impl FnMut(&mut dyn Store)) {
        self.try_each(|store| {
            call(store);
            Ok(())
        })
        .ok();
    }

    /// Calls each of the stores until a call fails.
    ///
    /// # Errors
    /// The first error.
    pub fn try_each(self, mut call: impl FnMut(&mut dyn Store) -> Result<(), Error>) -> Result<(), Error> {
        match self {
            BelowMut::Nothing => Ok(()),
            BelowMut::Same(store) => call(store),
            BelowMut::Spread(store) => {
                let mut index = 0;
                while let Some(part) = store.part_mut(index) {
                    call(part)?;
                    index += 1;
                }
                Ok(())
            }
        }
    }

    /// Calls each of the stores, with its view of the ring.
    pub fn each_in(self, ring: &mut StoreRing<'_>, mut call: impl FnMut(&mut dyn Store, &mut StoreRing<'_>)) {
        match self {
            BelowMut::Same(store) => call(store, ring),
            several => {
                let mut index = 0;
                several.each(|store| {
                    call(store, &mut ring.inner(index));
                    index += 1;
                });
            }
        }
    }
}

/// Methods of a store that stands on the store in one field, with the same slots and nothing of its
/// own about them. The names `Below`, `BelowMut` and `Error` must be known where this is used.
#[macro_export]
macro_rules! stands_on {
    ($field:ident) => {
        fn slots(&self) -> u32 {
            self.$field.slots()
        }

        fn grow(&mut self) -> Result<(), Error> {
            self.$field.grow()
        }

        fn below(&self) -> Below<'_> {
            Below::Same(&self.$field)
        }

        fn below_mut(&mut self) -> BelowMut<'_> {
            BelowMut::Same(&mut self.$field)
        }

        fn may_split(&self, more: usize) -> bool {
            self.$field.may_split(more)
        }

        fn split(&mut self, more: usize) {
            self.$field.split(more);
        }
    };
}

impl Store for Box<dyn Store> {
    fn name(&self) -> String {
        (**self).name()
    }

    fn slots(&self) -> u32 {
        (**self).slots()
    }

    fn grow(&mut self) -> Result<(), Error> {
        (**self).grow()
    }

    fn below(&self) -> Below<'_> {
        Below::Same(&**self)
    }

    fn below_mut(&mut self) -> BelowMut<'_> {
        BelowMut::Same(&mut **self)
    }

    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>) {
        // SAFETY: the store in the box asks for what this function asks for, in these words.
        unsafe { (**self).begin(ring, op, ended) }
    }

    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>) {
        (**self).event(ring, done, ended);
    }

    fn may_split(&self, more: usize) -> bool {
        (**self).may_split(more)
    }

    fn split(&mut self, more: usize) {
        (**self).split(more);
    }
}
