//! Replacement policies: which block is evicted.

mod arc;
mod auto;
mod clock;
mod fifo;
mod lru;
mod s3fifo;
mod two_q;
mod waiting;

use crate::turns::InTurns;
use std::ops::Range;

pub use arc::Arc;
pub use auto::Auto;
pub use clock::Clock;
pub use fifo::Fifo;
pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use two_q::TwoQ;

/// The time, which a policy has no other way to know.
pub trait Times {
    /// The time, ns.
    fn now_ns(&self) -> u64;

    /// The processor time that a thread has used, ns, if it is known.
    fn used_by(&self, thread: u32) -> Option<u64>;
}

/// A replacement policy over the blocks that are in memory.
///
/// The pager takes a victim out of the program's address space some time before it takes the victim
/// out of memory. If a thread touches the victim in between, it comes back by
/// [`rescue`](Replacement::rescue): in this way a policy learns of references. If not, the caller
/// reports that the block is [`gone`](Replacement::gone).
pub trait Replacement: Send {
    /// `block` has come into memory, by a page-in or a first touch. It was not in memory.
    fn insert(&mut self, block: u32);

    /// `block`, an earlier victim, was touched while still in memory, and is in the address space
    /// again.
    fn rescue(&mut self, block: u32);

    /// After [`rescue`](Replacement::rescue) of `block`: the neighbouring blocks that should not
    /// leave either. The pager puts those [back](Replacement::back) that were victims and are still
    /// in memory.
    fn neighbours(&self, block: u32) -> Range<u32> {
        block..block
    }

    /// `block`, an earlier victim, is in the address space again, though it was not touched.
    fn back(&mut self, block: u32) {
        self.rescue(block);
    }

    /// `block`, which is in memory, was touched. A pager does not see such touches and never calls
    /// this. A simulator does, to run a policy as its paper describes it.
    fn touched(&mut self, _block: u32) {}

    /// `thread` (0: unknown) touched `block`, which is in memory or has no bytes to wait for; the
    /// pager saw the touch as a fault.
    fn touched_by(&mut self, _block: u32, _thread: u32) {}

    /// `thread` (0: unknown) waits for `block`, whose bytes only the store has.
    fn waits(&mut self, _block: u32, _thread: u32, _clock: &dyn Times) {}

    /// The first block of a prefetched run was used.
    fn streamed(&mut self) {}

    /// `block`, the first block of a prefetched run and an earlier victim, was not used before it
    /// left the address space.
    fn unused(&mut self, _block: u32) {}

    /// A block that should leave the address space, but not memory, so that its next touch is seen.
    /// Call this function after [`insert`](Replacement::insert), [`rescue`](Replacement::rescue)
    /// and [`seen`](Replacement::seen), until it returns `None`.
    fn watch(&mut self) -> Option<u32> {
        None
    }

    /// `block`, which was watched, was touched: it is no longer watched.
    fn seen(&mut self, _block: u32) {}

    /// Chooses the next block to leave. The block no longer counts as in memory, nor as watched.
    /// `None` if no block is in memory.
    fn victim(&mut self) -> Option<u32>;

    /// Like [`victim`](Replacement::victim), if the caller knows that `newcomer`, which is not in
    /// memory, takes the victim's place, as the papers assume. The newcomer must be inserted next,
    /// after the victim is [`gone`](Replacement::gone); from this call until then the newcomer is
    /// not remembered as gone. A pager chooses victims ahead of need and does not know the
    /// newcomer.
    fn victim_for(&mut self, _newcomer: u32) -> Option<u32> {
        self.victim()
    }

    /// Says that `block`, which comes in next, is an object of this size, in the unit of the
    /// memory's size. Call it before [`victim_for`](Replacement::victim_for), and only for policies
    /// of [`SIZED`].
    fn weigh(&mut self, _block: u32, _size: u32) {}

    /// `block`, an earlier victim, has left memory. A policy with a history remembers it.
    fn gone(&mut self, _block: u32) {}

    /// `block` no longer exists (unmapped, discarded): the policy forgets it.
    fn remove(&mut self, block: u32);

    /// From now on there are `frames` frames.
    fn resize(&mut self, _frames: usize) {}

    /// The number of blocks in memory.
    fn len(&self) -> usize;

    /// Whether no block is in memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A policy by its name.
#[derive(Clone, Copy)]
pub struct Known {
    /// The name, for `--policy`.
    pub name: &'static str,
    /// Whether the policy accepts objects of different sizes, and a memory of a number of bytes.
    pub sized: bool,
    /// Makes the policy, for this many blocks in memory.
    pub make: fn(usize) -> Box<dyn Replacement>,
}

/// All policies, the default first. The name of a policy stands only here.
pub const POLICIES: &[Known] = &[
    Known { name: "auto", sized: false, make: |frames| Box::new(Auto::new(frames)) },
    Known { name: "lru", sized: true, make: |_| Box::<Lru>::default() },
    Known { name: "fifo", sized: true, make: |_| Box::<Fifo>::default() },
    Known { name: "clock", sized: true, make: |_| Box::<Clock>::default() },
    Known { name: "s3fifo", sized: true, make: |frames| Box::new(S3Fifo::new(frames)) },
    Known { name: "2q", sized: true, make: |frames| Box::new(TwoQ::new(frames)) },
    Known { name: "arc", sized: true, make: |frames| Box::new(Arc::new(frames)) },
];

/// The names of all policies, the default first.
pub const NAMES: &[&str] = &names::<{ POLICIES.len() }>(false);

/// The names of policies that accept objects of different sizes.
pub const SIZED: &[&str] = &names::<{ sized() }>(true);

/// The number of policies that are [sized](Known::sized).
const fn sized() -> usize {
    let (mut at, mut count) = (0, 0);
    while at < POLICIES.len() {
        count += POLICIES[at].sized as usize;
        at += 1;
    }
    count
}

/// The names of all policies, or of the sized policies.
const fn names<const COUNT: usize>(only_sized: bool) -> [&'static str; COUNT] {
    let mut names = [""; COUNT];
    let (mut at, mut count) = (0, 0);
    while at < POLICIES.len() {
        if POLICIES[at].sized || !only_sized {
            names[count] = POLICIES[at].name;
            count += 1;
        }
        at += 1;
    }
    names
}

/// The policy called `name` as the pager uses it: the default policy gets [turns](crate::turns) of
/// threads. The other policies follow their papers.
pub fn in_turns(name: &str, frames: usize) -> Option<Box<dyn Replacement>> {
    if name == POLICIES[0].name {
        return Some(Box::new(InTurns::new(Auto::new(frames), frames)));
    }
    by_name(name, frames)
}

/// The policy called `name`, for `frames` blocks in memory.
pub fn by_name(name: &str, frames: usize) -> Option<Box<dyn Replacement>> {
    POLICIES.iter().find(|known| known.name == name).map(|known| (known.make)(frames))
}
