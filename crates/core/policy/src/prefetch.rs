//! Prefetch policies: which blocks are read before a thread touches them.

mod accuracy;
mod auto;
mod dense;
mod recent;
mod sequential;
mod streams;
mod stride;
mod trend;

pub use auto::Auto;
pub use sequential::Sequential;
pub use stride::Stride;
pub use trend::Trend;

/// A run of blocks that are worth reading: `first`, then each `step`-th block, `count` in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The first block.
    pub first: u32,
    /// Blocks in the run.
    pub count: u32,
    /// The distance between two successive blocks, not 0; negative for a descending run.
    pub step: i32,
}

/// A prefetch policy.
///
/// The pager reports three kinds of touches to the policy: every fault that reads a block from the
/// store, every fault on a block whose read is under way, and the first touch of a *marker*. A
/// marker is the first block of each prefetched run; it is left out of the program's address space
/// so that its touch is seen.
pub trait Prefetch: Send {
    /// The name of the policy, for `--prefetch`.
    fn name(&self) -> &'static str;

    /// `block` was touched. Returns the run to read next, if any. A run of a stream is requested
    /// only once, but its blocks may already be in memory.
    fn touched(&mut self, block: u32) -> Option<Ahead>;

    /// The block that is touched next was requested, but its read is still under way: the stream
    /// should be further ahead.
    fn late(&mut self) {}

    /// The block that is touched next is neither in memory nor being read, though it may have been
    /// requested.
    fn missing(&mut self) {}

    /// After [`touched`](Prefetch::touched): another run of the same stream, if the stream is
    /// steady enough to read more runs at the same time.
    fn more(&mut self) -> Option<Ahead> {
        None
    }

    /// Prefetched blocks that were touched (`used`), or left memory untouched (`wasted`), as
    /// estimated from the markers.
    fn outcome(&mut self, _used: u32, _wasted: u32) {}

    /// Whether the run that begins with `block` should have a sample, because it is a guess; of
    /// other runs, some have one.
    fn wants_sample(&self, _block: u32) -> bool {
        false
    }

    /// The sample `block` of the blocks read ahead was touched (`used`), or left memory untouched.
    /// It stands for `blocks` blocks.
    fn sampled(&mut self, _block: u32, _used: bool, _blocks: u32) {}

    /// Whether the policy requests nothing at present, because the program used too little of the
    /// earlier requests.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// No prefetching.
pub struct Off;

impl Prefetch for Off {
    fn name(&self) -> &'static str {
        "off"
    }

    fn touched(&mut self, _block: u32) -> Option<Ahead> {
        None
    }
}

/// The names that [`by_name`] knows, the default first.
pub const NAMES: &[&str] = &["auto", "sequential", "stride", "trend", "off"];

/// The policy called `name`, for a memory of `frames` blocks. A run has at most `run` blocks, and
/// the policy requests at most `ahead` blocks beyond the last touch.
pub fn by_name(name: &str, frames: usize, run: u32, ahead: u32) -> Option<Box<dyn Prefetch>> {
    Some(match name {
        "auto" => Box::new(Auto::new(u32::try_from(frames).unwrap_or(u32::MAX), run, ahead)),
        "sequential" => Box::new(Sequential::new(run, ahead)),
        "stride" => Box::new(Stride::new(run, ahead)),
        "trend" => Box::new(Trend::new(run, ahead)),
        "off" => Box::new(Off),
        _ => return None,
    })
}
