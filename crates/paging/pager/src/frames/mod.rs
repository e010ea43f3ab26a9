//! Frames: how many may exist and do exist, which are free, and which may be taken next.

pub(crate) mod lease;
#[cfg_attr(terapage_model, path = "../../../model/engine/maker.rs")]
pub(crate) mod maker;
pub(crate) mod pool;

use crate::carry::mover::{Lost, Mover};
use crate::options::Options;
use lease::Lease;
use maker::Maker;
use pool::Pool;
use std::collections::VecDeque;
use terapage_policy::soft::SoftFrames;
use terapage_sys::memory::HUGE;

/// Runs of at most this many bytes are copied into the program, not moved, if there is room: a move
/// interrupts every processor that uses the program's page tables, and wakes idle ones. Measured:
/// docs/results.md, "Moving pages".
const COPIED_BYTES: usize = 16 << 10;

/// Bytes of frames that are left unmade for copies. Chosen, not measured.
const SPARE_BYTES: usize = 256 << 10;
/// They are at most the budget divided by this. Chosen, not measured.
const SPARE_PART: usize = 8;

/// Soft blocks, in the order in which they lose their frames, each with the stamp for which its
/// item is valid.
#[derive(Default)]
pub(crate) struct SoftBlocks(VecDeque<(u32, u32)>);

impl SoftBlocks {
    /// Adds a block; with it `count` of the items are valid.
    pub fn push(&mut self, block: u32, stamp: u32, count: usize, is_valid: impl Fn(u32, u32) -> bool) {
        self.0.push_back((block, stamp));
        if self.0.len() > 4 * count + 1024 {
            self.0.retain(|&(block, stamp)| is_valid(block, stamp));
        }
    }

    /// Takes the first item, valid or not.
    pub fn pop(&mut self) -> Option<(u32, u32)> {
        self.0.pop_front()
    }
}

/// The frames of a pager.
pub(crate) struct Frames {
    /// The most frames that may exist.
    pub limit: usize,
    /// Frames that exist: in the program or in the pool.
    pub count: usize,
    /// The number of frames that are left unmade for copies.
    pub spare: usize,
    pub soft: SoftBlocks,
    /// The number of frames that are kept ready: soft, free, not yet made, or being paged out.
    pub target: SoftFrames,
    pub pool: Pool,
    pub maker: Maker,
    /// The budget, if others share it.
    pub lease: Lease,
    block: usize,
}

impl Frames {
    /// No frames yet, with the limits of `options`.
    ///
    /// # Errors
    /// There are no addresses for the pool.
    pub fn new(options: &Options) -> terapage_sys::Result<Frames> {
        let (limit, block) = (options.frames, options.block);
        Ok(Frames {
            limit,
            count: 0,
            spare: 0,
            soft: SoftBlocks::default(),
            target: SoftFrames::new(limit, block, options.soft_per_mille),
            pool: Pool::new(limit, block)?,
            maker: Maker::none(),
            lease: Lease::new(options.share, limit),
            block,
        })
    }

    /// Each frame has become `more` frames.
    pub fn split(&mut self, more: usize, soft_per_mille: usize) {
        self.block /= more;
        self.limit *= more;
        self.count *= more;
        self.spare *= more;
        self.lease.frames *= more;
        self.lease.goal *= more;
        self.soft = SoftBlocks::default();
        self.target = SoftFrames::new(self.limit, self.block, soft_per_mille);
        self.pool.split(more);
    }

    /// Frames of a huge page.
    pub fn of_huge_page(&self) -> usize {
        HUGE / self.block
    }

    /// The number of frames that may still be made, if `spare` are left unmade.
    pub fn room(&self, spare: usize) -> usize {
        self.limit.saturating_sub(self.count + spare)
    }

    /// Frames that are not in use: free ones, and those that may still be made.
    pub fn unused(&self) -> usize {
        self.pool.free_len() + self.room(0)
    }

    /// Makes new frames, at most `most`. There must be room for them.
    ///
    /// # Errors
    /// The kernel has no memory.
    pub fn make(&mut self, mover: &Mover, most: usize) -> Result<(), Lost> {
        self.count += match self.lease.is_shared() && most < self.of_huge_page() {
            // There may be room for a huge page later.
            true => self.pool.make_one(mover).map(|()| 1)?,
            false => self.pool.make(mover, &mut self.maker, most)?,
        };
        assert!(self.count <= self.limit, "{} frames, of at most {}", self.count, self.limit);
        Ok(())
    }

    /// Returns the frames of filled places that are not needed to the kernel.
    ///
    /// # Errors
    /// The kernel does not accept them.
    pub fn give_back(&mut self, places: Vec<u32>) -> terapage_sys::Result<()> {
        self.count -= places.len();
        self.pool.give_back(places)
    }

    /// Whether `blocks` blocks are few enough to be copied into the program, and there is room for
    /// that.
    pub fn may_copy(&mut self, blocks: usize) -> bool {
        if blocks * self.block > COPIED_BYTES {
            return false;
        }
        let room = self.count + blocks <= self.limit;
        if !room && self.spare == 0 {
            self.spare = (SPARE_BYTES / self.block).min(self.limit / SPARE_PART);
        }
        room
    }

    /// The number of frames to return so that copies have room again. 0 until copies have used up
    /// half of the spare frames.
    pub fn lacks_spare(&self) -> usize {
        if self.count + self.spare / 2 < self.limit {
            return 0;
        }
        (self.count + self.spare).saturating_sub(self.limit)
    }

    /// Checks that the existing frames are those of blocks (`used`) and the free ones. There may be
    /// `copied` more: blocks that are being copied into the program have a second frame.
    ///
    /// # Panics
    /// They are not.
    pub fn assert_agree(&self, used: usize, copied: usize) {
        let least = used + self.pool.free_len();
        assert!((least..=least + copied).contains(&self.count), "{} frames, not {least}", self.count);
    }
}
