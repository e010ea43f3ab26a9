//! How many frames are kept ready: soft, free, or being paged out.

/// The default share of the frames, in thousandths.
pub const PER_MILLE: usize = 20;

/// The number of ready bytes, if the share is smaller: as much as is read ahead of a stream. In
/// small budgets it is a tenth of the frames.
const STREAM_BYTES: usize = 16 << 20;

/// The number of frames that are kept ready, adjusted by what happens to them.
///
/// A stream needs many: it takes frames faster than blocks can be paged out. If blocks are touched
/// at random, and most blocks that leave are in use, a large number is a loss. Each block then
/// waits so long in its soft frame that it is touched again, which costs one minor fault after
/// another, and the blocks in use have fewer frames. So the number falls while more soft blocks are
/// touched than lose their frames, and rises while few are touched.
#[derive(Clone, Debug)]
pub struct SoftFrames {
    least: usize,
    most: usize,
    now: usize,
    touched: usize,
    gone: usize,
}

impl SoftFrames {
    /// For `frames` frames of `block_bytes` each; at least `per_mille` of them are kept ready.
    pub fn new(frames: usize, block_bytes: usize, per_mille: usize) -> Self {
        let least = (frames * per_mille / 1000).max(1);
        Self::between(least, (STREAM_BYTES / block_bytes).min(frames / 10))
    }

    /// The number stays between `least` and `most`, and begins with `most`.
    pub fn between(least: usize, most: usize) -> Self {
        let most = most.max(least);
        SoftFrames { least, most, now: most, touched: 0, gone: 0 }
    }

    /// Always `frames` frames.
    pub fn exactly(frames: usize) -> Self {
        Self::between(frames, frames)
    }

    /// The number of frames that should be ready now.
    pub fn now(&self) -> usize {
        self.now
    }

    /// The least and the greatest number that there can be.
    pub fn bounds(&self) -> (usize, usize) {
        (self.least, self.most)
    }

    /// The number of frames has changed: sets the bounds as [`new`](Self::new) does, and keeps the
    /// present number within them.
    pub fn resize(&mut self, frames: usize, block_bytes: usize, per_mille: usize) {
        let (least, most) = Self::new(frames, block_bytes, per_mille).bounds();
        let now = if self.now == self.most { most } else { self.now.clamp(least, most) };
        (self.least, self.most, self.now) = (least, most, now);
    }

    /// A block that had left the program was touched before it lost its frame.
    pub fn touched(&mut self) {
        self.touched += 1;
        self.judge();
    }

    /// A block lost its frame.
    pub fn gone(&mut self) {
        self.gone += 1;
        self.judge();
    }

    /// Adjusts the number after each turnover of the ready frames.
    fn judge(&mut self) {
        if self.touched + self.gone < self.now {
            return;
        }
        if self.touched > self.gone {
            self.now = (self.now - self.now / 4).max(self.least);
        } else if self.touched * 4 < self.gone {
            self.now = (self.now + self.now / 4 + 1).min(self.most);
        }
        (self.touched, self.gone) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::SoftFrames;

    #[test]
    fn large_budgets_keep_their_share() {
        let mut soft = SoftFrames::new(65536, 16 << 10, 20);
        assert_eq!((soft.now(), soft.bounds()), (1310, (1310, 1310)));
        (0..100_000).for_each(|_| soft.touched());
        assert_eq!(soft.now(), 1310);
    }

    #[test]
    fn small_budgets_follow_what_becomes_of_the_frames() {
        let mut soft = SoftFrames::new(6144, 16 << 10, 20);
        assert_eq!((soft.now(), soft.bounds()), (614, (122, 614)));
        // Four blocks are touched for each block that goes: random touches of blocks in use.
        (0..4000).for_each(|_| {
            (0..4).for_each(|_| soft.touched());
            soft.gone();
        });
        assert_eq!(soft.now(), 122);
        // Neither many nor few are touched: the number stays.
        (0..4000).for_each(|_| {
            soft.touched();
            soft.gone();
        });
        assert_eq!(soft.now(), 122);
        // A stream.
        (0..10_000).for_each(|_| soft.gone());
        assert_eq!(soft.now(), 614);
        soft.resize(3000, 16 << 10, 20);
        assert_eq!((soft.now(), soft.bounds()), (300, (60, 300)));
    }

    #[test]
    fn the_least_there_is() {
        for frames in [1, 8, 9, 100] {
            let soft = SoftFrames::new(frames, 64 << 10, 20);
            assert!(soft.now() >= 1 && soft.now() <= frames.div_ceil(10), "{soft:?}");
        }
        assert_eq!(SoftFrames::exactly(0).now(), 0);
    }
}
