//! A thing that outlives the lab unless it is removed, with an owner: dropping the owner removes
//! the thing.

use crate::ground::janitor::{Janitor, Thing};
use std::io;
use std::sync::Arc;

/// Removes its thing when dropped.
pub struct Undo {
    janitor: Arc<Janitor>,
    thing: Thing,
}

impl Undo {
    /// Reports a thing that is about to be made.
    ///
    /// # Errors
    /// It cannot be recorded; then it must not be made.
    pub fn tell(janitor: &Arc<Janitor>, thing: Thing) -> io::Result<Undo> {
        janitor.tell(&thing)?;
        Ok(Undo { janitor: janitor.clone(), thing })
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // Things that cannot be removed stay in the record, for the janitor and `lab clean`.
        if self.thing.take_down().is_ok() {
            self.janitor.gone(&self.thing);
        }
    }
}

/// Removes things, the last one first.
pub fn all(things: &mut Vec<Undo>) {
    while things.pop().is_some() {}
}
