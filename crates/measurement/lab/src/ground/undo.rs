//! A thing that outlives the lab unless it is taken down, with an owner: when the owner goes, so
//! does the thing.

use crate::ground::janitor::{Janitor, Thing};
use std::io;
use std::sync::Arc;

/// Takes its thing down when it is dropped.
pub struct Undo {
    janitor: Arc<Janitor>,
    thing: Thing,
}

impl Undo {
    /// Tells of a thing that is about to be made.
    ///
    /// # Errors
    /// When it cannot be noted; then it must not be made.
    pub fn tell(janitor: &Arc<Janitor>, thing: Thing) -> io::Result<Undo> {
        janitor.tell(&thing)?;
        Ok(Undo { janitor: janitor.clone(), thing })
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        // What cannot be taken down stays in the record, for the janitor and `lab clean`.
        if self.thing.take_down().is_ok() {
            self.janitor.gone(&self.thing);
        }
    }
}

/// Takes things down, the last one first.
pub fn all(things: &mut Vec<Undo>) {
    while things.pop().is_some() {}
}
