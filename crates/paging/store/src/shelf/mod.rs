//! The interface of stores: the trait, the operations and their completions, and a store's view of
//! the ring.
//!
//! Stores stack: a store may stand on others (a mirror, stripes, one that fails on purpose) and
//! pass operations on to them. All of them work in the pager's one thread and one ring.
//!
//! A store says what it stands on ([`Store::below`]). Everything that has a default here is passed
//! on to that, so a store that answers only what it must loses nothing of what the others can do.

mod below;
mod notes;
mod op;
mod ring;

pub use below::{Below, BelowMut, Spread};
pub use notes::Notes;
pub use op::{Ended, Failure, Op, OpKind, Why};
pub use ring::StoreRing;
use std::ops::Range;
use terapage_sys::ring::Done;

/// Why a store cannot be had or cannot grow.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("store {name}: {source}")]
    System {
        /// The store's name.
        name: String,
        /// The call and its result.
        source: terapage_sys::Error,
    },
    /// There is no room.
    #[error("store {name} is full: {why}")]
    Full {
        /// The store's name.
        name: String,
        /// How full the store is, and what to do.
        why: String,
    },
    /// A copy of a mirror gets no answer for now: the caller asks the others, and then this one
    /// again.
    #[error("store {name} {why}")]
    Later {
        /// The store's name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The path or address cannot be a store.
    #[error("store {name} {why}")]
    Unfit {
        /// The path or address.
        name: String,
        /// What is wrong and what to do.
        why: String,
    },
}

/// How many copies the mirrors of a store have, and what these lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redundancy {
    /// Copies of all mirrors; 0: there is no mirror.
    pub copies: u32,
    /// Copies that are left out, or that do not answer.
    pub missing: u32,
    /// Slots that copies are to be written again.
    pub behind: u64,
    /// Bytes that were written to copies again in the background.
    pub resynced_bytes: u64,
}

impl std::ops::Add for Redundancy {
    type Output = Redundancy;

    fn add(self, other: Redundancy) -> Redundancy {
        Redundancy {
            copies: self.copies + other.copies,
            missing: self.missing + other.missing,
            behind: self.behind + other.behind,
            resynced_bytes: self.resynced_bytes + other.resynced_bytes,
        }
    }
}

/// Whether what keeps a store's bytes answers, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence<'a> {
    /// It answers, as far as is known.
    pub answers: bool,
    /// Since when it has not, by the monotonic clock; 0: it does, or it is not known.
    pub since_ns: u64,
    /// It is to be emptied (`terapage far drain`).
    pub drains: bool,
    /// Other processes may read it.
    pub is_held: bool,
    /// What no other server has; empty: it is not known, or there is no server, or there are
    /// several.
    pub server: &'a str,
}

impl Default for Presence<'_> {
    fn default() -> Self {
        Presence { answers: true, since_ns: 0, drains: false, is_held: true, server: "" }
    }
}

/// A place for blocks, in slots of one size.
///
/// All calls come from the pager's thread. None of them waits, except that [`grow`](Self::grow) and
/// [`close`](Self::close) may wait for a moment.
///
/// The defaults are the answers of the stores [below](Self::below), and, if there are none, those
/// of a store that can only keep bytes.
pub trait Store: Send {
    /// Its name in messages.
    fn name(&self) -> String;

    /// The number of slots that can be written now.
    fn slots(&self) -> u32;

    /// Makes room for more slots, in a step of the store's choice.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no room.
    fn grow(&mut self) -> Result<(), Error>;

    /// What it stands on.
    fn below(&self) -> Below<'_>;

    /// The same.
    fn below_mut(&mut self) -> BelowMut<'_>;

    /// Begins an operation: at most [`EXTENT`](crate::EXTENT) bytes, across the boundary of an
    /// extent only if the extent [joins](Self::joins). It completes once, through an [`Ended`] with
    /// its number, pushed into `ended` at once, or by a later call of any method that has `ended`.
    /// A slot may be in one write, or in any number of reads, at a time.
    ///
    /// # Safety
    /// The array of pieces and their memory stay valid until the operation has ended. Until then
    /// the memory of a read has no other user, and no other code writes to the memory of a write.
    unsafe fn begin(&mut self, ring: &mut StoreRing<'_>, op: Op<'_>, ended: &mut Vec<Ended>);

    /// An operation that this store began in the ring has ended: a read, a send, a timeout.
    /// `done.tag` is the token that the store gave it.
    fn event(&mut self, ring: &mut StoreRing<'_>, done: Done, ended: &mut Vec<Ended>);

    /// Whether [`split`](Self::split) can divide each slot into `more` slots now, once the caller's
    /// operations have ended. A store that says no while it is new never can.
    fn may_split(&self, more: usize) -> bool;

    /// Divides each slot into `more` slots: slot 3 becomes the slots from 3 * `more` on. The bytes
    /// stay where they are. No operation is under way, each read was judged, and
    /// [`may_split`](Self::may_split) has returned true.
    fn split(&mut self, more: usize);

    /// Whether `slot`, the first of an extent, lies right after the previous slot, so that one
    /// operation may include both.
    fn joins(&self, slot: u32) -> bool {
        match self.below() {
            Below::Same(store) => store.joins(slot),
            Below::Nothing | Below::Spread(_) => false,
        }
    }

    /// Whether many pieces cost as much as one: true of a socket, not of a device.
    fn takes_pieces(&self) -> bool {
        let mut all = self.below().each().peekable();
        all.peek().is_some() && all.all(|store| store.takes_pieces())
    }

    /// The bytes of a read of these slots were compared with their hashes: `good` says whether they
    /// are those that were written. Every checked read is judged once, after it has completed
    /// successfully and before its number is reused; a read that was not good is begun again. A
    /// store that has the bytes twice then reads its other copy, and may write back bytes that were
    /// found good.
    fn judge(
        &mut self,
        ring: &mut StoreRing<'_>,
        id: u32,
        slots: Range<u32>,
        good: bool,
        ended: &mut Vec<Ended>,
    ) {
        match self.below_mut() {
            BelowMut::Nothing => {}
            BelowMut::Same(store) => store.judge(ring, id, slots, good, ended),
            BelowMut::Spread(store) => store.judge_parts(ring, id, slots, good, ended),
        }
    }

    /// The contents of these slots are no longer needed. They may be written again.
    fn forget(&mut self, slots: Range<u32>) {
        match self.below_mut() {
            BelowMut::Nothing => {}
            BelowMut::Same(store) => store.forget(slots),
            BelowMut::Spread(store) => store.forget_parts(slots),
        }
    }

    /// Before a fork, whose number is `fork`: its child will read the slots in their present state,
    /// and needs them until [`unshare`](Self::unshare). The pager's thread stands still, and
    /// another thread calls this function, which may wait.
    ///
    /// # Errors
    /// The child could not rely on the slots: there is no fork.
    fn share(&mut self, fork: u32) -> Result<(), Error> {
        self.below_mut().try_each(|store| store.share(fork))
    }

    /// That child, and all its descendants, have ended, or have executed other programs.
    fn unshare(&mut self, fork: u32) {
        self.below_mut().each(|store| store.unshare(fork));
    }

    /// The process is about to execute another program (`leaves`), and its remote blocks will no
    /// longer be needed; or it stays after all, and needs them. Returns whether the servers have
    /// noted that it leaves, or need not: until then it is called again, for a moment.
    fn leaving(&mut self, ring: &mut StoreRing<'_>, leaves: bool) -> bool {
        let mut noted = true;
        self.below_mut().each_in(ring, |store, ring| noted &= store.leaving(ring, leaves));
        noted
    }

    /// In the child of a fork, before any other call: the child only reads this store from now on.
    /// Resources that cannot be shared (sockets) are dropped; the slots stay readable in their
    /// present state. No operation of the caller is under way; completions of the store's own
    /// operations never reach the child. There is a new ring, so [`open`](Self::open) is called
    /// again.
    ///
    /// # Errors
    /// The child cannot read the store.
    fn inherit(&mut self) -> Result<(), Error> {
        self.below_mut().try_each(|store| store.inherit())
    }

    /// In the child of a fork: the process that has made this store has ended, and writes nothing
    /// any more. What a server has lost this process may write again.
    fn adopt(&mut self) {
        self.below_mut().each(|store| store.adopt());
    }

    /// The pager's thread begins, and the ring is there: connections are opened.
    fn open(&mut self, ring: &mut StoreRing<'_>, ended: &mut Vec<Ended>) {
        self.below_mut().each_in(ring, |store, ring| store.open(ring, ended));
    }

    /// The process ends in good order: remote blocks are freed. Reads and writes have ended. This
    /// call may be missing, because the process may be killed.
    fn close(&mut self) {
        self.below_mut().each(|store| store.close());
    }

    /// Words for `terapage stat` while something is wrong: "1 of 2 copies is lost".
    fn condition(&self) -> Option<String> {
        let all: Vec<_> = self.below().each().filter_map(|store| store.condition()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// How many copies its mirrors have and lack.
    fn redundancy(&self) -> Redundancy {
        self.below().each().fold(Redundancy::default(), |all, store| all + store.redundancy())
    }

    /// Whether a block that the program touches should give up its slot and be written again when
    /// it leaves: the room of the slot is scarce, or a faster store has room.
    fn wants_back(&self, slot: u32) -> bool {
        match self.below() {
            Below::Nothing => false,
            Below::Same(store) => store.wants_back(slot),
            Below::Spread(store) => store.part_wants_back(slot),
        }
    }

    /// Where a slot lies, in words for a message: the key of a server. `None`: the name says it.
    fn whereabouts(&self, slot: u32) -> Option<String> {
        match self.below() {
            Below::Nothing => None,
            Below::Same(store) => store.whereabouts(slot),
            Below::Spread(store) => store.whereabouts_of_part(slot),
        }
    }

    /// It is a copy of a mirror from now on: its bytes can be had elsewhere, so an operation that
    /// gets no answer fails soon, and passes, and it sees to its connections even if it is idle.
    fn is_copy(&mut self) {
        self.below_mut().each(|store| store.is_copy());
    }

    /// Whether what keeps its bytes answers: all of it.
    fn presence(&self) -> Presence<'_> {
        let mut all = self.below().each().map(|store| store.presence());
        let first = all.next().unwrap_or_default();
        all.fold(first, |all, one| Presence {
            answers: all.answers && one.answers,
            since_ns: all.since_ns.max(one.since_ns),
            drains: all.drains || one.drains,
            is_held: all.is_held || one.is_held,
            server: match (all.server, one.server) {
                ("", server) | (server, "") => server,
                _ => "",
            },
        })
    }

    /// Tells slots whose bytes it is known to have lost, each once.
    fn take_lost(&mut self, tell: &mut dyn FnMut(Range<u32>)) {
        match self.below_mut() {
            BelowMut::Nothing => {}
            BelowMut::Same(store) => store.take_lost(tell),
            BelowMut::Spread(store) => store.take_lost_of_parts(tell),
        }
    }
}
