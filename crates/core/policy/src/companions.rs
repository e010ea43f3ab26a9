//! Companions: neighbours that are read together with a block for which a thread waits.
//!
//! On most disks a read of a few pages takes little longer than a read of one page, because most of
//! the time is the cost of an operation ([`Disk`]). Neighbours in the store left memory together,
//! and may be needed together again. If one is touched, a minor fault replaces a read. A companion
//! counts as soft until it is touched, so it takes the place of a block that was about to lose its
//! frame.
//!
//! The number of companions follows from the disk's costs, and from the share of companions that is
//! touched.

use crate::disk::Disk;

/// The most blocks that are read together. Chosen, not measured.
const MOST: u32 = 8;
/// The number of companions is judged each time that this many have been touched or have left
/// memory. Chosen, not measured.
const WINDOW: u32 = 256;
/// The number doubles if at least GROW_PERCENT of the companions were touched, and halves if less
/// than SHRINK_PERCENT were. Chosen, not measured.
const GROW_PERCENT: u32 = 30;
const SHRINK_PERCENT: u32 = 15;
/// While blocks have no companions, one demanded read in this many gets companions for trial.
/// Chosen, not measured.
const TRIED_EACH: u32 = 16;
/// The transfer of companions may take at most this share of an operation's time on the disk, per
/// cent.
const BYTES_PERCENT: f64 = 50.0;

/// How many companions a block has.
#[derive(Clone, Debug)]
pub struct Companions {
    /// The number of blocks that are read together: a power of two, 1 for no companions.
    together: u32,
    reads: u32,
    touched: u32,
    left: u32,
}

impl Default for Companions {
    fn default() -> Self {
        Companions { together: 2, reads: 0, touched: 0, left: 0 }
    }
}

impl Companions {
    /// A block of `bytes` bytes is about to be read for a thread. Returns the number of blocks to
    /// read together, a power of two. They are an aligned group of this many blocks.
    pub fn together(&mut self, disk: &Disk, bytes: usize) -> u32 {
        self.reads = self.reads.wrapping_add(1);
        let wanted = match self.together {
            1 if self.reads.is_multiple_of(TRIED_EACH) => 2,
            together => together,
        };
        let affordable = |blocks: u32| {
            let more = f64::from(blocks - 1) * bytes as f64;
            disk.cost_ns(0.0, more) * 100.0 <= disk.operation_ns() * BYTES_PERCENT
        };
        let mut together = wanted;
        while together > 1 && !affordable(together) {
            together /= 2;
        }
        together
    }

    /// A companion was touched.
    pub fn touched(&mut self) {
        self.touched += 1;
        self.judge();
    }

    /// A companion left memory untouched.
    pub fn left(&mut self) {
        self.left += 1;
        self.judge();
    }

    fn judge(&mut self) {
        let all = self.touched + self.left;
        // Without companions there are few trials, so fewer are enough to judge.
        if all < if self.together == 1 { WINDOW / 8 } else { WINDOW } {
            return;
        }
        let percent = self.touched * 100 / all;
        if percent >= GROW_PERCENT {
            self.together = (self.together * 2).min(MOST);
        } else if percent < SHRINK_PERCENT {
            self.together = (self.together / 2).max(1);
        }
        (self.touched, self.left) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Companions;
    use crate::disk::Disk;

    const PAGE: usize = 4096;

    /// Reads with companions, `touched_percent` of which are touched. Returns the number of blocks
    /// read together at the end.
    fn play(disk: &Disk, bytes: usize, touched_percent: u32) -> u32 {
        let mut companions = Companions::default();
        let (mut together, mut count) = (1, 0);
        for _ in 0..20_001 {
            together = companions.together(disk, bytes);
            for _ in 1..together {
                count += 1;
                // Touched companions follow no pattern, only the percentage.
                let touched = count * 61 % 100 < touched_percent;
                if touched { companions.touched() } else { companions.left() }
            }
        }
        together
    }

    #[test]
    fn neighbours_that_are_touched_are_read_together() {
        let disk = Disk::assumed(300_000.0, 1.0);
        assert_eq!(play(&disk, PAGE, 80), 8);
        assert_eq!(play(&disk, PAGE, 20), 2, "neither many nor few");
        assert_eq!(play(&disk, PAGE, 5), 1);
    }

    #[test]
    fn no_more_is_read_than_costs_little() {
        // 50 us, and 4 us for each page.
        assert_eq!(play(&Disk::assumed(50_000.0, 1.0), PAGE, 80), 4);
        assert_eq!(play(&Disk::assumed(50_000.0, 1.0), 4 * PAGE, 80), 2);
        // A disk with a slow rate, and one that admits few operations.
        assert_eq!(play(&Disk::assumed(50_000.0, 10.0), PAGE, 80), 1);
        assert_eq!(play(&Disk::assumed(2_000_000.0, 16.0), PAGE, 80), 8);
    }

    #[test]
    fn it_tries_again_now_and_then() {
        let disk = Disk::assumed(300_000.0, 1.0);
        let mut companions = Companions::default();
        (0..1000).for_each(|_| companions.left());
        let tried = (0..160).filter(|_| companions.together(&disk, PAGE) > 1).count();
        assert_eq!(tried, 10);
        (0..1000).for_each(|_| companions.touched());
        assert_eq!(companions.together(&disk, PAGE), 8);
    }
}
