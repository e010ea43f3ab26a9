//! A mirror and forks. `far/src/holder.rs` has the model of the claims that children have.
//!
//! A child's mirror begins with what its parent's knew, and only reads. What a copy has lost since,
//! the parent writes again, in the same place: the child reads it there from time to time, and has
//! it when it has the right checksum. Once the parent has ended, its heirs write it themselves.

use super::resync::Resync;
use crate::kinds::mirror::Mirror;
use crate::shelf::Error;
use std::time::Duration;

/// Between two times that all copies are asked to note a fork.
const PAUSE: Duration = Duration::from_millis(20);

impl Mirror {
    /// Has the copies note that a fork's child will read them. One of those with blocks must. A
    /// copy that gives no answer notes it later. If none gives one, all are asked again, as long as
    /// one of them has patience: a mirror is no weaker than one store.
    pub(super) fn share_copies(&mut self, fork: u32) -> Result<(), Error> {
        for spare in &mut self.spares {
            // It keeps nothing yet: it only learns the number.
            spare.store.share(fork).ok();
        }
        for copy in self.copies.0.iter_mut().filter(|copy| copy.is_retired) {
            // The child has no part in it.
            copy.store.unshare(fork);
        }
        loop {
            let (used, mut is_noted, mut has_patience, mut failed) = (self.used.count(), false, false, None);
            for copy in self.copies.0.iter_mut().filter(|copy| !copy.is_retired) {
                match copy.store.share(fork) {
                    Ok(()) => is_noted |= used == 0 || copy.behind() < used,
                    Err(error) => {
                        has_patience |= matches!(error, Error::Later { .. });
                        failed = Some(error);
                    }
                }
            }
            match failed {
                Some(error) if !is_noted && !has_patience => return Err(error),
                Some(_) if !is_noted => std::thread::sleep(PAUSE),
                _ => break,
            }
        }
        self.forks.push(fork);
        Ok(())
    }

    /// In the child.
    pub(super) fn inherit_copies(&mut self) -> Result<(), Error> {
        self.operations.clear();
        self.inner.clear();
        self.came.clear();
        self.ends.clear();
        self.waiting.clear();
        self.given_up.clear();
        self.relief = None;
        self.forks.clear();
        self.resync = Resync::default();
        self.saved_bytes = 0;
        (self.inherited, self.is_heir) = (true, false);
        // The parent fills the spares that it uses, in the same places.
        self.spares.retain_mut(|spare| spare.store.inherit().is_ok());
        let mut failed = None;
        for copy in &mut self.copies.0 {
            (copy.reading, copy.under_way) = (0, 0);
            copy.readers.clear();
            if let Err(error) = copy.store.inherit() {
                copy.lose();
                failed = Some(error);
            }
        }
        failed.filter(|_| self.copies.0.iter().all(|copy| copy.is_out())).map_or(Ok(()), Err)
    }

    /// The parent has ended.
    pub(super) fn adopt_copies(&mut self) {
        if self.inherited {
            self.is_heir = true;
            self.copies.0.iter_mut().for_each(|copy| copy.store.adopt());
            self.spares.iter_mut().for_each(|spare| spare.store.adopt());
        }
    }

    /// Whether it may write.
    pub(super) fn may_write(&self) -> bool {
        !self.inherited || self.is_heir
    }
}
